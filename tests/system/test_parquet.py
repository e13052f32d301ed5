"""The process that reads Parquet files: what it sends is what pyarrow reads, and it may crash."""

from __future__ import annotations

import datetime
import decimal
import errno
import gc
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crnr_cli.errors import DataError
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.results.formats import read_answers, read_columns
from crnr_cli.system import child, parquet, parquet_process, spares
from crnr_cli.system.parquet import ParquetFile, ParquetNumbers
from helpers.patches import use_parquet_reader, watch_decoders
from helpers.runner import Outcome, Runner
from helpers.samples import draw_image

PYARROW = int(pa.__version__.partition(".")[0])
ENDINGS = {
    "abort": ("import os; os.abort()", "crashed with signal 6"),
    "access violation": ("import os; os.kill(os.getpid(), 11)", "crashed with signal 11"),
    "exit": ("import sys; sys.exit(3)", "ended with exit code 3"),
    "half a line": ("import sys; sys.stdin.readline(); print('{', end='')", "ended with exit code 0"),
    "half a buffer": (
        "import sys; sys.stdin.readline(); print('{\"sizes\": [9]}')",
        "ended with exit code 0",
    ),
    "a long time": ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "took too long"),
}


def write_predictions(path: Path) -> None:
    labels = {"path": ["a", "b"], "truth": ["x", "y"], "label": ["x", None]}
    pq.write_table(pa.table({**labels, "margin": [0.5, None]}), path)


def write_aborting(path: Path, *, features: bool = False) -> None:
    """Write a file in whose schema a column is neither required, optional nor repeated.

    From version 20 on, pyarrow notices by the level histogram that the column then lacks, and calls abort().
    Before, it fails when it reads the column.
    """
    write_predictions(path)
    if features:
        pq.write_table(pa.table({"margin": [0.5, 1.5, 2.5], "label": ["a", "b", "a"]}), path)
    data = path.read_bytes()
    optional, unknown = b"\x25\x02\x18\x06margin", b"\x25\x12\x18\x06margin"
    assert data.count(optional) == 1
    path.write_bytes(data.replace(optional, unknown))


# Where the numbers are not read, or only after the output was begun.
CRASHES = pytest.mark.skipif(PYARROW < 20, reason="pyarrow before 20 does not crash on the file")


@pytest.mark.parametrize(
    "command",
    [
        "evaluate predictions.parquet",
        "sort predictions.parquet sorted",
        "export predictions.parquet -o out.json --to megadetector",
        "tag predictions.parquet",
        "build features.parquet",
        "extract features.parquet -o features.h5",
        pytest.param("split features.parquet --train a --test b", marks=CRASHES),
        pytest.param("classify features.parquet -o out.csv", marks=CRASHES),
        "evaluate features.parquet",
    ],
)
def test_a_file_that_crashes_pyarrow_is_an_error(crnr: Runner, command: str) -> None:
    np.savez("sound.npz", features=np.arange(1.0, 5)[:, None], labels=["a", "b", "a", "b"])
    assert crnr("build", "sound.npz", "-q").exit == 0
    name = command.split()[1]
    write_aborting(Path(name), features=name.startswith("features"))
    before = crnr.files()
    refused = crnr(*command.split())
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith(f"error: {name}: not a readable Parquet file (")
    assert refused.err.endswith("); write it again\n")
    assert refused.err.count("\n") == 1
    assert crnr.files() == before


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_process_that_reads_a_crashing_file_ends_with_an_error(crnr: Runner, unbuffered: str) -> None:
    write_aborting(Path("x.parquet"))
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    refused = crnr.process("evaluate", "x.parquet", env=environment)
    assert (refused.exit, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert refused.err.startswith("error: x.parquet: not a readable Parquet file (")
    write_predictions(Path("x.parquet"))
    done = crnr.process("evaluate", "x.parquet", "--json", env=environment)
    assert (done.exit, '"accuracy": 1.0' in done.out) == (0, True)


@pytest.mark.parametrize(("code", "words"), ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("command", ["evaluate x.parquet", "build x.parquet"])
def test_a_parser_that_ends_early_is_an_error(
    crnr: Runner, command: str, code: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_predictions(Path("x.parquet"))
    started = use_parquet_reader(code, monkeypatch.setattr)
    assert crnr(*command.split()) == Outcome(
        1, "", f"error: x.parquet: not a readable Parquet file (the parser {words}); write it again\n"
    )
    assert [process.returncode is not None for process in started] == [True]


def test_a_parser_without_memory_is_an_error(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    write_predictions(Path("x.parquet"))
    code = 'import sys; sys.stdin.readline(); print(\'{"sizes": [], "end": "too large"}\')'
    use_parquet_reader(code, monkeypatch.setattr)
    message = "error: x.parquet: needs more memory than there is; save fewer rows per file\n"
    assert crnr("evaluate", "x.parquet") == Outcome(1, "", message)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_the_process_that_reads_has_a_limit_of_memory() -> None:
    command = child.python_command("crnr_cli.system.parquet_process", str(2**26))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # if not even Python has enough
            process.stdin.write(b'{"what": "facts", "path": "x.parquet"}\n')
            process.stdin.flush()
        reply = process.stdout.readline()
        with suppress(BrokenPipeError):
            process.stdin.close()
    assert not reply or json.loads(reply)["end"] == "not loaded"  # with less than pyarrow takes


def test_a_process_is_kept_for_the_next_request_until_the_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"t": [name]}), tmp_path / name / "x.parquet")
    started = use_parquet_reader("", monkeypatch.setattr)
    monkeypatch.setattr(spares, "_blocks", 0)
    with spares.kept():
        monkeypatch.chdir(tmp_path / "a")
        assert [ParquetFile(Path("x.parquet")).values("t") for _ in range(3)] == [["a"]] * 3
        assert len(started) == 1
        started[-1].kill()
        started[-1].wait()
        assert ParquetFile(Path("x.parquet")).values("t") == ["a"]
        assert len(started) == 2
        monkeypatch.chdir(tmp_path / "b")
        assert ParquetFile(Path("x.parquet")).values("t") == ["b"]
        assert len(started) == 3
    assert [process.returncode is not None for process in started] == [True] * 3
    assert ParquetFile(Path("x.parquet")).values("t") == ["b"]
    assert [process.returncode is not None for process in started[3:]] == [True] * (len(started) - 3)


def test_a_process_that_ends_before_its_first_reply_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it was killed at the moment in which it is taken."""
    pq.write_table(pa.table({"t": ["a"]}), tmp_path / "x.parquet")
    started = use_parquet_reader("", monkeypatch.setattr)
    with spares.kept():
        file = ParquetFile(tmp_path / "x.parquet")
        started[0].kill()
        monkeypatch.setattr(parquet._Reader, "is_alive", True)
        assert file.values("t") == ["a"]
    assert len(started) == 2


def test_few_processes_read_many_files_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = use_parquet_reader("", monkeypatch.setattr)
    monkeypatch.setattr(parquet, "_ROWS_PER_BATCH", 2)
    monkeypatch.setattr(parquet, "_OPEN_TABLES", 2)
    monkeypatch.setattr(parquet, "_opened", deque())  # without tables of other tests
    values = np.random.default_rng(0).random((4, 20))
    tables = []
    for i, column in enumerate(values):
        pq.write_table(pa.table({"u": column}), tmp_path / f"{i}.parquet", row_group_size=5)
        file = ParquetFile(tmp_path / f"{i}.parquet")
        tables.append(ParquetNumbers(file, file.columns))
    for start in (0, 3, 11):
        for column, table in zip(values, tables, strict=True):
            assert table[start : start + 3].ravel().tolist() == column[start : start + 3].tolist()
        assert sum(process.poll() is None for process in started) <= 2 + 1
    for column, table in zip(values, tables, strict=True):
        assert table[:].ravel().tolist() == column.tolist()
    del table
    tables.clear()
    assert sum(process.poll() is None for process in started) <= 1


def test_a_table_that_is_left_alone_in_a_cycle_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the one of an error with its traceback. The process is older than the reading.

    Python finalizes the oldest object of a cycle first: a process that still runs, or its pipes.
    """

    @contextmanager
    def noting(*arguments: str, **options: Any) -> Iterator[child.Guard]:
        with child.start_guarded(*arguments, **options) as guard:
            pids.append(guard.process.pid)
            yield guard

    pids: list[int] = []
    monkeypatch.setattr(parquet, "start_guarded", noting)
    monkeypatch.setattr(parquet, "_ROWS_PER_BATCH", 2)
    pq.write_table(pa.table({"u": np.arange(20.0)}), tmp_path / "x.parquet")
    with spares.kept(), pytest.MonkeyPatch.context() as patch:
        file = ParquetFile(tmp_path / "x.parquet")
        gc.collect()
        table: Any = ParquetNumbers(file, file.columns)
        assert table[:3].ravel().tolist() == [0, 1, 2]
        table.itself = table
        lost: list[Any] = []
        patch.setattr(sys, "unraisablehook", lost.append)
        del table
        gc.collect()
        assert [str(one.exc_value) for one in lost] == []
        assert len(pids) == 1
        with pytest.raises(ProcessLookupError):
            os.kill(pids[0], 0)


MOMENT = datetime.datetime(2026, 1, 31, 12, 30)
COLUMNS: dict[str, pa.Array] = {
    "int": pa.array([1, None, -(2**63), 2**63 - 1]),
    "uint": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "float": pa.array([0.1, None, float("inf")]),
    "half": pa.array(np.array([0.5, 2], np.float16)),
    "bool": pa.array([True, None, False]),
    "all missing": pa.array([None, None], pa.int16()),
    "null": pa.nulls(3),
    "text": pa.array(["a", None, "", "é\U0001f98a", "a"]),
    "large text": pa.array(["a", None, ""], pa.large_string()),
    "dictionary": pa.array(["b", None, "a", "b"]).dictionary_encode(),
    "dictionary of unsigned places": pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0, 1], pa.uint32()), pa.array(["a", "b"])
    ),
    "numbers in a dictionary": pa.array([7, None, 8, 7]).dictionary_encode(),
    "texts": pa.array([["a", "b"], None, [], [None, "a"]]),
    "large lists": pa.array([["a", "b"], None, []], pa.large_list(pa.string())),
    "pairs": pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2)),
    "nothing": pa.array([], pa.string()),
}
if PYARROW >= 26:  # before, it cannot read a missing list of a fixed length
    COLUMNS["pairs, one missing"] = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2))


@pytest.mark.parametrize("group", [1, 2, 9])
@pytest.mark.parametrize("name", COLUMNS)
def test_values_are_those_that_pyarrow_reads(tmp_path: Path, name: str, group: int) -> None:
    pq.write_table(pa.table({"c": COLUMNS[name]}), tmp_path / "x.parquet", row_group_size=group)
    found = ParquetFile(tmp_path / "x.parquet").values("c")
    assert found == pq.read_table(tmp_path / "x.parquet")["c"].to_pylist()
    assert list(map(type, found)) == [float if isinstance(one, np.float16) else type(one) for one in found]


@pytest.mark.parametrize("name", ["run:1.parquet", "file:/x.parquet"])
def test_a_name_like_an_address_is_a_file(crnr: Runner, name: str) -> None:
    """pyarrow would look for another file system, or open /x.parquet."""
    Path(name).parent.mkdir(exist_ok=True)
    write_predictions(Path("y.parquet"))
    Path("y.parquet").rename(name)
    assert '"accuracy": 1.0' in crnr("evaluate", name, "--json").out


def test_a_library_that_cannot_be_loaded_is_named(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow.parquet", None)
        request = {"what": "facts", "path": "x.parquet"}
        ((reply, buffers),) = parquet_process.answer(request)
    assert (reply["end"], "pyarrow.parquet" in reply["reason"], buffers) == ("not loaded", True, [])
    write_predictions(Path("x.parquet"))
    line = json.dumps({"sizes": [], "end": "not loaded", "reason": "libarrow.so: no such file"})
    use_parquet_reader(f"import sys; sys.stdin.readline(); print({line!r})", monkeypatch.setattr)
    message = "error: x.parquet: pyarrow cannot be loaded (libarrow.so: no such file); install it again\n"
    assert crnr("evaluate", "x.parquet") == Outcome(1, "", message)


# The header of a page in Thrift's compact protocol: nothing; no integer as its size; a number for its data.
HEADERS = {
    "no fields": b"\x00",
    "no number": b"\x27" + bytes(8) + b"\x15\x02\x00",
    "no data": b"\x25\x02\x15\x02\x25\x02\x00",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_damaged_header_of_a_page_is_an_error(header: bytes) -> None:
    chunk = SimpleNamespace(data_page_offset=3, dictionary_page_offset=None, num_values=1)
    with pytest.raises(ValueError, match=r"^the header of the page at byte 3 is damaged$"):
        parquet_process.Pages().add_chunk(io.BytesIO(b"abc" + header), chunk)


FORK = """
import os
from pathlib import Path
import numpy as np
from crnr_cli.system import parquet
parquet._ROWS_PER_BATCH = 100
file = parquet.ParquetFile(Path("x.parquet"))
numbers = parquet.ParquetNumbers(file, file.columns)
numbers[:10]
is_child = os.fork() == 0
if not is_child:
    assert os.wait()[1] == 0
assert np.array_equal(numbers[10:5000].ravel(), np.arange(10, 5000))
numbers.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no forks")
def test_a_fork_reads_by_a_process_of_its_own(tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": np.arange(5000.0)}), tmp_path / "x.parquet")
    done = subprocess.run([sys.executable, "-c", FORK], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr


def test_a_dictionary_that_is_longer_than_a_batch_is_sent_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {i % 700}" for i in range(1000)]
    table = pa.table({"c": pa.array([*texts, None]).dictionary_encode()})
    pq.write_table(table, tmp_path / "x.parquet")
    monkeypatch.setattr(parquet, "_ROWS_PER_BATCH", 10)
    request = {"what": "values", "path": str(tmp_path / "x.parquet"), "name": "c", "group": 0, "rows": 10}
    replies = list(parquet_process.answer(request))
    assert max(len(buffers[0]) for line, buffers in replies if "rows" in line) <= 12
    assert ParquetFile(tmp_path / "x.parquet").values("c") == [*texts, None]


def test_values_of_other_types_are_known_by_their_text(tmp_path: Path) -> None:
    table: dict[str, Any] = {"truth": ["a", "b"], "label": ["a", "a"], "timestamp": [MOMENT, None]}
    table |= {
        "margin": [decimal.Decimal("1.5"), None],
        "days": [[MOMENT.date()], []],
        "of": [{"a": "b"}, None],
    }
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    found = read_columns(tmp_path / "x.parquet", ["timestamp", "margin", "of", "days", "none"])
    assert found["timestamp"] == ["2026-01-31 12:30:00", ""]
    assert (found["margin"], found["of"]) == (["1.5", ""], ["{'a': 'b'}", ""])
    assert "none" not in found
    with pytest.raises(DataError, match=r"x.parquet, row 1: margin is not a number"):
        read_answers(tmp_path / "x.parquet")


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    damaged = pa.array([b"a\xff", b"b"]).view(pa.string())
    pq.write_table(pa.table({"truth": damaged, "label": ["a", "b"]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet: not a readable Parquet file \(.*UTF-?8.*\); write it"):
        read_answers(tmp_path / "x.parquet")


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="has no /dev/stdin")
def test_the_file_behind_stdin_is_read(tmp_path: Path) -> None:
    write_predictions(tmp_path / "x.parquet")
    code = (
        "from pathlib import Path; from crnr_cli.results.formats import read_answers; "
        "print(len(read_answers(Path('/dev/stdin'))))"
    )
    with (tmp_path / "x.parquet").open("rb") as stream:
        done = subprocess.run([sys.executable, "-c", code], stdin=stream, capture_output=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"2", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="opens files below /proc")
def test_files_are_read_by_their_descriptors(crnr: Runner) -> None:
    """Also a file that was deleted, and a file in an open folder."""
    Path("folder").mkdir()
    write_predictions(Path("folder/x.parquet"))
    folder = os.open("folder", os.O_RDONLY)
    file = os.open("folder/x.parquet", os.O_RDONLY)
    try:
        assert len(read_answers(Path(f"/dev/fd/{folder}/x.parquet"))) == 2
        Path("folder/x.parquet").unlink()
        for place in (f"/dev/fd/{file}", f"/proc/self/fd/{file}"):
            assert len(read_answers(Path(place))) == 2
        with pytest.raises(DataError, match=rf"^/dev/fd/{folder}/x.parquet: "):
            read_answers(Path(f"/dev/fd/{folder}/x.parquet"))
    finally:
        os.close(folder)
        os.close(file)


def test_a_file_is_read_from_a_folder_that_may_not_be_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_predictions(tmp_path / "x.parquet")
    entered = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path == Path():
            raise PermissionError(errno.EACCES, "Permission denied", ".")
        return entered(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    with spares.kept():
        for _ in range(2):
            assert len(read_answers(tmp_path / "x.parquet")) == 2


def test_rows_are_read_again_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0).random(1000)
    pq.write_table(pa.table({"u": numbers}), tmp_path / "x.parquet")
    monkeypatch.setattr(parquet, "_ROWS_PER_BATCH", 100)
    file = parquet.ParquetFile(tmp_path / "x.parquet")
    table = parquet.ParquetNumbers(file, file.columns)
    assert table[:10].ravel().tolist() == numbers[:10].tolist()
    with monkeypatch.context() as patch:
        patch.setattr(parquet._Reader, "read_line", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            table[10:500]
    assert table[10:500].ravel().tolist() == numbers[10:500].tolist()
    table.close()


LOADED_BEFORE = """
import sys, threading
from importlib.abc import MetaPathFinder

class Watch(MetaPathFinder):
    def find_spec(self, name, *_):
        if name in ("numpy", "pyarrow"):
            print(name, threading.active_count(), flush=True)

sys.meta_path.insert(0, Watch())
sys.argv[1:] = ["0"]
from crnr_cli.system import parquet_process
parquet_process.answer_requests()
"""


def test_libraries_are_loaded_before_a_thread_reads_stdin() -> None:
    """On Windows, libraries of NumPy would wait for the thread, and the thread for the next request."""
    command = [sys.executable, "-c", LOADED_BEFORE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout.split(b"\n"), done.stderr) == (
        0,
        [b"pyarrow 1", b"numpy 1", b""],
        b"",
    )


READ_AND_WAIT = """
import sys, time
from pathlib import Path
import numpy as np
from crnr_cli.system import parquet, spares
parquet._ROWS_PER_BATCH = 100
with spares.kept():
    file = parquet.ParquetFile(Path("x.parquet"))
    numbers = parquet.ParquetNumbers(file, file.columns)
    if sys.argv[1] == "reading":
        numbers[:10]
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("state", ["reading", "idle"])
def test_the_process_ends_with_its_parent(crnr: Runner, state: str) -> None:
    """Also if the parent is killed, and also with rows that the parent has not read."""
    pq.write_table(pa.table({"u": np.random.default_rng(0).random(200_000)}), "x.parquet")
    parent = subprocess.Popen([sys.executable, "-c", READ_AND_WAIT, state], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"begun\n"
    (number,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 60
    while is_running(int(number)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_without_a_reader_does_not_abort(tmp_path: Path) -> None:
    """Its thread still reads stdin, and the end of Python would wait for the lock of stdin."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"u": np.random.default_rng(0).random(200_000)}), path)
    command = child.python_command(parquet._COMMAND[0], "0")
    details = {"names": ["u"], "group": 0, "rows": 4096, "width": -1, "dtype": "<f8"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"what": "numbers", "path": str(path), **details}).encode() + b"\n")
        process.stdin.flush()
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) == 1


def is_running(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ctrl_c_is_left_to_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"t": ["a"]}), tmp_path / "x.parquet")
    started = use_parquet_reader("", monkeypatch.setattr)
    with spares.kept():
        file = ParquetFile(tmp_path / "x.parquet")
        started[0].send_signal(signal.SIGINT)
        assert file.values("t") == ["a"]
    assert len(started) == 1


def test_a_decoder_and_a_reader_of_parquet_wait_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"t": ["a"]}), tmp_path / "x.parquet")
    draw_image(0, 1, (4, 3)).save(tmp_path / "x.png")
    readers, decoders = use_parquet_reader("", monkeypatch.setattr), watch_decoders(monkeypatch.setattr)
    with spares.kept():
        for _ in range(2):
            assert ParquetFile(tmp_path / "x.parquet").values("t") == ["a"]
            assert len(list(DecoderPool(1).decode([str(tmp_path / "x.png")], PixelRequest(None)))) == 1
        assert (len(readers), len(decoders)) == (1, 1)


def test_the_time_of_a_process_begins_again_with_every_reply() -> None:
    """Where the parent looks at it."""
    seconds = iter([1.5, 3.0, 4.9, 5.1])

    class Usage:
        def measure(self) -> tuple[int, float]:
            return 0, next(seconds)

    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        guard = child.Guard(process, None, 2.0)
        guard._usage = Usage()  # type: ignore[assignment]
        guard.check()
        guard.renew()
        guard.check()
        guard.check()
        assert not guard.is_out_of_time
        guard.check()
        assert guard.is_out_of_time
