"""Names as they are stored, and files that are listed in another Unicode form than they are named."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.system import names
from crnr_cli.system.names import (
    ListedForms,
    Spellings,
    class_key,
    join_command,
    normalize_path,
    path_key,
    quote_word,
    stat_or_none,
    to_listed_form,
    with_slashes,
)

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


@given(st.text())
def test_unicode_forms_of_a_name_are_one_class(name: str) -> None:
    forms = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")} | {name}
    assert len(set(map(class_key, forms))) == 1


@given(st.lists(st.text("aAé", min_size=1, max_size=2), min_size=1, max_size=4), st.booleans())
def test_path_key_is_equal_for_all_spellings(names: list[str], is_absolute: bool) -> None:
    """As pathlib sees it, which knows nothing of Unicode forms; names in upper case stay apart on Linux."""
    root = "/" if is_absolute else ""
    path = root + "/".join(names)
    others = (
        f"{root}./{path.removeprefix(root)}",
        path.replace("/", "//") if not root else path,
        f"{path}/.",
    )
    for other in (*others, unicodedata.normalize("NFD", path), f"{path}/x/.."):
        assert path_key(other) == path_key(path)
        assert normalize_path(other) == normalize_path(path)
    assert Path(path_key(path)) == Path(unicodedata.normalize("NFC", path))
    assert normalize_path(path) == str(Path(path_key(path)).absolute())


def test_paths_that_are_not_the_same() -> None:
    keys = [path_key(path) for path in ("q/0.png", "q/1.png", "/q/0.png", "../q/0.png", "Q/0.png", "q0.png")]
    assert len(set(keys)) == len(keys)


def test_case_makes_no_difference_where_the_file_system_folds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds = str(tmp_path / "Folds")
    monkeypatch.setattr(names, "_cached_folds", lambda folder: (folder + "/").startswith(f"{folds}/"))
    assert path_key(f"{folds}/Q/É.png") == path_key(f"{folds}/q/{DECOMPOSED[3:]}.PNG")
    assert path_key(f"{folds}/q") != path_key(f"{folds.lower()}/q")
    assert path_key(f"{tmp_path}/Other/Q") != path_key(f"{tmp_path}/Other/q")
    monkeypatch.chdir(tmp_path)
    assert path_key("Folds/A") == path_key("Folds/a")
    assert path_key("A") != path_key("a")


def test_a_path_that_no_file_can_have_is_compared_too(tmp_path: Path) -> None:
    assert path_key(f"{tmp_path}/A\0/B") != path_key(f"{tmp_path}/A\0/b")


def test_deep_paths_are_compared() -> None:
    assert path_key("a/" * 1500 + "A") == "a/" * 1500 + "A"


class TestSpellings:
    def test_a_name_is_found_by_either_form(self) -> None:
        known = Spellings([COMPOSED, "tea"])
        assert (known.find(DECOMPOSED), known.find("tea"), known.find("milk")) == (COMPOSED, "tea", None)
        assert (known.spell(DECOMPOSED), known.spell("milk")) == (COMPOSED, "milk")

    def test_a_name_that_is_known_in_both_forms_is_taken_as_it_is(self) -> None:
        known = Spellings([DECOMPOSED, COMPOSED])
        assert (known.find(COMPOSED), known.find(DECOMPOSED)) == (COMPOSED, DECOMPOSED)
        assert Spellings(["./q", "q"], path_key).find("q/.") == "./q"  # the first one

    def test_new_names_are_learnt_as_they_come_first(self) -> None:
        known = Spellings(key=path_key)
        assert [known.learn(name) for name in ("./q", "q", "q/", "r")] == ["./q", "./q", "./q", "r"]
        assert list(known.known) == ["./q", "r"]


@given(st.text(st.sampled_from("aé:\\/. "), max_size=12))
def test_on_windows_names_are_stored_with_slashes(text: str) -> None:
    path = str(PureWindowsPath(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sep", "\\")
        assert with_slashes(path) == PureWindowsPath(text).as_posix()
        patch.setattr(os, "sep", "/")
        assert with_slashes(text) == text  # elsewhere, a backslash is part of a name


@pytest.mark.parametrize("given_name", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("listed", [COMPOSED, DECOMPOSED])
def test_either_form_finds_the_file(tmp_path: Path, given_name: str, listed: str) -> None:
    folder = tmp_path / listed
    folder.mkdir()
    (folder / f"{listed}.png").touch()
    found = to_listed_form(str(tmp_path / given_name / f"{given_name}.png"))
    assert found == str(folder / f"{listed}.png")
    assert normalize_path(found) == normalize_path(str(tmp_path / given_name / f"{given_name}.png"))


def test_a_name_that_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in (COMPOSED, DECOMPOSED):
        (tmp_path / name).mkdir()
    for name in (COMPOSED, DECOMPOSED, "cafè"):
        assert to_listed_form(str(tmp_path / name)) == str(tmp_path / name)
    assert to_listed_form(str(tmp_path / "no" / COMPOSED)) == str(tmp_path / "no" / COMPOSED)
    assert to_listed_form("") == ""


def find_naively(path: str) -> str:
    """Return the path with each name as listed, if all names have one and only one listed form.

    The folders that a path in ASCII begins with are taken as they are.
    """
    parts = Path(path).parts
    found = Path(parts[0])
    for i, name in enumerate(parts[1:], 2):
        if str(Path(*parts[:i])).isascii():
            found /= name
            continue
        same = [one.name for one in found.iterdir() if is_same(one.name, name)] if found.is_dir() else []
        if name not in same and len(same) != 1:
            return path
        found /= name if name in same else same[0]
    return str(found)


def is_same(one: str, other: str) -> bool:
    return unicodedata.normalize("NFD", one) == unicodedata.normalize("NFD", other)


# Two forms of a letter, a sign whose only other form is in ASCII, and letters with one form.
PART = st.text("\u00e9\u212aKa", min_size=1, max_size=2) | st.sampled_from(["e\u0301", "ae\u0301", "e"])
RELATIVE = st.lists(PART, min_size=1, max_size=3).map("/".join)


@settings(deadline=None)
@given(st.lists(RELATIVE, max_size=6), st.lists(RELATIVE, min_size=1, max_size=8))
def test_listed_forms_are_those_of_a_naive_search(there: list[str], wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in there:
            Path(folder, path).mkdir(parents=True, exist_ok=True)
        forms = ListedForms()
        for path in (f"{folder}/{one}" for one in wanted):
            expected = path if path.isascii() else find_naively(path)
            assert forms.find(path) == to_listed_form(path) == expected


@pytest.mark.parametrize("folder", ["fotos", "f\u00f6tos", "fo\u0308tos"])
@pytest.mark.parametrize("name", ["{}.png", "{}\u00e9.png"])
@pytest.mark.parametrize("is_there", [True, False])
def test_many_missing_files_list_a_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str, is_there: bool
) -> None:
    if is_there:
        (tmp_path / "f\u00f6tos").mkdir()
    listed: Counter[str] = Counter()
    listdir = os.listdir

    def counted(path: str) -> list[str]:
        listed[path] += 1
        return listdir(path)

    monkeypatch.setattr(names.os, "listdir", counted)
    forms = ListedForms()
    for number in range(50):
        path = f"{tmp_path}/{folder}/{name.format(number)}"
        assert forms.find(path) == path
    assert all(count == 1 for count in listed.values()), listed


def test_invalid_windows_names_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(22, "Invalid name")
    error.winerror = 123  # type: ignore[attr-defined]

    def refuse(*_: object, **__: object) -> os.stat_result:
        raise error

    monkeypatch.setattr(names.os, "stat", refuse)
    assert stat_or_none("*.png") is None


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("g.h5", "g.h5"),
        ("sorted\\.crnr-sort-1.jsonl", "sorted\\.crnr-sort-1.jsonl"),
        ("C:\\RUNNER~1\\python.exe", "C:\\RUNNER~1\\python.exe"),
        ("--min-probability=0.5", "--min-probability=0.5"),
        ("crnr-cli[onnx]", '"crnr-cli[onnx]"'),
        ("cats & dogs", '"cats & dogs"'),
        ("a,b", '"a,b"'),
        ("@home", '"@home"'),
        ("Ann's", '"Ann\'s"'),
        ("my photos\\", '"my photos\\\\"'),
        ("", '""'),
        ("$5 \u00e0 Ann's", "'$5 \u00e0 Ann''s'"),
        ("a`b", "'a`b'"),
    ],
)
def test_words_of_a_command_are_quoted_for_cmd_and_powershell(
    word: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "ON_WINDOWS", True)
    assert quote_word(word) == expected
    if " " in word and "$" not in word:
        assert quote_word(word) == subprocess.list2cmdline([word])  # as programs split their arguments
    assert join_command(["crnr", "info", word]) == f"crnr info {expected}"


def test_words_of_a_command_are_quoted_for_a_posix_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ON_WINDOWS", False)
    words = ["crnr", "info", "my g.h5", "Ann's", "a\\b", "$HOME", ""]
    assert shlex.split(join_command(words)) == words
