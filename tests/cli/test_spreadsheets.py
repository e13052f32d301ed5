"""Tables that a spreadsheet saved with semicolons: the same results as with commas, and one note."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from helpers.runner import Runner, read_rows
from helpers.samples import make_features, make_images
from helpers.templates import Templates


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "new", first=10)
    assert crnr("build", "gallery", "-q").exit == 0
    assert crnr("classify", "new", "-o", "out.csv", "-q").exit == 0


@pytest.fixture
def built(crnr: Runner, templates: Templates) -> Runner:
    """gallery.h5 of gallery/, and out.csv with the answers of new/."""
    templates.copy(build_gallery, crnr.here)
    return crnr


def write(path: str, separator: str, rows: list[list[str]]) -> None:
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=separator).writerows(rows)


def save_again(path: str) -> None:
    """Save a CSV as a European spreadsheet does: with semicolons, and commas in numbers."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    numeric = {i for i, name in enumerate(rows[0]) if name.startswith(("residual", "margin", "separation"))}
    write(
        path,
        ";",
        [[cell.replace(".", ",") if i in numeric else cell for i, cell in enumerate(row)] for row in rows],
    )


def prepare(table: str) -> list[str]:
    """Write a table with commas, and return the command that reads it."""
    answers = read_rows(Path("out.csv"))
    if table == "labels.csv":
        files = sorted(Path("gallery").rglob("*.png"))
        write(table, ",", [["path", "label"], *([str(file), file.parent.name] for file in files)])
        return ["build", "gallery", "--labels", table, "-o", "other.h5"]
    if table == "table.csv":
        write(
            table,
            ",",
            [["u", "v", "species"], ["1.5", "2", "ant"], ["0.25", "3.5", "bee"], ["1", "2", "ant"]],
        )
        return ["build", table, "-o", "other.h5"]
    if table == "corrections.csv":
        rows = [[row["path"], row["label"], row["truth"], ""] for row in answers]
        write(table, ",", [["path", "label", "corrected", "when"], *rows])
        return ["add", "gallery.h5", "--corrections", table]
    if table == "marks.csv":
        write(table, ",", [["path", "remove"], ["gallery/ant/0.png", "x"]])
        return ["remove", "gallery.h5", "--marked-in", table]
    return []


def notes(error: str) -> list[str]:
    return [line for line in error.splitlines() if "read with" in line]


@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["notes", "quiet"])
@pytest.mark.parametrize("table", ["labels.csv", "table.csv", "corrections.csv", "marks.csv"])
def test_build_add_and_remove_read_semicolons(built: Runner, table: str, quiet: list[str]) -> None:
    command = prepare(table)
    changed = "other.h5" if "other.h5" in command else "gallery.h5"
    before = Path("gallery.h5").read_bytes()
    found = []
    for is_again in (False, True):
        Path("gallery.h5").write_bytes(before)
        Path("other.h5").unlink(missing_ok=True)
        if is_again:
            save_again(table)
            text = Path(table).read_text(encoding="utf-8")
            Path(table).write_text(text.replace("1.5", "1,5").replace("0.25", "0,25").replace("3.5", "3,5"))
        outcome = built(*command, *quiet)
        assert (outcome.exit, outcome.out) == (0, "")
        decimals = ["note: table.csv: read with decimal commas"] if table == "table.csv" else []
        expected = [f"note: {table}: read with semicolons between the columns", *decimals]
        assert notes(outcome.err) == (expected if is_again and not quiet else [])
        listed = built("info", changed, "--list-examples").out.splitlines()
        # The bytes and the date of a feature file are those of the table.
        found.append([line.split(",")[:3] if table == "table.csv" else line for line in listed])
    assert found[0] == found[1]


@pytest.mark.parametrize("command", ["evaluate", "sort", "review"])
def test_predictions_may_have_semicolons(built: Runner, command: str) -> None:
    options = {"evaluate": ["--json"], "sort": ["sorted", "--dry-run"], "review": ["-o", "page.html"]}[
        command
    ]
    first = built(command, "out.csv", *options)
    assert (first.exit, notes(first.err)) == (0, [])
    page = Path("page.html").read_text(encoding="utf-8") if command == "review" else ""
    save_again("out.csv")
    again = built(command, "out.csv", *options)
    assert (again.exit, again.out) == (0, first.out)
    assert notes(again.err) == ["note: out.csv: read with semicolons between the columns"]
    assert notes(built(command, "out.csv", *options, "-q").err) == []
    if page:
        assert Path("page.html").read_text(encoding="utf-8").count("new/ant") == page.count("new/ant")


def test_true_classes_of_queries_may_have_semicolons(built: Runner) -> None:
    files = sorted(Path("new").rglob("*.png"))
    write("truth.csv", ";", [["path", "label"], *([str(file), file.parent.name] for file in files)])
    for source in ("new", "out.csv"):
        scored = built("evaluate", source, "--labels", "truth.csv")
        assert (scored.exit, notes(scored.err)) == (
            0,
            ["note: truth.csv: read with semicolons between the columns"],
        )
    classified = built("classify", "new", "--labels", "truth.csv", "-o", "again.csv")
    assert classified.exit == 0
    assert notes(classified.err) == ["note: truth.csv: read with semicolons between the columns"]
    assert read_rows(Path("again.csv")) == read_rows(Path("out.csv"))


def test_feature_queries_may_have_semicolons(crnr: Runner) -> None:
    make_features(crnr.here / "x.npz", dimension=2, classes=("ant", "bee"))
    assert crnr("build", "x.npz", "-q").exit == 0
    Path("q.csv").write_text("u,v,label\n1.5,0.25,ant\n0.5,2,bee\n")
    expected = crnr("classify", "q.csv", "-q").out
    scores = crnr("evaluate", "q.csv", "--json").out
    Path("q.csv").write_text("u;v;label\n1,5;0,25;ant\n0,5;2;bee\n")
    assert crnr("classify", "q.csv", "-q").out == expected
    again = crnr("evaluate", "q.csv", "--json")
    assert again.out == scores
    assert len(notes(again.err)) == 2
