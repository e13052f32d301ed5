"""Listing images in folders, and choosing between images and features."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.sources.base import InputOptions
from crnr_cli.sources.images import Images
from crnr_cli.sources.opening import fingerprint, open_source
from helpers.runner import Runner, read_rows, rows
from helpers.samples import draw_image, make_features, make_images


def listed(*names: str) -> Images:
    source = open_source(names, InputOptions())
    assert isinstance(source, Images)
    return source


def test_a_listing_is_sorted_and_has_its_classes(crnr: Runner) -> None:
    make_images(crnr.here / "q", ["b", "a/deep"], per_class=2)
    draw_image(0, 0).save("q/top.png")
    files = listed("q").files
    assert [file.path for file in files] == [
        "q/a/deep/0.png",
        "q/a/deep/1.png",
        "q/b/0.png",
        "q/b/1.png",
        "q/top.png",
    ]
    assert [file.folders for file in files] == [("a", "deep")] * 2 + [("b",)] * 2 + [()]
    stamp = Path("q/top.png").stat()
    assert (files[-1].stamp.size, files[-1].stamp.mtime_ns) == (stamp.st_size, stamp.st_mtime_ns)


def test_a_file_by_its_name_has_the_nearest_folder_first(crnr: Runner) -> None:
    make_images(crnr.here / "q", ["b"], per_class=1)
    assert listed("q/b/0.png").files[0].folders == ("b", "q")


def test_links_among_folders_are_followed_once(crnr: Runner) -> None:
    """Ten folders that link to each other have millions of paths."""
    make_images(crnr.here / "q", [f"f{i}" for i in range(10)], per_class=1)
    for i in range(10):
        for j in range(10):
            if i != j:
                Path(f"q/f{i}/to{j}").symlink_to(f"../f{j}")
    assert 10 <= len(listed("q")) <= 10 + 10 + 10


@pytest.fixture
def deep_folders(crnr: Runner) -> Iterator[Callable[[int], None]]:
    """Makes q/cat/a/a/a... some levels deep, with an image at the bottom."""

    def make(levels: int) -> None:
        make_images(crnr.here / "q", ["cat"], per_class=1)
        with contextlib.chdir("q/cat"):
            for _ in range(levels):
                Path("a").mkdir()
                os.chdir("a")
            draw_image(0, 50).save("deep.png")

    yield make
    # Python's own functions for this call themselves on every level.
    subprocess.run(["rm", "-rf", crnr.here / "q"], check=True)


@pytest.mark.parametrize(
    ("levels", "status", "code"),
    [
        pytest.param(1200, "ok", 0, id="deeper than Python can call itself"),
        pytest.param(2100, "unreadable", 3, id="deeper than a path can be long", marks=pytest.mark.slow),
    ],
)
def test_folders_that_are_nested_very_deep(
    crnr: Runner, deep_folders: Callable[[int], None], levels: int, status: str, code: int
) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "-q").exit == 0
    deep_folders(levels)
    outcome = crnr("classify", "q", "-o", "out.csv", "-q")
    assert (outcome.out, outcome.err) == ("", "")
    assert outcome.exit == code
    found = {row["path"]: row["status"] for row in read_rows(Path("out.csv"))}
    assert found.pop("q/cat/0.png") == "ok"
    ((deepest, found_status),) = found.items()
    assert found_status == status
    if status == "ok":
        assert deepest == "q/cat" + "/a" * levels + "/deep.png"
    else:
        assert deepest.startswith("q/cat/a/a/a")


def test_a_linked_class_is_a_class(crnr: Runner) -> None:
    make_images(crnr.here / "elsewhere", ["x"], per_class=2)
    Path("q").mkdir()
    Path("q/a").symlink_to("../elsewhere/x")
    assert [file.folders for file in listed("q").files] == [("a",), ("a",)]


def test_names_that_no_file_can_have(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = None
    make_features(crnr.here / "g.npz")
    make_images(crnr.here / "g")
    crnr("build", "g", "-q")
    names = ["a\0b", "x" * 5000, "g/ant/0.png/below"]
    outcome = crnr("classify", "-", "-o", "out.csv", "-q", stdin="\n".join(names).encode())
    assert (outcome.exit, outcome.out, outcome.err) == (3, "", "")
    assert [row["status"] for row in read_rows(Path("out.csv"))] == ["unreadable", "unreadable", "vanished"]


def test_the_fingerprint_of_a_listing(crnr: Runner) -> None:
    make_images(crnr.here / "q", per_class=2)
    make_features(crnr.here / "a.npz")
    first = fingerprint(listed("q"))
    assert fingerprint(listed("q")) == first
    assert fingerprint(listed("q", "q")) != first
    os.utime("q/ant/0.png", (1, 1))
    assert fingerprint(listed("q")) != first
    table = fingerprint(open_source(["a.npz"], InputOptions()))
    os.utime("a.npz", (1, 1))
    assert fingerprint(open_source(["a.npz"], InputOptions())) != table


def test_images_and_features_do_not_mix(crnr: Runner) -> None:
    make_features(crnr.here / "a.npz")
    make_images(crnr.here / "q")
    with pytest.raises(
        UsageError, match=r"a\.npz is a feature file, but q is not; give images or feature files"
    ):
        open_source(["a.npz", "q"], InputOptions())


def test_feature_files_have_one_width(crnr: Runner) -> None:
    make_features(crnr.here / "a.npz", dimension=5)
    make_features(crnr.here / "b.npz", dimension=6)
    with pytest.raises(DataError, match=r"^b.npz: 6 features per example, but a.npz has 5; "):
        open_source(["a.npz", "b.npz"], InputOptions())


def test_a_pipe_that_is_called_as_features_is_never_opened(crnr: Runner) -> None:
    os.mkfifo("x.h5")
    (file,) = listed("x.h5").files
    assert isinstance(file.error, SampleError)
    assert file.error.status == "not_regular"
    outcome = crnr("info", "x.h5")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == "error: x.h5: not a regular file; give a gallery that `crnr build` wrote\n"


def test_a_list_separated_by_nul_needs_the_option(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "-q").exit == 0
    found = b"gallery/ant/0.png\0gallery/bee/1.png\0"
    refused = crnr("classify", "-", stdin=found)
    assert (refused.exit, refused.out) == (2, "")
    message = "the list on stdin is separated by NUL, like the output of find -print0; add -0"
    assert refused.err == f"error: -: {message}\n"
    assert crnr("classify", "-", "-0", "-q", stdin=found).exit == 0


@pytest.mark.parametrize(
    ("named", "listed_on_stdin"),
    [(["q/0.png", "nosuch.png"], ""), (["q/0.png", "-"], "nosuch.png\n"), (["-"], "q/0.png\nnosuch.png\n")],
)
def test_a_missing_image_costs_its_row_wherever_it_is_named(
    crnr: Runner, named: list[str], listed_on_stdin: str
) -> None:
    make_images(crnr.here / "gallery")
    Path("q").mkdir()
    draw_image(0, 50).save("q/0.png")
    assert crnr("build", "gallery", "-q").exit == 0
    outcome = crnr("classify", *named, "-q", stdin=listed_on_stdin)
    assert (outcome.exit, outcome.err) == (3, "")
    assert [(row["path"], row["status"]) for row in rows(outcome.out)] == [
        ("q/0.png", "ok"),
        ("nosuch.png", "vanished"),
    ]
    strict = crnr("classify", *named, "--strict", "-o", "out.csv", stdin=listed_on_stdin)
    assert (strict.exit, strict.out) == (1, "")
    assert "nosuch.png" in strict.err


@pytest.mark.parametrize(
    "command",
    [
        ["classify", "nosuch.png"],
        ["classify", "nosuch.png", "neither.png"],
        ["classify", "q.npz", "nosuch.npz"],
        ["classify", "gallery", "nosuch.npz"],
        ["build", "gallery", "nosuch", "-o", "new.h5"],
        ["build", "gallery", "nosuch", "--update"],
        ["add", "gallery.h5", "gallery", "nosuch"],
        ["tune", "gallery", "nosuch"],
        ["compare", "gallery", "nosuch"],
    ],
    ids=" ".join,
)
def test_a_missing_source_is_a_mistake_where_it_is_no_single_query(crnr: Runner, command: list[str]) -> None:
    make_images(crnr.here / "gallery")
    make_features(crnr.here / "q.npz")
    assert crnr("build", "gallery", "-q").exit == 0
    before = Path("gallery.h5").read_bytes()
    outcome = crnr(*command)
    assert (outcome.exit, outcome.out) == (1, "")
    missing = next(part for part in command if part.startswith("nosuch"))
    assert outcome.err == f"error: {missing}: no such file or folder\n"
    assert Path("gallery.h5").read_bytes() == before
