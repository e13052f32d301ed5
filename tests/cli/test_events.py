"""Events: bursts of photographs that are answered, scored and split together."""

from __future__ import annotations

import csv
import json
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crnr_cli.gallery.file import load_gallery, save_gallery
from helpers.runner import Outcome, Runner, read_rows, rows
from helpers.templates import Templates

CLASSES = ("bars", "dots", "rings")


def make_shot(path: Path, kind: str, seed: int, second: int | None, noise: float = 40) -> None:
    """Save a noisy image of a class, taken this many seconds after noon."""
    rng = np.random.default_rng([CLASSES.index(kind), seed])
    y, x = np.mgrid[:24, :24]
    pattern = {
        "bars": x % 8 < 4,
        "dots": (x % 8 < 4) & (y % 8 < 4),
        "rings": (x - 12) ** 2 + (y - 12) ** 2 < 80,
    }
    values = 60 + 120 * pattern[kind] + rng.normal(0, noise, (24, 24))
    exif = Image.Exif()
    if second is not None:
        clock = f"{12 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        exif[0x8769] = {0x9003: f"2026:07:01 {clock}"}
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(path, exif=exif.tobytes())


def make_bursts(crnr: Runner) -> None:
    for kind in CLASSES:
        for i in range(6):
            make_shot(Path(f"g/{kind}/{i}.png"), kind, i, None)
        for burst in range(2):
            for i in range(3):
                make_shot(
                    Path(f"q/{kind}/{burst}{i}.png"), kind, 100 + 10 * burst + i, 600 * burst + 20 * i, 150
                )
    make_shot(Path("q/bars/undated.png"), "bars", 200, None)
    assert crnr("build", "g", "--calibrate", "-q").exit == 0


@pytest.fixture(autouse=True)
def bursts(crnr: Runner, templates: Templates) -> None:
    """A calibrated gallery, and two bursts of three images per class, ten minutes apart."""
    templates.copy(make_bursts, crnr.here)


def by_event(found: list[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    events = defaultdict(list)
    for row in found:
        events[row["event"]].append(row)
    return dict(events)


def mean_probabilities(members: list[dict[str, str]]) -> np.ndarray:
    """The mean over rows of the probabilities that their residuals stand for."""
    gallery = load_gallery(Path("gallery.h5"))
    assert gallery.calibration is not None
    assert gallery.calibration.certainty is not None
    sharpness = gallery.calibration.certainty.sharpness
    residuals = np.array([[float(row[f"residual:{name}"]) for name in CLASSES] for row in members])
    weights = residuals**-sharpness
    return (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)


def test_classify_answers_events_by_the_mean_probability(crnr: Runner) -> None:
    plain = rows(crnr("classify", "q", "--dates").out)
    found = rows(crnr("classify", "q", "--event-gap", "60s").out)
    groups = by_event(found)
    assert [sorted(Path(row["path"]).name[0] for row in group) for group in groups.values()] == [
        *(["0"] * 3, ["1"] * 3, ["u"]),
        *(["0"] * 3, ["1"] * 3) * 2,
    ]
    assert list(groups) == list(map(str, range(1, 8)))
    for members in groups.values():
        mean = mean_probabilities(members)
        for row in members:
            assert row["event_label"] == CLASSES[int(mean.argmax())]
            assert float(row["event_probability"]) == pytest.approx(mean.max(), abs=6e-5)
    for row in found:
        for name in ("event", "event_label", "event_probability"):
            del row[name]
    assert found == plain


@pytest.mark.parametrize("gap", ["1h", "600s", "10m", "600"])
def test_gaps_have_units(crnr: Runner, gap: str) -> None:
    assert len(by_event(rows(crnr("classify", "q", "--event-gap", gap).out))) == 4


def test_without_a_plain_event_option_nothing_changes(crnr: Runner) -> None:
    out = crnr("classify", "q").out
    assert out.partition("\n")[0].endswith("residual:rings")
    assert "event" not in out


@pytest.mark.parametrize("top", [[], ["--top", "2"]])
def test_all_ways_of_writing_agree(crnr: Runner, top: list[str]) -> None:
    assert crnr("classify", "q", "--event-gap", "60", *top, "-o", "out.csv", "-q").exit == 0
    assert crnr("classify", "q", "--event-gap", "60", *top, "-o", "out.jsonl", "-q").exit == 0
    stdout = crnr("classify", "q", "--event-gap", "60", *top)
    assert stdout.out == Path("out.csv").read_text()
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    for row, record in zip(read_rows(Path("out.csv")), records, strict=True):
        assert row["event"] == str(record["event"])
        assert row["event_label"] == record["event_label"]
        assert row["event_probability"] == f"{record['event_probability']:.4f}"
    full = rows(crnr("classify", "q", "--event-gap", "60").out)
    for row, other in zip(read_rows(Path("out.csv")), full, strict=True):
        assert row["event_label"] == other["event_label"]
        assert float(row["event_probability"]) == pytest.approx(float(other["event_probability"]), abs=2e-4)


def test_names_with_line_ends_and_failed_images_stay_in_their_rows(crnr: Runner) -> None:
    make_shot(Path('q/bars/00 "and\nso", on.png'), "bars", 7, 10)
    Path("q/bars/broken.png").write_bytes(b"\x89PNG")
    plain = rows(crnr("classify", "q", "--dates").out)
    found = rows(crnr("classify", "q", "--event-gap", "60s").out)
    assert [row["path"] for row in found] == [row["path"] for row in plain]
    of = {row["path"]: row for row in found}
    assert of['q/bars/00 "and\nso", on.png']["event"] == of["q/bars/00.png"]["event"]
    broken = of["q/bars/broken.png"]
    assert (broken["event_label"], broken["event_probability"]) == ("", "")
    assert [row for row in found if row["event"] == broken["event"]] == [broken]


def test_an_image_without_a_box_belongs_to_its_burst(crnr: Runner) -> None:
    boxes = [f"q/{kind}/{burst}{i}.png,0,0,1,1" for kind in CLASSES for burst in "01" for i in "02"]
    Path("boxes.csv").write_text("\n".join(["path,x,y,width,height", *boxes, ""]))
    groups = by_event(rows(crnr("classify", "q", "--boxes", "boxes.csv", "--event-gap", "30s").out))
    alone, *bursts = sorted(groups.values(), key=len)
    assert [row["status"] for row in alone] == ["no_box"]  # without a date
    assert alone[0]["event_label"] == ""
    for members in bursts:
        assert [row["status"] for row in members] == ["ok", "no_box", "ok"]
        answered = [row for row in members if row["label"]]
        mean = mean_probabilities(answered)
        assert {row["event_label"] for row in members} == {CLASSES[int(mean.argmax())]}


def test_an_uncalibrated_gallery_is_calibrated(crnr: Runner) -> None:
    calibrated = crnr("classify", "q", "--event-gap", "60s").out
    assert crnr("build", "g", "-q").exit == 0
    assert crnr("classify", "q", "--event-gap", "60s").out == calibrated


def test_rejected_members_do_not_count_and_improbable_events_are_unknown(crnr: Runner) -> None:
    found = rows(crnr("classify", "q", "--event-gap", "60s", "--reject", "0.3").out)
    statuses = {row["status"] for row in found}
    assert statuses == {"ok", "rejected"}
    for members in by_event(found).values():
        counted = [row for row in members if row["status"] == "ok"]
        mean = mean_probabilities(counted or members)
        label = CLASSES[int(mean.argmax())] if counted else "unknown"
        assert {row["event_label"] for row in members} == {label}
    limit = 0.9
    found = rows(crnr("classify", "q", "--event-gap", "60s", "--min-probability", str(limit)).out)
    for members in by_event(found).values():
        probability = float(members[0]["event_probability"])
        assert probability == pytest.approx(mean_probabilities(members).max(), abs=6e-5)
        assert (members[0]["event_label"] == "unknown") == (probability < limit)
    assert "unknown" in {row["event_label"] for row in found} < {"unknown", *CLASSES}


def test_a_column_of_the_label_table_gives_the_events(crnr: Runner) -> None:
    paths = sorted(str(path) for path in Path("q").rglob("*.png"))
    with Path("table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "sequence"])
        writer.writerows([path, Path(path).parent.name, Path(path).name[0]] for path in paths)
    found = rows(crnr("classify", "q", "--labels", "table.csv", "--event-by", "sequence").out)
    assert {
        tuple(sorted({Path(row["path"]).name[0] for row in group})) for group in by_event(found).values()
    } == {
        ("0",),
        ("1",),
        ("u",),
    }
    wrong = crnr("classify", "q", "--labels", "table.csv", "--event-by", "burst")
    remedy = "no column burst, only path, label, sequence; choose the right one with --event-by"
    assert wrong == Outcome(1, "", f"error: table.csv: {remedy}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--event-gap", "soon"],
            "--event-gap must be a time such as 60s, 5m or 1h, not 'soon' (see `crnr classify --help`)",
        ),
        (
            ["--event-gap", "1", "--event-by", "x"],
            "--event-gap and --event-by contradict each other; give one of them",
        ),
        (["--event-by", "x"], "--event-by is a column of the label table; name the table with --labels"),
        (
            ["--event-gap", "1", "-o", "o.csv", "--update"],
            "--update keeps rows whose events may have changed; leave out --event-gap or --update",
        ),
        (
            ["--event-gap", "1", "--min-probability", "0.5", "--taxa", "t.csv"],
            "--event-gap gives an event one of the classes, none broader; leave out --taxa",
        ),
        (
            ["--event-gap", "1", "-o", "o.parquet"],
            "--event-gap cannot add columns to a Parquet file; choose --format csv or jsonl",
        ),
    ],
)
def test_contradictions_are_refused(crnr: Runner, arguments: list[str], message: str) -> None:
    Path("t.csv").write_text("class,parent\nbars,lines\n")
    assert crnr("classify", "q", *arguments) == Outcome(2, "", f"error: {message}\n")
    assert not list(Path().glob("o.*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-o", "o.csv", "--update"],
            "--update keeps rows whose events may have changed; leave out --event-by or --update",
        ),
        (
            ["--min-probability", "0.5", "--taxa", "t.csv"],
            "--event-by gives an event one of the classes, none broader; leave out --taxa",
        ),
        (
            ["-o", "o.csv", "--format", "parquet"],
            "--event-by cannot add columns to a Parquet file; choose --format csv or jsonl",
        ),
    ],
)
def test_events_by_a_column_refuse_the_same(crnr: Runner, arguments: list[str], message: str) -> None:
    Path("t.csv").write_text("class,parent\nbars,lines\n")
    Path("table.csv").write_text("path,label,burst\nq/bars/00.png,bars,1\n")
    command = ["classify", "q", "--labels", "table.csv", "--event-by", "burst", *arguments]
    assert crnr(*command) == Outcome(2, "", f"error: {message}\n")
    assert not list(Path().glob("o.*"))


def test_events_of_feature_files_are_refused(crnr: Runner) -> None:
    assert crnr("extract", "q", "-o", "f.h5", "-q").exit == 0
    outcome = crnr("classify", "f.h5", "--event-gap", "1")
    assert outcome == Outcome(
        2, "", "error: --event-gap applies to images, but f.h5 is a feature file; leave it out\n"
    )


def test_a_stopped_run_continues_and_a_complete_one_is_left_alone(crnr: Runner) -> None:
    command = ["classify", "q", "--event-gap", "60s", "--batch-size", "4", "-o", "out.csv"]
    assert crnr(*command).exit == 0
    assert "is complete" in crnr(*command, "--resume").err
    Path("q/rings/zz.png").write_bytes(b"\x89PNG")
    assert crnr(*command).exit == 3
    wanted = Path("out.csv").read_bytes()
    Path("out.csv").unlink()
    assert crnr(*command, "--strict").exit == 1
    assert Path("out.csv.crnr-rows").stat().st_size > 0
    assert not Path("out.csv").exists()
    outcome = crnr(*command, "--resume")
    assert (outcome.exit, "were done by the earlier run" in outcome.err) == (3, True)
    assert Path("out.csv").read_bytes() == wanted
    assert [path.name for path in Path().iterdir() if ".crnr-" in path.name] == []


def test_evaluate_scores_inputs_and_events(crnr: Runner) -> None:
    assert crnr("classify", "q", "--event-gap", "60s", "-o", "out.csv", "-q").exit == 0
    assert crnr("classify", "q", "--event-gap", "60s", "-o", "out.jsonl", "-q").exit == 0
    groups = by_event(read_rows(Path("out.csv")))
    correct = sum(members[0]["event_label"] == members[0]["truth"] for members in groups.values())
    for name in ("out.csv", "out.jsonl"):
        found = json.loads(crnr("evaluate", name, "--json").out)
        assert found["inputs"] == 19
        assert {key: found["events"][key] for key in ("n", "correct", "mixed", "accuracy")} == {
            "n": 7,
            "correct": correct,
            "mixed": 0,
            "accuracy": correct / 7,
        }
    twice = json.loads(crnr("evaluate", "out.csv", "out.jsonl", "--json").out)
    assert (twice["events"]["n"], twice["events"]["correct"]) == (14, 2 * correct)
    shown = crnr("evaluate", "out.csv").out
    assert f"{correct} of 7 events correct" in shown
    assert crnr("evaluate", "out.csv", "--html", "report.html", "-q").exit == 0
    assert f"{correct} of 7 events labelled correctly" in Path("report.html").read_text()
    plain = crnr("classify", "q").out
    assert json.loads(crnr("evaluate", "-", "--json", stdin=plain).out)["events"] is None


@pytest.mark.parametrize("more", [[], ["--reject", "0.3"], ["--min-probability", "0.9"]])
def test_evaluate_of_a_folder_scores_events_as_after_classify(crnr: Runner, more: list[str]) -> None:
    shutil.copytree("q/rings", "others/q")
    shutil.rmtree("q/rings")
    command = ["--event-gap", "60s", *more]
    assert crnr("classify", "q", "others", *command, "-o", "out.csv", "-q").exit == 0
    wanted = json.loads(crnr("evaluate", "out.csv", "--outsiders", "others", "--json").out)
    found = json.loads(crnr("evaluate", "q", "--outsiders", "others", *command, "--json").out)
    assert found["events"] == wanted["events"]
    assert found["events"]["n"] == 5
    assert found["known"] == wanted["known"]
    assert json.loads(crnr("evaluate", "q", *more, "--json").out)["events"] is None


def test_evaluate_groups_by_a_column_of_the_label_table(crnr: Runner) -> None:
    with Path("table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "sequence"])
        writer.writerows([path, path.parent.name, path.parent.name] for path in Path("q").rglob("*.png"))
    found = json.loads(crnr("evaluate", "--labels", "table.csv", "--event-by", "sequence", "--json").out)
    assert (found["n"], found["events"]["n"]) == (19, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["out.csv", "--event-gap", "90"],
            "--event-gap has no effect on the existing predictions in out.csv; run `crnr classify "
            "--event-gap 90` first",
        ),
        (
            ["out.csv", "--labels", "table.csv", "--event-by", "my burst"],
            "--event-by has no effect on the existing predictions in out.csv; run `crnr classify "
            "--event-by 'my burst'` first",
        ),
        (
            ["out.csv", "--boxes", "boxes.csv"],
            "--boxes has no effect on the existing predictions in out.csv; leave it out",
        ),
        (["q", "--event-by", "x"], "--event-by is a column of the label table; name the table with --labels"),
        (
            ["q", "--event-gap", "1", "--min-probability", "0.5", "--taxa", "t.csv"],
            "--event-gap gives an event one of the classes, none broader; leave out --taxa",
        ),
    ],
)
def test_evaluate_refuses_contradictions(crnr: Runner, arguments: list[str], message: str) -> None:
    assert crnr("classify", "q", "-o", "out.csv", "-q").exit == 0
    Path("t.csv").write_text("class,parent\nbars,lines\n")
    Path("table.csv").write_text("path,label,my burst\nq/bars/00.png,bars,1\n")
    Path("boxes.csv").write_text("path,x,y,width,height\nq/bars/00.png,0,0,0.5,0.5\n")
    assert crnr("evaluate", *arguments) == Outcome(2, "", f"error: {message}\n")


def test_events_of_several_true_classes_are_not_scored(crnr: Runner) -> None:
    for burst in range(2):
        make_shot(Path(f"q/bars/0{burst}.png"), "bars", burst, 20 * burst)
    with Path("table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows(
            [str(path), "dots" if path.name == "00.png" else path.parent.name]
            for path in Path("q").rglob("*.png")
        )
    out = crnr("classify", "q", "--labels", "table.csv", "--event-gap", "60s").out
    found = json.loads(crnr("evaluate", "-", "--json", stdin=out).out)["events"]
    assert (found["n"], found["mixed"]) == (5, 2)


def test_split_keeps_an_event_on_one_side(crnr: Runner) -> None:
    for burst in range(2, 8):
        for i in range(4):
            make_shot(Path(f"q/dots/{burst}{i}.png"), "dots", 10 * burst + i, 600 * burst + 20 * i)
    shutil.copy("q/dots/20.png", "q/dots/copy_of_20.png")
    command = ["split", "q", "--train", "t", "--test", "u", "--dry-run"]
    sides = defaultdict(set)
    for row in rows(crnr(*command).out):
        sides[row["path"][:-5]].add(row["target"].split("/")[0])
    assert {"t", "u"} in sides.values()  # an event was torn apart
    outcome = crnr(*command, "--event-gap", "60s")
    sides.clear()
    for row in rows(outcome.out):
        sides[row["path"].replace("copy_of_", "")[:-5]].add(row["target"].split("/")[0])
    assert {len(found) for found in sides.values()} == {1}
    assert {"t"} in sides.values()
    assert {"u"} in sides.values()
    assert "note: 12 events of several images; an event stays together\n" in outcome.err
    assert json.loads(crnr(*command, "--event-gap", "60s", "--json").out)["events"] == 12
    assert json.loads(crnr(*command, "--json").out)["events"] is None


@pytest.fixture
def burst_gallery(crnr: Runner) -> None:
    """A gallery of four bursts per class, whose members are nearly equal, and whose classes are hard."""
    for kind in CLASSES:
        for burst in range(4):
            for i in range(3):
                path = Path(f"b/{kind}/{burst}{i}.png")
                make_shot(path, kind, 50 + burst, 600 * burst + 20 * i, 300)
                with Image.open(path) as image:
                    exif, values = image.getexif().tobytes(), np.array(image)
                values[i, i] ^= 255
                Image.fromarray(values).save(path, exif=exif)
    assert crnr("build", "b", "-o", "events.h5", "--event-gap", "60s", "--calibrate", "-q").exit == 0


def events_of(gallery: str) -> dict[str, int]:
    loaded = load_gallery(Path(gallery))
    assert loaded.events is not None
    return dict(zip(loaded.names, loaded.events.tolist(), strict=True))


@pytest.mark.usefixtures("burst_gallery")
def test_a_gallery_holds_events_out_together(crnr: Runner) -> None:
    of = events_of("events.h5")
    assert {
        len({of[f"b/{kind}/{burst}{i}.png"] for i in range(3)}) for kind in CLASSES for burst in range(4)
    } == {1}
    assert len(set(of.values())) == 12
    assert crnr("build", "b", "-o", "plain.h5", "--calibrate", "-q").exit == 0
    assert load_gallery(Path("plain.h5")).events is None
    # Next to its twins, every example looks right; with its whole event held out, few do.
    with_twins, alone = (load_gallery(Path(name)).calibration for name in ("plain.h5", "events.h5"))
    assert with_twins is not None
    assert alone is not None
    assert with_twins.answers is not None
    assert alone.answers is not None
    assert len(with_twins.answers.wrong) == 0
    assert len(alone.answers.wrong) > 5
    found = {
        name: json.loads(crnr("audit", name, "--json").out)["agree"] for name in ("plain.h5", "events.h5")
    }
    assert found["events.h5"] < found["plain.h5"] == 36
    of_folder = json.loads(crnr("audit", "b", "--event-gap", "60s", "--json").out)["agree"]
    assert of_folder == found["events.h5"]


@pytest.mark.usefixtures("burst_gallery")
def test_tune_holds_events_out_together(crnr: Runner) -> None:
    command = ["tune", "b", "--methods", "nrc", "--json"]
    with_twins = json.loads(crnr(*command).out)
    alone = json.loads(crnr(*command, "--event-gap", "60s", "-o", "tuned.h5").out)
    assert alone["chosen"]["accuracy"] < 0.7 < 0.9 < with_twins["chosen"]["accuracy"]
    assert events_of("tuned.h5") == events_of("events.h5")


@pytest.mark.usefixtures("burst_gallery")
def test_changed_galleries_keep_their_events(crnr: Runner) -> None:
    before = events_of("events.h5")
    make_shot(Path("b/dots/05.png"), "dots", 5, 70)  # within a minute of the last member of an event
    make_shot(Path("b/dots/undated.png"), "dots", 6, None)
    assert crnr("add", "events.h5", "b/dots/05.png", "-q").exit == 0
    assert crnr("build", "b", "--update", "-o", "events.h5", "-q").exit == 0
    after = events_of("events.h5")
    assert after["b/dots/05.png"] == after["b/dots/02.png"] == after["b/dots/00.png"]
    assert list(after.values()).count(after["b/dots/undated.png"]) == 1
    assert len(set(after.values())) == len(set(before.values())) + 1
    assert (
        crnr("remove", "events.h5", "--example", "b/dots/05.png", "--example", "b/dots/undated.png").exit == 0
    )
    assert events_of("events.h5") == before
    assert crnr("rename", "events.h5", "dots", "zebra").exit == 0
    assert len(set(events_of("events.h5").values())) == 12
    outcome = crnr("build", "b", "--update", "-o", "events.h5", "--event-gap", "1h")
    assert (outcome.exit, "--event-gap" in outcome.err) == (2, True)
    outcome = crnr("audit", "events.h5", "--event-gap", "1h")
    assert (outcome.exit, "--event-gap" in outcome.err) == (2, True)


def test_extracted_features_can_be_added_to_a_gallery_with_events(crnr: Runner) -> None:
    assert crnr("build", "q", "-o", "e.h5", "--event-gap", "60s", "-q").exit == 0
    assert crnr("extract", "g", "-o", "f.h5", "--like", "e.h5", "-q").exit == 0
    assert crnr("add", "e.h5", "f.h5", "-q").exit == 0
    assert len(set(events_of("e.h5").values())) == 7 + 18


def test_a_gallery_whose_dates_are_no_dates_is_refused(crnr: Runner) -> None:
    assert crnr("build", "q", "-o", "e.h5", "--event-gap", "60s", "-q").exit == 0
    gallery = load_gallery(Path("e.h5"))
    for dates in (["tomorrow"] * 19, []):
        save_gallery(replace(gallery, table=replace(gallery.table, dates=dates)), Path("bad.h5"))
        outcome = crnr("info", "bad.h5")
        assert outcome.exit == 1
        assert "bad.h5: not a consistent gallery" in outcome.err


def test_compare_holds_events_out_together(crnr: Runner) -> None:
    """Photographs of a burst are equal but for one pixel; labels of bursts are random."""
    rng = np.random.default_rng(3)
    for kind in CLASSES[:2]:
        for burst in range(8):
            values = rng.integers(0, 255, (24, 24)).astype(np.uint8)
            for i in range(4):
                values[0, i] ^= 255
                exif = Image.Exif()
                exif[0x8769] = {0x9003: f"2026:07:01 12:{5 * burst:02}:{i:02}"}
                path = Path(f"noise/{kind}/{burst}{i}.png")
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(values).save(path, exif=exif.tobytes())
    command = ["compare", "noise", "--methods", "nn", "--json"]
    by_files = json.loads(crnr(*command).out)["methods"][0]["accuracy"]
    found = json.loads(crnr(*command, "--event-gap", "60s").out)
    assert by_files > 0.95
    assert found["methods"][0]["accuracy"] < 0.8
    # 30% of 8 events are 2, of 4 photographs each: the others are in the gallery.
    assert found["n_gallery"] == 2 * 6 * 4
    wrong = crnr("compare", "noise", "--test", "q", "--event-gap", "60s")
    message = "--event-gap applies to held-out examples, not to --test; leave it out"
    assert wrong == Outcome(2, "", f"error: {message}\n")
