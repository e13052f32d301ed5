"""The README's commands: those that CI runs, and every other one run here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from helpers.onnx_models import flat_model
from helpers.paths import ROOT, SAMPLE_DATA

README = (ROOT / "README.md").read_text()


def shell_blocks(text: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


INSTALLING = [block.strip() for block in shell_blocks(README) if block.startswith("python3 -m venv")]
RECIPES = [block for block in shell_blocks(README) if not block.startswith("python3 -m venv")]


@pytest.mark.parametrize("command", INSTALLING)
def test_ci_runs_the_commands_that_install_to_the_letter(command: str) -> None:
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_there_are_two_of_them_and_they_are_one_line_each() -> None:
    assert len(INSTALLING) == 2
    assert all("\n" not in command for command in INSTALLING)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the recipes think of it, with a program called crnr in reach."""
    for digit in range(10):
        for part, count in (("gallery", 20), ("queries", 2), ("new_pictures", 2)):
            (tmp_path / part / str(digit)).mkdir(parents=True)
            source = "queries" if part == "queries" else "gallery"
            first = 20 if part == "new_pictures" else 0
            found = sorted((SAMPLE_DATA / source / str(digit)).iterdir())
            for picture in found[first : first + count]:
                shutil.copy(picture, tmp_path / part / str(digit))
    shutil.copy(SAMPLE_DATA / "features.h5", tmp_path)
    shutil.copy(SAMPLE_DATA / "queries" / "3" / "1550.png", tmp_path / "query.png")
    rng = np.random.default_rng(0)
    savemat(tmp_path / "faces.mat", {"train": rng.random((40, 30)), "trainlabels": np.repeat([1, 2, 3], 10)})
    flat_model(tmp_path / "model.onnx", ["n", 3, 28, 28])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "crnr").write_text(f'#!/bin/sh\nexec {sys.executable} -m crnr_cli "$@"\n')
    (tmp_path / "bin" / "crnr").chmod(0o755)
    return tmp_path


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.split("\n")[0][:60])
def test_every_recipe_works(recipe: str, folder: Path) -> None:
    made = run("crnr build gallery -q && crnr classify queries -q -o out.csv", folder)
    assert (made.returncode, made.stderr) == (0, "")
    done = run(recipe, folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


COMMANDS = re.findall(r"`(crnr [a-z]+ [^`]*[a-z/.][^`]*)`", README)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_every_command_in_the_text_works(command: str, folder: Path) -> None:
    shutil.copytree(folder / "queries", folder / "labelled_queries")
    made = run("crnr build gallery -q && crnr classify queries -q -o out.csv", folder)
    assert (made.returncode, made.stderr) == (0, "")
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
