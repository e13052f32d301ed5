"""Reading HDF5: texts, what is not a dataset, and limits."""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from crnr_cli.errors import DataError
from crnr_cli.sources.formats import Refused, hdf5
from crnr_cli.sources.formats import hdf5_text_process as text_process
from helpers.paths import DATA
from helpers.runner import Outcome, Runner, read_rows


def test_text_of_variable_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["labels"] = ["a", "caf\u00e9", ""]
        file["more/labels"] = np.array([b"\xe9", b"b"], dtype=h5py.string_dtype())
    found = hdf5.open_datasets(path)
    assert np.asarray(found["labels"]).tolist() == ["a", "caf\u00e9", ""]
    assert np.asarray(found["more/labels"]).tolist() == ["\udce9", "b"]
    monkeypatch.setattr(hdf5, "CHILD_SECONDS", 0)
    with pytest.raises(DataError, match="the text in labels cannot be read; write it again, with a fixed"):
        np.asarray(found["labels"])


def test_the_process_that_reads_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here in this process, to see the messages."""
    resource = pytest.importorskip("resource")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["labels"] = ["a", "b"]
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limit: limits.append((what, limit[0])))
    monkeypatch.setattr(sys, "argv", ["text", str(tmp_path / "x.h5"), "labels"])
    text_process.print_texts()
    assert json.loads(capsys.readouterr().out) == ["a", "b"]
    assert limits[0] == (resource.RLIMIT_AS, 2**30 + 16 * (tmp_path / "x.h5").stat().st_size)
    assert [what for what, _ in limits[1:]] == [resource.RLIMIT_CPU, resource.RLIMIT_CPU]


def test_other_objects_in_an_hdf5_file_are_ignored(tmp_path: Path) -> None:
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
    monkeypatch.setattr(hdf5, "_MAX_DATASETS", 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in "abcd":
            file[name] = 1
    with pytest.raises(DataError, match="more than 3 arrays"):
        hdf5.open_datasets(tmp_path / "x.h5")


def test_groups_that_contain_each_other_many_times(tmp_path: Path) -> None:
    """Seven levels of groups with 40 names for the next one each: a small file with 40**7 ways through it."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        groups = [file.create_group(f"level{i}") for i in range(8)]
        for upper, lower in pairwise(groups):
            for i in range(40):
                upper[f"{i}"] = lower
        file["features"] = np.eye(3)
    with pytest.raises(DataError, match="more than 10000 arrays, or 20000 groups and links"):
        hdf5.open_datasets(tmp_path / "x.h5")


def test_many_files_are_not_all_open_at_once(crnr: Runner) -> None:
    for i in range(30):
        with h5py.File(crnr.here / f"{i:02}.h5", "w") as file:
            file["features"], file["labels"] = np.eye(4)[[i % 3, 3]] + i, np.array([f"c{i % 3}", "d"], "S2")
    names = " ".join(f"{i:02}.h5" for i in range(30))
    outcome = crnr.bash(f"ulimit -n 40; crnr build {names} -q; crnr classify {names} -o out.csv -q")
    assert outcome == Outcome(0, "", "")
    assert len(read_rows(Path("out.csv"))) == 60


def test_a_file_that_changes_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (1.0, 2.0):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["features"] = np.full((3, 3), value)
        if value == 1:
            dataset = hdf5.open_datasets(tmp_path / "x.h5")["features"]
    os.utime(tmp_path / "x.h5", (1, 1))
    with pytest.raises(DataError, match="was changed while it was being read; run the command again"):
        dataset[0:2]


# What a slow machine needs to start a process, which is no work of the process.
SLOW_START = """
import sys, time
if "crnr_cli.sources.formats.hdf5_text_process" in " ".join(sys.orig_argv):
    time.sleep(5)
"""


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param("ulimit -v 1000000", id="less memory"),
        pytest.param("export PYTHONPATH=slow", id="a slow machine", marks=pytest.mark.slow),
    ],
)
def test_text_of_variable_length_is_read_on_a_weak_machine(crnr: Runner, limits: str) -> None:
    with h5py.File("x.h5", "w") as file:
        file["features"], file["labels"] = np.eye(3), ["a", "b", "c"]
    Path("slow").mkdir()
    Path("slow/sitecustomize.py").write_text(SLOW_START)
    # With more threads, a process reserves more address space when it starts.
    outcome = crnr.bash(f"export OPENBLAS_NUM_THREADS=1; {limits}; crnr build x.h5 -j 1 -q")
    assert outcome == Outcome(0, "", "")


def test_a_gallery_is_not_features(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a gallery, not a feature file"):
        hdf5.open_datasets(DATA / "gallery-v1.h5")


@pytest.mark.parametrize(
    "filters",
    [
        {"compression": "gzip"},
        {"compression": "lzf"},
        {"shuffle": True},
        {"fletcher32": True},
        {"compression": "lzf", "fletcher32": True},
    ],
)
def test_the_shortest_chunks_are_read(tmp_path: Path, filters: dict[str, Any]) -> None:
    values = np.arange(4, dtype=np.uint8).reshape(4, 1)
    with h5py.File(path := tmp_path / "tiny.h5", "w") as file:
        file.create_dataset("features", data=values, chunks=(1, 1), **filters)
    np.testing.assert_array_equal(hdf5.open_datasets(path)["features"][:], values)


def test_a_chunk_without_its_checksum_is_refused(tmp_path: Path) -> None:
    """HDF5 crashes on it."""
    with h5py.File(path := tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("features", (4, 1), "u1", chunks=(1, 1), fletcher32=True)
        for row in range(4):
            made.id.write_direct_chunk((row, 0), bytes(5 if row else 2))
    refused = hdf5.open_datasets(path)["features"]
    assert isinstance(refused, Refused)
    assert refused.why == "has a damaged chunk; write the file again"
