"""Which name each sorted file gets: none that is taken, and the same one when the run is repeated."""

from __future__ import annotations

import os
from collections.abc import Sequence

from crnr_cli.results.sort_list import Entry, SortList, is_in_place
from crnr_cli.results.sort_names import fitted
from crnr_cli.system.placing import LONGEST_NAME, Tree, longest_name


class Names:
    """The names in the folder: which are taken, and which files got theirs from an earlier run."""

    def __init__(self, earlier: Sequence[SortList], how: str, tree: Tree | None) -> None:
        self._tree, self._how = tree, how
        self._longest = longest_name(tree.path) if tree else LONGEST_NAME
        self._folders: dict[str, set[str] | None] = {}
        self._reserved: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._earlier: dict[str, tuple[Entry, bool]] = {}  # by source, and whether its run was finished
        for one in earlier:
            self._reserved.update([entry.target for entry in one.entries])
            if one.how == how:
                for entry in one.entries:
                    self._earlier[entry.source] = entry, one.is_finished

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
        number = self._numbers.get(wish, 1)
        target = wish
        while number > 1 or target in self._reserved or self._exists(target):
            candidate = above + slash + fitted(name, self._longest, number)
            if number > 1 and candidate not in self._reserved and not self._exists(candidate):
                target = candidate
                break
            number += 1
        self._numbers[wish] = number + 1
        self._reserved.add(target)
        return target

    def _exists(self, target: str) -> bool:
        above, _, name = target.rpartition("/")
        return name in (self._listed(above) or ())

    def _listed(self, below: str) -> set[str] | None:
        if below not in self._folders:
            self._folders[below] = self._tree.names(below) if self._tree else None
        return self._folders[below]

    def missing_folders(self, entries: Sequence[tuple[int, Entry]]) -> list[str]:
        """Folders that have to be made, those above before those below."""
        missing: dict[str, None] = {}
        for above in dict.fromkeys(entry.target.rpartition("/")[0] for _, entry in entries):
            parts = above.split("/") if above else []
            for end in range(1, len(parts) + 1):
                below = "/".join(parts[:end])
                if self._listed(below) is None:
                    missing[below] = None
        return list(missing)
