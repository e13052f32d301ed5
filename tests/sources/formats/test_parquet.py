"""Parquet of columns of numbers, or of lists of numbers, in row groups of any size."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.errors import DataError
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.tables import FeatureFile
from crnr_cli.system import parquet, parquet_process, spares
from crnr_cli.system.extras import describe_missing
from helpers.patches import set_free_bytes, use_parquet_reader
from helpers.runner import Outcome, Runner
from helpers.samples import make_features

VALUES = np.random.default_rng(0).random((23, 3)).astype(np.float32)
LABELS = [("ant", "bee", "cöw")[i % 3] for i in range(23)]


def opened(path: Path, table: Any, keys: Keys | None = None, **storage: Any) -> FeatureFile:
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **storage)
    return FeatureFile.open(path, keys or Keys())


def columns(values: np.ndarray = VALUES) -> dict[str, Any]:
    return {f"f.{i}": values[:, i] for i in range(values.shape[1])}


LISTS = {
    "list": pa.list_(pa.float32()),
    "large list": pa.large_list(pa.float32()),
    "fixed list": pa.list_(pa.float32(), 3),
}


def in_batches(batch: int, kind: str, group: int) -> Any:
    """Return a case. With small batches, nearly every read starts a process, which takes a while."""
    is_slow = batch == 2 and kind != "columns" and group != 4
    return pytest.param(batch, kind, group, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(
    ("batch", "kind", "group"),
    [in_batches(*case) for case in product([2, 4096], ["columns", *LISTS], [1, 4, 23])],
)
def test_parquet_rows_are_read_in_any_order(
    tmp_path: Path, group: int, kind: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_ROWS_PER_BATCH", batch)
    monkeypatch.setattr(parquet, "_ROWS_AHEAD", 3)
    lists = kind != "columns" and {"embedding": pa.array(VALUES.tolist(), type=LISTS[kind])}
    file = opened(tmp_path / "x.parquet", {**(lists or columns()), "label": LABELS}, row_group_size=group)
    for start, stop in ((0, 5), (5, 23), (22, 23), (7, 7), (3, 9), (4, 20), (0, 23)):
        np.testing.assert_array_equal(file.read_rows(start, stop), VALUES[start:stop])
    assert file.read_rows(0, 1).dtype == np.float32
    assert file.labels == LABELS
    np.testing.assert_array_equal(file.take([5, 2, 21]).read_rows(0, 3), VALUES[[5, 2, 21]])


def test_parquet_of_pandas_keeps_labels_and_paths(tmp_path: Path) -> None:
    frame = pd.DataFrame(VALUES[:6], columns=list("uvw"), index=[5, 4, 3, 2, 1, 0])
    frame["class"] = pd.Categorical(LABELS[:6])
    frame["path"] = [f"{i}.png" for i in range(6)]
    frame.to_parquet(tmp_path / "x.parquet")
    file = FeatureFile.open(tmp_path / "x.parquet", Keys())
    np.testing.assert_array_equal(file.read_rows(0, 6), VALUES[:6])
    assert (file.labels, file.names[:2]) == (LABELS[:6], ["0.png", "1.png"])
    assert file.notes == (f"{tmp_path}/x.parquet: the last column is left out, because it numbers the rows",)


def test_numbers_of_several_types_and_missing_ones(tmp_path: Path) -> None:
    table = {
        "a": pa.array([1, None, 3], pa.int16()),
        "b": pa.array([True, False, None], pa.bool_()),
        "c": pa.array([0.5, float("inf"), None], pa.float32()),
        "d": pa.array([1, 2, 255], pa.uint8()),
    }
    file = opened(tmp_path / "x.parquet", table)
    expected = [[1, 1, 0.5, 1], [np.nan, 0, np.inf, 2], [3, np.nan, np.nan, 255]]
    np.testing.assert_array_equal(file.read_rows(0, 3), expected)
    assert file.read_rows(0, 1).dtype == np.float64


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pa.array([7, 8, 7]), ["7", "8", "7"]),
        (pa.array([7.0, 8.0, 0.5]), ["7", "8", "0.5"]),
        (pa.array([True, False, True]), ["True", "False", "True"]),
        (pa.array(["a", "b", "a"], pa.large_string()), ["a", "b", "a"]),
    ],
)
def test_parquet_labels_of_any_type_are_text(tmp_path: Path, labels: pa.Array, expected: list[str]) -> None:
    file = opened(tmp_path / "x.parquet", {"u": [1.0, 2, 3], "kind": labels}, Keys(labels="kind"))
    assert file.labels == expected


def test_lists_leave_other_columns_alone(tmp_path: Path) -> None:
    """As a table of embeddings has them: where each comes from, and when."""
    lists = [[1.0, 2.0], [3.0, 4.0]]
    table = {"id": [1, 2], "when": pa.array([0, 1], pa.timestamp("s")), "emb": lists, "label": ["a", "b"]}
    file = opened(tmp_path / "x.parquet", table)
    assert (file.read_rows(0, 2).tolist(), file.labels) == (lists, ["a", "b"])
    assert file.notes[0].endswith(
        "using the features 'emb' (2 x 2) and the labels 'label'; choose others with --features-key and "
        "--labels-key"
    )
    table["more"] = [[1.0], [2.0]]
    chosen = opened(tmp_path / "x.parquet", table, Keys("emb", "id"))
    assert (chosen.read_rows(0, 2).tolist(), chosen.labels) == (lists, ["1", "2"])


def test_one_hot_lists_are_labels(tmp_path: Path) -> None:
    table = {"emb": [[0.5, 2.0]] * 3, "kind": [[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]}
    assert opened(tmp_path / "x.parquet", table).labels == ["0", "2", "0"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "ragged": (
        {"e": [[1.0, 2.0], [3.0]]},
        "x.parquet: row 1 of e does not have 2 numbers, as the first row has",
    ),
    "no list": ({"e": [[1.0, 2.0], None]}, "x.parquet: row 1 of e does not have 2 numbers"),
    "empty lists": (
        {"e": pa.array([[], []], pa.list_(pa.float32()))},
        r"found 'e' \(2 x 0\), but no table of numbers",
    ),
    "text": ({"u": [1.0], "a": ["x"], "b": ["y"]}, "the columns a and b could each be the labels"),
    "time": (
        {"u": [1.0], "t": pa.array([0], pa.timestamp("s"))},
        r"column t is of type timestamp\[ms\], and not",
    ),
    "predictions": (
        {"truth": ["a"], "label": ["b"], "margin": [0.5]},
        "contains predictions of `crnr classify`",
    ),
    "no numbers": ({"path": ["a"], "label": ["b"]}, "has no columns of numbers"),
    "no label": ({"u": [1.0, 2.0], "label": ["a", None]}, "row 1 has no value in the column label"),
    "structs": (
        {"u": [1.0], "label": [{"a": 1}]},
        "column label is of type struct<a: int64>, and not of numbers",
    ),
}


@pytest.mark.parametrize(("table", "words"), BAD.values(), ids=BAD)
def test_bad_tables_are_refused(tmp_path: Path, table: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        opened(tmp_path / "x.parquet", table).read_rows(0, 2)


def test_ambiguous_parquet_columns_are_refused(tmp_path: Path) -> None:
    struct = pa.array([{"b": 1.0}])
    with pytest.raises(DataError, match="is of type struct"):
        opened(tmp_path / "x.parquet", {"a": struct, "u": [1.0]})
    with pytest.raises(DataError) as error:
        opened(tmp_path / "x.parquet", {"a": struct, "a.b": [[1.0]]})
    assert str(error.value) == (
        f"{tmp_path / 'x.parquet'}: the columns a.b cannot be told from others; "
        "give each column a name of its own, without a dot"
    )
    twice = pa.table([pa.array([["x"]]), pa.array([[1.0]]), pa.array([[2.0]])], names=["t", "e", "e"])
    with pytest.raises(DataError, match="several columns are called e; rename them"):
        opened(tmp_path / "x.parquet", twice)


def test_one_process_answers_all_questions_about_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from Python, where no command keeps the process."""
    monkeypatch.setattr(spares, "_blocks", 0)
    started = use_parquet_reader("", monkeypatch.setattr)
    file = opened(tmp_path / "x.parquet", columns() | {"label": ["a"] * len(VALUES)})
    assert file.labels == ["a"] * len(VALUES)
    assert len(started) == 1
    assert started[0].wait() != 0  # it was ended


def test_a_damaged_file_and_one_of_something_else(tmp_path: Path) -> None:
    pq.write_table(pa.table(columns()), tmp_path / "x.parquet")
    data = (tmp_path / "x.parquet").read_bytes()
    for content in (b"", b"hello", data[:-1], data[:100], b"PAR1" + b"\xff" * 50 + b"PAR1"):
        (tmp_path / "x.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"x.parquet: not a readable Parquet file \("):
            FeatureFile.open(tmp_path / "x.parquet", Keys())


def test_a_small_file_of_very_many_rows_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3_000_000
    table = pa.table({"u": np.zeros(count, np.float32), "v": np.ones(count, np.float32)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=count)
    assert (tmp_path / "x.parquet").stat().st_size < 20_000
    before = pa.total_allocated_bytes()
    set_free_bytes(10_000_000, monkeypatch.setattr)
    with pytest.raises(DataError, match=r"a list of 3000000 rows needs .*; divide the file"):
        FeatureFile.open(tmp_path / "x.parquet", Keys())
    numbers = parquet.ParquetNumbers(
        parquet.ParquetFile(tmp_path / "x.parquet"),
        [parquet.Column(name, "number", "float", np.dtype(np.float32)) for name in ("u", "v")],
    )
    assert numbers[2_000_000:2_000_003].tolist() == [[0, 1]] * 3
    # What the process that reads does, in this process.
    request = {"what": "numbers", "path": str(tmp_path / "x.parquet"), "names": ["u", "v"], "group": 0}
    request |= {"rows": 4096, "width": -1, "dtype": "<f4"}
    for line, buffers in parquet_process.answer(request):
        assert line.get("end", "done") == "done"
        assert sum(buffer.nbytes for buffer in buffers) <= 4096 * 8
        assert pa.total_allocated_bytes() - before < 5_000_000


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.floats(width=32), min_size=2, max_size=2), min_size=1, max_size=9),
    st.integers(1, 9),
    st.sampled_from(["NONE", "gzip", "snappy", "zstd"]),
)
def test_parquet_of_pyarrow_is_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, values: list[list[float]], group: int, compression: str
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    array = np.array(values, np.float32)
    for table in (columns(array), {"features": pa.array(values, pa.list_(pa.float32()))}):
        file = opened(path, table, row_group_size=group, compression=compression)
        np.testing.assert_array_equal(file.read_rows(0, len(array)), array)


def test_parquet_features_work_in_all_commands(crnr: Runner) -> None:
    make_features(Path("x.npz"))
    with np.load("x.npz") as file:
        arrays = dict(file)
    pq.write_table(pa.table({**columns(arrays["features"]), "label": arrays["labels"].tolist()}), "x.parquet")
    assert crnr("build", "x.parquet", "-q") == Outcome(0, "", "")
    done = crnr("classify", "x.parquet", "-o", "out.parquet")
    assert done == Outcome(0, "", "labelled 15 of 15 queries: out.parquet\n")
    scored = [crnr("evaluate", name, "--json") for name in ("x.parquet", "out.parquet")]
    assert [(one.exit, '"accuracy": 1.0' in one.out) for one in scored] == [(0, True), (0, True)]
    refused = crnr("build", "out.parquet", "-o", "g.h5")
    assert (refused.exit, "contains predictions" in refused.err) == (1, True)
    listed = crnr("info", "x.parquet")
    assert (listed.exit, listed.err) == (0, "")
    assert "15, along the first axis of 'features'" in listed.out


def test_parquet_features_without_pyarrow_name_the_extra(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table(columns()), "x.parquet")
    monkeypatch.setattr("crnr_cli.system.extras.find_spec", lambda name: None)
    assert crnr("build", "x.parquet") == Outcome(
        1, "", f"error: {describe_missing('parquet', 'x.parquet: a Parquet file', 'pyarrow')}\n"
    )


ENCODINGS: dict[str, dict[str, Any]] = {
    "dictionary": {"use_dictionary": True, "dictionary_pagesize_limit": 2**20},
    "plain": {"use_dictionary": False},
    "one page": {"use_dictionary": False, "data_page_size": 2**30},
    "lengths": {"use_dictionary": False, "column_encoding": "DELTA_LENGTH_BYTE_ARRAY"},
    "beginnings": {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", ["one text", "list"])
def test_a_small_file_that_repeats_a_long_text_takes_little_memory(
    tmp_path: Path, encoding: str, kind: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is in memory once, and batches are small, however many rows have it."""
    text, count, at_most = "a" * 60_000, 500, 2**20
    values = [text] * count if kind == "one text" else [[text]] * count
    storage = {"data_page_version": version, "compression": "zstd", **ENCODINGS[encoding]}
    pq.write_table(pa.table({"t": values}), tmp_path / "x.parquet", **storage)
    assert (tmp_path / "x.parquet").stat().st_size < 10_000
    monkeypatch.setattr(parquet, "_TEXT_PER_BATCH", at_most)
    file = parquet.ParquetFile(tmp_path / "x.parquet")
    read_batches, sizes, sent = file.read_batches, [], []

    def recorded(what: str, first: int, rows: int, **details: Any) -> Any:
        batches = pq.ParquetFile(file.path).iter_batches(rows)  # as the process that reads reads them
        sizes.extend(batch.nbytes for batch in batches)
        for at, count, (line, buffers) in read_batches(what, first, rows, **details):
            sent.append(sum(buffer.nbytes for buffer in buffers))
            yield at, count, (line, buffers)

    monkeypatch.setattr(file, "read_batches", recorded)
    found = file.values("t")
    assert max(sent) <= len(text) + 10_000
    assert found == values
    assert len({id(one if kind == "one text" else one[0]) for one in found}) == 1
    # A page of plain texts is in memory anyway.
    assert max(sizes) <= max(at_most, len(text)) + 10_000 or encoding == "one page"


def test_text_that_does_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(
        pa.table({"t": ["a" * 60_000] * 100}),
        tmp_path / "x.parquet",
        compression="zstd",
        use_dictionary=False,
        data_page_size=2**30,
    )
    set_free_bytes(6_000_000, monkeypatch.setattr)
    with pytest.raises(DataError, match=r"x.parquet: column t needs 18.0 MB of memory, but 6.0 MB are free"):
        parquet.ParquetFile(tmp_path / "x.parquet").values("t")
    texts = [f"{i:60000}" for i in range(100)]
    small = {"compression": "zstd", "use_dictionary": False, "data_page_size": 2**16, "write_batch_size": 1}
    pq.write_table(pa.table({"t": texts}), tmp_path / "y.parquet", **small)
    monkeypatch.setattr(parquet, "_CHECKED_EVERY", 4_000_000)
    set_free_bytes(3_900_000, monkeypatch.setattr)
    with pytest.raises(DataError, match=r"y.parquet: column t needs 4.0 MB of memory, but 3.9 MB are free"):
        parquet.ParquetFile(tmp_path / "y.parquet").values("t")


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.none() | st.sampled_from(["a", "", "é" * 9]) | st.text(max_size=30), max_size=40),
    in_lists=st.booleans(),
    group=st.integers(1, 40),
    encoding=st.sampled_from(sorted(ENCODINGS)),
    page=st.sampled_from([256, 2**20]),
    version=st.sampled_from(["1.0", "2.0"]),
    compression=st.sampled_from(["NONE", "gzip", "snappy", "zstd"]),
    checksums=st.booleans(),
)
def test_texts_are_those_that_pyarrow_reads(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[str | None],
    in_lists: bool,
    group: int,
    encoding: str,
    page: int,
    version: str,
    compression: str,
    checksums: bool,
) -> None:
    path = tmp_path_factory.mktemp("texts") / "x.parquet"
    kind = pa.list_(pa.string()) if in_lists else pa.string()
    column = [None if one is None else [one, one] for one in values] if in_lists else values
    storage = {**ENCODINGS[encoding], "data_page_size": page, "write_batch_size": 3}
    storage |= {"data_page_version": version, "compression": compression, "write_page_checksum": checksums}
    texts = pa.array(column, kind)
    table = pa.table({"u": texts, "t": texts, "t.u": texts})
    pq.write_table(table, path, row_group_size=group, **storage)
    assert parquet.ParquetFile(path).values("t") == pq.read_table(path, columns=["u", "t"])["t"].to_pylist()
