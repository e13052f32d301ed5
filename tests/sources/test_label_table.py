"""Labels from a table instead of folders: the same galleries, scores and settings as with folders."""

from __future__ import annotations

import csv
import shutil
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.sources.label_table import LabelOptions
from helpers.runner import Outcome, Runner, read_rows
from helpers.samples import make_features, make_images


def write_table(path: Path, rows: list[tuple[str, ...]]) -> Path:
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows(rows)
    return path


@pytest.fixture
def here(crnr: Runner) -> Runner:
    """The same images in class folders and, with a table, in one folder."""
    for name, first, count in (("gallery", 0, 4), ("queries", 10, 2)):
        make_images(crnr.here / name, first=first, per_class=count)
        flat = crnr.here / f"flat_{name}"
        flat.mkdir()
        for image in sorted((crnr.here / name).rglob("*.png")):
            shutil.copy2(image, flat / f"{image.parent.name}-{image.name}")
    rows = [
        (f"{folder.name}/{image.name}", image.name.split("-")[0])
        for folder in (crnr.here / "flat_gallery", crnr.here / "flat_queries")
        for image in sorted(folder.iterdir())
    ]
    write_table(crnr.here / "labels.csv", [("path", "label"), *rows])
    return crnr


def answers(path: Path) -> list[tuple[str, str, str]]:
    """Return the facts that do not depend on the names of the files."""
    return sorted((row["truth"], row["label"], row["residual"]) for row in read_rows(path))


def test_a_label_table_gives_the_gallery_of_folders(here: Runner) -> None:
    labels = ("--labels", "labels.csv")
    assert here("build", "gallery", "-o", "a.h5", "-q") == Outcome(0, "", "")
    built = here("build", "flat_gallery", "-o", "b.h5", *labels)
    assert (built.exit, built.out) == (0, "")
    assert "note: 6 files of labels.csv are not in the source: flat_queries/ant-10.png, " in built.err
    assert here("classify", "queries", "-g", "a.h5", "-o", "a.csv", "-q") == Outcome(0, "", "")
    assert here("classify", "flat_queries", "-g", "b.h5", "-o", "b.csv", "-q", *labels) == Outcome(0, "", "")
    assert answers(here.here / "a.csv") == answers(here.here / "b.csv")
    expected = here("evaluate", "a.csv", "--json").out
    assert here("evaluate", "b.csv", "--json").out == expected
    assert here("classify", "flat_queries", "-g", "b.h5", "-o", "c.csv", "-q") == Outcome(0, "", "")
    assert {row["truth"] for row in read_rows(here.here / "c.csv")} == {""}
    assert here("evaluate", "c.csv", "--json", *labels).out == expected
    directly = here("evaluate", "flat_queries", "-g", "b.h5", "-q", *labels)
    assert directly.out == here("evaluate", "queries", "-g", "a.h5", "-q").out
    for command in ("compare {} --methods nn,nsc --draws 1 --json -q", "tune {} --budget 0 --json -q"):
        by_folder = here(*command.format("gallery").split())
        by_table = here(*command.format("flat_gallery").split(), *labels)
        assert by_folder.exit == by_table.exit == 0
        assert _accuracies(by_folder.out) == _accuracies(by_table.out)
    tested = here("compare", "flat_gallery", "--test", "flat_queries", "--methods", "nn", *labels)
    assert tested.exit == 0


def _accuracies(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "accuracy" in line]


def test_files_without_a_label_are_left_out_and_counted(here: Runner) -> None:
    rows = [("path", "label"), ("flat_gallery/ant-0.png", "ant"), ("flat_gallery/bee-0.png", "bee")]
    write_table(here.here / "few.csv", [*rows, ("flat_gallery/cow-0.png", ""), ("gone.png", "bee")])
    outcome = here("build", "flat_gallery", "--labels", "few.csv")
    assert (outcome.exit, outcome.out) == (3, "")
    assert "failed: flat_gallery/cow-0.png: has no label in few.csv\n" in outcome.err
    assert "note: 1 file of few.csv is not in the source: gone.png\n" in outcome.err
    assert "gallery.h5: 2 classes, 2 examples, " in outcome.err


def test_paths_are_relative_to_the_table_or_to_root(here: Runner) -> None:
    (here.here / "tables").mkdir()
    shutil.copy("labels.csv", "tables/labels.csv")
    lost = here("build", "flat_gallery", "--labels", "tables/labels.csv")
    first = here.here / "tables" / "flat_gallery" / "ant-0.png"
    assert lost == Outcome(
        1,
        "",
        "error: tables/labels.csv: has a label for none of the 12 files; the first one was looked for at "
        f"{first}; use --root to give the folder that its paths are relative to\n",
    )
    assert here("build", "flat_gallery", "--labels", "tables/labels.csv", "--root", ".", "-q").exit == 0
    absolute = [("path", "label"), *((str(p.absolute()), p.name[:3]) for p in Path("flat_gallery").iterdir())]
    write_table(here.here / "tables" / "absolute.csv", absolute)
    assert here("build", "flat_gallery", "--labels", "tables/absolute.csv", "-q") == Outcome(0, "", "")
    elsewhere = Runner(here.here / "tables")
    assert elsewhere("build", "../flat_gallery", "--labels", "../labels.csv", "-q") == Outcome(0, "", "")


@pytest.mark.parametrize("name", ["named.csv", "named.tsv"])
def test_columns_can_have_other_names(here: Runner, name: str) -> None:
    rows = [("id", "species", "file")]
    rows += [(str(i), p.name[:3], str(p)) for i, p in enumerate(sorted(Path("flat_gallery").iterdir()))]
    write_table(here.here / name, rows)
    only = "only id, species, file; choose the right one with"
    wrong = here("build", "flat_gallery", "--labels", name)
    assert wrong == Outcome(1, "", f"error: {name}: no column path, {only} --path-column\n")
    half = here("build", "flat_gallery", "--labels", name, "--path-column", "file")
    assert half == Outcome(1, "", f"error: {name}: no column label, {only} --label-column\n")
    columns = ("--path-column", "file", "--label-column", "species")
    assert here("build", "flat_gallery", "--labels", name, *columns, "-q") == Outcome(0, "", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no column path, only none; choose the right one with --path-column"),
        (
            "a.png,1\nb.png,2\n",
            "no column path, only a.png, 1; the first line must name the columns, such as path,label",
        ),
        ("path,label\na.png,1\n./a.png,2\n", "line 3: ./a.png has the label '2' here, and '1' in line 2"),
        ("path,label\na.png\n", "line 2: the row is too short; is it complete?"),
        ("path,label\n,1\n", "line 2: the path is empty"),
        ('path,label\n"a.png,1\n', "not readable as CSV (unexpected end of data)"),
        ("path,label\na\0b.png,1\n", "line 2: "),
        ("path,label\n", "has a label for none of the 12 files; use --root to give the folder"),
    ],
)
def test_a_table_that_cannot_be_used(here: Runner, content: str, message: str) -> None:
    Path("t.csv").write_text(content)
    outcome = here("build", "flat_gallery", "--labels", "t.csv")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith("error: t.csv")
    assert message in outcome.err
    assert not Path("gallery.h5").exists()


def test_options_of_a_table_need_one(here: Runner) -> None:
    for option in ("--path-column", "--label-column", "--root"):
        outcome = here("build", "flat_gallery", option, "x")
        assert outcome == Outcome(2, "", f"error: {option} is for a table of labels; name it with --labels\n")
    make_features(Path("f.npz"))
    outcome = here("build", "f.npz", "--labels", "labels.csv")
    assert outcome.exit == 2
    assert "--labels applies to images, but" in outcome.err


def test_a_label_that_is_no_class_is_the_truth_all_the_same(here: Runner) -> None:
    assert here("build", "gallery", "-q").exit == 0
    rows = [("path", "label"), *((str(p), "dragon") for p in Path("flat_queries").iterdir())]
    write_table(Path("dragons.csv"), rows)
    assert here("classify", "flat_queries", "-o", "o.csv", "--labels", "dragons.csv", "-q").exit == 0
    assert {row["truth"] for row in read_rows(Path("o.csv"))} == {"dragon"}


def test_the_table_is_not_overwritten(here: Runner) -> None:
    assert here("build", "gallery", "-q").exit == 0
    before = Path("labels.csv").read_bytes()
    outcome = here("classify", "flat_queries", "-o", "labels.csv", "--labels", "labels.csv")
    assert outcome == Outcome(1, "", "error: labels.csv: is an input of this run; write to another file\n")
    assert Path("labels.csv").read_bytes() == before


letters = st.characters(blacklist_characters="\0/", blacklist_categories=("Cs",))
names = st.text(letters, min_size=1, max_size=20)
file_names = names.filter(lambda name: name not in (".", "..") and unicodedata.is_normalized("NFC", name))


@given(st.dictionaries(file_names, names, min_size=1, max_size=8))
def test_any_names_and_labels_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, labels: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("table")
    rows = [("label", "path"), *((label, path) for path, label in labels.items())]
    found = LabelOptions(write_table(folder / "t.csv", rows)).read()
    assert {path: found.label_of(str(folder / path)) for path in labels} == labels
    assert found.label_of(str(folder / "other" / "file")) is None


def test_both_unicode_forms_of_a_name_are_one_file(tmp_path: Path) -> None:
    """macOS writes é in two characters."""
    table = write_table(tmp_path / "t.csv", [("path", "label"), ("caf\u00e9.png", "a")])
    assert LabelOptions(table).read().label_of(str(tmp_path / "cafe\u0301.png")) == "a"


def test_a_label_table_names_the_files_if_no_source_does(here: Runner) -> None:
    """The same as naming the folders; files are relative to the table, as labels are."""
    (here.here / "sub").mkdir()
    for name in ("labels.csv", "flat_gallery", "flat_queries"):
        (here.here / name).rename(here.here / "sub" / name)
    labels = ("--labels", "sub/labels.csv")
    folders = ("sub/flat_gallery", "sub/flat_queries")
    assert here("build", *folders, *labels, "-o", "a.h5", "-q") == Outcome(0, "", "")
    assert here("build", *labels, "-o", "b.h5", "-q") == Outcome(0, "", "")
    listed = [here("info", gallery, "--list-examples").out for gallery in ("a.h5", "b.h5")]
    assert listed[0] == listed[1]
    for command in (["build", "-o", "b.h5", "--update"], ["add", "b.h5"]):
        again = here(*command, *labels)
        assert (again.exit, again.err.splitlines()[0]) == (0, "0 added, 0 changed, 0 removed, 18 unchanged")
    assert here("extract", *labels, "-o", "f.h5", "-q") == Outcome(0, "", "")
    classified, from_features, by_table = (
        here("classify", *source, "-g", "a.h5", "-q") for source in (folders, ["f.h5"], labels)
    )
    assert len(by_table.out.splitlines()) == 19
    assert [line.split(",")[2:] for line in by_table.out.splitlines()] == [
        line.split(",")[2:] for line in classified.out.splitlines()
    ]
    assert from_features.out == by_table.out
    sides = [
        here("split", *source, *labels, "--train=t", "--test=q", "--dry-run") for source in ([], folders)
    ]
    assert (sides[0].exit, sides[0].out) == (0, sides[1].out)


def test_missing_files_of_a_label_table_fail_like_others(here: Runner) -> None:
    Path("flat_gallery/ant-0.png").unlink()
    outcome = here("build", "--labels", "labels.csv")
    assert (outcome.exit, outcome.out) == (3, "")
    assert outcome.err.splitlines()[0] == "failed: flat_gallery/ant-0.png: no such file"
    assert here("build", "--labels", "labels.csv", "--strict").exit == 1


def test_label_tables_that_name_no_file_are_refused(here: Runner) -> None:
    Path("other").mkdir()
    Path("labels.csv").rename("other/labels.csv")
    root = "use --root to give the folder that its paths are relative to"
    assert here("build", "--labels", "other/labels.csv") == Outcome(
        1,
        "",
        "error: other/labels.csv: none of its 18 files exists; the first one was looked for at "
        f"other/flat_gallery/ant-0.png; {root}\n",
    )
    assert here("build", "--labels", "other/labels.csv", "--root", ".", "-q") == Outcome(0, "", "")
    write_table(here.here / "empty.csv", [("path", "label")])
    assert here("build", "--labels", "empty.csv") == Outcome(
        1, "", "error: empty.csv: has no rows; name a path and a label in each row\n"
    )
    assert here("build", "--labels", "other/labels.csv", "--features-key", "x") == Outcome(
        2,
        "",
        "error: --features-key, --labels-key and --samples-axis apply to feature files, but the label table "
        "is not a feature file; leave them out\n",
    )
    assert here("build", "--labels", "missing.csv").exit == 1
