"""A run of extract that was stopped, killed or failed is continued by the next one."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crnr_cli.gallery import extraction
from crnr_cli.gallery.samples import Reading
from crnr_cli.jobs.extract import ExtractOptions, extract
from helpers.extracting import NETWORK, same
from helpers.runner import Outcome, Runner, ended, helper_command
from helpers.samples import draw_image, make_images


class Stop(Exception):  # noqa: N818, it is a wish and not an error
    pass


def stopping_after(batches: int) -> Callable[[str, int, int], None]:
    calls = 0

    def progress(step: str, done: int, total: int) -> None:
        nonlocal calls
        calls += step == "extracting"
        if calls > batches:
            raise Stop

    return progress


@pytest.mark.slow
@pytest.mark.parametrize("update", [False, True])
def test_a_stopped_run_continues_by_itself(photos: Runner, update: bool) -> None:
    """Wherever it was stopped; the bytes are the same as without a stop."""
    notes: list[str] = []
    reading = Reading(jobs=1, batch_size=3, on_notes=lambda found: notes.extend(note.text for note in found))
    options = ExtractOptions(reading, update)
    extract(["photos/ant"] if update else ["photos"], Path("start.h5"), options)
    shutil.copy("start.h5", "clean.h5")
    extract(["photos"], Path("clean.h5"), options)
    n = 13 if update else 17
    for batches in range(1, -(-n // 3)):
        if update:
            shutil.copy2("start.h5", "f.h5")
        with pytest.raises(Stop):
            extract(["photos"], Path("f.h5"), options, stopping_after(batches))
        with pytest.raises(Stop):  # stopped once more, before the next batch
            extract(["photos"], Path("f.h5"), options, stopping_after(0))
        assert Path("f.h5").exists() == update
        notes.clear()
        extract(["photos"], Path("f.h5"), options)
        assert f"f.h5: continuing after {3 * batches} of {n} rows" in notes
        assert same("f.h5", "clean.h5")
        assert not list(photos.here.glob("*.crnr-*"))
        Path("f.h5").unlink()


@pytest.mark.slow
def test_killed_at_every_batch(photos: Runner) -> None:
    """By the system, in the middle of storing a batch, again and again."""
    make_images(photos.here / "photos", per_class=20, first=20)
    command = [
        "extract",
        "photos",
        "-o",
        "f.h5",
        "-q",
        *NETWORK,
        "-j",
        1,
    ]
    assert photos.process("extract", "photos", "-o", "clean.h5", *command[4:]).exit == 3
    for moment in ("before", "between", "after"):
        for attempt in range(3):  # each finishes one more batch of 32
            killed = photos.process(moment, *command, program=helper_command("helpers.killed"))
            assert killed.exit == -signal.SIGKILL, (moment, attempt, killed)
            assert not Path("f.h5").exists()
        assert photos.process(*command).exit == 3
        assert same("f.h5", "clean.h5")
        assert not list(photos.here.glob("*.crnr-*"))
        Path("f.h5").unlink()


def test_killed_in_a_batch(photos: Runner) -> None:
    command = [
        "extract",
        "photos",
        "-o",
        "f.h5",
        *NETWORK,
        "-j",
        1,
    ]
    killed = ended(photos.start("after", *command, program=helper_command("helpers.killed")))
    assert (killed.exit, killed.out) == (-signal.SIGKILL, "")
    assert {"f.h5.crnr-part", "f.h5.crnr-journal", "f.h5.crnr-rows"} <= photos.files()
    with Path("f.h5.crnr-rows").open("ab") as file:
        file.write(b"half a batch")
    done = photos(*command)
    assert done.exit == 3
    assert "note: f.h5: continuing after 17 of 17 rows\n" in done.err
    assert (
        photos(
            "extract",
            "photos",
            "-o",
            "clean.h5",
            *NETWORK,
            "-q",
        ).exit
        == 3
    )
    assert same("f.h5", "clean.h5")


@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM"])
def test_extract_finishes_its_batch_after_a_signal(
    photos: Runner, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current batch is finished, and the same command continues after it."""
    monkeypatch.setattr(extraction, "BATCH", 5)
    described = extraction._usable_rows
    calls = 0

    def interrupted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.Signals[stop])
        return described(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(extraction, "_usable_rows", interrupted)
    number = signal.Signals[stop].value
    words = {"SIGINT": "interrupted", "SIGTERM": "terminated"}[stop]
    stopped = photos("extract", "photos", "-o", "f.h5", "-q")
    assert stopped == Outcome(128 + number, "", f"{words}; the same command continues from there\n")
    done = photos("extract", "photos", "-o", "f.h5")
    assert "note: f.h5: continuing after 10 of 17 rows\n" in done.err
    assert done.exit == 3


def test_extract_with_other_settings_starts_again(photos: Runner) -> None:
    options = ExtractOptions(Reading(jobs=1))
    with pytest.raises(Stop):
        extract(["photos"], Path("f.h5"), options, stopping_after(1))
    outcome = photos("extract", "photos", "-o", "f.h5", "--extractor", "pixels", "--max-pixels", "1000")
    assert outcome.exit == 3
    assert (
        "note: f.h5: starting over, because the unfinished run was a different one: extractor differs, "
        "--max-pixels was 89478485 and is now 1000\n"
    ) in outcome.err
    clean = ["--extractor", "pixels", "--max-pixels", "1000", "-q"]
    assert photos("extract", "photos", "-o", "clean.h5", *clean).exit == 3
    assert same("f.h5", "clean.h5")


def test_an_image_that_changed_meanwhile(photos: Runner) -> None:
    with pytest.raises(Stop):
        extract(["photos"], Path("f.h5"), ExtractOptions(Reading(jobs=1)), stopping_after(1))
    draw_image(1, 99).save("photos/ant/0.png")
    outcome = photos("extract", "photos", "-o", "f.h5")
    assert "different one: list of inputs differs\n" in outcome.err
    assert photos("extract", "photos", "-o", "clean.h5", "-q").exit == 3
    assert same("f.h5", "clean.h5")


@pytest.mark.slow
@pytest.mark.parametrize("change", ["values", "text", "types", "length"])
def test_extract_repeats_damaged_batches(photos: Runner, change: str) -> None:
    """Batches from the first damaged one on are extracted again."""
    options = ExtractOptions(Reading(jobs=1, batch_size=4))
    with pytest.raises(Stop):
        extract(["photos"], Path("f.h5"), options, stopping_after(3))
    rows, journal = Path("f.h5.crnr-rows"), Path("f.h5.crnr-journal")
    data, lines = bytearray(rows.read_bytes()), journal.read_text().splitlines()
    first, second = json.loads(lines[1]), json.loads(lines[2])
    start, text = first["size"], first["size"] + second["values"]
    if change == "values":
        data[start] ^= 1
    elif change == "length":
        del data[-5:]
    else:  # with a hash that is right
        found = bytes(data[text : second["size"]])
        new = b"[" * len(found) if change == "text" else found.replace(b'"names": [', b'"names": 7 ["'[:10])
        data[text : second["size"]] = new
        second["sha256"] = hashlib.sha256(data[start : second["size"]]).hexdigest()
        lines[2] = json.dumps(second)
        journal.write_text("\n".join(lines) + "\n")
    rows.write_bytes(data)
    extract(["photos"], Path("f.h5"), options)
    extract(["photos"], Path("clean.h5"), options)
    assert same("f.h5", "clean.h5")


def test_extract_refuses_a_second_run(photos: Runner) -> None:
    command = ("extract", "photos", "-o", "f.h5")
    running = photos.start("waits", *command, program=helper_command("helpers.killed"), stdin=subprocess.PIPE)
    assert running.stderr is not None
    assert running.stderr.readline() == b"begun\n"
    busy = Outcome(1, "", "error: f.h5: another crnr is writing it; wait, or choose another file\n")
    try:
        assert photos("extract", "photos", "-o", "f.h5", "-q") == busy
        assert photos("build", "photos", "-o", "g.h5", "--cache", "f.h5", "-q") == busy
    finally:
        running.kill()
        running.communicate()
    assert photos("extract", "photos", "-o", "f.h5", "-q").exit == 3


def test_extract_on_a_full_disk_keeps_finished_batches(
    photos: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(extraction, "write_features", full)
        outcome = photos("extract", "photos", "-o", "f.h5", "-q")
    assert outcome == Outcome(
        1,
        "",
        "error: f.h5: cannot write (No space left on device); finished batches are kept: "
        "the same command continues after them\n",
    )
    assert not Path("f.h5").exists()
    done = photos("extract", "photos", "-o", "f.h5")
    assert "note: f.h5: continuing after 17 of 17 rows\n" in done.err
