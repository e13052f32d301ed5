"""CSV of numbers: headers, labels, and every way in which a table can be wrong."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from crnr_cli.errors import DataError
from crnr_cli.sources.formats import Keys, csv_table
from crnr_cli.sources.formats.csv_table import has_features
from crnr_cli.sources.tables import FeatureFile
from helpers.patches import set_free_bytes
from helpers.runner import Outcome, Runner, read_rows
from helpers.samples import make_features, make_images

VALUES = np.array([[0.5, -1, 3e-5], [2, 4, 1e300], [7, 8, 9.25], [1, 2, 3]])
LABELS = ["ant", "bee", "ant", "cow"]


def opened(path: Path, text: str | bytes, keys: Keys | None = None) -> FeatureFile:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return FeatureFile.open(path, keys or Keys())


def frame(**columns: object) -> pd.DataFrame:
    return pd.DataFrame(VALUES, columns=["u", "v", "w"]).assign(**columns)


@pytest.mark.parametrize("label", ["label", "Label", "labels", "class", "target"])
def test_a_table_of_pandas(tmp_path: Path, label: str) -> None:
    text = frame(**{label: LABELS}).to_csv(index=False)
    file = opened(tmp_path / "x.csv", text)
    np.testing.assert_array_equal(file.read_rows(0, 4), VALUES)
    assert (file.labels, file.notes) == (LABELS, ())
    assert file.names == [f"{tmp_path}/x.csv#{row}" for row in range(4)]


def test_the_numbers_of_the_rows_are_left_out(tmp_path: Path) -> None:
    file = opened(tmp_path / "x.csv", frame(label=LABELS).to_csv())
    np.testing.assert_array_equal(file.read_rows(0, 4), VALUES)
    assert file.notes == (f"{tmp_path}/x.csv: the first column is left out, because it numbers the rows",)


@pytest.mark.parametrize("label", [{}, {"label": LABELS}], ids=["without labels", "with labels"])
def test_columns_that_pandas_has_numbered(tmp_path: Path, label: dict[str, list[str]]) -> None:
    file = opened(tmp_path / "x.csv", pd.DataFrame(VALUES).assign(**label).to_csv(index=False))
    np.testing.assert_array_equal(file.read_rows(0, 4), VALUES)
    assert file.labels == label.get("label")


def test_csv_without_a_header_is_read(tmp_path: Path) -> None:
    text = pd.DataFrame(VALUES).to_csv(index=False, header=False)
    file = opened(tmp_path / "x.csv", text)
    np.testing.assert_array_equal(file.read_rows(0, 4), VALUES)
    assert file.labels is None
    last = opened(tmp_path / "x.csv", text, Keys(labels="3"))
    np.testing.assert_array_equal(last.read_rows(0, 4), VALUES[:, :2])
    assert last.labels == ["3e-05", "1e+300", "9.25", "3.0"]


@pytest.mark.parametrize("header", [True, False])
def test_the_only_column_of_text_has_the_labels(tmp_path: Path, header: bool) -> None:
    file = opened(tmp_path / "x.csv", frame(species=LABELS).to_csv(index=False, header=header))
    np.testing.assert_array_equal(file.read_rows(0, 4), VALUES)
    assert file.labels == LABELS
    name = "species" if header else "4"
    assert file.notes == (f"{tmp_path}/x.csv: using the labels in column {name}, because it is not numeric",)


def test_whole_numbers_are_the_same_labels_as_elsewhere(tmp_path: Path) -> None:
    numbers = np.array([7.0, 10.0, -1.0, 7.0])
    np.savez(tmp_path / "x.npz", features=VALUES, labels=numbers)
    expected = FeatureFile.open(tmp_path / "x.npz", Keys()).labels
    assert opened(tmp_path / "x.csv", frame(label=numbers).to_csv(index=False)).labels == expected
    codes = ["007", "7.0", "7", "1"]
    assert opened(tmp_path / "x.csv", frame(label=codes).to_csv(index=False)).labels == codes


def test_columns_of_labels_and_paths_are_found_by_their_names(tmp_path: Path) -> None:
    table = frame(kind=[1, 2, 1, 2], path=["a/1.png", "a,2.png", 'b"3.png', "b\n4.png"], label=LABELS)
    file = opened(tmp_path / "x.csv", table.to_csv(index=False), Keys(labels="kind"))
    assert file.labels == ["1", "2", "1", "2"]
    assert file.names == ["a/1.png", "a,2.png", 'b"3.png', "b\n4.png"]
    assert file.notes == (f"{tmp_path}/x.csv: column label is left out, because it may be labels too",)
    np.testing.assert_array_equal(file.read_rows(0, 4), VALUES)


def test_csv_cells_that_are_empty_are_nan(tmp_path: Path) -> None:
    file = opened(tmp_path / "x.csv", "u,v,label\n1,,a\nnan,inf,b\n 2 ,-3e2,c\n")
    np.testing.assert_array_equal(file.read_rows(0, 3), [[1, np.nan], [np.nan, np.inf], [2, -300]])


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffu,v,label\n1,2,a\n3,4,b\n",
        "u,v,label\r\n1,2,a\r\n3,4,b",
        '\n"u","v","label"\n\n1,2,a\n\n"3",4,b\n\n',
    ],
    ids=["byte order mark", "Windows", "quotes and empty lines"],
)
def test_other_ways_to_write_a_table(tmp_path: Path, text: str) -> None:
    file = opened(tmp_path / "x.csv", text)
    assert (file.read_rows(0, 2).tolist(), file.labels) == ([[1, 2], [3, 4]], ["a", "b"])


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("header", ["u;v;label\n", "\ufeff\nu;v;label\n", '"u";"v, w";"label"\n', ""])
def test_tables_of_other_spreadsheets_are_read_with_a_note(tmp_path: Path, mark: str, header: str) -> None:
    text = f"{header}1;-3;a\n1,5;,25;b,c\n+2,5e-3;;a\n".replace(";", mark)
    file = opened(tmp_path / "x.csv", text, Keys(labels=None if header else "3"))
    np.testing.assert_array_equal(file.read_rows(0, 3), [[1, -3], [1.5, 0.25], [0.0025, np.nan]])
    assert file.labels == ["a", "b,c", "a"]
    marks = {";": "semicolons", "\t": "tabs"}[mark]
    assert [note.removeprefix(f"{tmp_path}/x.csv: ") for note in file.notes] == [
        f"read with {marks} between the columns",
        "read with decimal commas",
    ]


finite = st.floats(allow_nan=False, allow_infinity=False)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(finite, min_size=width, max_size=width), min_size=1, max_size=5)
)


def test_labels_with_commas_stay_text_next_to_decimal_points(tmp_path: Path) -> None:
    file = opened(tmp_path / "x.csv", "u;label\n1.5;1,2\n2;1,3\n")
    assert (file.read_rows(0, 2).tolist(), file.labels) == ([[1.5], [2]], ["1,2", "1,3"])


LABEL_PAIRS = [("c.d", "a,b"), (7.0, 8.0), (0.5, 2.0), (3, 4), None]


@given(tables, st.sampled_from([";", "\t"]), st.sampled_from(LABEL_PAIRS))
def test_decimal_commas_give_the_same_features_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[float]], mark: str, labels: Any
) -> None:
    """As pandas writes them for a European spreadsheet."""
    folder = tmp_path_factory.mktemp("x")
    table = pd.DataFrame(rows, columns=[f"f{i}" for i in range(len(rows[0]))])
    if labels:
        table["label"] = [labels[i % 2] for i in range(len(rows))]
    elif len(rows[0]) == 1:
        table["g"] = 1.5  # a single column has no separator
    table.to_csv(folder / "points.csv", index=False)
    table.to_csv(folder / "commas.csv", index=False, sep=mark, decimal=",")
    points, commas = (FeatureFile.open(folder / f"{name}.csv", Keys()) for name in ("points", "commas"))
    assert commas.read_rows(0, len(rows)).tobytes() == points.read_rows(0, len(rows)).tobytes()
    assert commas.labels == points.labels


BAD = {
    "": "x.csv: is empty",
    "\n\n": "x.csv: is empty",
    "u,v\n1,2\n3\n": "x.csv, line 3: 1 column, but there are 2 before; is the file complete?",
    "u,v\n1,2\n3,4,5\n": "x.csv, line 3: 3 columns, but there are 2 before",
    "u,v\n1\n": "x.csv, line 2: 1 column, but there are 2 before",
    "1,2\n3,x4\n": "x.csv, line 2, column 2: 'x4' is not a number; if the column contains the labels",
    "u,v\n1,2\n3,1_0\n": r"x.csv, line 3, column 2 \(v\): '1_0' is not a number",
    f"u,v\n1,2\n3,{'z' * 99}\n": rf"column 2 \(v\): '{'z' * 30}...' is not a number",
    "u,label,class\n1,a,b\n": "x.csv: the columns label and class could each be the labels; choose one with",
    "u,s,t\n1,a,b\n": "x.csv: the columns s and t could each be the labels; choose one with",
    "u,label\n1,\n": "x.csv, line 2: the label is empty",
    "u,label,label\n1,a,b\n": "the columns label and label could each be the labels",
    "path,label\na.png,ant\n": "x.csv: has no columns of numbers; a table with the labels",
    "path,truth,label,residual\na,b,c,0.5\n": "x.csv: contains predictions of `crnr classify`",
    "u;v\tw\n1;2\t3\n": "x.csv: the columns are separated by semicolons; save the file with commas",
    "u;v\n1;2;3\n": "x.csv, line 2: 3 columns, but there are 2 before",
    "u, v;w\n1;2\n": "x.csv, line 1: has commas and semicolons; put names that contain a comma into quotes",
    "1,5;2\n1;2\n": "x.csv, line 1: has semicolons and decimal commas, but no header; put the names of the",
    'u,v\n1,"2,5"\n': "x.csv, line 2, column 2 .v.: '2,5' has a decimal comma; write points or separate",
    "u;v\n1,5;2\n1;2.5\n": "x.csv, line 3: has numbers with points, but there are numbers with commas in "
    "line 2; save the table with decimal points",
    "u;v\n1.234,5;2\n": "x.csv, line 2: has numbers with points, but there are numbers with commas; save",
    '"1,5","2,5",a\n1,2,b\n': "x.csv, line 1, column 1: '1,5' has a decimal comma; write points or separate",
    'u,v\n1,"1,234.5"\n': "x.csv, line 2, column 2 .v.: '1,234.5' is not a number",
    "u;v\n1,5;2\n1,2,3;2\n": "x.csv, line 3, column 1 .u.: '1,2,3' is not a number",
    'u,v\n1,"2\n3,4\n': "x.csv, line 3: not readable as CSV",
    f'u,v\n1,"{"2" * 200_000}"\n': "x.csv, line 2: not readable as CSV .field larger than",
}


@pytest.mark.parametrize(("text", "words"), BAD.items(), ids=map(str, range(len(BAD))))
def test_a_bad_table_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        opened(tmp_path / "x.csv", text)


def test_a_column_that_is_not_there_is_refused_with_the_others(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x.csv: no column kind; found u, v$"):
        opened(tmp_path / "x.csv", "u,v\n1,2\n", Keys(labels="kind"))
    with pytest.raises(DataError, match="2 columns are called v; rename them"):
        opened(tmp_path / "x.csv", "u,v,v\n1,2,3\n", Keys(labels="v"))


def test_csv_lines_and_sizes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "_LONGEST_LINE", 100)
    assert len(opened(tmp_path / "x.csv", "1,2\n" + "3," + "4" * 97 + "\n")) == 2
    with pytest.raises(DataError, match=r"x.csv, line 2: longer than 100 bytes; is it a table of numbers\?"):
        opened(tmp_path / "x.csv", "1,2\n" + "3," + "4" * 98 + "\n")
    set_free_bytes(1000, monkeypatch.setattr)
    with pytest.raises(
        DataError, match=r"reading the numbers needs .* of memory, but 1.0 kB are free; divide the file"
    ):
        opened(tmp_path / "x.csv", "1,2\n" * 500)


def test_a_wide_header_over_many_short_lines_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is made for what the file can contain, and not for lines times columns."""
    set_free_bytes(10_000_000, monkeypatch.setattr)
    text = ",".join(f"c{i}" for i in range(20_000)) + "\n" + "1\n" * 100_000
    with pytest.raises(DataError, match="line 2: 1 column, but there are 20000 before"):
        opened(tmp_path / "x.csv", text)


FLOATS = st.floats(width=64)


@settings(max_examples=60, deadline=None)
@given(
    values=numpy_arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=FLOATS),
    header=st.booleans(),
)
def test_csv_of_pandas_is_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, header: bool
) -> None:
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    names = [f"c{i}" for i in range(values.shape[1])]
    buffer = io.StringIO()
    pd.DataFrame(values, columns=names).to_csv(buffer, index=False, header=header, na_rep="nan")
    found = opened(path, buffer.getvalue())
    np.testing.assert_array_equal(found.read_rows(0, len(found)), values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("u,v\n1,2\n", True),
        ("1,2\n3,4\n", True),
        ("1,2,a\n", True),
        ("u,v,label\n1,2,a\n", True),
        ("path,truth,label,margin\na,b,c,0.5\n", False),
        ("truth,label\n1,2\n", False),
        ("truth,other\n1,2\n", False),
        ("path,label\na,b\n", False),
        ("u,v\n", False),
        ("", False),
        ('"', False),
    ],
)
def test_has_features_distinguishes_features_from_predictions(
    tmp_path: Path, text: str, expected: bool
) -> None:
    (tmp_path / "x.csv").write_text(text)
    assert has_features(tmp_path / "x.csv") is expected
    assert not has_features(tmp_path / "gone.csv")


def write_csv_of(npz: Path, path: Path) -> None:
    with np.load(npz) as file:
        arrays = dict(file)
    pd.DataFrame(arrays["features"].astype(float)).assign(label=arrays["labels"]).to_csv(path, index=False)


def test_csv_features_work_in_all_commands(crnr: Runner) -> None:
    make_features(Path("x.npz"))
    write_csv_of(Path("x.npz"), Path("x.csv"))
    assert crnr("build", "x.csv", "-q") == Outcome(0, "", "")
    assert crnr("classify", "x.csv", "-o", "out.csv") == Outcome(
        0, "", "labelled 15 of 15 queries: out.csv\n"
    )
    assert {(row["truth"] == row["label"], row["status"]) for row in read_rows(Path("out.csv"))} == {
        (True, "ok")
    }
    of_queries, of_table = crnr("evaluate", "x.csv", "--json"), crnr("evaluate", "out.csv", "--json")
    assert (of_queries.exit, of_table.exit) == (0, 0)
    assert '"accuracy": 1.0' in of_queries.out
    assert '"accuracy": 1.0' in of_table.out
    refused = crnr("classify", "out.csv", "-o", "again.csv")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith("error: out.csv: contains predictions of `crnr classify` and no features")
    assert not Path("again.csv").exists()


def test_a_csv_beside_images_is_not_one_of_features(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "-q").exit == 0
    Path("notes.csv").write_text("1,2\n3,4\n")
    done = crnr("classify", "gallery/ant/0.png", "notes.csv", "-q")
    assert (done.exit, done.err) == (0, "")
    assert [line.split(",")[0] for line in done.out.splitlines()] == [
        "path",
        "gallery/ant/0.png",
        "notes.csv",
    ]
    np.save("notes.npy", np.eye(2))
    mixed = crnr("classify", "gallery/ant/0.png", "notes.npy", "-q")
    assert mixed == Outcome(
        2,
        "",
        "error: notes.npy is a feature file, but gallery/ant/0.png is not; give images or feature files, "
        "not both\n",
    )
