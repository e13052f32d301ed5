"""What queries need of a gallery: the names of its classes in any form, and its network, wherever it is."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from crnr_cli.errors import UsageError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.queries import make_class_chooser, with_model_at
from crnr_cli.recipe.network import Network
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
