"""JSON Lines hold what the CSV holds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from helpers.runner import Runner, rows
from helpers.samples import make_features, make_images
from helpers.templates import Templates

COLUMNS = ["path", "truth", "label", "residual", "runner_up", "margin", "status", "separation"]


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "queries", first=10)
    Path("queries/bee/empty.png").write_bytes(b"")
    assert crnr("build", "gallery", "--dtype", "float64", "-q").exit == 0


@pytest.fixture
def built(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(build_gallery, crnr.here)
    return crnr


def test_every_object_is_a_row(built: Runner) -> None:
    by_csv, by_json = built("classify", "queries"), built("classify", "queries", "--json")
    assert (by_json.exit, by_json.err) == (by_csv.exit, by_csv.err) == (3, by_csv.err)
    records = [json.loads(line) for line in by_json.out.splitlines()]
    table = rows(by_csv.out)
    assert [list(record) for record in records] == [[*COLUMNS, "residuals"]] * 13
    for record, row in zip(records, table, strict=True):
        for name in COLUMNS:
            assert (record[name] or "" if not isinstance(record[name], float) else repr(record[name])) == row[
                name
            ]
        residuals = {name[9:]: float(row[name]) for name in row if name.startswith("residual:") and row[name]}
        assert (record["residuals"] or {}) == residuals
    assert [record["status"] for record in records].count("empty_file") == 1


def test_the_best_classes_come_first(built: Runner) -> None:
    record = json.loads(built("classify", "queries/ant/10.png", "--json", "--top", 2).out)
    assert list(record["residuals"]) == [record["label"], record["runner_up"]]
    assert record["residuals"][record["label"]] == record["residual"]


def test_a_stopped_run_continues_in_its_own_format(built: Runner) -> None:
    strict = ("classify", "queries", "-o", "out", "--batch-size", 4, "--json", "-q")
    assert built(*strict, "--strict").exit == 1
    as_csv = built("classify", "queries", "-o", "out", "--batch-size", 4, "--resume")
    assert as_csv.exit == 1
    assert "--format was jsonl and is now csv" in as_csv.err
    assert built(*strict, "--resume").exit == 3
    assert Path("out").read_text() == built("classify", "queries", "--batch-size", 4, "--json", "-q").out


def test_json_lines_escape_names_that_are_not_utf_8(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    assert crnr("build", "gallery.npz", "-q").exit == 0
    name = os.fsdecode(b"\xff.npz")
    make_features(crnr.here / name)
    outcome = crnr("classify", name, "--json", "-q")
    assert outcome.exit == 0
    assert json.loads(outcome.out.splitlines()[0])["path"] == f"{name}#0"
