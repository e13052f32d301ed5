"""Sort: copy, link or move every classified file to the folder of its label."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError, OutputError, refuse_too_many
from crnr_cli.images.regions import find_region
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.decision import Prediction
from crnr_cli.results.formats import read_answers
from crnr_cli.sorting.named_files import GONE, NamedFile, NamedFiles
from crnr_cli.sorting.names import DEFAULT_TEMPLATE, DOUBTFUL, FAILED, REJECTED, Template, folder_of
from crnr_cli.sorting.placing import (
    ALREADY_THERE,
    LEFT_OUT,
    PART,
    FileOutcome,
    Place,
    Tree,
    folder_errors,
    is_same_file,
    longest_name,
    make_if_missing,
    move_new,
    opened_tree,
    place_of_folder,
    refuse_other_device,
)
from crnr_cli.sorting.plan import (
    LOCK,
    REPORTED_EVERY,
    Names,
    SortEntry,
    SortList,
    SortReport,
    is_in_place,
    new_list,
    perform,
    read_list,
    read_lists,
)
from crnr_cli.sources.formats import is_table
from crnr_cli.sources.images import is_unrelated
from crnr_cli.sources.walk import REMOVED, REMOVED_MARK
from crnr_cli.system.csv_file import require_file
from crnr_cli.system.files import locked
from crnr_cli.system.names import ON_WINDOWS, folds_names, path_key, stat_or_none, with_slashes

_SPECIAL = (REJECTED, FAILED)


@dataclass(frozen=True)
class SortOptions:
    how: str = "copy"
    template: str = DEFAULT_TEMPLATE
    min_probability: float | None = None
    below: Sequence[Path] = ()  # more folders whose files may be sorted
    max_failure_rate: float = 1.0
    dry_run: bool = False
    portable_names: bool = False  # also on other systems than Windows, which always needs them

    @property
    def has_portable_names(self) -> bool:
        return self.portable_names or ON_WINDOWS


class _File(NamedTuple):
    """A row, the name that its file should get, and the file."""

    row: Prediction
    wish: str
    found: NamedFile


def sort(table: Path, folder: Path, options: SortOptions, progress: Progress = silent) -> SortReport:
    """Put the files of a predictions CSV into folders named after their labels."""
    place, found = place_of_folder(folder), stat_or_none(folder)
    template = Template(options.template, longest_name(place), options.has_portable_names)
    rows, passed_over = _read_rows(table, options)
    rows, n_mixed = _choose_boxes(rows)
    files = _look_up_files(rows, table, options, template, progress)
    if found is None and all(file.found.reason for file in files):
        raise _nothing_found_error(table, files)
    report = SortReport(options.how, unrelated=passed_over, mixed=n_mixed)
    if options.dry_run:
        with opened_tree(folder) if found else nullcontext() as tree:
            _plan_entries(table, files, folder, tree, options, report)
        return report
    with (
        _made_folder(folder) as is_new,
        locked(folder / LOCK, folder),
        opened_tree(folder) as tree,
    ):
        entries, continued = _plan_entries(table, files, folder, tree, options, report)
        if is_new:
            continued.made.append("")
        if entries or continued.entries:
            perform(entries, continued, tree, report, progress)
    return report


def _read_rows(table: Path, options: SortOptions) -> tuple[list[tuple[Prediction, str | None]], int]:
    """Return the rows of inputs, each with a folder that may replace its label, and the number of others."""
    require_file(table, "give a predictions file written by `crnr classify`")
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
                "images instead"
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
    # An unrelated file among the images is not an input.
    kept = [
        (row, folder)
        for row, folder in zip(rows, special, strict=True)
        if row.label or not is_unrelated(row.path, row.status)
    ]
    return kept, len(rows) - len(kept)


def _choose_boxes(
    rows: Sequence[tuple[Prediction, str | None]],
) -> tuple[list[tuple[Prediction, str | None]], int]:
    """Return one row per image, of its surest box, and the number of images with boxes of several labels.

    An image can be in one folder only. A row of a whole image is its only row.
    """
    chosen: dict[str | int, tuple[Prediction, str | None]] = {}
    folders: dict[str, set[str]] = {}
    for number, (row, special) in enumerate(rows):
        region = find_region(row.path)
        if region is None:
            chosen[number] = row, special
            continue
        if row.label is not None:
            folders.setdefault(region.path, set()).add(special or folder_of(row))
        before = chosen.get(region.path)
        if before is None or _sureness(row) > _sureness(before[0]):
            chosen[region.path] = row._replace(path=region.path), special
    return list(chosen.values()), sum(len(found) > 1 for found in folders.values())


def _sureness(row: Prediction) -> tuple[bool, float, float]:
    """Return a sort key: boxes with a class first, by probability and margin."""
    return folder_of(row) not in _SPECIAL, row.probability or 0.0, row.margin or 0.0


def _look_up_files(
    rows: Sequence[tuple[Prediction, str | None]],
    table: Path,
    options: SortOptions,
    template: Template,
    progress: Progress,
) -> list[_File]:
    """Return the files of the rows; refuse files that the user did not mean: a CSV may name any file."""
    roots = [Path(), table.absolute().parent, *options.below]
    named = NamedFiles(roots, str(table), follow_links=options.how != "move")
    seen: set[str] = set()
    files = []
    for number, (row, special) in enumerate(rows, 1):
        found = named.find(row.path)
        if found.source and (place := path_key(found.source)) in seen:
            found = found._replace(reason="the predictions file names it twice")
        elif found.source:
            seen.add(place)
        files.append(_File(row, template.target(row, special), found))
        if number % REPORTED_EVERY == 0 or number == len(rows):
            progress("looking for files", number, len(rows))
    return files


def _plan_entries(
    table: Path,
    files: Sequence[_File],
    folder: Path,
    tree: Tree | None,
    options: SortOptions,
    report: SortReport,
) -> tuple[list[tuple[int, SortEntry]], SortList]:
    """Return the steps to do, by row, and the list to record them in; add every row to the report."""
    earlier = list(read_lists(folder)) if tree else []
    folds = options.has_portable_names or folds_names(folder if tree else folder.absolute().parent)
    names = Names(earlier, options.how, tree, folds=folds)
    here = with_slashes(os.path.join(os.path.realpath(folder), ""))  # noqa: PTH118
    device = os.stat(folder if tree else folder.absolute().parent).st_dev  # noqa: PTH116
    entries: list[tuple[int, SortEntry]] = []
    for file in files:
        path, (source, status, reason) = file.row.path, file.found
        target = None if reason not in ("", GONE) else names.find_done_target(source, file.wish, status)
        if target is None and status is not None and with_slashes(source) == here + file.wish:
            target = file.wish
        if target is not None:
            report.rows.append(FileOutcome(path, f"{folder}/{target}", ALREADY_THERE))
        elif reason or status is None:
            report.rows.append(FileOutcome(path, "", LEFT_OUT, reason))
        else:
            if options.how == "hardlink":
                refuse_other_device(path, folder, status, device)
            target = names.choose_target(source, file.wish)
            entry = SortEntry(source, target, file.wish, status.st_size, status.st_mtime_ns)
            entries.append((len(report.rows), entry))
            report.rows.append(FileOutcome(path, f"{folder}/{target}", options.how))
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
        raise _nothing_found_error(table, files)
    continued = new_list(folder, earlier, options.how)
    return entries, continued.with_entries([entry for _, entry in entries], names.missing_folders(entries))


@contextmanager
def _made_folder(folder: Path) -> Iterator[bool]:
    """Make the folder if it is missing; if the block fails before anything is in it, remove it again."""
    is_new = False
    try:
        with folder_errors(folder):
            is_new = make_if_missing(folder)
            yield is_new
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _nothing_found_error(table: Path, files: Sequence[_File]) -> DataError:
    if not files:
        return DataError(f"{table}: names no images")
    first = files[0]
    return DataError(
        f"{table}: none of the files can be sorted; {first.row.path}: {first.found.reason}; paths are "
        "relative to the current folder, so run the command where `crnr classify` ran"
    )


@dataclass
class UnsortReport:
    how: str
    undone: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)  # targets that stay, and why


def unsort(path: Path, below: Sequence[Path] = (), progress: Progress = silent) -> UnsortReport:
    """Undo the steps in a list. It can be stopped and started again, and overwrites nothing.

    The list is removed when all of it is undone.
    """
    folder = path.parent
    report, made = UnsortReport(read_list(path).how), False
    with folder_errors(folder), locked(folder / LOCK, folder), opened_tree(folder) as tree:
        done = read_list(path)  # another run may have changed it before we had the lock
        named = NamedFiles([Path(), folder, *below], str(path), follow_links=False)
        if done.how == "move":  # a list may be untrusted, too
            for above in {str(Path(entry.source).parent): None for entry in done.entries}:
                named.check_folder(above, above)
        with contextlib.suppress(FileNotFoundError):
            Place(PART, tree.root).remove()
        _undo(done, tree, report, progress)
        for name in sorted(filter(None, done.made), key=len, reverse=True):
            if name == REMOVED and tree.names(REMOVED) == {REMOVED_MARK}:
                tree.place(f"{REMOVED}/{REMOVED_MARK}").remove()
            tree.remove_folder(name)
        if not report.left_out:
            path.unlink()
            made = "" in done.made
    if made:
        with contextlib.suppress(OSError):  # there is something else in it
            folder.rmdir()
    return report


def _undo(done: SortList, tree: Tree, report: UnsortReport, progress: Progress) -> None:
    for number, entry in enumerate(reversed(done.entries), 1):
        reason = None
        try:
            target = tree.place(entry.target)
            reason = (
                _put_back(entry, target, report)
                if done.how == "move"
                else _remove_target(entry, done.how, target, report)
            )
        except FileNotFoundError:
            if done.how == "move" and Place(entry.source).status() is None:
                reason = GONE
        except FileExistsError:
            reason = f"there is another file at {entry.source}, which crnr does not overwrite"
        except (OSError, OutputError) as e:
            reason = str(e) if isinstance(e, OutputError) else os.strerror(e.errno or 0)
        if reason:
            report.left_out.append((f"{tree.path}/{entry.target}", reason))
        if number % REPORTED_EVERY == 0 or number == len(done.entries):
            progress("sorting", number, len(done.entries))


def _put_back(entry: SortEntry, target: Place, report: UnsortReport) -> str | None:
    source = Place(entry.source)
    if target.status() is None:
        return None if source.status() else GONE
    above = os.path.dirname(entry.source)  # noqa: PTH120
    os.makedirs(above, exist_ok=True)  # noqa: PTH103
    try:
        move_new(target, source, Place(f"{above}/{PART}"))
    except FileExistsError:
        if not is_same_file(source, target):
            raise
        target.remove()
    report.undone += 1
    return None


def _remove_target(entry: SortEntry, how: str, target: Place, report: UnsortReport) -> str | None:
    if target.status() is None:
        return None
    if not is_in_place(entry, how, target):
        return "has changed since it was sorted"
    if how == "copy":
        source = Place(entry.source)
        if source.status() is None:
            return f"{entry.source} is gone, so this may be the last copy"
        if not is_same_file(source, target):
            return f"{entry.source} has other content now, so this may be the last copy"
    target.remove()
    report.undone += 1
    return None
