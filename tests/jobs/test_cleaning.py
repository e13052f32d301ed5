"""Cleaning survives: `build --update` keeps what people removed, relabelled or renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crnr_cli.arrays import Batch, Stamp
from crnr_cli.gallery.cleaning import CleanedSource, Cleaning
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import CleaningTable, SampleTable
from crnr_cli.sources.images import Images
from helpers.runner import Runner
from helpers.samples import draw_image, make_features, make_images
from helpers.templates import Templates

CLASSES = ("ant", "bee", "cow")


def build_dirty(crnr: Runner) -> None:
    """Make three classes of four images, with five images in wrong folders, and a gallery of them."""
    make_images(crnr.here / "dirty")
    for number, (folder, name) in enumerate(
        (("ant", "bee1"), ("bee", "ant1"), ("cow", "bee2"), ("ant", "cow1"), ("bee", "cow2"))
    ):
        draw_image(CLASSES.index(name[:3]), 20 + number).save(f"dirty/{folder}/{name}.png")
    assert crnr("build", "dirty", "--extractor", "pixels", "--method", "nn", "-q").exit == 0


def clean(crnr: Runner) -> None:
    """Remove three of the wrong images, and relabel two."""
    build_dirty(crnr)
    marked = ("dirty/ant/bee1.png", "dirty/bee/ant1.png", "dirty/cow/bee2.png")
    rows = "".join(f"{path},{Path(path).parent.name},x\n" for path in marked)
    Path("audit.csv").write_text(f"path,label,remove\n{rows}")
    assert crnr("remove", "gallery.h5", "--marked-in", "audit.csv", "-q").exit == 0
    Path("c.csv").write_text(
        "path,label,corrected,when\ndirty/ant/cow1.png,ant,cow,\ndirty/bee/cow2.png,bee,cow,\n"
    )
    assert crnr("add", "gallery.h5", "--corrections", "c.csv", "-q").exit == 0


@pytest.fixture
def dirty(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(build_dirty, crnr.here)
    return crnr


@pytest.fixture
def cleaned(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(clean, crnr.here)
    return crnr


def labels() -> dict[str, str]:
    """Return the classes of the gallery's examples by name."""
    gallery = load_gallery(Path("gallery.h5"))
    return dict(zip(gallery.names, gallery.table.labels, strict=True))


def update(crnr: Runner, *arguments: str, source: str = "dirty") -> list[str]:
    """Bring the gallery up to date; return the lines without the last one, which has the time."""
    outcome = crnr("build", source, "--update", *arguments)
    assert (outcome.exit, outcome.out) == (0, "")
    return outcome.err.splitlines()[:-1]


def sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_build_update_keeps_removed_and_relabelled_examples(cleaned: Runner) -> None:
    before = labels()
    assert len(before) == 14
    assert before["dirty/ant/cow1.png"] == before["dirty/bee/cow2.png"] == "cow"
    assert update(cleaned) == [
        "note: 3 removed examples stay removed; `--restore` brings them back",
        "note: 2 relabelled examples keep their classes; `--restore` takes the class of the source",
        "0 added, 0 changed, 0 removed, 14 unchanged",
    ]
    assert labels() == before


def test_restore_brings_removed_examples_back_and_forgets_them(cleaned: Runner) -> None:
    assert update(cleaned, "--restore") == [
        "note: 3 removed examples and 2 relabelled examples restored: the gallery follows its sources again",
        "added: dirty/ant/bee1.png",
        "added: dirty/bee/ant1.png",
        "added: dirty/cow/bee2.png",
        "changed: dirty/ant/cow1.png",
        "changed: dirty/bee/cow2.png",
        "3 added, 2 changed, 0 removed, 12 unchanged",
    ]
    assert all(label == Path(name).parent.name for name, label in labels().items())
    assert cleaned("build", "dirty", "--extractor", "pixels", "--method", "nn", "-o", "fresh.h5").exit == 0
    assert Path("gallery.h5").read_bytes() == Path("fresh.h5").read_bytes()
    assert update(cleaned, "--restore")[0] == (
        "note: nothing to restore: no example of the gallery was removed, relabelled or added by hand"
    )


def test_restore_needs_update(cleaned: Runner) -> None:
    outcome = cleaned("build", "dirty", "--restore")
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err.startswith("error: --restore needs --update; without --update, build reads all")


@pytest.mark.parametrize("options", [(), ("--restore",)], ids=["update", "restore"])
def test_a_dry_run_shows_the_changes_of_the_update(cleaned: Runner, options: tuple[str, ...]) -> None:
    draw_image(0, 70).save("dirty/ant/new.png")
    before = Path("gallery.h5").read_bytes()
    outcome = cleaned("build", "dirty", "--update", "--dry-run", *options)
    assert outcome.exit == 0
    assert Path("gallery.h5").read_bytes() == before
    planned = [row.split(",") for row in outcome.out.splitlines()]
    record = json.loads(cleaned("build", "dirty", "--update", "--dry-run", "--json", "-q", *options).out)
    assert planned == [["sample", "change"], *([row["sample"], row["change"]] for row in record["planned"])]
    lines = update(cleaned, *options)
    assert [f"{change}: {name}" for name, change in planned[1:]] == [
        line for line in lines if line.startswith(("added", "changed", "removed"))
    ]
    assert [line for line in lines if not line.startswith(("added", "changed", "removed"))] == [
        *outcome.err.splitlines()[:-1]
    ]
    assert outcome.err.splitlines()[-1] == "gallery.h5: not changed by a dry run"
    assert lines[-1].endswith(f", {record['unchanged']} unchanged")


def test_a_dry_run_needs_a_gallery_to_update(dirty: Runner) -> None:
    outcome = dirty("build", "dirty", "--dry-run")
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err.startswith("error: --dry-run needs --update, which prints the changes of an existing")
    outcome = dirty("build", "dirty", "--update", "--dry-run", "-o", "other.h5")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith("error: other.h5: no such gallery; create it with")


def test_removed_files_are_not_read_again(cleaned: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    batches = Images.read_batches

    def watched(source: Images, *arguments: Any) -> Generator[Batch]:
        read.extend(source.names())
        return batches(source, *arguments)

    monkeypatch.setattr(Images, "read_batches", watched)
    update(cleaned)
    assert read == []
    os.utime("dirty/ant/bee1.png", (1, 1))
    assert update(cleaned)[0] == "note: 3 removed examples stay removed; `--restore` brings them back"
    assert read == ["dirty/ant/bee1.png"]


def test_info_lists_the_cleaning(cleaned: Runner) -> None:
    outcome = cleaned("info", "gallery.h5")
    assert (outcome.exit, outcome.err) == (0, "")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "cleaning 3 removed examples and 2 relabelled examples" in lines
    first = lines[lines.index("when example change command") + 1].split(" ", 1)
    assert first[1] == "dirty/bee/cow2.png bee to cow add --corrections c.csv"
    assert lines[-1].split(" ", 1)[1] == "dirty/ant/bee1.png removed from ant remove --marked-in audit.csv"
    records = json.loads(cleaned("info", "--json").out)["cleaning"]
    assert [record.pop("when") for record in records] == sorted(record.split()[0] for record in lines[-5:])
    assert records[0] == {
        "sample": "dirty/ant/bee1.png",
        "sha256": sha256("dirty/ant/bee1.png"),
        "former": "ant",
        "class": None,
        "why": "remove --marked-in audit.csv",
    }
    assert records[-1] == {
        "sample": "dirty/bee/cow2.png",
        "sha256": sha256("dirty/bee/cow2.png"),
        "former": "bee",
        "class": "cow",
        "why": "add --corrections c.csv",
    }


def test_info_shows_the_last_decisions_of_many(dirty: Runner) -> None:
    for number in range(25):
        draw_image(1, 100 + number).save(f"dirty/ant/x{number}.png")
    update(dirty)
    assert "cleaning" not in dirty("info").out
    assert dirty("remove", "gallery.h5", "--sample", "dirty/ant/x*", "-q").exit == 0
    out = dirty("info").out
    assert "the last 20 of 25 decisions; --json lists all" in out
    assert out.count("removed from ant") == 20
    assert len(json.loads(dirty("info", "--json").out)["cleaning"]) == 25


def test_the_time_of_a_decision_is_in_utc(dirty: Runner) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    assert dirty("remove", "gallery.h5", "--sample", "dirty/ant/bee1.png", "-q").exit == 0
    (found,) = json.loads(dirty("info", "--json").out)["cleaning"]
    when = datetime.fromisoformat(found["when"])
    assert found["when"].endswith("+00:00")
    assert before <= when <= datetime.now(UTC)
    assert found["why"] == "remove"


def test_verify_accepts_cleaned_galleries(cleaned: Runner) -> None:
    outcome = cleaned("verify", "--source", "dirty", "--json")
    assert outcome.exit == 0
    assert outcome.err == (
        "gallery.h5: OK, 14 examples, valid checksum, all the same as in the sources; "
        "3 removed examples stay removed\n"
    )
    found = json.loads(outcome.out)
    assert found["removed"] == ["dirty/ant/bee1.png", "dirty/bee/ant1.png", "dirty/cow/bee2.png"]
    assert (found["changed"], found["missing"], found["unknown"], found["holds"]) == ([], [], [], True)


def test_build_without_update_warns_that_the_cleaning_is_lost(cleaned: Runner) -> None:
    outcome = cleaned("build", "dirty", "--extractor", "pixels", "--method", "nn")
    assert outcome.exit == 0
    assert outcome.err.splitlines()[-1] == (
        "note: the cleaning of the previous gallery is lost: 3 removed examples and 2 relabelled examples; "
        "next time use `crnr build dirty --update` to keep it"
    )
    assert "cleaning" not in cleaned("info").out
    assert len(labels()) == 17


def test_examples_that_are_added_again_are_not_removed_any_more(cleaned: Runner) -> None:
    outcome = cleaned("add", "gallery.h5", "dirty/ant/bee1.png", "dirty/ant/cow1.png")
    assert outcome.exit == 0
    assert outcome.err.splitlines()[0] == (
        "note: 1 removed example and 1 relabelled example are added again as in the source, so the gallery "
        "forgets the earlier decision"
    )
    before = labels()
    assert before["dirty/ant/bee1.png"] == before["dirty/ant/cow1.png"] == "ant"
    assert update(cleaned)[:2] == [
        "note: 2 removed examples stay removed; `--restore` brings them back",
        "note: 1 relabelled example keeps its class; `--restore` takes the class of the source",
    ]
    assert labels() == before


def test_a_removed_example_gets_the_class_that_is_named_later(cleaned: Runner) -> None:
    assert cleaned("add", "gallery.h5", "dirty/ant/bee1.png", "--class", "bee", "-q").exit == 0
    before = labels()
    assert before["dirty/ant/bee1.png"] == "bee"
    update(cleaned)
    assert labels() == before
    records = json.loads(cleaned("info", "--json").out)["cleaning"]
    (found,) = (one for one in records if one["sample"] == "dirty/ant/bee1.png")
    assert (found["former"], found["class"], found["why"]) == ("ant", "bee", "add --class")


def test_decisions_follow_moved_files_and_end_with_new_contents(cleaned: Runner) -> None:
    """A file in another class folder, or with another content, is a new example."""
    Path("dirty/ant/bee1.png").rename("dirty/ant/moved.png")
    Path("dirty/bee/ant1.png").rename("dirty/ant/right.png")
    Path("dirty/ant/cow1.png").rename("dirty/ant/still cow.png")
    draw_image(2, 60).save("dirty/cow/bee2.png")
    lines = update(cleaned)
    assert lines[:2] == [
        "note: 1 removed example stays removed; `--restore` brings it back",
        "note: 2 relabelled examples keep their classes; `--restore` takes the class of the source",
    ]
    found = labels()
    assert "dirty/ant/moved.png" not in found
    assert found["dirty/ant/right.png"] == "ant"
    assert found["dirty/ant/still cow.png"] == "cow"
    assert found["dirty/cow/bee2.png"] == "cow"


def test_decisions_hold_in_a_folder_with_another_name(cleaned: Runner) -> None:
    before = labels()
    Path("dirty").rename("photos")
    assert update(cleaned, source="photos")[0].startswith("note: 3 removed examples stay removed")
    assert labels() == {name.replace("dirty", "photos"): label for name, label in before.items()}


def test_decisions_on_one_of_several_copies_spare_the_others(dirty: Runner) -> None:
    shutil.copy("dirty/ant/0.png", "dirty/ant/copy.png")  # of the same class
    shutil.copy("dirty/ant/1.png", "dirty/bee/copy.png")  # of another class
    shutil.copy("dirty/cow/0.png", "dirty/cow/copy.png")
    update(dirty)
    assert dirty("remove", "gallery.h5", "--sample", "dirty/*/copy.png", "-q").exit == 0
    assert dirty("add", "gallery.h5", "dirty/cow/1.png", "--class", "bee", "-q").exit == 0
    shutil.copy("dirty/cow/1.png", "dirty/cow/copied later.png")
    before = labels()
    update(dirty)
    assert labels() == before | {"dirty/cow/copied later.png": "bee"}


def test_a_renamed_class_keeps_its_name_for_old_and_new_files(cleaned: Runner) -> None:
    assert cleaned("rename", "gallery.h5", "ant", "emmet", "-q").exit == 0
    before = labels()
    draw_image(0, 70).save("dirty/ant/new.png")
    assert "note: class ant was renamed to emmet: 5 examples, 1 of them new" in update(cleaned)
    assert labels() == before | {"dirty/ant/new.png": "emmet"}
    assert cleaned("verify", "--source", "dirty", "-q").exit == 0
    records = json.loads(cleaned("info", "--json").out)["cleaning"]
    assert {one["former"] for one in records} == {"ant", "bee", "cow", "emmet"}
    (renamed,) = (one for one in records if one["sha256"] is None)
    assert (renamed["former"], renamed["class"], renamed["why"]) == ("ant", "emmet", "rename")
    Path("dirty/ant").rename("dirty/emmet")  # the folder follows
    update(cleaned)
    assert {Path(name).name: label for name, label in labels().items()} == {
        Path(name).name: label for name, label in (before | {"new.png": "emmet"}).items()
    }


def test_a_class_folder_that_is_named_directly_is_recognised_after_a_rename(dirty: Runner) -> None:
    assert dirty("rename", "gallery.h5", "ant", "emmet", "-q").exit == 0
    before = labels()
    assert dirty("build", "dirty/ant", "dirty/bee", "dirty/cow", "--update", "-q").exit == 0
    assert labels() == before


@pytest.mark.parametrize(
    "renames",
    [
        [("ant", "x"), ("x", "ant")],
        [("ant", "x"), ("cow", "ant"), ("ant", "y")],
        [("ant", "x"), ("bee", "ant"), ("x", "bee")],  # swapped
        [("ant", "bee", "--merge"), ("bee", "x"), ("cow", "ant"), ("x", "ant", "--merge")],
    ],
)
def test_sequences_of_renames_are_kept(cleaned: Runner, renames: list[tuple[str, ...]]) -> None:
    for arguments in renames:
        assert cleaned("rename", "gallery.h5", *arguments, "-q").exit == 0
    before = labels()
    update(cleaned)
    assert labels() == before


def test_rows_of_feature_files_are_remembered(crnr: Runner) -> None:
    make_features(crnr.here / "a.npz")
    assert crnr("build", "a.npz", "-q").exit == 0
    assert crnr("remove", "gallery.h5", "--sample", "a.npz#3", "-q").exit == 0
    before = labels()
    assert update(crnr, source="a.npz")[0].startswith("note: 1 removed example stays removed")
    assert labels() == before
    with np.load("a.npz") as old:  # the row moves up
        np.savez("a.npz", features=old["features"][1:], labels=old["labels"][1:])
    update(crnr, source="a.npz")
    assert len(labels()) == 13
    assert "a.npz#2" not in labels()


def test_an_example_of_a_renamed_class_can_be_added_under_the_old_name(crnr: Runner) -> None:
    """The gallery remembers which command gave the class, because a source of this name is renamed."""
    make_features(crnr.here / "old.npz", classes=("ant", "bee"))
    make_features(crnr.here / "new.npz", classes=("ant",), per_class=2, seed=1)
    assert crnr("build", "old.npz", "-q").exit == 0
    assert crnr("rename", "gallery.h5", "ant", "emmet", "-q").exit == 0
    added = crnr("add", "gallery.h5", "new.npz")
    assert (added.exit, added.err.splitlines()[0]) == (
        0,
        "note: class ant is new: 2 examples, such as new.npz#0",
    )
    records = json.loads(crnr("info", "--json").out)["cleaning"]
    assert [(one["sample"], one["former"], one["class"], one["why"]) for one in records] == [
        (None, "ant", "emmet", "rename"),
        ("new.npz#0", "emmet", "ant", "add"),
        ("new.npz#1", "emmet", "ant", "add"),
    ]


def test_removed_classes_are_recognised_in_another_unicode_form(crnr: Runner) -> None:
    make_images(crnr.here / "source", classes=("ant", "caf\u00e9", "cow"))
    assert crnr("build", "source", "-q").exit == 0
    assert crnr("remove", "gallery.h5", "--class", "caf\u00e9", "-q").exit == 0
    Path("source/caf\u00e9").rename("source/cafe\u0301")
    before = labels()
    assert update(crnr, source="source")[0].startswith("note: 4 removed examples stay removed")
    assert labels() == before


@pytest.fixture
def reviewed(dirty: Runner) -> Runner:
    """Four images outside the source with classes that a person gave, one of them in a class folder."""
    for name in ("new/1.png", "new/2.png", "new/ant/3.png", "other/4.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        draw_image(1, 80 + int(Path(name).stem)).save(name)
    rows = "new/1.png,ant,bee,\nnew/2.png,bee,bee,\nnew/ant/3.png,ant,bee,\n"
    Path("c.csv").write_text(f"path,label,corrected,when\n{rows}")
    assert dirty("add", "gallery.h5", "--corrections", "c.csv", "-q").exit == 0
    assert dirty("add", "gallery.h5", "other/4.png", "--class", "emmet", "-q").exit == 0
    return dirty


KEPT = (
    "note: 4 examples added with --class or --corrections are kept, such as new/1.png; `--restore` drops them"
)


def test_build_update_keeps_examples_that_were_added_by_hand(reviewed: Runner) -> None:
    before, content = labels(), Path("gallery.h5").read_bytes()
    assert len(before) == 21
    assert update(reviewed) == [KEPT, "0 added, 0 changed, 0 removed, 21 unchanged"]
    assert Path("gallery.h5").read_bytes() == content
    outcome = reviewed("verify", "--source", "dirty")
    assert (outcome.exit, outcome.out) == (0, "")
    shutil.rmtree("new")  # the vectors are in the gallery
    Path("dirty/ant/0.png").unlink()
    draw_image(0, 70).save("dirty/ant/9.png")
    assert update(reviewed) == [
        KEPT,
        "added: dirty/ant/9.png",
        "removed: dirty/ant/0.png",
        "1 added, 0 changed, 1 removed, 20 unchanged",
    ]
    del before["dirty/ant/0.png"]
    assert labels() == before | {"dirty/ant/9.png": "ant"}


def test_restore_drops_examples_that_were_added_by_hand(reviewed: Runner) -> None:
    lines = update(reviewed, "--restore")
    assert lines[0] == (
        "note: 1 relabelled example restored, 3 added examples forgotten: "
        "the gallery follows its sources again"
    )
    assert lines[-1] == "0 added, 0 changed, 4 removed, 17 unchanged"
    assert all(name.startswith("dirty/") for name in labels())
    assert "cleaning" not in reviewed("info").out


def test_an_example_that_was_added_by_hand_may_move_into_the_source(reviewed: Runner) -> None:
    before = labels()
    Path("new/1.png").rename("dirty/cow/moved.png")
    lines = update(reviewed)
    assert lines[0] == KEPT.replace("4 examples", "3 examples").replace("new/1", "new/2")
    assert lines[-1] == "1 added, 0 changed, 1 removed, 20 unchanged"
    del before["new/1.png"]
    assert labels() == before | {"dirty/cow/moved.png": "cow"}
    assert [one["sample"] for one in json.loads(reviewed("info", "--json").out)["cleaning"]] == [
        "new/2.png",
        "new/ant/3.png",
        "other/4.png",
    ]


def test_examples_that_were_added_by_hand_can_be_removed_and_relabelled(reviewed: Runner) -> None:
    assert "added to emmet" in " ".join(reviewed("info").out.split())
    assert reviewed("remove", "gallery.h5", "--example", "new/1.png", "-q").exit == 0
    assert reviewed("add", "gallery.h5", "new/2.png", "--class", "cow", "-q").exit == 0
    assert reviewed("rename", "gallery.h5", "emmet", "ant", "--merge", "-q").exit == 0
    draw_image(2, 95).save("new/ant/3.png")
    assert reviewed("add", "gallery.h5", "new/ant/3.png", "--class", "cow", "-q").exit == 0
    before = labels()
    assert {name: label for name, label in before.items() if not name.startswith("dirty/")} == {
        "new/2.png": "cow",
        "new/ant/3.png": "cow",
        "other/4.png": "ant",
    }
    assert update(reviewed)[-1] == "0 added, 0 changed, 0 removed, 20 unchanged"
    assert labels() == before


def test_an_example_that_was_added_by_hand_follows_a_source_that_has_it(reviewed: Runner) -> None:
    """The class given by hand holds in the source too, until the file is gone from there."""
    draw_image(0, 90).save("dirty/bee/new.png")
    assert reviewed("add", "gallery.h5", "dirty/bee/new.png", "--class", "bee", "-q").exit == 0
    before = labels()
    assert update(reviewed)[-1] == "0 added, 0 changed, 0 removed, 22 unchanged"
    assert labels() == before
    Path("dirty/bee/new.png").unlink()
    assert "removed: dirty/bee/new.png" in update(reviewed)
    assert "dirty/bee/new.png" not in reviewed("info", "--json").out


def test_build_update_keeps_a_file_in_no_class_folder_that_was_added_by_hand(dirty: Runner) -> None:
    draw_image(1, 90).save("dirty/stray.png")
    assert dirty("add", "gallery.h5", "dirty/stray.png", "--class", "bee", "-q").exit == 0
    before = labels()
    outcome = dirty("build", "dirty", "--update")
    assert (outcome.exit, outcome.err.splitlines()[0]) == (
        3,
        "failed: dirty/stray.png: not in a class folder",
    )
    assert labels() == before


def test_build_update_names_examples_of_sources_that_are_left_out(dirty: Runner) -> None:
    make_images(dirty.here / "more", per_class=1)
    for folder in CLASSES:
        draw_image(CLASSES.index(folder), 50).save(f"more/{folder}/0.png")
    assert dirty("add", "gallery.h5", "more", "-q").exit == 0
    before = labels()
    assert update(dirty, "more") == ["0 added, 0 changed, 0 removed, 20 unchanged"]
    assert update(dirty)[0] == (
        "note: 3 examples outside the sources are removed, such as more/ant/0.png; "
        "to keep such examples, name their sources too"
    )
    assert labels() == {name: label for name, label in before.items() if name.startswith("dirty/")}


def test_a_source_added_under_the_old_name_of_a_class_is_left_out_like_any_other(dirty: Runner) -> None:
    """Its source gives the class, and no person: it is not kept like an example that was added by hand."""
    assert dirty("rename", "gallery.h5", "ant", "emmet", "-q").exit == 0
    make_images(dirty.here / "more", classes=("ant", "bee"), per_class=1)
    for folder in ("ant", "bee"):
        draw_image(CLASSES.index(folder), 50).save(f"more/{folder}/0.png")
    assert dirty("add", "gallery.h5", "more", "-q").exit == 0
    assert labels()["more/ant/0.png"] == "ant"
    assert update(dirty)[:3] == [
        "note: class ant: no examples remain, removed",
        "note: class ant was renamed to emmet: 6 examples",
        "note: 2 examples outside the sources are removed, such as more/ant/0.png; "
        "to keep such examples, name their sources too",
    ]
    assert all(name.startswith("dirty/") for name in labels())


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        ("new", "new/1.png", True),
        ("./new/", "new//1.png", True),
        ("new", "newer/1.png", False),
        ("new/1.png", "new/1.png", True),
        ("new", "new", True),
        ("new", "/new/1.png", False),
        (".", "new/1.png", True),
        (".", "/new/1.png", False),
        ("/", "/new/1.png", True),
        ("new/1", "new/1.png", False),
    ],
)
def test_names_below_a_source(source: str, name: str, expected: bool) -> None:
    assert Cleaning(CleaningTable()).find_below([source])(name) is expected
    assert not Cleaning(CleaningTable()).find_below([])(name)


def test_rows_below_a_feature_file() -> None:
    is_below = Cleaning(CleaningTable(), "features").find_below(["a.npz"])
    assert [is_below(name) for name in ("a.npz#3", "a.npz", "a.npz2#3", "b.npz#3")] == [
        True,
        True,
        False,
        False,
    ]


def test_galleries_without_cleaning_have_no_arrays_for_it(dirty: Runner) -> None:
    with h5py.File("gallery.h5") as file:
        assert "cleaning" not in file
    assert dirty("remove", "gallery.h5", "--sample", "dirty/ant/bee1.png", "-q").exit == 0
    with h5py.File("gallery.h5") as file:
        assert set(file["cleaning"]) == {
            *("class", "former", "mtime_ns", "names", "sha256", "size", "when", "why"),
        }


names = st.sampled_from([f"{folder}/{number}.png" for folder in CLASSES for number in range(3)])
classes = st.sampled_from([*CLASSES, "dog"])
commands = st.lists(
    st.one_of(
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("remove --class"), classes),
        st.tuples(st.just("add --class"), names, classes),
        st.tuples(st.just("add"), names),
        st.tuples(st.just("rename"), classes, classes),
    ),
    max_size=12,
)
# Which of five contents each file has, so there are copies in one class and in several.
contents = st.lists(st.integers(0, 4), min_size=9, max_size=9)


@given(contents, commands)
@example(
    list(range(5)) + [0] * 4,
    [
        ("remove", "ant/0.png"),
        ("add --class", "ant/0.png", "ant"),
        ("add --class", "ant/0.png", "bee"),
        ("remove", "ant/0.png"),
    ],
)
@example(
    list(range(5)) + [0] * 4,
    [
        ("add --class", "ant/1.png", "bee"),
        ("rename", "bee", "ant"),
        ("add --class", "ant/1.png", "cow"),
        ("remove", "ant/1.png"),
    ],
)
def test_the_sources_give_the_gallery_after_any_decisions(
    found: list[int], sequence: list[tuple[str, ...]]
) -> None:
    """The gallery is a dictionary here, and every decision is also stored and read again."""
    files = [f"{folder}/{number}.png" for folder in CLASSES for number in range(3)]
    hash_of = {name: f"{content:064x}" for name, content in zip(files, found, strict=True)}
    gallery = {name: name[:3] for name in files}
    cleaning = Cleaning(CleaningTable())

    def table(chosen: dict[str, str]) -> SampleTable:
        rows = list(chosen)
        stamps = [Stamp(1, 1)] * len(rows)
        return SampleTable(rows, list(chosen.values()), [hash_of[name] for name in rows], stamps)

    for command, *arguments in sequence:
        if command.startswith("remove"):
            gone = {name: label for name, label in gallery.items() if arguments[0] in (name, label)}
            cleaning.note_removed(table(gone), command)
            gallery = {name: label for name, label in gallery.items() if name not in gone}
        elif command.startswith("add"):
            name, label = arguments[0], arguments[-1] if len(arguments) > 1 else arguments[0][:3]
            if gallery.get(name) != label:
                cleaning.note_added(table({name: label}), table(gallery), command, by_hand=len(arguments) > 1)
                gallery[name] = label
        elif arguments[0] != arguments[1] and arguments[0] in gallery.values():
            cleaning.note_renamed(*arguments, command)
            gallery = {
                name: arguments[1] if label == arguments[0] else label for name, label in gallery.items()
            }
        cleaning = Cleaning(cleaning.to_table())
    source = CleanedSource(cleaning, table(gallery))
    again = {name: source.find_label(name, hash_of[name], name[:3]) for name in files}
    assert {name: label for name, label in again.items() if label} == gallery
    assert source.removed == set(files) - gallery.keys()


@pytest.mark.slow
@settings(max_examples=15)
@given(sequence=commands)
def test_build_update_changes_nothing_after_any_commands(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[tuple[str, ...]]
) -> None:
    here = tmp_path_factory.mktemp("cleaning")
    crnr = Runner(here)
    make_images(here / "source", per_class=2)
    for folder in CLASSES:  # a copy in each class, and one in the next class
        shutil.copy(here / "source" / folder / "0.png", here / "source" / folder / "2.png")
    shutil.copy(here / "source/ant/1.png", here / "source/bee/1.png")
    assert crnr("build", "source", "--extractor", "pixels", "--method", "nn", "-q").exit == 0
    for command, *arguments in sequence:
        gallery = load_gallery(here / "gallery.h5")
        if command == "rename":
            merge = ["--merge"] if arguments[1] in gallery.classes else []
            crnr("rename", "gallery.h5", *arguments, *merge, "-q")
        elif command == "remove --class":
            crnr("remove", "gallery.h5", "--class", arguments[0], "-q")
        elif command == "remove":
            crnr("remove", "gallery.h5", "--sample", f"source/{arguments[0]}", "-q")
        else:
            label = ["--class", arguments[1]] if len(arguments) > 1 else []
            crnr("add", "gallery.h5", f"source/{arguments[0]}", *label, "-q")
    with contextlib.chdir(here):
        before = labels()
        lines = update(crnr, source="source")
        assert lines[-1] == f"0 added, 0 changed, 0 removed, {len(before)} unchanged"
        assert labels() == before
    assert crnr("verify", "--source", "source", "-q").exit == 0
