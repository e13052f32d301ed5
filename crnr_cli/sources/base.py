"""What all sources have in common: an ordered listing of named samples, read in fixed batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from crnr_cli.arrays import Batch, Stamp
from crnr_cli.images.pixels import MAX_PIXELS, PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.sources.compact_listing import to_json_texts
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.label_table import LabelOptions
from crnr_cli.system.cores import available_cores

Kind = Literal["pictures", "features"]  # as files store it; messages say images
Span = tuple[int, int]  # samples of a listing: start and stop, as in a slice


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """How sources are read, for any command."""

    keys: Keys = field(default_factory=Keys)
    nul_separated: bool = False  # whether the list on stdin is
    max_pixels: int = MAX_PIXELS
    jobs: int | None = None  # None: all available cores
    provider: str = "auto"  # what a network runs on
    labels: LabelOptions | None = None  # a table with the labels of images; None: their folders
    max_failure_rate: float = 1.0  # stop when more than this share of the inputs has to be skipped
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
    """An ordered listing of the samples in the files that the user named."""

    ignored: int = 0  # system files that are not listed

    @property
    def is_labelled(self) -> bool:
        """Whether labels are given as such; otherwise the folders of images are, if they are classes."""
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
        """What the samples are; images also if their values have been extracted before."""

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
        """The names of all samples or of a span, as the user gave them."""

    @abstractmethod
    def spans(self, batch_size: int) -> list[Span]:
        """The fixed batches that the listing is divided into."""

    @abstractmethod
    def read_batches(
        self, spans: Sequence[Span], request: PixelRequest | None, decoders: DecoderPool
    ) -> Generator[Batch]:
        """Read these spans of the listing. Only images need the request and the decoders."""

    @abstractmethod
    def part(self, span: Span) -> SourcePart:
        """Some of the samples, to be read elsewhere."""

    @abstractmethod
    def listing(self) -> Iterator[tuple[Any, ...]]:
        """For every file, its path and everything else that the listing knows about it."""

    def listing_texts(self) -> Iterator[bytes]:
        """The listing as text, for its hash."""
        return to_json_texts(self.listing())

    @abstractmethod
    def filter(self, is_wanted: Callable[[str, Stamp, tuple[str, ...]], bool]) -> Source:
        """Only the files that contain a wanted sample, by its name, stamp and candidate classes."""

    @abstractmethod
    def read_contents(self) -> Iterator[tuple[str, str, str]]:
        """Name, class ("" if none) and SHA-256 of every sample that can be read."""

    @abstractmethod
    def require_labels(self) -> None:
        """Refuse a source that has no labels."""

    def with_classes(self, classes: Collection[str], *, strict: bool = False) -> Source:
        """Return the same listing; images directly in a named folder are of its class, if that is known.

        A folder may be named after a class and contain both images and folders of images. Then its
        images are of no class or, if `strict`, the source is refused.
        """
        return self

    def folder_of_no_class(self) -> str | None:
        """Return a named folder that has only images, as the folder of a class, but belongs to none."""
        return None

    def possible_classes(self) -> dict[str, str]:
        """Return, by the name of a sample, the folder that it is directly in, if that may be its class.

        That is a folder that the user named and that contains only images; some gallery may have its class.
        """
        return {}

    def class_names(self) -> Iterable[str]:
        """The classes that are known from the listing alone, even if none of their samples is usable."""
        return ()

    def notes(self) -> list[str]:
        """What the user should know about the listing."""
        return []

    def read_sizes(self, max_pixels: int, decoders: DecoderPool, progress: Progress) -> set[tuple[int, int]]:
        """The sizes of all readable images."""
        return set()
