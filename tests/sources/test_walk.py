"""Folders that others list: the same listing as if this process had listed all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from crnr_cli.sources import walk
from crnr_cli.sources.base import InputOptions
from crnr_cli.sources.compact_listing import CompactListing
from crnr_cli.sources.images import Images
from crnr_cli.sources.opening import fingerprint, open_source
from crnr_cli.sources.walk import Folder, FolderListing, list_images, list_named_images, list_some_folders
from helpers.runner import Runner, powerless
from helpers.samples import draw_image, make_images


def elsewhere(root: str, groups: Iterable[Sequence[Folder]]) -> Iterator[FolderListing]:
    """Open a part like a worker, from another current folder."""
    base = Path.cwd()
    found = []
    os.chdir("/")
    try:
        for group in groups:
            found.append(list_some_folders(str(base), root, group))
    finally:
        os.chdir(base)
    return iter(found)


def both(*names: str) -> tuple[Images, Images]:
    alone, spread = (open_source(names, InputOptions(), lister=lister) for lister in (None, elsewhere))
    assert isinstance(alone, Images)
    assert isinstance(spread, Images)
    return alone, spread


def assert_same(*names: str, packed: bool = True) -> None:
    alone, spread = both(*names)
    assert isinstance(spread.files, CompactListing) == packed
    assert [*map(plain, spread.files)] == [*map(plain, alone.files)]
    assert (spread.ignored, spread.empty_folders) == (alone.ignored, alone.empty_folders)
    assert spread.named_folders == alone.named_folders
    assert spread.notes() == alone.notes()
    assert fingerprint(spread) == fingerprint(alone)


def plain(file: object) -> str:
    """Errors are compared by what they say."""
    return repr(file)


@pytest.fixture
def folders(crnr: Runner) -> None:
    make_images(crnr.here / "q", ["a", "b/deep/er", "d", "e"], per_class=3)
    for name in ("aa.png", "c.png", "z.png"):  # between the folders, and after them
        draw_image(0, 0).save(f"q/{name}")
    Path("q/empty").mkdir()
    Path("q/.hidden").mkdir()
    Path("q/d/.DS_Store").write_text("")
    Path("q/d/Thumbs.db").write_text("")
    Path("q/e/gone.png").symlink_to("nowhere")
    Path(os.fsdecode(b"q/e/\xff\n'\".png")).write_text("")
    os.mkfifo("q/e/pipe")


@pytest.mark.parametrize("groups", [1, 2, 1000])
@pytest.mark.parametrize("per_block", [1, 4, 1024])
def test_a_lister_gives_the_listing_of_one_walk(
    folders: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, groups: int, per_block: int
) -> None:
    monkeypatch.setattr(walk, "_GROUPS", groups)
    monkeypatch.setattr(walk, "PER_BLOCK", per_block)
    assert_same("q")
    assert_same("q/")
    assert_same(str(tmp_path / "q"))
    assert_same("q", "q/z.png", "q/b", "q/a")
    assert_same("q/a", packed=False)
    monkeypatch.chdir("q")
    assert_same(".")
    monkeypatch.chdir("a")
    assert_same("..")


@pytest.mark.parametrize("groups", [1, 1000])
def test_links_that_several_folders_follow(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    """Each is followed once, by the first folder: even if no other process knows."""
    monkeypatch.setattr(walk, "_GROUPS", groups)
    make_images(crnr.here / "q", [f"f{i}" for i in range(6)], per_class=1)
    make_images(crnr.here / "other", ["x", "y"], per_class=1)
    for i in range(6):
        for j in range(6):
            if i != j and (i + j) % 2:
                Path(f"q/f{i}/to{j}").symlink_to(f"../f{j}")
    for i in (1, 3):
        Path(f"q/f{i}/outside").symlink_to("../../other")
    Path("q/f2/up").symlink_to("..")
    Path("q/g").symlink_to("../other")
    Path("q/loop").symlink_to("loop")
    assert_same("q")
    assert_same("q", "q")


def test_a_lister_reports_unreadable_folders_like_one_walk(folders: None) -> None:
    Path("q/d").chmod(0)
    Path("q/b/deep").chmod(0)
    try:
        with powerless():
            assert_same("q")
    finally:
        for name in ("q/d", "q/b/deep"):
            Path(name).chmod(0o755)


def test_classes_and_parts(folders: None) -> None:
    alone, spread = (source.with_classes(["q", "a"]) for source in both("q", "q/a"))
    assert spread.possible_classes() == alone.possible_classes()
    assert list(spread.class_names()) == list(alone.class_names())
    assert spread.names() == alone.names()
    for start in range(len(alone)):
        for stop in range(start + 1, len(alone) + 1):
            mine, theirs = (one.part((start, stop)).open(InputOptions().keys) for one in (spread, alone))
            assert isinstance(mine, Images)
            assert isinstance(theirs, Images)
            assert list(map(plain, mine.files)) == list(map(plain, theirs.files))
            assert mine.base == theirs.base


def test_packed_files_are_a_sequence(folders: None) -> None:
    alone, spread = both("q")
    expected, found = list(alone.files), spread.files
    assert isinstance(found, CompactListing)
    n = len(expected)
    for i in range(-n, n):
        assert plain(found[i]) == plain(expected[i])
    for piece in (
        slice(None),
        slice(2, 7),
        slice(-3, None),
        slice(1, n, 3),
        slice(None, None, -2),
        slice(5, 5),
    ):
        assert list(map(plain, found[piece])) == list(map(plain, expected[piece]))
        inner = found.cut(2, n - 1)
        assert list(map(plain, inner[piece])) == list(map(plain, expected[2 : n - 1][piece]))
        assert list(map(plain, inner.cut(1, 4))) == list(map(plain, expected[3:6]))
    for i in (n, -n - 1):
        with pytest.raises(IndexError):
            found[i]
    part = Images(found.cut(2, 5))
    assert fingerprint(part) == fingerprint(Images(expected[2:5]))


def test_system_folders_are_not_classes(crnr: Runner) -> None:
    make_images(crnr.here / "q", ["a", "b"], per_class=2)
    left = ["$RECYCLE.BIN", "System Volume Information", "lost+found", "__MACOSX", ".Trashes"]
    for folder in left:
        draw_image(0, 0).save(made(crnr.here / "q" / folder) / "0.png")
    beside = ["Thumbs.db", "ehthumbs.db", "desktop.ini", "Desktop.ini", ".DS_Store", "._0.png", "Icon\r"]
    for name in beside:
        (crnr.here / "q" / "a" / name).touch()
    source = open_source(["q"], InputOptions())
    assert isinstance(source, Images)
    assert source.class_names() == ["a", "b"]
    assert source.ignored == len(left) + len(beside)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_list_made_on_windows_is_read(crnr: Runner) -> None:
    """Unless a name ends with a carriage return: then not all lines end with one."""
    make_images(crnr.here / "q", ["a", "b"], per_class=2)
    (crnr.here / "q/a/0.png").rename(crnr.here / "q/a/odd.png\r")
    assert crnr("build", "q", "-q", "-o", "g.h5").exit == 0
    names = sorted(str(path.relative_to(crnr.here)) for path in (crnr.here / "q/b").iterdir())
    windows = crnr("classify", "-", "-g", "g.h5", stdin="".join(f"{name}\r\n" for name in names))
    assert windows.out == crnr("classify", *names, "-g", "g.h5").out
    odd = crnr("classify", "-", "-g", "g.h5", stdin=f"q/a/odd.png\r\n{names[0]}\n")
    assert odd.err == "labelled 2 of 2 queries\n"


def test_many_missing_files_of_a_list_list_their_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "f\u00f6tos"
    folder.mkdir()
    (folder / "e\u0301.png").touch()
    listdir, listed = os.listdir, []

    def counted(path: str) -> list[str]:
        listed.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", counted)
    missing = [f"{folder}/{i}.png" for i in range(30)]
    for images in (
        list_named_images([*missing, f"{folder}/\u00e9.png"]),
        list_images([*missing, f"{folder}/\u00e9.png"], nul_separated=False),
    ):
        *errors, last = [(file.path, file.error and file.error.status) for file in images.files]
        assert errors == [(path, "vanished") for path in missing]
        assert last == (f"{folder}/e\u0301.png", None)
    assert listed == [str(folder)] * 2
