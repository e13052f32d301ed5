"""A folder of one class as a source, and the class of samples that are added."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.gallery.file import load_gallery
from crnr_cli.sources.base import InputOptions
from crnr_cli.sources.opening import open_examples
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
    assert (outcome.exit, outcome.out) == (1, "")
    outcome = built("add", "gallery.h5", "Downloads/IMG_0001.png", "--class", "dog")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.splitlines()[:3] == [
        "note: class dog is new: 1 example, such as Downloads/IMG_0001.png",
        "note: class dog has only one example, which crnr cannot hold out: --calibrate, tune, compare and "
        "audit do not test such a class; add more examples",
        "added: Downloads/IMG_0001.png",
    ]
    again = built("add", "gallery.h5", "Downloads/IMG_0001.png", "--class", "dog")
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


def examples(crnr: Runner, gallery: str = "gallery.h5") -> list[dict[str, str]]:
    return rows(crnr("info", gallery, "--list-examples").out)


CLASS_FOLDERS = ("gallery/ant", "gallery/bee", "gallery/cow")


@pytest.mark.parametrize(
    "more", [[], ["--update"], ["--cache", "cache.h5"]], ids=["build", "update", "cache"]
)
def test_class_folders_named_one_by_one_give_the_gallery_of_their_folder(
    built: Runner, more: list[str]
) -> None:
    named = built("build", *CLASS_FOLDERS, "-o", "named.h5", *more)
    assert (named.exit, named.out, named.err.count("\n")) == (0, "", 1)
    assert examples(built, "named.h5") == examples(built)
    answers = [built("classify", "new", "-g", gallery, "-q").out for gallery in ("gallery.h5", "named.h5")]
    assert answers[0] == answers[1]
    again = built("build", "gallery", "-o", "named.h5", "--update")
    assert "0 added, 0 changed, 0 removed" in again.err


def test_files_beside_class_folders_have_no_class(built: Runner) -> None:
    """As with `build gallery`; the shell expands `gallery/*` to such files too."""
    draw_image(0, 99).save("gallery/stray.png")
    Path("gallery/README").write_text("x")
    whole, named = (
        built("build", *source, "-o", "x.h5", "--json")
        for source in (["gallery"], ["gallery/README", *CLASS_FOLDERS, "gallery/stray.png"])
    )
    assert (whole.exit, named.exit) == (3, 3)
    left_out = [json.loads(one.out)["left_out"] for one in (whole, named)]
    assert left_out[0] == left_out[1]
    assert json.loads(named.out)["classes"] == json.loads(whole.out)["classes"]


def test_folders_of_one_name_are_one_class(crnr: Runner) -> None:
    for day in (1, 2):
        make_images(crnr.here / f"day{day}", first=10 * day)
    sources = [f"day{day}/{name}" for day in (1, 2) for name in ("ant", "bee")]
    assert crnr("build", *sources).exit == 0
    found = labels()
    assert len(found) == 16
    assert {name: label for name, label in found.items() if name.split("/")[1] != label} == {}
    # Next to a folder of classes too, if it has the class.
    assert crnr("build", "day1", "day2/ant", "-o", "gallery.h5").exit == 0
    assert labels() == {name: name.split("/")[1] for name in labels()}
    assert len(labels()) == 16


def test_empty_class_folders_are_noted_by_either_way(built: Runner) -> None:
    Path("gallery/dog").mkdir()
    errors = [
        built("build", *source, "-o", "x.h5").err for source in (["gallery"], [*CLASS_FOLDERS, "gallery/dog"])
    ]
    for text in errors:
        assert text.startswith("note: class dog: left out, because the folder is empty\n")


def test_new_class_folders_are_added_and_noted(built: Runner) -> None:
    make_images(built.here / "more", ["ant", "dog", "elk"], first=20)
    outcome = built("add", "gallery.h5", "more/ant", "more/dog", "more/elk")
    assert outcome.exit == 0
    assert [line for line in outcome.err.splitlines() if "is new" in line] == [
        f"note: class {name} is new: 4 examples, such as more/{name}/20.png" for name in ("dog", "elk")
    ]
    assert {name.split("/")[1]: label for name, label in labels().items() if name.startswith("more")} == {
        name: name for name in ("ant", "dog", "elk")
    }
    assert built("verify", "gallery.h5", *(f"--source={path}" for path in CLASS_FOLDERS)).exit == 1
    assert (
        built(
            "verify",
            "gallery.h5",
            "--source",
            "gallery",
            "--source=more/ant",
            "--source=more/dog",
            "--source=more/elk",
        ).exit
        == 0
    )


@pytest.mark.parametrize("command", ["audit", "compare", "tune", "split", "extract"])
def test_other_commands_take_class_folders_one_by_one(built: Runner, command: str) -> None:
    outputs = []
    for sources in (["gallery"], CLASS_FOLDERS):
        options = {
            "compare": ["--holdout", "0.5", "--json"],
            "tune": ["--json", "--methods", "crnr", "--folds", "2"],
            "audit": ["--csv", "audit.csv"],
            "split": ["--train", "train", "--test", "test", "--dry-run"],
            "extract": ["-o", "features.h5", "-q"],
        }[command]
        outcome = built(command, *sources, *options)
        assert outcome.exit == 0, outcome.err
        if command == "extract":
            assert built("build", "features.h5", "-o", "x.h5", "-q").exit == 0
            outputs.append(examples(built, "x.h5"))
        elif command == "audit":
            outputs.append(Path("audit.csv").read_text())
        elif command == "split":
            outputs.append(outcome.out)
        else:
            found = json.loads(outcome.out)
            outputs.append(without_times(found))
    assert outputs[0] == outputs[1]


def without_times(found: object) -> object:
    """Return decoded JSON without the values that measure time or repeat the command."""
    if isinstance(found, dict):
        return {
            key: without_times(value)
            for key, value in found.items()
            if key != "command" and not key.endswith(("seconds", "_ms"))
        }
    return [without_times(one) for one in found] if isinstance(found, list) else found


names = st.text(st.sampled_from("aAbé ._-1"), min_size=1, max_size=4).filter(lambda name: name.strip("."))


@given(st.dictionaries(names, st.sets(names, min_size=1, max_size=3), min_size=2, max_size=4))
def test_a_folder_and_its_class_folders_give_the_same_listing(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, set[str]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for folder, files in tree.items():
        (root / folder).mkdir(exist_ok=True)
        for file in files:
            (root / folder / file).write_text("")
    one_by_one = sorted(str(path) for path in root.iterdir() if not path.name.startswith("."))
    if sum(any(file[0] != "." for file in tree[Path(path).name]) for path in one_by_one) < 2:
        return
    whole, named = (
        list(open_examples(source, InputOptions()).listing()) for source in ([str(root)], one_by_one)
    )
    assert named == whole


def test_a_link_to_a_folder_above_makes_no_class(built: Runner) -> None:
    before = examples(built)
    for place, target in (
        ("gallery/ant/loop", ".."),
        ("gallery/bee/up", "../.."),
        ("gallery/me", "."),
        ("gallery/ant/own", "."),
    ):
        Path(place).symlink_to(target)
    for sources in (["gallery"], CLASS_FOLDERS):
        outcome = built("build", *sources, "-o", "x.h5")
        assert (outcome.exit, outcome.out) == (0, "")
        assert outcome.err.count("\n") == 1 or "replaced" in outcome.err
        assert "class" not in outcome.err.replace("classes", "")
        assert examples(built, "x.h5") == before
    alone = built("build", "gallery/ant", "-o", "y.h5")
    assert (alone.exit, alone.out) == (1, "")
    assert alone.err.startswith("error: gallery/ant: contains images but no class folders; ")
    assert [row["path"] for row in rows(built("classify", "gallery/ant", "-q").out)] == [
        f"gallery/ant/{i}.png" for i in range(4)
    ]


def test_a_dangling_link_is_a_missing_file(built: Runner) -> None:
    Path("gallery/ant/gone.png").symlink_to("nowhere.png")
    before = examples(built)
    for sources in (["gallery"], CLASS_FOLDERS, ["gallery/ant/gone.png", "gallery"]):
        outcome = built("build", *sources, "-o", "x.h5")
        assert (outcome.exit, outcome.out) == (3, "")
        assert "failed: gallery/ant/gone.png: no such file\n" in outcome.err
        assert examples(built, "x.h5") == before
    outcome = built("classify", "gallery/ant", "-q")
    assert outcome.exit == 3
    statuses = {row["path"]: row["status"] for row in rows(outcome.out)}
    assert statuses == {f"gallery/ant/{i}.png": "ok" for i in range(4)} | {"gallery/ant/gone.png": "vanished"}
    assert built("classify", "gallery/ant/gone.png", "-q").exit == 3
