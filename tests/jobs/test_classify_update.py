"""Classify with --update: rows that are kept, replaced, appended and dropped; runs that are killed."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.jobs import classify as job
from crnr_cli.results.record import State
from crnr_cli.system.csv_file import split_rows
from helpers.pausing import send, start_pausing
from helpers.runner import Outcome, Runner, ended
from helpers.samples import CLASSES, draw_image, make_features, make_images
from helpers.templates import Templates

UPDATE = ("classify", "inbox", "-o", "out.csv", "--update")
STATE = Path("out.csv.crnr-state")


def make_inbox(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "inbox", first=10, per_class=2)
    assert crnr("build", "gallery", "-q").exit == 0


@pytest.fixture
def inbox(crnr: Runner, templates: Templates) -> Runner:
    """inbox/ with two images of each class, and a gallery."""
    templates.copy(make_inbox, crnr.here)
    return crnr


def put(path: str, class_number: int, sample: int, mtime: int) -> None:
    """Write an image with this time, in seconds."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    draw_image(class_number, sample).save(place)
    os.utime(place, (mtime, mtime))


def lines_of(path: str = "out.csv") -> list[bytes]:
    return Path(path).read_bytes().splitlines(keepends=True)


def full_run(crnr: Runner, *sources: str, path: str = "full.csv") -> Counter[bytes]:
    crnr("classify", *(sources or ("inbox",)), "-o", path, "-q", "--batch-size", 1)
    return Counter(lines_of(path))


def test_update_keeps_replaces_and_appends_rows(inbox: Runner, decoded: list[str]) -> None:
    assert inbox(*UPDATE) == Outcome(0, "", "note: out.csv: 6 rows added\nlabelled 6 of 6 queries: out.csv\n")
    assert inbox("classify", "inbox", "-o", "full.csv").exit == 0
    assert lines_of() == lines_of("full.csv")
    before = lines_of()
    decoded.clear()
    put("inbox/bee/10.png", 0, 77, 1)
    put("inbox/ant/00.png", 1, 78, 1)
    assert inbox(*UPDATE, "--batch-size", 1) == Outcome(
        0,
        "",
        "note: out.csv: 1 row added, 1 row replaced, 5 rows unchanged\nlabelled 2 of 2 queries: out.csv\n",
    )
    assert decoded == ["inbox/ant/00.png", "inbox/bee/10.png"]
    after = lines_of()
    replaced = 1 + 2  # after the header and two ants
    assert [*after[:replaced], *after[replaced + 1 : -1]] == [*before[:replaced], *before[replaced + 1 :]]
    assert after[replaced].startswith(b"inbox/bee/10.png,bee,ant,")
    assert after[-1].startswith(b"inbox/ant/00.png,ant,bee,")


def test_update_of_a_quiet_night_writes_nothing(inbox: Runner, decoded: list[str]) -> None:
    Path("inbox/README.txt").write_text("no image")
    assert inbox(*UPDATE, "-q") == Outcome(0, "", "")
    decoded.clear()
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (Path("out.csv"), STATE)}
    assert inbox(*UPDATE) == Outcome(0, "", "note: out.csv: 7 rows unchanged\n")
    assert decoded == []
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in before} == before
    assert inbox.files() == {"gallery", "gallery.h5", "inbox", "out.csv", STATE.name}


def test_update_keeps_rows_of_files_that_are_gone_unless_they_are_pruned(inbox: Runner) -> None:
    inbox(*UPDATE)
    before = lines_of()
    Path("inbox/ant/10.png").unlink()
    Path("inbox/cow/11.png").unlink()
    kept = (
        "note: out.csv: 4 rows unchanged\nnote: files that are gone: 2 rows kept; --prune drops such rows\n"
    )
    assert inbox(*UPDATE) == Outcome(0, "", kept)
    assert lines_of() == before
    pruned = "note: out.csv: 4 rows unchanged\nnote: files that are gone: 2 rows dropped\n"
    assert inbox(*UPDATE, "--prune") == Outcome(0, "", pruned)
    assert lines_of() == [line for i, line in enumerate(before) if i not in (1, 6)]
    assert inbox(*UPDATE) == Outcome(0, "", "note: out.csv: 4 rows unchanged\n")


def test_update_tries_failed_files_again(inbox: Runner) -> None:
    healthy = Path("inbox/ant/10.png").read_bytes()
    Path("inbox/ant/10.png").write_bytes(healthy[:60])
    stamp = Path("inbox/ant/10.png").stat()
    first = inbox(*UPDATE)
    assert (first.exit, first.err.count("failed: inbox/ant/10.png: truncated")) == (3, 1)
    again = inbox(*UPDATE)
    assert again.exit == 3
    assert again.err.splitlines()[0] == "note: out.csv: 1 row replaced, 5 rows unchanged"
    # As after a copy that keeps size and time: a file system may reserve the space of a file first.
    Path("inbox/ant/10.png").write_bytes(healthy)
    state = STATE.read_text().replace(f"0, {stamp.st_size}, {stamp.st_mtime_ns}", "?")
    assert "?" in state
    assert inbox(*UPDATE, "--batch-size", 1).exit == 0
    assert Counter(lines_of())[lines_of()[1]] == 1
    assert b",ok," in lines_of()[1]


def test_update_finds_a_file_that_changes_while_it_is_classified(
    inbox: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crnr_cli.images.pool import DecoderPool

    decode = DecoderPool.decode

    def decode_and_change(self: DecoderPool, paths: list[str], request: object) -> Iterator[object]:
        found = list(decode(self, paths, request))  # type: ignore[arg-type]
        put("inbox/cow/10.png", 0, 99, 5)  # the rest of the copy arrives
        yield from found

    with monkeypatch.context() as patch:
        patch.setattr(DecoderPool, "decode", decode_and_change)
        inbox(*UPDATE)
    assert b"inbox/cow/10.png,cow,cow," in Path("out.csv").read_bytes()
    assert inbox(*UPDATE).err.startswith("note: out.csv: 1 row replaced, 5 rows unchanged\n")
    assert b"inbox/cow/10.png,cow,ant," in Path("out.csv").read_bytes()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda: STATE.unlink(), "its record out.csv.crnr-state is missing"),
        (lambda: STATE.write_bytes(STATE.read_bytes()[:-30]), "its record out.csv.crnr-state is damaged"),
        (
            lambda: STATE.write_bytes(STATE.read_bytes().replace(b"ant/10", b"ant/19")),
            "its record out.csv.crnr-state is damaged",
        ),
        (lambda: STATE.write_text("[" * 100_000), "its record out.csv.crnr-state is damaged"),
        (lambda: Path("out.csv").unlink(), "is missing"),
    ],
    ids=["missing", "cut", "changed", "nested", "no output"],
)
def test_update_without_a_usable_record_classifies_everything_again(
    inbox: Runner, damage: object, why: str
) -> None:
    inbox(*UPDATE)
    before = Path("out.csv").read_bytes()
    damage()  # type: ignore[operator]
    assert inbox(*UPDATE) == Outcome(
        0,
        "",
        f"note: out.csv: {why}; all queries are classified again\n"
        "note: out.csv: 6 rows added\nlabelled 6 of 6 queries: out.csv\n",
    )
    assert Path("out.csv").read_bytes() == before
    assert not list(Path().glob("*.old*"))  # the bytes are the same
    assert inbox(*UPDATE).err == "note: out.csv: 6 rows unchanged\n"


def test_update_never_loses_a_corrected_file(inbox: Runner) -> None:
    inbox(*UPDATE)
    written = Path("out.csv").read_bytes()
    for name in ("out.old.csv", "out.old-2.csv"):
        edited = written.replace(b",ant,", f",corrected for {name},".encode())
        Path("out.csv").write_bytes(edited)
        again = (
            "note: out.csv: is not the file that the last update wrote; all queries are classified again\n"
        )
        assert inbox(*UPDATE) == Outcome(
            0,
            "",
            f"{again}note: out.csv: 6 rows added\nnote: the earlier out.csv is kept as {name}\n"
            "labelled 6 of 6 queries: out.csv\n",
        )
        assert Path(name).read_bytes() == edited
        assert Path("out.csv").read_bytes() == written
    Path("out.csv").write_bytes(edited)  # the same once more, as after a kill right before the end
    assert "is kept as out.old-2.csv" in inbox(*UPDATE).err
    assert not Path("out.old-3.csv").exists()


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_corrected_file_is_kept_without_hard_links(
    inbox: Runner, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(error, os.strerror(error))

    inbox(*UPDATE)
    monkeypatch.setattr(os, "link", refuse)
    for name in ("out.old.csv", "out.old-2.csv"):
        Path("out.csv").write_text(f"corrected for {name}")
        assert f"note: the earlier out.csv is kept as {name}\n" in inbox(*UPDATE).err
        assert Path(name).read_text() == f"corrected for {name}"


def test_update_stops_if_the_output_is_edited_during_the_run(
    inbox: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox(*UPDATE)
    put("inbox/ant/99.png", 0, 99, 5)
    classify_to = job._classify_to

    def edit_then_classify(*arguments: object) -> object:
        Path("out.csv").write_text("edited")
        return classify_to(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(job, "_classify_to", edit_then_classify)
        stopped = inbox(*UPDATE)
    assert (stopped.exit, stopped.out) == (1, "")
    changed = "out.csv: was changed during the run; finished batches are kept: run the command again\n"
    assert stopped.err.endswith(changed)
    assert Path("out.csv").read_text() == "edited"
    assert inbox(*UPDATE).exit == 0
    assert Path("out.old.csv").read_text() == "edited"


def test_update_with_another_gallery_or_settings_classifies_everything_again(inbox: Runner) -> None:
    inbox(*UPDATE)
    other = inbox(*UPDATE, "--top", 1)
    assert other.err.startswith(
        "note: out.csv: was made by a different run: --top was None and is now 1; all queries are classified"
    )
    assert inbox("build", "gallery", "--lam", 0.5, "-q").exit == 0
    assert "gallery differs" in inbox(*UPDATE, "--top", 1).err
    assert inbox(*UPDATE, "--top", 1).err == "note: out.csv: 6 rows unchanged\n"
    assert not list(Path().glob("*.old*"))
    Path("inbox/ant/10.png").unlink()  # a row that cannot be made again
    assert "note: the earlier out.csv is kept as out.old.csv\n" in inbox(*UPDATE).err
    assert len(lines_of()) == 1 + 5
    assert len(lines_of("out.old.csv")) == 1 + 6


def test_update_notices_a_class_that_a_file_loses(inbox: Runner) -> None:
    """Images directly in a named class folder have that class, until there are folders next to them."""
    update = ("classify", "inbox/ant", "-o", "out.csv", "--update")
    inbox(*update)
    assert [line.split(b",")[1] for line in lines_of()[1:]] == [b"ant", b"ant"]
    put("inbox/ant/more/1.png", 1, 1, 5)
    inbox(*update, "--batch-size", 1)
    assert Counter(lines_of()) == full_run(inbox, "inbox/ant")
    assert [line.split(b",")[1] for line in lines_of()[1:]] == [b"", b"", b""]


def test_update_of_a_list_with_a_file_twice(inbox: Runner) -> None:
    update = ("classify", "-", "-o", "out.csv", "--update", "--batch-size", 1)
    names = ["inbox/ant/10.png", "inbox/bee/10.png", "inbox/ant/10.png"]
    assert inbox(*update, stdin="\n".join(names)).exit == 0
    assert inbox(*update, stdin="\n".join(names)).err == "note: out.csv: 3 rows unchanged\n"
    put("inbox/ant/10.png", 2, 50, 5)
    more = [*names, "inbox/ant/10.png"]
    assert "1 row added, 2 rows replaced, 1 row unchanged" in inbox(*update, stdin="\n".join(more)).err
    assert Counter(lines_of()) == full_run(inbox, *more)
    assert "2 rows kept" in inbox(*update, stdin="\n".join(names[:2])).err


def test_update_of_feature_files(crnr: Runner) -> None:
    for number, name in enumerate(("gallery", "a", "b")):
        make_features(crnr.here / f"{name}.npz", per_class=3, seed=number)
    crnr("build", "gallery.npz", "-q")
    update = ("classify", "a.npz", "b.npz", "-o", "out.csv", "--update", "--batch-size", 1)
    assert crnr(*update).err == "note: out.csv: 18 rows added\nlabelled 18 of 18 queries: out.csv\n"
    assert crnr(*update).err == "note: out.csv: 18 rows unchanged\n"
    make_features(crnr.here / "a.npz", per_class=4, seed=9)
    assert crnr(*update).err.startswith("note: out.csv: 3 rows added, 9 rows replaced, 9 rows unchanged\n")
    assert Counter(lines_of()) == full_run(crnr, "a.npz", "b.npz")


def test_update_of_extracted_features_and_through_a_cache(inbox: Runner) -> None:
    update = (*UPDATE, "--cache", "cache.h5", "--batch-size", 1)
    assert inbox(*update).exit == 0
    put("inbox/ant/99.png", 0, 99, 5)
    put("inbox/bee/10.png", 0, 77, 5)
    assert "1 row added, 1 row replaced, 5 rows unchanged" in inbox(*update).err
    assert Counter(lines_of()) == full_run(inbox)
    assert inbox("extract", "inbox", "-o", "inbox.h5", "-q").exit == 0
    features = ("classify", "inbox.h5", "-o", "other.csv", "--update", "--batch-size", 1)
    assert inbox(*features).exit == 0
    assert inbox(*features).err == "note: other.csv: 7 rows unchanged\n"
    assert Counter(lines_of("other.csv")) == full_run(inbox, "inbox.h5")


def test_update_of_json_lines(inbox: Runner) -> None:
    update = ("classify", "inbox", "-o", "out.jsonl", "--update", "--batch-size", 1)
    put('inbox/ant/"x\n".png', 0, 1, 5)
    inbox(*update)
    put('inbox/ant/"x\n".png', 1, 1, 6)
    put("inbox/ant/99.png", 0, 99, 5)
    assert "1 row added, 1 row replaced, 6 rows unchanged" in inbox(*update).err
    assert Counter(lines_of("out.jsonl")) == full_run(inbox, path="full.jsonl")
    assert all(json.loads(line)["status"] == "ok" for line in lines_of("out.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--update",), "--update needs an output file; name it with --output"),
        (("-o", "/dev/null", "--update"), "--update needs an output file; name it with --output"),
        (
            ("-o", "x.parquet", "--update"),
            "--update cannot replace rows of a Parquet file; choose --format csv or jsonl",
        ),
        (
            ("-o", "x.csv", "--update", "--resume"),
            "--update also continues a stopped run; leave out --resume",
        ),
        (("-o", "x.csv", "--prune"), "--prune only applies to --update; add --update, or leave out --prune"),
    ],
)
def test_update_refuses_what_it_cannot_do(inbox: Runner, arguments: tuple[str, ...], message: str) -> None:
    assert inbox("classify", "inbox", *arguments) == Outcome(2, "", f"error: {message}\n")


def test_update_refuses_a_folder_in_place_of_its_record(inbox: Runner) -> None:
    STATE.mkdir()
    refused = inbox(*UPDATE)
    assert (refused.exit, refused.out) == (1, "")
    assert f"crnr needs the name {STATE.name}, which is a link, a folder or the like" in refused.err


def test_update_of_an_empty_folder_or_list_is_no_error(inbox: Runner) -> None:
    Path("empty").mkdir()
    missing = inbox("classify", "empty", "-o", "none.csv")
    assert missing == Outcome(
        1,
        "",
        "error: empty: contains no images or feature files; name a folder that contains images, or a "
        "feature file\n",
    )
    empty = ("classify", "empty", "-o", "none.csv", "--update")
    found = "note: empty: no images or feature files found\n"
    assert inbox(*empty) == Outcome(0, "", f"{found}note: none.csv: there is nothing to classify\n")
    header = lines_of("none.csv")
    assert header[0].startswith(b"path,truth,label,")
    assert len(header) == 1
    inbox(*UPDATE)
    for arguments in (("empty",), ("-",)):
        outcome = inbox("classify", *arguments, "-o", "out.csv", "--update")
        assert (outcome.exit, outcome.out) == (0, "")
        assert outcome.err.endswith("note: files that are gone: 6 rows kept; --prune drops such rows\n")
        assert len(lines_of()) == 7


@pytest.mark.parametrize("gallery", ["images", "features"])
def test_an_empty_list_on_stdin_gives_the_header_alone(crnr: Runner, gallery: str) -> None:
    make_images(crnr.here / "images")
    make_features(crnr.here / "features.npz")
    crnr("build", gallery if gallery == "images" else "features.npz", "-q")
    note = "note: -: the list of files on stdin is empty\n"
    printed = crnr("classify", "-")
    assert (printed.exit, printed.err) == (0, note)
    assert next(csv.reader(printed.out.splitlines()))[-3:] == [f"residual:{name}" for name in CLASSES]
    assert crnr("classify", "-", "-o", "out.csv", "-j", 1) == Outcome(0, "", note)
    assert Path("out.csv").read_text() == printed.out
    assert crnr("classify", "-", "-o", "out.jsonl", "-q") == Outcome(0, "", "")
    assert Path("out.jsonl").read_bytes() == b""
    assert crnr("classify", "-", "-o", "out.csv", "--cache", "c.h5", "--resume").exit == 0
    assert crnr("build", "-").exit == 1


def test_resume_after_a_finished_run_does_nothing(inbox: Runner, decoded: list[str]) -> None:
    for made in ((), ("--update",)):
        inbox("classify", "inbox", "-o", "out.csv", *made)
        decoded.clear()
        before = Path("out.csv").stat()
        assert inbox("classify", "inbox", "-o", "out.csv", "--resume") == Outcome(
            0,
            "",
            "note: out.csv: is complete, with a row for each of 6 queries; "
            "to classify them again, leave out --resume\n",
        )
        after = Path("out.csv").stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert decoded == []


@pytest.mark.parametrize("made", [(), ("--update",)], ids=["plain", "update"])
def test_resume_over_another_finished_output_gives_the_reason_to_classify_again(
    inbox: Runner, made: tuple[str, ...]
) -> None:
    inbox("classify", "inbox", "-o", "out.csv", *made)
    resume = ("classify", "inbox", "-o", "out.csv", "--resume")
    again, done = "all queries are classified again", "labelled 7 of 7 queries: out.csv\n"
    put("inbox/ant/99.png", 0, 99, 5)
    assert inbox(*resume) == Outcome(
        0,
        "",
        f"note: out.csv: 1 of 7 queries has no row yet or changed; {again} "
        f"(--update classifies only those)\n{done}",
    )
    other = inbox(*resume, "--top", 1)
    assert other.err == f"note: out.csv: has other columns than this run writes; {again}\n{done}"
    Path("inbox/ant/99.png").unlink()
    inbox("classify", "inbox", "-o", "out.csv", *made, "-q")
    os.utime("out.csv", (5, 5))
    outcome = inbox(*resume)
    if made:
        assert "is complete" in outcome.err
    else:
        assert f"note: out.csv: is older than the gallery; {again}\n" in outcome.err
    few = inbox("classify", "inbox/ant/10.png", "-o", "out.csv", "--resume")
    assert few.exit == 0
    assert ("is complete" if made else f"has rows of other queries; {again}") in few.err


def test_split_rows_keeps_line_ends_within_quotes() -> None:
    rows = [b'"a\nb",1\n', b"c,2\n", b'"d ""\n"" e",3\n']
    assert list(split_rows(io.BytesIO(b"".join(rows)))) == rows


@pytest.mark.parametrize("year", [1601, 2400])
def test_commands_accept_files_with_dates_that_need_more_than_64_bits(inbox: Runner, year: int) -> None:
    moment = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    put("more/bee/00.png", 1, 79, 1)
    for path in ("inbox/bee/10.png", "gallery/ant/0.png", "more/bee/00.png"):
        try:
            os.utime(path, (moment, moment))
        except OSError:
            pytest.skip("this file system has no such dates")
    assert inbox("build", "gallery", "-q").exit == 0
    assert inbox("add", "gallery.h5", "more", "-q").exit == 0
    assert inbox("extract", "inbox", "-o", "f.h5", "-q").exit == 0
    assert inbox(*UPDATE).exit == 0
    assert inbox(*UPDATE).err.startswith("note: out.csv: 6 rows unchanged\n")
    put("inbox/bee/10.png", 0, 78, 1)
    assert inbox(*UPDATE).err.startswith("note: out.csv: 1 row replaced, 5 rows unchanged\n")


# Any sequence of nights against a plain model: a dictionary of the content of files.

NAMES = ("ant/a.png", "bee/b.png", "c.png", 'd, "e"\n.png', "ü.png")
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "touch", "break", "remove"]), st.sampled_from(NAMES), st.integers(0, 5)
    ),
    max_size=4,
)
NIGHTS = st.lists(st.tuples(CHANGES, st.booleans(), st.integers(0, 3)), min_size=1, max_size=5)


class Stop(Exception):  # noqa: N818, it is a wish and not an error
    pass


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nights=NIGHTS)
def test_updates_of_any_nights_have_the_rows_of_a_model(inbox: Runner, nights: list[object]) -> None:
    """The model: the row of a file is that of a run with this file alone; gone files keep their last row."""
    subprocess.run(["rm", "-rf", "inbox", "out.csv", STATE.name], check=True)
    Path("inbox").mkdir()
    clock = 0
    rows: dict[str, bytes] = {}
    for changes, prune, stopped in nights:  # type: ignore[attr-defined]
        for what, name, sample in changes:
            clock += 1
            path = f"inbox/{name}"
            if what == "put":
                put(path, sample % 3, sample, clock)
            elif what == "break":
                Path(path).parent.mkdir(exist_ok=True)
                Path(path).write_bytes(b"\x89PNG\r\n\x1a\n")
                os.utime(path, (clock, clock))
            elif Path(path).exists():
                os.utime(path, (clock, clock)) if what == "touch" else Path(path).unlink()
        present = [f"inbox/{name}" for name in NAMES if Path("inbox", name).exists()]
        for path in present:
            rows[path] = row_alone(path, Path(path).read_bytes())
        if prune:
            rows = {path: row for path, row in rows.items() if path in present}
        update(stop_at=stopped, prune=prune)
        update(stop_at=None, prune=prune)
        found = list(split_rows(io.BytesIO(Path("out.csv").read_bytes())))
        assert found[0].startswith(b"path,truth,")
        assert sorted(found[1:]) == sorted(rows.values())
        state = State.read(STATE)
        assert state is not None
        assert sorted(map(str, state.rows.keys)) == sorted(rows)
    assert not list(Path().glob("*.old*"))
    assert not list(Path().glob("out.csv.crnr-[jrpnl]*"))


@cache
def row_alone(path: str, content: bytes) -> bytes:
    options = QueryOptions(jobs=1, batch_size=1)
    job.classify([path], Path("gallery.h5"), Path("one.csv"), options)
    _, row = split_rows(io.BytesIO(Path("one.csv").read_bytes()))
    return row


def update(*, stop_at: int | None, prune: bool) -> None:
    def progress(step: str, done: int, total: int) -> None:
        if done and done == stop_at:
            raise Stop

    options = QueryOptions(jobs=1, batch_size=1)
    fate: job.Gone = "prune" if prune else "keep"
    try:
        job.classify(["inbox"], Path("gallery.h5"), Path("out.csv"), options, progress, update=fate)
    except Stop:
        assert stop_at


# Runs that are killed.


def test_update_after_a_kill_continues_although_other_files_are_there(
    inbox: Runner, decoded: list[str]
) -> None:
    command = "classify inbox -o out.csv --update --batch-size 1"
    process = start_pausing(inbox, command)
    process.kill()
    assert ended(process).exit == -signal.SIGKILL
    assert not Path("out.csv").exists()
    put("inbox/ant/00.png", 0, 99, 5)
    assert inbox(*command.split()) == Outcome(
        0,
        "",
        "note: 2 rows of the earlier run, which was stopped, are used\n"
        "note: out.csv: 5 rows added, 2 rows unchanged\nlabelled 5 of 5 queries: out.csv\n",
    )
    assert len(decoded) == 5
    assert Counter(lines_of()) == full_run(inbox)
    assert inbox.files() == {"gallery", "gallery.h5", "inbox", "out.csv", STATE.name, "full.csv"}


def test_update_after_a_kill_right_before_the_record_is_in_place(inbox: Runner) -> None:
    """The predictions are there, and their record has its first name."""
    inbox(*UPDATE)
    before = lines_of(), STATE.read_bytes()
    STATE.rename("out.csv.crnr-next")
    Path("out.csv.crnr-journal").write_text("left")
    assert inbox(*UPDATE) == Outcome(0, "", "note: out.csv: 6 rows unchanged\n")
    assert (lines_of(), STATE.read_bytes()) == before
    assert inbox.files() == {"gallery", "gallery.h5", "inbox", "out.csv", STATE.name}
    Path("out.csv.crnr-next").write_bytes(STATE.read_bytes().replace(b"out.csv", b"out.cvs"))
    Path("out.csv").write_text("edited")
    assert "is not the file that the last update wrote" in inbox(*UPDATE).err


def test_rows_of_a_stopped_run_are_used_up_to_the_first_that_is_damaged(inbox: Runner) -> None:
    command = "classify inbox -o out.csv --update --batch-size 1"
    process = start_pausing(inbox, command)
    process.kill()
    ended(process)
    journal = Path("out.csv.crnr-journal")
    first, *batches = journal.read_bytes().splitlines(keepends=True)
    assert len(batches) == 2
    damaged = json.dumps(json.loads(batches[1]) | {"rows": 7}).encode() + b"\n"
    journal.write_bytes(first + batches[0] + damaged)
    assert inbox(*command.split()).err.splitlines()[:2] == [
        "note: 1 row of the earlier run, which was stopped, is used",
        "note: out.csv: 5 rows added, 1 row unchanged",
    ]
    assert Counter(lines_of()) == full_run(inbox)


def test_update_that_is_interrupted_names_the_same_command(inbox: Runner) -> None:
    process = start_pausing(inbox, "classify inbox -o out.csv --update --batch-size 1", "signal")
    send(process, signal.SIGTERM)
    assert ended(process) == Outcome(143, "", "terminated; the same command continues from there\n")
    assert "note: 3 rows of the earlier run" in inbox(*UPDATE).err


def test_update_at_the_same_time_as_another_is_refused(inbox: Runner) -> None:
    process = start_pausing(inbox, "classify inbox -o out.csv --update --batch-size 1")
    try:
        assert inbox(*UPDATE) == Outcome(
            1, "", "error: out.csv: another crnr is writing it; wait, or choose another file\n"
        )
    finally:
        process.kill()
        ended(process)


@pytest.mark.parametrize(
    ("option", "remedy", "note"),
    [
        ("--update", "run the command again,", "6 rows of the earlier run, which was stopped, are used"),
        ("--resume", "continue with --resume,", "6 of 6 queries were done by the earlier run"),
    ],
)
def test_update_and_resume_with_strict_keep_finished_batches(
    inbox: Runner, option: str, remedy: str, note: str
) -> None:
    Path("inbox/cow/11.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    classify = ("classify", "inbox", "-o", "out.csv", option)
    strict = inbox(*classify, "--strict", "--batch-size", 1)
    assert (strict.exit, strict.out) == (1, "")
    assert strict.err.rpartition("stopped: ")[2] == (
        "1 of 6 queries has no answer, and no failure is allowed (--strict); finished batches are kept: "
        f"{remedy} without --strict or with a higher --max-failure-rate\n"
    )
    assert f"note: {note}\n" in inbox(*classify, "--batch-size", 1).err


def test_update_after_a_kill_in_the_middle_of_a_feature_file_reads_the_rest(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz", "-q")
    command = "classify gallery.npz -o out.csv --update --batch-size 2"
    crnr(*command.replace("out", "clean").split())
    process = start_pausing(crnr, command)
    process.kill()
    ended(process)
    outcome = crnr(*command.split())
    assert outcome.err.splitlines()[1:] == [
        "note: out.csv: 11 rows added, 4 rows unchanged",
        "labelled 11 of 11 queries: out.csv",
    ]
    assert lines_of() == lines_of("clean.csv")
