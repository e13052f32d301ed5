"""Extract: raw values are stored once, and what is made of them is what would be made of the pictures."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from crnr_cli.gallery import extraction
from crnr_cli.gallery.samples import Reading
from crnr_cli.jobs.extract import ExtractOptions, extract
from crnr_cli.pictures.pool import DecoderPool
from helpers.onnx_models import projection_model
from helpers.runner import Outcome, Runner, ended, helper_command, read_rows
from helpers.samples import make_features, make_pictures, picture

EXTRACTORS = {
    "gradients": [],
    "gradients in colour": ["--color", "--cell", "3"],
    "pixels": ["--extractor", "pixels"],
    "pixels in colour": ["--extractor", "pixels", "--size", "6x5", "--color"],
    "network": ["--extractor", "model.onnx", "--extractor-preset", "imagenet"],
}
STEPS = {
    "": [],
    "power": ["--power", "0.5"],
    "pca": ["--pca", "5"],
    "both": ["--power", "0.5", "--pca", "4", "--dtype", "float64"],
    "parts": ["--parts", "2x2"],
}


@pytest.fixture
def here(crnr: Runner) -> Runner:
    """photos/ with all kinds of pictures, healthy queries/, and a network."""
    make_pictures(crnr.here / "photos", per_class=4)
    make_pictures(crnr.here / "queries", first=9, per_class=2)
    deep = np.asarray(picture(1, 7)).astype(np.uint16) * 200
    Image.fromarray(deep).save("photos/bee/deep.png")
    Image.new("L", (8, 8), 77).save("photos/bee/blank.png")
    Path("photos/cow/broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    Path("photos/README.txt").write_text("Photographs of animals.")
    picture(2, 8).save("photos/of no class.png")
    projection_model(Path("model.onnx"))
    return crnr


def same(one: str | Path, other: str | Path) -> bool:
    return Path(one).read_bytes() == Path(other).read_bytes()


def values(path: str) -> dict[str, list[float]]:
    with h5py.File(path) as file:
        names = [name.decode() for name in file["paths"][()].tolist()]
        return dict(zip(names, file["features"][()].tolist(), strict=True))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_a_gallery_of_extracted_values_is_that_of_the_pictures(
    here: Runner, extractor: str, steps: str
) -> None:
    """To the byte: the vectors, the recipe, the names, the hashes and the stamps."""
    if (extractor, steps) == ("network", "parts"):
        pytest.skip("a network has no parts")
    how = EXTRACTORS[extractor]
    assert here("extract", "photos", "-o", "f.h5", *how, "-q") == Outcome(3, "", "")
    built = here("build", "photos", "-o", "pictures.h5", *how, *STEPS[steps])
    assert built.exit == 3
    assert "left out: photos/of no class.png: not in a class folder\n" in built.err
    Path("model.onnx").unlink()  # not needed any more
    again = here("build", "f.h5", "-o", "features.h5", *STEPS[steps])
    assert (again.exit, again.out) == (3, "")
    assert "left out: photos/of no class.png: not in a class folder\n" in again.err
    assert again.err.count("left out: ") == 1
    assert same("features.h5", "pictures.h5")


@pytest.mark.parametrize("extractor", EXTRACTORS)
@pytest.mark.parametrize("how", ["a folder", "a list", "the folder of a class", "deeper folders"])
def test_the_answers_are_those_of_the_pictures(here: Runner, extractor: str, how: str) -> None:
    options = EXTRACTORS[extractor]
    assert here("build", "photos", *options, "--pca", "6", "-q").exit == 3
    source, stdin = "queries", ""
    if how == "a list":
        source, stdin = "-", "queries/bee/9.png\nqueries/ant/10.png\n"
    elif how == "the folder of a class":
        source = "queries/cow"
    elif how == "deeper folders":
        Path("deep/of").mkdir(parents=True)
        Path("queries").rename("deep/of/animals")
        source = "deep"
    assert here("classify", source, "-o", "pictures.csv", "-q", stdin=stdin) == Outcome(0, "", "")
    assert here("extract", source, "-o", "f.h5", *options, "-q", stdin=stdin) == Outcome(0, "", "")
    Path("model.onnx").unlink()
    outcome = here("classify", "f.h5", "-o", "features.csv")
    n = 2 if how in ("a list", "the folder of a class") else 6
    assert outcome == Outcome(0, "", f"{n} of {n} inputs labelled: features.csv\n")
    assert same("features.csv", "pictures.csv")
    assert "ant" in Path("pictures.csv").read_text().splitlines()[1] or how != "a folder"


def test_what_the_file_contains(here: Runner) -> None:
    outcome = here("extract", "photos", "-o", "f.h5", "--extractor", "pixels", "--json")
    assert outcome.exit == 3
    assert '"n_samples": 14' in outcome.out
    assert "left out: photos/bee/blank.png: nothing to compare: all of one colour\n" in outcome.err
    with h5py.File("f.h5") as file:
        assert file.attrs["format"] == b"crnr-features"
        assert file["recipe"].attrs["kind"] == b"pictures"
        names = [name.decode() for name in file["paths"][()].tolist()]
        assert names == sorted(names)
        labels = [label.decode() for label in file["labels"][()].tolist()]
        assert labels == ["ant"] * 4 + ["bee"] * 5 + ["cow"] * 4 + [""]
        for row, name in enumerate(names):
            assert file["sha256"][row].decode() == hashlib.sha256(Path(name).read_bytes()).hexdigest()
            status = os.stat(name)  # noqa: PTH116
            assert (file["size"][row], file["mtime_ns"][row]) == (status.st_size, status.st_mtime_ns)
            np.testing.assert_array_equal(
                file["features"][row], np.asarray(Image.open(name), np.float32).ravel()
            )


def test_the_same_source_gives_the_same_bytes(here: Runner) -> None:
    for name in ("one.h5", "other.h5"):
        assert here("extract", "photos", "-o", name, "-q").exit == 3
    assert same("one.h5", "other.h5")
    assert here("extract", "one.h5", "-o", "copy.h5", "-q") == Outcome(0, "", "")
    assert same("one.h5", "copy.h5")


def test_files_are_joined(here: Runner) -> None:
    """Parts of a list that several machines have extracted give what one would have."""
    names = sorted(map(str, Path("queries").rglob("*.png")))
    how = ("--extractor", "model.onnx", "--extractor-preset", "imagenet", "-q")
    for output, part in (("one.h5", names[:2]), ("other.h5", names[2:]), ("clean.h5", names)):
        assert here("extract", "-", "-o", output, *how, stdin="\n".join(part)) == Outcome(0, "", "")
    assert here("extract", "one.h5", "other.h5", "-o", "all.h5", "-q") == Outcome(0, "", "")
    with h5py.File("all.h5") as joined, h5py.File("clean.h5") as clean:
        assert joined.keys() == clean.keys()
        for name in clean.keys() - {"recipe", "features"}:
            assert joined[name][()].tolist() == clean[name][()].tolist()
        np.testing.assert_allclose(joined["features"][()], clean["features"][()], rtol=1e-6)


def test_a_feature_file_is_copied(crnr: Runner) -> None:
    """Its numbers keep their type, and a gallery of the copy is that of the original."""
    random = np.random.default_rng(0)
    labels = np.array(["ant", "bee", "cow"] * 4)
    np.savez("table.npz", features=random.random((12, 5)), labels=labels)
    assert crnr("extract", "table.npz", "-o", "f.h5").err.startswith(
        "f.h5: 12 samples, 3 classes, 5 features;"
    )
    with h5py.File("f.h5") as file:
        assert file["features"].dtype == np.float64
    assert crnr("build", "table.npz", "-o", "one.h5", "-q") == Outcome(0, "", "")
    assert crnr("build", "f.h5", "-o", "other.h5", "-q") == Outcome(0, "", "")
    assert same("one.h5", "other.h5")
    assert crnr("verify", "one.h5", "--against", "f.h5", "-q").exit == 0
    make_pictures(crnr.here / "photos")
    refused = crnr("classify", "photos", "-g", "other.h5")
    assert refused == Outcome(1, "", "error: the gallery was built from features, but these are pictures\n")


def test_numbers_that_are_not_finite_are_refused(crnr: Runner) -> None:
    np.savez("table.npz", features=np.array([[1.0, 2.0], [np.nan, 1.0]]), labels=np.array(["a", "b"]))
    assert crnr("extract", "table.npz", "-o", "f.h5") == Outcome(
        1, "", "error: NaN or infinity in 1 row, to be fixed or removed: table.npz#1\n"
    )
    assert crnr.files() == {"table.npz"}


def test_nothing_usable(crnr: Runner) -> None:
    Path("x.png").write_bytes(b"")
    outcome = crnr("extract", "x.png", "-o", "f.h5", "--size", "8", "--grey")
    assert outcome == Outcome(
        1, "", "error: nothing to do: no sample can be used; x.png: the file is empty\n"
    )
    assert crnr.files() == {"x.png"}


def test_strict(here: Runner) -> None:
    outcome = here("extract", "photos", "-o", "f.h5", "--strict", "-q")
    assert (outcome.exit, outcome.out) == (1, "")
    assert "; stopped: 2 of 17 samples have to be skipped, and at most 0.00% is allowed\n" in outcome.err
    # What was extracted is kept: without --strict, nothing is decoded again.
    done = here("extract", "photos", "-o", "f.h5")
    assert (done.exit, done.out) == (3, "")
    assert "note: f.h5: continuing after 17 of 17 inputs\n" in done.err
    assert here("extract", "photos", "-o", "clean.h5", "-q").exit == 3
    assert same("f.h5", "clean.h5")


# --- Stopped and continued ------------------------------------------------------------------------------


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


@pytest.mark.parametrize("update", [False, True])
def test_a_stopped_run_continues_by_itself(here: Runner, update: bool) -> None:
    """Wherever it was stopped; the bytes are those of a run that was not."""
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
        assert f"f.h5: continuing after {3 * batches} of {n} inputs" in notes
        assert same("f.h5", "clean.h5")
        assert not list(here.here.glob("*.crnr-*"))
        Path("f.h5").unlink()


@pytest.mark.slow
def test_killed_at_every_batch(here: Runner) -> None:
    """By the system, in the middle of storing a batch, again and again."""
    make_pictures(here.here / "photos", per_class=20, first=20)
    command = [
        "extract",
        "photos",
        "-o",
        "f.h5",
        "-q",
        "--extractor",
        "model.onnx",
        "--extractor-preset",
        "imagenet",
        "-j",
        1,
    ]
    assert here.process("extract", "photos", "-o", "clean.h5", *command[4:]).exit == 3
    for moment in ("before", "between", "after"):
        for attempt in range(3):  # each finishes one more batch of 32
            killed = here.process(moment, *command, program=helper_command("helpers.killed"))
            assert killed.exit == -signal.SIGKILL, (moment, attempt, killed)
            assert not Path("f.h5").exists()
        assert here.process(*command).exit == 3
        assert same("f.h5", "clean.h5")
        assert not list(here.here.glob("*.crnr-*"))
        Path("f.h5").unlink()


def test_killed_in_a_batch(here: Runner) -> None:
    command = [
        "extract",
        "photos",
        "-o",
        "f.h5",
        "--extractor",
        "model.onnx",
        "--extractor-preset",
        "imagenet",
        "-j",
        1,
    ]
    killed = ended(here.start("after", *command, program=helper_command("helpers.killed")))
    assert (killed.exit, killed.out) == (-signal.SIGKILL, "")
    assert {"f.h5.crnr-part", "f.h5.crnr-journal", "f.h5.crnr-rows"} <= here.files()
    with Path("f.h5.crnr-rows").open("ab") as file:
        file.write(b"half a batch")
    done = here(*command)
    assert done.exit == 3
    assert "note: f.h5: continuing after 17 of 17 inputs\n" in done.err
    assert (
        here(
            "extract",
            "photos",
            "-o",
            "clean.h5",
            "--extractor",
            "model.onnx",
            "--extractor-preset",
            "imagenet",
            "-q",
        ).exit
        == 3
    )
    assert same("f.h5", "clean.h5")


@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM"])
def test_a_signal(here: Runner, stop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current batch is finished, and the same command continues after it."""
    monkeypatch.setattr(extraction, "BATCH", 5)
    described = extraction._described
    calls = 0

    def interrupted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.Signals[stop])
        return described(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(extraction, "_described", interrupted)
    number = signal.Signals[stop].value
    words = {"SIGINT": "interrupted", "SIGTERM": "terminated"}[stop]
    stopped = here("extract", "photos", "-o", "f.h5", "-q")
    assert stopped == Outcome(128 + number, "", f"{words}; the same command continues from there\n")
    done = here("extract", "photos", "-o", "f.h5")
    assert "note: f.h5: continuing after 10 of 17 inputs\n" in done.err
    assert done.exit == 3


def test_another_run_starts_anew(here: Runner) -> None:
    options = ExtractOptions(Reading(jobs=1))
    with pytest.raises(Stop):
        extract(["photos"], Path("f.h5"), options, stopping_after(1))
    outcome = here("extract", "photos", "-o", "f.h5", "--extractor", "pixels", "--max-pixels", "1000")
    assert outcome.exit == 3
    assert (
        "note: f.h5: starting anew, as the unfinished run was a different one: extractor differs, "
        "--max-pixels was 89478485 and is now 1000\n"
    ) in outcome.err
    clean = ["--extractor", "pixels", "--max-pixels", "1000", "-q"]
    assert here("extract", "photos", "-o", "clean.h5", *clean).exit == 3
    assert same("f.h5", "clean.h5")


def test_a_picture_that_changed_meanwhile(here: Runner) -> None:
    with pytest.raises(Stop):
        extract(["photos"], Path("f.h5"), ExtractOptions(Reading(jobs=1)), stopping_after(1))
    picture(1, 99).save("photos/ant/0.png")
    outcome = here("extract", "photos", "-o", "f.h5")
    assert "different one: list of inputs differs\n" in outcome.err
    assert here("extract", "photos", "-o", "clean.h5", "-q").exit == 3
    assert same("f.h5", "clean.h5")


@pytest.mark.parametrize("change", ["values", "text", "types", "length"])
def test_damage_to_what_was_kept(here: Runner, change: str) -> None:
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


def test_two_at_once(here: Runner) -> None:
    running = here.start("waits", "extract", "photos", "-o", "f.h5", program=helper_command("helpers.killed"))
    assert running.stderr is not None
    assert running.stderr.readline() == b"begun\n"
    busy = Outcome(1, "", "error: f.h5: another crnr is writing it; wait, or choose another file\n")
    try:
        assert here("extract", "photos", "-o", "f.h5", "-q") == busy
        assert here("build", "photos", "-o", "g.h5", "--cache", "f.h5", "-q") == busy
    finally:
        running.kill()
        running.communicate()
    assert here("extract", "photos", "-o", "f.h5", "-q").exit == 3


def test_a_full_disk(here: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(extraction, "write_features", full)
        outcome = here("extract", "photos", "-o", "f.h5", "-q")
    assert outcome == Outcome(
        1,
        "",
        "error: f.h5: cannot write (No space left on device); finished batches are kept: "
        "the same command continues after them\n",
    )
    assert not Path("f.h5").exists()
    done = here("extract", "photos", "-o", "f.h5")
    assert "note: f.h5: continuing after 17 of 17 inputs\n" in done.err


# --- Brought up to date ---------------------------------------------------------------------------------


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pictures that are decoded, in order; headers do not count."""
    names: list[str] = []
    original = DecoderPool.decode

    def decode(self: DecoderPool, paths: list[str], request: object) -> object:
        names.extend(paths)
        return original(self, paths, request)  # type: ignore[arg-type]

    monkeypatch.setattr(DecoderPool, "decode", decode)
    return names


def test_update_reads_only_what_is_new(here: Runner, decoded: list[str]) -> None:
    network = ["--extractor", "model.onnx", "--extractor-preset", "imagenet"]
    assert here("extract", "queries", "-o", "f.h5", "--update", *network, "-q") == Outcome(0, "", "")
    before = values("f.h5")
    Path("queries/ant/9.png").unlink()
    picture(1, 50).save("queries/ant/10.png")
    picture(1, 51).save("queries/bee/new.png")
    decoded.clear()
    outcome = here("extract", "queries", "-o", "f.h5", "--update")
    assert (outcome.exit, outcome.out) == (0, "")
    note, counts, summary = outcome.err.splitlines()
    assert note == "note: 1 sample of f.h5 kept, though not in the source any more"
    assert counts == "1 added, 1 changed, 5 unchanged"
    assert summary.startswith("f.h5: 7 samples, 3 classes, 8 features of model.onnx, 8x8, rgb, ")
    assert decoded == ["queries/ant/10.png", "queries/bee/new.png"]
    after = values("f.h5")
    assert after.keys() == {*before, "queries/bee/new.png"}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"queries/ant/10.png"}
    decoded.clear()
    stamp = Path("f.h5").stat().st_mtime_ns
    assert here("extract", "queries", "-o", "f.h5", "--update", "-q") == Outcome(0, "", "")
    assert decoded == []
    assert Path("f.h5").stat().st_mtime_ns == stamp  # it was not written again
    assert here("extract", "queries", "-o", "clean.h5", *network, "-q") == Outcome(0, "", "")
    clean = values("clean.h5")
    for name in clean:
        np.testing.assert_allclose(after[name], clean[name], rtol=1e-6)


def test_update_follows_the_folders(here: Runner, decoded: list[str]) -> None:
    """A picture that was extracted without a class gets it without being decoded again."""
    assert here("extract", "queries/ant", "-o", "f.h5", "--grey", "--size", "8", "-q") == Outcome(0, "", "")
    decoded.clear()
    outcome = here("extract", "queries", "-o", "f.h5", "--update")
    assert outcome.err.startswith("4 added, 0 changed, 2 unchanged\nf.h5: 6 samples, 3 classes, ")
    assert not [name for name in decoded if name.startswith("queries/ant")]
    assert here("build", "f.h5", "-q") == Outcome(0, "", "")
    assert here("build", "queries", "-o", "clean.h5", "--grey", "--size", "8", "-q") == Outcome(0, "", "")
    assert same("gallery.h5", "clean.h5")


def test_update_of_the_folder_of_a_class(here: Runner) -> None:
    """What was read before is left out of the listing, which must not confuse the others."""
    how = ("--grey", "--size", "8", "-q")
    assert here("build", "photos", "--allow-skipped", *how) == Outcome(0, "", "")
    assert here("extract", "queries/cow", "-o", "f.h5", *how) == Outcome(0, "", "")
    picture(2, 70).save("queries/cow/11.png")
    assert here("extract", "queries/cow", "-o", "f.h5", "--update", "-q") == Outcome(0, "", "")
    assert here("extract", "queries/cow", "-o", "clean.h5", *how) == Outcome(0, "", "")
    assert here("classify", "clean.h5", "-o", "clean.csv", "-q") == Outcome(0, "", "")
    assert here("classify", "f.h5", "-o", "out.csv", "-q") == Outcome(0, "", "")
    assert [row["truth"] for row in read_rows(Path("clean.csv"))] == ["cow"] * 3
    assert sorted(map(str, read_rows(Path("out.csv")))) == sorted(map(str, read_rows(Path("clean.csv"))))


def test_names_that_are_not_utf_8(here: Runner) -> None:
    os.rename("queries/ant/9.png", b"queries/ant/\xff\xe9.png")  # noqa: PTH104
    stdin = b"queries/ant/\xff\xe9.png\0queries/bee/9.png\0queries/bee/9.png\0"  # one of them twice
    assert here("extract", "-", "-0", "-o", "f.h5", "-q", stdin=stdin) == Outcome(0, "", "")
    assert here("build", "f.h5", "-o", "one.h5", "-q") == Outcome(0, "", "")
    assert here("build", "-", "-0", "-o", "other.h5", "-q", stdin=stdin) == Outcome(0, "", "")
    assert same("one.h5", "other.h5")


def test_a_file_that_is_replaced_is_named(here: Runner) -> None:
    Path("f.h5").write_bytes(b"something else")
    outcome = here("extract", "queries", "-o", "f.h5")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.startswith("note: replacing f.h5 of ")


def test_features_without_labels(crnr: Runner) -> None:
    np.savez("table.npz", features=np.eye(3))
    assert crnr("extract", "table.npz", "-o", "f.h5", "-q") == Outcome(0, "", "")
    with h5py.File("f.h5") as file:
        assert "labels" not in file
    assert crnr("build", "f.h5") == Outcome(
        1, "", "error: f.h5: no labels; name their dataset with --labels-key\n"
    )


def test_a_page_of_an_explanation(here: Runner) -> None:
    """The picture that a row names is not shown, as a file may name any."""
    assert here("build", "queries", "--parts", "2x2", "-q") == Outcome(0, "", "")
    assert here("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    outcome = here("explain", "f.h5#0", "-o", "why.png")
    assert outcome.exit == 0
    assert Path("why.png").read_bytes().startswith(b"\x89PNG")


def test_update_keeps_what_cannot_be_read_now(here: Runner) -> None:
    assert here("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    before = values("f.h5")
    Path("queries/ant/9.png").write_bytes(b"")
    outcome = here("extract", "queries", "-o", "f.h5", "--update")
    assert outcome.exit == 3
    assert outcome.err.startswith(
        "left out: queries/ant/9.png: the file is empty\n0 added, 0 changed, 6 unch"
    )
    assert values("f.h5") == before


@pytest.mark.parametrize(
    ("arguments", "exit", "message"),
    [
        ("--size 5", 2, "--update keeps the file's settings; leave out --size or --update"),
        ("--extractor pixels", 2, "--update keeps the file's settings; leave out --extractor or --update"),
        ("--extractor model.onnx", 2, "--extractor: f.h5 was extracted without a network; leave it out"),
    ],
)
def test_update_keeps_the_settings(here: Runner, arguments: str, exit: int, message: str) -> None:
    assert here("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    before = Path("f.h5").read_bytes()
    outcome = here("extract", "queries", "-o", "f.h5", "--update", *arguments.split())
    assert outcome == Outcome(exit, "", f"error: {message}\n")
    assert Path("f.h5").read_bytes() == before
    assert not list(here.here.glob("*.crnr-*"))


def test_update_with_a_network_that_has_moved(here: Runner) -> None:
    assert here(
        "extract",
        "queries",
        "-o",
        "f.h5",
        "--extractor",
        "model.onnx",
        "--extractor-preset",
        "imagenet",
        "-q",
    ) == Outcome(0, "", "")
    picture(1, 51).save("queries/bee/new.png")
    Path("models").mkdir()
    Path("model.onnx").rename("models/m.onnx")
    missing = here("extract", "queries", "-o", "f.h5", "--update", "-q")
    assert (missing.exit, missing.out) == (1, "")
    assert missing.err.endswith("give its path with --extractor\n")
    moved = here("extract", "queries", "-o", "f.h5", "--update", "--extractor", "models/m.onnx", "-q")
    assert moved == Outcome(0, "", "")
    projection_model(Path("models/m.onnx"), seed=5)
    picture(1, 52).save("queries/bee/newer.png")
    other = here("extract", "queries", "-o", "f.h5", "--update", "-q")
    assert (other.exit, other.out) == (1, "")
    assert "not the network" in other.err


def test_update_of_another_file(here: Runner) -> None:
    make_features(Path("table.npz"))
    with h5py.File("mine.h5", "w") as file:
        file["features"] = np.eye(3)
    assert here("extract", "queries", "-o", "mine.h5", "--update") == Outcome(
        1, "", "error: mine.h5: was not written by `crnr extract`; name another file\n"
    )
    assert here("extract", "queries", "-o", "f.h5", "-q").exit == 0
    assert here("extract", "table.npz", "-o", "f.h5", "--update") == Outcome(
        1, "", "error: f.h5: was extracted from pictures, but these are features\n"
    )
    assert here("extract", "queries", "-o", "p.h5", "--extractor", "pixels", "-q").exit == 0
    refused = here("extract", "p.h5", "-o", "f.h5", "--update")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err == (
        "error: f.h5: was extracted in another way than these: gradients, 8x8, cells of 3, 8 directions "
        "instead of pixels, 8x8, grey; write to another file\n"
    )


def test_the_name_has_to_say_what_it_is(here: Runner) -> None:
    for command in (["extract", "queries", "-o", "f.csv"], ["build", "queries", "--cache", "f.csv"]):
        outcome = here(*command)
        assert outcome == Outcome(
            2, "", "error: f.csv: the name of a file of features has to end in .h5 or .hdf5\n"
        )
    assert not list(here.here.glob("*.crnr-*"))


# --- What other commands do with it ---------------------------------------------------------------------


def test_another_extractor_is_refused(here: Runner) -> None:
    assert here("build", "queries", "-q") == Outcome(0, "", "")
    assert here("extract", "queries", "-o", "f.h5", "--extractor", "pixels", "-q") == Outcome(0, "", "")
    message = (
        "error: f.h5: extracted in another way than the gallery's samples: pixels, 8x8, grey instead of "
        "gradients, 8x8, cells of 3, 8 directions; extract it again, as the gallery's samples were\n"
    )
    for command in (
        ["classify", "f.h5"],
        ["add", "gallery.h5", "f.h5"],
        ["verify", "gallery.h5", "--against", "f.h5"],
        ["explain", "f.h5#0"],
        ["build", "f.h5", "--update"],
    ):
        assert here(*command) == Outcome(1, "", message)


def test_another_network_of_the_same_name_is_refused(here: Runner) -> None:
    network = ["--extractor", "model.onnx", "--extractor-preset", "imagenet", "-q"]
    assert here("build", "queries", *network) == Outcome(0, "", "")
    Path("elsewhere").mkdir()
    shutil.copy("model.onnx", "elsewhere/model.onnx")
    assert (
        here(
            "extract",
            "queries",
            "-o",
            "f.h5",
            "--extractor",
            "elsewhere/model.onnx",
            "--extractor-preset",
            "imagenet",
            "-q",
        ).exit
        == 0
    )
    assert here("classify", "f.h5", "-q").exit == 0  # the same one, at another place
    projection_model(Path("model.onnx"), seed=5)
    assert here("extract", "queries", "-o", "f.h5", *network).exit == 0
    refused = here("classify", "f.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert ", but with another model or other settings; extract it again" in refused.err


def test_files_of_different_kinds(here: Runner) -> None:
    assert here("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    with h5py.File("f.h5") as file:
        np.savez("table.npz", features=file["features"][()], labels=file["labels"][()].astype(str))
    assert here("build", "f.h5", "table.npz", "-q") == Outcome(
        1, "", "error: f.h5: was extracted from pictures, but table.npz was not; give one kind of files\n"
    )
    for name, size in (("wide.h5", "8x9"), ("high.h5", "9x8")):
        how = ("--extractor", "pixels", "--size", size, "-q")
        assert here("extract", "queries", "-o", name, *how) == Outcome(0, "", "")
    assert here("build", "wide.h5", "high.h5", "-q") == Outcome(
        1,
        "",
        "error: wide.h5 and high.h5 were extracted in different ways: pixels, 8x9, grey and "
        "pixels, 9x8, grey; give files of one extractor\n",
    )
    refused = here("build", "f.h5", "--extractor", "pixels")
    assert refused == Outcome(
        2,
        "",
        "error: --extractor is for pictures, but these are features that were extracted from pictures "
        "before; leave it out\n",
    )
    assert here("build", "table.npz", "-o", "table.h5", "-q") == Outcome(0, "", "")
    assert here("classify", "f.h5", "-g", "table.h5") == Outcome(
        1, "", "error: the gallery was built from features, but these are pictures\n"
    )


def test_pictures_are_classified_by_a_gallery_of_extracted_values(here: Runner) -> None:
    network = ["--extractor", "model.onnx", "--extractor-preset", "imagenet", "-q"]
    assert here("extract", "queries", "-o", "f.h5", *network) == Outcome(0, "", "")
    assert here("build", "f.h5", "-q") == Outcome(0, "", "")
    outcome = here("evaluate", "queries", "--json")
    assert outcome.exit == 0
    assert '"accuracy": 1.0' in outcome.out


def test_add_update_verify_and_explain(here: Runner) -> None:
    """By the names, stamps and hashes of the pictures."""
    assert here("build", "queries", "-q") == Outcome(0, "", "")
    before = Path("gallery.h5").read_bytes()
    picture(0, 70).save("queries/ant/new.png")
    assert here("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    verified = here("verify", "gallery.h5", "--against", "f.h5")
    assert verified.exit == 0
    assert "queries/ant/new.png" in verified.err
    shown = here("build", "f.h5", "--update")
    assert "added: queries/ant/new.png\n1 added, 0 changed, 0 removed, 6 unchanged\n" in shown.err
    assert shown.exit == 0
    Path("gallery.h5").write_bytes(before)
    shown = here("add", "gallery.h5", "f.h5")
    assert "1 added, 0 changed, 0 removed, 6 unchanged\n" in shown.err
    assert here("verify", "gallery.h5", "--against", "queries").exit == 0
    explained = here("explain", "f.h5#0")
    of_picture = here("explain", "queries/ant/10.png")
    assert explained.exit == 0
    assert explained.out.splitlines()[1:] == of_picture.out.splitlines()[1:]
    refused = here("explain", "f.h5")
    assert refused == Outcome(2, "", "error: f.h5: has 7 queries, but explain takes one, such as f.h5#0\n")


def test_a_folder_of_one_class_can_be_added(here: Runner) -> None:
    assert here("build", "photos", "-q", "--allow-skipped", "--size", "8", "--grey") == Outcome(0, "", "")
    assert here("extract", "queries/cow", "-o", "f.h5", "--size", "8", "--grey", "-q") == Outcome(0, "", "")
    shown = here("add", "gallery.h5", "f.h5")
    assert shown.exit == 0
    assert "2 added, 0 changed, 0 removed, 13 unchanged\n" in shown.err
    Path("queries/cow").rename("queries/yak")
    assert here("extract", "queries/yak", "-o", "f.h5", "--size", "8", "--grey", "-q") == Outcome(0, "", "")
    refused = here("add", "gallery.h5", "f.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith("error: queries/yak: contains files but no class folders, and is not ")
    assert here("add", "gallery.h5", "f.h5", "--class", "yak", "-q") == Outcome(0, "", "")


def test_copies_are_found(here: Runner) -> None:
    assert here("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    assert here("build", "f.h5", "-q") == Outcome(0, "", "")
    for source in ("f.h5", "queries"):
        assert "6 of 6 test samples are in the gallery too, such as" in here("evaluate", source).err
    outcome = here("compare", "photos", "--test", "f.h5", "--methods", "nn", "--size", "8", "--grey", "-q")
    assert outcome.exit == 3


def test_compare_and_tune(here: Runner) -> None:
    assert here("extract", "photos", "-o", "f.h5", "--extractor", "pixels", "-q").exit == 3
    methods = ["--methods", "nn,crc", "--draws", "2", "--allow-skipped", "-q", "--json"]
    one, other = (
        json.loads(here("compare", source, *how, *methods).out)
        for source, how in (("f.h5", []), ("photos", ["--extractor", "pixels"]))
    )
    for found in (one, other):
        for result in found["methods"]:
            del result["build_seconds"], result["query_ms"]
    assert one["methods"] == other["methods"]
    tuned = here("tune", "f.h5", "--folds", "2", "--budget", "0", "--allow-skipped")
    assert tuned.exit == 0
    (line,) = [line for line in tuned.err.splitlines() if line.startswith("to build a gallery")]
    command = line.partition("crnr ")[2].split()
    assert command[:2] == ["build", "f.h5"]
    assert here(*command, "-q", "--allow-skipped") == Outcome(0, "", "")


def test_info_says_what_it_is(here: Runner) -> None:
    assert here("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    assert here("info", "f.h5") == Outcome(
        1,
        "",
        "error: f.h5: contains features, written by `crnr extract`, and is not a gallery; make one of it "
        "with `crnr build f.h5`\n",
    )


def test_other_labels(here: Runner) -> None:
    """A dataset that somebody added to the file can be the labels; other features are not the pictures'."""
    assert here("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    with h5py.File("f.h5", "a") as file:
        file["mine"] = np.array([b"x", b"x", b"y", b"y", b"z", b"z"])
        file["numbers"] = np.eye(6)
    assert here("build", "f.h5", "--labels-key", "mine", "-q") == Outcome(0, "", "")
    assert here("info", "--json").out.count('"made_from": "pictures"') == 1
    assert '"x": 2' in here("info", "--json").out
    assert here("build", "f.h5", "--features-key", "numbers", "-q") == Outcome(0, "", "")
    assert here("info", "--json").out.count('"made_from": "features"') == 1


@pytest.mark.usefixtures("crnr")
def test_memory_is_that_of_some_batches() -> None:
    """The values of all samples are never in memory at once, neither the first time nor for an update."""
    n, d = 6000, 1280
    random = np.random.default_rng(0)
    with h5py.File("table.h5", "w") as file:
        file["features"] = random.random((n, d), np.float32)
        file["labels"] = np.arange(n) % 3
    with h5py.File("more.h5", "w") as file:
        file["features"] = random.random((10, d), np.float32)
        file["labels"] = np.arange(10) % 3
    everything = n * d * 4
    for names, update in ((["table.h5"], False), (["table.h5", "more.h5"], True)):
        tracemalloc.start()
        extract(names, Path("f.h5"), ExtractOptions(Reading(jobs=1), update))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < everything
    with h5py.File("f.h5") as file, h5py.File("table.h5") as table:
        assert file["features"].shape == (n + 10, d)
        assert np.array_equal(file["features"][:n], table["features"][()])
