"""Update: add to a gallery, remove from it, rename a class, bring it up to date with its sources.

The gallery keeps its recipe and its method. The old pictures are not needed, as their vectors are stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Stamp
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.answer import with_model_at
from crnr_cli.gallery.entries import Changes, Entry, by_name, compared, entries_of
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.gallery.fit import BuildReport, make_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.gallery.raw_values import refuse_mismatch
from crnr_cli.gallery.reviewed import reviewed_pictures, without_copies
from crnr_cli.gallery.samples import (
    LabelledVectors,
    LeftOut,
    Reading,
    read_by_recipe,
    require_samples,
    unusable_classes,
)
from crnr_cli.gallery.selection import Unwanted, hint, sample_names
from crnr_cli.progress import Progress, silent
from crnr_cli.results.corrections import Corrections
from crnr_cli.sources.base import Source
from crnr_cli.sources.listing import open_source
from crnr_cli.system.files import replacing
from crnr_cli.system.names import Spellings, class_key, path_key
from crnr_cli.wording import Note, are, counted

# A file with one of these statuses is gone, or was read and is of no use; any other may be readable later.
_REMOVING = {"vanished", "not_regular", "no_class", "zero_norm"}


@dataclass(frozen=True)
class UpdateReport(BuildReport):
    changes: Changes


@dataclass(frozen=True)
class _New:
    """The new content of a gallery."""

    samples: list[Entry]
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def add(
    path: Path,
    names: Sequence[str],
    given: Reading,
    progress: Progress = silent,
    model: Path | None = None,
    corrections: Corrections | None = None,
) -> UpdateReport:
    """Add the samples of a source, or reviewed files; a sample with the name of an old one replaces it.

    Files that have not changed since they were added are not read again.
    """

    def change(gallery: Gallery, old: list[Entry]) -> _New:
        reading = given
        if given.label is not None:
            reading = replace(given, label=Spellings(gallery.classes).spell(given.label))
        source, notes = reviewed_pictures(corrections) if corrections else (open_source(names, reading), [])
        if reading.label is None and corrections is None:
            source = source.with_classes(gallery.classes, strict=True)
            if folder := source.folder_of_no_class():
                raise DataError(
                    f"{folder}: contains files but no class folders, and is not named after a class of "
                    f"{path}; name the class of its pictures with --class NAME"
                )
        known, spellings = by_name(old), sample_names(gallery.names, gallery.recipe.kind)
        read = _read_changed(known, spellings, gallery, source, reading, progress)
        new = read.samples
        if corrections:
            new, on_copies = without_copies(new, old)
            notes += on_copies
        fresh = by_name(new)
        named = set(map(spellings.spell, source.names()))
        listed = [*(known[name] for name in named & known.keys()), *read.samples]
        require_samples(listed, read.left_out)
        kept = [sample for sample in old if sample.is_same(fresh.get(sample.name, sample))]
        kept_names = {sample.name for sample in kept}
        added = [sample for sample in fresh.values() if sample.name not in kept_names]
        notes += _new_classes(added, gallery.classes) + _twice(kept, added)
        if reading.label is None:
            notes += unusable_classes(source, [sample.label for sample in listed])
        return replace(read, samples=kept + added, notes=read.notes + notes)

    return _rewrite(path, change, model, progress)


def remove(path: Path, unwanted: Unwanted, progress: Progress = silent) -> UpdateReport:
    """Remove classes or samples by name."""

    def change(gallery: Gallery, old: list[Entry]) -> _New:
        kept, _, notes = unwanted.in_gallery(path, gallery)
        return _New(kept, notes=notes)

    return _rewrite(path, change, progress=progress)


def would_remove(path: Path, unwanted: Unwanted) -> tuple[list[Entry], list[Entry], list[Note]]:
    """What `remove` would keep and remove; nothing is written."""
    return unwanted.in_gallery(path, load_gallery(path))


def rename(
    path: Path, old: str, new: str, *, merge: bool = False, progress: Progress = silent
) -> UpdateReport:
    """Give a class another name or, with `merge`, add its samples to another class.

    The gallery is then the one that would be built if the samples had the new class; they keep their names.
    """

    def change(gallery: Gallery, samples: list[Entry]) -> _New:
        spellings = Spellings(gallery.classes)
        known, label = spellings.find(old), spellings.spell(new)
        if known is None:
            raise DataError(f"{path}: has no class {old}; {hint(old, gallery.classes)}")
        exists = label in spellings.known
        if exists and not merge:
            raise DataError(
                f"{path}: has a class {new} already; to put the samples of {old} into it, add --merge"
            )
        if merge and not exists:
            raise DataError(f"{path}: has no class {new} to merge with; {hint(new, gallery.classes)}")
        renamed = [replace(one, label=label) if one.label == known else one for one in samples]
        count = counted(sum(one.label == known for one in samples), "sample")
        text = f"class {old} is now part of {new}: {count}" if merge else f"class {old} is now {new}: {count}"
        return _New(renamed, notes=[Note("renamed", text)])

    if class_key(old) == class_key(new):
        raise UsageError(f"the class is called {old} already; give it another name")
    return _rewrite(path, change, progress=progress)


def update(
    names: Sequence[str],
    path: Path,
    reading: Reading,
    progress: Progress = silent,
    model: Path | None = None,
) -> UpdateReport:
    """Make the gallery match its sources as they are now; only files that may have changed are read.

    A sample whose file is still there but cannot be read is kept as it was: a disk that is away for a moment
    must not cost the gallery a class.
    """

    def change(gallery: Gallery, old: list[Entry]) -> _New:
        source = open_source(names, reading).with_classes(gallery.classes)
        known, spellings = by_name(old), sample_names(gallery.names, gallery.recipe.kind)
        refuse_mismatch(source, gallery.recipe)
        if known.keys().isdisjoint(map(spellings.spell, source.names())):  # renamed, or a mistake
            _refuse_another_source(path, old, source)
        read = _read_changed(known, spellings, gallery, source, reading, progress)
        now = known | by_name(read.samples)
        errors = {spellings.spell(left.name): left.error for left in read.left_out}
        listed: list[Entry] = []
        kept = 0
        for name in dict.fromkeys(map(spellings.spell, source.names())):
            if name not in errors:
                listed += [now[name]]
            elif errors[name].status not in _REMOVING:
                unreadable = _at_or_below(name, known)
                listed += unreadable
                kept += len(unreadable)
        require_samples(listed, read.left_out)
        emptied = sorted(set(gallery.classes) - {sample.label for sample in listed})
        notes = [Note("emptied class", f"class {name}: no samples remain, removed") for name in emptied]
        if kept:
            text = f"{counted(kept, 'sample')} kept as before, as the files cannot be read now"
            notes.append(Note("kept", text))
        notes += _new_classes(read.samples, gallery.classes)
        return replace(read, samples=listed, notes=read.notes + notes)

    return _rewrite(path, change, model, progress)


def _rewrite(
    path: Path,
    change: Callable[[Gallery, list[Entry]], _New],
    model: Path | None = None,
    progress: Progress = silent,
) -> UpdateReport:
    """Load, change, fit and save while holding the lock, so that no other process writes the gallery."""
    started = time.perf_counter()
    with replacing(path) as file:
        gallery = load_gallery(path, to_replace=True)
        if model:
            gallery = with_model_at(model, gallery, path)
        old = list(entries_of(gallery))
        new = change(gallery, old)
        changes = compared(old, new.samples)
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
        gallery = replace(make_gallery(labelled, gallery.method, progress), label_type=gallery.label_type)
        if calibrated:
            gallery = _calibrated(gallery, labelled.notes, progress)
        save_gallery(gallery, file)
        file_bytes = os.fstat(file.fileno()).st_size
    return UpdateReport(
        gallery=gallery,
        seconds=time.perf_counter() - started,
        file_bytes=file_bytes,
        left_out=new.left_out,
        notes=labelled.notes,
        changes=changes,
    )


def _calibrated(gallery: Gallery, notes: list[Note], progress: Progress) -> Gallery:
    try:
        return gallery.calibrated(1, progress)
    except DataError as e:  # a calibration of other samples would be wrong
        notes.append(Note("calibration", f"the calibration is removed: {e}"))
        return gallery


def _new_classes(added: Sequence[Entry], old: Sequence[str]) -> list[Note]:
    """Name every class that the gallery did not have: a typing error or a stray file would make one too."""
    by_class: dict[str, list[Entry]] = {}
    for sample in added:
        by_class.setdefault(sample.label, []).append(sample)
    return [
        Note("new class", f"class {name} is new: {counted(len(new), 'sample')}, such as {new[0].name}")
        for name, new in by_class.items()
        if name not in old
    ]


def _twice(kept: Sequence[Entry], added: Sequence[Entry]) -> list[Note]:
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


def _refuse_another_source(path: Path, old: Sequence[Entry], source: Source) -> None:
    """Refuse to replace all samples by others, unless their contents show that a folder was renamed."""
    contents = {(class_key(label), sha256) for _, label, sha256 in source.contents()}
    if not any((class_key(sample.label), sample.sha256) in contents for sample in old):
        raise DataError(
            f"{path}: none of its {counted(len(old), 'sample')}, such as {old[0].name}, is in the source; "
            "name its sources as when it was built, or build without --update to replace it"
        )


def _at_or_below(name: str, known: Mapping[str, Entry]) -> list[Entry]:
    """The sample of a file that cannot be read, or those of all files in such a folder."""
    if name in known:
        return [known[name]]
    folder = os.path.join(path_key(name), "")  # noqa: PTH118
    return [sample for sample in known.values() if path_key(sample.name).startswith(folder)]


def _read_changed(
    known: Mapping[str, Entry],
    spellings: Spellings,
    gallery: Gallery,
    source: Source,
    reading: Reading,
    progress: Progress,
) -> _New:
    """Read the samples that are new, or whose files may have changed.

    Names and classes are spelled as the gallery spells them; the spellings of new names are learnt.
    """
    refuse_mismatch(source, gallery.recipe)
    classes = Spellings(gallery.classes)

    def label_of(candidates: tuple[str, ...]) -> str:
        return classes.spell(candidates[0])

    def is_suspect(name: str, stamp: Stamp, candidates: tuple[str, ...]) -> bool:
        """Return whether a file's size, mtime or class differs from the gallery's sample of that name."""
        sample = known.get(spellings.spell(name))
        labels = (reading.label,) if reading.label is not None else tuple(map(classes.spell, candidates[:1]))
        return sample is None or (sample.stamp, (sample.label,)) != (stamp, labels)

    suspects = source.only(is_suspect)
    if not len(suspects):
        return _New([])
    reading = replace(reading, dtype=gallery.dtype)
    read = read_by_recipe(gallery.recipe, suspects, reading, progress, label_of, len(source))
    names = map(spellings.learn, read.names)
    columns = zip(names, read.labels, read.hashes, read.stamps, read.vectors, strict=True)
    return _New([Entry(*column) for column in columns], read.left_out, read.notes)
