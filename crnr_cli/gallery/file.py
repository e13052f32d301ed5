"""The gallery file: save, load, check. docs/reference/gallery-format.md describes it."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import h5py
import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, GalleryError, UsageError
from crnr_cli.gallery.calibration import Calibration
from crnr_cli.gallery.gallery import (
    CLEANING_PATHS,
    LABEL_TYPES,
    CleaningTable,
    FittedGallery,
    LazyLabels,
    LazyStamps,
    LazyTexts,
    SampleTable,
    to_bytes,
    to_numbers,
)
from crnr_cli.gallery.hdf5_contents import FORMAT, HDF5Contents, read_content
from crnr_cli.methods import METHODS, Samples, default_parameters, make_method
from crnr_cli.recipe.base import Stored
from crnr_cli.recipe.recipe import Recipe, restore_extractor
from crnr_cli.recipe.steps import Power
from crnr_cli.records import dataclass
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.sources.formats.hdf5 import to_plain_value
from crnr_cli.system.descriptors import MAY_REPLACE_OPEN
from crnr_cli.system.names import quote_word, stat_or_none

if TYPE_CHECKING:
    from crnr_cli.gallery.hdf5_output import PlacedRows

_SINCE_4 = ("neighbors", "index")  # parameters that are stored only if they are used
_VECTORS = "samples/vectors"
_MAX_BYTES = 2**24  # of names: more would delay a shell's completion


@dataclass
class NewGallery:
    """A gallery file that is being written; vectors can be written before the rest."""

    content: Any  # the open HDF5 file
    handle: int
    _placed: PlacedRows | None = None

    def place_vectors(self, shape: tuple[int, int], dtype: str) -> PlacedRows:
        """Return where to write the vectors; they are given up if the shape turns out to be another one."""
        from crnr_cli.gallery.hdf5_output import PlacedRows  # here and below, as only writing needs it

        if self._placed is not None:
            del self.content[_VECTORS]
        self._placed = PlacedRows.of(self.content, _VECTORS, shape, dtype, self.handle)
        return self._placed

    def finish(self, gallery: FittedGallery) -> None:
        """Write everything that is not yet in the file."""
        _write(_make_content(gallery), self.content)


@contextmanager
def new_gallery(file: BinaryIO) -> Iterator[NewGallery]:
    """Write a gallery to an open file, piece by piece."""
    from crnr_cli.gallery.hdf5_output import written_hdf5

    with written_hdf5(file) as content:
        yield NewGallery(content, file.fileno())


def save_gallery(gallery: FittedGallery, place: Path | BinaryIO) -> None:
    """Write a gallery to a new file or an open one. To replace a file safely, use `files.replacing`."""
    from crnr_cli.gallery.hdf5_output import written_hdf5

    content = _make_content(gallery)  # before the file is touched
    with written_hdf5(place) as file:
        _write(content, file)


def _write(content: HDF5Contents, file: Any) -> None:
    for name, array in content.all_arrays().items():
        if name not in file:
            file.create_dataset(name, data=array)
    for group, values in content.attributes.items():
        file.require_group(group).attrs.update(values)


def _make_content(gallery: FittedGallery) -> HDF5Contents:
    """Return the content of the file, with its checksum."""
    if not gallery.gives_residuals():  # it could not be loaded, and might replace a good one
        given = ", ".join(f"{name} {value}" for name, value in gallery.parameters.items())
        raise UsageError(
            f"method {gallery.method.name} gives no finite residuals in {gallery.dtype} with {given}; "
            "choose less extreme parameters, or float64"
        )
    content = _to_content(gallery)
    if content.has_blocks:
        content = content.with_blocks()
    content.attributes["/"]["sha256"] = np.bytes_(content.compute_sha256())
    return content


# Of formats that are no galleries.
_OTHER_ENDINGS = {
    *(".csv", ".txt", ".jsonl", ".npy", ".npz", ".mat", ".parquet", ".html"),
    *(".png", ".jpg", ".jpeg"),
}


def refuse_other_ending(path: Path) -> None:
    """Raise UsageError if a gallery would be named like a file of another format."""
    if path.suffix.lower() in _OTHER_ENDINGS:
        raise UsageError(f"{path}: a gallery is an HDF5 file; give it a name that ends in .h5")


def missing_error(path: Path) -> GalleryError:
    """Return the error for a gallery that does not exist, with a command that `crnr build` accepts."""
    name = path.with_suffix(".h5") if path.suffix.lower() in _OTHER_ENDINGS else path
    it = "it" if name == path else "one"
    command = f"crnr build FOLDER -o {quote_word(str(name))}"
    return GalleryError(f"{path}: no such gallery; create {it} with `{command}`")


def load_gallery(path: Path, *, to_replace: bool = False) -> FittedGallery:
    """Read and check a gallery; any fault raises a GalleryError that names the file.

    A gallery that is going to be replaced is not mapped, if the system could not replace it then.
    """
    try:
        found = stat_or_none(path)
    except DataError as e:
        raise GalleryError(str(e)) from e
    if found is None:
        raise missing_error(path)
    if not stat.S_ISREG(found.st_mode):
        raise GalleryError(f"{path}: not a regular file; give a gallery that `crnr build` wrote")
    content = read_content(path, may_map=MAY_REPLACE_OPEN or not to_replace)
    root = content.attributes["/"]
    stored, actual = root.get("sha256"), content.compute_sha256()
    if stored != actual.encode() or content.has_damaged_blocks():
        raise GalleryError(f"{path}: damaged (the checksum does not match); restore it or build it again")
    try:
        gallery = replace(_from_content(content, path.parent), sha256=actual)
        if not gallery.gives_residuals():
            raise ValueError("the stored state gives no residuals")
        return gallery
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UsageError) as e:
        raise GalleryError(f"{path}: not a consistent gallery ({e}); build it again") from e


def _to_content(gallery: FittedGallery) -> HDF5Contents:
    from crnr_cli.gallery.hdf5_output import to_attributes

    classes = to_bytes(gallery.classes)
    if len(set(classes.tolist())) < len(classes):  # such as 3 and "3", or names that end in NUL
        raise DataError("two classes would have the same name in the gallery; give them different names")
    recipe = gallery.recipe.to_stored()
    arrays = {
        "samples/vectors": gallery.samples.vectors,
        "samples/class": gallery.samples.class_index.astype(np.int32),
        "samples/names": to_bytes(gallery.names),
        "samples/sha256": to_bytes(gallery.hashes),
        "classes/names": classes,
        **{f"recipe/{key}": array for key, array in recipe.arrays.items()},
        **{f"state/{key}": array for key, array in gallery.state.items()},
        **gallery.cleaning.to_arrays(),
    }
    if gallery.stamps:
        arrays["samples/size"], arrays["samples/mtime_ns"] = to_numbers(gallery.stamps)
    root = {
        "format": FORMAT,
        "version": gallery.format_version,
        "crnr_version": gallery.crnr_version,
        "method": gallery.method.name,
        **gallery.method.to_stored(),
    }
    if gallery.event_gap is not None:
        root["event_gap"] = gallery.event_gap
        arrays["samples/date"] = to_bytes(gallery.table.dates)
    if gallery.label_type:
        root["label_type"] = gallery.label_type
    attributes = {"/": root, "recipe": recipe.attributes}
    if gallery.calibration:
        of_calibration, attributes["calibration"] = gallery.calibration.stored()
        arrays |= {f"calibration/{key}": array for key, array in of_calibration.items()}
    return HDF5Contents(arrays, {group: to_attributes(values) for group, values in attributes.items()})


def _from_content(content: HDF5Contents, folder: Path) -> FittedGallery:
    arrays, root = content.arrays, content.attributes["/"]
    name = root["method"].decode()
    known = default_parameters(name) if name in METHODS else ()
    method = make_method(
        name, {key: to_plain_value(root[key]) for key in known if key in root or key not in _SINCE_4}
    )
    classes = list(LazyTexts(arrays["classes/names"]))
    class_index = arrays["samples/class"]
    if len(set(classes)) < len(classes):
        raise ValueError("two classes have the same name")
    if not all(classes) or UNKNOWN in classes or classes != sorted(classes):
        raise ValueError("the classes are not names in ascending order")
    table = SampleTable(
        names=LazyTexts(arrays["samples/names"]),
        labels=LazyLabels(classes, class_index),
        hashes=LazyTexts(arrays["samples/sha256"]),
        stamps=LazyStamps.read_from(arrays),
        dates=LazyTexts(arrays["samples/date"]) if "samples/date" in arrays else [],
    )
    if not _has_each_class(class_index, len(classes)):
        raise ValueError("examples and classes do not match")
    recipe = Recipe.from_stored(
        Stored(
            {key: to_plain_value(value) for key, value in content.attributes["recipe"].items()},
            _below("recipe/", arrays),
            folder,
        )
    )
    gallery = FittedGallery(
        samples=Samples.of(arrays["samples/vectors"], class_index, recipe.part_edges),
        table=table,
        classes=classes,
        recipe=recipe,
        method=method,
        state=_below("state/", arrays),
        crnr_version=root["crnr_version"].decode(),
        calibration=Calibration.from_stored(
            _below("calibration/", arrays), content.attributes.get("calibration", {})
        ),
        label_type=root.get("label_type", b"").decode(),
        cleaning=CleaningTable.read_from(arrays),
        event_gap=_read_event_gap(root, table) if "event_gap" in root else None,
    )
    n, d = gallery.samples.vectors.shape
    if gallery.label_type not in ("", *LABEL_TYPES):
        raise ValueError(f"the labels are of an unknown type, {gallery.label_type}")
    if gallery.dtype not in ("float32", "float64"):
        raise ValueError(f"the vectors are of type {gallery.dtype}")
    if not len(gallery.names) == len(gallery.hashes) == len(class_index) == n or recipe.n_outputs != d:
        raise ValueError("the arrays have different sizes")
    return gallery


def _has_each_class(class_index: Array, count: int) -> bool:
    """Return whether the numbers of an untrusted file are classes, and every class has an example.

    Not by np.unique, which sorts all examples, and loads the module of masked arrays.
    """
    has_example = np.zeros(count, bool)
    if (
        class_index.dtype.kind in "iu"
        and class_index.size
        and 0 <= class_index.min() <= class_index.max() < count
    ):
        has_example[class_index] = True
    return bool(has_example.all())


def _read_event_gap(root: Mapping[str, Any], table: SampleTable) -> float:
    """Return the gap between events; ValueError if the dates are no dates."""
    gap = float(root["event_gap"])
    if not (math.isfinite(gap) and gap >= 0):
        raise ValueError("the gap between events is not a time")
    table.group_events(gap)
    return gap


def _below(group: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays of a group, by their names in it."""
    return {path.removeprefix(group): array for path, array in arrays.items() if path.startswith(group)}


@dataclass(frozen=True)
class GallerySummary:
    """A summary of a gallery that needs only a part of the file."""

    n_classes: int
    names: Sequence[str]  # of the samples
    hashes: Sequence[str]
    settings: dict[str, Any]  # of the method and the recipe
    cleaning: CleaningTable
    is_calibrated: bool

    @classmethod
    def read(cls, path: Path) -> GallerySummary:
        """Read the summary; GalleryError if the file is not a gallery. The checksum is not verified."""
        wanted = {"classes/names", "samples/names", "samples/sha256", *CLEANING_PATHS}
        content = read_content(path, wanted, may_map=MAY_REPLACE_OPEN)
        try:
            names, hashes = (LazyTexts(content.arrays[f"samples/{name}"]) for name in ("names", "sha256"))
            cleaning = CleaningTable.read_from(content.arrays)
            n_classes, is_calibrated = (
                len(content.arrays["classes/names"]),
                "calibration" in content.attributes,
            )
            return cls(n_classes, names, hashes, _settings(content), cleaning, is_calibrated)
        except (LookupError, AttributeError, TypeError, ValueError, UsageError) as e:
            raise GalleryError(f"{path}: not a consistent gallery ({e}); build it again") from e

    @classmethod
    def of(cls, gallery: FittedGallery) -> GallerySummary:
        settings = _settings(_to_content(gallery))
        is_calibrated = gallery.calibration is not None
        n_classes = len(gallery.classes)
        return cls(n_classes, gallery.names, gallery.hashes, settings, gallery.cleaning, is_calibrated)


def _settings(content: HDF5Contents) -> dict[str, Any]:
    """Return the attributes, except those that describe the file; the extractor as text."""
    about = ("format", "version", "crnr_version", "sha256", "label_type")
    recipe = {key: to_plain_value(value) for key, value in content.attributes.get("recipe", {}).items()}
    root = {key: to_plain_value(value) for key, value in content.attributes["/"].items() if key not in about}
    if recipe.get("kind") == "pictures":
        recipe["extractor"] = restore_extractor(Stored(recipe)).describe()
    recipe.setdefault(Power.name, Power.off)  # not stored if it is off, but it may be on by default
    return root | recipe


def stored_names(path: Path, of: Literal["classes", "samples"]) -> list[str]:
    """Return the names of all classes or samples; empty if the file is no gallery or has too many."""
    try:
        with h5py.File(path) as file:
            names = file[f"{of}/names"]
            if names.dtype.kind != "S" or names.ndim != 1 or names.nbytes > _MAX_BYTES:
                return []
            return [os.fsdecode(name) for name in names[()].tolist()]
    except (OSError, LookupError, AttributeError, TypeError, ValueError, RuntimeError):
        return []
