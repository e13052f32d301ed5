"""The CSV against Python's csv module, and what comes back of what was written."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crnr_cli.arrays import Batch
from crnr_cli.errors import DataError, SampleError
from crnr_cli.results.decision import (
    Answers,
    Prediction,
    best_classes,
    make_predictions,
    margins,
    separation,
    standout,
)
from crnr_cli.results.edited import read_candidates
from crnr_cli.results.formats import read_columns
from crnr_cli.results.probability import Calibrated, Thresholds
from crnr_cli.results.table import (
    CsvFormatter,
    join_labels,
    number_format,
    parse_predictions,
    read_predictions,
    split_labels,
)

# File names are bytes but for NUL and /; Python shows what is not UTF-8 as lone surrogates.
file_names = st.binary(min_size=1, max_size=12).map(
    lambda raw: raw.replace(b"\0", b"_").decode("utf-8", "surrogateescape")
)


def answers(
    paths: list[str],
    residuals: np.ndarray,
    truths: list[str | None] | None = None,
    errors: list[SampleError | None] | None = None,
) -> Answers:
    batch = Batch(paths, errors or [None] * len(paths), np.empty((len(residuals), 0)), len(paths))
    return Answers(batch, residuals, truths or [None] * len(paths))


def written(batch: Answers, classes: list[str], dtype: str, top: int | None = None) -> bytes:
    lines = CsvFormatter(classes, dtype, top)
    return lines.header() + lines.format(batch)[1]


def parsed(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8", "surrogateescape"), newline=""), strict=True))


@given(
    st.lists(file_names, min_size=2, max_size=4, unique=True).map(sorted),
    st.lists(file_names, min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_names_round_trip_through_another_reader(
    classes: list[str], paths: list[str], random: Random
) -> None:
    rng = np.random.default_rng(random.randrange(2**32))
    residuals = rng.random((len(paths), len(classes)))
    truths = [random.choice([*classes, None]) for _ in paths]
    header, *rows = parsed(written(answers(paths, residuals, truths), classes, "float64"))
    fixed = ["path", "truth", "label", "residual", "runner_up", "margin", "status", "separation"]
    assert header[:8] == fixed
    assert header[8:] == [f"residual:{name}" for name in classes]
    for row, path, truth, values in zip(rows, paths, truths, residuals, strict=True):
        order = np.argsort(values, kind="stable")
        assert row[:3] == [path, truth or "", classes[order[0]]]
        assert row[4] == classes[order[1]]
        assert [float(text) for text in row[8:]] == values.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_come_back_to_the_last_bit(dtype: str) -> None:
    residuals = np.random.default_rng(0).random((50, 3)).astype(dtype)
    rows = parsed(written(answers(["x"] * 50, residuals), ["a", "b", "c"], dtype))[1:]
    assert (np.array([row[8:] for row in rows]).astype(dtype) == residuals).all()


def test_floats_have_no_more_digits_than_they_need() -> None:
    assert number_format("float32") % np.float32(0.1) == "0.100000001"
    assert number_format("float64") % 0.1 == "0.1"


def test_a_query_without_answer_has_one_row_with_its_status() -> None:
    batch = answers(["bad", "good"], np.array([[0.5, 0.25]]), errors=[SampleError("truncated"), None])
    assert written(batch, ["a", "b"], "float64").decode().splitlines()[1:] == [
        "bad,,,,,,truncated,,,",
        "good,,b,0.25,a,0.5,ok,0.5,0.5,0.25",
    ]


def test_a_query_without_answer_keeps_its_date() -> None:
    """With a sharpness of 1, probabilities are proportional to 1 / residual."""
    days = ["2024-05-01 10:00:00", "", "2024-05-02 11:30:00"]
    errors = [SampleError("truncated"), SampleError("corrupt"), None]
    batch = Batch(["bad", "worse", "good"], errors, np.empty((1, 0)), 3, dates=days)
    sureness = Thresholds(Calibrated(1.0, np.ones(1)))
    found = Answers(batch, np.array([[0.75, 0.25]]), [None, "a", "b"], sureness=sureness)
    ends = {
        None: ("residual:a,residual:b", ",", "0.75,0.25"),
        1: ("label_1,residual_1,probability_1", ",,", "b,0.25,0.7500"),
    }
    for top, (names, empty, values) in ends.items():
        lines = CsvFormatter(["a", "b"], "float64", top, ["probability", "date"])
        assert (lines.header() + lines.format(found)[1]).decode().splitlines() == [
            f"path,truth,label,residual,runner_up,margin,status,separation,probability,date,{names}",
            f"bad,,,,,,truncated,,,2024-05-01 10:00:00,{empty}",
            f"worse,a,,,,,corrupt,,,,{empty}",
            f"good,b,b,0.25,a,0.6666666666666667,ok,0.6666666666666667,0.7500,2024-05-02 11:30:00,{values}",
        ]


def test_top_writes_only_the_best_classes() -> None:
    residuals = np.array([[0.5, 0.25, 0.75], [0.5, 0.5, 0.25]])
    batch = answers(["x", "bad", "y"], residuals, errors=[None, SampleError("truncated"), None])
    header, *rows = parsed(written(batch, ["a", "b,c", "d"], "float64", top=2))
    assert header[8:] == ["label_1", "residual_1", "label_2", "residual_2"]
    assert [row[8:] for row in rows] == [
        ["b,c", "0.25", "a", "0.5"],
        ["", "", "", ""],
        ["d", "0.25", "a", "0.5"],
    ]


def test_top_beyond_the_classes_is_all_of_them() -> None:
    data = written(answers(["x"], np.array([[0.5, 0.25]])), ["a", "b"], "float32", top=9)
    assert parsed(data)[1][8:] == ["b", "0.25", "a", "0.5"]


def test_ties_go_to_the_first_name_with_margin_zero() -> None:
    (row,) = make_predictions(answers(["x"], np.array([[0.3, 0.3, 0.3]])), ["a", "b", "c"])
    assert (row.label, row.runner_up, row.margin) == ("a", "b", 0.0)


@given(st.integers(0, 10), st.integers(1, 60), st.integers(1, 60), st.randoms(use_true_random=False))
def test_the_best_classes_are_those_that_a_stable_sort_puts_first(
    m: int, k: int, count: int, random: Random
) -> None:
    few_values = [random.choice([-1.0, 0.0, 0.5, 0.5, 2.0]) for _ in range(m * k)]  # so that many are equal
    residuals = np.array(few_values, np.float32).reshape(m, k)
    count = min(count, k)
    expected = [sorted(range(k), key=lambda i, row=row: row[i])[:count] for row in residuals.tolist()]
    assert best_classes(residuals, count).tolist() == expected


def test_margin_of_two_perfect_matches_is_a_tie() -> None:
    assert margins(np.array([0.0]), np.array([0.0])).tolist() == [0.0]


def test_written_predictions_are_read_back() -> None:
    batch = answers(['a,"b"\nc', "d"], np.array([[0.5, 0.25]]), ["x", None], [None, SampleError("zero_norm")])
    text = written(batch, ["x", "y"], "float64").decode()
    assert parse_predictions(io.StringIO(text, newline=""), "f") == make_predictions(batch, ["x", "y"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "f: no column truth or label; was it written by `crnr classify`?", id="empty"),
        pytest.param(
            "path,truth\n", "f: no column label; was it written by `crnr classify`?", id="no label column"
        ),
        pytest.param(
            "truth,label;margin\na,b;0.5\n",
            "f, line 1: has commas and semicolons; put names that contain a comma into quotes, so that only "
            "semicolons separate the columns",
            id="two separators",
        ),
        pytest.param(
            "truth;label\tmargin\na;b\t0.5\n",
            "f: the columns are separated by semicolons; save the file with commas",
            id="other separators",
        ),
        pytest.param(
            "truth,label\na\n",
            "f, line 2: 1 field, but the header has 2; is the file truncated?",
            id="cut",
        ),
        pytest.param(
            'truth,label\n"a,b\n', "f, line 2: not readable as CSV (unexpected end of data)", id="open quote"
        ),
        pytest.param(
            "truth,label,margin\na,b,much\n",
            "f, line 2: could not convert string to float: 'much'",
            id="not a number",
        ),
    ],
)
def test_a_broken_csv_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        parse_predictions(io.StringIO(text, newline=""), "f")
    assert str(error.value) == message


def test_csvs_of_other_programs_are_read(tmp_path: Path) -> None:
    """With a byte order mark, CRLF, empty lines, columns in any order, and no status."""
    path = tmp_path / "other.csv"
    lines = ["label,more,truth,margin,residual", "", "b,1,a,nan,0.5", ",2,a,0.25,inf", "c,3,,-inf,"]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    assert read_predictions(path) == [
        Prediction("", "a", "b", 0.5, None, None, "ok"),
        Prediction("", "a", None, None, None, 0.25, "no_label"),
        Prediction("", None, "c", None, None, None, "ok"),
    ]


def test_all_columns_of_a_csv_are_read() -> None:
    lines = [
        "path,truth,label,residual,runner_up,margin,status,separation,probability,set,rank,class_probability,"
        "date,event,event_label,more",
        "q/1.png,fox,canid,0.5,dog,0.25,broader,0.125,0.9,fox|dog,family,0.6,2024-05-01 10:00:00,7,fox,x",
        "q/2.png,,,,,,truncated,,,,,,,,,",
    ]
    answered = Prediction("q/1.png", "fox", "canid", 0.5, "dog", 0.25, "broader", 0.125, 0.9)
    answered = answered._replace(set=("fox", "dog"), date="2024-05-01 10:00:00", rank="family")
    answered = answered._replace(class_probability=0.6, event="7", event_label="fox")
    failed = Prediction("q/2.png", None, None, None, None, None, "truncated")
    assert parse_predictions(io.StringIO("\n".join(lines)), "f") == [answered, failed]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_csv_saved_by_a_spreadsheet_may_have_decimal_commas(separator: str) -> None:
    lines = [
        "truth;label;residual;margin;separation;probability;class_probability;rank",
        "a,1;b;0,5;0,25;0,125;0,9;0,75;2",
        ";;;;;;;",
        "a;b;;1;0,5;;;",
    ]
    text = "\n".join(lines).replace(";", separator)
    first = Prediction("", "a,1", "b", 0.5, None, 0.25, "ok", 0.125, 0.9)
    assert parse_predictions(io.StringIO(text), "f") == [
        first._replace(rank="2", class_probability=0.75),
        Prediction("", None, None, None, None, None, "no_label"),
        Prediction("", "a", "b", None, None, 1.0, "ok", 0.5),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0.0), ("1", 1.0), ("0.5", 0.5), ("-0.1", None), ("1.5", None), ("nan", None), ("high", None)],
)
def test_a_probability_is_a_share(text: str, value: float | None) -> None:
    """Another program may use the name of the column for something else."""
    lines = ["truth,label,probability,class_probability", f"a,b,{text},", f"a,b,,{text}"]
    rows = parse_predictions(io.StringIO("\n".join(lines)), "f")
    assert [(row.probability, row.class_probability) for row in rows] == [(value, None), (None, value)]


def test_names_in_a_csv_are_read_as_they_are(tmp_path: Path) -> None:
    """One that is not UTF-8, and one with a carriage return."""
    path = tmp_path / "odd.csv"
    path.write_bytes(b'path,truth,label\ncaf\xe9.png,a,a\n"a\rb.png",a,a\n')
    assert [row.path for row in read_predictions(path)] == ["caf\udce9.png", "a\rb.png"]


def test_a_csv_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read_predictions(tmp_path / "none.csv")
    assert str(error.value) == f"{tmp_path}/none.csv: cannot read it (No such file or directory)"


def test_without_a_header_there_are_only_rows() -> None:
    lines = CsvFormatter(["a", "b"], "float64")
    assert lines.format(answers([], np.empty((0, 2)))) == ([], b"")
    rows, data = lines.format(answers(["x\ry"], np.array([[0.5, 0.25]]), ["no class"]))
    assert data == b'"x\ry",no class,b,0.25,a,0.5,ok,0.5,0.5,0.25\n'
    assert rows == [Prediction("x\ry", "no class", "b", 0.25, "a", 0.5, "ok", 0.5)]


def test_a_rejected_query_is_unknown_and_its_best_class_comes_second() -> None:
    residuals = np.array([[0.5, 0.25, 0.75], [0.5, 0.45, 0.5]])
    of_three = answers(["x", "bad", "y"], residuals, [None, "a", "b"], [None, SampleError("truncated"), None])
    first, failed, second = make_predictions(replace(of_three, min_separation=0.3), ["a", "b", "c"])
    assert first[:5] == ("x", None, "b", 0.25, "a")
    assert (first.status, first.margin, first.separation) == ("ok", 0.5, pytest.approx(1 - 0.25 / 0.625))
    assert failed == Prediction("bad", "a", None, None, None, None, "truncated")
    assert second[:5] == ("y", "b", "unknown", 0.45, "b")
    assert (second.status, second.margin) == ("rejected", pytest.approx(0.1))
    assert second.separation == pytest.approx(0.1)


def test_standout_compares_the_best_with_the_mean_of_others() -> None:
    residuals = np.array([[0.2, 0.4, 0.8], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0]], np.float32)
    np.testing.assert_allclose(standout(residuals), [1 - 0.2 / 0.6, 0, 0], atol=1e-7)
    scores = np.array([[-3.0, 1.0, 2.0], [5.0, 5.0, 5.0]])
    np.testing.assert_allclose(standout(scores, signed=True), [1 - np.exp(-4.5), 0], atol=1e-12)
    assert standout(np.empty((0, 3))).shape == (0,)
    found = separation(np.array([[0.1, 0.1, 0.1]], np.float32))
    assert (found.dtype, found.tolist()) == (np.float32, [0.0])


@given(
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
    st.integers(2, 5),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1e-9, 0.5, 1.0]),
)
def test_a_query_is_rejected_exactly_if_its_printed_separation_is_below_the_printed_limit(
    dtype: str, signed: bool, n_classes: int, seed: int, nudge: float
) -> None:
    rng = np.random.default_rng(seed)
    residuals = rng.random((20, n_classes)).astype(dtype) * (1 if nudge else 0.001)
    # The limit is the value of one of the queries, or very near.
    best = np.sort(residuals[:1].astype(float), axis=1)[0]
    ratio = -np.expm1(best[0] - best[1:].mean()) if signed else 1 - best[0] / best[1:].mean()
    limit = float(ratio) + nudge * 1e-7
    batch = replace(answers([str(i) for i in range(20)], residuals), min_separation=limit, signed=signed)
    rows = parsed(written(batch, list("abcde")[:n_classes], dtype))
    shown = number_format(dtype) % float(np.dtype(dtype).type(limit))
    for row in rows[1:]:
        assert (row[6] == "rejected") == (float(row[7]) < float(shown))


def test_a_csv_of_an_older_version_has_no_separation() -> None:
    (row,) = parse_predictions(io.StringIO("path,truth,label,status\na.png,x,x,ok\n"), "old.csv")
    assert row.separation is None


def test_margins_are_ratios_in_double_precision_unless_they_are_of_scores() -> None:
    best, second = np.array([0.1, 1.0], np.float32), np.array([0.3, 4.0], np.float32)
    found = margins(best, second)
    assert found.dtype == np.float64
    assert found.tolist() == (1 - best.astype(float) / second.astype(float)).tolist()
    scores = margins(best, second, signed=True)
    np.testing.assert_allclose(scores, 1 - np.exp(best.astype(float) - second.astype(float)), rtol=1e-14)


def test_looking_for_the_best_classes_leaves_the_residuals_alone() -> None:
    residuals = np.random.default_rng(0).random((3, 40))
    before = residuals.copy()
    best_classes(residuals, 2)
    np.testing.assert_array_equal(residuals, before)


def test_separation_is_of_residuals_unless_they_are_of_scores() -> None:
    residuals = np.array([[0.4, 0.6, 1.0]], np.float32)
    np.testing.assert_allclose(separation(residuals), [0.5], rtol=1e-6)
    np.testing.assert_allclose(separation(residuals, signed=True), [1 - np.exp(0.4 - 0.8)], rtol=1e-6)


@given(st.lists(st.text(min_size=1, max_size=6), max_size=5))
@example(["|", "\\", "\\|", "a|b\\", "\n"])
def test_a_set_of_labels_round_trips(labels: list[str]) -> None:
    assert split_labels(join_labels(labels)) == tuple(labels)


def test_a_backslash_makes_any_character_of_a_set_ordinary() -> None:
    """Other programs may put one before more characters than needed."""
    assert split_labels("a\\\nb|c\\d|\\|") == ("a\nb", "cd", "|")


def test_a_set_of_labels_is_readable() -> None:
    assert join_labels(["cat", "dog"]) == "cat|dog"
    assert join_labels(["a|b", "c\\d"]) == "a\\|b|c\\\\d"


def test_a_set_may_name_more_classes_than_the_csv_module_reads_by_itself(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    labels = [f"c{i}" for i in range(limit // 4)]
    text = f"path,truth,label,probability,set,residual:a\nx,,a,0.5,{join_labels(labels)},0.5\n"
    assert len(text) > limit
    (row,) = parse_predictions(io.StringIO(text), "x.csv")
    assert row.set == tuple(labels)
    (tmp_path / "x.csv").write_text(text)
    assert read_columns(tmp_path / "x.csv", ["set"]) == {"set": ["|".join(labels)]}
    assert read_candidates(tmp_path / "x.csv", {0}, 5) == ({0: ["a"]}, ["a"])
    with pytest.raises(DataError, match="line 2: not readable as CSV"):
        parse_predictions(io.StringIO('truth,label\na,"b'), "x.csv")
    assert csv.field_size_limit() == limit
