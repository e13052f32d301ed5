"""crnr sort: exit codes, and what goes to stdout and stderr."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from crnr_cli.sorting.plan import REPORTED_EVERY
from helpers.pausing import send, start_pausing
from helpers.runner import Outcome, Runner, ended, rows

UNDO = "to undo it: crnr sort --undo sorted/.crnr-sort-1.jsonl\n"


def make(count: int = 3) -> None:
    """Files and their CSV."""
    lines = ["path,truth,label,status"]
    for number in range(count):
        path = Path(f"q/{number % 2}/{number // 2}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
        lines.append(f"{path},,cat,ok")
    Path("out.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("how", "done"),
    [("copy", "copied"), ("hardlink", "hard-linked"), ("link", "linked"), ("move", "moved")],
)
def test_sorting_and_undoing(crnr: Runner, how: str, done: str) -> None:
    make()
    words = f"sorted: 3 files {done} into 1 folder\n{UNDO}"
    assert crnr("sort", "out.csv", "sorted", "--how", how) == Outcome(0, "", words)
    again = Outcome(0, "", "sorted: no files to place, 3 are already there\n")
    assert crnr("sort", "out.csv", "sorted", "--how", how) == again
    assert {path.name for path in Path("sorted/cat").iterdir()} == {"0.png", "0 (2).png", "1.png"}
    undone = "3 files moved back\n" if how == "move" else "3 files removed\n"
    assert crnr("sort", "--undo", "sorted/.crnr-sort-1.jsonl") == Outcome(0, "", undone)
    assert crnr.files() == {"q", "out.csv"}
    missing = crnr("sort", "--undo", "sorted/.crnr-sort-1.jsonl")
    assert missing == Outcome(1, "", "error: sorted/.crnr-sort-1.jsonl: no such undo file\n")


def test_a_dry_run_prints_a_csv(crnr: Runner) -> None:
    make()
    Path("q/1/0.png").unlink()
    outcome = crnr("sort", "out.csv", "sorted", "--dry-run", "--template", "{label}-{name}")
    assert outcome.exit == 3
    assert rows(outcome.out) == [
        {"path": "q/0/0.png", "target": "sorted/cat-0.png", "result": "copy", "reason": ""},
        {"path": "q/1/0.png", "target": "", "result": "left out", "reason": "no such file"},
        {"path": "q/0/1.png", "target": "sorted/cat-1.png", "result": "copy", "reason": ""},
    ]
    assert outcome.err == ("left out: q/1/0.png: no such file\nsorted: 2 files would be copied\n")
    assert crnr.files() == {"q", "out.csv"}


def test_files_that_are_gone_are_reported(crnr: Runner) -> None:
    make()
    Path("q/1/0.png").unlink()
    outcome = crnr("sort", "out.csv", "sorted")
    left_out = "left out: q/1/0.png: no such file\n"
    assert outcome == Outcome(3, "", f"{left_out}sorted: 2 files copied into 1 folder\n{UNDO}")
    assert crnr("sort", "out.csv", "sorted", "--allow-skipped", "-q") == Outcome(0, "", "")
    strict = crnr("sort", "out.csv", "sorted", "--strict")
    assert (strict.exit, strict.out) == (1, "")
    assert strict.err == (
        "error: q/1/0.png: no such file; stopped: 1 of 3 files in out.csv has to be left out, "
        "and no failure is allowed (--strict)\n"
    )


def test_sort_json_counts_files(crnr: Runner) -> None:
    make()
    outcome = crnr("sort", "out.csv", "sorted", "--json", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {
        **{"folder": "sorted", "how": "copy", "done": 3, "there": 0, "passed_over": 0, "left_out": []},
        "undo_list": "sorted/.crnr-sort-1.jsonl",
    }
    undone = crnr("sort", "--undo", "sorted/.crnr-sort-1.jsonl", "--json", "-q")
    assert (undone.exit, undone.err) == (0, "")
    assert json.loads(undone.out) == {"how": "copy", "undone": 3, "left_out": []}


def test_sort_undo_reports_changed_files(crnr: Runner) -> None:
    make()
    assert crnr("sort", "out.csv", "sorted", "-q").exit == 0
    Path("sorted/cat/1.png").write_text("edited")
    outcome = crnr("sort", "--undo", "sorted/.crnr-sort-1.jsonl")
    assert outcome == Outcome(
        3,
        "",
        "left out: sorted/cat/1.png: has changed since it was sorted\n2 files removed\n"
        "kept sorted/.crnr-sort-1.jsonl for the rest\n",
    )


def test_a_name_with_control_characters_is_shown_escaped(crnr: Runner) -> None:
    Path("out.csv").write_text('path,truth,label\n"gone\x1b[31m.png",,cat\n')
    outcome = crnr("sort", "out.csv", "sorted")
    assert (outcome.exit, outcome.out) == (1, "")
    assert "gone\\x1b[31m.png: no such file" in outcome.err


@pytest.mark.parametrize("folder", ["file", "missing/sorted", "link"])
def test_a_folder_that_cannot_be_made(crnr: Runner, folder: str) -> None:
    make()
    Path("file").write_text("")
    Path("link").symlink_to("nowhere")
    outcome = crnr("sort", "out.csv", folder)
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err in (
        "error: file: is not a folder; choose another one\n",
        "error: missing/sorted: the folder missing does not exist; create it first\n",
        "error: link: is a link to a missing folder; choose another one\n",
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_move_that_is_stopped_loses_nothing(crnr: Runner, number: signal.Signals) -> None:
    """In the middle of the files; the same command ends it."""
    make(2 * REPORTED_EVERY)
    contents = sorted(path.read_text() for path in Path("q").rglob("*.png"))
    process = start_pausing(crnr, "sort out.csv sorted --how move", "signal")
    if number == signal.SIGTERM:
        send(process, number)
        words = "terminated; the same command continues from there\n"
        assert ended(process) == Outcome(128 + number, "", words)
    else:
        process.kill()
        assert ended(process) == Outcome(-number, "", "")
    assert len(list(Path("sorted").rglob("*.png"))) == (2 if number == signal.SIGKILL else REPORTED_EVERY)
    found = [path.read_text() for folder in ("q", "sorted") for path in Path(folder).rglob("*.png")]
    assert sorted(found) == contents
    assert crnr("sort", "out.csv", "sorted", "--how", "move", "-q") == Outcome(0, "", "")
    assert sorted(path.read_text() for path in Path("sorted").rglob("*.png")) == contents
    assert not list(Path("q").rglob("*.png"))
    assert crnr("sort", "--undo", "sorted/.crnr-sort-1.jsonl", "-q") == Outcome(0, "", "")
    assert crnr.files() == {"q", "out.csv"}


def test_an_image_goes_to_the_folder_of_its_surest_box(crnr: Runner) -> None:
    """A class before no class, then the probability, then the margin, then the order of the rows."""
    boxes = [
        # image, label, probability, margin, status
        ("by_probability", "cat", 0.6, 0.9, "ok"),
        ("by_probability", "dog", 0.7, 0.1, "ok"),
        ("by_margin", "cat", 0.8, 0.2, "ok"),
        ("by_margin", "dog", 0.8, 0.3, "ok"),
        ("by_order", "dog", 0.8, 0.3, "ok"),
        ("by_order", "cat", 0.8, 0.3, "ok"),
        ("lacking_a_probability", "cat", "", 0.9, "ok"),
        ("lacking_a_probability", "dog", 0.4, 0.1, "ok"),
        ("lacking_a_margin", "cat", 0.4, "", "ok"),
        ("lacking_a_margin", "dog", 0.4, 0.1, "ok"),
        ("of_three", "cat", 0.2, 0.3, "ok"),
        ("of_three", "dog", 0.9, 0.3, "ok"),
        ("of_three", "owl", 0.5, 0.3, "ok"),
        ("a_class_first", "unknown", 0.9, 0.9, "rejected"),
        ("a_class_first", "cat", 0.1, 0.1, "ok"),
        ("failed_beside_a_class", "", "", "", "bad_box"),
        ("failed_beside_a_class", "cat", 0.1, 0.1, "ok"),
        ("all_failed", "", "", "", "bad_box"),
        ("all_failed", "", "", "", "bad_box"),
        ("of_one_label", "dog", 0.3, 0.1, "ok"),
        ("of_one_label", "dog", 0.4, 0.1, "ok"),
    ]
    lines = ["path,truth,label,probability,margin,status"]
    Path("q").mkdir()
    for number, (image, *answer) in enumerate(boxes):
        Path(f"q/{image}.png").touch()
        label, probability, margin, status = answer
        lines.append(f'"q/{image}.png#{number},0,9,9",,{label},{probability},{margin},{status}')
    lines += [f"q/whole{number}.png,,{label},0.2,0.1,ok" for number, label in enumerate(("cat", "owl"))]
    for number in range(2):
        Path(f"q/whole{number}.png").touch()
    Path("out.csv").write_text("\n".join(lines) + "\n")
    folders = {
        **{"by_probability": "dog", "by_margin": "dog", "by_order": "dog", "of_three": "dog"},
        **{"lacking_a_probability": "dog", "lacking_a_margin": "dog"},
        **{"a_class_first": "cat", "failed_beside_a_class": "cat", "all_failed": "_failed"},
        **{"of_one_label": "dog", "whole0": "cat", "whole1": "owl"},
    }
    outcome = crnr("sort", "out.csv", "sorted", "--dry-run")
    assert {row["path"]: row["target"] for row in rows(outcome.out)} == {
        f"q/{image}.png": f"sorted/{folder}/{image}.png" for image, folder in folders.items()
    }
    mixed = "with boxes of several labels: each goes to the folder of its surest box\n"
    assert (outcome.exit, outcome.err) == (
        0,
        f"note: 7 images {mixed}sorted: 12 files would be copied\n",
    )
    # Doubtful boxes have one folder, whatever their labels; a doubtful box and a sure one have two.
    doubtful = crnr("sort", "out.csv", "sorted", "--dry-run", "--min-probability", "0.75")
    assert doubtful.err == f"note: 4 images {mixed}sorted: 12 files would be copied\n"
    unsure = (
        *("by_probability", "lacking_a_probability", "lacking_a_margin", "a_class_first"),
        *("failed_beside_a_class", "of_one_label", "whole0", "whole1"),
    )
    found = {row["path"][2:-4]: row["target"].split("/")[1] for row in rows(doubtful.out)}
    assert found == folders | dict.fromkeys(unsure, "_doubtful")
