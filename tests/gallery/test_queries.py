"""What queries need of a gallery: the names of its classes in any form, and its network, wherever it is."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli import __version__
from crnr_cli.errors import GalleryError, UsageError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.queries import (
    QueryOptions,
    Run,
    check_queries,
    make_class_chooser,
    open_queries,
    with_calibration,
    with_model_at,
)
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import make_method
from crnr_cli.recipe.network import Network
from crnr_cli.sources.formats import Keys
from helpers.onnx_models import flat_model
from helpers.runner import Runner
from helpers.samples import make_features, make_images

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("is_labelled", [True, False])
@pytest.mark.parametrize("stored", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("given", [COMPOSED, DECOMPOSED])
def test_a_true_class_has_the_spelling_of_the_gallery(given: str, stored: str, is_labelled: bool) -> None:
    truth = make_class_chooser(["ant", stored], is_labelled=is_labelled)
    assert truth((given,)) == stored
    assert truth(("ant", given)) == "ant"


def test_the_true_class_of_an_image_is_a_class_and_that_of_a_row_any_label() -> None:
    by_folder, by_label = (make_class_chooser(["ant", "bee"], is_labelled=flag) for flag in (False, True))
    assert [by_folder(names) for names in (("x", "bee", "ant"), ("x",), ())] == ["bee", None, None]
    assert [by_label(names) for names in (("x",), ("bee",), ())] == ["x", "bee", None]
    assert by_label((DECOMPOSED,)) == DECOMPOSED


def test_a_moved_network_is_used_at_its_new_place(crnr: Runner) -> None:
    make_images(crnr.here / "photos")
    flat_model(crnr.here / "m.onnx", ["n", 3, 8, 8])
    assert crnr("build", "photos", "--extractor", "m.onnx", "--extractor-preset", "raw").exit == 0
    gallery = load_gallery(Path("gallery.h5"))
    Path("m.onnx").rename("moved.onnx")
    moved = with_model_at(Path("moved.onnx"), gallery, Path("gallery.h5"))
    before, after = gallery.recipe.extractor, moved.recipe.extractor
    assert isinstance(before, Network)
    assert isinstance(after, Network)
    assert (before.model, after.model) == (str(crnr.here / "m.onnx"), str(crnr.here / "moved.onnx"))
    # Only the place is another: not next to the gallery either, where another file of this name may be.
    assert after == replace(before, model=after.model)
    assert before.folder is not None
    assert (after.folder, after.session) == (None, None)
    assert replace(moved, recipe=gallery.recipe) == gallery
    assert after.open(1).provider == "cpu"


@pytest.mark.parametrize("source", ["photos", "features.npz"])
def test_a_gallery_without_a_network_takes_no_model(crnr: Runner, source: str) -> None:
    make_images(crnr.here / "photos")
    make_features(crnr.here / "features.npz")
    assert crnr("build", source, "-o", "gallery.h5").exit == 0
    with pytest.raises(UsageError) as refused:
        with_model_at(Path("m.onnx"), load_gallery(Path("gallery.h5")), Path("gallery.h5"))
    assert str(refused.value) == "gallery.h5: was built without a network; leave out m.onnx"


def gallery_of_features(crnr: Runner, *options: str) -> FittedGallery:
    make_features(crnr.here / "x.npz")
    assert crnr("build", "x.npz", "-q", *options).exit == 0
    return load_gallery(Path("gallery.h5"))


def prepare(gallery: FittedGallery, **options: Any) -> Run:
    chosen = QueryOptions(**options)
    return Run.prepare(gallery, open_queries(["x.npz"], gallery, chosen), chosen)


def test_everything_that_the_output_depends_on_identifies_a_run(crnr: Runner) -> None:
    gallery = gallery_of_features(crnr, "--calibrate")
    plain = prepare(gallery).identity()
    assert (plain["crnr"], plain["gallery"], plain["number of inputs"]) == (__version__, gallery.sha256, 15)
    assert plain["--provider"] is None
    changes: dict[str, dict[str, Any]] = {
        "--reject": {"reject": 0.1},
        "--min-probability": {"min_probability": 0.5},
        "--sets": {"sets": 0.8},
        "--top": {"top": 2},
        "--format": {"format": "jsonl"},
        "--max-pixels": {"max_pixels": 99},
        "--features-key": {"keys": Keys(features="features")},
        "--labels-key": {"keys": Keys(labels="labels")},
        "--samples-axis": {"keys": Keys(samples="rows")},
        "batch": {"batch_size": 3},
    }
    for name, change in changes.items():
        other = prepare(gallery, **change).identity()
        assert {key for key in plain if plain[key] != other[key]} == {name}
    assert prepare(gallery, jobs=1, provider="cpu").identity() == plain
    others = {"crnr", "gallery", "--provider", "--dates", "number of inputs", "list of inputs"}
    assert plain.keys() == {*changes, *others}


def test_the_rule_for_rejecting_queries_is_described(crnr: Runner) -> None:
    gallery = gallery_of_features(crnr, "--calibrate")
    assert gallery.calibration is not None
    rule = gallery.calibration.describe_rule(0.1, "float32")
    assert prepare(gallery).rejection_rule() is None
    assert prepare(gallery, reject=0.1).rejection_rule() == rule
    assert prepare(gallery, min_probability=0.5).rejection_rule() == "probability below 0.5"
    both = prepare(gallery, reject=0.1, min_probability=0.5)
    assert both.rejection_rule() == f"{rule}; or probability below 0.5"
    assert both.min_separation == gallery.calibration.min_standout(0.1)
    assert prepare(gallery).min_separation == 0
    assert prepare(replace(gallery, calibration=None)).rejection_rule() is None


def test_a_run_has_notes_on_what_it_writes(crnr: Runner) -> None:
    gallery = gallery_of_features(crnr, "--calibrate")
    assert prepare(gallery).notes() == []
    (note,) = prepare(gallery, sets=0.999).notes()
    assert (note.kind, note.text) == (
        "sets",
        "--sets 0.999 excludes no label: too few examples could be held out of the gallery (15 examples) for "
        "so high a level; choose a lower one, or add examples",
    )
    assert prepare(gallery, sets=0.5).notes() == []


@pytest.mark.parametrize(
    ("n_classes", "top", "written"),
    [(1000, None, None), (1001, None, 5), (1001, 0, None), (1001, 7, 7), (3, 2, 2), (3, 0, None)],
)
def test_only_the_best_of_many_classes_are_written(
    crnr: Runner, n_classes: int, top: int | None, written: int | None
) -> None:
    few = gallery_of_features(crnr)
    gallery = replace(few, classes=[*few.classes, *map(str, range(n_classes - 3))])
    run = prepare(gallery, top=top)
    assert run.top == written
    text = (
        "of 1001 classes, the 5 best of each query are written; choose how many with --top, or --top 0 for "
        "the residuals of all"
    )
    expected = [("top", text)] if top is None and written else []
    assert [(note.kind, note.text) for note in run.notes()] == expected


def test_a_gallery_of_one_class_classifies_nothing(crnr: Runner) -> None:
    gallery = gallery_of_features(crnr)
    with pytest.raises(GalleryError) as refused:
        check_queries(open_queries(["x.npz"], gallery, QueryOptions()), replace(gallery, classes=["ant"]))
    assert str(refused.value) == (
        "the gallery: has only one class, ant; add examples of another class with `crnr add GALLERY "
        "FOLDER --class NAME`"
    )


def test_a_gallery_is_calibrated_only_if_options_need_it(crnr: Runner) -> None:
    plain = gallery_of_features(crnr)
    full = plain.calibrate(1)
    assert full.calibration is not None
    old = replace(full, calibration=replace(full.calibration, certainty=None))
    perfect = replace(full.calibration, standouts=np.array([0.5, 1.0]))
    outdated = replace(full, method=make_method("crc", {}), calibration=perfect)
    done: list[bool] = []

    def compute() -> FittedGallery:
        done.append(True)
        return full

    for gallery, options, expected in (
        (plain, {}, plain),
        (full, {}, full),
        (full, {"reject": 0.1, "min_probability": 0.5, "sets": 0.5}, full),
        (old, {"reject": 0.1}, old),
    ):
        assert with_calibration(gallery, QueryOptions(**options), compute) is expected
        assert done == []
    for gallery, options in (
        *((plain, {"min_probability": 0.5}), (plain, {"sets": 0.5}), (old, {"sets": 0.5})),
        *((old, {"min_probability": 0.0}), (outdated, {})),
    ):
        assert with_calibration(gallery, QueryOptions(**options), compute) is full
        assert done == [True]
        done.clear()
    # The column of probabilities is not written just because a rate was given.
    found = with_calibration(plain, QueryOptions(reject=0.0), compute).calibration
    assert found is not None
    assert (found.certainty, done) == (None, [True])
    np.testing.assert_array_equal(found.standouts, full.calibration.standouts)


def test_a_run_of_other_queries_keeps_the_open_network(crnr: Runner) -> None:
    make_images(crnr.here / "photos")
    flat_model(crnr.here / "m.onnx", ["n", 3, 8, 8])
    how = ("--extractor", "m.onnx", "--extractor-preset", "raw")
    assert crnr("build", "photos", *how, "-q").exit == 0
    assert crnr("extract", "photos", *how, "-o", "f.h5", "-q").exit == 0
    gallery = load_gallery(Path("gallery.h5"))
    images, features = (open_queries([name], gallery, QueryOptions()) for name in ("photos", "f.h5"))
    run = Run.prepare(gallery, images, QueryOptions())
    assert run.with_source(images).recipe is run.recipe
    other = run.with_source(features)
    assert (other.source, other.recipe.extractor, other.recipe.request) == (features, None, None)
    assert run.identity()["--provider"] == "auto"


def test_progress_is_counted_in_queries(crnr: Runner) -> None:
    seen: list[tuple[str, int, int]] = []
    gallery = gallery_of_features(crnr)
    answers = list(prepare(gallery, batch_size=6).answer(DecoderPool(1), lambda *step: seen.append(step)))
    assert [one.batch.end for one in answers] == [6, 12, 15]
    assert seen == [("classifying", done, 15) for done in (0, 6, 12, 15)]
    resumed = replace(prepare(gallery, batch_size=6), first=2)
    assert [one.batch.end for one in resumed.answer(DecoderPool(1))] == [15]
