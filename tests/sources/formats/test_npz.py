"""Reading npz: large arrays by rows, with little memory, and damaged ones of any compression."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.sources.formats import Keys, numpy_files
from crnr_cli.sources.tables import FeatureFile
from crnr_cli.system import memory

VALUES = np.random.default_rng(0).random((50, 4))
COMPRESSIONS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}


def save(path: Path, values: Array, compression: str) -> None:
    data = io.BytesIO()
    np.save(data, values)
    with zipfile.ZipFile(path, "w", COMPRESSIONS[compression]) as archive:
        archive.writestr("features.npy", data.getvalue())


@pytest.fixture(params=[numpy_files._READ_WHOLE, 0], ids=["whole", "by rows"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_files, "_READ_WHOLE", request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_rows_are_read_in_any_order(tmp_path: Path, compression: str, order: str) -> None:
    save(tmp_path / "x.npz", np.asarray(VALUES, order=order), compression)  # type: ignore[call-overload]
    file = FeatureFile.open(tmp_path / "x.npz", Keys())
    for start, stop in ((0, 20), (20, 50), (30, 31), (5, 5), (7, 50), (0, 50)):
        np.testing.assert_array_equal(file.read_rows(start, stop), VALUES[start:stop])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_damaged_array_is_refused(tmp_path: Path, compression: str) -> None:
    save(tmp_path / "x.npz", np.random.default_rng(0).random((4000, 16)), compression)
    data = bytearray((tmp_path / "x.npz").read_bytes())
    for place in range(200_000, 200_200):
        data[place] ^= 0x5A
    (tmp_path / "x.npz").write_bytes(data)

    def read() -> None:
        file = FeatureFile.open(tmp_path / "x.npz", Keys())
        for start in range(0, 4000, 1000):
            file.read_rows(start, start + 1000)

    with pytest.raises(DataError, match=r"x\.npz: (cannot read features\.npy|not a readable npz file) \("):
        read()


def test_npz_larger_than_memory_is_refused_before_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here in the order of Fortran, which cannot be read by rows."""
    save(tmp_path / "x.npz", np.asfortranarray(np.zeros((1000, 100))), "deflate")
    file = FeatureFile.open(tmp_path / "x.npz", Keys())
    monkeypatch.setattr(memory, "free_bytes", lambda: 1_000_000)
    with pytest.raises(
        DataError, match=r"x\.npz: features\.npy needs 1\.6 MB of memory, but 1\.0 MB are free; save "
    ):
        file.read_rows(0, 10)


@pytest.mark.parametrize("what", ["features", "labels"])
def test_more_samples_than_can_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A row of one byte takes a hundred times as much as soon as it has a name."""
    arrays = {"features": np.zeros((100_000, 1), np.uint8), "labels": np.zeros(100_000, np.uint8)}
    if what == "features":
        del arrays["labels"]
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    monkeypatch.setattr(memory, "free_bytes", lambda: 1_000_000)
    with pytest.raises(
        DataError, match=r"x\.npz: a list of 100000 .* needs .* of memory, but 1\.0 MB are free"
    ):
        FeatureFile.open(tmp_path / "x.npz", Keys())


@pytest.mark.slow
def test_a_large_array_takes_little_memory(tmp_path: Path) -> None:
    """Half a gigabyte of zeros in half a megabyte, read in a process of its own to see how much it takes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (2**16, 2**10)}
    )
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("features.npy", "w", force_zip64=True) as file,
    ):
        file.write(header.getvalue())
        for _ in range(512):
            file.write(bytes(2**20))
    assert (tmp_path / "x.npz").stat().st_size < 2**20
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from crnr_cli.sources.base import Keys\n"
        "from crnr_cli.sources.tables import FeatureFile\n"
        "file = FeatureFile.open(Path(sys.argv[1]), Keys())\n"
        "for start in range(0, 2**16, 1024):\n"
        "    assert not file.read_rows(start, start + 1024).any()\n"
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.npz")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 200 * 1024  # kB
