"""Find the columns of a table that hold labels, names and numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crnr_cli.errors import DataError
from crnr_cli.wording import format_count

_LABEL_NAMES = ("label", "labels", "class", "target")
_PATH_NAMES = ("path", "paths")
_SHOWN = 30  # names in a message


@dataclass
class Columns:
    path: Path
    names: Sequence[str]
    texts: dict[str, int] = field(default_factory=dict)  # columns that are not numbers, by the dataset's name
    ignored: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def assign(self, wanted: Collection[str], text_columns: Callable[[], Sequence[int]]) -> None:
        """Find the labels and paths among the columns, some of which are text.

        The labels are the `wanted` column, if one has another name than `labels`.
        """
        own = {*wanted} - {"features", "labels", "paths"}
        for name in sorted(own):
            if name not in self.names:
                raise DataError(f"{self.path}: no column {name}; found {self._first_names()}")
            self.texts[name] = self._only(name)
        for name in _PATH_NAMES:
            if name in self.names and name not in self.texts:
                self.texts["paths"] = self._only(name)
        taken = {*self.texts.values(), *self.ignored}
        named = [i for i, name in enumerate(self.names) if name.strip().lower() in _LABEL_NAMES]
        found = [i for i in named if i not in taken]
        if "labels" not in wanted:
            self.ignored |= {*found}
            for i in found:
                self.notes.append(
                    f"{self.path}: column {self.names[i]} is left out, because it may be labels too"
                )
            return
        if not found:
            found = [i for i in text_columns() if i not in taken]
            if len(found) == 1:
                name = self.names[found[0]]
                self.notes.append(
                    f"{self.path}: using the labels in column {name}, because it is not numeric"
                )
        if len(found) > 1:
            names = " and ".join(self.names[i] for i in found[:_SHOWN])
            raise DataError(
                f"{self.path}: the columns {names} could each be the labels; choose one with --labels-key, "
                "and remove columns that are neither numbers nor labels"
            )
        if found:
            self.texts["labels"] = found[0]

    def ignore(self, column: int) -> None:
        self.ignored.add(column)
        self.notes.append(
            f"{self.path}: the {_ordinal(column)} column is left out, because it numbers the rows"
        )

    def numbers(self) -> list[int]:
        """Return the columns of numbers; an error without any."""
        others = {*self.texts.values()} | self.ignored
        found = [i for i in range(len(self.names)) if i not in others]
        if not found:
            raise DataError(
                f"{self.path}: has no columns of numbers; a table with the labels of images is given "
                "with --labels"
            )
        return found

    def refuse_predictions(self) -> None:
        if {"truth", "label"} <= {*self.names}:
            raise DataError(
                f"{self.path}: contains predictions of `crnr classify` and no features; give it to "
                "evaluate or sort"
            )

    def _only(self, name: str) -> int:
        count = list(self.names).count(name)
        if count > 1:
            raise DataError(f"{self.path}: {format_count(count, 'column')} are called {name}; rename them")
        return list(self.names).index(name)

    def _first_names(self) -> str:
        return ", ".join(self.names[:_SHOWN]) + (", ..." if len(self.names) > _SHOWN else "")


def _ordinal(column: int) -> str:
    return "first" if column == 0 else "last"
