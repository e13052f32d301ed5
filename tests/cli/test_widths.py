"""Every table fits the terminal, whatever the names."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from crnr_cli.jobs import compare
from helpers.runner import Runner
from helpers.samples import make_images

LONG = ("a class with a name that is longer than most terminals are wide, to see what gives way", "b_c" * 30)
NAMES = ("10", "9", "100", *LONG)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    crnr = Runner(tmp_path_factory.mktemp("widths"))
    make_images(crnr.here / "gallery", NAMES)
    make_images(crnr.here / "queries", NAMES, 1, first=5)
    (crnr.here / "queries" / "9" / "bad.png").write_bytes(b"\x89PNG")
    assert crnr("build", "gallery", "-q").exit == 0
    assert crnr("build", "gallery", "-q", "--calibrate", "-o", "calibrated.h5").exit == 0
    return crnr


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize(
    "command",
    [
        "evaluate queries --allow-skipped",
        "evaluate queries --reject 0.3 --allow-skipped",
        "compare gallery --holdout 0.5 --draws 2 --methods crnr,nn,nsc,procrc",
        "explain queries/9/5.png",
        "explain queries/9/5.png -g calibrated.h5",
        "explain queries/9/5.png --compare-with svm",
        "explain queries/9/5.png --compare-with nn",
        "info",
        "audit gallery --queries gallery",
    ],
)
def test_output_of_all_commands_fits_the_terminal(
    built: Runner, monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes Rich see a terminal
    result = built(*command.split(), columns=columns)
    assert result.exit == 0, result.err
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in result.out.splitlines()]
    assert max(map(cell_len, lines)) <= columns
    assert "\u2026" not in result.out  # nothing is cut off
    whole = {"evaluate": "precision recall support", "compare": "accuracy method", "info": "examples"}
    whole["audit"] = "examples outliers"
    for word in whole.get(command.split()[0], "residual").split():
        assert word in result.out


def test_classes_are_listed_as_people_count(built: Runner) -> None:
    shown = built("info").out
    assert shown.index("\n9 ") < shown.index("\n10 ") < shown.index("\n100 ")
    scores = built("evaluate", "queries", "-q").out
    assert scores.index("\u2502 9 ") < scores.index("\u2502 10 ") < scores.index("\u2502 100 ")


def test_the_gallery_and_the_csv_keep_the_order_of_names(built: Runner) -> None:
    header = built("classify", "queries", "-q").out.splitlines()[0]
    assert re.findall(r"residual:(\d+)", header) == ["10", "100", "9"]


def test_the_table_of_compare_fits_with_its_longest_figures(
    built: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(compare, "mcnemar_p_value", lambda first, second: 1.23e-101)
    command = "compare gallery --holdout 0.5 --draws 1 --methods procrc,nn"
    result = built(*command.split(), columns=60)
    assert "1.2e-101 *" in result.out
    assert "\u2026" not in result.out
