"""How pages and tables show names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from crnr_cli.wording import format_count, is_or_are

if TYPE_CHECKING:
    from crnr_cli.jobs.explain import PartAnswer

# Control characters and two invalid ones: XML cannot contain them, so they are shown as escapes.
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF)}


def printable(name: str) -> str:
    """Return a name as displayable text, with escapes for bytes that are not UTF-8 and control characters."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").translate(_ESCAPES)


def common_folder(paths: Iterable[str]) -> str:
    """Return the folder that contains all paths, with a slash at its end; empty if it is the root."""
    try:
        shared = posixpath.commonpath({posixpath.dirname(path) for path in paths})
    except ValueError:  # no paths, or some absolute and some not
        return ""
    return f"{shared}/" if shared.strip("/") else ""


def describe_place(part: PartAnswer) -> str:
    return part.name or f"row {part.row}, column {part.column}"


def describe_tally(parts: Sequence[PartAnswer], label: str) -> str:
    """Return how many tiles of a query support its label, and how many contradict it."""
    supporting, against = sum(part.margin > 0 for part in parts), sum(part.is_against for part in parts)
    undecided = len(parts) - supporting - against
    rest = f", {undecided} {is_or_are(undecided)} undecided" if undecided else ""
    support = "supports" if supporting == 1 else "support"
    contradict = "contradicts" if against == 1 else "contradict"
    tiles = format_count(len(parts), "tile")
    return f"{supporting} of {tiles} {support} {label}, {against} {contradict} it{rest}"
