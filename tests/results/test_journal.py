"""The journal: a stopped run can be resumed after any damage."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crnr_cli.errors import OutputError
from crnr_cli.results.journal import describe_differences, resumable

BATCHES = [b"head\na\nb\n", b"c\n" * 10, b"d\xff\n", b"e\n"]
WHOLE = b"".join(BATCHES)
RUN = {"gallery": "0" * 64, "--max-pixels": 7}


class Stop(Exception):  # noqa: N818, it is a wish and not an error
    pass


def write(path: Path, *, resume: bool, stop_after: int = 99, identity: dict[str, str | int] = RUN) -> int:
    """Write BATCHES as a run would; returns how many were there before."""
    with resumable(path, identity, resume=resume) as partial:
        before = partial.done.batches
        assert partial.done.size == len(b"".join(BATCHES[:before]))
        for number, batch in enumerate(BATCHES[before:], start=before):
            if number == stop_after:
                raise Stop
            partial.write(batch)
            partial.end_batch(Counter(ok=2, truncated=1), 1)
            assert partial.done.batches == number + 1
            assert partial.done.size == len(b"".join(BATCHES[: number + 1]))
        assert partial.done.statuses == Counter(ok=2 * len(BATCHES), truncated=len(BATCHES))
        assert partial.done.skipped == len(BATCHES)
    return before


@pytest.mark.parametrize("stop_after", range(len(BATCHES)))
def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path, stop_after: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"the old file")
    with pytest.raises(Stop):
        write(path, resume=False, stop_after=stop_after)
    assert path.read_bytes() == b"the old file"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "out.crnr-journal", "out.crnr-part"]
    assert write(path, resume=True) == stop_after
    assert path.read_bytes() == WHOLE
    assert list(tmp_path.iterdir()) == [path]


def test_a_journal_that_outlived_its_run_is_no_obstacle(tmp_path: Path) -> None:
    """There is nothing to go on with, so it may have been any run."""
    (tmp_path / "out.crnr-journal").write_text('{"gallery": "another"}\n{"size": 9}\n')
    assert write(tmp_path / "out", resume=True) == 0
    assert (tmp_path / "out").read_bytes() == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_without_resume_a_run_starts_again(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        write(tmp_path / "out", resume=False, stop_after=2)
    assert write(tmp_path / "out", resume=False) == 0
    assert (tmp_path / "out").read_bytes() == WHOLE


@pytest.mark.parametrize("resume", [False, True])
def test_files_that_are_longer_than_the_output_are_cut_off(tmp_path: Path, resume: bool) -> None:
    """After a run with more queries or longer rows, which was stopped."""
    with pytest.raises(Stop):
        write(tmp_path / "out", resume=False, stop_after=2)
    for name in ("out.crnr-part", "out.crnr-journal"):
        with (tmp_path / name).open("ab") as file:
            file.write(b"longer\n" * 1000)
    with pytest.raises(Stop):
        write(tmp_path / "out", resume=resume, stop_after=3)
    assert (tmp_path / "out.crnr-part").read_bytes() == b"".join(BATCHES[:3])
    assert (tmp_path / "out.crnr-journal").read_bytes().count(b"\n") == 1 + 3
    assert write(tmp_path / "out", resume=True) == 3
    assert (tmp_path / "out").read_bytes() == WHOLE


def test_a_batch_without_bytes_is_resumed_like_any_other(tmp_path: Path) -> None:
    with suppress(Stop), resumable(tmp_path / "out", RUN, resume=False) as partial:
        for batch in (b"a\n", b"", b"b\n"):
            partial.write(batch)
            partial.end_batch(Counter(ok=1), 0)
        raise Stop
    with resumable(tmp_path / "out", RUN, resume=True) as partial:
        assert (partial.done.batches, partial.done.statuses) == (3, Counter(ok=3))
    assert (tmp_path / "out").read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("added", [b"", b"2 events\n"])
def test_an_output_made_from_all_batches_holds_nothing_of_a_stopped_run(tmp_path: Path, added: bytes) -> None:
    """The run was stopped while it made the output."""

    def finish(rows: BinaryIO, output: BinaryIO) -> None:
        rows.seek(0)
        assert rows.read() == b"a\n"
        output.write(added)

    (tmp_path / "out.crnr-part").write_bytes(b"events of the stopped run\n")
    with resumable(tmp_path / "out", RUN, resume=True, finish=finish) as partial:
        partial.write(b"a\n")
        partial.end_batch(Counter(ok=1), 0)
    assert (tmp_path / "out").read_bytes() == added
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_to_resume_is_a_start(tmp_path: Path) -> None:
    assert write(tmp_path / "out", resume=True) == 0
    assert (tmp_path / "out").read_bytes() == WHOLE


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_ends_of_both_files_are_cut_off(tmp_path: Path, data: st.DataObject) -> None:
    """After a power loss either file may be short, or hold anything in the place of its last bytes."""
    path = tmp_path / "out"
    with pytest.raises(Stop):
        write(path, resume=False, stop_after=data.draw(st.integers(1, len(BATCHES) - 1)))
    for name in ("out.crnr-part", "out.crnr-journal"):
        left = (tmp_path / name).read_bytes()
        keep = data.draw(st.integers(0, len(left)))
        tail = data.draw(st.one_of(st.just(b""), st.just(bytes(len(left) - keep)), st.binary(max_size=40)))
        (tmp_path / name).write_bytes(left[:keep] + tail)
    write(path, resume=True)
    assert path.read_bytes() == WHOLE
    assert list(tmp_path.iterdir()) == [path]
    path.unlink()


def test_another_run_is_refused_with_the_differences(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        write(tmp_path / "out", resume=False, stop_after=2)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(OutputError) as refused:
        write(tmp_path / "out", resume=True, identity={"gallery": "1" * 64, "--max-pixels": 8})
    assert str(refused.value) == (
        f"{tmp_path}/out: the unfinished run was a different one: gallery differs, "
        "--max-pixels was 7 and is now 8; "
        "use the same queries and options, or leave out --resume to start again"
    )
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_of_a_hash_only_that_it_differs_is_shown() -> None:
    """Also if the other run had none."""
    hashed = "5a" * 32
    assert describe_differences({"labels": hashed, "--top": 3}, {"labels": None, "--top": 3}) == [
        "labels differs"
    ]
    assert describe_differences({}, {"labels": hashed, "--top": 3}) == [
        "labels differs",
        "--top was None and is now 3",
    ]


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b'"\xff"', b"[1]"])
@pytest.mark.parametrize("at", [0, 2])
def test_an_invalid_line_ends_the_trusted_batches(tmp_path: Path, line: bytes, at: int) -> None:
    with pytest.raises(Stop):
        write(tmp_path / "out", resume=False, stop_after=3)
    journal = tmp_path / "out.crnr-journal"
    lines = journal.read_bytes().splitlines()
    lines[at] = line
    journal.write_bytes(b"\n".join(lines) + b"\n")
    assert write(tmp_path / "out", resume=True) == max(0, at - 1)
    assert (tmp_path / "out").read_bytes() == WHOLE


@pytest.mark.parametrize("size", [2**40, 2**62, 2**70, -1, 0])
def test_a_size_that_the_partial_file_does_not_have_is_not_read(tmp_path: Path, size: int) -> None:
    with pytest.raises(Stop):
        write(tmp_path / "out", resume=False, stop_after=3)
    journal = tmp_path / "out.crnr-journal"
    first, second, third, *rest = journal.read_bytes().splitlines()
    third = json.dumps(json.loads(third) | {"size": size}).encode()
    journal.write_bytes(b"\n".join([first, second, third, *rest]) + b"\n")
    assert write(tmp_path / "out", resume=True) == 1
    assert (tmp_path / "out").read_bytes() == WHOLE


@pytest.mark.parametrize(
    "changes",
    [
        {"statuses": 7},
        {"statuses": {"ok": "2"}},
        {"statuses": {"ok": 2, "truncated": None}},
        {"skipped": None},
    ],
)
def test_a_batch_without_its_counts_ends_the_trusted_batches(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(Stop):
        write(tmp_path / "out", resume=False, stop_after=3)
    journal = tmp_path / "out.crnr-journal"
    first, second, third, *rest = journal.read_bytes().splitlines()
    third = json.dumps(json.loads(third) | changes).encode()
    journal.write_bytes(b"\n".join([first, second, third, *rest]) + b"\n")
    assert write(tmp_path / "out", resume=True) == 1
    assert (tmp_path / "out").read_bytes() == WHOLE


def test_a_finished_batch_is_in_the_files_at_once(tmp_path: Path) -> None:
    """So that it survives if the process is killed."""
    with resumable(tmp_path / "out", RUN, resume=False) as partial:
        journal = tmp_path / "out.crnr-journal"
        assert journal.read_bytes().count(b"\n") == 1
        for number, batch in enumerate(BATCHES, start=1):
            partial.write(batch)
            partial.end_batch(Counter(ok=1), 0)
            assert (tmp_path / "out.crnr-part").read_bytes() == b"".join(BATCHES[:number])
            assert journal.read_bytes().count(b"\n") == 1 + number


def test_a_run_that_is_stopped_again_and_again_goes_on(tmp_path: Path) -> None:
    """Each time, the last line of the journal was cut off."""
    for number, batch in enumerate(BATCHES[:-1]):
        with suppress(Stop), resumable(tmp_path / "out", RUN, resume=True) as partial:
            assert partial.done.batches == number
            partial.write(batch)
            partial.end_batch(Counter(ok=2, truncated=1), 1)
            raise Stop
        with (tmp_path / "out.crnr-journal").open("ab") as journal:
            journal.write(b'{"size": 9')
    assert write(tmp_path / "out", resume=True) == len(BATCHES) - 1
    assert (tmp_path / "out").read_bytes() == WHOLE


def test_a_changed_byte_ends_the_trusted_batches(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        write(tmp_path / "out", resume=False, stop_after=2)
    content = bytearray((part := tmp_path / "out.crnr-part").read_bytes())
    content[len(BATCHES[0])] ^= 1
    part.write_bytes(content)
    assert write(tmp_path / "out", resume=True) == 1
    assert (tmp_path / "out").read_bytes() == WHOLE
