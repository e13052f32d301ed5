"""The damage that benchmarks/fuzz.py does: it goes deep and can be repeated; failures are seen and kept."""

from __future__ import annotations

import contextlib
import io
import json
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pytest

from crnr_cli.errors import CrnrError, SampleError
from helpers import damage
from helpers.hostile import KINDS
from helpers.paths import ROOT

COUNT = 40
IN_PROCESS = [name for name in KINDS if name not in ("hdf5 with text", "mat, all the way")]


@pytest.mark.parametrize("name", IN_PROCESS)
def test_damaged_files_are_opened_or_refused_with_a_message(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind = KINDS[name]
    whole = kind.made()
    path = tmp_path / f"damaged{kind.suffix}"
    damages = [damage.bytes_changed, *filter(None, [kind.damage])]
    contents = {how(whole, Random(seed)) for how in damages for seed in range(COUNT // len(damages))}
    assert len(contents) > COUNT / 2
    refused = opened = 0
    for content in contents:
        path.write_bytes(content)
        try:
            with np.errstate(all="ignore"):
                kind.open(path)
        except (CrnrError, SampleError) as e:
            refused += bool(str(e))
        else:
            opened += 1
    assert refused + opened == len(contents)
    assert refused > 0


def is_sound(name: str, content: bytes) -> bool:
    """Return whether the checksums and lengths of a file are right, as another reader sees them."""
    if name == "npz":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.testzip() is None
    if name == "png":
        at, right = 8, True
        while at < len(content):
            (length,) = struct.unpack_from(">I", content, at)
            (checksum,) = struct.unpack_from(">I", content, at + 8 + length)
            right &= zlib.crc32(content[at + 4 : at + 8 + length]) == checksum
            at += 12 + length
        return right
    if name in ("heic", "avif"):
        return all(length >= 8 for length in box_lengths(content))
    if name == "model":
        import onnx

        try:
            return bool(onnx.load_model_from_string(content).ByteSize())
        except Exception:  # of protobuf
            return False
    with h5py.File(io.BytesIO(content)) as file:
        return bool(file.attrs["sha256"] == damage.gallery_checksum(file).encode())


def box_lengths(content: bytes) -> list[int]:
    """Return the lengths of the outer boxes; the last one is wrong if they do not end with the file."""
    lengths, at = [], 0
    while at < len(content):
        lengths.append(int.from_bytes(content[at : at + 4]))
        at += max(lengths[-1], 1)
    return lengths if at == len(content) else [*lengths, 0]


@pytest.mark.parametrize("name", ["npz", "png", "heic", "avif", "model", "gallery"])
def test_deep_damage_gets_past_checksums(name: str) -> None:
    kind = KINDS[name]
    assert kind.damage is not None
    whole = kind.made()
    sound = 0
    for seed in range(COUNT):
        content = kind.damage(whole, Random(seed))
        assert content == kind.damage(whole, Random(seed))
        with contextlib.suppress(OSError, KeyError, TypeError, ValueError, RuntimeError):
            sound += is_sound(name, content)
    assert sound > 0.7 * COUNT


def run_fuzz(*arguments: object, code: str = "") -> subprocess.CompletedProcess[str]:
    """benchmarks/fuzz.py, after some code that changes what it does."""
    script = f"""
import sys
sys.path[:0] = [{str(ROOT / "benchmarks")!r}, {str(ROOT / "tests")!r}]
import fuzz
from helpers.hostile import KINDS, Kind
{code}
fuzz.main()
"""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_all_kinds_are_tried_and_tabled(tmp_path: Path) -> None:
    done = run_fuzz("table", "png", "--mutations", 300, "--jobs", 2, "--failures", tmp_path / "failures")
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith(("| table", "| png"))]
    assert [int(row[1]) for row in rows] == [180, 120]
    for row in rows:
        assert int(row[2]) + int(row[3]) == int(row[1])
        assert 20 < int(row[5]) < 500  # megabytes
    assert re.search(r"^300 files in \d+ s, \d+ per second with 2 processes$", done.stdout, re.MULTILINE)
    assert not (tmp_path / "failures").exists()


DEEDS = {
    "a traceback": ("[][0]", "IndexError"),
    "a crash": ("os.abort()", "SIGABRT"),
    "a hang": ("time.sleep(60)", "more than 10 s"),
    "a busy loop": ("while True: pass", "more than 0.5 s of processor time"),
    "memory": ("b'x' * 2**28", "took "),
    "memory elsewhere": ("subprocess.run([sys.executable, '-c', \"b'x' * 2**28\"])", "took "),
    "no words": ("raise DataError('')", "refused without a word"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("deed", "words"), DEEDS.values(), ids=DEEDS.keys())
def test_a_file_that_fails_is_kept_and_the_rest_is_tried(deed: str, words: str, tmp_path: Path) -> None:
    code = f"""
import os, subprocess, time
from dataclasses import replace
from crnr_cli.errors import DataError
fuzz.WALL_SECONDS, fuzz.CPU_SECONDS, fuzz.MEGABYTES = 10, {0.5 if "while" in deed else 60}, 200
culprit = fuzz.damaged(KINDS["table"], KINDS["table"].made(), 3, 5)
def opened(path):
    if path.read_bytes() == culprit:
        {deed}
KINDS["table"] = replace(KINDS["table"], open=opened)
"""
    failures = tmp_path / "failures"
    done = run_fuzz("table", "--mutations", 9, "--seed", 5, "--jobs", 1, "--failures", failures, code=code)
    assert done.returncode == 1, done.stderr
    assert "| table | 9 |" in done.stdout
    (kept,) = failures.glob("*.csv")
    assert kept.name == "table-5-3.csv"
    (entry,) = map(json.loads, (failures / "failures.jsonl").read_text().splitlines())
    assert (entry["kind"], entry["seed"], entry["number"]) == ("table", 5, 3)
    assert words in entry["words"]
