"""Sort: every classified file is copied, linked or moved to the folder of its label."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError, refuse_too_many
from crnr_cli.progress import Progress, silent
from crnr_cli.results.decision import Prediction
from crnr_cli.results.formats import read_answers
from crnr_cli.results.placed import LEFT_OUT, THERE, Placed, PlacingReport, refuse_other_device
from crnr_cli.results.sort_list import LOCK, Entry, SortList, lists_in, new_list
from crnr_cli.results.sort_names import DEFAULT_TEMPLATE, DOUBTFUL, FAILED, REJECTED, Template, folder_of
from crnr_cli.results.sort_plan import Names
from crnr_cli.sources.folders import is_unrelated
from crnr_cli.sources.named_files import GONE, NamedFile, NamedFiles
from crnr_cli.sources.readers import is_table
from crnr_cli.system.csv_file import NO_REGULAR_FILE, require_file
from crnr_cli.system.files import locked
from crnr_cli.system.names import existing, folds_names, path_key, slashed
from crnr_cli.system.placing import (
    PART,
    Place,
    Tree,
    folder_errors,
    is_same_file,
    longest_name,
    move_new,
    opened_tree,
    place_of_folder,
    put_new,
)
from crnr_cli.system.portable import ON_WINDOWS

_REPORTED_EVERY = 200  # files
_SPECIAL = (REJECTED, FAILED)


@dataclass(frozen=True)
class SortOptions:
    how: str = "copy"
    template: str = DEFAULT_TEMPLATE
    min_probability: float | None = None
    below: Sequence[Path] = ()  # folders whose files may be sorted, besides those of the run and of the CSV
    max_failure_rate: float = 1.0
    dry_run: bool = False
    portable_names: bool = False  # also elsewhere than on Windows, which can have no others

    @property
    def has_portable_names(self) -> bool:
        return self.portable_names or ON_WINDOWS


@dataclass
class SortReport(PlacingReport):
    folders: Counter[str] = field(default_factory=Counter)  # files by folder, of those put in place
    list: Path | None = None  # None if nothing had to be done


class _File(NamedTuple):
    """A row, the name that its file should get, and the file."""

    row: Prediction
    wish: str
    found: NamedFile


def sort(table: Path, folder: Path, options: SortOptions, progress: Progress = silent) -> SortReport:
    """Put the files that a predictions CSV names into folders named after their labels."""
    place, found = place_of_folder(folder), existing(folder)
    template = Template(options.template, longest_name(place), options.has_portable_names)
    rows, passed_over = _rows(table, options)
    files = _looked_at(rows, table, options, template, progress)
    if found is None and all(file.found.reason for file in files):
        raise _nothing_found(table, files)
    report = SortReport(options.how, passed_over=passed_over)
    if options.dry_run:
        with opened_tree(folder) if found else nullcontext() as tree:
            _planned(table, files, folder, tree, options, report)
        return report
    with _made(folder, found is None), locked(folder / LOCK, folder), opened_tree(folder) as tree:
        entries, continued = _planned(table, files, folder, tree, options, report)
        if found is None:
            continued.made.append("")
        if entries or continued.entries:
            _perform(entries, continued, tree, report, progress)
    return report


def _rows(table: Path, options: SortOptions) -> tuple[list[tuple[Prediction, str | None]], int]:
    """The rows of inputs, each with a folder that replaces its label, and the number of other rows."""
    require_file(table, "give a CSV written by `crnr classify`", *NO_REGULAR_FILE)
    rows = read_answers(table)
    if not rows:
        raise DataError(f"{table}: has no rows")
    for number, row in enumerate(rows, 1):
        if not row.path:
            raise DataError(f"{table}: row {number} has no path; was it written by `crnr classify`?")
        name, hash, _ = row.path.rpartition("#")
        if hash and is_table(name):
            raise DataError(
                f"{table}: {row.path} is a row of a feature file; only files can be sorted, so classify "
                "pictures instead"
            )
    special: list[str | None] = [None] * len(rows)
    if options.min_probability is not None:
        if all(row.probability is None for row in rows):
            raise DataError(
                f"{table}: no column probability; leave out --min-probability, or classify with a gallery "
                "that was built with --calibrate"
            )
        for i, row in enumerate(rows):
            is_sure = row.probability is not None and row.probability >= options.min_probability
            if folder_of(row) not in _SPECIAL and not is_sure:
                special[i] = DOUBTFUL
    # An unrelated file among the pictures is not an input.
    kept = [
        (row, folder)
        for row, folder in zip(rows, special, strict=True)
        if row.label or not is_unrelated(row.path, row.status)
    ]
    return kept, len(rows) - len(kept)


def _looked_at(
    rows: Sequence[tuple[Prediction, str | None]],
    table: Path,
    options: SortOptions,
    template: Template,
    progress: Progress,
) -> list[_File]:
    """The files of the rows. One that the user did not mean is refused: a CSV may name any file."""
    roots = [Path(), table.absolute().parent, *options.below]
    named = NamedFiles(roots, str(table), follow_links=options.how != "move")
    seen: set[str] = set()
    files = []
    for number, (row, special) in enumerate(rows, 1):
        found = named.find(row.path)
        if found.source and (place := path_key(found.source)) in seen:
            found = found._replace(reason="the CSV names it twice")
        elif found.source:
            seen.add(place)
        files.append(_File(row, template.target(row, special), found))
        if number % _REPORTED_EVERY == 0 or number == len(rows):
            progress("looking for files", number, len(rows))
    return files


def _planned(
    table: Path,
    files: Sequence[_File],
    folder: Path,
    tree: Tree | None,
    options: SortOptions,
    report: SortReport,
) -> tuple[list[tuple[int, Entry]], SortList]:
    """What is to be done, by row, and the list that it belongs to. The report has every row."""
    earlier = list(lists_in(folder)) if tree else []
    folds = options.has_portable_names or folds_names(folder if tree else folder.absolute().parent)
    names = Names(earlier, options.how, tree, folds=folds)
    here = slashed(os.path.join(os.path.realpath(folder), ""))  # noqa: PTH118
    device = os.stat(folder if tree else folder.absolute().parent).st_dev  # noqa: PTH116
    entries: list[tuple[int, Entry]] = []
    for file in files:
        path, (source, status, reason) = file.row.path, file.found
        target = None if reason not in ("", GONE) else names.done(source, file.wish, status)
        if target is None and status is not None and slashed(source) == here + file.wish:
            target = file.wish
        if target is not None:
            report.rows.append(Placed(path, f"{folder}/{target}", THERE))
        elif reason or status is None:
            report.rows.append(Placed(path, "", LEFT_OUT, reason))
        else:
            if options.how == "hardlink":
                refuse_other_device(path, folder, status, device)
            target = names.new(source, file.wish)
            entry = Entry(source, target, file.wish, status.st_size, status.st_mtime_ns)
            entries.append((len(report.rows), entry))
            report.rows.append(Placed(path, f"{folder}/{target}", options.how))
    names.refuse_merged([file.wish for file in files if not file.found.reason], folder)
    refuse_too_many(
        report.left_out,
        len(report.rows),
        options.max_failure_rate,
        "file",
        fate="to be left out",
        where=f" in {table}",
    )
    if all(row.result == LEFT_OUT for row in report.rows):
        raise _nothing_found(table, files)
    continued = new_list(folder, earlier, options.how)
    return entries, continued.extended([entry for _, entry in entries], names.missing_folders(entries))


def _perform(
    entries: Sequence[tuple[int, Entry]],
    continued: SortList,
    tree: Tree,
    report: SortReport,
    progress: Progress,
) -> None:
    if entries:
        continued.write()
        report.list = continued.path
    part = Place(PART, tree.root)
    with contextlib.suppress(FileNotFoundError):
        part.remove()
    failed: list[str] = []
    for number, (i, entry) in enumerate(entries, 1):
        try:
            _put(entry, continued.how, tree.place(entry.target, make=True), part)
        except OSError as e:
            report.leave_out(i, tree.path / entry.target, e)
            failed.append(entry.target)
        else:
            report.folders[entry.target.rpartition("/")[0]] += 1
        if number % _REPORTED_EVERY == 0 or number == len(entries):
            progress("sorting", number, len(entries))
    if not continued.is_finished:
        continued.finish(failed)


def _put(entry: Entry, how: str, target: Place, part: Place) -> None:
    if how != "move":
        put_new(entry.source, target, part, how)
        return
    source = Place(entry.source)
    try:
        move_new(source, target, part)
    except FileExistsError:
        # Perhaps we were stopped when the file had both names, or was copied and not yet removed.
        if not is_same_file(source, target):
            raise
        source.remove()


@contextmanager
def _made(folder: Path, is_missing: bool) -> Iterator[None]:
    """Make the folder; if the block fails before anything is in it, remove it again."""
    try:
        with folder_errors(folder):
            if is_missing:
                folder.mkdir()
            yield
    except BaseException:
        if is_missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _nothing_found(table: Path, files: Sequence[_File]) -> DataError:
    if not files:
        return DataError(f"{table}: names no pictures")
    first = files[0]
    return DataError(
        f"{table}: none of its files can be sorted; {first.row.path}: {first.found.reason}; paths are "
        "relative to the current folder, so run it where `crnr classify` ran"
    )
