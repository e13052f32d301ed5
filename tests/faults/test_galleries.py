"""Galleries: their classes, damaged files, other versions and hostile HDF5."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli import __version__
from crnr_cli.gallery.file import load_gallery
from helpers.faults import CLASSIFY, Case, labelled, make_queries
from helpers.runner import read_rows
from helpers.samples import make_images


@pytest.mark.fault(2, "A gallery with only one class")
def test_one_class(case: Case) -> None:
    """build prints a note; classify refuses the gallery, as all queries would get the same label."""
    make_images(case.here / "gallery", ["ant"])
    case.run(
        "build gallery",
        exit=0,
        err=[
            "note: only one class, ant: add another with `crnr add GALLERY FOLDER --class NAME`",
            "gallery.h5: 1 class, 4 examples, vectors of length 128, method crnr",
        ],
    )
    make_queries()
    case.run(
        CLASSIFY,
        exit=1,
        err=[
            "error: gallery.h5: has only one class, ant; add examples of another class with `crnr add "
            "gallery.h5 FOLDER --class NAME`"
        ],
    )
    assert case.files() == {"gallery", "gallery.h5", "queries"}


@pytest.mark.fault(4, "`Cat/` and `cat/`, or one name in two Unicode forms")
def test_classes_that_look_the_same(case: Case) -> None:
    """crnr refuses them, as a file system or a person may take them for the same; the error names both."""
    make_images(case.here / "gallery", ["Cat", "cat"])
    case.run(
        "build gallery",
        exit=1,
        err=["error: classes 'Cat' and 'cat' differ only in case or Unicode form; rename one"],
    )
    make_images(case.here / "forms", ["caf\u00e9", "cafe\u0301"])
    case.run(
        "build forms",
        exit=1,
        err=["error: classes 'cafe\\u0301' and 'caf\\xe9' differ only in case or Unicode form; rename one"],
    )
    assert case.files() == {"gallery", "forms"}


@pytest.mark.fault(5, "Class names with a comma, quotes, spaces, an emoji, a leading dash or `=`")
def test_odd_class_names(case: Case) -> None:
    """They are accepted, and quoted in the CSV if necessary, so that they are the same when read back."""
    names = ["a, b", 'say "x"', "  two  spaces ", "\N{ANT}", "-dash", "=1+1"]
    make_images(case.here / "gallery", names, per_class=2)
    case.build()
    case.run(
        "classify gallery -o out.csv",
        exit=0,
        err=[labelled(12, 12)],
        statuses={f"gallery/{name}/{i}.png": "ok" for name in names for i in (0, 1)},
    )
    assert {row["truth"] for row in read_rows(Path("out.csv"))} == set(names)
    outcome = case.run("evaluate out.csv --json", exit=0, out=None)
    record = json.loads(outcome.out)
    assert {entry["name"] for entry in record["classes"]} == set(names)
    header = read_rows(Path("out.csv"))[0]
    assert {name.removeprefix("residual:") for name in header if name.startswith("residual:")} == set(names)


@pytest.mark.fault(27, "A gallery that is truncated or has changed bytes")
@pytest.mark.usefixtures("queries")
def test_damaged_gallery(case: Case) -> None:
    """It is refused. HDF5 does not notice changed bytes, so crnr stores a SHA-256 and compares it."""
    whole = Path("gallery.h5").read_bytes()
    vectors = load_gallery(Path("gallery.h5")).samples.vectors
    at = whole.index(vectors[0].tobytes())
    Path("gallery.h5").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    case.run(
        CLASSIFY,
        exit=1,
        err=["error: gallery.h5: damaged (the checksum does not match); restore it or build it again"],
    )
    Path("gallery.h5").write_bytes(whole[: len(whole) // 2])
    case.run(
        CLASSIFY,
        exit=1,
        err=[
            "error: gallery.h5: not a readable gallery (the file is incomplete); restore it or build it again"
        ],
    )
    assert case.files() == {"gallery", "gallery.h5", "queries"}
    assert Path("gallery.h5").read_bytes() == whole[: len(whole) // 2]


@pytest.mark.fault(28, "A gallery of a newer version; a file that is not a gallery; a missing gallery")
@pytest.mark.usefixtures("queries")
def test_other_versions(case: Case) -> None:
    """It is refused, and the error names the file. Galleries of older versions can always be opened."""
    with h5py.File("gallery.h5", "r+") as file:
        file.attrs["version"] = 99
    case.run(
        CLASSIFY,
        exit=1,
        err=[
            f"error: gallery.h5: gallery format 99, but this crnr ({__version__}) reads up to 5; please "
            "upgrade crnr"
        ],
    )
    with h5py.File("other.h5", "w") as file:
        file["features"] = np.eye(2)
    case.run(
        f"{CLASSIFY} -g other.h5",
        exit=1,
        err=["error: other.h5: not a gallery; create one with `crnr build`"],
    )
    case.run(
        f"{CLASSIFY} -g none.h5",
        exit=1,
        err=["error: none.h5: no such gallery; create it with `crnr build FOLDER -o none.h5`"],
    )
    assert case.files() == {"queries", "gallery", "gallery.h5", "other.h5"}


@pytest.mark.fault(
    29, "Malicious HDF5: links to other files, virtual datasets, huge shapes, filters, deep groups"
)
def test_hostile_hdf5(case: Case) -> None:
    """It is refused before memory is allocated or links are followed, in galleries and in feature files."""
    with h5py.File("secret.h5", "w") as file:
        file["features"] = np.eye(4)
    labels = np.arange(4)

    def refuse(name: str, message: str) -> None:
        case.run(f"build {name} -o gallery.h5", exit=1, err=[f"error: {name}: {message}"])

    with h5py.File("external.h5", "w") as file:
        file["features"] = h5py.ExternalLink("secret.h5", "features")
        file["labels"] = labels
    refuse("external.h5", "the array 'features' is a link; copy the data into the file")
    with h5py.File("soft.h5", "w") as file:
        file["features"] = h5py.SoftLink("/labels")
        file["labels"] = labels
    refuse("soft.h5", "the array 'features' is a link; copy the data into the file")
    with h5py.File("virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((4, 4), float)
        layout[:] = h5py.VirtualSource("secret.h5", "features", (4, 4))
        file.create_virtual_dataset("features", layout)
        file["labels"] = labels
    refuse("virtual.h5", "the array 'features' refers to other files; copy the data into one file")
    with h5py.File("raw.h5", "w") as file:
        file.create_dataset("features", (4, 4), float, external=[("/etc/passwd", 0, 128)])
        file["labels"] = labels
    refuse("raw.h5", "the array 'features' refers to other files; copy the data into one file")
    with h5py.File("huge.h5", "w") as file:
        file.create_dataset("features", (10**12, 10**3), float, chunks=(1, 10**3), compression="gzip")
        file["labels"] = labels
    refuse(
        "huge.h5",
        "the array 'features' declares 8000000000000000 bytes and holds 0; write the complete file again",
    )
    with h5py.File("filter.h5", "w") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((4, 4))
        plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((4, 4))
        h5py.h5d.create(file.id, b"features", h5py.h5t.NATIVE_DOUBLE, space, plan)
        file["labels"] = labels
    refuse(
        "filter.h5",
        "the array 'features' uses an unsupported compression; store it with gzip, or uncompressed",
    )
    with h5py.File("deep.h5", "w") as file:
        file["/".join("abcdefghijkl") + "/features"] = np.eye(4)
    refuse("deep.h5", "not a readable HDF5 file (more than 8 levels of groups); write it again")
    with h5py.File("reference.h5", "w") as file:
        file.create_dataset("features", (4, 4), h5py.ref_dtype)
        file["labels"] = labels
    refuse("reference.h5", "the array 'features' is of type object, but must be numbers or text")
    assert "gallery.h5" not in case.files()

    make_images(case.here / "gallery")
    make_queries()
    case.build()
    whole = Path("gallery.h5").read_bytes()

    def refuse_gallery(message: str) -> None:
        case.run(CLASSIFY, exit=1, err=[f"error: gallery.h5: {message}; build it again"])
        Path("gallery.h5").write_bytes(whole)

    with h5py.File("gallery.h5", "r+") as file:
        file["state/extra"] = h5py.ExternalLink("secret.h5", "features")
    refuse_gallery("state/extra is a link")
    with h5py.File("gallery.h5", "r+") as file:
        file.create_dataset("state/extra", (10**12,), float, chunks=(1000,))
    refuse_gallery("state/extra is not stored as plain data")
    with h5py.File("gallery.h5", "r+") as file:
        file["a/b/c/d"] = 1
    refuse_gallery("a/b/c does not belong in a gallery")
    assert "out.csv" not in case.files()
