"""Writing HDF5: a failing disk is an OSError, and never a crash inside HDF5."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.gallery.hdf5_output import written_hdf5


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
