"""The gallery in memory: labelled unit vectors, the recipe that made them, and a fitted method."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field, fields, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import numpy as np

from crnr_cli import __version__
from crnr_cli.arrays import Array, Stamp, Values, map_values, row_minima, take_rows
from crnr_cli.errors import NotConverged
from crnr_cli.gallery.calibration import Calibration, calibrate
from crnr_cli.images.events import group_by_gap
from crnr_cli.methods import Method, Samples, State
from crnr_cli.methods.base import RefittedSamples, residuals
from crnr_cli.methods.by_neighbors import worst_index_measurement
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.records import dataclass
from crnr_cli.results.probability import Calibrated

if TYPE_CHECKING:
    from crnr_cli.results.thresholds import ThresholdTable

T = TypeVar("T")
_TRIED_ITERATIONS = 20
# NumPy's names of label types other than text.
_NUMBERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
LABEL_TYPES = frozenset({"bool", "float16", "float32", "float64"} | _NUMBERS)


class _LazyColumn(Sequence[T]):
    """Equal to any sequence of the same values; a slice of it is a list."""

    def __init__(self, *arrays: Array) -> None:
        self.arrays = arrays

    @abstractmethod
    def _values(self, *arrays: Array) -> list[T]:
        """Return the entries in these slices of the arrays."""

    def __len__(self) -> int:
        return len(self.arrays[0])

    @overload
    def __getitem__(self, where: int) -> T: ...
    @overload
    def __getitem__(self, where: slice) -> list[T]: ...
    def __getitem__(self, where: int | slice) -> T | list[T]:
        if isinstance(where, slice):
            return self._values(*(array[where] for array in self.arrays))
        place = range(len(self))[where]  # IndexError beyond the end
        return self[place : place + 1][0]

    def take(self, rows: Array) -> Self:
        """Return some of the entries, without decoding them."""
        taken = copy(self)
        taken.arrays = tuple(array[rows] for array in self.arrays)
        return taken

    def __iter__(self) -> Iterator[T]:
        step = 10_000  # few enough to need no memory
        for start in range(0, len(self), step):
            yield from self[start : start + step]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class LazyTexts(_LazyColumn[str]):
    """Names as they are stored: UTF-8, or the bytes that the file system uses."""

    def __init__(self, stored: Array) -> None:
        if stored.ndim != 1 or stored.dtype.kind != "S":
            raise ValueError("the names are not text")
        super().__init__(stored)

    @property
    def stored(self) -> Array:
        return self.arrays[0]

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        return self.stored

    def _values(self, *arrays: Array) -> list[str]:
        return [value.decode("utf-8", "surrogateescape") for value in arrays[0].tolist()]


def to_bytes(texts: Sequence[str]) -> Array:
    """Return UTF-8 whatever the locale; names that are not UTF-8 are stored as the bytes that were read."""
    if isinstance(texts, LazyTexts):
        return _trim(texts.stored)
    return np.array([text.encode("utf-8", "surrogateescape") for text in texts], dtype=bytes)


def _trim(stored: Array) -> Array:
    """Return texts as wide as the longest: the file's longest text may have been removed."""
    table = np.ascontiguousarray(stored).view(np.uint8).reshape(len(stored), stored.dtype.itemsize)
    width = max(np.flatnonzero(table.any(axis=0)).tolist(), default=0) + 1
    return stored if width == stored.dtype.itemsize else stored.astype(f"S{width}")


class LazyStamps(_LazyColumn[Stamp]):
    """Sizes and times of modification."""

    def __init__(self, sizes: Array, times: Array) -> None:
        if not sizes.ndim == times.ndim == 1 or len(sizes) != len(times):
            raise ValueError("the arrays have different sizes")
        super().__init__(sizes, times)

    @classmethod
    def read_from(cls, arrays: Mapping[str, Array]) -> Sequence[Stamp]:
        """Return the stamps among the arrays of a gallery file; old files have none."""
        if "samples/size" not in arrays:
            return []
        return cls(arrays["samples/size"], arrays["samples/mtime_ns"])

    def _values(self, *arrays: Array) -> list[Stamp]:
        return list(map(Stamp, *(array.tolist() for array in arrays)))


def to_numbers(stamps: Sequence[Stamp]) -> tuple[Array, Array]:
    """Return the sizes and the times as a gallery stores them."""
    if isinstance(stamps, LazyStamps) and all(array.dtype == np.int64 for array in stamps.arrays):
        sizes, times = stamps.arrays
        return sizes, times
    sizes = np.array([stamp.size for stamp in stamps], dtype=np.int64)
    times = np.array([stamp.mtime_ns for stamp in stamps], dtype=np.int64)
    return sizes, times


class LazyLabels(_LazyColumn[str]):
    """The classes of samples, stored as their numbers."""

    def __init__(self, classes: Sequence[str], class_index: Array) -> None:
        super().__init__(class_index)
        self._classes = classes

    def _values(self, *arrays: Array) -> list[str]:
        return [self._classes[number] for number in arrays[0].tolist()]


@dataclass(frozen=True)
class Table:
    """The base of tables whose fields are columns: lists, or columns that are decoded on access.

    Each column has one entry per row. All but the first may be empty, if nothing is known.
    """

    def __post_init__(self) -> None:
        if any(len(column) not in (0, len(self)) for column in self._columns().values()):
            raise ValueError("the arrays have different sizes")

    def __len__(self) -> int:
        return len(next(iter(self._columns().values())))

    def _columns(self) -> dict[str, Sequence[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def take(self, rows: Sequence[int] | Array) -> Self:
        """Return these rows, in this order."""
        numbers = np.asarray(rows, dtype=np.int64)
        if np.array_equal(numbers, np.arange(len(self))):
            return self
        return replace(self, **{name: _take(column, numbers) for name, column in self._columns().items()})

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """Return the rows of all tables; there may be none."""
        columns = [table._columns() for table in tables]
        return cls(
            **{name: _join([each[name] for each in columns]) for name in (columns[0] if columns else ())}
        )

    def __add__(self, other: Self) -> Self:
        return self.concatenate([self, other])


def _take(column: Sequence[T], rows: Array) -> Sequence[T]:
    if isinstance(column, _LazyColumn):
        return column.take(rows) if len(column) else column
    return take_rows(column, rows) if column else []


def _join(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Join columns; columns after a column of bytes or numbers are stored like it."""
    if isinstance(columns[0], LazyTexts):
        return LazyTexts(np.concatenate([to_bytes(column) for column in columns]))
    if isinstance(columns[0], LazyStamps):
        return LazyStamps(*map(np.concatenate, zip(*map(to_numbers, columns), strict=True)))
    return list(chain.from_iterable(columns))


@dataclass(frozen=True)
class SampleTable(Table):
    """The facts about labelled samples, besides their values."""

    names: Sequence[str] = field(default_factory=list)  # paths, or file#row
    labels: Sequence[str] = field(default_factory=list)
    hashes: Sequence[str] = field(default_factory=list)  # SHA-256 of each sample's content
    stamps: Sequence[Stamp] = field(default_factory=list)  # of the samples' files
    dates: Sequence[str] = field(default_factory=list)  # when photographs were taken; empty unless requested

    def with_stamps(self) -> SampleTable:
        """Return a table with stamps: unknown stamps are zero."""
        return self if self.stamps else replace(self, stamps=[Stamp()] * len(self))

    def group_events(self, gap: float | None) -> Array | None:
        """Return (n,): the event of every sample, by the gap in seconds; None without a gap."""
        return None if gap is None else group_by_gap(list(self.names), list(self.dates), gap)

    def with_dates(self, are_wanted: bool) -> SampleTable:
        """Return a table with dates: unknown dates are empty. If none are wanted, there are no dates."""
        if not are_wanted:
            return replace(self, dates=[])
        return self if self.dates else replace(self, dates=[""] * len(self))


_OF_CLEANING = {
    "hashes": "sha256",
    "names": "names",
    "former": "former",
    "labels": "class",
    "times": "when",
    "reasons": "why",
}
CLEANING_PATHS = frozenset(f"cleaning/{name}" for name in (*_OF_CLEANING.values(), "size", "mtime_ns"))


@dataclass(frozen=True)
class CleaningTable(Table):
    """The decisions of people on examples and classes, the oldest first; `gallery.cleaning` applies them."""

    hashes: Sequence[str] = field(default_factory=list)  # of the example's content; empty for a class
    names: Sequence[str] = field(default_factory=list)  # of the example
    former: Sequence[str] = field(default_factory=list)  # the class without the decision
    labels: Sequence[str] = field(default_factory=list)  # the class since then; empty if it was removed
    times: Sequence[str] = field(default_factory=list)  # in UTC, as in ISO 8601
    reasons: Sequence[str] = field(default_factory=list)  # the command
    stamps: Sequence[Stamp] = field(default_factory=list)  # of the example's file

    @classmethod
    def read_from(cls, arrays: Mapping[str, Array]) -> CleaningTable:
        """Return the decisions among the arrays of a gallery file, which may have none."""
        stored = {path: array for path, array in arrays.items() if path.startswith("cleaning/")}
        if not stored:
            return cls()
        if len({array.shape for array in stored.values()}) > 1:
            raise ValueError("the arrays of the cleaning have different sizes")
        texts = {column: LazyTexts(stored[f"cleaning/{name}"]) for column, name in _OF_CLEANING.items()}
        sizes, times = stored["cleaning/size"], stored["cleaning/mtime_ns"]
        if not sizes.dtype.kind == times.dtype.kind == "i":
            raise ValueError("the sizes and times of the cleaning are not whole numbers")
        return cls(**texts, stamps=LazyStamps(sizes, times))

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays that `read_from` takes."""
        if not len(self):
            return {}
        texts = {f"cleaning/{name}": to_bytes(getattr(self, column)) for column, name in _OF_CLEANING.items()}
        sizes, times = to_numbers(self.stamps)
        return texts | {"cleaning/size": sizes, "cleaning/mtime_ns": times}

    def describe(self) -> list[dict[str, str | None]]:
        """Return the decisions as plain values."""
        columns = (self.names, self.hashes, self.former, self.labels, self.times, self.reasons)
        keys = ("sample", "sha256", "former", "class", "when", "why")
        return [
            {key: text or None for key, text in zip(keys, texts, strict=True)}
            for texts in zip(*columns, strict=True)
        ]


@dataclass(frozen=True)
class FittedGallery:
    """Everything that classify needs; the original images are no longer needed."""

    samples: Samples
    table: SampleTable  # of the samples
    classes: list[str]  # in name order
    recipe: Recipe
    method: Method
    state: State
    crnr_version: str = __version__
    calibration: Calibration | None = None  # for rejecting queries of no class
    sha256: str = ""  # of the file it was loaded from
    label_type: str = ""  # of the labels that an estimator was fitted to, unless text
    cleaning: CleaningTable = field(default_factory=CleaningTable)
    event_gap: float | None = None  # seconds between the photographs of an event; None: no events

    @property
    def events(self) -> Array | None:
        """(n,): the event of every sample; samples of one event are held out together. None: no events."""
        return self.table.group_events(self.event_gap)

    @property
    def names(self) -> Sequence[str]:
        return self.table.names

    @property
    def hashes(self) -> Sequence[str]:
        return self.table.hashes

    @property
    def stamps(self) -> Sequence[Stamp]:
        """Empty if unknown."""
        return self.table.stamps

    @property
    def dtype(self) -> str:
        return str(self.samples.vectors.dtype)

    @property
    def factor(self) -> str | None:
        """dense or low-rank, for methods that have a factor."""
        arrays = {key.partition(".")[0] for key in self.state}  # with parts, each array has a number
        if "H" in arrays:
            return "dense"
        return "low-rank" if "E" in arrays else None

    @property
    def format_version(self) -> int:
        """The first version of the file's format that has everything in this gallery."""
        return max(self.recipe.since_version, self.method.since_version)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the method."""
        return self.method.parameters

    def residuals(self, vectors: Array) -> Values:
        """Return (m, K): the residuals of m unit vectors, as rows."""
        return residuals(self.method, self.samples, self.state, vectors)

    def gives_residuals(self) -> bool:
        """Classify one sample, to test whether the state matches the samples, whatever the method."""
        iterations = self.parameters.get("iterations", 0)
        worst_index_measurement(self.state)  # it is shown, even if the index is not used
        # Few, because an untrusted gallery may need more time than any user would wait.
        few = {"iterations": _TRIED_ITERATIONS} if iterations > _TRIED_ITERATIONS else {}
        tried = replace(
            self,
            method=self.method.with_parameters(**few),
            samples=self.method.smoke_test_samples(self.samples),
        )
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)  # the sample is not one of the user's queries
            found = tried.residuals(self.samples.vectors[:1])
        return found.shape == (1, len(self.classes)) and bool(
            row_minima(map_values(np.isfinite, found)).all()
        )

    def calibrate(self, jobs: int, progress: Progress = silent) -> FittedGallery:
        """Return the gallery with a calibration; up to `jobs` folds are classified at once."""
        return replace(self, calibration=self._calibrate(jobs, progress))

    def _calibrate(self, jobs: int = 1, progress: Progress = silent) -> Calibration:
        return calibrate(
            self.samples_to_hold_out, self.method, self.hashes, jobs, progress, events=self.events
        )

    @property
    def samples_to_hold_out(self) -> Samples:
        """The samples, whose vectors are made again without those held out, if classes matter."""
        samples = self.samples
        refit = self.recipe.refitter(samples.vectors, samples.class_index)
        if refit is None:
            return samples
        return RefittedSamples(samples.vectors, samples.edges, samples.parts, refit=refit)

    def measure_thresholds(self) -> ThresholdTable | None:
        """Return the answers to held-out samples at every threshold; None if they are not stored."""
        stored = None if self.has_outdated_calibration else self.calibration
        return stored.answers.measure() if stored and stored.answers else None

    @property
    def has_outdated_calibration(self) -> bool:
        return self.calibration is not None and self.calibration.is_outdated(self.method)

    @cached_property
    def certainty(self) -> Calibrated:
        """The probabilities of answers: as stored, or computed once, on first access."""
        stored = self.calibration or self._calibrate()
        if stored.certainty is None or self.has_outdated_calibration:
            stored = self._calibrate()
        assert stored.certainty is not None
        return stored.certainty


def describe(gallery: FittedGallery) -> dict[str, Any]:
    """Return the content and the settings of a gallery, as plain values."""
    counts = np.diff(gallery.samples.edges).tolist()
    thresholds = gallery.measure_thresholds()
    return {
        "format_version": gallery.format_version,
        "crnr_version": gallery.crnr_version,
        "n_classes": len(gallery.classes),
        "n_samples": len(gallery.names),
        "dimension": int(gallery.samples.vectors.shape[1]),
        "dtype": gallery.dtype,
        "method": gallery.method.name,
        "parameters": gallery.parameters,
        "factor": gallery.factor,
        **_describe_index(gallery),
        **gallery.recipe.facts(),
        **({} if gallery.event_gap is None else {"event_gap": gallery.event_gap}),
        "calibration": gallery.calibration.origin if gallery.calibration else None,
        "thresholds": thresholds.to_record() if thresholds else None,
        "classes": dict(zip(gallery.classes, counts, strict=True)),
        "cleaning": gallery.cleaning.describe(),
    }


def _describe_index(gallery: FittedGallery) -> dict[str, Any]:
    measured = worst_index_measurement(gallery.state)
    if measured is None:
        return {}
    return {"index_recall": round(measured.recall, 6), "index_agreement": round(measured.agreement, 6)}
