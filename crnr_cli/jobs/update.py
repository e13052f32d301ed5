"""A gallery that lives: add to it, remove from it, bring it up to date with its sources, verify it.

The gallery's own recipe and method are kept. The old pictures are not needed, as their vectors are there.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.jobs.build import (
    BATCH,
    MOST_TOLD,
    BuildOptions,
    BuildReport,
    LabelledVectors,
    LeftOut,
    cut,
    make_gallery,
    read_by_recipe,
    refuse_nothing,
    row_hash,
    unusable_classes,
)
from crnr_cli.jobs.classify import refuse_misfit, with_extractor_at
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.network_settings import ExtractorOptions
from crnr_cli.sources.folders import Features, PictureFile, Pictures, Source, open_source
from crnr_cli.sources.tables import FeatureFile
from crnr_cli.system.files import replacing

NEAREST = 3  # names that are told where one is not known


@dataclass(frozen=True)
class Changes:
    """Names of samples, by what became of them."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # in content or class
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0  # how many


@dataclass(frozen=True)
class UpdateReport(BuildReport):
    changes: Changes


@dataclass(frozen=True)
class _Sample:
    name: str
    label: str
    sha256: str
    stamp: Stamp
    vector: Array

    def is_same(self, other: _Sample) -> bool:
        return (self.label, self.sha256) == (other.label, other.sha256)


@dataclass(frozen=True)
class _New:
    """What a gallery is to hold from now on."""

    samples: list[_Sample]
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def add(path: Path, names: Sequence[str], options: BuildOptions, progress: Progress = silent) -> UpdateReport:
    """Add the samples of a source; one of the name of an old one takes its place."""

    def change(gallery: Gallery, old: list[_Sample]) -> _New:
        source = open_source(names, options.keys, nul_separated=options.nul_separated)
        read = _read(gallery, source, options, progress)
        refuse_nothing(read.samples, read.left_out)
        _by_name(old)
        fresh = _by_name(read.samples)
        kept = [sample for sample in old if sample.is_same(fresh.get(sample.name, sample))]
        there = {sample.name for sample in kept}
        added = [sample for sample in fresh.values() if sample.name not in there]
        notes = unusable_classes(source, [sample.label for sample in read.samples]) + _twice(kept, added)
        return replace(read, samples=kept + added, notes=read.notes + notes)

    return _rewrite(path, change, options.extractor)


def remove(path: Path, classes: Sequence[str], samples: Sequence[str]) -> UpdateReport:
    """Remove whole classes, or samples by name."""

    def change(gallery: Gallery, old: list[_Sample]) -> _New:
        _require_known(path, "class", classes, gallery.classes)
        _require_known(path, "sample", samples, gallery.names)
        kept = [sample for sample in old if sample.label not in classes and sample.name not in samples]
        if not kept:
            raise DataError(f"{path}: nothing would be left in it; delete the file instead")
        return _New(kept)

    return _rewrite(path, change)


def update(
    names: Sequence[str], path: Path, options: BuildOptions, progress: Progress = silent
) -> UpdateReport:
    """Make the gallery that of its sources as they are now, and read only those that may have changed."""

    def change(gallery: Gallery, old: list[_Sample]) -> _New:
        source = open_source(names, options.keys, nul_separated=options.nul_separated)
        known = _by_name(old)
        refuse_misfit(source, gallery.recipe)
        if known.keys().isdisjoint(_names(source)):  # nothing of it would be left
            raise DataError(
                f"{path}: none of its {len(old)} samples, such as {old[0].name}, is in {', '.join(names)}; "
                "name its sources as when it was built, or build without --update to replace it"
            )
        suspects = _suspects(source, known)
        read = _read(gallery, suspects, options, progress) if len(suspects) else _New([])
        now = known | _by_name(read.samples)
        lost = {left.name for left in read.left_out}
        listed = [now[name] for name in dict.fromkeys(_names(source)) if name in now and name not in lost]
        refuse_nothing(listed, read.left_out)
        emptied = sorted(set(gallery.classes) - {sample.label for sample in listed})
        notes = cut([f"class {name}: nothing is left of it" for name in emptied])
        return replace(read, samples=listed, notes=read.notes + notes)

    return _rewrite(path, change, options.extractor)


def _rewrite(
    path: Path, change: Callable[[Gallery, list[_Sample]], _New], moved: ExtractorOptions | None = None
) -> UpdateReport:
    """Load, change, fit and save as one step: nobody else writes the gallery meanwhile."""
    started = time.perf_counter()
    with replacing(path) as part:
        gallery = load_gallery(path)
        if moved:
            gallery = with_extractor_at(moved.model, gallery, path)
        old = list(_samples(gallery))
        new = change(gallery, old)
        changes = _compared(old, new.samples)
        labelled = LabelledVectors(
            gallery.recipe,
            names=[sample.name for sample in new.samples],
            labels=[sample.label for sample in new.samples],
            hashes=[sample.sha256 for sample in new.samples],
            stamps=[sample.stamp for sample in new.samples],
            vectors=np.array([sample.vector for sample in new.samples]),
            notes=new.notes,
        )
        if gallery.recipe.pca is not None and (changes.added or changes.changed):
            labelled.notes.append("PCA keeps its old axes; build the gallery anew to fit them to all samples")
        calibrated = gallery.calibration is not None
        gallery = make_gallery(labelled, gallery.method)
        if calibrated:
            gallery = replace(gallery, calibration=calibrate(gallery.samples, gallery.method))
        save_gallery(gallery, part)
        file_bytes = part.stat().st_size
    return UpdateReport(
        gallery=gallery,
        seconds=time.perf_counter() - started,
        file_bytes=file_bytes,
        left_out=new.left_out,
        notes=labelled.notes,
        changes=changes,
    )


def _by_name(samples: Iterable[_Sample]) -> dict[str, _Sample]:
    """By the names that tell samples apart here. Where two share one, either would be lost."""
    found: dict[str, _Sample] = {}
    for sample in samples:
        if not sample.is_same(found.setdefault(sample.name, sample)):
            raise DataError(
                f"two different samples are called {sample.name}; give them names of their own, or build "
                "the gallery anew from all its sources"
            )
    return found


def _twice(kept: Sequence[_Sample], added: Sequence[_Sample]) -> list[str]:
    """Told, not refused: a folder that is spelled in another way doubles its samples."""
    there = {(sample.label, sample.sha256): sample.name for sample in kept}
    again = [sample for sample in added if (sample.label, sample.sha256) in there]
    if not again:
        return []
    first = again[0]
    return [
        f"{len(again)} of the added samples are in the gallery twice now: {first.name} is the same as "
        f"{there[first.label, first.sha256]}; `crnr remove --sample` takes one out"
    ]


def _samples(gallery: Gallery) -> Iterator[_Sample]:
    labels = np.repeat(np.array(gallery.classes, dtype=object), np.diff(gallery.samples.edges))
    stamps = gallery.stamps or [Stamp()] * len(gallery.names)
    columns = zip(
        gallery.names, labels.tolist(), gallery.hashes, stamps, gallery.samples.vectors, strict=True
    )
    return (_Sample(*column) for column in columns)


def _read(gallery: Gallery, source: Source, options: BuildOptions, progress: Progress) -> _New:
    refuse_misfit(source, gallery.recipe)
    read = read_by_recipe(gallery.recipe, source, replace(options, dtype=gallery.dtype), progress)
    columns = zip(read.names, read.labels, read.hashes, read.stamps, read.vectors, strict=True)
    return _New([_Sample(*column) for column in columns], read.left_out, read.notes)


def _suspects(source: Source, known: dict[str, _Sample]) -> Source:
    """The part of a source whose size, time or class is not that of the gallery's sample of that name."""
    if isinstance(source, Pictures):
        return replace(source, files=[file for file in source.files if not _is_known_picture(file, known)])
    return Features([file for file in source.files if not _is_known_table(file, known)])


def _is_known_picture(file: PictureFile, known: dict[str, _Sample]) -> bool:
    sample = known.get(file.path)
    return sample is not None and (sample.stamp, (sample.label,)) == (file.stamp, file.folders[:1])


def _is_known_table(file: FeatureFile, known: dict[str, _Sample]) -> bool:
    samples = [known.get(name) for name in file.names]
    return all(sample is not None and sample.stamp == file.stamp for sample in samples) and file.labels == [
        sample.label for sample in samples if sample
    ]


def _names(source: Source) -> Iterable[str]:
    if isinstance(source, Pictures):
        return (file.path for file in source.files)
    return (name for file in source.files for name in file.names)


def _compared(old: Iterable[_Sample], new: Iterable[_Sample]) -> Changes:
    before = {sample.name: sample for sample in old}
    after = {sample.name: sample for sample in new}
    both = before.keys() & after.keys()
    changed = [name for name in after if name in both and not after[name].is_same(before[name])]
    return Changes(
        added=[name for name in after if name not in both],
        changed=changed,
        removed=[name for name in before if name not in both],
        unchanged=len(both) - len(changed),
    )


def _require_known(path: Path, what: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    for name in wanted:
        if name not in there:
            raise DataError(f"{path}: no {what} is called {name}; {_hint(name, there)}")


def _hint(name: str, there: Sequence[str]) -> str:
    """All names there are if they are few; of many those that may have been meant."""
    if len(there) > MOST_TOLD and (near := get_close_matches(name, there, NEAREST)):
        return f"the closest are {', '.join(near)}"
    return f"there are {', '.join(there[:MOST_TOLD])}" + (", ..." if len(there) > MOST_TOLD else "")


@dataclass(frozen=True)
class VerifyReport:
    """What of a gallery is no longer so in its sources, by the names of the samples."""

    n_samples: int
    changed: list[str] = field(default_factory=list)  # in content or class
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # in the sources, and not in the gallery

    @property
    def holds(self) -> bool:
        return not self.changed and not self.missing


def verify(path: Path, against: Sequence[str], options: BuildOptions) -> VerifyReport:
    """Check a gallery's checksum, and every sample against the content of the sources, if they are given.

    A file that has moved, and is the same, is no difference.
    """
    gallery = load_gallery(path)
    report = VerifyReport(len(gallery.names))
    if not against:
        return report
    source = open_source(against, options.keys, nul_separated=options.nul_separated)
    refuse_misfit(source, gallery.recipe)
    there = list(_contents(source))
    contents = {(label, sha256) for _, label, sha256 in there}
    names = {name for name, _, _ in there}
    for sample in _samples(gallery):
        if (sample.label, sample.sha256) not in contents:
            (report.changed if sample.name in names else report.missing).append(sample.name)
    known = {*gallery.hashes, *report.changed}
    report.unknown.extend(name for name, _, sha256 in there if not {name, sha256} & known)
    return report


def _contents(source: Source) -> Iterator[tuple[str, str, str]]:
    """Name, class and SHA-256 of all that can be read of a source."""
    if isinstance(source, Features):
        for table in source.files:
            labels = table.labels or [""] * len(table)
            for start in range(0, len(table), BATCH):
                for row, values in enumerate(table.rows(start, start + BATCH), start=start):
                    yield table.names[row], labels[row], row_hash(values)
        return
    for file in source.files:
        if file.error is None:
            try:
                with Path(file.path).open("rb") as content:
                    sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            except OSError:  # gone since it was listed, or closed to us: as good as missing
                continue
            yield file.path, file.folders[0] if file.folders else "", sha256
