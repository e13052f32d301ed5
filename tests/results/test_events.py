"""Answers to events, from rows as they are written, against a mean over the rows of each event."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict

import numpy as np
import pytest

from crnr_cli.results import events
from crnr_cli.results.decision import REJECTED, UNKNOWN
from crnr_cli.results.events import EventAnswers
from crnr_cli.results.probability import Calibrated

CLASSES = ["ant", 'b"e,e', "cow"]
SHARPNESS = 6.0
TOP = ["path", "label", "status", "probability", "runner_up", "label_1", "probability_1"]


def answers_of(
    classes: list[str],
    *,
    is_csv: bool = True,
    gap: float | None = None,
    min_probability: float = 0.0,
    dtype: str = "float64",
    sharpness: float = SHARPNESS,
) -> EventAnswers:
    """Without a gap, the first letter of a path is its event."""
    return EventAnswers(
        gap=gap,
        find_key=(lambda path: path[0]) if gap is None else None,
        is_csv=is_csv,
        classes=classes,
        certainty=Calibrated(sharpness, np.zeros(1)),
        dtype=dtype,
        signed=False,
        min_probability=min_probability,
    )


def csv_of(*rows: list[str]) -> io.BytesIO:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return io.BytesIO(text.getvalue().encode())


def make_rows(count: int) -> list[dict[str, object]]:
    """Rows of five events, mixed; names have all characters that matter in a CSV, and some queries failed."""
    rng = np.random.default_rng(4)
    rows: list[dict[str, object]] = []
    for i in range(count):
        residuals = rng.uniform(0.3, 1, len(CLASSES)).round(6).tolist()
        weights = np.array(residuals) ** -SHARPNESS
        best = int(np.argmin(residuals))
        path = f'{i % 5}/{i} "x",\n\r\udcff{i}.jpg' if i % 3 else f"{i % 5}/{i}.jpg"
        failed = i % 7 == 3
        row = {
            "path": path,
            "label": None if failed else CLASSES[best],
            "runner_up": None,
            "status": "no_box" if failed else "ok",
            "probability": None if failed else round(float((weights / weights.sum())[best]), 4),
            "date": "2026-07-01T05:06:07",
            "residuals": {} if failed else dict(zip(CLASSES, residuals, strict=True)),
        }
        rows.append(row)
    return rows


def write(rows: list[dict[str, object]], *, is_csv: bool) -> bytes:
    if not is_csv:
        return "".join(json.dumps(row) + "\n" for row in rows).encode("ascii")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    names = [name for name in rows[0] if name != "residuals"]
    writer.writerow([*names, *(f"residual:{name}" for name in CLASSES)])
    for row in rows:
        residuals = row["residuals"]
        assert isinstance(residuals, dict)
        writer.writerow([*(row[name] for name in names), *(residuals.get(name, "") for name in CLASSES)])
    return text.getvalue().encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("is_csv", [False, True])
@pytest.mark.parametrize("block", [1, 2, 256])
def test_blocks_do_not_change_the_answers(monkeypatch: pytest.MonkeyPatch, is_csv: bool, block: int) -> None:
    monkeypatch.setattr(events, "_BLOCK", block)
    rows = make_rows(40)
    calls: list[tuple[str, int, int]] = []
    answers = EventAnswers(
        gap=60.0,
        find_key=None,
        is_csv=is_csv,
        classes=CLASSES,
        certainty=Calibrated(SHARPNESS, np.zeros(1)),
        dtype="float64",
        signed=False,
        min_probability=0.0,
    )
    written, output = write(rows, is_csv=is_csv), io.BytesIO()
    answers.finish(io.BytesIO(written), output, lambda *call: calls.append(call))
    text = output.getvalue().decode("utf-8", "surrogateescape")
    if is_csv:
        found = list(csv.DictReader(io.StringIO(text, newline="")))
    else:
        found = list(map(json.loads, text.splitlines()))
    assert [row["path"] for row in found] == [row["path"] for row in rows]
    groups = defaultdict(list)
    for i, row in enumerate(rows):
        if row["label"]:
            groups[i % 5].append(row["residuals"])
    for i, row in enumerate(found):
        weights = np.array([[one[name] for name in CLASSES] for one in groups[i % 5]]) ** -SHARPNESS
        mean = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
        assert int(row["event"]) == i % 5 + 1
        assert row["event_label"] == CLASSES[int(mean.argmax())]
        assert float(row["event_probability"]) == pytest.approx(mean.max(), abs=5.1e-5)
    for step in ("answering events", "writing events"):
        reports = [call for call in calls if call[0] == step]
        assert len(reports) == -(-len(rows) // block)
        assert reports[-1] == (step, 40, 40)


@pytest.mark.parametrize("is_csv", [False, True])
def test_classes_that_are_not_written_share_the_rest(is_csv: bool) -> None:
    """With --top 1: of three classes, each of the other two has half of the rest."""
    classes = ["ant", "bee", "cow\udcff"]
    rows = [
        ("a1", classes[0], "ok", 0.5, classes[0]),  # 0.5, 0.25, 0.25
        ("a2", classes[2], "ok", 0.7, classes[2]),  # 0.15, 0.15, 0.7
        ("b1", UNKNOWN, REJECTED, 0.6, classes[0]),  # 0.6, 0.2, 0.2
        ("b2", UNKNOWN, REJECTED, 0.4, classes[0]),  # 0.4, 0.3, 0.3
    ]
    if is_csv:
        header = "path,label,status,probability,runner_up,label_1,probability_1\n"
        lines = [f"{path},{label},{status},{p},{best},{best},{p}\n" for path, label, status, p, best in rows]
        written = (header + "".join(lines)).encode("utf-8", "surrogateescape")
    else:
        records = [
            {"path": path, "label": label, "status": status, "probability": p, "runner_up": best}
            | {"residuals": {best: 0.1}, "probabilities": {best: p}}
            for path, label, status, p, best in rows
        ]
        written = "".join(json.dumps(record) + "\n" for record in records).encode("ascii")
    answers = EventAnswers(
        gap=None,
        find_key=lambda path: path[0],
        is_csv=is_csv,
        classes=classes,
        certainty=Calibrated(SHARPNESS, np.zeros(1)),
        dtype="float64",
        signed=False,
        min_probability=0.3,
    )
    output = io.BytesIO()
    answers.finish(io.BytesIO(written), output)
    text = output.getvalue().decode("utf-8", "surrogateescape")
    found = list(csv.DictReader(io.StringIO(text))) if is_csv else list(map(json.loads, text.splitlines()))
    of_events = [(row["event_label"], float(row["event_probability"])) for row in found]
    assert of_events == 2 * [(classes[2], 0.475)] + 2 * [(UNKNOWN, 0.5)]


def test_answers_just_at_the_threshold_count() -> None:
    rows = csv_of(
        TOP,
        ["a1", "ant", "ok", "0.5", "bee", "ant", "0.5"],  # an event of its own
        ["b1", UNKNOWN, REJECTED, "0.5", "ant", "ant", "0.5"],  # rejected, but not as too improbable
        ["b2", "bee", "ok", "0.8", "ant", "bee", "0.8"],
        ["c1", "ant", "ok", "0.5", "bee", "ant", "0.5"],
        ["c2", "ant", "ok", "0.5", "bee", "ant", "0.5"],
        ["d1", "", "truncated", "", "", "", ""],
        ["e1", UNKNOWN, REJECTED, "0.4999", "bee", "bee", "0.4999"],
    )
    events, answers = answers_of(["ant", "bee"], min_probability=0.5).answer(rows)
    assert events.tolist() == [1, 2, 2, 3, 3, 4, 5]
    assert answers == [("ant", 0.5), ("bee", 0.8), ("ant", 0.5), (None, None), (UNKNOWN, 0.4999)]


def test_the_only_class_that_is_not_written_has_the_whole_rest() -> None:
    rows = csv_of(
        TOP,
        ["a1", "ant", "ok", "0.6", "bee", "ant", "0.6"],
        ["a2", "bee", "ok", "0.9", "ant", "bee", "0.9"],
    )
    _, answers = answers_of(["ant", "bee"]).answer(rows)
    assert answers == [("bee", 0.65)]  # (0.4 + 0.9) / 2


def test_line_ends_in_the_names_of_classes_are_kept() -> None:
    name = "c\r\nd\re"
    rows = csv_of(
        TOP,
        ["a1", name, "ok", "0.7", "bee", name, "0.7"],
        ["b1", name, "ok", "0.7", "bee", name, "0.7"],
        ["b2", "bee", "ok", "0.6", name, "bee", "0.6"],
    )
    output = io.BytesIO()
    answers_of(["bee", name]).finish(rows, output)
    found = list(csv.DictReader(io.StringIO(output.getvalue().decode(), newline="")))
    assert [(row["event_label"], row["event_probability"]) for row in found] == [
        (name, "0.7000"),
        (name, "0.5500"),
        (name, "0.5500"),
    ]


@pytest.mark.parametrize("is_csv", [False, True])
@pytest.mark.parametrize(("most", "blocks"), [(2, [1, 2, 3, 4, 5]), (8, [2, 4, 5]), (3 * 256, [5])])
def test_the_more_classes_the_fewer_rows_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch, is_csv: bool, most: int, blocks: list[int]
) -> None:
    monkeypatch.setattr(events, "_MAX_VALUES", most)
    written = io.BytesIO(write(make_rows(5), is_csv=is_csv))
    done: list[int] = []
    answers_of(CLASSES, is_csv=is_csv).answer(written, lambda _, count, __: done.append(count))
    assert done == blocks


def test_residuals_have_the_precision_of_the_gallery() -> None:
    """Nine digits stand for one number of 32 bits, which is not the number with these digits."""
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.1, 1, (100, 2, 1))
    residuals = (scale * (1 + rng.uniform(0, 2e-5, (100, 2, 3)))).astype(np.float32).astype(float)
    header = ["path", "label", "status", "probability", "runner_up", *(f"residual:{name}" for name in "xyz")]
    rows = [
        [f"{chr(256 + event)}{i}", "x", "ok", "0.5", "y", *(f"{value:.9g}" for value in values)]
        for event, members in enumerate(residuals.tolist())
        for i, values in enumerate(members)
    ]
    _, answers = answers_of(["x", "y", "z"], dtype="float32", sharpness=1e5).answer(csv_of(header, *rows))
    weights = (residuals / residuals.min(axis=2, keepdims=True)) ** -1e5
    means = (weights / weights.sum(axis=2, keepdims=True)).mean(axis=1)
    assert [label for label, _ in answers] == ["xyz"[best] for best in means.argmax(axis=1)]
    found = np.array([probability for _, probability in answers])
    np.testing.assert_allclose(found, means.max(axis=1), rtol=0, atol=5.0001e-5)  # half of the last digit


def test_the_date_may_be_the_last_column() -> None:
    dates = ["2026-07-01T05:06:00", "2026-07-01T05:06:50", "", "2026-07-01T05:07:50"]
    rows = [f"q/{i}.jpg,ant,ok,0.7,bee,ant,0.7,{date}\n" for i, date in enumerate(dates)]
    written = io.BytesIO("".join([",".join([*TOP, "date"]) + "\n", *rows]).encode())
    numbers, answers = answers_of(["ant", "bee"], gap=55).answer(written)
    assert numbers.tolist() == [1, 1, 2, 3]
    assert answers == [("ant", 0.7)] * 3


@pytest.mark.parametrize("name", ["1.jpg", '1 "x".jpg'])
def test_members_of_an_event_may_have_large_sets(name: str) -> None:
    limit = csv.field_size_limit()
    rows = [
        ["path", *TOP[1:5], "set", "date", *TOP[5:]],
        *(
            [f"q/{i}{name}", "ant", "ok", p, "bee", "ant|" * (limit // 4) + "ant", date, "ant", p]
            for i, p, date in ((0, "0.7", "2026-07-01T05:06:00"), (1, "0.8", "2026-07-01T05:06:50"))
        ),
    ]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    events, answers = answers_of(["ant", "bee"], gap=55).answer(io.BytesIO(text.getvalue().encode()))
    assert (events.tolist(), answers) == ([1, 1], [("ant", 0.75)])
    assert csv.field_size_limit() == limit
