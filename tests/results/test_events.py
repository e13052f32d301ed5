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
