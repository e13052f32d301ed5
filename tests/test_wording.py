"""Plurals and lists of names, and that every message uses them."""

from __future__ import annotations

import ast
import re

import pytest

from crnr_cli.wording import format_count, has_or_have, is_or_are, not_one_of
from helpers.modules import Module, refuse_where


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("sample", ["0 samples", "1 sample", "2 samples"]),
        ("class", ["0 classes", "1 class", "2 classes"]),
        ("query", ["0 queries", "1 query", "2 queries"]),
        ("system file", ["0 system files", "1 system file", "2 system files"]),
        ("more class", ["0 more classes", "1 more class", "2 more classes"]),
    ],
)
def test_format_count_uses_the_plural(noun: str, expected: list[str]) -> None:
    assert [format_count(n, noun) for n in range(3)] == expected


def test_verbs_agree_with_the_count() -> None:
    assert [is_or_are(n) for n in range(3)] == ["are", "is", "are"]
    assert [has_or_have(n) for n in range(3)] == ["have", "has", "have"]


def test_not_one_of_suggests_a_similar_name() -> None:
    assert not_one_of("x", ["aa", "bb"]) == "'x' is not one of aa, bb"
    assert not_one_of("NRC", ["crnr", "nrc"]) == "'NRC' is not one of crnr, nrc; did you mean nrc?"
    assert not_one_of("", ["a"]) == "'' is not one of a"


NOUNS = (
    "samples|classes|inputs|queries|rows|columns|files|folders|features|settings|iterations|workers|labels|"
    "numbers|folds|answers|predictions|fields|components|outputs|methods|images|values|mistakes|cores|bytes"
)
COUNTED = re.compile(rf" (?:\w+ )?(?:{NOUNS})\b")


def test_no_message_counts_by_itself() -> None:
    """`{n} samples` would say "1 samples"; `format_count(n, "sample")` does not."""
    refuse_where(_counting_texts)


def _counting_texts(module: Module) -> list[tuple[int, str]]:
    found = []
    for node in module.nodes:
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, node.values[1:], strict=False):
            if not (isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)):
                continue
            if COUNTED.match(str(after.value)) and _may_be_a_count(value):
                found.append((node.lineno, ast.unparse(node)))
    return found


def _may_be_a_count(value: ast.FormattedValue) -> bool:
    """Return whether a value may be a count: lists of names are not, and constants are large."""
    text = ast.unparse(value.value)
    return not text.isupper() and "format_count" not in text and "join" not in text
