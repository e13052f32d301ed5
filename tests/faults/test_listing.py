"""Listing files: odd names, files that are not images, links, and empty folders."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from crnr_cli.gallery.file import load_gallery
from helpers.faults import CLASSIFY, GOOD, Case, labelled, make_queries
from helpers.runner import read_rows, without_root
from helpers.samples import draw_image, make_images, noise


@pytest.mark.fault(6, "A newline, tab or quote in a file name")
def test_odd_file_names(case: Case, queries: Path) -> None:
    """Such names are quoted in the CSV; with `-0`, the list of files on stdin is separated by NUL."""
    names = ["new\nline.png", "tab\t.png", 'quo"te.png']
    for name in names:
        draw_image(1, 7).save(queries / name)
    expected = GOOD | {f"queries/{name}": "ok" for name in names}
    case.run(CLASSIFY, exit=0, err=[labelled(4, 4)], statuses=expected)
    by_list = Path("out.csv").read_bytes()
    listed = b"\0".join(os.fsencode(name) for name in sorted(expected))
    case.run(
        "classify -0 - -o out.csv",
        exit=0,
        err=[labelled(4, 4)],
        statuses=expected,
        stdin=listed,
        shown="find queries -type f -print0 | sort -z | crnr classify -0 - -o out.csv",
    )
    assert Path("out.csv").read_bytes() == by_list


@pytest.mark.fault(7, "A file name that is not UTF-8, such as `caf\\xe9.png`")
def test_names_that_are_not_utf8(case: Case) -> None:
    """It is written as the same bytes in the CSV, and escaped in JSON."""
    name = os.fsdecode(b"caf\xe9")
    make_images(case.here / "gallery", [name, "tea"])
    case.build()
    case.run(
        "classify gallery -o out.csv",
        exit=0,
        err=[labelled(8, 8)],
        statuses={f"gallery/{folder}/{i}.png": "ok" for folder in (name, "tea") for i in range(4)},
    )
    assert b"gallery/caf\xe9/0.png,caf\xe9,caf\xe9," in Path("out.csv").read_bytes()
    outcome = case.run("info --json", exit=0, out=None)
    assert '"caf\\udce9": 4' in outcome.out
    for locale in ("C", "C.UTF-8"):
        plain = case.process("info", env=os.environ | {"LC_ALL": locale})
        assert (plain.exit, plain.err) == (0, "")
        assert name in plain.out


@pytest.mark.fault(9, "`.DS_Store`, `Thumbs.db`, `._x.jpg`, `.ipynb_checkpoints`, `__MACOSX`")
def test_what_systems_leave_behind(case: Case) -> None:
    """Such files, and all others whose names begin with a dot, are ignored and never become a class; a note
    gives their number. A hidden image is read if it is named directly.
    """
    make_images(case.here / "gallery")
    for junk in (".ipynb_checkpoints", "__MACOSX"):
        make_images(case.here / "gallery", [junk], per_class=1)
    for junk in (".DS_Store", "ant/Thumbs.db", "bee/._x.jpg"):
        Path("gallery", junk).write_bytes(b"junk")
    noise(1).save("gallery/cow/.hidden.png")
    note = "note: 6 hidden or system files ignored (names that begin with a dot, Thumbs.db and the like)"
    case.run(
        "build gallery",
        exit=0,
        err=[note, "gallery.h5: 3 classes, 12 examples, vectors of length 128, method crnr"],
    )
    assert load_gallery(Path("gallery.h5")).classes == ["ant", "bee", "cow"]
    case.run(
        "classify gallery -o out.csv",
        exit=0,
        err=[note, labelled(12, 12)],
        statuses={f"gallery/{name}/{i}.png": "ok" for name in ("ant", "bee", "cow") for i in range(4)},
    )
    case.run(
        "classify gallery/cow/.hidden.png -o out.csv",
        exit=0,
        err=[labelled(1, 1)],
        statuses={"gallery/cow/.hidden.png": "ok"},
    )


@pytest.mark.fault(10, "A README or .xml among the images")
def test_a_readme_among_the_images(case: Case, queries: Path) -> None:
    """It gets the status `not_image`. The exit code is 0, as it is not named like an image either."""
    (queries / "README").write_text("read me")
    (queries / "notes.xml").write_text("<xml/>")
    case.run(
        CLASSIFY,
        exit=0,
        err=[
            labelled(1, 3),
            "failed: queries/README: not_image, not an image in a supported format",
            "failed: queries/notes.xml: not_image, not an image in a supported format",
        ],
        statuses=GOOD | {"queries/README": "not_image", "queries/notes.xml": "not_image"},
    )


@pytest.mark.fault(11, "An empty file; HTML saved as .jpg")
def test_empty_and_mislabelled_files(case: Case, queries: Path) -> None:
    """They get the status `empty_file` and `not_image`."""
    (queries / "empty.png").write_bytes(b"")
    (queries / "page.jpg").write_text("<html>404</html>")
    case.run(
        CLASSIFY,
        exit=3,
        err=[
            labelled(1, 3),
            "failed: queries/empty.png: empty_file, the file is empty",
            "failed: queries/page.jpg: not_image, not an image in a supported format",
        ],
        statuses=GOOD | {"queries/empty.png": "empty_file", "queries/page.jpg": "not_image"},
    )


@pytest.mark.fault(30, "An unreadable file or folder; one that vanished between listing and reading")
def test_unreadable_and_vanished(case: Case, queries: Path) -> None:
    """They get the status `unreadable` and `vanished`."""
    draw_image(0, 1).save(queries / "closed.png")
    (queries / "closed").mkdir()
    (queries / "closed.png").chmod(0)
    (queries / "closed").chmod(0)
    Path("list").write_text("queries/good.png\nqueries/gone.png\n")
    try:
        case.run(
            "classify queries -o - -q",
            exit=3,
            out=None,
            **without_root(),
            statuses=GOOD | {"queries/closed": "unreadable", "queries/closed.png": "unreadable"},
        )
    finally:
        (queries / "closed").chmod(0o700)
    case.run(
        "classify - -o out.csv",
        exit=3,
        stdin=Path("list").read_bytes(),
        err=[labelled(1, 2), "failed: queries/gone.png: vanished, no such file"],
        statuses=GOOD | {"queries/gone.png": "vanished"},
        shown="crnr classify - -o out.csv < list",
    )


@pytest.mark.fault(31, "A loop of links, a dangling link, a FIFO, a socket or a device in a folder")
def test_links_and_devices(case: Case, queries: Path) -> None:
    """Links are followed once. Only regular files are opened; others get the status `not_regular`."""
    (queries / "self").symlink_to("self")
    (queries / "dangling.png").symlink_to("nowhere.png")
    os.mkfifo(queries / "fifo.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("queries/socket.png")
    (queries / "null.png").symlink_to("/dev/null")
    inner = queries / "inner"
    inner.mkdir()
    (inner / "back").symlink_to("../../queries")
    case.run(
        CLASSIFY,
        exit=3,
        err=[
            labelled(1, 6),
            "failed: queries/dangling.png: vanished, no such file",
            "failed: queries/fifo.png: not_regular, not a regular file",
            "failed: queries/null.png: not_regular, not a regular file",
            "failed: queries/self: unreadable, Too many levels of symbolic links",
            "failed: queries/socket.png: not_regular, not a regular file",
        ],
        statuses=GOOD
        | {
            "queries/dangling.png": "vanished",
            "queries/fifo.png": "not_regular",
            "queries/null.png": "not_regular",
            "queries/self": "unreadable",
            "queries/socket.png": "not_regular",
        },
    )


@pytest.mark.fault(32, "The same file named twice")
def test_the_same_file_twice(case: Case, queries: Path) -> None:
    """The CSV has a row for each, in the given order."""
    draw_image(1, 5).save(queries / "bee.png")
    names = "queries/good.png queries/bee.png queries/good.png"
    case.run(f"classify {names} -o out.csv", exit=0, err=[labelled(3, 3)])
    assert [row["path"] for row in read_rows(Path("out.csv"))] == names.split()


@pytest.mark.fault(39, "No queries; no classes; an empty class folder")
def test_nothing_to_do(case: Case) -> None:
    """Without files or usable samples, there is nothing to do. An empty class is left out, with a note. An
    empty list on stdin is no error.
    """
    Path("empty").mkdir()
    nothing = (
        "error: empty: contains no images or feature files; name a folder that contains images, or a feature "
        "file"
    )
    case.run("build empty", exit=1, err=[nothing])
    flat = make_queries("flat")
    case.run(
        "build flat",
        exit=1,
        err=[
            f"error: {flat}: contains images but no class folders; put the images into one folder per "
            "class, or "
            "give their labels with --labels"
        ],
    )
    make_images(case.here / "gallery")
    Path("gallery/dog").mkdir()
    case.run(
        "build gallery",
        exit=0,
        err=[
            "note: class dog: left out, because the folder is empty",
            "gallery.h5: 3 classes, 12 examples, vectors of length 128, method crnr",
        ],
    )
    case.run("classify empty -o out.csv", exit=1, err=[nothing])
    empty = "note: -: the list of files on stdin is empty"
    case.run("classify - -o none.csv", exit=0, err=[empty])
    case.run(
        "classify empty -o none.csv --update",
        exit=0,
        err=[
            "note: empty: no images or feature files found",
            "note: none.csv: its record none.csv.crnr-state is missing; all queries are classified again",
            "note: none.csv: there is nothing to classify",
        ],
    )
    case.run("classify gone", exit=1, err=["error: gone: no such file or folder"])
    case.run(
        "classify flat gone -o out.csv",
        exit=3,
        err=[labelled(1, 2), "failed: gone: vanished, no such file"],
        statuses={"flat/good.png": "ok", "gone": "vanished"},
    )
    case.run("build gallery gone", exit=1, err=["error: gone: no such file or folder"])
    none = {"none.csv", "none.csv.crnr-state"}
    assert case.files() == {"empty", "flat", "gallery", "gallery.h5", "out.csv", *none}
