"""crnr correct applies the decisions in an audit CSV to the gallery, and to its files."""

from __future__ import annotations

import contextlib
import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.errors import DataError, OutputError
from crnr_cli.gallery.cleaning import Cleaning
from crnr_cli.gallery.file import load_gallery
from crnr_cli.jobs.correct import correct
from crnr_cli.results.edited import read_marks
from helpers.failing import Killed, fail_at
from helpers.runner import Outcome, Runner, rows
from helpers.samples import draw_image, make_features, make_images
from helpers.templates import Templates

CLASSES = ("ant", "bee", "cow")
# What a plain reader would do with the three marks: two other classes, and one removal.
MARKS = (("ant/bee1.png", "bee"), ("bee/ant1.png", "ant"), ("cow/odd.png", ""))


def build_dirty(crnr: Runner) -> None:
    """Three classes of three images, with three more in wrong folders, and a gallery of them."""
    make_images(crnr.here / "dirty", per_class=3)
    draw_image(1, 20).save("dirty/ant/bee1.png")
    draw_image(0, 21).save("dirty/bee/ant1.png")
    draw_image(1, 22).save("dirty/cow/odd.png")
    assert crnr("build", "dirty", "--extractor", "pixels", "--method", "nn", "-q").exit == 0


@pytest.fixture
def dirty(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(build_dirty, crnr.here)
    return crnr


def mark(*decisions: tuple[str, str], file: str = "marked.csv") -> None:
    """Write a CSV in which an empty class means removal."""
    lines = [
        f"dirty/{name},{name[:3]},{corrected},{'' if corrected else 'x'}\n" for name, corrected in decisions
    ]
    Path(file).write_text("path,label,corrected,remove\n" + "".join(lines))


def labels() -> dict[str, str]:
    gallery = load_gallery(Path("gallery.h5"))
    return dict(zip(gallery.names, gallery.table.labels, strict=True))


def files() -> dict[str, bytes]:
    """Return the contents of the images below the sources, by name; hidden files are ours."""
    return {path.as_posix(): path.read_bytes() for path in Path("dirty").rglob("*.png")}


def corrected_labels(before: dict[str, str]) -> dict[str, str]:
    """Return the labels after MARKS, by the plain rule."""
    after = before | {f"dirty/{name}": label for name, label in MARKS}
    return {name: label for name, label in after.items() if label}


def test_removals_and_new_classes_are_applied_at_once(dirty: Runner) -> None:
    before, on_disk = labels(), files()
    mark(*MARKS, ("ant/0.png", "ant"))
    outcome = dirty("correct", "gallery.h5", "marked.csv")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.splitlines()[:-1] == [
        "note: 1 marked label is confirmed and not changed",
        "changed: dirty/ant/bee1.png",
        "changed: dirty/bee/ant1.png",
        "removed: dirty/cow/odd.png",
        "0 added, 2 changed, 1 removed, 9 unchanged",
    ]
    assert labels() == corrected_labels(before)
    assert files() == on_disk
    decisions = {
        one.name: (one.former, one.label, one.why) for one in Cleaning.of(load_gallery(Path("gallery.h5")))
    }
    assert decisions == {
        "dirty/ant/bee1.png": ("ant", "bee", "correct marked.csv"),
        "dirty/bee/ant1.png": ("bee", "ant", "correct marked.csv"),
        "dirty/cow/odd.png": ("cow", "", "correct marked.csv"),
    }
    outcome = dirty("build", "dirty", "--update")
    assert "0 added, 0 changed, 0 removed, 11 unchanged" in outcome.err
    assert labels() == corrected_labels(before)


def test_the_gallery_is_as_if_it_had_been_built_from_corrected_sources(dirty: Runner) -> None:
    """Also its vectors and its calibration, which belong to the classes."""
    assert dirty("build", "dirty", "--calibrate", "-q").exit == 0
    mark(*MARKS)
    assert dirty("correct", "gallery.h5", "marked.csv", "--sources", "dirty", "-q") == Outcome(0, "", "")
    assert dirty("build", "dirty", "--calibrate", "-q", "-o", "fresh.h5").exit == 0
    ours, fresh = (
        [json.loads(line) for line in dirty("classify", "dirty", "-g", name, "--json", "-q").out.splitlines()]
        for name in ("gallery.h5", "fresh.h5")
    )
    assert len(ours) == 11
    for one, other in zip(ours, fresh, strict=True):  # the order of examples in a class may differ
        assert one["residuals"] == pytest.approx(other["residuals"], abs=1e-4)
        assert one["probability"] == pytest.approx(other["probability"], abs=0.01)


def test_a_dry_run_lists_the_changes_and_makes_none(dirty: Runner) -> None:
    mark(*MARKS, ("ant/0.png", "ant"))
    before, on_disk = Path("gallery.h5").read_bytes(), files()
    outcome = dirty("correct", "gallery.h5", "marked.csv", "--dry-run", "--sources", "dirty")
    assert outcome.exit == 0
    assert rows(outcome.out) == [
        {"sample": f"dirty/{name}", "change": change, "class": name[:3], "corrected": label, "target": target}
        for (name, label), change, target in zip(
            MARKS,
            ("changed", "changed", "removed"),
            ("dirty/bee/bee1.png", "dirty/ant/ant1.png", "dirty/_removed/cow/odd.png"),
            strict=True,
        )
    ]
    assert outcome.err == (
        "gallery.h5: 2 changed, 1 removed, 1 confirmed; not changed by a dry run\n3 files would be moved\n"
    )
    record = json.loads(dirty("correct", "gallery.h5", "marked.csv", "--dry-run", "--json", "-q").out)
    assert [row["sample"] for row in record["planned"]] == [f"dirty/{name}" for name, _ in MARKS]
    assert Path("gallery.h5").read_bytes() == before
    assert files() == on_disk
    assert not list(Path("dirty").glob(".crnr*"))


def test_files_are_moved_and_the_sources_agree_with_the_gallery(dirty: Runner) -> None:
    on_disk = files()
    mark(*MARKS)
    outcome = dirty("correct", "gallery.h5", "marked.csv", "--sources", "dirty")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.splitlines()[-2:] == [
        "3 files moved",
        "to undo the moves: crnr sort --undo dirty/.crnr-sort-1.jsonl",
    ]
    moved = {
        "dirty/ant/bee1.png": "dirty/bee/bee1.png",
        "dirty/bee/ant1.png": "dirty/ant/ant1.png",
        "dirty/cow/odd.png": "dirty/_removed/cow/odd.png",
    }
    assert files() == {moved.get(name, name): content for name, content in on_disk.items()}
    assert labels() == {name: name[6:9] for name in files() if "_removed" not in name}
    assert dirty("verify", "gallery.h5", "--source", "dirty").err == (
        "gallery.h5: OK, 11 examples, valid checksum, all the same as in the sources\n"
    )
    update = dirty("build", "dirty", "--update")
    assert (update.exit, update.err.splitlines()[0]) == (0, "0 added, 0 changed, 0 removed, 11 unchanged")
    fresh = dirty("build", "dirty", "-o", "fresh.h5")
    assert (
        "note: dirty/_removed: left out, because `crnr correct` moved removed examples there\n" in fresh.err
    )
    assert load_gallery(Path("fresh.h5")).classes == list(CLASSES)
    assert "note: dirty/_removed: left out" in dirty("classify", "dirty", "-o", "out.csv").err
    again = dirty("correct", "gallery.h5", "marked.csv", "--sources", "dirty")
    assert (again.exit, again.err.splitlines()[0]) == (0, "note: 3 corrections were applied before")
    assert again.err.endswith("\n0 files moved\n")
    assert dirty("sort", "--undo", "dirty/.crnr-sort-1.jsonl").err == "3 files moved back\n"
    assert files() == on_disk
    assert not Path("dirty/_removed").exists()
    assert dirty("build", "dirty", "--update", "-q").exit == 0
    assert labels() == corrected_labels({name: name[6:9] for name in on_disk})


def test_undo_keeps_other_files_among_removed_examples_out_of_the_gallery(dirty: Runner) -> None:
    on_disk = files()
    mark(*MARKS)
    assert dirty("correct", "gallery.h5", "marked.csv", "--sources", "dirty", "-q").exit == 0
    draw_image(1, 60).save("dirty/_removed/cow/other.png")
    assert dirty("sort", "--undo", "dirty/.crnr-sort-1.jsonl").err == "3 files moved back\n"
    other = Path("dirty/_removed/cow/other.png")
    assert files() == on_disk | {str(other): other.read_bytes()}
    fresh = dirty("build", "dirty", "-o", "fresh.h5")
    assert "note: dirty/_removed: left out, " in fresh.err
    assert sorted(load_gallery(Path("fresh.h5")).names) == sorted(on_disk)


def test_a_label_that_is_corrected_back_stays_so(dirty: Runner) -> None:
    mark(("ant/bee1.png", "bee"))
    assert dirty("correct", "gallery.h5", "marked.csv", "--sources", "dirty", "-q").exit == 0
    Path("back.csv").write_text("path,label,corrected,remove\ndirty/bee/bee1.png,bee,ant,\n")
    assert dirty("correct", "gallery.h5", "back.csv", "--sources", "dirty", "-q").exit == 0
    before = labels()
    assert before["dirty/ant/bee1.png"] == "ant"
    assert dirty("build", "dirty", "--update", "-q").exit == 0
    assert labels() == before
    assert dirty("verify", "gallery.h5", "--source", "dirty", "-q").exit == 0


def test_files_that_are_not_the_examples_stay(dirty: Runner) -> None:
    shutil.copytree("dirty", "other")
    mark(*MARKS)
    draw_image(2, 50).save("dirty/ant/bee1.png")
    Path("dirty/bee/ant1.png").unlink()
    outcome = dirty("correct", "gallery.h5", "marked.csv", "--sources", "dirty")
    assert (outcome.exit, outcome.out) == (3, "")
    assert "not moved: dirty/ant/bee1.png: has changed since it became an example\n" in outcome.err
    assert "not moved: dirty/bee/ant1.png: no such file\n" in outcome.err
    assert Path("dirty/_removed/cow/odd.png").exists()
    assert Path("dirty/ant/bee1.png").exists()
    before = Path("gallery.h5").read_bytes()
    mark(("ant/0.png", ""))
    outcome = dirty("correct", "gallery.h5", "marked.csv", "--sources", "other")
    assert outcome == Outcome(
        1,
        "",
        "error: other: none of the files can be moved; dirty/ant/0.png: is not below other; leave out "
        "--sources, or run the command where the gallery was built\n",
    )
    mark(("ant/0.png", ""), ("ant/1.png", ""))
    Path("dirty/ant/1.png").unlink()
    outcome = dirty("correct", "gallery.h5", "marked.csv", "--sources", "dirty", "--strict")
    assert outcome == Outcome(
        1,
        "",
        "error: dirty/ant/1.png: no such file; stopped: 1 of 2 files has to stay in place, and no failure is "
        "allowed (--strict)\n",
    )
    assert Path("gallery.h5").read_bytes() == before
    assert Path("dirty/ant/0.png").exists()


def test_a_folder_called_removed_may_be_a_class(dirty: Runner) -> None:
    Path("dirty/cow").rename("dirty/_removed")
    assert dirty("build", "dirty", "-q").exit == 0
    assert load_gallery(Path("gallery.h5")).classes == ["_removed", "ant", "bee"]
    mark(("ant/0.png", ""))
    outcome = dirty("correct", "gallery.h5", "marked.csv", "--sources", "dirty")
    words = "dirty/_removed: is a class folder, but removed examples need a folder of this name"
    assert outcome == Outcome(1, "", f"error: {words}; rename the class folder\n")


def test_galleries_of_features_are_corrected_without_files(crnr: Runner) -> None:
    make_features(crnr.here / "table.npz")
    assert crnr("build", "table.npz", "-q").exit == 0
    Path("m.csv").write_text("path,corrected,remove\ntable.npz#0,bee,\ntable.npz#7,,yes\n")
    assert crnr("correct", "gallery.h5", "m.csv", "-q") == Outcome(0, "", "")
    found = labels()
    assert found["table.npz#0"] == "bee"
    assert "table.npz#7" not in found
    outcome = crnr("correct", "gallery.h5", "m.csv", "--sources", ".")
    words = "--sources: gallery.h5 was built from features, not from files that can be moved"
    assert outcome == Outcome(2, "", f"error: {words}\n")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            ["dirty/ant/0.png,ant,bee,x"],
            "m.csv, line 2: dirty/ant/0.png has x in the column remove and 'bee' in the column corrected; "
            "empty one of them",
        ),
        (
            ["dirty/ant/0.png,ant,be,"],
            "m.csv, line 2: gallery.h5 has no class be; there are ant, bee, cow; to begin a new class with "
            "it, use `crnr add --class`",
        ),
        (
            ["dirty/ant/0.png,ant,,", "dirty/ant/9.png,ant,,x"],
            "m.csv, line 3: gallery.h5 has no example dirty/ant/9.png; the closest are dirty/ant/2.png, "
            "dirty/ant/1.png, dirty/ant/0.png; audit the gallery again, or remove this row",
        ),
        (
            ["dirty/ant/0.png,ant,bee,", "./dirty/ant/0.png,ant,,x"],
            "m.csv, line 3: ./dirty/ant/0.png is to be removed, but to become 'bee' in m.csv, line 2",
        ),
        (
            ["dirty/ant/0.png,ant,bee,", "dirty/ant/0.png,ant,cow,"],
            "m.csv, line 3: dirty/ant/0.png is to become 'cow', but to become 'bee' in m.csv, line 2",
        ),
        (
            ["dirty/ant/0.png,cow,bee,"],
            "m.csv, line 2: dirty/ant/0.png is in the class ant now, but was in cow when it was audited; "
            "audit the gallery again",
        ),
        (
            ["dirty/ant/0.png,ant,,maybe"],
            "m.csv, line 2: the column remove contains 'maybe'; write x, or leave it empty",
        ),
        (
            ["dirty/ant/0.png,ant,,"],
            "m.csv: no row is marked; write the right class into the column corrected, or x into the column "
            "remove",
        ),
        ([",ant,bee,"], "m.csv, line 2: the path is empty"),
    ],
)
def test_conflicts_are_refused_with_their_line(dirty: Runner, lines: list[str], words: str) -> None:
    Path("m.csv").write_text("\n".join(["path,label,corrected,remove", *lines, ""]))
    before = Path("gallery.h5").read_bytes()
    for options in ((), ("--dry-run",), ("--sources", "dirty")):
        assert dirty("correct", "gallery.h5", "m.csv", *options) == Outcome(1, "", f"error: {words}\n")
    assert Path("gallery.h5").read_bytes() == before


def test_not_everything_can_be_removed(dirty: Runner) -> None:
    mark(*((name.removeprefix("dirty/"), "") for name in labels()))
    outcome = dirty("correct", "gallery.h5", "marked.csv")
    assert outcome == Outcome(1, "", "error: gallery.h5: no examples would remain; delete the file instead\n")


def test_remove_tells_of_corrected_rows(dirty: Runner) -> None:
    mark(*MARKS)
    outcome = dirty("remove", "gallery.h5", "--marked-in", "marked.csv")
    assert outcome.exit == 0
    words = "marked.csv: 2 rows have a corrected class, which `crnr correct gallery.h5 marked.csv` applies"
    assert outcome.err.startswith(f"note: {words}\n")


decisions = st.lists(
    st.tuples(
        st.sampled_from([f"{name}/{i}.png" for name in CLASSES for i in range(3)]),
        st.sampled_from(["", *CLASSES]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=15, deadline=None)
@given(chosen=decisions, with_files=st.booleans())
def test_applying_a_marked_file_is_a_change_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    templates: Templates,
    chosen: list[tuple[str, str]],
    with_files: bool,
) -> None:
    """Refused as a whole if two rows contradict each other; otherwise the labels are those of the rows."""
    here = tmp_path_factory.mktemp("correct")
    templates.copy(build_dirty, here)
    crnr = Runner(here)
    with contextlib.chdir(here):
        before, on_disk = labels(), files()
        mark(*chosen)
        options = ("--sources", "dirty") if with_files else ()
        outcome = crnr("correct", "gallery.h5", "marked.csv", "-q", *options)
        if len(set(chosen)) > len(dict(chosen)):
            assert (outcome.exit, labels(), files()) == (1, before, on_disk)
            return
        assert outcome == Outcome(0, "", "")
        wanted = before | {f"dirty/{name}": label for name, label in chosen}
        contents = sorted((label, on_disk[name]) for name, label in wanted.items() if label)
        now = labels()
        if not with_files:
            assert now == {name: label for name, label in wanted.items() if label}
            assert files() == on_disk
        else:
            assert sorted((label, files()[name]) for name, label in now.items()) == contents
            assert sorted(files().values()) == sorted(on_disk.values())
        assert crnr("verify", "gallery.h5", "--source", "dirty", "-q").exit == 0
        update = crnr("build", "dirty", "--update")
        assert f"0 added, 0 changed, 0 removed, {len(now)} unchanged" in update.err
        assert labels() == now


@pytest.mark.parametrize("error", [Killed, OSError])
def test_a_killed_command_is_continued(
    dirty: Runner, error: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The gallery has all labels or none; the same command then leads to the same gallery and files."""
    mark(*MARKS)
    before, on_disk = labels(), files()
    number, is_over = 0, False
    while not is_over:
        number += 2 if error is OSError else 1  # see fail_at
        here = tmp_path / f"run{number}"
        shutil.copytree("dirty", here / "dirty")
        for name in ("gallery.h5", "marked.csv"):
            shutil.copy2(name, here / name)
        with contextlib.chdir(here):
            marks = read_marks(Path("marked.csv"))
            with monkeypatch.context() as broken:
                calls = fail_at(number, error, broken)
                with suppress(Killed, OSError, OutputError, DataError):
                    correct(Path("gallery.h5"), marks, "correct marked.csv", Path("dirty"))
                is_over = number > 2 * calls[0] + 1
            hashes = {path.read_bytes() for path in Path("dirty").rglob("*.png")}
            assert hashes == set(on_disk.values()), number  # nothing is lost
            assert sorted(labels().values()) in (
                sorted(before.values()),
                sorted(corrected_labels(before).values()),
            )
            correct(Path("gallery.h5"), marks, "correct marked.csv", Path("dirty"))
            assert labels() == {name: name[6:9] for name in files() if "_removed" not in name}, number
            assert sorted(labels().values()) == sorted(corrected_labels(before).values())
            assert dirty("verify", "gallery.h5", "--source", "dirty", "-q").exit == 0
        assert number < 300
