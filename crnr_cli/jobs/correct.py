"""Correct: apply the decisions in an audit CSV to a gallery, and to the files that it was built from.

The gallery is written first, as a whole. Then the files are moved, one by one, with an undo file. At last
the examples of moved files get their new names. Whenever that is stopped, the gallery is complete and
remembers the decisions: both `build --update` and the same command, which continues, lead to one gallery.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crnr_cli.errors import DataError, OutputError, UsageError, refuse_too_many
from crnr_cli.gallery.cleaning import Cleaning, Decision
from crnr_cli.gallery.entries import hint, sample_names
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.rewriting import UpdateReport, rewrite
from crnr_cli.gallery.samples import ReadSamples
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.edited import Mark
from crnr_cli.sorting.named_files import GONE, NamedFile, NamedFiles
from crnr_cli.sorting.names import escape_class_name
from crnr_cli.sorting.placing import (
    ALREADY_THERE,
    LEFT_OUT,
    FileOutcome,
    Tree,
    folder_errors,
    is_within,
    opened_tree,
)
from crnr_cli.sorting.plan import LOCK, Names, SortEntry, SortReport, new_list, perform, read_lists
from crnr_cli.sources.walk import REMOVED, REMOVED_MARK, is_system_file
from crnr_cli.system.files import locked, sha256_of
from crnr_cli.system.names import Spellings, class_key, folds_names, stat_or_none, with_slashes
from crnr_cli.wording import Note, format_count

_MOVE = "move"


class MarkedExample(NamedTuple):
    """A decision on an example."""

    name: str  # in the spelling of the gallery
    former: str  # the class that the sources give it
    label: str  # the class before
    corrected: str  # empty if it is to be removed
    sha256: str
    is_new: bool  # the gallery does not have it yet

    @property
    def change(self) -> str:
        return "changed" if self.corrected else "removed"


@dataclass(frozen=True)
class Plan:
    """The corrections of a gallery, and what becomes of the files."""

    corrections: list[MarkedExample]
    kept: int  # marks that confirm a label
    moves: SortReport | None = None

    @property
    def new(self) -> list[MarkedExample]:
        return [one for one in self.corrections if one.is_new]


@dataclass(frozen=True)
class CorrectReport:
    update: UpdateReport
    plan: Plan


def plan_corrections(
    path: Path, marks: Sequence[Mark], folder: Path | None = None, max_failure_rate: float = 1.0
) -> Plan:
    """Return what `correct` would do; write nothing."""
    gallery = load_gallery(path)
    plan = _find_corrections(path, gallery, Cleaning.of(gallery), marks)
    if folder is None:
        return plan
    with folder_errors(folder):
        _require_files(path, gallery, folder)
        with opened_tree(folder) as tree:
            moves = _FileMoves(folder, tree, gallery, plan.corrections)
            moves.refuse_too_many(max_failure_rate)
    return replace(plan, moves=moves.report)


def correct(
    path: Path,
    marks: Sequence[Mark],
    why: str,
    folder: Path | None = None,
    progress: Progress = silent,
    max_failure_rate: float = 1.0,
) -> CorrectReport:
    """Give examples other classes, or remove them; with `folder`, move their files below it accordingly."""
    plans: list[Plan] = []

    def change(gallery: FittedGallery, old: ReadSamples, cleaning: Cleaning) -> ReadSamples:
        plans.append(_find_corrections(path, gallery, cleaning, marks))
        return _apply(plans[0], old, cleaning, why)

    if folder is None:
        return CorrectReport(rewrite(path, change, progress=progress), plans[0])
    plan_corrections(path, marks, folder, max_failure_rate)  # refuses before anything is written
    with folder_errors(folder), locked(folder / LOCK, folder), opened_tree(folder) as tree:
        report = rewrite(path, change, progress=progress)
        moves = _FileMoves(folder, tree, report.gallery, plans[0].corrections)
        moves.perform(progress)
        _follow_moves(path, moves.find_done(), progress)
    return CorrectReport(report, replace(plans[0], moves=moves.report))


def _find_corrections(path: Path, gallery: FittedGallery, cleaning: Cleaning, marks: Sequence[Mark]) -> Plan:
    """Return the decisions of the marks, each example once; refuse what cannot be applied."""
    names, classes = sample_names(gallery.names, gallery.recipe.kind), Spellings(gallery.classes)
    rows = {name: row for row, name in enumerate(gallery.names)}
    earlier = {cleaning.key_of(one.name): one for one in cleaning if one.sha256}
    chosen: dict[str, Mark] = {}
    found: list[MarkedExample] = []
    kept = 0
    for mark in marks:
        name = names.find(with_slashes(mark.path))
        key = cleaning.key_of(name or with_slashes(mark.path))
        other = chosen.setdefault(key, mark)
        if class_key(other.corrected) != class_key(mark.corrected):
            raise DataError(f"{mark.where}: {mark.path} is {mark.text}, but {other.text} in {other.where}")
        if other is not mark:
            continue
        corrected = ""
        if mark.corrected and not (corrected := classes.find(mark.corrected) or ""):
            raise _unknown_class_error(path, mark, gallery.classes)
        if name is None:
            found.append(_find_earlier(path, mark, corrected, earlier.get(key), gallery.names))
            continue
        row = rows[name]
        label, sha256 = gallery.table.labels[row], gallery.hashes[row]
        if corrected != label and mark.label and class_key(mark.label) != class_key(label):
            raise DataError(
                f"{mark.where}: {mark.path} is in the class {label} now, but was in {mark.label} when it was "
                "audited; audit the gallery again"
            )
        decided = cleaning.find(name, sha256)
        former = decided.former if decided else label
        if corrected == label and (decided is None or class_key(former) == class_key(label)):
            kept += 1
        else:
            found.append(MarkedExample(name, former, label, corrected, sha256, corrected != label))
    if {one.name for one in found if one.is_new and not one.corrected}.issuperset(gallery.names):
        raise DataError(f"{path}: no examples would remain; delete the file instead")
    return Plan(found, kept)


def _unknown_class_error(path: Path, mark: Mark, classes: Sequence[str]) -> DataError:
    return DataError(
        f"{mark.where}: {path} has no class {mark.corrected}; {hint(mark.corrected, classes)}; to begin a "
        "new class with it, use `crnr add --class`"
    )


def _find_earlier(
    path: Path, mark: Mark, corrected: str, decision: Decision | None, names: Sequence[str]
) -> MarkedExample:
    """Return a correction that was applied before, when the example had this name."""
    if decision is None or class_key(decision.label) != class_key(corrected):
        raise DataError(
            f"{mark.where}: {path} has no example {mark.path}; {hint(mark.path, names)}; audit the gallery "
            "again, or remove this row"
        )
    return MarkedExample(decision.name, decision.former, "", corrected, decision.sha256, is_new=False)


def _apply(plan: Plan, old: ReadSamples, cleaning: Cleaning, why: str) -> ReadSamples:
    """Return the examples with their new classes, without those to be removed; remember the decisions."""
    decided = {one.name: one.corrected for one in plan.new}
    columns = zip(old.table.names, old.table.labels, strict=True)
    labels = [decided.get(name, label) for name, label in columns]
    is_removed = np.array([not label for label in labels])
    is_changed = np.array([name in decided for name in old.table.names]) & ~is_removed
    relabelled = replace(old.table, labels=labels)
    cleaning.note_removed(old.table.take(np.flatnonzero(is_removed)), why)
    changed = relabelled.take(np.flatnonzero(is_changed))
    notes = cleaning.note_added(changed, old.table, why, by_hand=True)
    emptied = sorted(set(old.table.labels) - set(labels))
    notes += [Note("emptied class", f"class {name}: no examples remain, removed") for name in emptied]
    if plan.kept:
        keep = "label is" if plan.kept == 1 else "labels are"
        notes.append(Note("confirmed", f"{plan.kept} marked {keep} confirmed and not changed"))
    if again := len(plan.corrections) - len(plan.new):
        has = "was" if again == 1 else "were"
        notes.append(Note("known", f"{format_count(again, 'correction')} {has} applied before"))
    new = replace(old, table=relabelled)
    return replace(new.take(np.flatnonzero(~is_removed)) if is_removed.any() else new, notes=notes)


def _require_files(path: Path, gallery: FittedGallery, folder: Path) -> None:
    if gallery.recipe.kind != "pictures":
        raise UsageError(f"--sources: {path} was built from features, not from files that can be moved")
    found = stat_or_none(folder)
    if found is None or not stat.S_ISDIR(found.st_mode):
        problem = "no such folder" if found is None else "is not a folder"
        raise DataError(f"{folder}: {problem}; give the folder that contains one folder per class")
    place = folder / REMOVED
    # A command that was killed may have left it empty.
    if os.path.isdir(place) and REMOVED_MARK not in (names := os.listdir(place)) and names:  # noqa: PTH112, PTH208
        raise OutputError(
            f"{place}: is a class folder, but removed examples need a folder of this name; "
            "rename the class folder"
        )


class _FileMoves:
    """The moves of the corrected files to the folders of their classes, or to the folder of removed files."""

    def __init__(
        self, folder: Path, tree: Tree, gallery: FittedGallery, corrections: Iterable[MarkedExample]
    ) -> None:
        self.report = SortReport(_MOVE)
        self._folder, self._tree = folder, tree
        self._root = with_slashes(os.path.join(os.path.realpath(folder), ""))  # noqa: PTH118
        self._cleaning = Cleaning.of(gallery)
        self._class_folders = self._find_class_folders()
        self._named = NamedFiles([folder], str(folder), follow_links=False)
        earlier = list(read_lists(folder))
        self._names = Names(earlier, _MOVE, tree, folds=folds_names(folder))
        self._new_names: list[tuple[MarkedExample, str]] = []  # of the examples, by row of the report
        self._entries: list[tuple[int, SortEntry]] = []
        for one in corrections:
            self._add(one)
        missing = self._names.missing_folders(self._entries)
        self._list = new_list(folder, earlier, _MOVE).with_entries([one for _, one in self._entries], missing)

    def _find_class_folders(self) -> dict[str, str]:
        """Return the folder of each class; of several, the folder with the name of the class."""
        found: dict[str, str] = {}
        for name in sorted(self._tree.names("") or ()):
            if is_system_file(name) or not os.path.isdir(self._folder / name):  # noqa: PTH112
                continue
            key = class_key(self._cleaning.rename(name))
            if key not in found or class_key(name) == key:
                found[key] = name
        return found

    def _add(self, one: MarkedExample) -> None:
        """Add the move of one file, or the reason why it stays."""
        file, below = self._find(one)
        wish = self._find_target(one, below) if below else ""
        target, result = "", LEFT_OUT
        if wish and file.reason == GONE and (done := self._names.find_done_target(file.source, wish, None)):
            target, result = done, ALREADY_THERE
        elif wish and not file.reason and file.status:
            target, result = self._names.choose_target(file.source, wish), _MOVE
            status = file.status
            entry = SortEntry(file.source, target, wish, status.st_size, status.st_mtime_ns)
            self._entries.append((len(self.report.rows), entry))
        reason = "" if target else file.reason or "its class cannot be the name of a folder there"
        place = f"{self._folder}/{target}" if target else ""
        self.report.rows.append(FileOutcome(one.name, place, result, reason))
        self._new_names.append((one, one.name[: len(one.name) - len(below)] + target))

    def _find(self, one: MarkedExample) -> tuple[NamedFile, str]:
        """Return the file of an example, and its path below the folder; it must be the one that was added."""
        above = os.path.realpath(os.path.dirname(one.name) or ".")  # noqa: PTH120
        if not is_within(above, os.path.realpath(self._folder)):
            return NamedFile(reason=f"is not below {self._folder}"), ""
        found = self._named.find(one.name)
        if found.reason not in ("", GONE):
            return found, ""
        below = with_slashes(found.source).removeprefix(self._root)
        own, slash, _ = below.partition("/")
        if not one.name.endswith(below):
            return NamedFile(reason="its path contains a link"), ""
        if not slash or class_key(self._cleaning.rename(own)) != class_key(one.former):
            return NamedFile(reason="its class is not the name of its folder"), ""
        if not found.reason:
            try:
                if sha256_of(found.source) != one.sha256:
                    return NamedFile(reason="has changed since it became an example"), ""
            except OSError as e:
                return NamedFile(reason=e.strerror or "cannot be read"), ""
        return found, below

    def _find_target(self, one: MarkedExample, below: str) -> str:
        """Return the name that a file should get; empty if its class has no folder and cannot have one."""
        if not one.corrected:
            return f"{REMOVED}/{below}"
        key, rest = class_key(one.corrected), below.partition("/")[2]
        if key in self._class_folders:
            return f"{self._class_folders[key]}/{rest}"
        name = one.corrected
        is_free = class_key(self._cleaning.rename(name)) == key and not is_system_file(name)
        return f"{name}/{rest}" if is_free and escape_class_name(name) == name else ""

    def refuse_too_many(self, max_failure_rate: float) -> None:
        """Raise DataError if more than the allowed share of the files stay, or all of them."""
        if self.report.rows and len(self.report.left_out) == len(self.report.rows):
            raise DataError(
                f"{self._folder}: none of the files can be moved; {self.report.rows[0]}; leave out "
                "--sources, or run the command where the gallery was built"
            )
        refuse_too_many(
            self.report.left_out, len(self.report.rows), max_failure_rate, "file", fate="to stay in place"
        )

    def perform(self, progress: Progress) -> None:
        if any(entry.target.startswith(f"{REMOVED}/") for _, entry in self._entries):
            with suppress(FileExistsError):
                os.close(self._tree.place(f"{REMOVED}/{REMOVED_MARK}", make=True).create())
        if self._entries or self._list.entries:
            perform(self._entries, self._list, self._tree, self.report, progress)

    def find_done(self) -> list[tuple[MarkedExample, str]]:
        """Return the corrections whose files are in their places, and the examples' names there."""
        rows = zip(self.report.rows, self._new_names, strict=True)
        return [new for row, new in rows if row.result != LEFT_OUT and new[0].corrected]


def _follow_moves(path: Path, moved: Sequence[tuple[MarkedExample, str]], progress: Progress) -> None:
    """Give examples the names of their moved files; the sources agree with these decisions now."""

    def change(gallery: FittedGallery, old: ReadSamples, cleaning: Cleaning) -> ReadSamples:
        known = set(gallery.names)
        new_names = {one.name: name for one, name in moved if name not in known}
        for one, _ in moved:
            cleaning.note_moved(one.sha256, one.corrected)
        names = [new_names.get(name, name) for name in gallery.names]
        return replace(old, table=replace(old.table, names=names))

    if moved:
        rewrite(path, change, progress=progress)
