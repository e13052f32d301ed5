"""Update: add to a gallery, remove from it, rename a class, bring it up to date with its sources.

The gallery keeps its recipe and its method. The old images are not needed, because their vectors are stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Stamp
from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.gallery.cleaning import ADDED, CleanedSource, Cleaning
from crnr_cli.gallery.entries import (
    Unwanted,
    changed_names,
    contents_of,
    hint,
    names_by_content,
    refuse_unknown_folders,
    rows_by_name,
    sample_names,
)
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery, SampleTable
from crnr_cli.gallery.reading import refuse_mismatch
from crnr_cli.gallery.rewriting import UpdateReport, rewrite
from crnr_cli.gallery.samples import (
    Reading,
    ReadSamples,
    read_by_recipe,
    require_samples,
    unusable_classes,
)
from crnr_cli.gallery.workers import Workers
from crnr_cli.images.dates import BY_EXIF
from crnr_cli.progress import Progress, silent
from crnr_cli.results.edited import Corrections
from crnr_cli.sources.base import Source
from crnr_cli.sources.formats import is_table
from crnr_cli.sources.images import Images
from crnr_cli.sources.opening import open_examples, open_source
from crnr_cli.sources.walk import list_named_images
from crnr_cli.system.names import Spellings, class_key, path_key
from crnr_cli.system.outputs import refuse_mentioned
from crnr_cli.wording import Note, format_count, has_or_have, is_or_are

# A file with one of these statuses is gone, or was read and cannot be used; others may be readable later.
_REMOVING = {"vanished", "not_regular", "no_class", "zero_norm"}
_NANOSECONDS = 10**9
_ROUNDING = 1.0  # seconds: some file systems round the times of files up


def add(
    path: Path,
    names: Sequence[str],
    given: Reading,
    progress: Progress = silent,
    model: Path | None = None,
    corrections: Corrections | None = None,
    *,
    dry_run: bool = False,
) -> UpdateReport:
    """Add the samples of a source, or reviewed files; a sample with the name of an old one replaces it.

    Files that have not changed since they were added are not read again.
    """

    def change(gallery: FittedGallery, old: ReadSamples, cleaning: Cleaning) -> ReadSamples:
        reading = given
        if given.label is not None:
            reading = replace(given, label=Spellings(gallery.classes).spell(given.label))
        source, notes = (
            list_reviewed_images(corrections, reading.box_margin)
            if corrections
            else (open_source(names, reading), [])
        )
        if reading.label is None and corrections is None:
            source = source.with_named_classes().with_classes(gallery.classes, strict=True)
            refuse_unknown_folders(path, source, names, {*gallery.classes, *cleaning.source_classes()})
        known, spellings = rows_by_name(old.table), sample_names(gallery.names, gallery.recipe.kind)
        refuse_mismatch(source, gallery.recipe, path)
        is_suspect = _may_have_changed(known, old.table, spellings, gallery.classes, reading.label)
        read = _read_changed_samples(is_suspect, old, spellings, gallery, source, reading, progress)
        new = read
        if corrections:
            copies, on_copies = find_copies(read.table, old.table)
            new = read.take([row for row in range(len(read.table)) if row not in copies])
            notes += on_copies
        fresh = rows_by_name(new.table)
        listed = [known[name] for name in set(map(spellings.spell, source.names())) & known.keys()]
        require_samples([*listed, *read.table.names], read.left_out)
        changed = set(changed_names(old.table, known, new.table, fresh))
        kept = [row for row, name in enumerate(old.table.names) if name not in changed]
        added = [row for name, row in fresh.items() if name not in known or name in changed]
        notes += _note_new_classes(new.table.take(added), gallery.classes)
        notes += _note_duplicates(old.table.take(kept), new.table.take(added))
        if reading.label is None:
            notes += unusable_classes(source, [*old.table.take(listed).labels, *read.table.labels])
        by_hand = corrections is not None or reading.label is not None
        notes += cleaning.note_added(new.table.take(added), old.table, why, by_hand=by_hand)
        chosen = _choose(old, new, [*kept, *(len(old.table) + row for row in added)])
        return replace(chosen, notes=read.notes + notes)

    why = f"add --corrections {corrections.file}" if corrections else ADDED
    if given.label is not None:
        why = "add --class"

    return rewrite(path, change, model, progress, dry_run=dry_run)


def remove(path: Path, unwanted: Unwanted, progress: Progress = silent, why: str = "remove") -> UpdateReport:
    """Remove classes or samples by name; the gallery remembers them, and `why`."""

    def change(gallery: FittedGallery, old: ReadSamples, cleaning: Cleaning) -> ReadSamples:
        is_unwanted, notes = unwanted.find_in(path, gallery)
        cleaning.note_removed(old.table.take(np.flatnonzero(is_unwanted)), why)
        return replace(old.take(np.flatnonzero(~is_unwanted)), notes=notes)

    return rewrite(path, change, progress=progress)


def plan_removal(path: Path, unwanted: Unwanted) -> tuple[SampleTable, SampleTable, list[Note]]:
    """Return what `remove` would keep and remove; write nothing."""
    gallery = load_gallery(path)
    is_unwanted, notes = unwanted.find_in(path, gallery)
    kept, removed = (gallery.table.take(np.flatnonzero(mask)) for mask in (~is_unwanted, is_unwanted))
    return kept, removed, notes


def rename(
    path: Path, old: str, new: str, *, merge: bool = False, progress: Progress = silent
) -> UpdateReport:
    """Give a class another name or, with `merge`, add its samples to another class.

    The result is the gallery that would be built if the samples had the new class; they keep their names.
    """

    def change(gallery: FittedGallery, samples: ReadSamples, cleaning: Cleaning) -> ReadSamples:
        spellings = Spellings(gallery.classes)
        known, label = spellings.find(old), spellings.spell(new)
        if known is None:
            raise DataError(f"{path}: has no class {old}; {hint(old, gallery.classes)}")
        exists = label in spellings.known
        if exists and not merge:
            raise DataError(
                f"{path}: has a class {new} already; to put the examples of {old} into it, add --merge"
            )
        if merge and not exists:
            raise DataError(f"{path}: has no class {new} to merge with; {hint(new, gallery.classes)}")
        cleaning.note_renamed(known, label, "rename --merge" if merge else "rename")
        labels = [label if one == known else one for one in samples.table.labels]
        count = format_count(sum(one == known for one in samples.table.labels), "example")
        text = f"class {old} is now part of {new}: {count}" if merge else f"class {old} is now {new}: {count}"
        return replace(samples, table=replace(samples.table, labels=labels), notes=[Note("renamed", text)])

    if class_key(old) == class_key(new):
        raise UsageError(f"the class is called {old} already; give another name")
    return rewrite(path, change, progress=progress)


def update(
    names: Sequence[str],
    path: Path,
    reading: Reading,
    progress: Progress = silent,
    model: Path | None = None,
    workers: Workers | None = None,
    *,
    restore: bool = False,
    dry_run: bool = False,
) -> UpdateReport:
    """Make the gallery match the current sources; only files that may have changed are read.

    A sample whose file still exists but cannot be read is kept: a disk that is away for a moment must not
    cost the gallery a class. What people removed, relabelled or added stays so, unless `restore` forgets it.
    """

    def change(gallery: FittedGallery, old: ReadSamples, cleaning: Cleaning) -> ReadSamples:
        lister = workers.lister if workers else None
        classes = {*gallery.classes, *cleaning.source_classes()}
        source = open_examples(names, reading, lister).with_classes(classes)
        notes = [_forget_cleaning(cleaning)] if restore else []
        cleaned = CleanedSource(cleaning, old.table)
        known, spellings = rows_by_name(old.table), sample_names(gallery.names, gallery.recipe.kind)
        refuse_mismatch(source, gallery.recipe, path)
        if known.keys().isdisjoint(map(spellings.spell, source.names())):  # renamed, or a mistake
            _refuse_another_source(path, old.table, source, cleaned)
        is_suspect = _may_have_changed(known, old.table, spellings, gallery.classes, None, cleaned)
        read = cleaned.apply(
            _read_changed_samples(is_suspect, old, spellings, gallery, source, reading, progress, workers)
        )
        fresh = rows_by_name(read.table)
        now = known | {name: len(old.table) + row for name, row in fresh.items()}
        present: dict[str, SampleError | None] = dict.fromkeys(map(spellings.spell, source.names()))
        present.update((spellings.spell(left.name), left.error) for left in read.left_out)
        listed: list[int] = []
        kept = 0
        removed = cleaned.removed
        for name, error in present.items():
            if name in removed:
                continue
            if error is None:
                listed.append(now[name])
            elif error.status not in _REMOVING:
                unreadable = _rows_at_or_below(name, known)
                listed += unreadable
                kept += len(unreadable)
        require_samples(listed, read.left_out)
        by_hand, of_outside = _keep_by_hand(cleaning, names, present, old.table, known, read.table)
        chosen = _choose(old, read, listed + by_hand)
        emptied = sorted(set(gallery.classes) - set(chosen.table.labels))
        notes += [Note("emptied class", f"class {name}: no examples remain, removed") for name in emptied]
        if kept:
            text = f"{format_count(kept, 'example')} kept as before, because the files cannot be read now"
            notes.append(Note("kept", text))
        notes += _note_new_classes(read.table, gallery.classes) + cleaned.notes(known)
        notes += [] if restore else of_outside
        return replace(chosen, notes=read.notes + notes)

    return rewrite(path, change, model, progress, dry_run=dry_run)


def _forget_cleaning(cleaning: Cleaning) -> Note:
    """Forget all decisions, and return a note on them."""
    forgotten = cleaning.clear()
    text = (
        f"{forgotten}: the gallery follows its sources again"
        if forgotten
        else "nothing to restore: no example of the gallery was removed, relabelled or added by hand"
    )
    return Note("restored", text)


def _keep_by_hand(
    cleaning: Cleaning,
    sources: Sequence[str],
    present: Mapping[str, SampleError | None],
    old: SampleTable,
    known: Mapping[str, int],
    read: SampleTable,
) -> tuple[list[int], list[Note]]:
    """Return the rows of old samples that stay because people gave their classes, and notes on them.

    The sources do not have these, or have no class for them; `present` has the samples of the sources.
    """
    gone = old.take([row for name, row in known.items() if name not in present])
    moved = {sha256 for name, sha256 in zip(read.names, read.hashes, strict=True) if name not in known}
    kept, notes = cleaning.keep_outside(gone, sources, moved)
    unclassed = [
        name for name, error in present.items() if name in known and error and error.status == "no_class"
    ]
    kept += [name for name in unclassed if cleaning.is_by_hand(name, old.hashes[known[name]])]
    return [known[name] for name in kept], notes


def _note_new_classes(added: SampleTable, old: Sequence[str]) -> list[Note]:
    """Return a note on every new class: a typing error or a stray file would make one too."""
    known = set(old)
    by_class: dict[str, list[str]] = {}
    for name, label in zip(added.names, added.labels, strict=True):
        if label not in known:
            by_class.setdefault(label, []).append(name)
    return [
        Note("new class", f"class {label} is new: {format_count(len(names), 'example')}, such as {names[0]}")
        for label, names in by_class.items()
    ]


def _note_duplicates(kept: SampleTable, added: SampleTable) -> list[Note]:
    """Return a note on samples that are now duplicated, such as a folder added under another path."""
    contents = list(contents_of(added))
    names = names_by_content(kept, set(contents))
    again = [row for row, content in enumerate(contents) if content in names]
    if not again:
        return []
    first = again[0]
    text = (
        f"{len(again)} of {format_count(len(added), 'added example')} {is_or_are(len(again))} now in "
        "the gallery twice: "
        f"{added.names[first]} is the same as "
        f"{names[contents[first]]}; `crnr remove --example` removes one"
    )
    return [Note("twice", text)]


def _refuse_another_source(path: Path, old: SampleTable, source: Source, cleaned: CleanedSource) -> None:
    """Refuse to replace all samples by others, unless their contents show that a folder was renamed."""
    contents = {
        (class_key(cleaned.find_label(name, sha256, label) or ""), sha256)
        for name, label, sha256 in source.read_contents()
    }
    if contents.isdisjoint((class_key(label), sha256) for label, sha256 in contents_of(old)):
        raise DataError(
            f"{path}: none of its {format_count(len(old), 'example')}, such as {old.names[0]}, is in "
            "the source; "
            "name the sources that it was built from, or build without --update to replace it"
        )


def _rows_at_or_below(name: str, known: Mapping[str, int]) -> list[int]:
    """Return the row of a file that cannot be read, or the rows of all files in such a folder."""
    if name in known:
        return [known[name]]
    folder = os.path.join(path_key(name), "")  # noqa: PTH118
    return [row for other, row in known.items() if path_key(other).startswith(folder)]


def _choose(old: ReadSamples, read: ReadSamples, rows: Sequence[int]) -> ReadSamples:
    """Return samples by their rows; the rows of new samples follow the old ones."""
    numbers = np.asarray(rows, dtype=np.int64)
    is_new = numbers >= len(old.table)
    if not is_new.any():
        return replace(old.take(numbers), left_out=read.left_out)
    values = old.values[np.where(is_new, 0, numbers)]  # copied once, because they may need most of the memory
    values[is_new] = read.values[numbers[is_new] - len(old.table)]
    return replace(read, table=(old.table + read.table).take(numbers), values=values)


def _read_changed_samples(
    is_suspect: Callable[[str, Stamp, tuple[str, ...]], bool],
    old: ReadSamples,
    spellings: Spellings,
    gallery: FittedGallery,
    source: Source,
    reading: Reading,
    progress: Progress,
    workers: Workers | None = None,
) -> ReadSamples:
    """Read the samples that are new, or whose files may have changed.

    Names and classes get the gallery's spelling; `spellings` learns new names.
    """
    classes = Spellings(gallery.classes)
    suspects = source.filter(is_suspect)
    if not len(suspects):
        return old.take([])
    reading = replace(reading, dtype=gallery.dtype, event_gap=gallery.event_gap)
    has_dates = gallery.event_gap is not None
    if has_dates and isinstance(suspects, Images):
        suspects = replace(suspects, dates=BY_EXIF)
    read = read_by_recipe(
        gallery.recipe,
        suspects,
        reading,
        progress,
        label_of=lambda candidates: classes.spell(candidates[0]),
        total=len(source),
        workers=workers,
    )
    table = read.table.with_dates(has_dates)
    return replace(read, table=replace(table, names=list(map(spellings.learn, table.names))))


def _may_have_changed(
    known: Mapping[str, int],
    old: SampleTable,
    spellings: Spellings,
    known_classes: Sequence[str],
    label: str | None,
    cleaned: CleanedSource | None = None,
) -> Callable[[str, Stamp, tuple[str, ...]], bool]:
    """Return a test whether a file's size, mtime or class differs from the gallery's sample of that name.

    The class is the class after the cleaning; removed samples that have not changed are no suspects.
    """
    classes = Spellings(known_classes)
    stamps, old_labels = list(old.stamps), list(old.labels)  # decoded at once, because all are needed
    hashes = list(old.hashes) if cleaned and cleaned.is_needed else []

    def is_suspect(name: str, stamp: Stamp, candidates: tuple[str, ...]) -> bool:
        name = spellings.spell(name)
        row = known.get(name)
        found = classes.spell(candidates[0]) if candidates else None
        expected = found if label is None else label
        if cleaned and hashes and found is not None:
            if row is None:
                return not cleaned.is_still_removed(name, stamp, found)
            expected = cleaned.find_label(name, hashes[row], found)
        return row is None or (stamps[row], old_labels[row]) != (stamp, expected)

    return is_suspect


def list_reviewed_images(corrections: Corrections, margin: float) -> tuple[Images, list[Note]]:
    """Return the files that were accepted or corrected, and notes on the others.

    A file that is newer than its review may be another image, and is not read.
    """
    wanted = [one for one in corrections if not one.is_outsider]
    for one in wanted:
        name, hash, _ = one.path.rpartition("#")
        if hash and is_table(name):
            raise DataError(
                f"{corrections.file}, line {one.line}: {one.path} is a row of a feature file; only images "
                "can be added, so classify images instead"
            )
    if not wanted:
        raise DataError(f"{corrections.file}: nothing to add, because no reviewed file belongs to a class")
    source = list_named_images([one.path for one in wanted], margin)
    refuse_mentioned(source.names())
    files = []
    for file, one in zip(source.files, wanted, strict=True):
        error = file.error
        if error is None and one.when is not None and file.mtime_ns / _NANOSECONDS > one.when + _ROUNDING:
            error = SampleError(
                "changed", "changed after it was reviewed; review it again, or empty its field `when`"
            )
        files.append(file._replace(folders=(one.corrected,), error=error))
    source.files, source.labels_from = files, corrections.file
    n_corrected = sum(class_key(one.label) != class_key(one.corrected) for one in wanted)
    text = (
        f"{corrections.file}: {format_count(len(wanted), 'reviewed file')}, {n_corrected} with another label"
    )
    if others := len(corrections) - len(wanted):
        belong = "belongs" if others == 1 else "belong"
        text += f"; {others} more {belong} to none of the classes and {is_or_are(others)} not added"
    return source, [Note("reviewed", text)]


def find_copies(fresh: SampleTable, old: SampleTable) -> tuple[set[int], list[Note]]:
    """Return the rows whose content is already in the gallery under another name, and a note on them."""
    contents = list(contents_of(fresh))
    known = names_by_content(old, set(contents))
    copies = {
        row: f"{name} is the same as {known[content]}"
        for row, (name, content) in enumerate(zip(fresh.names, contents, strict=True))
        if known.get(content, name) != name
    }
    if not copies:
        return set(), []
    n = len(copies)
    files = format_count(n, "reviewed file")
    text = (
        f"{files} {has_or_have(n)} the content of an example and {is_or_are(n)} not added: "
        f"{next(iter(copies.values()))}"
    )
    return set(copies), [Note("reviewed copies", text)]
