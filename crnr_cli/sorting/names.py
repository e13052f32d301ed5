"""The names of sorted files: a template with fields, names valid on any file system, and numbers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from string import Formatter

from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass
from crnr_cli.results.decision import OK, UNKNOWN, Prediction
from crnr_cli.system.names import percent_escape, to_portable, with_slashes
from crnr_cli.wording import not_one_of

DEFAULT_TEMPLATE = "{label}/{name}"

# Folders that never belong to a class: a class whose name begins with _ is escaped.
REJECTED, FAILED, DOUBTFUL, NONE = "_unknown", "_failed", "_doubtful", "_none"
_OWN = ".crnr-"  # prefix of our own files
_LONGEST_SUFFIX = 32  # bytes; longer endings are not suffixes
_DIGITS = 16  # of the hash in a shortened name

# Characters that a name cannot have, or that would change the screen: /, control characters, line ends, bytes
# that are not UTF-8. A % is escaped where it would look like an escape.
_UNSAFE = re.compile(r"[/\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|%(?=[0-9A-Fa-f]{2})|^[._]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@lru_cache(maxsize=100_000)
def escape_class_name(name: str) -> str:
    """Return the folder name for a class; `urllib.parse.unquote` restores the class."""
    return _UNSAFE.sub(lambda found: percent_escape(found[0]), name) if name else NONE


def _name(path: str) -> str:
    return with_slashes(path).rpartition("/")[2]


def _split_suffix(path: str) -> tuple[str, str]:
    """Return the name of a file without its suffix, and its suffix."""
    stem, suffix = os.path.splitext(_name(path))  # noqa: PTH122, a path may be no path at all
    if len(os.fsencode(suffix)) > _LONGEST_SUFFIX:
        return stem + suffix, ""
    return stem, suffix


def folder_of(row: Prediction) -> str:
    """Return the folder of the label; an input without a class has a folder of its own."""
    if row.label is None:
        return FAILED
    return REJECTED if row.label == UNKNOWN else escape_class_name(row.label)


# The fields of a template, and their values.
FIELDS: dict[str, Callable[[Prediction], str]] = {
    "label": folder_of,
    "truth": lambda row: escape_class_name(row.truth or ""),
    "runner_up": lambda row: escape_class_name(row.runner_up or ""),
    "status": lambda row: escape_class_name(row.status or OK),
    "name": lambda row: _name(row.path),
    "stem": lambda row: _split_suffix(row.path)[0],
    "suffix": lambda row: _split_suffix(row.path)[1],
}


@dataclass(frozen=True)
class Template:
    """The path of a sorted file, such as {label}/{truth}-{name}; an error if it leaves the folder."""

    text: str = DEFAULT_TEMPLATE
    longest: int = 255  # bytes of a name
    is_portable: bool = False  # names that are valid on Windows too

    def __post_init__(self) -> None:
        try:
            parsed = list(Formatter().parse(self.text))
        except ValueError as e:
            raise UsageError(f"--template {self.text!r}: {e}") from e
        for literal, field, form, conversion in parsed:
            if field is not None and (form or conversion):
                raise UsageError(f"--template {self.text!r}: a field is just a name, such as {{label}}")
            if field is not None and field not in FIELDS:
                raise UsageError(f"--template {self.text!r}: {not_one_of(field, FIELDS)}")
            if _CONTROL.search(literal):
                raise UsageError(f"--template {self.text!r}: a control character cannot be part of a name")
        if any(part in ("", ".", "..") for part in self.text.split("/")):
            raise UsageError(
                f"--template {self.text!r}: give names separated by single slashes, without . and .., "
                "as files are only put below the folder"
            )
        if not any(field for _, field, _, _ in parsed):
            raise UsageError(
                f"--template {self.text!r}: has no field, such as {{name}}, so that all files would have "
                "one name"
            )

    @cached_property
    def _parts(self) -> list[list[tuple[str, Callable[[Prediction], str] | None]]]:
        """Texts by path component, each with the field that follows it."""
        parts: list[list[tuple[str, Callable[[Prediction], str] | None]]] = [[]]
        for literal, field, _, _ in Formatter().parse(self.text):
            *before, last = literal.split("/")
            for text in before:
                parts[-1].append((text, None))
                parts.append([])
            parts[-1].append((last, FIELDS[field] if field else None))
        return parts

    def target(self, row: Prediction, special: str | None = None) -> str:
        """Return the name below the folder; `special` is a folder that replaces the label."""
        *folders, name = self._parts
        key = (row.label, row.truth, row.runner_up, row.status, special)
        above = self._above.get(key) if self._is_shared else None
        if above is None:
            above = "".join([self._component(part, row, special) + "/" for part in folders])
            if self._is_shared:
                self._above[key] = above
        return above + self._component(name, row, special)

    @cached_property
    def _is_shared(self) -> bool:
        """Whether all files with the same answer go to the same folder."""
        own = [FIELDS[name] for name in ("name", "stem", "suffix")]
        return not any(get in own for part in self._parts[:-1] for _, get in part)

    @cached_property
    def _above(self) -> dict[tuple[str | None, ...], str]:
        """The folders found so far, by answer."""
        return {}

    def _component(
        self,
        part: list[tuple[str, Callable[[Prediction], str] | None]],
        row: Prediction,
        special: str | None,
    ) -> str:
        name = "".join(
            [
                text + (special if special and get is folder_of else get(row) if get else "")
                for text, get in part
            ]
        )
        name = _make_harmless(name)
        return shorten_name(to_portable(name) if self.is_portable else name, self.longest)


def _make_harmless(name: str) -> str:
    """Return the file's own name, unless it would have another meaning in the folder."""
    if name in ("", ".", ".."):
        return name.replace(".", "%2E") or NONE
    return "%2E" + name[1:] if name.startswith(_OWN) else name


def shorten_name(name: str, longest: int, number: int = 1) -> str:
    """Return the name with a number above 1; a stem that is too long is cut and ends with its hash."""
    if number == 1 and len(name) * 4 <= longest:
        return name
    stem, suffix = _split_suffix(name)
    ending = f" ({number}){suffix}" if number > 1 else suffix
    room = longest - len(os.fsencode(ending))
    data = os.fsencode(stem)
    if len(data) > room:
        digest = hashlib.sha256(data).hexdigest()[:_DIGITS]
        stem = data[: max(0, room - _DIGITS - 1)].decode("utf-8", "ignore") + "~" + digest
    return stem + ending
