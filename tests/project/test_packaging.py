"""What is published: a source archive, and a wheel made from it that runs by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import crnr_cli
from helpers.paths import ROOT, SAMPLE_DATA


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by way of the source archive, so what that lacks is missing here too."""
    for tool in ("build", "hatchling"):
        pytest.importorskip(tool, reason=f"{tool} is not installed")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(out.glob("*.tar.gz"))) == 1
    (found,) = out.glob("*.whl")
    return found


def test_the_wheel_has_all_of_the_package_and_nothing_else(wheel: Path) -> None:
    package = ROOT / "crnr_cli"
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == ours
    assert "crnr_cli/py.typed" in packed


def test_the_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    environment = {**os.environ, "PYTHONPATH": str(place)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert Path(run("-c", "import crnr_cli; print(crnr_cli.__file__)").strip()).is_relative_to(place)
    assert run("-m", "crnr_cli", "--version") == f"crnr {crnr_cli.__version__}\n"
    run("-m", "crnr_cli", "build", str(SAMPLE_DATA / "gallery"))
    run("-m", "crnr_cli", "classify", str(SAMPLE_DATA / "queries"), "-o", "out.csv")
    run("-m", "crnr_cli", "evaluate", "out.csv", "--min-accuracy", "0.5")


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", text, re.MULTILINE)[1] == crnr_cli.__version__  # type: ignore[index]
