"""Writing HDF5: a failing disk is an OSError, and never a crash inside HDF5."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.errors import DataError
from crnr_cli.gallery import hdf5_output
from crnr_cli.gallery.hdf5_output import PlacedRows, to_attributes, written_hdf5
from crnr_cli.system import memory


class FullDisk(io.BytesIO):
    """Fails the N-th write or truncation, and takes no more than 100 bytes at once."""

    def __init__(self, fail_at: int) -> None:
        super().__init__()
        self.left = fail_at

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, "full")

    def write(self, data: object) -> int:
        self._count()
        return super().write(data[:100])  # type: ignore[index]

    def truncate(self, size: int | None = None) -> int:
        self._count()
        return super().truncate(size)


def test_hdf5_never_sees_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at = 1
    while True:
        disk = FullDisk(fail_at)
        monkeypatch.setattr(Path, "open", lambda path, mode, buffering, disk=disk: disk)
        try:
            with written_hdf5(tmp_path / "x.h5") as file:
                file["a"] = np.arange(1000)
        except OSError as e:
            assert e.errno == errno.ENOSPC  # noqa: PT017, it need not be raised
            fail_at += 1
        else:
            break
    assert fail_at > 80  # 8000 bytes, by hundreds


def test_an_error_of_ours_comes_through_hdf5(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), written_hdf5(tmp_path / "x.h5"):
        raise ZeroDivisionError


def test_consecutive_rows_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[tuple[int, int]] = []
    monkeypatch.setattr(
        hdf5_output, "write_at", lambda handle, data, offset: writes.append((len(data), offset))
    )
    placed = PlacedRows(1, 1000, (20, 2), np.dtype(np.float64))
    placed.write(np.array([5, 3, 4, 9, 11, 10, 0]), np.zeros((7, 2)))
    assert writes == [(16, 1000), (3 * 16, 1000 + 3 * 16), (3 * 16, 1000 + 9 * 16)]


def test_rows_are_read_where_they_cannot_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5_output, "MAY_REPLACE_OPEN", False)
    with (tmp_path / "x").open("wb+") as file:
        file.write(b"head" + np.arange(6, dtype=np.float64).tobytes())
        file.flush()
        placed = PlacedRows(file.fileno(), 4, (2, 3), np.dtype(np.float64))
        monkeypatch.setattr(memory, "free_bytes", lambda: 48)
        assert placed.map_rows().tolist() == [[0, 1, 2], [3, 4, 5]]
        monkeypatch.setattr(memory, "free_bytes", lambda: 47)
        with pytest.raises(DataError) as refused:
            placed.map_rows()
    assert str(refused.value) == (
        "a gallery of 2 vectors needs 48.0 bytes of memory, but 47.0 bytes are free; use --pca or fewer "
        "examples"
    )


def test_the_same_content_is_the_same_bytes_in_files_and_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.h5").open("wb+") as buffered, written_hdf5(buffered) as content:
        content["x"] = np.arange(5)
    memory_file = io.BytesIO()
    with written_hdf5(memory_file) as content:
        content["x"] = np.arange(5)
    with written_hdf5(tmp_path / "b.h5") as content:
        content["x"] = np.arange(5)
    found = {(tmp_path / "a.h5").read_bytes(), (tmp_path / "b.h5").read_bytes(), memory_file.getvalue()}
    assert len(found) == 1


def test_text_becomes_bytes_of_fixed_length() -> None:
    found = to_attributes({"a": "text", "b": 3, "c": 0.5})
    assert found == {"a": b"text", "b": 3, "c": 0.5}
    assert isinstance(found["a"], np.bytes_)
