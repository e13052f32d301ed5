"""Patterns of names, compared with Python and a shell."""

from __future__ import annotations

import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.errors import DataError
from crnr_cli.gallery.entries import select_names

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
