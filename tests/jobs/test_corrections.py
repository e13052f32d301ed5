"""Corrections of a review: added to the gallery, and taken as the truth."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from helpers.runner import Outcome, Runner
from helpers.samples import make_features, make_images, noise
from helpers.templates import Templates

HEADER = "path,label,corrected,when\n"
LATER = "2099-01-01T00:00:00Z"


def classify_queries(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "named", first=9, per_class=2)
    Path("q").mkdir()
    for path in sorted(Path("named").rglob("*.png")):
        shutil.copy(path, f"q/{path.parent.name}{path.stem}.png")
    assert crnr("build", "gallery", "-q") == Outcome(0, "", "")
    assert crnr("classify", "q", "-o", "out.csv", "-q") == Outcome(0, "", "")


@pytest.fixture
def ready(crnr: Runner, templates: Templates) -> Runner:
    """A gallery of ant, bee and cow, and six queries with answers that are right."""
    templates.copy(classify_queries, crnr.here)
    return crnr


def corrections(*rows: str) -> None:
    Path("c.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))


def lines(outcome: Outcome) -> list[str]:
    """Return the notes before the line about the written file."""
    *said, written = outcome.err.splitlines()
    assert written.startswith("gallery.h5: ")
    return said


def samples(crnr: Runner) -> dict[str, int]:
    return json.loads(crnr("info", "--json").out)["classes"]


def test_accepted_and_corrected_files_are_added_and_outsiders_are_not(ready: Runner) -> None:
    corrections(
        f"q/ant9.png,ant,ant,{LATER}",
        f"./q/bee9.png,bee,cow,{LATER}",
        f"q/cow9.png,cow,unknown,{LATER}",
        f"q/cow10.png,cow,dragonfly,{LATER}",
    )
    outcome = ready("add", "gallery.h5", "--corrections", "c.csv")
    assert (outcome.exit, outcome.out) == (0, "")
    assert lines(outcome) == [
        "note: c.csv: 3 reviewed files, 2 with another label; 1 more belongs to none of the classes and is "
        "not added",
        "note: class dragonfly is new: 1 example, such as q/cow10.png",
        "note: class dragonfly has only one example, which crnr cannot hold out: --calibrate, tune, compare "
        "and audit do not test such a class; add more examples",
        "added: q/ant9.png",
        "added: ./q/bee9.png",
        "added: q/cow10.png",
        "3 added, 0 changed, 0 removed, 12 unchanged",
    ]
    assert samples(ready) == {"ant": 5, "bee": 4, "cow": 5, "dragonfly": 1}
    again = ready("add", "-g", "gallery.h5", "--corrections", "c.csv")
    assert again.exit == 0
    assert lines(again)[-1] == "0 added, 0 changed, 0 removed, 15 unchanged"


@pytest.mark.parametrize("again", ["./q/ant9.png", "q//ant9.png", "gallery/../q/ant9.png"])
def test_a_file_that_is_named_in_another_way_is_the_same_sample(ready: Runner, again: str) -> None:
    corrections(f"q/ant9.png,ant,ant,{LATER}")
    assert ready("add", "gallery.h5", "--corrections", "c.csv").exit == 0
    corrections(f"{again},ant,bee,{LATER}")
    outcome = ready("add", "gallery.h5", "--corrections", "c.csv")
    assert lines(outcome)[1:] == ["changed: q/ant9.png", "0 added, 1 changed, 0 removed, 12 unchanged"]
    assert samples(ready) == {"ant": 4, "bee": 5, "cow": 4}
    assert ready("remove", "gallery.h5", "--example", again, "-q") == Outcome(0, "", "")
    assert samples(ready) == {"ant": 4, "bee": 4, "cow": 4}


def test_missing_and_changed_files_are_reported(ready: Runner) -> None:
    corrections("q/gone.png,ant,ant,", "q/ant9.png,ant,ant,2020-01-01T00:00:00.000Z", "q/bee9.png,bee,bee,")
    outcome = ready("add", "gallery.h5", "--corrections", "c.csv")
    assert (outcome.exit, outcome.out) == (3, "")
    assert lines(outcome)[:2] == [
        "failed: q/gone.png: no such file",
        "failed: q/ant9.png: changed after it was reviewed; review it again, or empty its field `when`",
    ]
    assert samples(ready) == {"ant": 4, "bee": 5, "cow": 4}
    strict = ready("add", "gallery.h5", "--corrections", "c.csv", "--strict")
    assert (strict.exit, strict.out) == (1, "")
    assert strict.err.startswith("error: q/gone.png: no such file; stopped: 2 of 3 examples have to be ")


def test_a_file_of_the_same_time_as_its_review_has_not_changed(ready: Runner) -> None:
    """Some file systems round the times of files."""
    corrections("q/ant9.png,ant,ant,2026-01-01T00:00:00Z")
    moment = 1767225600.5
    os.utime("q/ant9.png", (moment, moment))
    later = moment + 1  # more than any rounding
    os.utime("q/ant9.png", (later, later))
    words = "changed after it was reviewed; review it again, or empty its field `when`"
    refused = f"error: no usable images or rows of features: q/ant9.png: {words}\n"
    assert ready("add", "gallery.h5", "--corrections", "c.csv", "-q") == Outcome(1, "", refused)
    os.utime("q/ant9.png", (moment, moment))
    assert ready("add", "gallery.h5", "--corrections", "c.csv", "-q") == Outcome(0, "", "")
    assert samples(ready)["ant"] == 5


def test_copies_of_samples_are_not_added_again(ready: Runner) -> None:
    shutil.copy("gallery/ant/1.png", "q/copy.png")
    shutil.copy("gallery/bee/1.png", "q/other.png")
    corrections("q/copy.png,ant,ant,", "q/other.png,bee,ant,")
    outcome = ready("add", "gallery.h5", "--corrections", "c.csv")
    assert (outcome.exit, outcome.out) == (0, "")
    assert lines(outcome) == [
        "note: c.csv: 2 reviewed files, 1 with another label",
        "note: 1 reviewed file has the content of an example and is not added: q/copy.png is the same as "
        "gallery/ant/1.png",
        "note: the same content in two classes: gallery/bee/1.png (bee) and q/other.png (ant)",
        "added: q/other.png",
        "1 added, 0 changed, 0 removed, 12 unchanged",
    ]


def test_a_sample_of_the_gallery_can_be_corrected(ready: Runner) -> None:
    corrections("gallery/ant/1.png,ant,bee,")
    outcome = ready("add", "gallery.h5", "--corrections", "c.csv")
    assert lines(outcome)[-2:] == [
        "changed: gallery/ant/1.png",
        "0 added, 1 changed, 0 removed, 11 unchanged",
    ]
    assert samples(ready) == {"ant": 3, "bee": 5, "cow": 4}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "q/ant9.png,ant,unknown,",
            "c.csv: nothing to add, because no reviewed file belongs to a class",
        ),
        (
            "f.npz#3,ant,ant,",
            "c.csv, line 2: f.npz#3 is a row of a feature file; only images can be added, so classify "
            "images instead",
        ),
        ("q/gone.png,a,a,", "no usable images or rows of features: q/gone.png: no such file"),
        ("q,a,a,", "no usable images or rows of features: q: not a regular file"),
        ("-,a,a,", "no usable images or rows of features: -: no such file"),
    ],
)
def test_nothing_that_can_be_added(ready: Runner, row: str, words: str) -> None:
    before = Path("gallery.h5").read_bytes()
    corrections(row)
    assert ready("add", "gallery.h5", "--corrections", "c.csv") == Outcome(1, "", f"error: {words}\n")
    assert Path("gallery.h5").read_bytes() == before


def test_a_gallery_of_features_takes_no_images(crnr: Runner) -> None:
    make_features(crnr.here / "g.npz")
    assert crnr("build", "g.npz", "-q").exit == 0
    noise(1).save("a.png")
    corrections("a.png,ant,ant,")
    words = (
        "error: a.png: is an image, but gallery.h5 was built from features; give features, or a gallery that "
        "was built from images\n"
    )
    assert crnr("add", "gallery.h5", "--corrections", "c.csv") == Outcome(1, "", words)


def test_evaluate_scores_reviewed_answers_by_the_corrections(ready: Runner) -> None:
    corrections(
        f"q/ant9.png,ant,ant,{LATER}",
        f"./q/bee9.png,bee,cow,{LATER}",
        f"q/cow9.png,cow,unknown,{LATER}",
    )
    outcome = ready("evaluate", "out.csv", "--corrections", "c.csv", "--json")
    assert (outcome.exit, outcome.err) == (
        0,
        "note: 3 of 6 answers scored against c.csv; 3 have no true class\n",
    )
    record = json.loads(outcome.out)
    assert {key: record[key] for key in ("n", "correct", "without_truth", "reviewed")} == {
        "n": 2,
        "correct": 1,
        "without_truth": 3,
        "reviewed": 3,
    }
    assert (record["open_set"]["outsiders"], record["open_set"]["given"]) == (1, {"cow": 1})
    assert ready("evaluate", "out.csv", "--corrections", "c.csv", "-q").err == ""


def test_answers_that_were_not_reviewed_keep_their_truth(ready: Runner) -> None:
    assert ready("classify", "named", "-o", "out.csv", "-q").exit == 0
    corrections("named/bee/9.png,bee,cow,")
    for source in ("out.csv", "named"):  # a CSV, and queries that are classified now
        record = json.loads(ready("evaluate", source, "--corrections", "c.csv", "--json", "-q").out)
        assert (record["n"], record["correct"], record["reviewed"]) == (6, 5, 1)
    record = json.loads(ready("evaluate", "out.csv", "--json", "-q").out)
    assert (record["n"], record["correct"], record["reviewed"]) == (6, 6, None)


def test_corrections_of_other_answers_are_refused(ready: Runner) -> None:
    corrections("elsewhere/bee9.png,bee,cow,")
    words = (
        "error: c.csv: has none of the 6 rows, such as q/ant10.png; paths are relative to the current "
        "folder, so run the command where `crnr classify` ran\n"
    )
    assert ready("evaluate", "out.csv", "--corrections", "c.csv") == Outcome(1, "", words)
