"""Counts with nouns, notes to the user, and suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

_IRREGULAR = {"class": "classes", "query": "queries"}


class Note(NamedTuple):
    """Something that the user should know. Only the first of many notes of one kind are shown."""

    kind: str
    text: str


def format_count(count: int, noun: str) -> str:
    """Return the count with its noun: "0 samples", "1 sample", "2 samples"; the last word gets the plural."""
    if count == 1:
        return f"1 {noun}"
    *before, last = noun.split(" ")
    return " ".join([str(count), *before, _IRREGULAR.get(last, f"{last}s")])


def is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def has_or_have(count: int) -> str:
    return "has" if count == 1 else "have"


def not_one_of(name: str, known: Iterable[str]) -> str:
    """Return that a name is unknown, with all known names and the most similar one."""
    names = list(known)
    return f"{name!r} is not one of {', '.join(names)}{suggest_similar(name, names)}"


def suggest_similar(name: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """Return "; did you mean X?" with the most similar known name; empty if none is similar."""
    from difflib import get_close_matches  # only for an error: it takes a while to load

    lower = {each.lower(): each for each in reversed(known)}
    near = get_close_matches(name.lower(), list(lower), n=1, cutoff=cutoff)
    return f"; did you mean {lower[near[0]]}?" if near else ""


def kind_in_words(kind: str) -> str:
    """Return the word for a kind of samples in messages. Files and JSON keep "pictures" for images."""
    return "images" if kind == "pictures" else kind
