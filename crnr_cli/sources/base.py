"""The interface of all sources: an ordered listing of named samples, read in fixed batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from crnr_cli.arrays import Batch, Stamp
from crnr_cli.images.pixels import MAX_PIXELS, PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.images.regions import MARGIN
from crnr_cli.progress import Progress
from crnr_cli.records import dataclass
from crnr_cli.sources.compact_listing import to_json_texts
from crnr_cli.sources.formats import Keys
from crnr_cli.system.cores import available_cores

if TYPE_CHECKING:
    from crnr_cli.sources.boxes import BoxOptions
    from crnr_cli.sources.label_table import LabelOptions

Kind = Literal["pictures", "features"]  # as files store it; messages say images
Span = tuple[int, int]  # samples of a listing: start and stop, as in a slice


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """How sources are read, for any command."""

    keys: Keys = field(default_factory=Keys)
    nul_separated: bool = False  # whether the list on stdin is NUL-separated
    max_pixels: int = MAX_PIXELS
    jobs: int | None = None  # None: all available cores
    provider: str = "auto"  # the hardware that a network runs on
    labels: LabelOptions | None = None  # a table with the labels of images; None: their folders
    boxes: BoxOptions | None = None  # a detector's boxes, to read instead of whole images
    box_margin: float = MARGIN  # around boxes, as a share of their width and height
    dates: str | None = None  # how capture dates are found: by EXIF, or else by the file; None: not needed
    dates_option: str = "--dates"  # the option that needs dates, for messages
    max_failure_rate: float = 1.0  # stop when a larger share of the inputs fails
    all_failures: bool = False  # keep all failed queries for the report, not only the first ones
    batch_size: int | None = None  # None: chosen automatically

    @property
    def n_jobs(self) -> int:
        return self.jobs or available_cores()


class SourcePart(Protocol):
    """Consecutive samples of a source, small enough to send to another machine."""

    @property
    def paths(self) -> list[Path]:
        """Files that must exist where the part is opened."""

    def open(self, keys: Keys) -> Source: ...


class Source(ABC):
    """An ordered listing of the samples in the user's files."""

    ignored: int = 0  # system files, which are not listed
    removed_folders: Sequence[str] = ()  # folders of removed examples, which are not listed either

    @property
    def is_labelled(self) -> bool:
        """Whether the source holds labels; otherwise the folders of images may be classes."""
        return self.kind == "features"

    def check_classes(self, command: str) -> list[str]:
        """Refuse images without any class folder; return notes on folders that may not be the classes.

        Remedies name the `command` that reads the source.
        """
        return []

    @property
    def why_unlabelled(self) -> str:
        return "not in a class folder"

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """The kind of the samples; extracted features of images count as images."""

    @property
    def n_features(self) -> int | None:
        """Values per sample, if the source holds them; None for image files, which have to be decoded."""
        return None

    @property
    def recipes(self) -> list[tuple[Path, Mapping[str, Any] | None]]:
        """For every feature file, how `crnr extract` describes its extractor, or None."""
        return []

    @abstractmethod
    def names(self, span: Span | None = None) -> list[str]:
        """Return the names of all samples or of a span, as the user gave them."""

    @abstractmethod
    def spans(self, batch_size: int) -> list[Span]:
        """Return the fixed batches that the listing is divided into."""

    @abstractmethod
    def read_batches(
        self, spans: Sequence[Span], request: PixelRequest | None, decoders: DecoderPool
    ) -> Generator[Batch]:
        """Read these spans of the listing. Only images need the request and the decoders."""

    @abstractmethod
    def part(self, span: Span) -> SourcePart:
        """Return some of the samples, to be read elsewhere."""

    @abstractmethod
    def listing(self) -> Iterator[tuple[Any, ...]]:
        """Yield for every file its path and everything else that the listing holds about it."""

    def listing_texts(self) -> Iterator[bytes]:
        """Yield the listing as text, for its hash."""
        return to_json_texts(self.listing())

    @abstractmethod
    def filter(self, is_wanted: Callable[[str, Stamp, tuple[str, ...]], bool]) -> Source:
        """Return only the files that contain a wanted sample, by its name, stamp and candidate classes."""

    @abstractmethod
    def read_contents(self) -> Iterator[tuple[str, str, str]]:
        """Yield name, class ("" if none) and SHA-256 of every readable sample."""

    @abstractmethod
    def require_labels(self) -> None:
        """Raise an error if the source has no labels."""

    def with_classes(self, classes: Collection[str], *, strict: bool = False) -> Source:
        """Return the same listing; images directly in a named folder get its class, if that is known.

        A folder may be named after a class and contain both images and folders of images. Then its images
        have no class or, if `strict`, the source is refused.
        """
        return self

    def with_named_classes(self) -> Source:
        """Return the same listing; if several class folders were named, their images get their classes."""
        return self

    def folder_of_no_class(self) -> str | None:
        """Return a named folder of images only, like a class folder, that is not a known class."""
        return None

    def possible_classes(self) -> dict[str, str]:
        """Return, by sample name, the folder of the sample, if it may be its class.

        It may be if the user named the folder and it contains only images; some gallery may have its class.
        """
        return {}

    def class_names(self) -> Iterable[str]:
        """Return the classes in the listing, even if none of their samples is usable."""
        return ()

    def notes(self) -> list[str]:
        """Return notes for the user about the listing."""
        return []

    def read_sizes(self, max_pixels: int, decoders: DecoderPool, progress: Progress) -> set[tuple[int, int]]:
        """Return the sizes of all readable images."""
        return set()
