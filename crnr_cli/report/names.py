"""How pages and tables show names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from crnr_cli.wording import format_count, has_or_have, is_or_are

if TYPE_CHECKING:
    from crnr_cli.jobs.explain import Confidence, PartAnswer

_MOST_IN_SET = 12  # labels of a set that are listed

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


def describe_doubt(confidence: Confidence | None) -> str | None:
    """Return why --reject 0.05 rejects a query; None if it does not, or without a calibration."""
    if confidence is None or not confidence.is_rejected:
        return None
    figures = f"{confidence.separation:.4f}", f"{confidence.min_separation:.4f}"
    if figures[0] == figures[1]:
        figures = f"{confidence.separation:.9f}", f"{confidence.min_separation:.9f}"
    return (
        f"no class fits well: the separation {figures[0]} is below {figures[1]}, "
        "so --reject 0.05 labels the query unknown"
    )


def describe_set(confidence: Confidence | None, n_classes: int) -> str | None:
    """Return the plausible labels; None if the gallery holds no probabilities."""
    if confidence is None or confidence.label_set is None:
        return None
    labels = confidence.label_set
    if not confidence.can_exclude:
        few = "too few examples were held out to exclude any"
        return f"95% label set: all {format_count(n_classes, 'class')}, because {few}"
    more = len(labels) - _MOST_IN_SET
    listed = ", ".join(labels[:_MOST_IN_SET]) or "empty, no label is plausible"
    return f"95% label set: {listed}" + (f" and {more} more" if more > 0 else "")


def describe_rest(n_more: int, signed: bool) -> str | None:
    """Return how many classes are not shown; None if all are."""
    if n_more <= 0:
        return None
    rest = "lower scores" if signed else "larger residuals"
    return f"{format_count(n_more, 'more class')} {has_or_have(n_more)} {rest}"
