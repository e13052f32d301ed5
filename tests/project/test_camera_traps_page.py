"""The page on camera traps, followed from the first command to the last on made-up photographs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from helpers.pages import Step, Terminal, read_page, replace_lines, sessions
from helpers.paths import DOCS
from helpers.runner import Runner, read_rows
from helpers.scenes import EMPTY, SPECIES, make_scenes

PAGE = DOCS / "how-to" / "camera-traps.md"


@pytest.mark.slow
def test_the_page_shows_what_crnr_prints(
    crnr: Runner, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    make_scenes(here)
    terminal = Terminal(crnr, here, home)
    correct, by_event = [], []
    for steps in sessions(PAGE):
        seen = []
        for step in steps:
            printed = terminal.run(step.command)
            text = "\n".join(printed)
            correct += re.findall(r"^accuracy .* (\d+ of 40) correct", text, re.MULTILINE)
            by_event += re.findall(r"^accuracy by event .* (\d+ of 16) events correct", text, re.MULTILINE)
            seen.append(step if step.is_true_of(printed) else Step(step.command, step.kept_of(printed)))
        shown, true = ([line for step in found for line in step.lines] for found in (steps, seen))
        if request.config.getoption("--update-docs"):
            replace_lines(PAGE, shown, true)
        else:
            assert shown == true, "run this test with --update-docs if the page is to show what crnr prints"
    boxes, whole = correct
    events, whole_events = by_event
    prose = " ".join(read_page(PAGE).split())
    assert f"With boxes, {boxes} labels are correct; with whole images, {whole}" in prose
    assert f"By event, {events} labels are correct with boxes, and {whole_events} with whole images." in prose
    check_outputs(here)


def check_outputs(here: Path) -> None:
    """Look into the files with other programs than crnr: every box has its species in all of them."""
    labels = {row["path"]: row["label"] for row in read_rows(here / "out.csv")}
    assert (len(labels), labels[f"trap/{EMPTY}"]) == (41, "")
    document = json.loads((here / "labels.json").read_text())
    names = document["classification_categories"]
    found = {}
    for image in document["images"]:
        for detection in image["detections"]:
            for number, _ in detection.get("classifications", []):
                box = ",".join(str(float(value)) for value in detection["bbox"])
                found[f"trap/{image['file']}#{box}"] = names[number]
    answered = {path: label for path, label in labels.items() if label}
    assert found == answered
    assert set(found.values()) == set(SPECIES)
    observations = read_rows(here / "package" / "observations.csv")
    assert {row["observationID"]: row["scientificName"] for row in observations} == labels
    assert [row["observationID"] for row in observations if row["observationType"] == "blank"] == [
        f"trap/{EMPTY}"
    ]
    for row in read_rows(here / "out.csv"):
        sidecar = here / f"{row['path'].partition('#')[0]}.xmp"
        is_sure = bool(row["label"]) and float(row["probability"]) >= 0.9
        assert sidecar.exists() is is_sure
        assert not is_sure or f"<rdf:li>{row['label']}</rdf:li>" in sidecar.read_text(encoding="utf-8")
