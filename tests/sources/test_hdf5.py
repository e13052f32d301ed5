"""Reading HDF5: texts, what is not a dataset, and limits."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.errors import DataError
from crnr_cli.sources import hdf5
from crnr_cli.sources import hdf5_text_process as text_process
from helpers.paths import DATA


def test_text_of_variable_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["labels"] = ["a", "caf\u00e9", ""]
        file["more/labels"] = np.array([b"\xe9", b"b"], dtype=h5py.string_dtype())
    found = hdf5.open_datasets(path)
    assert np.asarray(found["labels"]).tolist() == ["a", "caf\u00e9", ""]
    assert np.asarray(found["more/labels"]).tolist() == ["\udce9", "b"]
    monkeypatch.setattr(hdf5, "SECONDS_TO_START", 0)
    with pytest.raises(DataError, match="the text in labels cannot be read; write it again, with a fixed"):
        np.asarray(found["labels"])


def test_the_process_that_reads_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here in this process, to see what is said."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["labels"] = ["a", "b"]
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limit: limits.append(limit))
    monkeypatch.setattr(sys, "argv", ["text", str(tmp_path / "x.h5"), "labels"])
    text_process.main()
    assert json.loads(capsys.readouterr().out) == ["a", "b"]
    assert limits[0][0] == 2**30 + 16 * (tmp_path / "x.h5").stat().st_size


def test_what_else_is_in_an_hdf5_file(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["type"] = np.dtype("f4")  # a named type is neither group nor dataset
        file.attrs["format"] = np.zeros(3)
        file["x"] = [1.0]
    assert list(hdf5.open_datasets(path)) == ["x"]
    path.write_text("no HDF5")
    with pytest.raises(DataError, match=r"x.h5: not a readable HDF5 file \("):
        hdf5.open_datasets(path)


def test_too_many_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "_MAX_ITEMS", 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in "abcd":
            file[name] = 1
    with pytest.raises(DataError, match="more than 3 datasets"):
        hdf5.open_datasets(tmp_path / "x.h5")


def test_a_gallery_is_not_features(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a gallery, not a feature file"):
        hdf5.open_datasets(DATA / "gallery-v1.h5")
