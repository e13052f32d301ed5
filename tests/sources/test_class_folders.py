"""A folder of one class as a source, and the class of samples that are added."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.gallery.file import load_gallery
from helpers.runner import Runner, rows
from helpers.samples import draw_image, make_features, make_images
from helpers.templates import Templates


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "new", first=10)
    assert crnr("build", "gallery", "-q").exit == 0


@pytest.fixture
def built(crnr: Runner, templates: Templates) -> Runner:
    """gallery.h5 with the classes ant, bee and cow, and other images of them in new/."""
    templates.copy(build_gallery, crnr.here)
    return crnr


def labels() -> dict[str, str]:
    """Return the class of every sample in the gallery, by name."""
    gallery = load_gallery(Path("gallery.h5"))
    classes = [gallery.classes[i] for i in gallery.samples.class_index]
    return dict(zip(gallery.names, classes, strict=True))


@pytest.mark.parametrize("source", ["new/ant", "new/ant/", "./new/ant", "new/../new/ant"])
def test_a_class_folder_is_added_to_its_class(built: Runner, source: str) -> None:
    outcome = built("add", "gallery.h5", source)
    assert (outcome.exit, outcome.out) == (0, "")
    assert "is new" not in outcome.err
    added = {name: label for name, label in labels().items() if "gallery/" not in name}
    assert len(added) == 4
    assert set(added.values()) == {"ant"}
    assert built("verify", "gallery.h5", "--source", "gallery", "--source", source).exit == 0


def test_the_current_folder_can_be_a_class_folder(built: Runner) -> None:
    inside = Runner(built.here / "new" / "bee")
    assert inside("add", "../../gallery.h5", ".").exit == 0
    assert labels()["10.png"] == "bee"
    assert inside("evaluate", ".", "-g", "../../gallery.h5", "--json").exit == 0


def test_a_class_folder_is_evaluated_like_the_files_in_it(built: Runner) -> None:
    by_folder = built("evaluate", "new/ant", "--json")
    by_files = built("evaluate", *sorted(map(str, Path("new/ant").iterdir())), "--json")
    assert (by_folder.exit, by_folder.err) == (0, "")
    assert json.loads(by_folder.out) == json.loads(by_files.out)
    assert json.loads(by_folder.out)["n"] == 4
    assert {row["truth"] for row in rows(built("classify", "new/ant", "-q").out)} == {"ant"}


def test_a_name_in_another_unicode_form_is_the_same(built: Runner) -> None:
    composed, decomposed = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    make_images(built.here / "accents", [composed, "bee"])
    make_images(built.here / "queries", [decomposed])
    assert built("build", "accents", "-q").exit == 0
    assert built("add", "gallery.h5", f"queries/{decomposed}").exit == 0
    assert set(labels().values()) == {composed, "bee"}


def test_images_beside_folders_are_ambiguous(built: Runner) -> None:
    make_images(built.here / "new" / "ant", ["old"], first=20)
    before = Path("gallery.h5").read_bytes()
    outcome = built("add", "gallery.h5", "new/ant")
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err == (
        "error: new/ant: contains both images, like a class folder, and folders, which may be "
        "classes; name its files or folders one by one, or put all images into one class with --class ant\n"
    )
    assert Path("gallery.h5").read_bytes() == before
    assert built("add", "gallery.h5", "new/ant", "--class", "ant").exit == 0
    assert labels()["new/ant/old/20.png"] == "ant"
    # Queries need no class: those that are not in a folder of their own have no truth.
    truths = {row["path"]: row["truth"] for row in rows(built("classify", "new/ant", "-q").out)}
    assert set(truths.values()) == {""}


def test_a_folder_of_no_class_is_refused(built: Runner) -> None:
    Path("new/ant").rename("new/photos")
    outcome = built("add", "gallery.h5", "new/photos")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: new/photos: contains files but no class folders, and is not named after a class of "
        "gallery.h5; name the class of its images with --class NAME\n"
    )
    assert built("add", "gallery.h5", "new/photos", "--class", "ant").exit == 0
    assert labels()["new/photos/10.png"] == "ant"


def test_a_new_class_is_named(built: Runner) -> None:
    Path("Downloads").mkdir()
    draw_image(3, 0).save("Downloads/IMG_0001.png")
    outcome = built("add", "gallery.h5", "Downloads/IMG_0001.png")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.splitlines()[:2] == [
        "note: class Downloads is new: 1 example, such as Downloads/IMG_0001.png",
        "added: Downloads/IMG_0001.png",
    ]
    again = built("add", "gallery.h5", "Downloads/IMG_0001.png")
    assert "is new" not in again.err
    wrong = built("add", "gallery.h5", "new/bee", "--class", "bea", "--json")
    assert json.loads(wrong.out)["notes"] == ["class bea is new: 4 examples, such as new/bee/10.png"]


def test_the_class_can_be_chosen_for_features(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    assert crnr("build", "gallery.npz", "-q").exit == 0
    np.savez("new.npz", features=np.eye(6, dtype=np.float32)[:2])
    unlabelled = crnr("add", "gallery.h5", "new.npz")
    assert (unlabelled.exit, unlabelled.out) == (1, "")
    assert unlabelled.err.startswith("error: new.npz: no labels; ")
    assert crnr("add", "gallery.h5", "new.npz", "--class", "bee").exit == 0
    assert {name: label for name, label in labels().items() if name.startswith("new")} == {
        "new.npz#0": "bee",
        "new.npz#1": "bee",
    }


@pytest.mark.parametrize("name", ["", "unknown", "ANT"])
def test_a_class_that_cannot_be(built: Runner, name: str) -> None:
    before = Path("gallery.h5").read_bytes()
    outcome = built("add", "gallery.h5", "new/ant", "--class", name)
    assert outcome.exit == (1 if name else 2)
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert Path("gallery.h5").read_bytes() == before


def test_stray_files_beside_class_folders_are_left_out_as_before(built: Runner) -> None:
    draw_image(0, 99).save("new/stray.png")
    outcome = built("add", "gallery.h5", "new")
    assert outcome.exit == 3
    assert "failed: new/stray.png: not in a class folder\n" in outcome.err


def test_a_chosen_class_is_verified_by_the_content_alone(built: Runner) -> None:
    Path("Downloads").mkdir()
    draw_image(0, 50).save("Downloads/one.png")
    assert built("add", "gallery.h5", "Downloads/one.png", "--class", "ant").exit == 0
    sources = ("--source", "gallery", "--source", "Downloads")
    assert built("verify", "gallery.h5", *sources).exit == 0
    draw_image(0, 51).save("Downloads/one.png")
    assert built("verify", "gallery.h5", *sources).exit == 1
    # The folder of another class does say something, and so does a class folder that was renamed.
    Path("Downloads").rename("bee")
    draw_image(0, 50).save("bee/one.png")
    assert built("verify", "gallery.h5", "--source", "gallery", "--source", "bee").exit == 1
    Path("gallery/ant").rename("gallery/ants")
    assert built("verify", "gallery.h5", "--source", "gallery").exit == 1
