"""Galleries: their classes, damaged files, other versions and hostile HDF5."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.gallery.file import load_gallery
from helpers.faults import CLASSIFY, Case, labelled, make_queries
from helpers.runner import read_rows
from helpers.samples import make_pictures


@pytest.mark.fault(2, "A gallery of one class")
def test_one_class(case: Case) -> None:
    """Build warns; classify refuses, as every answer would be the same."""
    make_pictures(case.here / "gallery", ["ant"])
    case.run(
        "build gallery",
        exit=0,
        err=[
            "note: only one class, ant: classify will refuse this gallery",
            "gallery.h5: 1 class, 4 samples, dimension 64, crnr, dense",
        ],
    )
    make_queries()
    case.run(
        CLASSIFY, exit=1, err=["error: the gallery has only one class, ant: every answer would be the same"]
    )
    assert case.files() == {"gallery", "gallery.h5", "queries"}


@pytest.mark.fault(4, "`Cat/` and `cat/`, or one name in two Unicode forms")
def test_classes_that_look_the_same(case: Case) -> None:
    """An error that names both."""
    make_pictures(case.here / "gallery", ["Cat", "cat"])
    case.run(
        "build gallery",
        exit=1,
        err=["error: classes 'Cat' and 'cat' differ only in case or Unicode form; rename one"],
    )
    make_pictures(case.here / "forms", ["caf\u00e9", "cafe\u0301"])
    case.run(
        "build forms",
        exit=1,
        err=["error: classes 'cafe\\u0301' and 'caf\\xe9' differ only in case or Unicode form; rename one"],
    )
    assert case.files() == {"gallery", "forms"}


@pytest.mark.fault(5, "Class names with comma, quote, spaces, emoji, leading dash or `=`")
def test_odd_class_names(case: Case) -> None:
    """Accepted, quoted where CSV needs it, and the same when read back."""
    names = ["a, b", 'say "x"', "  two  spaces ", "\N{ANT}", "-dash", "=1+1"]
    make_pictures(case.here / "gallery", names, per_class=2)
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


@pytest.mark.fault(27, "A gallery that is cut short or has altered bytes")
@pytest.mark.usefixtures("queries")
def test_damaged_gallery(case: Case) -> None:
    """Refused: HDF5 reads a flipped byte without an error, so the stored SHA-256 is compared."""
    whole = Path("gallery.h5").read_bytes()
    vectors = load_gallery(Path("gallery.h5")).samples.vectors
    at = whole.index(vectors[0].tobytes())
    Path("gallery.h5").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    case.run(
        CLASSIFY,
        exit=1,
        err=["error: gallery.h5: damaged (its checksum does not match); restore it or build it again"],
    )
    Path("gallery.h5").write_bytes(whole[: len(whole) // 2])
    outcome = case(*CLASSIFY.split())
    case.check(
        replace(outcome, err=re.sub(r"\(.*\)", "(...)", outcome.err)),  # HDF5's words
        f"crnr {CLASSIFY}",
        exit=1,
        err=["error: gallery.h5: not a readable gallery (...); restore it or build it again"],
    )
    assert case.files() == {"gallery", "gallery.h5", "queries"}
    assert Path("gallery.h5").read_bytes() == whole[: len(whole) // 2]


@pytest.mark.fault(28, "A gallery of a newer version; not a gallery at all")
@pytest.mark.usefixtures("queries")
def test_other_versions(case: Case) -> None:
    """Refused by name. Older ones open for ever."""
    with h5py.File("gallery.h5", "r+") as file:
        file.attrs["version"] = 99
    case.run(
        CLASSIFY,
        exit=1,
        err=[
            "error: gallery.h5: gallery format 99, but this crnr (0.1.0) reads up to 1; please upgrade crnr"
        ],
    )
    with h5py.File("other.h5", "w") as file:
        file["features"] = np.eye(2)
    case.run(f"{CLASSIFY} -g other.h5", exit=1, err=["error: other.h5: not a crnr gallery"])
    case.run(
        f"{CLASSIFY} -g none.h5",
        exit=1,
        err=["error: none.h5: no such gallery; make it with `crnr build FOLDER -o none.h5`"],
    )
    assert case.files() == {"queries", "gallery", "gallery.h5", "other.h5"}


@pytest.mark.fault(
    29, "Hostile HDF5: links to other files, virtual datasets, huge shapes, filters, deep groups"
)
def test_hostile_hdf5(case: Case) -> None:
    """Refused before anything is allocated or followed, in galleries and in features alike."""
    with h5py.File("secret.h5", "w") as file:
        file["features"] = np.eye(4)
    labels = np.arange(4)

    def refuse(name: str, words: str) -> None:
        case.run(f"build {name} -o gallery.h5", exit=1, err=[f"error: {name}: {words}"])

    with h5py.File("external.h5", "w") as file:
        file["features"] = h5py.ExternalLink("secret.h5", "features")
        file["labels"] = labels
    refuse("external.h5", "dataset features is a link to elsewhere; copy the data into the file")
    with h5py.File("soft.h5", "w") as file:
        file["features"] = h5py.SoftLink("/labels")
        file["labels"] = labels
    refuse("soft.h5", "dataset features is a link to elsewhere; copy the data into the file")
    with h5py.File("virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((4, 4), float)
        layout[:] = h5py.VirtualSource("secret.h5", "features", (4, 4))
        file.create_virtual_dataset("features", layout)
        file["labels"] = labels
    refuse("virtual.h5", "dataset features points into other files; copy the data into one file")
    with h5py.File("raw.h5", "w") as file:
        file.create_dataset("features", (4, 4), float, external=[("/etc/passwd", 0, 128)])
        file["labels"] = labels
    refuse("raw.h5", "dataset features points into other files; copy the data into one file")
    with h5py.File("huge.h5", "w") as file:
        file.create_dataset("features", (10**12, 10**3), float, chunks=(1, 10**3), compression="gzip")
        file["labels"] = labels
    refuse(
        "huge.h5",
        "dataset features declares 8000000000000000 bytes and holds 0; write the file again, in full",
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
        "dataset features uses an unsupported compression; store it with gzip, or uncompressed",
    )
    with h5py.File("deep.h5", "w") as file:
        file["/".join("abcdefghijkl") + "/features"] = np.eye(4)
    refuse("deep.h5", "not a readable HDF5 file (groups deeper than 8)")
    with h5py.File("reference.h5", "w") as file:
        file.create_dataset("features", (4, 4), h5py.ref_dtype)
        file["labels"] = labels
    refuse("reference.h5", "dataset features is of type object, not numbers or text")
    assert "gallery.h5" not in case.files()

    make_pictures(case.here / "gallery")
    make_queries()
    case.build()
    whole = Path("gallery.h5").read_bytes()

    def refuse_gallery(words: str) -> None:
        case.run(CLASSIFY, exit=1, err=[f"error: gallery.h5: {words}; build it again"])
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
