"""Listings: their order, their classes, and what they pass over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crnr_cli.errors import DataError, UsageError
from crnr_cli.features import Keys
from crnr_cli.sources import Pictures, open_source


def listed(*names: object) -> Pictures:
    source = open_source([str(name) for name in names], Keys())
    assert isinstance(source, Pictures)
    return source


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_files_are_sorted_and_the_first_folder_is_the_class(tmp_path: Path) -> None:
    touch(tmp_path / "b" / "2.png", tmp_path / "b" / "1.png", tmp_path / "a" / "deep" / "er" / "x.png")
    files = listed(tmp_path).files
    assert [(file.path, file.folders[0]) for file in files] == [
        (f"{tmp_path}/a/deep/er/x.png", "a"),
        (f"{tmp_path}/b/1.png", "b"),
        (f"{tmp_path}/b/2.png", "b"),
    ]


def test_a_file_named_by_itself_takes_its_nearest_folder_first(tmp_path: Path) -> None:
    touch(tmp_path / "cat" / "x.png")
    assert listed(tmp_path / "cat" / "x.png").files[0].folders[0] == "cat"


def test_the_same_file_twice_is_two_samples(tmp_path: Path) -> None:
    touch(tmp_path / "x.png")
    assert len(listed(tmp_path / "x.png", tmp_path / "x.png")) == 2


def test_system_files_are_passed_over_and_counted(tmp_path: Path) -> None:
    touch(
        tmp_path / "a" / "x.png",
        tmp_path / "a" / ".DS_Store",
        tmp_path / "a" / "._x.jpg",
        tmp_path / "a" / "Thumbs.db",
        tmp_path / "__MACOSX" / "x.png",
        tmp_path / ".ipynb_checkpoints" / "x.png",
    )
    pictures = listed(tmp_path)
    assert [file.folders for file in pictures.files] == [("a",)]
    assert pictures.ignored == 5


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "x.png")
    (tmp_path / "b").mkdir()
    assert listed(tmp_path).empty_folders == ["b"]


def test_a_link_back_up_is_followed_no_further(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "x.png")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert [file.path for file in listed(tmp_path).files] == [f"{tmp_path}/a/x.png"]


def test_what_is_not_a_regular_file_is_never_opened(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "x.png")
    os.mkfifo(tmp_path / "a" / "pipe.png")
    (tmp_path / "a" / "gone.png").symlink_to("nowhere")
    statuses = {Path(f.path).name: f.error.status for f in listed(tmp_path).files if f.error}
    assert statuses == {"pipe.png": "not_regular", "gone.png": "vanished"}


def test_nothing_to_do_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"nothing to do in {tmp_path}"):
        listed(tmp_path)


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none: no such file or folder"):
        listed(tmp_path / "none")


def test_pictures_and_features_do_not_mix(tmp_path: Path) -> None:
    touch(tmp_path / "x.png", tmp_path / "x.npz")
    with pytest.raises(UsageError, match="not both"):
        listed(tmp_path / "x.png", tmp_path / "x.npz")
