"""The gallery file: a saved gallery loads unchanged, a changed one does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from crnr_cli.errors import DataError, GalleryError, UsageError
from crnr_cli.gallery import file as file_format
from crnr_cli.gallery.file import (
    GallerySummary,
    load_gallery,
    refuse_other_ending,
    save_gallery,
    stored_names,
)
from crnr_cli.gallery.gallery import FittedGallery, SampleTable, describe
from crnr_cli.gallery.hdf5_output import to_attributes
from crnr_cli.methods import Samples, make_method
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Pca

NAMES = ["a,b", "caf\udce9", "Ö\n"]


def small_gallery(factor: str = "dense", dtype: str = "float32") -> FittedGallery:
    vectors = np.random.default_rng(0).standard_normal((9, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    samples = Samples.of(vectors.astype(dtype), np.repeat([0, 1, 2], 3))
    method = make_method("crnr", {"lam": 0.1, "factor": factor})
    return FittedGallery(
        samples=samples,
        table=SampleTable(
            names=[f"{name}/{k}.png" for name in NAMES for k in range(3)],
            labels=[name for name in NAMES for _ in range(3)],
            hashes=["ab" * 32] * 9,
        ),
        classes=NAMES,
        recipe=Recipe(7, steps=(Pca(5, np.random.default_rng(1).random((7, 5))),)),
        method=method,
        state=method.fit(samples),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_gallery(small_gallery(), tmp_path / "g.h5")
    return tmp_path / "g.h5"


@pytest.mark.parametrize("factor", ["dense", "low-rank"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_saved_gallery_loads_unchanged(tmp_path: Path, factor: str, dtype: str) -> None:
    saved = small_gallery(factor, dtype)
    save_gallery(saved, tmp_path / "g.h5")
    loaded = load_gallery(tmp_path / "g.h5")
    queries = saved.samples.vectors[::2] * 0.5 + saved.samples.vectors[1:6] * 0.5
    assert (loaded.residuals(queries) == saved.residuals(queries)).all()
    assert describe(loaded) == describe(saved)
    assert (loaded.table, loaded.classes) == (saved.table, saved.classes)
    (found,), (stored,) = loaded.recipe.steps, saved.recipe.steps
    assert isinstance(found, Pca)
    assert isinstance(stored, Pca)
    np.testing.assert_array_equal(found.axes, stored.axes)


def test_the_same_gallery_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        save_gallery(small_gallery(), tmp_path / name)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_missing_gallery_error_names_build(tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match=r"g\.h5: no such gallery; create it with `crnr build"):
        load_gallery(tmp_path / "g.h5")


def test_foreign_hdf5_is_refused(tmp_path: Path) -> None:
    h5py.File(tmp_path / "x.h5", "w").close()
    with pytest.raises(GalleryError, match=r"x\.h5: not a gallery; create one with `crnr build`"):
        load_gallery(tmp_path / "x.h5")


def test_load_gallery_refuses_files_other_than_hdf5(tmp_path: Path) -> None:
    (tmp_path / "x.h5").write_text("hello")
    with pytest.raises(GalleryError, match=r"x\.h5: not a gallery; create one with `crnr build`"):
        load_gallery(tmp_path / "x.h5")


def test_a_newer_format_is_refused_by_name(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file.attrs["version"] = 99
    with pytest.raises(
        GalleryError, match=r"gallery format 99, but this crnr .* reads up to 5; please upgrade"
    ):
        load_gallery(path)


def test_load_gallery_finds_a_changed_number(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["samples/vectors"][4, 2] += 1e-6
    with pytest.raises(GalleryError, match="damaged"):
        load_gallery(path)


def test_load_gallery_finds_a_changed_parameter(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file.attrs["lam"] = 0.2
    with pytest.raises(GalleryError, match="damaged"):
        load_gallery(path)


def test_a_gallery_cut_short_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(GalleryError, match=r"g\.h5"):
        load_gallery(path)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"iterations": 10**9}, "iterations must be a whole number from 1 to 1000000"),
        ({"classes": [b"", b"b", b"c"]}, "not names in ascending order"),
        ({"classes": [b"a", b"b", b"unknown"]}, "not names in ascending order"),
        ({"classes": [b"c", b"b", b"a"]}, "not names in ascending order"),
        ({"recipe": {"n_inputs": 8}}, "for 8 features"),
        ({"recipe": {"kind": "pictures", "width": -1, "height": -7}}, "invalid image size -1x-7"),
        ({"recipe": {"kind": "pictures", "width": 0, "height": 0}}, "invalid image size 0x0"),
        ({"recipe": {"kind": "pictures", "width": 5, "height": 5}}, "different sizes"),
        ({"recipe": {"kind": "pictures", "width": 7, "height": 1, "color": True}}, "different sizes"),
    ],
)
def test_a_lie_with_a_valid_checksum_is_refused(path: Path, lie: dict[str, Any], words: str) -> None:
    content = file_format._to_content(small_gallery())
    if "classes" in lie:
        content.arrays["classes/names"] = np.array(lie.pop("classes"))
    content.attributes["recipe"].update(to_attributes(lie.pop("recipe", {})))
    content.attributes["/"].update(lie)
    content.attributes["/"]["sha256"] = np.bytes_(content.compute_sha256())
    with h5py.File(path, "w") as file:
        for name, array in content.arrays.items():
            file.create_dataset(name, data=array)
        for group, values in content.attributes.items():
            file.require_group(group).attrs.update(values)
    with pytest.raises(GalleryError, match=words):
        load_gallery(path)


def test_many_iterations_are_not_run_to_check_a_gallery(path: Path) -> None:
    gallery = small_gallery()
    patient = make_method("crnr", {"lam": 0.1, "factor": "dense", "iterations": 10**6})
    save_gallery(replace(gallery, method=patient), path)
    assert load_gallery(path).method == patient  # within a moment


def _soft_link(file: h5py.File) -> None:
    file["state/extra"] = h5py.SoftLink("/samples/vectors")


def _external_link(file: h5py.File) -> None:
    file["state/extra"] = h5py.ExternalLink("other.h5", "/x")


def _filtered(file: h5py.File) -> None:
    file.create_dataset("state/extra", data=np.zeros(100), compression="gzip")


def _huge(file: h5py.File) -> None:
    file.create_dataset("state/extra", shape=(2**40,), dtype="f8")


def _objects(file: h5py.File) -> None:
    file.create_dataset("state/extra", data=["a", "b"], dtype=h5py.string_dtype())


def _deep(file: h5py.File) -> None:
    file.create_group("a/b/c/d/e")


def _many_links(file: h5py.File) -> None:
    """200 x 200 groups in a few kilobytes."""
    inner = file.create_group("a").create_group("0")
    for i in range(200):
        inner[str(i)] = file["recipe"]
        file[f"a/link {i}"] = inner
    for i in range(200):
        file[f"b{i}"] = file["a"]


@pytest.mark.parametrize(
    "tamper", [_soft_link, _external_link, _filtered, _huge, _objects, _deep, _many_links]
)
def test_hostile_structure_is_refused_before_it_is_read(
    path: Path, tamper: Callable[[h5py.File], None]
) -> None:
    with h5py.File(path, "r+") as file:
        tamper(file)
    with pytest.raises(GalleryError, match=r"is a link|not stored as plain|more data|of type|not belong"):
        load_gallery(path)


def test_a_gallery_that_gives_no_answer_is_not_written(tmp_path: Path) -> None:
    good = small_gallery("low-rank")
    broken = replace(good, state=good.state | {"W": np.full_like(good.state["W"], np.inf)})
    with pytest.raises(UsageError, match="crnr gives no finite residuals in float32 with mu"):
        save_gallery(broken, tmp_path / "g.h5")
    assert list(tmp_path.iterdir()) == []


def test_parameters_that_give_no_answer_are_named(tmp_path: Path) -> None:
    good = small_gallery()
    broken = replace(good, state=good.state | {"H": np.full_like(good.state["H"], np.nan)})
    with pytest.raises(UsageError) as refused:
        save_gallery(broken, tmp_path / "g.h5")
    given = ", ".join(f"{name} {value}" for name, value in good.method.parameters.items())
    assert str(refused.value) == (
        f"method crnr gives no finite residuals in float32 with {given}; choose less extreme parameters, or "
        "float64"
    )


def test_a_summary_has_the_settings_of_the_method_and_the_pipeline(path: Path) -> None:
    """Not what describes the file itself."""
    with h5py.File(path) as file:
        expected = {**file.attrs, **file["recipe"].attrs}
    for name in ("format", "version", "crnr_version", "sha256"):
        del expected[name]
    plain = {
        name: value.decode() if isinstance(value, bytes) else value.item() for name, value in expected.items()
    }
    read, made = GallerySummary.read(path), GallerySummary.of(small_gallery())
    for summary in (read, made):
        assert (summary.n_classes, list(summary.names)) == (3, list(small_gallery().names))
        assert summary.settings == plain | {"power": 1.0}  # not stored if it is off
    assert plain["method"] == "crnr"
    assert (plain["kind"], plain["n_inputs"], plain["lam"]) == ("features", 7, 0.1)


def test_the_names_in_a_gallery_are_listed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored_names(path, "classes") == NAMES
    assert stored_names(path, "samples") == list(small_gallery().names)
    with h5py.File(path) as file:
        size = file["samples/names"].nbytes
    monkeypatch.setattr(file_format, "_MAX_BYTES", size)
    assert len(stored_names(path, "samples")) == 9
    monkeypatch.setattr(file_format, "_MAX_BYTES", size - 1)
    assert stored_names(path, "samples") == []
    assert stored_names(tmp_path / "none.h5", "classes") == []
    for number, wrong in enumerate([[1, 2], [[b"a"], [b"b"]]]):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["classes/names"] = wrong
        assert stored_names(tmp_path / f"{number}.h5", "classes") == []


@pytest.mark.parametrize(
    "ending",
    [
        *("csv", "txt", "jsonl", "npy", "npz", "mat", "parquet", "html", "png", "jpg", "jpeg"),
        *("CSV", "Npz"),
    ],
)
def test_a_gallery_is_not_named_like_another_file(ending: str) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_other_ending(Path(f"g.{ending}"))
    assert str(refused.value) == (f"g.{ending}: a gallery is an HDF5 file; give it a name that ends in .h5")
    refuse_other_ending(Path(f"{ending}.h5"))


def test_messages_on_galleries_that_cannot_be_loaded(path: Path, tmp_path: Path) -> None:
    def message(place: Path) -> str:
        with pytest.raises(GalleryError) as refused:
            load_gallery(place)
        return str(refused.value).replace(f"{tmp_path}/", "")

    assert message(tmp_path / "n.h5") == "n.h5: no such gallery; create it with `crnr build FOLDER -o n.h5`"
    (tmp_path / "f.h5").mkdir()
    assert message(tmp_path / "f.h5") == "f.h5: not a regular file; give a gallery that `crnr build` wrote"
    with h5py.File(path, "r+") as file:
        file.attrs["lam"] = 0.2
    assert message(path) == "g.h5: damaged (the checksum does not match); restore it or build it again"


def test_classes_of_one_name_are_not_written(tmp_path: Path) -> None:
    good = small_gallery()
    with pytest.raises(DataError) as refused:
        save_gallery(replace(good, classes=["a", "a\0", "b"]), tmp_path / "g.h5")
    assert str(refused.value) == (
        "two classes would have the same name in the gallery; give them different names"
    )


@pytest.mark.parametrize("code", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
def test_types_of_labels_are_stored_as_numpy_names_them(path: Path, code: str) -> None:
    name = np.dtype(code).name
    save_gallery(replace(small_gallery(), label_type=name), path)
    assert load_gallery(path).label_type == name
    with h5py.File(path) as file:
        assert file.attrs["label_type"] == name.encode()


def test_labels_of_another_type_are_refused(path: Path) -> None:
    save_gallery(replace(small_gallery(), label_type="complex64"), path)
    with pytest.raises(GalleryError) as refused:
        load_gallery(path)
    assert str(refused.value) == (
        f"{path}: not a consistent gallery (the labels are of an unknown type, complex64); build it again"
    )


def test_labels_that_are_text_have_no_type(path: Path) -> None:
    with h5py.File(path) as file:
        assert "label_type" not in file.attrs
    assert load_gallery(path).label_type == ""
