"""Damaged and hostile files: refused with a message, or read unchanged."""

from __future__ import annotations

import ast
import io
import math
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image
from scipy.io import savemat

from helpers.mutations import mutated
from helpers.paths import TESTS
from helpers.runner import Runner, helper_command, read_rows
from helpers.samples import draw_image, make_features, make_images

FORMATS = ("jpg", "png", "gif", "bmp", "tif", "webp", "pgm", "heic", "avif")


def make_gallery(path: Path) -> None:
    make_features(path.parent / "source.npz")
    assert Runner(path.parent)("build", "source.npz", "-o", path.name, "-q").exit == 0


def make_hdf5(path: Path, labels: object = np.array([b"a", b"b", b"c"] * 4), **storage: object) -> None:
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=random.random((12, 5)), **storage)
        file["labels"] = labels
        file["paths"] = np.array([f"{i}.png".encode() for i in range(12)])


def make_matlab(path: Path, *, packed: bool) -> None:
    labels = np.array(["a", "b", "c"] * 4, dtype=object)
    features = np.random.default_rng(0).random((12, 5))
    savemat(path, {"features": features, "labels": labels}, do_compression=packed)


def make_v73(path: Path, kind: object = np.bytes_("double")) -> None:
    """With labels in cells; the names of MATLAB's classes may be text of variable length."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["features"] = np.random.default_rng(0).random((5, 12))
        file["features"].attrs["MATLAB_class"] = kind
        cells = [
            file.create_dataset(f"#refs#/{i}", data=[[ord("abc"[i % 3])]], dtype=np.uint16) for i in range(12)
        ]
        for cell in cells:
            cell.attrs["MATLAB_class"] = np.bytes_("char")
        file["labels"] = np.array([[cell.ref for cell in cells]], dtype=h5py.ref_dtype)
        file["labels"].attrs["MATLAB_class"] = np.bytes_("cell")


def make_lzma(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, values in (
            ("features", np.random.default_rng(0).random((12, 5))),
            ("labels", np.arange(12)),
        ):
            data = io.BytesIO()
            np.save(data, values)
            archive.writestr(f"{name}.npy", data.getvalue())


def make_table(path: Path) -> None:
    lines = ["path,truth,label,residual,runner_up,margin,status,residual:a,residual:b"]
    for i in range(20):
        lines.append(f'"q/{i},""x"".png",a,{"ab"[i % 2]},0.25,b,0.5,ok,0.25,0.5')
    lines.append("q/bad.png,b,,,,,truncated,,")
    path.write_text("\n".join(lines) + "\n")


def make_numbers(path: Path) -> None:
    rows = [f"{i / 7},{i * i},-1e-{i},{'abc'[i % 3]}" for i in range(12)]
    path.write_text("\n".join(["u,v,w,label", *rows]) + "\n")


def make_parquet(path: Path) -> None:
    values = np.random.default_rng(0).random((12, 5))
    labels = ["a", "b", "c"] * 4
    pyarrow.parquet.write_table(pyarrow.table({"e": list(values), "label": labels}), path, row_group_size=5)


MAKERS = {
    "gallery.h5": ("gallery", make_gallery),
    "plain.h5": ("features", make_hdf5),
    "packed.h5": (
        "features",
        lambda path: make_hdf5(path, compression="gzip", shuffle=True, fletcher32=True, chunks=(4, 5)),
    ),
    "texts.h5": ("features", lambda path: make_hdf5(path, ["a", "b", "c"] * 4)),
    "features.npz": ("features", make_features),
    "lzma.npz": ("features", make_lzma),
    "plain.npy": ("features", lambda path: np.save(path, np.random.default_rng(0).random((12, 5)))),
    "numbers.csv": ("features", make_numbers),
    "lists.parquet": ("features", make_parquet),
    "v73.mat": ("features", make_v73),
    "texts.mat": ("features", lambda path: make_v73(path, "double")),
    "plain.mat": ("features", lambda path: make_matlab(path, packed=False)),
    "packed.mat": ("features", lambda path: make_matlab(path, packed=True)),
    "table.csv": ("table", make_table),
    **{
        f"image.{suffix}": ("image", lambda path: draw_image(0, 1, (40, 30)).save(path)) for suffix in FORMATS
    },
}
# The gallery is the riskiest input, and the one with the most to lose; some take a process each.
WEIGHTS = dict.fromkeys(MAKERS, 1.0) | {
    "gallery.h5": 3.0,
    "texts.h5": 0.1,
    "texts.mat": 0.1,
    "plain.mat": 0.1,
    "packed.mat": 0.1,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_a_damaged_file_is_refused_or_reads_unchanged(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count = math.ceil(request.config.getoption("--mutations") * WEIGHTS[name] / sum(WEIGHTS.values()))
    kind, make = MAKERS[name]
    make(tmp_path / name)
    command = [*helper_command("helpers.mutations"), kind, str(tmp_path / name), "0", str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    *seeds, last = done.stdout.splitlines()
    assert done.returncode == 0, f"seed {last}, exit {done.returncode}: {done.stderr[-2000:]}"
    assert len(seeds) == count
    assert ast.literal_eval(last).keys() <= {"refused", "opened"}
    assert ast.literal_eval(last)["refused"] > count / 20


LESS_CPU, LESS_WALL = "CPU_SECONDS = 0.5", "WALL_SECONDS = 1"
LESS_MEMORY = "MEGABYTES = peak_megabytes() + 150"
WATCHED = {
    "busy": (LESS_CPU, "while True: pass", -signal.SIGPROF, ""),
    "busy elsewhere": (LESS_CPU, "run('while time.process_time() < 1: pass')", 1, "AssertionError: took "),
    "idle": (LESS_WALL, "time.sleep(60)", -signal.SIGALRM, ""),
    "large": (LESS_MEMORY, "b'x' * 2**28", 1, "AssertionError: took "),
    "large elsewhere": (LESS_MEMORY, "run(\"b'x' * 2**28\")", 1, "AssertionError: took "),
    "a traceback": ("", "[][0]", 1, "IndexError"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "deed", "code", "words"), WATCHED.values(), ids=WATCHED.keys())
def test_the_watcher_of_damaged_files_notices_faults(
    limit: str, deed: str, code: int, words: str, tmp_path: Path
) -> None:
    make_table(tmp_path / "table.csv")
    script = f"""
import subprocess, sys, time
from helpers import mutations
from helpers.mutations import peak_megabytes
def run(code):
    subprocess.run([sys.executable, "-c", "import time\\n" + code], check=True)
def table(path):
    if path.name == "damaged.csv":
        {deed}
mutations.OPEN["table"] = table
{limit and "mutations." + limit}
mutations.main()
"""
    command = [sys.executable, "-c", script, "table", str(tmp_path / "table.csv"), "7", "2"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "7\n")
    assert words in done.stderr


def test_damaged_images_cost_a_row_each(crnr: Runner) -> None:
    """All the way: through the decoders and into the CSV."""
    make_images(crnr.here / "gallery")
    crnr("build", "gallery", "-q")
    Path("queries").mkdir()
    for suffix in FORMATS:
        draw_image(0, 1, (40, 30)).save(f"whole.{suffix}")
        whole = Path(f"whole.{suffix}").read_bytes()
        for seed in range(30):
            Path(f"queries/{seed}.{suffix}").write_bytes(mutated(whole, seed)[0])
    outcome = crnr("classify", "queries", "-o", "out.csv", "-q")
    assert (outcome.exit, outcome.out, outcome.err) == (3, "", "")
    rows = read_rows(Path("out.csv"))
    assert [row["path"] for row in rows] == sorted(f"queries/{name}" for name in os.listdir("queries"))  # noqa: PTH208
    for row in rows:
        assert (row["status"] == "ok") == (row["label"] != "")
        values = [float(value) for name, value in row.items() if name.startswith("residual:") and value]
        assert len(values) == (3 if row["status"] == "ok" else 0)
        assert np.isfinite(values).all()


def test_a_decoder_has_a_limit_of_memory(crnr: Runner) -> None:
    """An image that decodes to more than --max-pixels allows for costs its row, and not the machine."""
    make_images(crnr.here / "gallery")
    crnr("build", "gallery", "-q")
    code = (
        "import sys\n"
        "from crnr_cli.images import decoder_process as d\n"
        "from crnr_cli.images import pixels\n"
        "from crnr_cli.images.pixels import PixelRequest\n"
        "pixels.BASE_BYTES = 2**27; d.limit_memory(PixelRequest(None, max_pixels=1))\n"
        "sys.stdout.buffer.write(d.reply([d.decode_or_error('big.png', PixelRequest((8, 8)))]))"
    )
    Image.new("RGBA", (6000, 6000), (1, 2, 3, 4)).save("big.png", compress_level=1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == (
        b'[{"status": "too_large", "detail": "needs more memory than a decoder is allowed to use"}]\n'
    )


def make_large_piece(file: h5py.File) -> None:
    """Write a piece that declares 1 GB packed into 1 MB, without the work of packing it."""
    shape = (1, 2**27)
    dataset = file.create_dataset("features", shape, "f8", compression="gzip", chunks=shape)
    dataset.id.write_direct_chunk((0, 0), bytes(2**20 + 2**16))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f.create_dataset("features", (3, 0), float), "features must be a table of numbers"),
        (lambda f: f.create_dataset("features", data=h5py.Empty("f8")), "is empty"),
        (
            lambda f: f.create_dataset("features", (3, 2**28), "f8", chunks=(1, 2**28), compression="gzip"),
            "declares 6442450944 bytes and holds 0",
        ),
        (make_large_piece, "is compressed in chunks of more than 536870912 bytes"),
        (lambda f: f.create_dataset("features", (3, 3), h5py.vlen_dtype(int)), "is of type object"),
        (lambda f: f.create_dataset("features", (3, 3), np.dtype([("a", int)])), "is of type [("),
    ],
)
def test_hdf5_with_false_declarations_is_refused(crnr: Runner, make: object, words: str) -> None:
    with h5py.File("x.h5", "w") as file:
        make(file)  # type: ignore[operator]
        file["labels"] = [1, 2, 3]
    outcome = crnr("build", "x.h5")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith("error: x.h5: ")
    assert words in outcome.err
    assert crnr.files() == {"x.h5"}


def test_an_npz_that_declares_more_than_it_holds(crnr: Runner) -> None:
    """With the right checksums, as an attacker would make it."""
    array = io.BytesIO()
    np.save(array, np.ones((4, 4)))
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr("features.npy", array.getvalue().replace(b"(4, 4)", b"(9, 9)"))
    outcome = crnr("build", "x.npz")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: x.npz: not a readable npz file (features.npy does not hold what it declares, shape (9, 9)); "
        "save it again with numpy.savez\n"
    )


@pytest.mark.parametrize("rows", [4, 40_000])  # the second is not read whole until its values are wanted
def test_an_npz_with_a_wrong_checksum_is_refused(crnr: Runner, rows: int) -> None:
    values = np.arange(4.0 * rows).reshape(rows, 4)
    np.savez("x.npz", features=values, labels=[i % 2 for i in range(rows)])
    data = bytearray(Path("x.npz").read_bytes())
    data[data.index(values.tobytes()[-64:])] ^= 1
    Path("x.npz").write_bytes(data)
    outcome = crnr("build", "x.npz")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith("error: x.npz: ")
    assert "(Bad CRC-32 for file 'features.npy')" in outcome.err
