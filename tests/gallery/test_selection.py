"""Patterns of names, compared with Python and a shell."""

from __future__ import annotations

import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.errors import DataError
from crnr_cli.gallery.entries import (
    Changes,
    changed_names,
    compare_tables,
    hint,
    names_by_content,
    rows_by_name,
    sample_names,
    select_names,
)
from crnr_cli.gallery.gallery import SampleTable

PATH = Path("gallery.h5")
names = st.lists(st.text("ab.*?[]!-", min_size=1, max_size=5), min_size=1, max_size=6, unique=True)
patterns = st.text("ab.*?[]!-", min_size=1, max_size=6).filter(lambda text: "**" not in text)


@given(names, patterns)
def test_class_patterns_match_like_fnmatch(known: list[str], pattern: str) -> None:
    expected = {pattern} if pattern in known else {name for name in known if fnmatchcase(name, pattern)}
    if expected:
        assert select_names(PATH, "class", [pattern], known)[0] == expected
    else:
        with pytest.raises(DataError, match=r"gallery\.h5: (has no class|no class matches)"):
            select_names(PATH, "class", [pattern], known)


paths = st.lists(st.text("ab./", min_size=1, max_size=6), min_size=1, max_size=6, unique=True)


@given(paths, st.text("ab./*?", min_size=1, max_size=6).filter(lambda text: "**" not in text))
def test_sample_patterns_match_folder_by_folder(known: list[str], pattern: str) -> None:
    parts = pattern.split("/")
    expected = {
        name
        for name in known
        if len(own := name.split("/")) == len(parts) and all(map(fnmatchcase, own, parts))
    }
    if expected:
        assert select_names(PATH, "sample", [pattern], known)[0] == expected
    else:
        with pytest.raises(DataError, match=r"gallery\.h5: (has no example|no example matches)"):
            select_names(PATH, "sample", [pattern], known)


@pytest.mark.parametrize(
    "pattern",
    [
        "g/*/1.png",
        "g/a?/*.png",
        "g/a[bc]/*",
        "g/a[!b]/*",
        "g/a[^b]/*",
        "g/**",
        "g/**/1.png",
        "**/2.png",
        "g/*",
    ],
)
def test_sample_patterns_match_like_bash(pattern: str, tmp_path: Path) -> None:
    known = ["g/0.png", "g/ab/1.png", "g/ab/2.png", "g/ac/1.png", "g/ac/2.jpg", "g/deep/ad/1.png"]
    for name in known:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    script = f"shopt -s globstar; for file in {pattern}; do [ -f $file ] && echo $file; done; true"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout
    assert select_names(PATH, "sample", [pattern], known)[0] == set(done.stdout.split())


def test_a_name_that_looks_like_a_pattern_is_a_name() -> None:
    known = ["a[1].png", "a1.png", "*", "b.png"]
    assert select_names(PATH, "sample", ["a[1].png"], known) == ({"a[1].png"}, [])
    assert select_names(PATH, "sample", ["*"], known) == ({"*"}, [])
    found, notes = select_names(PATH, "sample", ["a?.png", "b.png", "?"], known)
    assert found == {"a1.png", "b.png", "*"}
    assert [note.text for note in notes] == ["a?.png matches 1 example", "? matches 1 example"]


def test_a_pattern_that_ends_too_early_suggests_a_longer_one() -> None:
    with pytest.raises(
        DataError, match=r"no example matches a/\*; \* ends at a slash, and a/\*\* matches 2$"
    ):
        select_names(PATH, "sample", ["a/*"], ["a/b/1.png", "a/c/2.png", "d.png"])


def test_hints_name_the_full_names_all_names_or_the_closest() -> None:
    few, many = [f"n{i}" for i in range(10)], [f"name {i}" for i in range(11)]
    assert hint("x", few) == f"there are {', '.join(few)}"
    assert hint("x", many) == f"there are {', '.join(many[:10])}, ..."
    assert hint("name 12", many) == "the closest are name 2, name 1, name 10"
    assert hint("1.png", ["a/1.png", "b/1.png", "c/11.png"]) == "give the full name: a/1.png, b/1.png"
    ending = [f"{i}/x" for i in range(11)]
    assert hint("x", ending[:10]) == f"give the full name: {', '.join(ending[:10])}"
    assert hint("x", ending) == f"give the full name: {', '.join(ending[:10])}, ..."


def test_unknown_names_and_patterns_are_refused_with_hints() -> None:
    for what, noun in (("class", "class"), ("sample", "example")):
        for text, problem in (("x", f"has no {noun} x"), ("x*", f"no {noun} matches x*")):
            with pytest.raises(DataError) as refused:
                select_names(PATH, what, [text], ["a", "b"])  # type: ignore[arg-type]
            assert str(refused.value) == f"gallery.h5: {problem}; there are a, b"


def test_tables_are_compared_by_class_and_content() -> None:
    old = SampleTable(list("abcde"), list("xxxyy"), list("12345"))
    new = SampleTable(list("bcdef"), list("xyyyx"), list("23495"))
    found = compare_tables(old, new)
    assert found == Changes(added=["f"], changed=["c", "e"], removed=["a"], unchanged=2)
    rows = {name: row for row, name in enumerate("bcdef")}
    assert changed_names(old, {"c": 2, "d": 3}, new, rows) == ["c"]
    again = old + SampleTable(["z"], ["x"], ["1"])
    assert names_by_content(again, {("x", "1"), ("y", "4")}) == {("x", "1"): "z", ("y", "4"): "d"}


def test_two_different_examples_of_one_name_are_refused() -> None:
    assert rows_by_name(SampleTable(list("aba"), list("xyx"), list("121"))) == {"a": 0, "b": 1}
    for labels, hashes in (("xyz", "121"), ("xyx", "123")):
        with pytest.raises(DataError) as refused:
            rows_by_name(SampleTable(list("aba"), list(labels), list(hashes)))
        assert str(refused.value) == (
            "two different examples are called a; give them different names, or build the gallery again from "
            "all its sources"
        )


def test_a_star_in_a_class_is_not_stopped_by_a_slash() -> None:
    """A label is no path."""
    known = ["a/b", "ab", "b"]
    assert select_names(PATH, "class", ["a*"], known)[0] == {"a/b", "ab"}
    assert select_names(PATH, "class", ["a?b"], known)[0] == {"a/b"}
    assert select_names(PATH, "class", ["a[/]b"], known)[0] == {"a/b"}
    assert select_names(PATH, "sample", ["a*"], known)[0] == {"ab"}


def test_names_of_images_are_paths_and_names_of_rows_are_not() -> None:
    images, rows = (sample_names(["a/b.png"], kind) for kind in ("pictures", "features"))
    assert [images.find(name) for name in ("a/b.png", "./a//b.png")] == ["a/b.png", "a/b.png"]
    assert [rows.find(name) for name in ("a/b.png", "./a//b.png")] == ["a/b.png", None]
