"""Update: add to a gallery, remove from it, bring it up to date with its sources, verify it.

The gallery keeps its recipe and its method. The old pictures are not needed, as their vectors are stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError
from crnr_cli.gallery.answer import with_model_at
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.gallery.fit import BuildReport, make_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.gallery.samples import (
    LabelledVectors,
    LeftOut,
    Note,
    Reading,
    read_by_recipe,
    refuse_mismatch,
    require_samples,
    unusable_classes,
)
from crnr_cli.progress import Progress, silent
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.sources.class_folders import by_class_folders, folder_of_no_class
from crnr_cli.sources.listing import open_source
from crnr_cli.system.files import replacing
from crnr_cli.wording import are, counted

_MAX_NAMES = 10  # listed in an error
_NEAREST = 3  # names suggested for an unknown one


@dataclass(frozen=True)
class Changes:
    """Names of samples, by what happened to them."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # in content or class
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0  # only counted


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
    """The new content of a gallery."""

    samples: list[_Sample]
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def add(
    path: Path,
    names: Sequence[str],
    reading: Reading,
    progress: Progress = silent,
    model: Path | None = None,
) -> UpdateReport:
    """Add the samples of a source; a sample with the name of an old one replaces it."""

    def change(gallery: Gallery, old: list[_Sample]) -> _New:
        source = open_source(names, reading)
        if reading.label is None:
            source = by_class_folders(source, gallery.classes, strict=True)
            if folder := folder_of_no_class(source):
                raise DataError(
                    f"{folder}: contains files but no class folders, and is not named after a class of "
                    f"{path}; name the class of its pictures with --class NAME"
                )
        read = _read(gallery, source, reading, progress)
        require_samples(read.samples, read.left_out)
        _by_name(old)
        fresh = _by_name(read.samples)
        kept = [sample for sample in old if sample.is_same(fresh.get(sample.name, sample))]
        kept_names = {sample.name for sample in kept}
        added = [sample for sample in fresh.values() if sample.name not in kept_names]
        notes = _new_classes(added, gallery.classes) + _twice(kept, added)
        if reading.label is None:
            notes += unusable_classes(source, [sample.label for sample in read.samples])
        return replace(read, samples=kept + added, notes=read.notes + notes)

    return _rewrite(path, change, model, progress)


def remove(
    path: Path, classes: Sequence[str], samples: Sequence[str], progress: Progress = silent
) -> UpdateReport:
    """Remove classes or samples by name."""

    def change(gallery: Gallery, old: list[_Sample]) -> _New:
        _require_known(path, "class", classes, gallery.classes)
        _require_known(path, "sample", samples, gallery.names)
        kept = [sample for sample in old if sample.label not in classes and sample.name not in samples]
        if not kept:
            raise DataError(f"{path}: no samples would remain; delete the file instead")
        return _New(kept)

    return _rewrite(path, change, progress=progress)


def update(
    names: Sequence[str],
    path: Path,
    reading: Reading,
    progress: Progress = silent,
    model: Path | None = None,
) -> UpdateReport:
    """Make the gallery match its sources as they are now; only files that may have changed are read."""

    def change(gallery: Gallery, old: list[_Sample]) -> _New:
        source = by_class_folders(open_source(names, reading), gallery.classes)
        known = _by_name(old)
        refuse_mismatch(source, gallery.recipe)
        if known.keys().isdisjoint(source.names()):  # none of the old samples would remain
            raise DataError(
                f"{path}: none of its {counted(len(old), 'sample')}, such as {old[0].name}, "
                f"is in {', '.join(names)}; "
                "name its sources as when it was built, or build without --update to replace it"
            )
        suspects = source.only(_may_have_changed(known))
        read = _read(gallery, suspects, reading, progress) if len(suspects) else _New([])
        now = known | _by_name(read.samples)
        lost = {left.name for left in read.left_out}
        listed = [now[name] for name in dict.fromkeys(source.names()) if name in now and name not in lost]
        require_samples(listed, read.left_out)
        emptied = sorted(set(gallery.classes) - {sample.label for sample in listed})
        notes = [Note("emptied class", f"class {name}: no samples remain, removed") for name in emptied]
        notes += _new_classes(read.samples, gallery.classes)
        return replace(read, samples=listed, notes=read.notes + notes)

    return _rewrite(path, change, model, progress)


def _rewrite(
    path: Path,
    change: Callable[[Gallery, list[_Sample]], _New],
    model: Path | None = None,
    progress: Progress = silent,
) -> UpdateReport:
    """Load, change, fit and save while holding the lock, so that no other process writes the gallery."""
    started = time.perf_counter()
    with replacing(path) as part:
        gallery = load_gallery(path)
        if model:
            gallery = with_model_at(model, gallery, path)
        old = list(_samples(gallery))
        new = change(gallery, old)
        changes = _compared(old, new.samples)
        labelled = LabelledVectors(
            recipe=gallery.recipe,
            names=[sample.name for sample in new.samples],
            labels=[sample.label for sample in new.samples],
            hashes=[sample.sha256 for sample in new.samples],
            stamps=[sample.stamp for sample in new.samples],
            vectors=np.array([sample.vector for sample in new.samples]),
            notes=new.notes,
        )
        learnt = [step.describe() for step in gallery.recipe.steps if step.learns]
        if learnt and (changes.added or changes.changed):
            text = (
                f"{', '.join(learnt)}: still fitted to the old samples; "
                "to fit to all samples, build the gallery again from all its sources"
            )
            labelled.notes.append(Note("kept steps", text))
        calibrated = gallery.calibration is not None
        gallery = make_gallery(labelled, gallery.method)
        if calibrated:
            gallery = replace(gallery, calibration=calibrate(gallery.samples, gallery.method, progress))
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
    """Samples by name. Two different samples of one name are refused, as one of them would be lost."""
    found: dict[str, _Sample] = {}
    for sample in samples:
        if not sample.is_same(found.setdefault(sample.name, sample)):
            raise DataError(
                f"two different samples are called {sample.name}; give them different names, or build "
                "the gallery again from all its sources"
            )
    return found


def _new_classes(added: Sequence[_Sample], old: Sequence[str]) -> list[Note]:
    """Name every class that the gallery did not have: a typing error or a stray file would make one too."""
    by_class: dict[str, list[_Sample]] = {}
    for sample in added:
        by_class.setdefault(sample.label, []).append(sample)
    return [
        Note("new class", f"class {name} is new: {counted(len(new), 'sample')}, such as {new[0].name}")
        for name, new in by_class.items()
        if name not in old
    ]


def _twice(kept: Sequence[_Sample], added: Sequence[_Sample]) -> list[Note]:
    """Report samples that are now duplicated, such as those of a folder added under another path."""
    names = {(sample.label, sample.sha256): sample.name for sample in kept}
    again = [sample for sample in added if (sample.label, sample.sha256) in names]
    if not again:
        return []
    first = again[0]
    text = (
        f"{len(again)} of {counted(len(added), 'added sample')} {are(len(again))} now in the gallery twice: "
        f"{first.name} is the same as "
        f"{names[first.label, first.sha256]}; `crnr remove --sample` removes one"
    )
    return [Note("twice", text)]


def _samples(gallery: Gallery) -> Iterator[_Sample]:
    labels = np.array(gallery.classes, dtype=object)[gallery.samples.class_index]
    stamps = gallery.stamps or [Stamp()] * len(gallery.names)
    columns = zip(
        gallery.names, labels.tolist(), gallery.hashes, stamps, gallery.samples.vectors, strict=True
    )
    return (_Sample(*column) for column in columns)


def _read(gallery: Gallery, source: Source, reading: Reading, progress: Progress) -> _New:
    refuse_mismatch(source, gallery.recipe)
    read = read_by_recipe(gallery.recipe, source, replace(reading, dtype=gallery.dtype), progress)
    columns = zip(read.names, read.labels, read.hashes, read.stamps, read.vectors, strict=True)
    return _New([_Sample(*column) for column in columns], read.left_out, read.notes)


def _may_have_changed(known: Mapping[str, _Sample]) -> Callable[[str, Stamp, tuple[str, ...]], bool]:
    """A test whether a file's size, mtime or class differs from the gallery's sample of that name."""

    def is_suspect(name: str, stamp: Stamp, candidates: tuple[str, ...]) -> bool:
        sample = known.get(name)
        return sample is None or (sample.stamp, (sample.label,)) != (stamp, candidates[:1])

    return is_suspect


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


def _require_known(path: Path, what: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            raise DataError(f"{path}: has no {what} {name}; {_hint(name, known)}")


def _hint(name: str, known: Sequence[str]) -> str:
    """The names that end like this one; all if they are few; otherwise those that may have been meant."""
    if ending := [other for other in known if other.endswith(f"/{name}")]:
        more = ", ..." if len(ending) > _MAX_NAMES else ""
        return f"give the full name: {', '.join(ending[:_MAX_NAMES])}{more}"
    if len(known) > _MAX_NAMES and (near := get_close_matches(name, known, _NEAREST)):
        return f"the closest are {', '.join(near)}"
    return f"there are {', '.join(known[:_MAX_NAMES])}" + (", ..." if len(known) > _MAX_NAMES else "")


@dataclass(frozen=True)
class VerifyReport:
    """How a gallery differs from its sources, by the names of the samples."""

    n_samples: int
    changed: list[str] = field(default_factory=list)  # in content or class
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # in the sources, but not in the gallery

    @property
    def holds(self) -> bool:
        return not self.changed and not self.missing


def verify(path: Path, against: Sequence[str], options: InputOptions) -> VerifyReport:
    """Check a gallery's checksum and, if sources are given, compare every sample with their content.

    A file that was moved without a change of content or class does not count as a difference. Where a source
    says nothing about the class, as for samples whose class `add` was told, only the content counts.
    """
    gallery = load_gallery(path)
    report = VerifyReport(len(gallery.names))
    if not against:
        return report
    source = by_class_folders(open_source(against, options), gallery.classes)
    refuse_mismatch(source, gallery.recipe)
    found = list(source.contents())
    contents = {(label, sha256) for _, label, sha256 in found}
    unclassed = {sha256 for _, label, sha256 in found if not label}
    names = {name for name, _, _ in found}
    for sample in _samples(gallery):
        if (sample.label, sample.sha256) not in contents and sample.sha256 not in unclassed:
            (report.changed if sample.name in names else report.missing).append(sample.name)
    known = {*gallery.hashes, *report.changed}
    report.unknown.extend(name for name, _, sha256 in found if not {name, sha256} & known)
    return report
