"""The tutorial, followed to the letter in an empty folder; a person's part is played by the test."""

from __future__ import annotations

import csv
import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from helpers.pages import TUTORIAL, Step, Terminal, replace_lines, sessions
from helpers.paths import SAMPLE_DATA
from helpers.runner import Runner

UPDATE = "run this test with --update-docs if the page is to show what crnr prints now"


@pytest.mark.slow
def test_the_tutorial_shows_what_crnr_prints(
    crnr: Runner, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    shutil.copytree(SAMPLE_DATA, checkout / "sample_data")
    (home / "Downloads").mkdir(parents=True)
    terminal = Terminal(crnr, checkout, home)
    correct = []
    for steps in sessions(TUTORIAL):
        seen = []
        for step in steps:
            printed = terminal.run(step.command)
            correct += re.findall(r"^accuracy .* (\d+) of 100 correct", "\n".join(printed), re.MULTILINE)
            seen.append(step if step.is_true_of(printed) else Step(step.command, step.kept_of(printed)))
            if step.command.startswith("crnr review"):
                review(terminal.here / "review.html", home / "Downloads" / "corrections.csv")
        shown, true = ([line for step in found for line in step.lines] for found in (steps, seen))
        if request.config.getoption("--update-docs"):
            replace_lines(TUTORIAL, shown, true)
        else:
            assert shown == true, UPDATE
    assert correct == ["95", "95", "94", "98"], "the prose of the tutorial names these figures"
    assert [path.name for path in checkout.iterdir()] == ["sample_data"]
    assert {path.name for path in (checkout / "sample_data").iterdir()} == {
        path.name for path in SAMPLE_DATA.iterdir()
    }


def review(page: Path, corrections: Path) -> None:
    """Save corrections of all answers on the page, as its button does for a person who knows the digits."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    data = json.loads(found)
    with corrections.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["path", "label", "corrected", "when"])
        for _, path, label, *_ in data["answers"]:
            digit = int(Path(path).stem) // 500  # the sample data has 500 numbers for each
            when = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            writer.writerow([path, data["classes"][label], digit, when])


def test_readers_need_not_guess_the_folder() -> None:
    """Every path in a command is relative to a folder that an earlier command has made or entered."""
    commands = [step.command for steps in sessions(TUTORIAL) for step in steps]
    assert commands[:2] == ["cp -r sample_data ~/digits", "cd ~/digits"]
    assert [command for command in commands[2:] if re.search(r"\bcd |(^|\s)/|\.\./", command)] == []
