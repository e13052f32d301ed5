"""Which name each sorted file gets: none that is taken, and the same one when the run is repeated."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from crnr_cli.errors import OutputError
from crnr_cli.results.sort_list import Entry, SortList, is_in_place
from crnr_cli.results.sort_names import fitted
from crnr_cli.system.names import class_key, folded
from crnr_cli.system.placing import LONGEST_NAME, Tree, longest_name


class Names:
    """The names in the folder: which are taken, and which files got theirs from an earlier run.

    With `folds`, names that differ only in case or Unicode form are the same one.
    """

    def __init__(self, earlier: Sequence[SortList], how: str, tree: Tree | None, *, folds: bool) -> None:
        self._tree, self._how, self._folds = tree, how, folds
        self._longest = longest_name(tree.path) if tree else LONGEST_NAME
        self._folders: dict[str, dict[str, str] | None] = {}
        self._reserved: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._earlier: dict[str, tuple[Entry, bool]] = {}  # by source, and whether its run was finished
        self._targets = {entry.target for one in earlier for entry in one.entries} if folds else set()
        for one in earlier:
            self._reserved.update([self._key(entry.target) for entry in one.entries])
            if one.how == how:
                for entry in one.entries:
                    self._earlier[entry.source] = entry, one.is_finished

    def _key(self, name: str) -> str:
        return folded(name) if self._folds else name

    def done(self, source: str, wish: str, status: os.stat_result | None) -> str | None:
        """The place of a file that an earlier run has put there."""
        if not self._earlier:
            return None
        entry, is_finished = self._earlier.get(source, (None, False))
        if entry is None or not self._exists(entry.target):
            return None
        if self._how == "move":
            return entry.target if status is None else None
        if status is None or wish != entry.wish:
            return None
        return entry.target if is_finished or self._is_done(entry) else None

    def _is_done(self, entry: Entry) -> bool:
        """Whether a run that was stopped came this far: the file may be somebody else's."""
        assert self._tree is not None
        return is_in_place(entry, self._how, self._tree.place(entry.target))

    def new(self, source: str, wish: str) -> str:
        """A name that is not taken; the one that was planned for this file, if it is still free."""
        entry, is_finished = self._earlier.get(source, (None, True))
        # If a move was stopped in the middle, the file is in both places, which is seen when it is moved.
        was_stopped = self._how == "move" and not is_finished
        if entry and wish == entry.wish and (was_stopped or not self._exists(entry.target)):
            return entry.target
        above, slash, name = wish.rpartition("/")
        key = self._key(wish)
        number = self._numbers.get(key, 1)
        target = wish
        while number > 1 or key in self._reserved or self._exists(target):
            candidate = above + slash + fitted(name, self._longest, number)
            if number > 1 and self._key(candidate) not in self._reserved and not self._exists(candidate):
                target = candidate
                break
            number += 1
        self._numbers[key] = number + 1
        self._reserved.add(self._key(target))
        return target

    def _exists(self, target: str) -> bool:
        above, _, name = target.rpartition("/")
        return self._key(name) in (self._listed(above) or ())

    def _listed(self, below: str) -> dict[str, str] | None:
        """The names in a folder by their keys; None if it does not exist."""
        if below not in self._folders:
            names = self._tree.names(below) if self._tree else None
            self._folders[below] = None if names is None else {self._key(name): name for name in names}
        return self._folders[below]

    def refuse_merged(self, wishes: Sequence[str], folder: Path) -> None:
        """Refuse two folders that would be one, as the files of two classes would be mixed."""
        if not self._folds:
            return
        # Some file systems list names in another case than they were given.
        ours = {above for target in self._targets for above in _folders_of(target)}
        planned = {folded(below): below for below in ours if self._listed(below) is not None}
        for below in dict.fromkeys(above for wish in wishes for above in _folders_of(wish)):
            other = planned.setdefault(folded(below), below)
            above, slash, name = below.rpartition("/")
            there = (self._listed(above) or {}).get(folded(name), name)
            if other == below and below not in ours and class_key(there) != class_key(name):
                other = above + slash + there
            if other != below:
                # As ASCII, because two Unicode forms of one name look the same.
                raise OutputError(
                    f"{folder}: the folders {other!a} and {below!a} differ only in case or Unicode form, and "
                    "would be one folder on this or another system; rename a class or the folder, or use "
                    "another --template"
                )

    def missing_folders(self, entries: Sequence[tuple[int, Entry]]) -> list[str]:
        """Folders that have to be made, those above before those below."""
        missing: dict[str, None] = {}
        for above in dict.fromkeys(entry.target.rpartition("/")[0] for _, entry in entries):
            for below in _folders_of(f"{above}/"):
                if self._listed(below) is None:
                    missing[below] = None
        return list(missing)


def _folders_of(target: str) -> list[str]:
    """All folders that a target is in, those above before those below."""
    parts = target.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1) if parts[0]]
