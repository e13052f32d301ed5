"""The README's commands: those that CI runs, and every other one run here."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat
from sklearn.datasets import load_digits

from helpers.onnx_models import flat_model
from helpers.paths import ROOT, SAMPLE_DATA
from helpers.runner import Outcome, Runner, read_rows
from helpers.samples import noise

README = (ROOT / "README.md").read_text()


def shell_blocks(text: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


INSTALLING = [block.strip() for block in shell_blocks(README) if block.startswith("python3 -m venv")]
# The one in which a person does something, too.
(LOOP,) = [block for block in shell_blocks(README) if "--corrections" in block]
RECIPES = [block for block in shell_blocks(README) if block != LOOP and block.strip() not in INSTALLING]


@pytest.mark.parametrize("command", INSTALLING)
def test_ci_runs_the_commands_that_install_to_the_letter(command: str) -> None:
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_readme_has_two_install_commands_of_one_line() -> None:
    assert len(INSTALLING) == 2
    assert all("\n" not in command for command in INSTALLING)


@pytest.fixture
def folder(crnr: Runner, tmp_path: Path) -> Path:
    """A folder as the recipes expect it."""
    for digit in range(10):
        for part, count in (("gallery", 20), ("queries", 2), ("new_images", 2), ("photos", 2)):
            (tmp_path / part / str(digit)).mkdir(parents=True)
            source = "queries" if part == "queries" else "gallery"
            first = 20 if part == "new_images" else 0
            found = sorted((SAMPLE_DATA / source / str(digit)).iterdir())
            for image in found[first : first + count]:
                shutil.copy(image, tmp_path / part / str(digit))
    (tmp_path / "others").mkdir()
    for i in range(4):
        noise(i, (28, 28)).save(tmp_path / "others" / f"{i}.png")
    shutil.copy(SAMPLE_DATA / "features.h5", tmp_path)
    shutil.copy(SAMPLE_DATA / "queries" / "3" / "1550.png", tmp_path / "query.png")
    rng = np.random.default_rng(0)
    savemat(tmp_path / "faces.mat", {"train": rng.random((40, 30)), "trainlabels": np.repeat([1, 2, 3], 10)})
    flat_model(tmp_path / "model.onnx", ["n", 3, 28, 28])
    config = {"image_processor_type": "ViTImageProcessor", "size": {"height": 28, "width": 28}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.split("\n")[0][:60])
def test_every_recipe_works(recipe: str, crnr: Runner, folder: Path) -> None:
    made = crnr.bash("crnr build gallery -q && crnr classify queries -q -o out.csv")
    assert made == Outcome(0, "", "")
    # `head` may leave before the rest is written. The packages that pip would install are here.
    pip = "pip() { [[ $1 == install && $2 == 'crnr-cli[photos]' ]]; }"
    done = crnr.bash(f"set +o pipefail\n{pip}\n{recipe}")
    assert done.exit == 0, done.err
    assert "Traceback" not in done.err


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_python_code_of_the_readme_works(
    crnr: Runner, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crnr("build", "gallery", "-q").exit == 0
    images, estimators = python_blocks(README)
    exec(images, {})
    *answers, why, strongest = capsys.readouterr().out.splitlines()
    assert len(answers) == 20
    assert answers[0].startswith("queries/0/")
    (told,) = json.loads(crnr("explain", "query.png", "--json").out)["explanations"]
    assert why.split()[:2] == [told["label"], told["runner_up"]]
    assert all(sample["name"] in strongest for sample in told["strongest"])
    X, y = load_digits(return_X_y=True)
    exec(estimators, {"X": X[:60], "y": y[:60]})
    assert capsys.readouterr().out.startswith("[0 1 2 3 4")


def test_the_python_code_of_its_page_works(crnr: Runner, folder: Path) -> None:
    assert crnr("build", "gallery", "--calibrate", "-q").exit == 0
    for digit in "12":
        shutil.copy(next((folder / "queries" / digit).iterdir()), folder / "queries" / digit / f"{digit}.png")
    names: dict[str, Any] = {}
    gallery, estimators = python_blocks((ROOT / "docs" / "python.md").read_text())
    exec(gallery, names)
    assert [answer.truth for answer in names["answers"]] == ["1", "2"]
    assert [len(answer.residuals) for answer in names["answers"]] == [3, 3]
    X, y = load_digits(return_X_y=True)
    exec(estimators, names | {"X": X[:60], "y": y[:60]})


@pytest.mark.slow
def test_the_loop_makes_the_gallery_better(crnr: Runner, folder: Path) -> None:
    """With two examples in the wrong folders; the person marks them, and corrects the wrong answers."""
    for digit in range(10):
        found = sorted((SAMPLE_DATA / "gallery" / str(digit)).iterdir())
        for image in found[20:40]:
            shutil.copy(image, folder / "new_images" / str(digit))
    shutil.copytree(SAMPLE_DATA / "queries", folder / "queries", dirs_exist_ok=True)
    for path, wrong in (("gallery/3/1500.png", "5"), ("gallery/7/3500.png", "1")):
        shutil.move(path, f"gallery/{wrong}/misplaced{Path(path).name}")
    before, between, after = (part.strip() for part in re.split(r"^# .*$", LOOP, flags=re.MULTILINE))
    assert crnr.bash(before).exit == 0
    correct_before = json.loads(crnr.bash("crnr evaluate queries --json").out)["correct"]
    suspects = read_rows(folder / "audit.csv")
    for row in suspects:
        row["remove"] = "x" if "misplaced" in row["path"] and row["finding"] == "wrong_label" else ""
    assert sum(row["remove"] == "x" for row in suspects) == 2
    write_rows(folder / "audit.csv", suspects)
    assert crnr.bash(between).exit == 0
    assert (folder / "review.html").stat().st_size > 10_000
    answers = read_rows(folder / "out.csv")
    reviewed = [
        {"path": row["path"], "label": row["label"], "corrected": Path(row["path"]).parent.name, "when": ""}
        for row in answers
    ]
    write_rows(folder / "corrections.csv", reviewed)
    right = sum(row["label"] == row["corrected"] for row in reviewed)
    done = crnr.bash(after)
    assert done.exit == 0
    assert f"{right} of 200 correct" in done.out
    assert "200 added, 0 changed, 0 removed, 198 unchanged" in done.err
    correct_after = json.loads(crnr.bash("crnr evaluate queries --json").out)["correct"]
    assert correct_after > correct_before


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


COMMANDS = re.findall(r"`(crnr [a-z]+ [^`]*[a-z/.][^`]*)`", README)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_every_command_in_the_text_works(command: str, crnr: Runner, folder: Path) -> None:
    shutil.copytree(folder / "queries", folder / "labelled_queries")
    made = crnr.bash("crnr build gallery -q && crnr classify queries -q -o out.csv")
    assert made == Outcome(0, "", "")
    done = crnr.bash(command)
    assert done.exit == 0, done.err
