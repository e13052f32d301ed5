"""Names that every system can have, judged by what Python and Microsoft say about names on Windows."""

from __future__ import annotations

import ntpath
import os
import re
import unicodedata
import warnings
from itertools import combinations
from pathlib import Path, PureWindowsPath
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crnr_cli.sorting.names import escape_class_name, shorten_name
from crnr_cli.system import names as module
from crnr_cli.system.names import fold_name, folds_names, to_portable

FORBIDDEN = set('<>:"/\\|?*') | {chr(code) for code in range(32)}  # as Microsoft lists them

awkward = st.sampled_from(
    [
        "con",
        "NUL",
        "aux.",
        "com1",
        "COM¹",
        "lpt9.txt",
        "conin$",
        "a:b",
        "x.",
        "x ",
        "\udcff",  # a byte that is not UTF-8
        "%63on",
        "%",
        "é",
        "É",
        "ß",
    ]
)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
names = awkward | texts | st.tuples(awkward, texts).map("".join) | st.tuples(texts, awkward).map("".join)
file_names = names.map(lambda name: name.replace("/", "-")).filter(lambda name: name not in (".", ".."))


def is_possible_on_windows(name: str) -> bool:
    if not name or FORBIDDEN & set(name) or name.endswith((".", " ")):
        return False
    if re.match(r"(com|lpt)0 *(\.|$)", name, re.IGNORECASE):  # which Microsoft lists, and Python does not
        return False
    if hasattr(ntpath, "isreserved"):  # since Python 3.13
        return not ntpath.isreserved(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return not PureWindowsPath(name).is_reserved()


def is_text(name: str) -> bool:
    return not any("\ud800" <= one <= "\udfff" for one in name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("con", "%63on"),
        ("Aux.png", "%41ux.png"),
        ("nul .txt", "%6Eul .txt"),
        ("com¹", "%63om¹"),
        ("console", "console"),
        ("a:b", "a%3Ab"),
        ("what?", "what%3F"),
        ("x.", "x%2E"),
        ("x ", "x%20"),
        ("..", ".%2E"),
        (r"..\..\etc", "..%5C..%5Cetc"),
        ("rose 日本.png", "rose 日本.png"),
        ("caf\udce9", "caf%E9"),
    ],
)
def test_to_portable_escapes_names_that_windows_lacks(name: str, expected: str) -> None:
    assert to_portable(name) == expected


@given(file_names)
def test_a_portable_name_is_possible_everywhere(name: str) -> None:
    found = to_portable(name)
    assert is_possible_on_windows(found)
    assert is_text(found)  # macOS has no other names
    assert to_portable(found) == found
    if is_possible_on_windows(name) and is_text(name):
        assert found == name


@given(names)
@example("%63on")
@example("%:")
def test_the_class_is_found_in_the_name_of_its_folder(name: str) -> None:
    folder = to_portable(escape_class_name(name))
    assert unquote(folder, errors="surrogateescape") == name
    assert is_possible_on_windows(folder)


@given(file_names, st.integers(1, 30), st.integers(40, 255))
def test_a_portable_name_that_is_cut_or_numbered_is_portable(name: str, number: int, longest: int) -> None:
    assert is_possible_on_windows(shorten_name(to_portable(name), longest, number))


@given(texts)
@example("\u017f")  # a long s, which is S in upper case
@example("ẞ")
@example("\u0131")  # i without a dot, which is I in upper case
@example("\u1e9e\u0345")
@example("Å")
def test_fold_name_is_equal_for_names_equal_on_some_file_system(name: str) -> None:
    """They compare in upper case (NTFS, FAT), in lower case, folded (ext4, APFS), or decomposed (HFS+)."""
    forms = [name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))]
    one_to_one = [one for one in name if len(one.upper()) == len(one.lower()) == 1]
    if len(one_to_one) == len(name):
        forms += [name.upper(), name.lower(), name.casefold()]
    assert len(set(map(fold_name, forms))) == 1


@given(st.lists(st.text("aAbB éÉe\u0301ß", max_size=4), max_size=8))
def test_names_with_other_keys_are_other_names_everywhere(names: list[str]) -> None:
    for one, other in combinations(names, 2):
        if fold_name(one) != fold_name(other):
            assert one.casefold() != other.casefold()
            assert one.upper() != other.upper()
            assert unicodedata.normalize("NFC", one) != unicodedata.normalize("NFC", other)


def test_different_letters_stay_different() -> None:
    assert len({fold_name(name) for name in ("e", "é", "ö", "o", "1", "a b", "ab")}) == 7


def test_folds_names_matches_this_file_system(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    folds = (tmp_path / "X").exists()
    assert folds_names(tmp_path) == folds
    (tmp_path / "x" / "1").mkdir()  # neither it nor its content can tell, but its folder can
    assert folds_names(tmp_path / "x" / "1") == folds
    (tmp_path / "X").mkdir(exist_ok=folds)
    assert folds_names(tmp_path) == folds


def test_a_folder_that_folds_names_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rose").mkdir()
    real = os.lstat

    def fold(path: str) -> os.stat_result:
        above, name = os.path.split(path)
        return real(tmp_path / name.lower() if above == str(tmp_path) else path)

    monkeypatch.setattr(module.os, "lstat", fold)
    assert folds_names(tmp_path)
    assert folds_names(tmp_path / "rose")  # empty, but its own name can tell
