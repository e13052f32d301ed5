"""The gallery format: version 1, its checksum, and inconsistent files."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from crnr_cli import __version__
from crnr_cli.errors import CrnrError, GalleryError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.hdf5_contents import is_gallery, read_content
from crnr_cli.system import memory
from helpers.paths import DATA
from helpers.runner import Runner, read_rows
from helpers.samples import make_features, make_images

V1 = DATA / "gallery-v1.h5"


def test_version_1_opens_for_ever(crnr: Runner) -> None:
    """The file was written by crnr 0.1.0 from the rows below, and must never be written again."""
    rows = np.array([[4.0, 0, 3], [2, 0, 0], [0, 5, 12]])
    gallery = load_gallery(V1)
    assert gallery.crnr_version == "0.1.0"
    assert gallery.classes == ["caf\u00e9", "tea"]
    assert gallery.names == ["rows.npz#0", "rows.npz#2", "rows.npz#1"]
    unit = rows[[0, 2, 1]] / np.array([[5.0], [13], [2]])
    np.testing.assert_allclose(gallery.samples.vectors, unit, rtol=1e-15)
    assert gallery.hashes == [hashlib.sha256(rows[i].tobytes()).hexdigest() for i in (0, 2, 1)]
    np.savez("queries.npz", features=rows[1:])
    outcome = crnr("classify", "queries.npz", "-g", str(V1), "-o", "out.csv")
    assert (outcome.exit, outcome.out, outcome.err) == (0, "", "labelled 2 of 2 queries: out.csv\n")
    assert [row["label"] for row in read_rows(Path("out.csv"))] == ["tea", "caf\u00e9"]


def test_steps_of_version_1_open_for_ever(crnr: Runner) -> None:
    """Gallery, queries and answers were written by crnr 0.1.0, before a recipe was a list of steps."""
    shutil.copy(DATA / "gallery-steps-v1-queries.npz", "queries.npz")
    gallery = DATA / "gallery-steps-v1.h5"
    outcome = crnr("classify", "queries.npz", "-g", gallery, "--reject", "0.1", "-o", "out.csv", "-q")
    assert (outcome.exit, outcome.out, outcome.err) == (0, "", "")
    found, expected = read_rows(Path("out.csv")), read_rows(DATA / "gallery-steps-v1.csv")
    for one, other in zip(found, expected, strict=True):
        for column in other:
            if column.startswith(("residual", "margin")):
                assert float(one[column]) == pytest.approx(float(other[column]), abs=1e-12)
            else:
                assert one[column] == other[column]
    about = json.loads(crnr("info", gallery, "--json").out)
    assert (about["format_version"], about["power"], about["pca"], about["n_inputs"]) == (1, 0.5, 5, 12)


def test_load_gallery_refuses_an_unknown_step(crnr: Runner) -> None:
    """Without its step a gallery of a later crnr would give wrong answers."""
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz", "--power", "0.5", "-q")
    with h5py.File("gallery.h5", "r+") as file:
        assert file["recipe"].attrs["steps"] == b"power"
        file["recipe"].attrs["steps"] = np.bytes_("power whitening")
    rehash(Path("gallery.h5"))
    with pytest.raises(GalleryError, match="this version of crnr does not know the pipeline step whitening"):
        load_gallery(Path("gallery.h5"))


@pytest.mark.parametrize("label_type", [np.bytes_("object"), np.bytes_("V8"), np.int64(3)])
def test_labels_of_an_unknown_type_are_refused(crnr: Runner, label_type: object) -> None:
    make_features(crnr.here / "features.npz")
    crnr("build", "features.npz")
    with h5py.File("gallery.h5", "r+") as file:
        file.attrs["label_type"] = label_type
    rehash(Path("gallery.h5"))
    with pytest.raises(GalleryError, match=r"gallery\.h5: not a consistent gallery"):
        load_gallery(Path("gallery.h5"))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sha256", None),
        ("when", np.array([b"now", b"then"])),
        ("names", np.array([1])),
        ("class", np.array([[b"x"]])),
        ("size", np.array([1.5])),
        ("mtime_ns", np.array([b"x"])),
    ],
)
def test_inconsistent_cleaning_is_refused(crnr: Runner, name: str, values: np.ndarray | None) -> None:
    make_features(crnr.here / "features.npz")
    crnr("build", "features.npz")
    crnr("remove", "gallery.h5", "--sample", "features.npz#0")
    assert load_gallery(Path("gallery.h5")).cleaning.names == ["features.npz#0"]
    with h5py.File("gallery.h5", "r+") as file:
        del file[f"cleaning/{name}"]
        if values is not None:
            file[f"cleaning/{name}"] = values
    rehash(Path("gallery.h5"))
    with pytest.raises(GalleryError, match=r"gallery\.h5: not a consistent gallery"):
        load_gallery(Path("gallery.h5"))


def test_checksum_of_a_gallery_matches_the_documentation(crnr: Runner) -> None:
    """Computed here from docs/reference/gallery-format.md alone."""
    digest = hashlib.sha256()

    def take(path: str, value: object) -> None:
        array = np.asarray(value)
        digest.update(f"{path}\0{array.dtype.str}\0{array.shape}\0".encode() + array.tobytes())

    with h5py.File(V1) as file:
        groups = {"/": file, "recipe": file["recipe"]}
        for group in ("classes", "samples", "state"):
            assert not file[group].attrs.keys()
        for path, group in sorted(groups.items()):
            for name in sorted(group.attrs):
                if name != "sha256":
                    take(f"{path}@{name}", group.attrs[name])
        datasets: dict[str, h5py.Dataset] = {}
        file.visititems(lambda n, item: datasets.update({n: item} if isinstance(item, h5py.Dataset) else {}))
        for name, dataset in sorted(datasets.items()):
            take(name, dataset[()])
        assert file.attrs["sha256"] == digest.hexdigest().encode()


def test_stamps_may_be_absent(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    crnr("build", "gallery")
    stamps = load_gallery(Path("gallery.h5")).stamps
    first = Path("gallery/ant/0.png").stat()
    assert (stamps[0].size, stamps[0].mtime_ns) == (first.st_size, first.st_mtime_ns)
    from dataclasses import replace

    from crnr_cli.gallery.file import save_gallery

    gallery = load_gallery(Path("gallery.h5"))
    save_gallery(replace(gallery, table=replace(gallery.table, stamps=[])), Path("bare.h5"))
    with h5py.File("bare.h5") as file:
        assert "size" not in file["samples"]
    assert load_gallery(Path("bare.h5")).stamps == []
    updated = crnr("build", "gallery", "-o", "bare.h5", "--update")
    assert updated.exit == 0, updated.err
    assert Path("bare.h5").read_bytes() == Path("gallery.h5").read_bytes()


def rehash(path: Path) -> None:
    """Give an altered gallery the right checksum, as an attacker would."""
    content = read_content(path)
    with h5py.File(path, "r+") as file:
        file.attrs["sha256"] = np.bytes_(content.compute_sha256())


ALTERATIONS = {
    "no method of that name": lambda f: f.attrs.modify("method", np.bytes_("magic")),
    "a parameter is missing": lambda f: f.attrs.__delitem__("lam"),
    "a parameter is absurd": lambda f: f.attrs.modify("mu", -1.0),
    "an unknown kind": lambda f: f["recipe"].attrs.modify("kind", np.bytes_("smells")),
    "sizes that differ": lambda f: f["recipe"].attrs.modify("n_inputs", 99),
    "a class too many": lambda f: (
        f.__delitem__("classes/names"),
        f.__setitem__("classes/names", np.array([b"a"] * 4)),
    ),
    "a class twice": lambda f: (
        f.__delitem__("classes/names"),
        f.__setitem__("classes/names", np.array([b"a", b"a", b"b"])),
    ),
    "a class that falls": lambda f: f["samples/class"].write_direct(np.array([2, 1, 0] * 5, dtype=np.int32)),
    "negative classes": lambda f: f["samples/class"].write_direct(np.full(15, -1, dtype=np.int32)),
    "no vectors": lambda f: f.__delitem__("samples/vectors"),
    "no state": lambda f: f.__delitem__("state"),
    "a state of another shape": lambda f: (
        f.__delitem__("state/H"),
        f.__setitem__("state/H", np.eye(3, dtype=np.float32)),
    ),
    "vectors of one dimension": lambda f: (
        f.__delitem__("samples/vectors"),
        f.__setitem__("samples/vectors", np.ones(15, dtype=np.float32)),
    ),
    "stamps of another length": lambda f: (
        f.__delitem__("samples/size"),
        f.__setitem__("samples/size", np.ones(3, dtype=np.int64)),
    ),
    "no recipe": lambda f: f.__delitem__("recipe"),
    "names that are numbers": lambda f: (
        f.__delitem__("samples/names"),
        f.__setitem__("samples/names", np.arange(15)),
    ),
    "vectors that are not finite": lambda f: f["samples/vectors"].write_direct(
        np.full((15, 6), np.nan, dtype=np.float32)
    ),
}


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS.keys())
def test_an_inconsistent_gallery_with_a_right_checksum_is_refused(crnr: Runner, alter: object) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz", "--factor", "dense")
    with h5py.File("gallery.h5", "r+") as file:
        alter(file)  # type: ignore[operator]
    rehash(Path("gallery.h5"))
    with pytest.raises(GalleryError, match=r"^gallery.h5: not a consistent gallery \(.*\); build it again$"):
        load_gallery(Path("gallery.h5"))


def test_vectors_of_whole_numbers_are_refused(crnr: Runner) -> None:
    """Separately: the state of procrc would give an answer for them."""
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz", "--method", "procrc")
    with h5py.File("gallery.h5", "r+") as file:
        shape = file["samples/vectors"].shape
        del file["samples/vectors"]
        file["samples/vectors"] = np.ones(shape, dtype=np.int32)
    rehash(Path("gallery.h5"))
    with pytest.raises(GalleryError, match=r"not a consistent gallery \(the vectors are of type int32\)"):
        load_gallery(Path("gallery.h5"))


def test_an_attribute_that_is_not_a_single_value_is_refused(crnr: Runner) -> None:
    shutil.copy(V1, "gallery.h5")
    with h5py.File("gallery.h5", "r+") as file:
        file.attrs["more"] = np.zeros(1000)
    with pytest.raises(
        GalleryError, match=r"^gallery.h5: an attribute is not a single plain value; build it again$"
    ):
        load_gallery(Path("gallery.h5"))


def test_a_name_that_is_not_text_is_refused(crnr: Runner) -> None:
    shutil.copy(V1, "gallery.h5")
    with h5py.File("gallery.h5", "r+") as file:
        h5py.h5g.create(file.id, b"caf\xe9")
    with pytest.raises(GalleryError, match=r"^gallery.h5: a name in the file is not text; build it again$"):
        load_gallery(Path("gallery.h5"))


def test_a_type_that_is_not_numbers_or_bytes_is_refused(crnr: Runner) -> None:
    shutil.copy(V1, "gallery.h5")
    with h5py.File("gallery.h5", "r+") as file:
        file["state/extra"] = "variable"
    with pytest.raises(GalleryError, match=r"^gallery.h5: state/extra is of type object; build it again$"):
        load_gallery(Path("gallery.h5"))


def test_more_data_than_the_file_holds_is_refused(crnr: Runner) -> None:
    shutil.copy(V1, "gallery.h5")
    with h5py.File("gallery.h5", "r+") as file:
        file.create_dataset("state/extra", (10**6,), "f8")  # declared, and never written
    with pytest.raises(
        GalleryError, match=r"^gallery.h5: state/extra declares more data than the file contains"
    ):
        load_gallery(Path("gallery.h5"))


@pytest.mark.parametrize(
    ("alteration", "reason"),
    [
        ("a class twice", "two classes have the same name"),
        ("negative classes", "examples and classes do not match"),
        ("names that are numbers", "the names are not text"),
        ("stamps of another length", "the arrays have different sizes"),
        ("sizes that differ", "the arrays have different sizes"),
        ("vectors that are not finite", "the stored state gives no residuals"),
    ],
)
def test_the_reason_why_a_gallery_is_inconsistent(crnr: Runner, alteration: str, reason: str) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz", "--factor", "dense")
    with h5py.File("gallery.h5", "r+") as file:
        ALTERATIONS[alteration](file)
    rehash(Path("gallery.h5"))
    with pytest.raises(GalleryError) as refused:
        load_gallery(Path("gallery.h5"))
    assert str(refused.value) == f"gallery.h5: not a consistent gallery ({reason}); build it again"


@pytest.mark.parametrize("name", ["names", "sha256"])
def test_columns_of_another_length_are_refused(crnr: Runner, name: str) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz")
    with h5py.File("gallery.h5", "r+") as file:
        shorter = file[f"samples/{name}"][:-1]
        del file[f"samples/{name}"]
        file[f"samples/{name}"] = shorter
    rehash(Path("gallery.h5"))
    with pytest.raises(GalleryError, match=r"\(the arrays have different sizes\); build it again$"):
        load_gallery(Path("gallery.h5"))


def _add_groups(count: int) -> Callable[[h5py.File], None]:
    def add(file: h5py.File) -> None:
        present = 1 + sum(isinstance(item, h5py.Group) for item in file.values())
        for number in range(count - present):
            file.create_group(f"more {number}")

    return add


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (_add_groups(100), ""),
        (_add_groups(101), "the file has more groups than any gallery"),
        (lambda file: file.create_group("a/b"), ""),
        (lambda file: file.create_group("a/b/c"), "a/b/c does not belong in a gallery"),
        (lambda file: file.__setitem__("x", h5py.SoftLink("/samples")), "x is a link"),
        (
            lambda file: file.create_dataset("x", data=np.zeros(100), compression="gzip"),
            "x is not stored as plain data",
        ),
        (lambda file: file.create_dataset("x", data=np.zeros(3, complex)), "x is of type complex128"),
    ],
)
def test_hostile_files_are_refused_with_the_reason(
    crnr: Runner, tamper: Callable[[h5py.File], Any], reason: str
) -> None:
    shutil.copy(V1, "gallery.h5")
    with h5py.File("gallery.h5", "r+") as file:
        tamper(file)
    if reason:
        with pytest.raises(GalleryError) as refused:
            read_content(Path("gallery.h5"))
        assert str(refused.value) == f"gallery.h5: {reason}; build it again"
    else:
        assert "samples/vectors" in read_content(Path("gallery.h5")).arrays


def test_files_that_are_no_galleries_are_refused_with_the_reason(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(name: str) -> str:
        with pytest.raises(CrnrError) as refused:
            read_content(Path(name))
        return str(refused.value)

    Path("text.h5").write_text("hello")
    assert message("text.h5") == "text.h5: not a gallery; create one with `crnr build`"
    h5py.File("other.h5", "w").close()
    assert message("other.h5") == "other.h5: not a gallery; create one with `crnr build`"
    make_features(crnr.here / "x.npz")
    assert crnr("extract", "x.npz", "-o", "x.h5", "-q").exit == 0
    assert message("x.h5") == (
        "x.h5: contains features, written by `crnr extract`, and is not a gallery; build one from it with "
        "`crnr build x.h5`"
    )
    shutil.copy(V1, "gallery.h5")
    assert [is_gallery(Path(name)) for name in ("gallery.h5", "x.h5", "text.h5", "none.h5", ".")] == [
        *(True, False, False, False, False)
    ]
    size = Path("gallery.h5").stat().st_size
    monkeypatch.setattr(memory, "free_bytes", lambda: size)
    read_content(Path("gallery.h5"))
    monkeypatch.setattr(memory, "free_bytes", lambda: size - 1)
    assert message("gallery.h5") == (
        f"gallery.h5: the gallery needs {memory.format_size(size)} of memory, but "
        f"{memory.format_size(size - 1)} are free; classify on a larger machine, or build the gallery with "
        "--neighbors or --pca"
    )
    monkeypatch.setattr(memory, "free_bytes", lambda: None)
    with h5py.File("gallery.h5", "r+") as file:
        file.attrs["version"] = 99
    assert message("gallery.h5") == (
        f"gallery.h5: gallery format 99, but this crnr ({__version__}) reads up to 5; please upgrade crnr"
    )
