"""Feature files: their rows as plain values, their arrays, and caches of images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from crnr_cli.arrays import Stamp
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.extraction import claimed_features, split_by_cache
from crnr_cli.gallery.features_file import (
    FeatureRows,
    has_content,
    open_extracted_file,
    require_ending,
    write_features,
)
from crnr_cli.images.pool import DecoderPool
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.sources.walk import list_named_images
from helpers.samples import make_images

ROWS = FeatureRows(
    names=["a", "b", "c"],
    candidates=[("x", "y"), ("x",), ()],
    named=["", "n", ""],
    hashes=[digit * 64 for digit in "123"],
    stamps=[Stamp(1, 2), Stamp(3, -4), Stamp(5, 2**63 - 1)],
    scales=[1.0, 0.5, 1.0],
    dates=["", "2026-07-01T05:06:07+02:00", ""],
)


def written(path: Path, rows: FeatureRows = ROWS, width: int = 2) -> np.ndarray:
    values = np.arange(len(rows) * width, dtype=np.float64).reshape(len(rows), width)
    with path.open("wb+") as file:
        write_features(file, Recipe(width), rows, [values[:1], values[1:]], np.dtype(np.float64))
    return values


def test_rows_survive_json() -> None:
    assert FeatureRows.from_plain(json.loads(json.dumps(ROWS.as_plain()))) == ROWS


@pytest.mark.parametrize(
    "wrong",
    [
        {"names": "abc"},
        {"names": [1, 2, 3]},
        {"names": ["a", "b", "\ud800"]},
        {"names": ["a", "b"]},
        {"scales": [1, 1, "x"]},
        {"stamps": [[1], [2], [3]]},
        {"stamps": [[1, 2], [3, 4], [5, 2**63]]},
        {"stamps": [[1, 2], [3, 4], [5, -(2**63) - 1]]},
        {"hashes": None},
    ],
)
def test_rows_from_invalid_json_are_refused(wrong: dict[str, Any]) -> None:
    plain = json.loads(json.dumps(ROWS.as_plain()))
    with pytest.raises((ValueError, LookupError, TypeError)):
        FeatureRows.from_plain(plain | wrong)
    del plain[next(iter(wrong))]
    with pytest.raises(LookupError):
        FeatureRows.from_plain(plain)


def test_times_as_far_as_int64_goes_are_read() -> None:
    plain = json.loads(json.dumps(ROWS.as_plain())) | {"stamps": [[0, 2**63 - 1], [0, -(2**63)], [0, 0]]}
    assert FeatureRows.from_plain(plain).stamps[1] == Stamp(0, -(2**63))


def test_a_feature_file_has_the_documented_arrays(tmp_path: Path) -> None:
    values = written(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert file.attrs["format"] == b"crnr-features"
        np.testing.assert_array_equal(file["features"][()], values)
        stored = {name: file[name][()].tolist() for name in file if name not in ("features", "recipe")}
        assert file["scale"].dtype == np.float64
        assert file["size"].dtype == file["mtime_ns"].dtype == np.int64
    assert stored == {
        "paths": [b"a", b"b", b"c"],
        "sha256": [digit * 64 for digit in (b"1", b"2", b"3")],
        "size": [1, 3, 5],
        "mtime_ns": [2, -4, 2**63 - 1],
        "labels": [b"x", b"x", b""],
        "folders": [[b"y"], [b""], [b""]],
        "named_folder": [b"", b"n", b""],
        "scale": [1.0, 0.5, 1.0],
        "date": [b"", b"2026-07-01T05:06:07+02:00", b""],
    }
    plain = replace(ROWS, candidates=[()] * 3, named=[""] * 3, scales=[1.0] * 3, dates=[""] * 3)
    written(tmp_path / "y.h5", plain)
    with h5py.File(tmp_path / "y.h5") as file:
        assert set(file) == {"paths", "sha256", "size", "mtime_ns", "features", "recipe"}
    assert FeatureRows.of(open_extracted_file(tmp_path / "y.h5")) == plain


def test_names_of_feature_files_end_in_h5(tmp_path: Path) -> None:
    for name in ("x.h5", "x.hdf5", "X.H5"):
        require_ending(Path(name))
    with pytest.raises(UsageError) as refused:
        require_ending(Path("x.npz"))
    assert str(refused.value) == (
        "x.npz: a feature file must be named .h5; give a name that ends in .h5 or .hdf5"
    )
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["features"] = np.eye(2)
    with pytest.raises(DataError) as other:
        open_extracted_file(tmp_path / "x.h5")
    assert str(other.value) == f"{tmp_path}/x.h5: not written by `crnr extract`; give another file"


def test_a_file_of_no_bytes_has_no_content(tmp_path: Path) -> None:
    assert not has_content(tmp_path / "x.h5")
    (tmp_path / "x.h5").touch()
    assert not has_content(tmp_path / "x.h5")
    (tmp_path / "x.h5").write_bytes(b"1")
    assert has_content(tmp_path / "x.h5")


@pytest.mark.parametrize("rows", [b"", b"values"])
def test_extracted_values_are_kept_if_there_are_some(tmp_path: Path, rows: bytes) -> None:
    def fail() -> None:
        with claimed_features(tmp_path / "x.h5") as claim:
            with claim.open_rows() as file:
                file.write(rows)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    left = {path.name for path in tmp_path.iterdir()}
    assert ("x.h5.crnr-rows" in left) == bool(rows)
    assert "x.h5" not in left


def test_only_unchanged_images_are_taken_from_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_images(tmp_path / "photos", classes=("ant",), per_class=4)
    names = [f"photos/ant/{i}.png" for i in range(4)] + ["photos/none.png"]
    source = list_named_images(names)
    stamps = [file.stamp for file in source.files]
    recipe = Recipe.for_images(RawPixels((2, 1), False))
    rows = FeatureRows(
        names=[names[3], names[1], names[0]],
        candidates=[("ant",)] * 3,
        named=[""] * 3,
        hashes=[digit * 64 for digit in "310"],
        stamps=[stamps[3], Stamp(stamps[1].size, stamps[1].mtime_ns + 1), stamps[0]],
        scales=[1.0, 1.0, 0.5],
    )
    with Path("c.h5").open("wb+") as file:
        write_features(file, recipe, rows, [np.array([[3.0, 3], [1, 1], [0, 9]])], np.dtype(np.float32))
    is_known, cached, others = split_by_cache(source, recipe, Path("c.h5"))
    assert is_known.tolist() == [True, False, False, True, False]
    assert cached.names() == [names[0], names[3]]
    assert others.names() == [names[1], names[2], names[4]]
    assert (cached.n_features, len(cached)) == (2, 2)
    (batch,) = cached.read_batches([(0, 2)], None, DecoderPool(1))
    assert batch.values.tolist() == [[0, 9], [3, 3]]
    assert (batch.hashes, batch.scales, batch.end) == (["0" * 64, "3" * 64], [0.5, 1.0], 2)
    assert batch.stamps == [stamps[0], stamps[3]]
    changed = replace(cached, files=source.files)
    with pytest.raises(DataError) as refused:
        list(changed.read_batches([(0, 2)], None, DecoderPool(1)))
    assert str(refused.value) == "c.h5: was changed meanwhile; run the command again"
