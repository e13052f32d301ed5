"""Predictions as CSV, JSON Lines and Parquet hold the same, and all are read again."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from crnr_cli.errors import DataError
from crnr_cli.results.decision import Prediction
from crnr_cli.results.formats import parse_prediction, parse_stream, read_answers, read_columns
from crnr_cli.results.table import read_predictions
from crnr_cli.system import files
from crnr_cli.system.extras import describe_missing
from helpers.runner import Outcome, Runner, read_rows
from helpers.samples import make_features, make_images
from helpers.templates import Templates

FIXED = ["path", "truth", "label", "residual", "runner_up", "margin", "status", "separation"]
NUMBERS = {"residual", "margin", "separation", "probability"}
ALL = ("csv", "jsonl", "parquet")


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", per_class=6)
    make_images(crnr.here / "queries", first=10)
    Path("queries/bee/empty.png").write_bytes(b"")
    assert crnr("build", "gallery", "--calibrate", "-q").exit == 0


@pytest.fixture
def built(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(build_gallery, crnr.here)
    return crnr


@pytest.mark.parametrize("options", ["", "--top 2", "--sets 0.9", "--top 9 --sets 0.5 --min-probability 0.9"])
def test_parquet_has_the_columns_of_the_csv(built: Runner, options: str) -> None:
    for format in ("csv", "parquet"):
        done = built("classify", "queries", "-q", "-o", f"out.{format}", *options.split())
        assert done == Outcome(3, "", "")
    table = read_rows(Path("out.csv"))
    found = pq.read_table("out.parquet")
    assert found.column_names == list(table[0])
    for name in found.column_names:
        values = found[name].to_pylist()
        if name == "set":
            expected: list[object] = [row[name].split("|") if row[name] else None for row in table]
            values = [value or None for value in values]
        elif name in NUMBERS or name.startswith(("residual", "probability")):
            expected = [float(row[name]) if row[name] else None for row in table]
            values = [value if value is None else pytest.approx(value, rel=1e-8) for value in values]
        else:
            expected = [row[name] or None for row in table]
        assert expected == values, name
    assert found.schema.field("residual").type == pa.float64()
    of_class = "residual_1" if "--top" in options else "residual:ant"
    assert found.schema.field(of_class).type == pa.float32()


def test_every_format_is_read_again(built: Runner) -> None:
    outcomes, answers = [], []
    for format in ALL:
        assert built("classify", "queries", "-q", "--sets", "0.9", "-o", f"out.{format}").exit == 3
        outcomes.append(built("evaluate", f"out.{format}", "--json"))
        answers.append(read_answers(Path(f"out.{format}")))
    assert [outcome.exit for outcome in outcomes] == [0, 0, 0]
    assert outcomes[0].out == outcomes[1].out == outcomes[2].out
    unrounded = dict.fromkeys(("residual", "margin", "separation"))
    for rows in answers[1:]:
        for row, by_csv in zip(rows, answers[0], strict=True):
            assert row._replace(**unrounded) == by_csv._replace(**unrounded)
            for name in unrounded:
                assert (getattr(row, name) or 0) == pytest.approx(getattr(by_csv, name) or 0, rel=1e-8)
    assert read_predictions(Path("out.csv")) == answers[0]


def test_the_name_of_the_output_and_the_options_choose_the_format(built: Runner) -> None:
    starts = {"csv": b"path,truth", "jsonl": b'{"path": "', "parquet": b"PAR1"}
    for arguments, format in {
        "-o a.csv": "csv",
        "-o a": "csv",
        "-o a.jsonl": "jsonl",
        "-o a.ndjson": "jsonl",
        "-o a.PARQUET": "parquet",
        "-o a.csv --format jsonl": "jsonl",
        "-o a.jsonl --format csv": "csv",
        "-o a.csv --json": "jsonl",
        "-o a.txt --format parquet": "parquet",
    }.items():
        assert built("classify", "queries", "-q", *arguments.split()).exit == 3
        assert Path(arguments.split()[1]).read_bytes().startswith(starts[format]), arguments
    both = built("classify", "queries", "--json", "--format", "parquet")
    message = "--json and --format parquet contradict each other; give one of them"
    assert (both.exit, both.out) == (2, "")
    assert both.err.startswith(f"error: {message}")
    assert built("classify", "queries", "--format", "xml").exit == 2


@pytest.mark.slow
def test_classify_and_evaluate_work_through_pipes(built: Runner) -> None:
    by_json = built("classify", "queries", "-q", "--format", "jsonl")
    assert by_json.out == built("classify", "queries", "-q", "--json").out
    scored = built("evaluate", "-", "--json", stdin=by_json.out)
    built("classify", "queries", "-q", "-o", "out.parquet")
    assert scored == built("evaluate", "out.parquet", "--json")
    piped = built.bash("crnr classify queries -q --format parquet --allow-skipped | cmp - out.parquet")
    assert piped == Outcome(0, "", "")


def test_parquet_cannot_be_continued_and_appears_whole(
    built: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = built("classify", "queries", "-o", "out.parquet", "--resume")
    assert (refused.exit, refused.out) == (2, "")
    assert "--resume cannot continue a Parquet file" in refused.err
    assert "choose --format csv or jsonl" in refused.err
    Path("out.parquet").write_text("old")
    stopped = built("classify", "queries", "-o", "out.parquet", "--strict", "--batch-size", "4", "-q")
    assert (stopped.exit, "--resume" in stopped.err) == (1, False)
    assert Path("out.parquet").read_text() == "old"
    assert not [name for name in built.files() if ".crnr-" in name]

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    full = built("classify", "queries", "-o", "out.parquet", "-q")
    assert (full.exit, "No space left" in full.err) == (1, True)
    assert Path("out.parquet").read_text() == "old"


def test_parquet_predictions_without_pyarrow_name_the_extra(
    built: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    built("classify", "queries", "-q", "-o", "there.parquet")
    monkeypatch.setattr("crnr_cli.system.extras.find_spec", lambda name: None)
    written = built("classify", "queries", "-o", "out.parquet")
    message = f"error: {describe_missing('parquet', '--format parquet', 'pyarrow')}\n"
    assert written == Outcome(1, "", message)
    read = built("evaluate", "there.parquet")
    assert read == Outcome(
        1, "", f"error: {describe_missing('parquet', 'there.parquet: a Parquet file', 'pyarrow')}\n"
    )


@pytest.mark.slow
def test_pyarrow_is_loaded_only_for_parquet(built: Runner) -> None:
    code = "import sys, crnr_cli.cli as c; c.main()\n"
    script = f"import atexit, sys; atexit.register(lambda: print('pyarrow' in sys.modules)); {code}"
    for name, is_loaded in (("out.csv", "False"), ("out.parquet", "True")):
        arguments = ("classify", "queries", "-q", "-o", name)
        done = built.process(*arguments, program=(sys.executable, "-c", script))
        assert (done.exit, done.out.strip()) == (3, is_loaded)


def test_sort_reads_every_format(built: Runner) -> None:
    for format in ALL:
        built("classify", "queries", "-q", "-o", f"out.{format}")
        done = built("sort", f"out.{format}", f"by-{format}", "--min-probability", "0.9", "-q")
        assert done.exit == 0, done.err
    names = [sorted(str(p.relative_to(f"by-{f}")) for p in Path(f"by-{f}").rglob("*.png")) for f in ALL]
    assert names[0] == names[1] == names[2] != []


def test_parquet_refuses_names_that_are_not_utf_8(crnr: Runner) -> None:
    make_features(Path("gallery.npz"))
    assert crnr("build", "gallery.npz", "-q").exit == 0
    Path(b"caf\xe9.npz".decode("utf-8", "surrogateescape")).write_bytes(Path("gallery.npz").read_bytes())
    name = "caf\udce9.npz"
    refused = crnr("classify", name, "-o", "out.parquet")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith(
        "error: 'caf\\udce9.npz#0' is not UTF-8, as text in Parquet has to be; use "
    )
    assert not Path("out.parquet").exists()


@pytest.mark.parametrize("options", ["", "--top 1", "--top 2 --sets 0.9"])
def test_parquet_refuses_classes_that_are_not_utf_8(crnr: Runner, options: str) -> None:
    """Before any work, also if no answer would name the class."""
    make_images(crnr.here / "gallery", ("ant", "bee", "caf\udce9"))
    assert crnr("build", "gallery", "--calibrate", "-q").exit == 0
    refused = crnr("classify", "gallery/ant", "-o", "out.parquet", *options.split())
    assert refused == Outcome(
        1, "", "error: 'caf\\udce9' is not UTF-8, as text in Parquet has to be; use another --format\n"
    )
    assert not Path("out.parquet").exists()


HOSTILE = (
    "e\u0301",
    "a\rb",
    "a\nb",
    'a"b,c',
    "a|b",
    "=1+1",
    "\x1b[31m",
    "\ufeffa",
    "residual:x",
    "caf\udce9",
)


@pytest.mark.parametrize("format", ALL)
def test_every_class_is_read_again(crnr: Runner, format: str) -> None:
    classes = HOSTILE[:-1] if format == "parquet" else HOSTILE
    for name, points in zip(classes, np.eye(len(classes), dtype=np.uint8), strict=True):
        (crnr.here / "g" / name).mkdir(parents=True)
        for k in range(2):
            Image.fromarray(255 * points[np.newaxis]).save(Path("g", name, f"{k}.png"))
    assert crnr("build", "g", "--extractor", "pixels", "-q").exit == 0
    assert crnr("classify", "g", "-q", "-o", f"out.{format}") == Outcome(0, "", "")
    answers = read_answers(Path(f"out.{format}"))
    assert [row.label for row in answers] == [row.truth for row in answers]
    assert {row.label for row in answers} == set(classes)


BAD_LINES = {
    '{"truth": "a", "label": "b"\n': r"x.jsonl, line 1: not readable as JSON \(.*\); is it complete\?",
    '{"truth": "a", "label": "b"}\n[1]\n': "x.jsonl, line 2: not an object with the keys truth and label",
    '{"truth": "a"}\n': r"x.jsonl, line 1: no label; was it written by `crnr classify`\?",
    '{"a": 1}\n': r"x.jsonl, line 1: no truth or label; was it written by `crnr classify`\?",
    '{"truth": "a", "label": ["b"]}\n': "x.jsonl, line 1: label is not a text",
    '{"truth": true, "label": "b"}\n': "x.jsonl, line 1: truth is not a text",
    '{"truth": "a", "label": "b", "margin": "c"}\n': "x.jsonl, line 1: margin is not a number",
    '{"truth": "a", "label": "b", "separation": true}\n': "x.jsonl, line 1: separation is not a number",
    '\n{"truth": "a", "label": "b", "probability": 1, "set": "ab"}\n': (
        "x.jsonl, line 2: set is not a list of labels"
    ),
    '{"truth": "a", "label": "b", "probability": 1, "set": ["a", 1]}\n': (
        "x.jsonl, line 1: set is not a list of labels"
    ),
    '{"a": ' + "[" * 100_000 + "\n": r"x.jsonl, line 1: not readable as JSON \(.*\); is it complete\?",
}


@pytest.mark.parametrize(("text", "words"), BAD_LINES.items(), ids=map(str, range(len(BAD_LINES))))
def test_bad_json_lines_are_refused_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.jsonl").write_text(text if text.startswith("{") else '{"truth": "a", "label": "b"}' + text)
    with pytest.raises(DataError, match=f"^{words}$"):
        read_answers(Path("x.jsonl"))


def test_the_reason_why_a_line_is_not_json_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"truth": "a", "label": "b"}\n{"truth": "a"')
    with pytest.raises(ValueError, match="delimiter") as reason:
        json.loads('{"truth": "a"')
    with pytest.raises(DataError) as error:
        read_answers(path)
    assert str(error.value) == f"{path}, line 2: not readable as JSON ({reason.value}); is it complete?"


@pytest.mark.parametrize("text", ["truth,label\na,b\n", '{"truth": "a", "label": "b"}\n'])
def test_a_stream_stays_open(text: str) -> None:
    stream = io.BytesIO(text.encode())
    assert [(row.truth, row.label) for row in parse_stream(stream, "-")] == [("a", "b")]
    assert not stream.closed
    buffered = io.BufferedReader(io.BytesIO(text.encode()))
    assert [(row.truth, row.label) for row in parse_stream(buffered, "-")] == [("a", "b")]
    assert buffered.read() == b""


def test_empty_lines_of_json_lines_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"truth": "a", "label": "b"}\n\n \n{"truth": "c", "label": "d"}\n\n')
    assert [(row.truth, row.label) for row in read_answers(tmp_path / "x.jsonl")] == [("a", "b"), ("c", "d")]


def test_predictions_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        read_answers(tmp_path)
    assert str(refused.value) == f"{tmp_path}: cannot read it (Is a directory)"


def test_records_of_other_programs() -> None:
    record = {"truth": 7, "label": "", "margin": float("nan"), "probability": 2, "other": {}}
    assert parse_prediction(record, "x") == Prediction("", "7", None, None, None, None, "no_label")
    record = {"truth": None, "label": "a", "residual": 3, "probability": 1, "set": ["a"]}
    assert parse_prediction(record, "x") == Prediction(
        "", None, "a", 3.0, None, None, "ok", None, 1.0, ("a",)
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0.0), (1, 1.0), (0.5, 0.5), (-0.1, None), (1.1, None), (True, None), ("1", None)],
)
def test_probabilities_of_other_programs(value: object, expected: float | None) -> None:
    record = {"truth": "a", "label": "b", "probability": value, "class_probability": value, "set": None}
    row = parse_prediction(record, "x")
    assert (row.probability, row.class_probability, row.set) == (expected, expected, None)


@pytest.mark.parametrize("keys", [{"label": "b"}, {"label": None, "probability": None}])
def test_a_set_is_only_read_with_a_label_and_a_probability(keys: dict[str, object]) -> None:
    """Another program may use this key."""
    row = parse_prediction({"truth": "a", "set": {"any": "thing"}, **keys}, "x")
    assert (row.label, row.set) == (keys["label"], None)


@pytest.mark.parametrize(
    ("value", "event", "text"),
    [("e", "e", "e"), (7, "7", None), (True, None, None), ("", None, ""), ([], None, None)],
)
def test_further_keys_of_other_programs(value: object, event: str | None, text: str | None) -> None:
    keys = dict.fromkeys(("event", "event_label", "rank", "date"), value)
    row = parse_prediction({"truth": "a", "label": "b", **keys}, "x")
    assert (row.event, row.event_label, row.rank, row.date) == (event, event, text, text)


@pytest.mark.parametrize("value", [1e308, -1e308, 10**400])
def test_numbers_that_are_too_large_are_refused(value: float) -> None:
    with pytest.raises(DataError, match=r"^x: margin is not a number$"):
        parse_prediction({"truth": "a", "label": "b", "margin": value}, "x")
    assert parse_prediction({"truth": "a", "label": "b", "margin": 9e307}, "x").margin == 9e307
    for missing in (None, float("inf"), float("nan")):
        assert parse_prediction({"truth": "a", "label": "b", "margin": missing}, "x").margin is None


def test_further_columns_are_read_from_every_format(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("truth,label,station,n\na,b,s1,1\n\nc,d,,2\n")
    (tmp_path / "x.jsonl").write_text('{"truth": "a", "station": "s1", "n": 1}\n\n{"truth": "c", "n": 2}\n')
    pq.write_table(
        pa.table({"truth": ["a", "c"], "station": ["s1", None], "n": [1, 2]}), tmp_path / "x.parquet"
    )
    for name in ("x.csv", "x.jsonl", "x.parquet"):
        found = read_columns(tmp_path / name, ["n", "station", "gone"])
        assert found == {"n": ["1", "2"], "station": ["s1", ""]}
        assert list(found) == ["n", "station"]
        assert read_columns(tmp_path / name, ["gone"]) == {}
    with pytest.raises(DataError) as error:
        read_columns(tmp_path / "none.csv", ["n"])
    assert str(error.value) == f"{tmp_path / 'none.csv'}: cannot read it (No such file or directory)"
    (tmp_path / "y.jsonl").write_text('{"n": 1}\n{"n": [1]}\n')
    with pytest.raises(DataError) as error:
        read_columns(tmp_path / "y.jsonl", ["n"])
    assert str(error.value) == f"{tmp_path / 'y.jsonl'}, row 2: n is not a text"


def test_messages_about_parquet_name_the_columns_and_the_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for table, words in (
        ({"n": [1]}, ": no column truth or label; was it written by `crnr classify`?"),
        (
            {"truth": ["a", "b", "c"], "label": ["a", "b", "c"], "margin": ["", "", ""]},
            ", row 1: margin is not a number",
        ),
        ({"truth": ["a", "b"], "label": [None, ["b"]]}, ", row 2: label is not a text"),
    ):
        pq.write_table(pa.table(table), path)
        with pytest.raises(DataError) as error:
            read_answers(path)
        assert str(error.value) == f"{path}{words}"


def test_parquet_of_other_programs(crnr: Runner) -> None:
    table = pa.table({"truth": pa.array(["a", "b"]).dictionary_encode(), "label": ["a", "c"], "n": [1, 2]})
    pq.write_table(table, "x.parquet")
    assert '"accuracy": 0.5' in crnr("evaluate", "x.parquet", "--json").out
    pq.write_table(table.drop_columns("label"), "y.parquet")
    with pytest.raises(DataError, match=r"y.parquet: no column label; was it written by `crnr classify`\?"):
        read_answers(Path("y.parquet"))
    pq.write_table(pa.table({"truth": ["a"], "label": ["x" * 100_000]}), "z.parquet")
    assert crnr("evaluate", "z.parquet") == Outcome(
        1, "", "error: z.parquet: has a text of 100000 bytes; crnr reads up to 65536, so shorten it\n"
    )
    Path("cut.parquet").write_bytes(Path("x.parquet").read_bytes()[:-20])
    cut = crnr("evaluate", "cut.parquet")
    assert (cut.exit, cut.out) == (1, "")
    assert cut.err.startswith("error: cut.parquet: not a readable Parquet file (")
    assert crnr("evaluate", "gone.parquet").exit == 1
    assert crnr("evaluate", "gone.jsonl") == Outcome(
        1, "", "error: gone.jsonl: no such file; give a predictions file written by `crnr classify`\n"
    )


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*FIXED, "probability", "set"]),
        st.none() | st.text() | st.integers() | st.floats() | st.booleans() | st.lists(st.text(), max_size=2),
    )
)
def test_any_record_is_read_or_refused(record: dict[str, object]) -> None:
    with contextlib.suppress(DataError):
        row = parse_prediction(json.loads(json.dumps(record)), "x")
        assert row.probability is None or 0 <= row.probability <= 1
        assert isinstance(row.path, str)
        assert row.status
