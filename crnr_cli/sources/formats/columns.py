"""Find the columns of a table that hold labels, names and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from crnr_cli.errors import DataError, NotANumberError
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count

_LABEL_NAMES = ("label", "labels", "class", "target")
_PATH_NAMES = ("path", "paths")
# Columns of file names, and columns that identify the rows if all values differ; spelled without _ and -.
_FILE_NAMES = {
    *("path", "paths", "filepath", "imagepath", "imgpath", "fullpath"),
    *("file", "files", "filename", "filenames", "imagefile", "imagename"),
}
_NAME = "name"  # may be the name of a class too
_ID_NAMES = {
    *(_NAME, "id", "uid", "uuid", "key", "fileid", "imageid", "sampleid"),
    *("image", "img", "photo", "sample", "url", "uri"),
}
_PATH = re.compile(r".*[/\\].*|.+\.[a-z][a-z0-9]{1,4}", re.DOTALL | re.IGNORECASE)
_SHOWN = 30  # names in a message


@dataclass
class Columns:
    path: Path
    names: Sequence[str]
    texts: dict[str, int] = field(default_factory=dict)  # columns that are not numbers, by the dataset's name
    ignored: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    undecided: list[int] = field(default_factory=list)  # names or labels: their values decide
    _needs_labels: bool = False
    _other_texts: list[int] = field(default_factory=list)  # that may be the labels, and are not names

    def assign(self, wanted: Collection[str], text_columns: Callable[[], Mapping[int, str | None]]) -> None:
        """Find the labels and paths among the columns; some are text, with their first values if known.

        The labels are the `wanted` column, if one has another name than `labels`. If some columns remain
        `undecided`, call `settle`.
        """
        own = {*wanted} - {"features", "labels", "paths"}
        for name in sorted(own):
            if name not in self.names:
                raise DataError(f"{self.path}: no column {name}; found {self._first_names()}")
            self.texts[name] = self._only(name)
        for name in _PATH_NAMES:
            if name in self.names and name not in self.texts:
                self.texts["paths"] = self._only(name)
        self._assign_named_labels(wanted)
        taken = {*self.texts.values(), *self.ignored}
        found = {i: first for i, first in text_columns().items() if i not in taken}
        self._set_aside([i for i in found if _to_key(self.names[i]) in _FILE_NAMES])
        for i, first in found.items():
            key = _to_key(self.names[i])
            if key not in _FILE_NAMES:
                is_open = first is None or key in _ID_NAMES or _PATH.fullmatch(first)
                (self.undecided if is_open else self._other_texts).append(i)
        if len(self._other_texts) > 1 or not self.undecided:
            self._assign_text_labels(self._other_texts)
        elif self._needs_labels:
            self.undecided += self._other_texts

    def _assign_named_labels(self, wanted: Collection[str]) -> None:
        """Find the labels by the name of their column."""
        taken = {*self.texts.values(), *self.ignored}
        named = [i for i, name in enumerate(self.names) if name.strip().lower() in _LABEL_NAMES]
        found = [i for i in named if i not in taken]
        if "labels" not in wanted:
            for i in found:
                self._leave_out(i, "it may be labels too")
            return
        self._needs_labels = not found
        if found:
            self.texts["labels"] = self._only_labels(found)

    def settle(self, values: Mapping[int, Sequence[object]]) -> None:
        """Decide by their values which of the undecided columns are names, and which one is the labels."""
        possible = [i for i in self.undecided if i not in self._other_texts]
        files = [i for i in possible if _are_file_names(values[i])]
        ids = [i for i in possible if i not in files and _are_ids(self.names[i], values[i])]
        is_only = self._needs_labels and len(self.undecided) == 1
        if is_only and ids and _to_key(self.names[ids[0]]) == _NAME:
            ids = []  # without any other labels, these may be the names of classes
        self._set_aside(files)
        for i in ids:
            self._leave_out(i, "it identifies the rows")
        others = [i for i in self.undecided if i not in (*files, *ids)]
        if others and not self._needs_labels:
            raise DataError(
                f"{self.path}: column {self.names[others[0]]} is not numeric; choose it with --labels-key "
                "if it contains the labels, else remove it"
            )
        self._assign_text_labels(sorted(others))

    def _assign_text_labels(self, found: Sequence[int]) -> None:
        """Take the only column of text as the labels, unless they were found by name."""
        if found and self._needs_labels:
            self.texts["labels"] = self._only_labels(found)
            name = self.names[found[0]]
            self.notes.append(f"{self.path}: using the labels in column {name}, because it is not numeric")

    def _only_labels(self, found: Sequence[int]) -> int:
        if len(found) > 1:
            names = " and ".join(self.names[i] for i in found[:_SHOWN])
            raise DataError(
                f"{self.path}: the columns {names} could each be the labels; choose one with --labels-key, "
                "and remove columns that are neither numbers nor labels"
            )
        return found[0]

    def _set_aside(self, columns: Sequence[int]) -> None:
        """Take the first column of names as the names, and leave out the others."""
        for i in columns:
            if "paths" not in self.texts:
                self.texts["paths"] = i
                self.notes.append(f"{self.path}: using the names in column {self.names[i]}")
            else:
                self._leave_out(i, "it has names too")

    def _leave_out(self, column: int, why: str) -> None:
        self.ignored.add(column)
        self.notes.append(f"{self.path}: column {self.names[column]} is left out, because {why}")

    def ignore(self, column: int) -> None:
        self.ignored.add(column)
        self.notes.append(
            f"{self.path}: the {_ordinal(column)} column is left out, because it numbers the rows"
        )

    def numbers(self) -> list[int]:
        """Return the columns of numbers; an error without any."""
        others = {*self.texts.values(), *self.undecided} | self.ignored
        found = [i for i in range(len(self.names)) if i not in others]
        if not found:
            raise NotANumberError(
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


def _are_file_names(values: Sequence[object]) -> bool:
    return _differ(values) and all(isinstance(value, str) and _PATH.fullmatch(value) for value in values)


def _are_ids(column: str, values: Sequence[object]) -> bool:
    return _to_key(column) in _ID_NAMES and _differ(values)


def _differ(values: Sequence[object]) -> bool:
    return len(set(values)) == len(values) and None not in values


def find_names(
    texts: Sequence[str], numbers: Sequence[str], values_of: Callable[[str], Sequence[object]]
) -> tuple[list[str], list[str]]:
    """Return the columns that hold file names, the best first, and the columns that number the rows.

    File names are the names of the rows. Other names may be the same in another file.
    """
    files = [name for name in texts if _to_key(name) in _FILE_NAMES and None not in values_of(name)]
    others = [name for name in texts if _to_key(name) not in {*_FILE_NAMES, *_LABEL_NAMES}]
    files += [name for name in others if _are_file_names(values_of(name))]
    ids = [name for name in (*others, *numbers) if name not in files and _to_key(name) in _ID_NAMES]
    ids = [name for name in ids if _differ(values_of(name))]
    if not {*texts, *numbers} - {*files, *ids}:  # without any other labels, as in `Columns.settle`
        ids = [name for name in ids if _to_key(name) != _NAME]
    return sorted(files, key=lambda name: name not in _PATH_NAMES), ids


def _to_key(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def _ordinal(column: int) -> str:
    return "first" if column == 0 else "last"
