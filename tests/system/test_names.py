"""Names as they are stored, and files that are listed in another Unicode form than they are named."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.system import names
from crnr_cli.system.names import as_listed, existing, place_of, slashed

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


@given(st.text(st.sampled_from("aé:\\/. "), max_size=12))
def test_on_windows_names_are_stored_with_slashes(text: str) -> None:
    path = str(PureWindowsPath(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sep", "\\")
        assert slashed(path) == PureWindowsPath(text).as_posix()
        patch.setattr(os, "sep", "/")
        assert slashed(text) == text  # elsewhere, a backslash is part of a name


@pytest.mark.parametrize("given_name", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("listed", [COMPOSED, DECOMPOSED])
def test_either_form_finds_the_file(tmp_path: Path, given_name: str, listed: str) -> None:
    folder = tmp_path / listed
    folder.mkdir()
    (folder / f"{listed}.png").touch()
    found = as_listed(str(tmp_path / given_name / f"{given_name}.png"))
    assert found == str(folder / f"{listed}.png")
    assert place_of(found) == place_of(str(tmp_path / given_name / f"{given_name}.png"))


def test_a_name_that_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in (COMPOSED, DECOMPOSED):
        (tmp_path / name).mkdir()
    for name in (COMPOSED, DECOMPOSED, "cafè"):
        assert as_listed(str(tmp_path / name)) == str(tmp_path / name)
    assert as_listed(str(tmp_path / "no" / COMPOSED)) == str(tmp_path / "no" / COMPOSED)
    assert as_listed("") == ""


def test_what_no_file_can_be_called_on_windows_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(22, "Invalid name")
    error.winerror = 123  # type: ignore[attr-defined]

    def refuse(*_: object, **__: object) -> os.stat_result:
        raise error

    monkeypatch.setattr(names.os, "stat", refuse)
    assert existing("*.png") is None
