"""The samples of a gallery by their names and contents, and what changed between two tables of them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from crnr_cli.errors import DataError
from crnr_cli.gallery.columns import SampleTable

Content = tuple[str, str]  # a sample's class and hash


@dataclass(frozen=True)
class Changes:
    """Names of samples, by what happened to them."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # in content or class
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0  # only counted


def contents_of(table: SampleTable) -> Iterator[Content]:
    """Return what makes two samples of one name the same."""
    return zip(table.labels, table.hashes, strict=True)


def rows_by_name(table: SampleTable) -> dict[str, int]:
    """Return the first row of each name. Two different samples of one name are refused: one would be lost."""
    found: dict[str, int] = {}
    again = [(found[name], row) for row, name in enumerate(table.names) if found.setdefault(name, row) != row]
    first, second = ([pair[side] for pair in again] for side in (0, 1))
    if different := _differing(table, first, table, second):
        raise DataError(
            f"two different samples are called {different[0]}; give them different names, or build "
            "the gallery again from all its sources"
        )
    return found


def changed_names(
    before: SampleTable, rows: dict[str, int], after: SampleTable, new_rows: dict[str, int]
) -> list[str]:
    """Return the names that are in both tables, for samples that differ. The rows are by name."""
    both = [name for name in new_rows if name in rows]
    return _differing(before, [rows[name] for name in both], after, [new_rows[name] for name in both])


def _differing(before: SampleTable, rows: list[int], after: SampleTable, new_rows: list[int]) -> list[str]:
    """Return the names of the samples that differ, of pairs of rows."""
    old, new = before.take(rows), after.take(new_rows)
    pairs = zip(new.names, contents_of(old), contents_of(new), strict=True)
    return [name for name, content, new_content in pairs if content != new_content]


def names_by_content(table: SampleTable, wanted: Container[Content]) -> dict[Content, str]:
    """Return the name of the last sample of each content that is wanted."""
    pairs = zip(contents_of(table), table.names, strict=True)
    return {content: name for content, name in pairs if content in wanted}


def compare_tables(old: SampleTable, new: SampleTable) -> Changes:
    """Return what changed. Of samples of the same name, the last one counts."""
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
