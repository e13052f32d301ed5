"""Build: a labelled source becomes a gallery file."""

from __future__ import annotations

import hashlib
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.gallery.file import save_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.methods import Method, Samples, make_method
from crnr_cli.pictures.pixels import MAX_PIXELS, Form, Pixels
from crnr_cli.pictures.pool import decode
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.network import BATCH as EXTRACTOR_BATCH
from crnr_cli.recipe.network import make_extraction
from crnr_cli.recipe.network_settings import ExtractorOptions
from crnr_cli.recipe.pca import principal_axes
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.sources.base import Keys
from crnr_cli.sources.folders import Features, Pictures, Source, is_unclaimed, open_source
from crnr_cli.sources.loading import RawBatch, raw_batches
from crnr_cli.system import memory
from crnr_cli.system.cores import available_cores
from crnr_cli.system.files import check_output, replacing

LARGEST_NATIVE = 64  # pictures that share a size up to this keep it
DEFAULT_SIZE = (32, 32)
BATCH = 1024
WEAK_PIXELS = (
    "raw pixels are weak on photographs: on 12 kinds of flowers they are right in 26 of 100 cases, features "
    "of a network in 94; use such features with --extractor MODEL.onnx"
)
MOST_TOLD = 10  # of notes of one kind


@dataclass(frozen=True)
class BuildOptions:
    method: str = "crnr"
    parameters: Mapping[str, object] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    color: bool = False
    power: float = 1.0
    pca: int | None = None
    dtype: str = "float32"
    max_pixels: int = MAX_PIXELS
    keys: Keys = field(default_factory=Keys)
    nul_separated: bool = False
    jobs: int | None = None
    extractor: ExtractorOptions | None = None
    calibrate: bool = False  # store when a query is none of the classes
    max_failure_rate: float = 1.0  # stop when more than this share of the samples has to be left out


@dataclass(frozen=True)
class LeftOut:
    """A sample that has no place in the gallery, and why."""

    name: str
    error: SampleError

    @property
    def is_skipped(self) -> bool:
        """Meant to be a sample."""
        return not is_unclaimed(self.name, self.error.status)


@dataclass(frozen=True)
class BuildReport:
    gallery: Gallery
    seconds: float
    file_bytes: int
    left_out: list[LeftOut]
    notes: list[str]  # what the user should know

    @property
    def skipped(self) -> int:
        """Left out, though meant to be samples."""
        return sum(left.is_skipped for left in self.left_out)


@dataclass
class LabelledVectors:
    """A labelled source as vectors, in its order: what the gallery, or a test of it, is made of."""

    recipe: Recipe
    names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    vectors: Array = field(default_factory=lambda: np.empty((0, 0)))
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def build(
    names: Sequence[str], output: Path, options: BuildOptions, progress: Progress = silent
) -> BuildReport:
    """Read the source, fit the method, and write the gallery at once."""
    started = time.perf_counter()
    check_output(output, names)
    method = make_method(options.method, options.parameters)
    if reason := method.unavailable():
        raise UsageError(reason)
    source = open_source(names, options.keys, nul_separated=options.nul_separated)
    with replacing(output) as part:
        labelled = read_labelled(source, options, progress)
        progress("fitting", 0, 1)
        gallery = make_gallery(labelled, method)
        if options.calibrate:
            gallery = replace(gallery, calibration=calibrate(gallery.samples, method))
        progress("fitting", 1, 1)
        save_gallery(gallery, part)
        file_bytes = part.stat().st_size
    return BuildReport(
        gallery=gallery,
        file_bytes=file_bytes,
        seconds=time.perf_counter() - started,
        left_out=labelled.left_out,
        notes=labelled.notes,
    )


def write_gallery(gallery: Gallery, output: Path) -> int:
    """The size of the file, which appears whole."""
    with replacing(output) as part:
        save_gallery(gallery, part)
        return part.stat().st_size


def read_labelled(source: Source, options: BuildOptions, progress: Progress = silent) -> LabelledVectors:
    """Read all samples of a source, fit the recipe on them, and apply it."""
    # With PCA to come the raw values are needed once more; without it the unit vectors are all.
    labelled = read_samples(source, options, progress, raw=options.pca is not None)
    if options.pca:
        axes = principal_axes(labelled.vectors, options.pca, options.power)
        apply_recipe(labelled, replace(labelled.recipe, pca=axes), options.dtype)
    return labelled


def read_samples(
    source: Source, options: BuildOptions, progress: Progress = silent, *, raw: bool
) -> LabelledVectors:
    """All samples that can be used: their raw values, or their unit vectors without PCA."""
    recipe, notes = _recipe_before_pca(source, options, options.jobs or available_cores(), progress)
    _refuse_too_large(len(source), recipe, options)
    labelled = LabelledVectors(recipe, notes=notes)
    _read(labelled, source, options, progress, raw=raw)
    refuse_nothing(labelled.names, labelled.left_out)
    labelled.notes += unusable_classes(source, labelled.labels)
    return labelled


def apply_recipe(labelled: LabelledVectors, recipe: Recipe, dtype: str) -> None:
    """Replace raw values by the recipe's unit vectors."""
    applied = []
    for start in range(0, len(labelled.vectors), BATCH):
        vectors, errors = recipe.unit_vectors(labelled.vectors[start : start + BATCH], dtype)
        for row, error in enumerate(errors, start=start):
            if error:
                raise DataError(f"{labelled.names[row]}: nothing is left of it after PCA; remove it")
        applied.append(vectors)
    labelled.vectors, labelled.recipe = np.concatenate(applied), recipe


def sort_by_class(labels: Sequence[str]) -> tuple[list[str], Array, Array]:
    """The classes in name order, the order that sorts the samples by them, and the class index so sorted."""
    classes = sorted(set(labels))
    _refuse_lookalikes(classes)
    _refuse_reserved(classes)
    position = {name: i for i, name in enumerate(classes)}
    class_index = np.array([position[label] for label in labels])
    order = np.argsort(class_index, kind="stable")
    return classes, order, class_index[order]


def read_by_recipe(
    recipe: Recipe, source: Source, options: BuildOptions, progress: Progress = silent
) -> LabelledVectors:
    """Read all samples of a source by the recipe of a gallery that there is."""
    labelled = LabelledVectors(recipe, notes=_notes(source))
    _read(labelled, source, options, progress, raw=False)
    return labelled


def _read(
    labelled: LabelledVectors, source: Source, options: BuildOptions, progress: Progress, *, raw: bool
) -> None:
    kept: list[Array] = []
    form = labelled.recipe.form(options.max_pixels, with_hash=True)
    batch_size = EXTRACTOR_BATCH if form.extraction else BATCH
    for batch in raw_batches(source, form, batch_size, options.jobs or available_cores()):
        good, vectors = _screen(batch, labelled, options.dtype)
        if good:
            kept.append(batch.values[good] if raw else vectors[good])
        skipped = [left for left in labelled.left_out if left.is_skipped]
        if len(skipped) > options.max_failure_rate * len(source):
            culprit = skipped[int(options.max_failure_rate * len(source))]
            raise DataError(
                f"{culprit.name}: {culprit.error}; stopped, as {len(skipped)} of {len(source)} samples "
                f"have to be left out and at most {options.max_failure_rate:.2%} may be"
            )
        progress("reading", batch.end, len(source))
    if kept:
        labelled.vectors = np.concatenate(kept)
    _refuse_non_finite(labelled, source)


def make_gallery(labelled: LabelledVectors, method: Method) -> Gallery:
    """Sort the samples by class, in name order, and fit."""
    classes, order, class_index = sort_by_class(labelled.labels)
    samples = Samples.of(labelled.vectors[order], class_index)
    refuse_unfittable(method, samples)
    if len(classes) == 1:
        labelled.notes.append(f"only one class, {classes[0]}: classify will refuse this gallery")
    labelled.notes += _in_two_classes(labelled)
    with np.errstate(over="ignore"):  # what is lost by it is found when the gallery is saved
        state = method.fit(samples)
    return Gallery(
        samples=samples,
        names=[labelled.names[i] for i in order],
        hashes=[labelled.hashes[i] for i in order],
        stamps=[labelled.stamps[i] for i in order] if labelled.stamps else [],
        classes=classes,
        recipe=labelled.recipe,
        method=method,
        state=state,
    )


def _recipe_before_pca(
    source: Source, options: BuildOptions, jobs: int, progress: Progress
) -> tuple[Recipe, list[str]]:
    notes = _notes(source)
    if isinstance(source, Features):
        given = {"--extractor": options.extractor, "--size": options.size, "--color": options.color}
        for option, value in given.items():
            if value:
                raise UsageError(f"{option} is for pictures, and these are features already")
        return Recipe("features", source.n_features, power=options.power), notes
    if options.extractor:
        return _recipe_by_extractor(options.extractor, options, jobs, notes), notes
    size = options.size
    if size is None:
        sizes = _sizes(source, options.max_pixels, jobs, progress)
        if len(sizes) == 1 and max(next(iter(sizes))) <= LARGEST_NATIVE:
            size = next(iter(sizes))
        else:
            size = DEFAULT_SIZE
            why = "differ in size" if len(sizes) > 1 else f"are larger than {LARGEST_NATIVE}x{LARGEST_NATIVE}"
            notes.append(f"pictures {why}: all brought to {size[0]}x{size[1]}; --size chooses another size")
            if any(max(found) > LARGEST_NATIVE for found in sizes):
                notes.append(WEAK_PIXELS)
    bands = 3 if options.color else 1
    return Recipe("pictures", size[0] * size[1] * bands, size, options.color, power=options.power), notes


def _recipe_by_extractor(
    extractor: ExtractorOptions, options: BuildOptions, jobs: int, notes: list[str]
) -> Recipe:
    if options.color:
        raise UsageError("--color goes without --extractor: the model knows its channels, see --channels")
    how = make_extraction(replace(extractor, size=options.size), jobs)
    if extractor.preset is None:
        notes.append(
            f"pictures prepared as {extractor.preset_name} is; --extractor-preset chooses another way"
        )
    return Recipe("pictures", how.n_outputs, how.size, how.bands == 3, power=options.power, extraction=how)


def _notes(source: Source) -> list[str]:
    """What the user should know about a labelled source, which must have labels."""
    if isinstance(source, Features):
        if any(file.labels is None for file in source.files):
            raise DataError(f"{source.files[0].path}: no labels; name their dataset with --labels-key")
        return []
    notes = [f"class {name}: nothing in it, left out" for name in source.empty_folders]
    if source.ignored:
        notes.insert(0, f"{source.ignored} system files passed over (.DS_Store, Thumbs.db and the like)")
    return notes


def unusable_classes(source: Source, labels: Sequence[str]) -> list[str]:
    """A note on every class that has files, and no sample of them."""
    if isinstance(source, Features):
        return []
    listed = dict.fromkeys(file.folders[0] for file in source.files if file.folders)
    usable = set(labels)
    return cut(
        [f"class {name}: nothing in it can be used, left out" for name in listed if name not in usable]
    )


def _sizes(source: Pictures, max_pixels: int, jobs: int, progress: Progress) -> set[tuple[int, int]]:
    """The sizes that the readable pictures have, from their headers."""
    paths = [file.path for file in source.files if file.error is None]
    sizes: set[tuple[int, int]] = set()
    headers = decode(paths, Form(None, max_pixels=max_pixels, header_only=True), jobs)
    for done, answer in enumerate(headers, start=1):
        if isinstance(answer, Pixels):
            sizes.add((answer.width, answer.height))
        progress("measuring", done, len(paths))
    return sizes


def _screen(batch: RawBatch, labelled: LabelledVectors, dtype: str) -> tuple[list[int], Array]:
    """Note the names of good samples and the reasons of bad ones; the rows of the good, and all vectors."""
    vectors, faults = labelled.recipe.unit_vectors(batch.values, dtype)
    good: list[int] = []
    row = -1
    for name, folders, error, file_hash, stamp in zip(
        batch.names, batch.labels, batch.errors, batch.hashes, batch.stamps, strict=True
    ):
        if error is None:
            row += 1
            error = faults[row]
        if not error and not folders:
            error = SampleError("no_class", "not in a class folder")
        if error:
            labelled.left_out.append(LeftOut(name, error))
            continue
        if not folders[0]:
            raise DataError(f"{name}: its label is empty")
        good.append(row)
        labelled.names.append(name)
        labelled.labels.append(folders[0])
        labelled.hashes.append(file_hash or row_hash(batch.values[row]))
        labelled.stamps.append(stamp)
    return good, vectors


def _refuse_too_large(n: int, recipe: Recipe, options: BuildOptions) -> None:
    """Before anything is read: the vectors, and what PCA takes beside them."""
    itemsize = np.dtype(options.dtype).itemsize
    needed = n * (options.pca or recipe.n_inputs) * itemsize
    if options.pca:
        needed += n * recipe.n_inputs * (itemsize + 8) + 3 * 8 * min(n, recipe.n_inputs) ** 2
    memory.require(
        needed, f"reading {n} samples of {recipe.n_inputs} numbers", "use a smaller --size or --pca"
    )


def refuse_unfittable(method: Method, samples: Samples) -> None:
    n, d = samples.vectors.shape
    memory.require(
        method.fit_bytes(samples),
        f"fitting {method.name} to {n} samples of dimension {d}",
        "use --pca or fewer samples",
    )


def row_hash(values: Array) -> str:
    """SHA-256 of the content of a sample that is a row of features."""
    return hashlib.sha256(values.tobytes()).hexdigest()


def _in_two_classes(labelled: LabelledVectors) -> list[str]:
    """Samples of one content under two class names: at most one of them can be right."""
    seen: dict[str, int] = {}
    notes = []
    for i, content in enumerate(labelled.hashes):
        first = seen.setdefault(content, i)
        if labelled.labels[first] != labelled.labels[i]:
            notes.append(
                f"the same content in two classes: {labelled.names[first]} ({labelled.labels[first]}) and "
                f"{labelled.names[i]} ({labelled.labels[i]})"
            )
    return cut(notes)


def cut(notes: list[str]) -> list[str]:
    """The first notes of one kind, and how many more there are."""
    return notes[:MOST_TOLD] + ([f"... and {len(notes) - MOST_TOLD} more"] if len(notes) > MOST_TOLD else [])


def refuse_nothing(samples: Sequence[object], left_out: Sequence[LeftOut]) -> None:
    if not samples:
        reasons = "; ".join(f"{left.name}: {left.error}" for left in left_out[:3])
        raise DataError(f"nothing to do: no sample can be used; {reasons}")


def _refuse_non_finite(labelled: LabelledVectors, source: Source) -> None:
    bad = [left.name for left in labelled.left_out if left.error.status == "non_finite"]
    if bad and isinstance(source, Features):
        shown = ", ".join(bad[:10]) + (", ..." if len(bad) > 10 else "")
        raise DataError(f"{len(bad)} rows hold NaN or infinity: {shown}; mend or remove them")


def _refuse_lookalikes(classes: Sequence[str]) -> None:
    """Two names that a disk, or a reader, may take for one."""
    seen: dict[str, str] = {}
    for name in classes:
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            # ascii(), as two Unicode forms of one name look the same.
            raise DataError(f"classes {other!a} and {name!a} differ only in case or Unicode form; rename one")


def _refuse_reserved(classes: Sequence[str]) -> None:
    for name in classes:
        if unicodedata.normalize("NFC", name).casefold() == UNKNOWN:
            raise DataError(f"class {name!r}: this name is kept for what is none of the classes; rename it")
