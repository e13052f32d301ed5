"""The plan of a sort, and the list that `sort --undo` reads."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError, OutputError
from crnr_cli.progress import Progress
from crnr_cli.records import dataclass
from crnr_cli.sorting.names import shorten_name
from crnr_cli.sorting.placing import (
    LONGEST_NAME,
    PART,
    OutcomeReport,
    Place,
    Tree,
    is_same_file,
    longest_name,
    move_new,
    put_new,
)
from crnr_cli.system.files import disk_errors, replacing
from crnr_cli.system.names import ON_WINDOWS, class_key, fold_name, quote_word, stat_or_none, to_portable
from crnr_cli.system.outputs import DeclaredOutput, planned

HOWS = ("copy", "hardlink", "link", "move")
LOCK = ".crnr-sort.lock"
REPORTED_EVERY = 200  # files
_VERSION = 1
_TIME_UNITS = (1, 100, 1000, 10**7, 10**9, 2 * 10**9)  # ns: NTFS has 100, exFAT 10**7, HFS+ a second
_NAME = re.compile(r"\.crnr-sort-(\d{1,9})\.jsonl")


class SortEntry(NamedTuple):
    """One file in the list of a sort."""

    source: str  # the absolute path, without links
    target: str  # below the folder
    wish: str  # the target without a number
    size: int
    mtime: int  # in ns


@dataclass(frozen=True)
class SortList:
    path: Path
    how: str
    made: list[str] = field(default_factory=list)  # folders that were missing; the folder itself is ""
    entries: list[SortEntry] = field(default_factory=list)
    is_finished: bool = False

    def with_entries(self, entries: list[SortEntry], made: list[str]) -> SortList:
        known = set(self.entries)
        return replace(
            self,
            made=list(dict.fromkeys([*self.made, *made])),
            entries=[*self.entries, *(entry for entry in entries if entry not in known)],
        )

    def write(self) -> None:
        """Write the list to the disk completely, before any file is touched."""
        header = {"crnr_sort": _VERSION, "how": self.how, "made": self.made}
        lines = [json.dumps(header), *map(_line, self.entries), ""]
        with planned([DeclaredOutput(self.path)]), replacing(self.path) as file:
            file.write("\n".join(lines).encode("ascii"))

    def finish(self, failed: Sequence[str]) -> None:
        """Record that all files are in their places, except for these targets."""
        with disk_errors(self.path, "all files are in their places"), self.path.open("ab") as file:
            file.write(json.dumps({"finished": True, "failed": failed}).encode("ascii") + b"\n")


def _line(entry: SortEntry) -> str:
    """Return JSON; `json.dumps` of the whole would take a tenth of the time of linking the file."""
    source, target, wish = map(encode_basestring_ascii, entry[:3])
    return f"[{source}, {target}, {wish}, {entry.size}, {entry.mtime}]"


def is_in_place(entry: SortEntry, how: str, target: Place) -> bool:
    """Return whether the target is an unchanged copy of the source, or a link to it."""
    status = target.status()
    if status is None:
        return False
    if how == "link":
        return stat.S_ISLNK(status.st_mode) and target.link_text() == entry.source
    if how == "hardlink":
        source = Place(entry.source).status()
        return source is not None and os.path.samestat(source, status)
    is_whole = stat.S_ISREG(status.st_mode) and status.st_size == entry.size
    return is_whole and _is_stored_as(status.st_mtime_ns, entry.mtime)


def _is_stored_as(stored: int, time: int) -> bool:
    """Return whether a file system stores a time in ns as `stored`; FAT keeps only even seconds."""
    return any(stored % unit == 0 and abs(stored - time) < unit for unit in _TIME_UNITS)


def read_list(path: Path) -> SortList:
    """Return a list as it was written; an error for anything else."""
    if stat_or_none(path) is None:
        raise DataError(f"{path}: no such undo file")
    if os.path.isdir(path):  # noqa: PTH112, access was checked
        raise _folder_error(path)
    if not os.path.isfile(path) or _NAME.fullmatch(path.name) is None:  # noqa: PTH113
        raise DataError(f"{path}: not an undo file of `crnr sort`, such as sorted/.crnr-sort-1.jsonl")
    try:
        content = path.read_bytes()
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    try:
        # An interrupted finish leaves text after the last line end.
        values = [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
        return _parse_list(path, values)
    except (ValueError, RecursionError) as e:
        raise _not_a_list_error(path) from e


def _parse_list(path: Path, values: list[object]) -> SortList:
    is_finished, failed = False, set()
    match values:
        case [*values, {"finished": True, "failed": list(targets)}]:
            is_finished, failed = True, {target for target in targets if isinstance(target, str)}
    match values:
        case [{"crnr_sort": 1, "how": str(how), "made": list(made)}, *lines] if how in HOWS:
            entries = [entry for entry in map(_entry, lines) if entry.target not in failed]
            folders = [one for one in made if one == "" or (isinstance(one, str) and _is_below(one))]
            return SortList(path, how, folders, entries, is_finished)
    raise ValueError("not a list")


def _folder_error(folder: Path) -> DataError:
    """Return the error for a folder in place of an undo file, with the undo file of its latest run."""
    try:
        latest = max(filter(_number, folder.iterdir()), key=_number, default=None)
    except OSError as e:
        return DataError(
            f"{folder}: is a folder that cannot be read ({e.strerror}); give the undo file in it"
        )
    if latest is None:
        return DataError(f"{folder}: is a folder without an undo file of `crnr sort`; give the undo file")
    command = f"crnr sort --undo {quote_word(str(latest))}"
    return DataError(f"{folder}: is a folder; give the undo file in it: `{command}`")


def _not_a_list_error(path: Path) -> DataError:
    return DataError(f"{path}: not an undo file of `crnr sort`; if it is in the way, remove it")


def _entry(value: object) -> SortEntry:
    match value:
        case [str(source), str(target), str(wish), int(size), int(mtime)] if (
            _is_below(target) and os.path.isabs(source) and _is_path(source)  # noqa: PTH117
        ):
            return SortEntry(source, target, wish, size, mtime)
    raise ValueError("not an entry")


def _is_below(name: str) -> bool:
    """Return whether this is a name below a folder; an untrusted list may contain anything."""
    return _is_path(name) and all(map(_is_name, name.split("/")))


def _is_name(part: str) -> bool:
    """Return whether this is a plain name: not a path and, on Windows, not a device."""
    return part not in ("", ".", "..") and not (ON_WINDOWS and part != to_portable(part))


def _is_path(name: str) -> bool:
    """Return whether the system accepts this path; JSON can contain names that no file has."""
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def read_lists(folder: Path) -> Iterator[SortList]:
    """Yield the lists of earlier runs, the first one first."""
    for path in sorted(filter(_number, folder.iterdir()), key=_number):
        yield read_list(path)


def new_list(folder: Path, earlier: list[SortList], how: str) -> SortList:
    """Return the list of the run to continue, or a new one."""
    if earlier and not earlier[-1].is_finished and earlier[-1].how == how:
        return earlier[-1]
    number = 1 + (_number(earlier[-1].path) if earlier else 0)
    return SortList(folder / f".crnr-sort-{number}.jsonl", how)


def _number(path: Path) -> int:
    """Return the number in the name of a list; 0 if this is no such name."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else 0


class Names:
    """The names in the folder: the used names, and the files placed by an earlier run.

    With `folds`, names that differ only in case or Unicode form are equal.
    """

    def __init__(self, earlier: Sequence[SortList], how: str, tree: Tree | None, *, folds: bool) -> None:
        self._tree, self._how, self._folds = tree, how, folds
        self._longest = longest_name(tree.path) if tree else LONGEST_NAME
        self._folders: dict[str, dict[str, str] | None] = {}
        self._reserved: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._earlier: dict[str, tuple[SortEntry, bool]] = {}  # by source, and whether its run was finished
        self._targets = {entry.target for one in earlier for entry in one.entries} if folds else set()
        for one in earlier:
            self._reserved.update([self._key(entry.target) for entry in one.entries])
            if one.how == how:
                for entry in one.entries:
                    self._earlier[entry.source] = entry, one.is_finished

    def _key(self, name: str) -> str:
        return fold_name(name) if self._folds else name

    def find_done_target(self, source: str, wish: str, status: os.stat_result | None) -> str | None:
        """Return the place where an earlier run put a file."""
        if not self._earlier:
            return None
        entry, is_finished = self._earlier.get(source, (None, False))
        if entry is None or not self._exists(entry.target):
            return None
        if self._how == "move":
            return entry.target if status is None else None
        if status is None or wish != entry.wish or not self._is_of_source(entry, status):
            return None
        return entry.target if is_finished or self._is_done(entry) else None

    def _is_done(self, entry: SortEntry) -> bool:
        """Return whether a stopped run came this far: the file may belong to another program."""
        assert self._tree is not None
        return is_in_place(entry, self._how, self._tree.place(entry.target))

    def _is_of_source(self, entry: SortEntry, status: os.stat_result) -> bool:
        """Return whether the source is the file that was sorted, and not another one of the same name."""
        if self._how == "link" or (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime):
            return True
        assert self._tree is not None
        try:
            return is_same_file(Place(entry.source), self._tree.place(entry.target))
        except OSError:  # one of them cannot be read, which the copying will report
            return False

    def choose_target(self, source: str, wish: str) -> str:
        """Return a free name: the name planned for this file, if it is still free."""
        entry, is_finished = self._earlier.get(source, (None, True))
        # If a move was stopped in the middle, the file is in both places, which the next move notices.
        was_stopped = self._how == "move" and not is_finished
        if entry and wish == entry.wish and (was_stopped or not self._exists(entry.target)):
            return entry.target
        above, slash, name = wish.rpartition("/")
        key = self._key(wish)
        number = self._numbers.get(key, 1)
        target = wish
        while number > 1 or key in self._reserved or self._exists(target):
            candidate = above + slash + shorten_name(name, self._longest, number)
            if number > 1 and self._key(candidate) not in self._reserved and not self._exists(candidate):
                target = candidate
                break
            number += 1
        self._numbers[key] = number + 1
        self._reserved.add(self._key(target))
        return target

    def _exists(self, target: str) -> bool:
        above, _, name = target.rpartition("/")
        return self._key(name) in (self._names_below(above) or ())

    def _names_below(self, below: str) -> dict[str, str] | None:
        """Return the names in a folder by their keys; None if it does not exist."""
        if below not in self._folders:
            names = self._tree.names(below) if self._tree else None
            self._folders[below] = None if names is None else {self._key(name): name for name in names}
        return self._folders[below]

    def refuse_merged(self, wishes: Sequence[str], folder: Path) -> None:
        """Refuse two folders that would be one, because the files of two classes would be mixed."""
        if not self._folds:
            return
        # Some file systems list names in another case than they were given.
        ours = {above for target in self._targets for above in _folders_of(target)}
        planned = {fold_name(below): below for below in ours if self._names_below(below) is not None}
        for below in dict.fromkeys(above for wish in wishes for above in _folders_of(wish)):
            other = planned.setdefault(fold_name(below), below)
            above, slash, name = below.rpartition("/")
            there = (self._names_below(above) or {}).get(fold_name(name), name)
            if other == below and below not in ours and class_key(there) != class_key(name):
                other = above + slash + there
            if other != below:
                # As ASCII, because two Unicode forms of one name look the same.
                raise OutputError(
                    f"{folder}: the folders {other!a} and {below!a} differ only in case or Unicode form, and "
                    "would be one folder on this or another system; rename a class or the folder, or use "
                    "another --template"
                )

    def missing_folders(self, entries: Sequence[tuple[int, SortEntry]]) -> list[str]:
        """Return the folders to make, parents first."""
        missing: dict[str, None] = {}
        for above in dict.fromkeys(entry.target.rpartition("/")[0] for _, entry in entries):
            for below in _folders_of(f"{above}/"):
                if self._names_below(below) is None:
                    missing[below] = None
        return list(missing)


def _folders_of(target: str) -> list[str]:
    """Return all folders above a target, parents first."""
    parts = target.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1) if parts[0]]


@dataclass
class SortReport(OutcomeReport):
    folders: Counter[str] = field(default_factory=Counter)  # files by folder, of those put in place
    list: Path | None = None  # None if there was nothing to do
    mixed: int = 0  # images with boxes of several labels


def perform(
    entries: Sequence[tuple[int, SortEntry]],
    continued: SortList,
    tree: Tree,
    report: SortReport,
    progress: Progress,
) -> None:
    """Write the undo file, then put the files of these rows of the report in their places."""
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
        if number % REPORTED_EVERY == 0 or number == len(entries):
            progress("sorting", number, len(entries))
    if not continued.is_finished:
        continued.finish(failed)


def _put(entry: SortEntry, how: str, target: Place, part: Place) -> None:
    if how != "move":
        put_new(entry.source, target, part, how)
        return
    source = Place(entry.source)
    try:
        move_new(source, target, part)
    except FileExistsError:
        # An earlier run may have stopped when the file had both names, or was copied but not yet removed.
        if not is_same_file(source, target):
            raise
        source.remove()
