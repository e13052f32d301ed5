"""The commands as a user runs them: exit code, stdout and stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from rich.table import Table

from crnr_cli import __version__
from crnr_cli.cli import COMMANDS, score_tables
from crnr_cli.cli.console import print_facts, print_table, results_console
from helpers.paths import SAMPLE_DATA
from helpers.runner import KERNEL, Outcome, Runner, rows
from helpers.samples import noise


@pytest.fixture
def built(built_images: Path) -> Path:
    return built_images


def test_version_option_prints_the_version(crnr: Runner) -> None:
    result = crnr("--version")
    assert (result.exit, result.out, result.err) == (0, f"crnr {__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_stands_by_itself_in_its_process(command: str) -> None:
    """Modules for other commands are not loaded."""
    code = (
        "import sys; from crnr_cli.cli import COMMANDS, main\n"
        "modules = {name: 'crnr_cli.cli.' + name.partition(' ')[0] for name in COMMANDS}\n"
        "try: main()\n"
        "finally: print([name for name in COMMANDS if modules[name] in sys.modules])"
    )
    words = [*command.split(), "--help"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: -c {command}" in done.stdout
    loaded = [name for name in COMMANDS if name.partition(" ")[0] == command.partition(" ")[0]]
    assert done.stdout.endswith(f"{loaded}\n")  # the commands of a group are in one module


@pytest.mark.parametrize(
    "line",
    ["--version", "--help", "build --help", "model list", "info gallery.h5 --json", "verify -g gallery.h5"],
)
def test_no_command_waits_for_pydantic(crnr: Runner, built: Path, line: str) -> None:
    """Typer uses it from 0.29 on, and loading it would add half to the time of a short command."""
    code = (
        "import sys; before = set(sys.modules); from crnr_cli.cli import main\n"
        "try: main()\n"
        "finally: print({'typer', 'pydantic', 'pydantic_core'} & set(sys.modules) - before)"
    )
    done = crnr.process(*line.split(), program=(sys.executable, "-c", code))
    assert (done.exit, done.out.splitlines()[-1]) == (0, "{'typer'}"), done.err


def test_parameters_that_give_no_answer_leave_the_gallery_as_it_was(crnr: Runner, built: Path) -> None:
    before = (built / "gallery.h5").read_bytes()
    result = crnr("build", "gallery", "--mu", "1e-300", "--factor", "low-rank", "-q")
    assert (result.exit, result.out) == (2, "")
    assert result.err.startswith("error: method crnr gives no finite residuals in float32 with mu 1e-300, ")
    assert (built / "gallery.h5").read_bytes() == before


def test_build_reports_the_gallery_it_made(crnr: Runner, images: Path) -> None:
    result = crnr("build", "gallery")
    assert (result.exit, result.out) == (0, "")
    assert result.err.startswith("gallery.h5: 3 classes, 9 examples, vectors of length 128, method crnr; ")
    assert sorted(path.name for path in images.iterdir()) == ["gallery", "gallery.h5", "queries"]


def test_classify_writes_every_query_once_with_its_truth(crnr: Runner, built: Path) -> None:
    result = crnr("classify", "queries", "-o", "out.csv")
    assert (result.exit, result.out) == (0, "")
    assert result.err == "labelled 9 of 9 queries: out.csv\n"
    found = rows((built / "out.csv").read_text())
    expected = [(f"queries/{name}/{k}.png", name) for name in ("cat", "dog", "owl") for k in range(3)]
    assert [(row["path"], row["truth"]) for row in found] == expected
    assert all(row["label"] == row["truth"] and row["status"] == "ok" for row in found)


def test_stdout_holds_the_same_csv_as_a_file(crnr: Runner, built: Path) -> None:
    crnr("classify", "queries", "-o", "out.csv")
    result = crnr("classify", "queries")
    assert result.out == (built / "out.csv").read_text()
    assert result.err == "labelled 9 of 9 queries\n"


def test_evaluate_a_csv_and_the_queries_themselves_agree(crnr: Runner, built: Path) -> None:
    crnr("classify", "queries", "-o", "out.csv")
    from_csv = json.loads(crnr("evaluate", "out.csv", "--json").out)
    from_queries = json.loads(crnr("evaluate", "queries", "--json").out)
    from_stdin = json.loads(crnr("evaluate", "-", "--json", stdin=(built / "out.csv").read_bytes()).out)
    # Whether a query is in the gallery is known only where both are read.
    for key in ("in_gallery", "similar_in_gallery"):
        assert [each.pop(key) for each in (from_csv, from_queries, from_stdin)] == [None, 0, None]
    assert from_csv == from_queries == from_stdin
    assert (from_csv["n"], from_csv["accuracy"]) == (9, 1.0)


def test_evaluate_shows_scores_and_explains_rows(crnr: Runner, built: Path) -> None:
    result = crnr("evaluate", "queries")
    assert (result.exit, result.err) == (0, "")
    assert "accuracy  1.0000  (95% 0.7009 to 1.0000)  9 of 9 correct" in result.out
    assert "confusion matrix: rows are true classes, columns are labels" in result.out


def write_predictions(path: Path, lines: list[tuple[str, str, str, str]]) -> None:
    text = "path,truth,label,residual,runner_up,margin,status\n"
    for i, (truth, label, margin, status) in enumerate(lines):
        text += f"{i}.png,{truth},{label},,,{margin},{status}\n"
    path.write_text(text)


MIXED = [
    ("cat", "cat", "0.5", "ok"),
    ("cat", "dog", "0.2", "ok"),
    ("dog", "dog", "0.1", "ok"),
    ("dog", "cat", "0.9", "ok"),
    ("dog", "", "", "truncated"),
    ("", "dog", "0.3", "ok"),
]


def test_failures_and_rows_without_truth_are_counted_apart(crnr: Runner, tmp_path: Path) -> None:
    write_predictions(tmp_path / "out.csv", MIXED)
    record = json.loads(crnr("evaluate", "out.csv", "--json").out)
    assert (record["n"], record["accuracy"]) == (4, 0.5)
    assert (record["over_all"]["n"], record["over_all"]["accuracy"]) == (5, 0.4)
    assert (record["inputs"], record["answered"], record["coverage"]) == (6, 4, 4 / 5)
    assert (record["without_truth"], record["failed"]) == (1, {"truncated": 1})
    shown = crnr("evaluate", "out.csv").out
    assert (
        "accuracy              0.4000  (95% 0.1176 to 0.7693)  "
        "2 of 5 correct; queries without an answer count as wrong" in shown
    )
    assert "macro F1              0.4500                          every class counts the same" in shown
    assert (
        "answer rate           0.8000                          4 of 5 got an answer; accuracy of these 0.5000"
        in shown
    )
    assert "without a true class  1                               not scored" in shown
    assert "columns are labels; 1 query without an answer not counted\n" in shown
    assert "failed                1                               1 truncated" in shown


def test_mistakes_and_confusion_go_to_files(crnr: Runner, tmp_path: Path) -> None:
    write_predictions(tmp_path / "out.csv", MIXED)
    crnr("evaluate", "out.csv", "--errors", "wrong.csv", "--confusion", "matrix.csv")
    assert (tmp_path / "wrong.csv").read_text() == (
        "path,truth,label,margin\n3.png,dog,cat,0.9\n1.png,cat,dog,0.2\n"
    )
    assert (tmp_path / "matrix.csv").read_text() == "truth \\ label,cat,dog\ncat,1,1\ndog,1,1\n"


WHY = "; 1 of 5 queries has no answer, which counts as wrong"


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        pytest.param(
            ["--min-accuracy", "0.4", "--min-f1", "0.45", "--min-answer-rate", "0.8"], 0, [], id="met"
        ),
        pytest.param(["--min-accuracy", "0.41"], 4, [f"accuracy 0.4000 is below 0.41{WHY}"], id="accuracy"),
        pytest.param(["--min-f1", "0.46"], 4, [f"macro F1 0.4500 is below 0.46{WHY}"], id="f1"),
        pytest.param(["--min-answer-rate", "0.81"], 4, ["answer rate 0.8000 is below 0.81"], id="coverage"),
        pytest.param(
            ["--min-answer-rate", "0.81", "--min-f1", "0.9"],
            4,
            [f"macro F1 0.4500 is below 0.9{WHY}", "answer rate 0.8000 is below 0.81"],
            id="two",
        ),
    ],
)
def test_a_missed_gate_is_exit_4(
    crnr: Runner, tmp_path: Path, options: list[str], code: int, words: list[str]
) -> None:
    write_predictions(tmp_path / "out.csv", MIXED)
    result = crnr("evaluate", "out.csv", *options)
    assert (result.exit, result.err.splitlines()) == (code, words)
    assert "macro" in result.out


@pytest.mark.parametrize("status", ["truncated", "rejected"])
@pytest.mark.parametrize("gate", ["--min-accuracy", "--min-f1", "--min-answer-rate"])
def test_no_gate_is_passed_by_answering_nearly_nothing(
    crnr: Runner, tmp_path: Path, status: str, gate: str
) -> None:
    label = "unknown" if status == "rejected" else ""
    write_predictions(tmp_path / "out.csv", [("a", "a", "0.5", "ok")] + 9 * [("a", label, "", status)])
    result = crnr("evaluate", "out.csv", gate, "0.9", "--json")
    assert result.exit == 4
    assert " is below 0.9" in result.err
    assert json.loads(result.out)["coverage"] == 0.1


def test_a_csv_of_another_program(crnr: Runner, tmp_path: Path) -> None:
    """With a byte order mark, as spreadsheets write it, or without paths: no row is passed over."""
    text = "truth,label,status\na,a,ok\na,,not_image\na,,not_image\n"
    marked = "\ufeffpath,truth,label,status\n1.png,a,a,ok\n2.png,a,,not_image\n3.png,a,,not_image\n"
    for content in (text, "\ufeff" + text, marked):
        (tmp_path / "out.csv").write_text(content, encoding="utf-8")
        for result in (
            crnr("evaluate", "out.csv", "--min-accuracy", "0.9"),
            crnr("evaluate", "-", "--min-accuracy", "0.9", stdin=content.encode()),
        ):
            assert result.exit == 4
            assert result.err == (
                "accuracy 0.3333 is below 0.9; 2 of 3 queries have no answer, which counts as wrong\n"
            )


@pytest.mark.parametrize(
    "option",
    [
        ["--reject", "0.1"],
        ["--min-probability", "0.9"],
        ["--sets", "0.9"],
        ["--model-path", "m.onnx"],
        ["--features-key", "x"],
        ["--labels-key", "y"],
        ["--samples-axis", "rows"],
    ],
    ids=lambda option: option[0],
)
def test_a_csv_has_its_answers(crnr: Runner, tmp_path: Path, option: list[str]) -> None:
    write_predictions(tmp_path / "out.csv", MIXED)
    result = crnr("evaluate", "out.csv", *option)
    assert (result.exit, result.out) == (2, "")
    name, value = option
    name = {"--extractor": "--model-path", "--samples": "--samples-axis"}.get(name, name)
    is_for_classify = name in ("--reject", "--min-probability", "--sets")
    remedy = f"run `crnr classify {name} {value}` first" if is_for_classify else "leave it out"
    assert result.err == (f"error: {name} has no effect on the existing predictions in out.csv; {remedy}\n")


def test_info_cuts_nothing(crnr: Runner, images: Path) -> None:
    name = f"{'long' * 30}.h5"
    crnr("build", "gallery", "-o", name)
    assert name in "".join(crnr("info", name, columns=60).out.split())


def test_margins_of_another_program(crnr: Runner, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    for margins in (("-1", "-2"), ("nan", "0.5"), ("inf", "nan")):
        lines = [f"{i}.png,a,{'ab'[i]},{margin}" for i, margin in enumerate(margins)]
        (tmp_path / "out.csv").write_text("\n".join(["path,truth,label,margin", *lines]))
        assert crnr("evaluate", "out.csv", "--html", "page.html").exit == 0
        page = (tmp_path / "page.html").read_text()
        assert "NaN" not in page
        assert "Infinity" not in page


def test_more_names_than_a_matrix_can_hold(crnr: Runner, tmp_path: Path) -> None:
    lines = "".join(f"t{i},l{i}\n" for i in range(10_001))
    (tmp_path / "out.csv").write_text(f"truth,label\n{lines}")
    result = crnr("evaluate", "out.csv")
    assert (result.exit, result.err) == (0, "")
    assert "the 50 of 20002 classes with the lowest F1; --json lists all" in result.out
    assert "most often confused; --json lists all" in result.out
    assert result.out.count("\n") < 100
    result = crnr("evaluate", "out.csv", "--confusion", "big.csv")
    assert (result.exit, result.out) == (1, "")
    assert result.err == (
        "error: out.csv: truth and label have 20002 different names, and --confusion takes at most "
        "20000; check that they are names of classes, or use --json, which lists the cells that are not "
        "zero\n"
    )
    assert crnr.files() == {"out.csv"}


def test_many_classes_without_a_mistake(crnr: Runner, tmp_path: Path) -> None:
    lines = "".join(f"c{i},c{i}\n" for i in range(100))
    (tmp_path / "out.csv").write_text(f"truth,label\n{lines}")
    shown = crnr("evaluate", "out.csv")
    assert (shown.exit, shown.err) == (0, "")
    assert shown.out.endswith("\nno classes were confused\n")


def test_a_matrix_that_is_not_shown_is_not_made(
    crnr: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"c{i},c{i // 2}\n" for i in range(1100))
    (tmp_path / "out.csv").write_text(f"truth,label\n{lines}")
    monkeypatch.setattr(score_tables, "_confusion_table", pytest.fail)
    shown, record = crnr("evaluate", "out.csv"), crnr("evaluate", "out.csv", "--json")
    assert (shown.exit, record.exit) == (0, 0)
    assert "most often confused" in shown.out
    assert len(record.out) < 500_000
    found = json.loads(record.out)
    assert found["confusion"] is None
    assert found["confusion_cells"][:3] == [[0, 0, 1], [1, 0, 1], [2, 1, 1]]


@pytest.mark.parametrize("iterations", ["0", "99999999999999999999"])
def test_build_refuses_too_many_iterations(crnr: Runner, images: Path, iterations: str) -> None:
    result = crnr("build", "gallery", "--iterations", iterations)
    assert (result.exit, result.out) == (2, "")
    assert result.err == (
        f"error: --iterations must be from 1 to 1000000, not {iterations} (see `crnr build --help`)\n"
    )


def test_undefined_is_shown_as_such(crnr: Runner, tmp_path: Path) -> None:
    write_predictions(tmp_path / "out.csv", [("cat", "dog", "0.1", "ok")])
    assert "n/a" in crnr("evaluate", "out.csv").out


def test_a_matrix_wider_than_the_screen_gives_way_to_the_most_confused(crnr: Runner, tmp_path: Path) -> None:
    names = [f"class {i:02}" for i in range(30)]
    write_predictions(
        tmp_path / "out.csv", [(name, names[i // 2], "0.1", "ok") for i, name in enumerate(names)]
    )
    shown = crnr("evaluate", "out.csv", columns=80).out
    assert "--confusion FILE" in shown
    assert "labelled as" in shown
    assert "rows are truth" not in shown


def test_evaluate_without_truth_names_the_remedy(crnr: Runner, tmp_path: Path) -> None:
    write_predictions(tmp_path / "out.csv", [("", "dog", "0.1", "ok")])
    result = crnr("evaluate", "out.csv")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("error: out.csv: no query has a true class; put the queries")


def test_info_describes_the_gallery(crnr: Runner, built: Path) -> None:
    record = json.loads(crnr("info", "--json").out)
    assert record["classes"] == {"cat": 3, "dog": 3, "owl": 3}
    assert (record["method"], record["size"], record["dimension"]) == ("crnr", [8, 8], 128)
    assert record["parameters"]["lam"] == 0.01
    shown = crnr("info").out
    assert "8x8" in shown
    assert "owl" in shown


def test_build_resizes_large_images_and_prints_a_note(crnr: Runner, tmp_path: Path) -> None:
    for i, name in enumerate(("a", "b")):
        (tmp_path / "g" / name).mkdir(parents=True)
        noise(i, (70, 50)).save(tmp_path / "g" / name / "x.png")
    result = crnr("build", "g")
    assert result.exit == 0
    assert (
        "note: images are larger than 64x64: all are resized to 64x64; choose another size with --size"
        in result.err
    )
    pixels = crnr("build", "g", "--size", "10x5", "--color", "--extractor", "pixels", "--json")
    assert json.loads(pixels.out)["dimension"] == 150


def test_features_with_pca_through_the_command_line(crnr: Runner, tmp_path: Path) -> None:
    features = SAMPLE_DATA / "features.h5"
    keys = ("--features-key", "gallery/features", "--labels-key", "gallery/labels")
    options = ("--pca", "30", "--lam", "1e-3", "--dtype", "float64", "--factor", "low-rank")
    build = crnr("build", features, *keys, *options)
    assert (build.exit, build.out) == (0, "")
    assert "vectors of length 30, method crnr" in build.err
    query = ("--features-key", "queries/features", "--labels-key", "queries/labels")
    result = crnr("classify", features, *query, "-o", "out.csv")
    assert result.exit == 0
    found = rows((tmp_path / "out.csv").read_text())
    assert len(found) == 100
    assert found[0]["path"] == f"{features}#0"
    assert json.loads(crnr("evaluate", "out.csv", "--json").out)["n"] == 100


def test_images_and_their_features_give_the_same_answers(crnr: Runner, tmp_path: Path) -> None:
    crnr("build", SAMPLE_DATA / "gallery", "-o", "p.h5", "--extractor", "pixels")
    features = SAMPLE_DATA / "features.h5"
    keys = ("--features-key", "gallery/features", "--labels-key", "gallery/labels")
    crnr("build", features, "-o", "f.h5", *keys)
    by_images = rows(crnr("classify", SAMPLE_DATA / "queries", "-g", "p.h5").out)
    by_features = rows(crnr("classify", features, "-g", "f.h5", "--features-key", "queries/features").out)
    assert [row["label"] for row in by_images] == [row["label"] for row in by_features]
    assert [row["residual"] for row in by_images] == [row["residual"] for row in by_features]


def test_a_list_on_stdin_is_classified_in_its_order(crnr: Runner, built: Path) -> None:
    result = crnr("classify", "-", stdin="queries/owl/1.png\nqueries/cat/0.png\nnowhere.png\n")
    assert result.exit == 3
    assert [(row["path"], row["truth"], row["status"]) for row in rows(result.out)] == [
        ("queries/owl/1.png", "owl", "ok"),
        ("queries/cat/0.png", "cat", "ok"),
        ("nowhere.png", "", "vanished"),
    ]
    assert result.err == ("labelled 2 of 3 queries\nfailed: nowhere.png: vanished, no such file\n")


def test_names_with_newlines_go_by_nul(crnr: Runner, built: Path) -> None:
    odd = "queries/cat/new\nline.png"
    Path(odd).write_bytes(Path("queries/cat/0.png").read_bytes())
    result = crnr("classify", "-", "-0", stdin=f"{odd}\0queries/dog/0.png\0")
    assert result.exit == 0
    assert [row["path"] for row in rows(result.out)] == [odd, "queries/dog/0.png"]


def test_a_bad_query_costs_its_row_and_exit_3(crnr: Runner, built: Path) -> None:
    Image.new("L", (8, 8)).save("queries/cat/black.png")
    Path("queries/cat/cut.png").write_bytes(Path("queries/cat/0.png").read_bytes()[:60])
    Path("queries/README.txt").write_text("about these images")
    result = crnr("classify", "queries", "-o", "out.csv")
    assert (result.exit, result.out) == (3, "")
    found = {row["path"]: row for row in rows((built / "out.csv").read_text())}
    assert len(found) == 12
    assert found["queries/cat/black.png"]["status"] == "zero_norm"
    assert found["queries/cat/cut.png"]["status"] == "truncated"
    assert found["queries/README.txt"]["status"] == "not_image"
    assert found["queries/cat/black.png"]["label"] == ""
    assert crnr("classify", "queries", "--allow-skipped").exit == 0


def test_a_readme_among_the_images_alone_is_exit_0(crnr: Runner, built: Path) -> None:
    Path("queries/README.txt").write_text("about these images")
    Path("gallery/cat/README.txt").write_text("about these images")
    assert crnr("classify", "queries").exit == 0
    result = crnr("build", "gallery")
    assert result.exit == 0
    assert "failed: gallery/cat/README.txt: not an image in a supported format" in result.err


def test_a_blank_image_in_the_gallery_is_left_out_and_named(crnr: Runner, images: Path) -> None:
    Image.new("L", (8, 8)).save("gallery/cat/black.png")
    result = crnr("build", "gallery")
    assert result.exit == 3
    assert "failed: gallery/cat/black.png: nothing to compare: all of one colour" in result.err
    assert "9 examples" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(
            ["classify", "queries"], 1, "gallery.h5: no such gallery; create it with", id="no gallery"
        ),
        pytest.param(
            ["classify", "queries", "-g", "foreign.h5"],
            1,
            "foreign.h5: not a gallery; create one with `crnr build`",
            id="foreign",
        ),
        pytest.param(
            ["build", "empty"],
            1,
            "empty: contains no images or feature files; name a folder that contains images, or a feature "
            "file",
            id="empty folder",
        ),
        pytest.param(["build", "none"], 1, "none: no such file or folder", id="missing folder"),
        pytest.param(
            ["build", "nan.npz"],
            1,
            "NaN or infinity in 1 row; correct or remove nan.npz#1",
            id="NaN in the gallery",
        ),
        pytest.param(
            ["build", "gallery", "--method", "nope"], 2, "'nope' is not one of crnr, nrc, ", id="method"
        ),
        pytest.param(
            ["build", "gallery", "--method", "nrc", "--lam", "1"],
            2,
            "--lam does not apply to --method nrc; it belongs to crnr",
            id="lam",
        ),
        pytest.param(["build", "gallery", "--mu", "0"], 2, "--mu must be above 0, not 0", id="mu"),
        pytest.param(
            ["evaluate", "out.csv", "queries"],
            2,
            "",
            id="CSV and queries",
        ),
        pytest.param(["build", "gallery", "-o", "empty"], 1, "empty: is a folder", id="output a folder"),
        pytest.param(
            ["build", "gallery", "-o", "x/y.h5"], 1, "the folder x does not exist", id="output nowhere"
        ),
    ],
)
def test_an_error_is_one_line_and_leaves_nothing(
    crnr: Runner, images: Path, arguments: list[str], code: int, message: str
) -> None:
    h5py.File("foreign.h5", "w").close()
    Path("empty").mkdir()
    np.savez("nan.npz", features=[[1.0, 2.0], [np.nan, 1.0], [3.0, 1.0]], labels=["a", "a", "b"])
    before = sorted(images.rglob("*"))
    result = crnr(*arguments)
    assert (result.exit, result.out) == (code, "")
    assert message in result.err
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert sorted(images.rglob("*")) == before


@pytest.mark.parametrize("command", ["build", "compare", "tune"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["g.npz", "--size", "8"],
            "--size only applies to images, but g.npz contains features; leave the option out",
        ),
        (
            ["g.npz", "--color"],
            "--color only applies to images, but g.npz contains features; leave the option out",
        ),
        *(
            (
                ["gallery", option, "rows"],
                "--features-key, --labels-key and --samples-axis apply to feature files, but gallery is not "
                "a "
                "feature file; leave them out",
            )
            for option in ("--features-key", "--labels-key", "--samples-axis")
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_an_option_that_does_not_apply_is_refused(
    crnr: Runner, images: Path, command: str, arguments: list[str], message: str
) -> None:
    np.savez("g.npz", features=np.eye(4), labels=["a", "a", "b", "b"])
    before = sorted(images.rglob("*"))
    result = crnr(command, *arguments)
    assert (result.exit, result.out, result.err) == (2, "", f"error: {message}\n")
    assert sorted(images.rglob("*")) == before


@pytest.mark.parametrize("command", ["compare", "tune"])
@pytest.mark.parametrize("names", ["", "nn,", " ,nn"])
def test_names_of_methods_may_not_be_empty(crnr: Runner, images: Path, command: str, names: str) -> None:
    result = crnr(command, "gallery", "--methods", names)
    assert (result.exit, result.out) == (2, "")
    assert result.err == (
        f"error: --methods: {names!r} has an empty name; give names separated by commas "
        f"(see `crnr {command} --help`)\n"
    )


@pytest.mark.parametrize("size", ["0", "8x", "8x8x8", "-4", "big", "²", "65536", "9" * 5000])
def test_an_invalid_size_is_refused(crnr: Runner, images: Path, size: str) -> None:
    result = crnr("build", "gallery", f"--size={size}")
    assert (result.exit, result.out) == (2, "")
    assert result.err == (f"error: --size {size!r}: write 32 or 32x24, with at most 65535 pixels per side\n")
    assert not Path("gallery.h5").exists()


def test_keys_of_a_test_source_go_with_one(crnr: Runner, images: Path) -> None:
    for option in ("--test-features-key", "--test-labels-key"):
        result = crnr("compare", "gallery", option, "x")
        assert (result.exit, result.out) == (2, "")
        assert "--test-features-key and --test-labels-key need --test" in result.err


def test_queries_of_another_dimension_are_refused_with_both_numbers(crnr: Runner, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez("g.npz", features=rng.random((4, 5)), labels=["a", "a", "b", "b"])
    np.savez("q.npz", features=rng.random((2, 6)))
    assert crnr("build", "g.npz").exit == 0
    result = crnr("classify", "q.npz", "-o", "out.csv")
    assert (result.exit, result.out) == (1, "")
    assert result.err == (
        "error: q.npz: 6 features per query, but gallery.h5 was built from 5; "
        "use the same features for both\n"
    )
    assert not Path("out.csv").exists()


def test_a_query_with_nan_costs_its_row(crnr: Runner, tmp_path: Path) -> None:
    np.savez("g.npz", features=np.random.default_rng(0).random((4, 5)), labels=["a", "a", "b", "b"])
    np.savez("q.npz", features=[[1, 2, 3, 4, 5], [np.nan, 2, 3, 4, 5], [0, 0, 0, 0, 0]])
    crnr("build", "g.npz")
    result = crnr("classify", "q.npz")
    assert result.exit == 3
    assert [row["status"] for row in rows(result.out)] == ["ok", "non_finite", "zero_norm"]


def test_names_that_rich_would_read_as_markup_are_shown_whole(crnr: Runner, tmp_path: Path) -> None:
    result = crnr("build", "[ar]/[red]x")
    assert result.err == "error: [ar]/[red]x: no such file or folder\n"


def test_lookalike_classes_are_refused_by_both_names(crnr: Runner, images: Path) -> None:
    Path("gallery/cat").rename("gallery/Owl")
    result = crnr("build", "gallery")
    assert (result.exit, result.out) == (1, "")
    assert result.err == ("error: classes 'Owl' and 'owl' differ only in case or Unicode form; rename one\n")


def test_a_gallery_of_one_class_warns_and_does_not_classify(crnr: Runner, images: Path) -> None:
    result = crnr("build", "gallery/cat", "-o", "one.h5")
    assert result.exit == 1  # no class folders below cat
    Path("one").mkdir()
    Path("gallery/cat").rename("one/cat")
    result = crnr("build", "one", "-o", "one.h5")
    assert result.exit == 0
    assert "note: only one class, cat: add another with `crnr add GALLERY FOLDER --class NAME`" in result.err
    result = crnr("classify", "queries", "-g", "one.h5")
    assert (result.exit, result.out) == (1, "")
    assert result.err == (
        "error: one.h5: has only one class, cat; add examples of another class with `crnr add one.h5 FOLDER "
        "--class NAME`\n"
    )


def test_the_gallery_is_found_by_environment(
    crnr: Runner, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crnr("build", "gallery", "-o", "other.h5").exit == 0
    monkeypatch.setenv("CRNR_GALLERY", "other.h5")
    assert crnr("classify", "queries").exit == 0


def test_an_output_inside_the_queries_is_refused(crnr: Runner, built: Path) -> None:
    result = crnr("classify", "queries", "-o", "queries/out.csv")
    assert (result.exit, result.out) == (1, "")
    assert "queries/out.csv: is inside queries, which is an input" in result.err


@pytest.mark.parametrize(
    "command",
    [
        "evaluate out.csv --html out.csv",
        "evaluate out.csv --errors out.csv",
        "evaluate out.csv --confusion out.csv",
        "evaluate out.csv --html gallery.h5",
        "explain query.png -o query.png",
        "compare features.npz --csv features.npz",
        "tune features.npz -o features.npz",
        "build features.npz -o features.npz",
        "classify query.png -o gallery.h5",
    ],
)
def test_no_output_is_written_over_an_input(crnr: Runner, built: Path, command: str) -> None:
    crnr("classify", "queries", "-o", "out.csv")
    noise(0).save("query.png")
    np.savez("features.npz", features=np.random.default_rng(0).random((8, 4)), labels=list("aaaabbbb"))
    before = {path: path.read_bytes() for path in built.glob("*.*")}
    result = crnr(*command.split())
    assert (result.exit, result.out) == (1, "")
    assert result.err.endswith("is an input of this run; write to another file\n")
    assert {path: path.read_bytes() for path in built.glob("*.*")} == before


@pytest.mark.usefixtures("built")
def test_a_pipe_whose_reader_leaves_is_quiet(crnr: Runner) -> None:
    result = crnr.bash("find queries -name '*.png' | crnr classify - --quiet | head -n 1")
    assert result.exit in (0, 141)
    assert result.out.startswith("path,truth,label")
    assert result.err == ""


@pytest.mark.parametrize(
    "command",
    ["evaluate queries", "info", "explain queries/cat/0.png", "--help", "build --help", "--version"],
)
def test_tables_whose_reader_leaves_are_quiet_too(crnr: Runner, built: Path, command: str) -> None:
    result = crnr.bash(f"crnr {command} | true")
    assert result.exit in (0, 141)
    assert result.err == ""


def test_a_narrow_screen_cuts_no_figure(crnr: Runner, built: Path) -> None:
    assert "…" not in crnr("compare", "gallery", "--test", "queries", "--methods", "crnr,nn", columns=40).out
    assert "(95% 0.7009 to 1.0000)" in crnr("evaluate", "queries", columns=40).out


def test_compare_with_a_test_of_other_classes_is_refused(crnr: Runner, built: Path) -> None:
    Path("other/bee").mkdir(parents=True)
    noise(1).save("other/bee/x.png")
    result = crnr("compare", "gallery", "--test", "other", "--methods", "nn")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("error: other: none of the classes is in the gallery; put the")


@pytest.mark.usefixtures("built")
def test_a_full_disk_behind_stdout_is_reported(crnr: Runner) -> None:
    result = crnr.bash("crnr classify queries --quiet > /dev/full")
    assert (result.exit, result.out) == (1, "")
    assert result.err == "error: cannot write to stdout (No space left on device)\n"


def test_cron_gives_the_same_bytes_as_a_terminal(crnr: Runner, built: Path) -> None:
    crnr("classify", "queries", "-o", "terminal.csv")
    cron = {"LANG": "C", "OPENBLAS_NUM_THREADS": "1", **KERNEL}
    result = crnr.bash("crnr classify queries -o cron.csv 2>log < /dev/null", cron)
    assert result == Outcome(0, "", "")
    assert (built / "cron.csv").read_bytes() == (built / "terminal.csv").read_bytes()
    assert (built / "log").read_text() == "labelled 9 of 9 queries: cron.csv\n"


def test_names_cannot_command_a_terminal(crnr: Runner, tmp_path: Path) -> None:
    """Not by escape sequences, not by faking a line of ours, and not by Rich's own markup."""
    hostile = "\x1b]0;title\x07\nerror: none"
    for i, name in enumerate((hostile, "[bold]b")):
        (tmp_path / "g" / name).mkdir(parents=True)
        for k in range(3):
            noise(10 * i + k).save(tmp_path / "g" / name / f"{k}.png")
    (tmp_path / "g" / hostile / "\x9b31m.png").write_text("no image")
    runs = [
        crnr("build", "g", "--allow-skipped"),
        crnr("classify", "g", "-o", "out.csv", "--allow-skipped"),
        crnr("classify", f"g/{hostile}/gone.png"),
        crnr("info", "gallery.h5"),
        crnr("evaluate", "out.csv"),
        crnr("explain", f"g/{hostile}/0.png"),
    ]
    assert [run.exit for run in runs] == [0, 0, 1, 0, 0, 0]
    for run in runs:
        said = run.out + run.err
        assert r"\x1b]0;title\x07\nerror: none" in said
        assert [character for character in said if character in "\x1b\x07\x9b"] == []
        assert "\nerror: none" not in said
    for run in runs[3:]:
        assert "[bold]b" in run.out
    written = rows((tmp_path / "out.csv").read_text())
    assert {row["label"] for row in written if row["status"] == "ok"} == {hostile, "[bold]b"}


def test_results_console_prints_no_string_as_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever puts a string into a table: its cells, headers, title and caption."""
    hostile = "\x1b]0;title\x07\r\x9b31m [bold]b :smile:"
    table = Table(hostile, title=hostile, caption=hostile)
    table.add_row(hostile)
    console = results_console()
    print_table(console, table)
    print_facts(console, [(hostile, hostile, hostile)])
    console.print(hostile)
    said = capsys.readouterr().out
    assert said.count(r"\x1b]0;title\x07\r\x9b31m [bold]b :smile:") == 8
    assert [character for character in said if character in "\x1b\x07\r\x9b"] == []
