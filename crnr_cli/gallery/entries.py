"""The entries of a gallery, and their selection by name."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.gallery.gallery import FittedGallery, SampleTable
from crnr_cli.records import dataclass
from crnr_cli.sources.base import Source
from crnr_cli.system.names import Spellings, class_key, path_key, to_nfc, with_slashes
from crnr_cli.wording import Note, format_count

Content = tuple[str, str]  # a sample's class and hash
What = Literal["class", "sample"]
_MAX_NAMES = 10  # listed in an error
_NEAREST = 3  # suggestions for an unknown name
_WILD = re.compile(r"(\*+|\?|\[[!^]?\]?[^\]]*\])")


@dataclass(frozen=True)
class Changes:
    """Names of samples by kind of change."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # in content or class
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0  # only counted


def contents_of(table: SampleTable) -> Iterator[Content]:
    """Yield the class and hash of each sample: samples of one name are the same if both are."""
    return zip(table.labels, table.hashes, strict=True)


def rows_by_name(table: SampleTable) -> dict[str, int]:
    """Return the first row of each name; raise an error if two different samples share a name."""
    found: dict[str, int] = {}
    again = [(found[name], row) for row, name in enumerate(table.names) if found.setdefault(name, row) != row]
    first, second = ([pair[side] for pair in again] for side in (0, 1))
    if different := _find_differences(table, first, table, second):
        raise DataError(
            f"two different examples are called {different[0]}; give them different names, or build "
            "the gallery again from all its sources"
        )
    return found


def changed_names(
    before: SampleTable, rows: dict[str, int], after: SampleTable, new_rows: dict[str, int]
) -> list[str]:
    """Return the names in both tables whose samples differ. The rows are by name."""
    both = [name for name in new_rows if name in rows]
    return _find_differences(before, [rows[name] for name in both], after, [new_rows[name] for name in both])


def _find_differences(
    before: SampleTable, rows: list[int], after: SampleTable, new_rows: list[int]
) -> list[str]:
    """Return the names of the samples that differ, of pairs of rows."""
    old, new = before.take(rows), after.take(new_rows)
    pairs = zip(new.names, contents_of(old), contents_of(new), strict=True)
    return [name for name, content, new_content in pairs if content != new_content]


def names_by_content(table: SampleTable, wanted: Container[Content]) -> dict[Content, str]:
    """Return the name of the last sample of each wanted content."""
    pairs = zip(contents_of(table), table.names, strict=True)
    return {content: name for content, name in pairs if content in wanted}


def compare_tables(old: SampleTable, new: SampleTable) -> Changes:
    """Return the changes. Of samples with the same name, the last one counts."""
    before = {name: row for row, name in enumerate(old.names)}
    after = {name: row for row, name in enumerate(new.names)}
    changed = changed_names(old, before, new, after)
    added = [name for name in after if name not in before]
    return Changes(
        added=added,
        changed=changed,
        removed=[name for name in before if name not in after],
        unchanged=len(after) - len(added) - len(changed),
    )


def refuse_unknown_folders(path: Path, source: Source, names: Sequence[str], classes: Iterable[str]) -> None:
    """Raise an error if a named folder, or the folder of a named image, gives no class of the gallery.

    A new class needs a folder of class folders, or its name: the folder of a few images may be any folder.
    """
    if folder := source.folder_of_no_class():
        raise DataError(
            f"{folder}: contains files but no class folders, and is not named after a class of "
            f"{path}; name the class of its images with --class NAME"
        )
    if source.kind != "pictures" or source.is_labelled:
        return
    known, listed = Spellings(classes), set(source.names())
    for name in map(with_slashes, names):
        if name in listed and known.find(PurePosixPath(name).parent.name) is None:
            raise DataError(
                f"{name}: its folder is not named after a class of {path}; name the class with --class NAME"
            )


@dataclass(frozen=True)
class Unwanted:
    """The selection to remove: classes and samples by name or pattern, and samples by name alone."""

    classes: Sequence[str] = ()
    samples: Sequence[str] = ()
    exact: Sequence[str] = ()

    def find_in(self, path: Path, gallery: FittedGallery) -> tuple[Array, list[Note]]:
        """Return a mask of the samples to remove, and notes on how many match each pattern."""
        classes, of_classes = select_names(path, "class", self.classes, gallery.classes)
        names = sample_names(gallery.names, gallery.recipe.kind)
        samples, of_samples = select_names(path, "sample", self.samples, gallery.names, names)
        for name in self.exact:
            if (found := names.find(with_slashes(name))) is None:
                raise DataError(f"{path}: has no example {name}; {hint(name, gallery.names)}")
            samples.add(found)
        columns = zip(gallery.names, gallery.table.labels, strict=True)
        is_unwanted = np.array([label in classes or name in samples for name, label in columns])
        if is_unwanted.all():
            raise DataError(f"{path}: no examples would remain; delete the file instead")
        return is_unwanted, of_classes + of_samples


def sample_names(known: Iterable[str], kind: str) -> Spellings:
    """Return the names of samples, found by any spelling: names of images are paths."""
    return Spellings(known, path_key if kind == "pictures" else class_key)


def select_names(
    path: Path, what: What, wanted: Sequence[str], known: Sequence[str], names: Spellings | None = None
) -> tuple[set[str], list[Note]]:
    """Return the names among `known` that are wanted, and how many each pattern matches.

    An existing name always matches literally, even if it looks like a pattern.
    """
    names = names or Spellings(known)
    found: set[str] = set()
    notes = []
    noun = "example" if what == "sample" else what
    for text in wanted:
        stored = with_slashes(text) if what == "sample" else text
        if (name := names.find(stored)) is not None:
            found.add(name)
            continue
        if not _WILD.search(text):
            raise DataError(f"{path}: has no {noun} {text}; {hint(stored, known)}")
        pattern = _pattern(to_nfc(stored), what)
        matching = {name for name in names.known if pattern.fullmatch(to_nfc(name))}
        if not matching:
            raise DataError(f"{path}: no {noun} matches {text}; {_pattern_hint(stored, known)}")
        notes.append(Note("pattern", f"{text} matches {format_count(len(matching), noun)}"))
        found |= matching
    return found, notes


def _pattern(text: str, what: What) -> re.Pattern[str]:
    """Return a pattern as in a shell: in samples, * and ? stay within one folder, but ** does not."""
    one = "." if what == "class" else "[^/]"
    parts = []
    for part in _WILD.split(text):
        if part.startswith("*"):
            parts.append(f"{one}*" if len(part) == 1 else ".*")
        elif part == "?":
            parts.append(one)
        elif _WILD.fullmatch(part):
            parts.append("(?!/)" * (what == "sample"))
            parts.append(re.sub(r"\\[zZ]$", "", fnmatch.translate(part.replace("[^", "[!", 1))))
        else:
            parts.append(re.escape(part))
    return re.compile("".join(parts), re.DOTALL)


def _pattern_hint(text: str, known: Sequence[str]) -> str:
    deep = re.sub(r"\*+", "**", text)
    if deep != text and (count := sum(map(bool, map(_pattern(deep, "sample").fullmatch, known)))):
        return f"* ends at a slash, and {deep} matches {count}"
    return hint(text, known)


def hint(name: str, known: Sequence[str]) -> str:
    """Suggest the names that end like this one, all names if they are few, or similar names."""
    if ending := [other for other in known if other.endswith(f"/{name}")]:
        more = ", ..." if len(ending) > _MAX_NAMES else ""
        return f"give the full name: {', '.join(ending[:_MAX_NAMES])}{more}"
    if len(known) > _MAX_NAMES and (near := get_close_matches(name, known, _NEAREST)):
        return f"the closest are {', '.join(near)}"
    return f"there are {', '.join(known[:_MAX_NAMES])}" + (", ..." if len(known) > _MAX_NAMES else "")
