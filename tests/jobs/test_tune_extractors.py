"""Tune and compare with several ways to turn images into vectors."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crnr_cli.gallery.file import load_gallery
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import Decoded, DecoderPool
from crnr_cli.jobs import tune as job
from crnr_cli.recipe.gradients import Gradients
from crnr_cli.recipe.pixels import RawPixels
from helpers.runner import Runner


@pytest.fixture(autouse=True)
def few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "LAMS", (0.01, 1.0))
    monkeypatch.setattr(job, "MUS", (0.1,))


def stripes(angle: float, seed: int, size: int = 24) -> Image.Image:
    """Stripes in a direction, of any phase, width and contrast: classes differ in the direction alone."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    along = rng.uniform(0.7, 1.4) * (x * np.cos(angle) + y * np.sin(angle))
    waves = np.sin(along + rng.uniform(0, 2 * np.pi))
    values = rng.uniform(90, 160) + rng.uniform(20, 80) * waves + rng.normal(0, 3, (size, size))
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


@pytest.fixture
def striped(crnr: Runner) -> Runner:
    for number, angle in enumerate((0.2, 0.9, 1.6, 2.3)):
        for part, first in (("gallery", 0), ("queries", 100)):
            folder = crnr.here / part / f"class{number}"
            folder.mkdir(parents=True)
            for k in range(6):
                stripes(angle, 1000 * number + first + k).save(folder / f"{k}.png")
    return crnr


def test_extractors_take_turns_and_the_chosen_one_is_built(striped: Runner) -> None:
    result = striped("tune", "gallery", "--try-power", "1", "-o", "tuned.h5", "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    record = json.loads(result.out)
    tried = {(trial["extractor"], trial.get("cell")) for trial in record["trials"]}
    assert tried == {("gradients", 2), ("gradients", 3), ("gradients", 5), ("pixels", None)}
    best = dict.fromkeys(tried, 0.0)
    for trial in record["trials"]:
        name = (trial["extractor"], trial.get("cell"))
        best[name] = max(best[name], trial["accuracy"])
    # Pixels see the phase and the width of the stripes.
    assert best["gradients", 3] == 1 > best["pixels", None]
    assert record["paper"]["extractor"] == record["chosen"]["extractor"] == "gradients"
    built = load_gallery(Path("tuned.h5"))
    assert built.recipe.extractor == Gradients((24, 24), color=False, cell=record["chosen"]["cell"])
    assert striped("build", "gallery", "-o", "same.h5", "-q", "--cell", record["chosen"]["cell"]).exit == 0
    np.testing.assert_array_equal(load_gallery(Path("same.h5")).samples.vectors, built.samples.vectors)


def test_images_are_decoded_once_for_extractors_that_need_the_same_pixels(
    striped: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = DecoderPool.decode
    decoded: list[str] = []

    def watched(pool: DecoderPool, paths: Sequence[str], request: PixelRequest) -> Generator[Decoded]:
        decoded.extend(paths if request.size == (24, 24) else [])
        return decode(pool, paths, request)

    monkeypatch.setattr(DecoderPool, "decode", watched)
    assert striped("tune", "gallery", "--budget", "0", "-q", "--json").exit == 0
    assert len(decoded) == len(set(decoded)) == 24


@pytest.mark.parametrize(
    ("options", "tried"),
    [
        ("--extractor pixels", {"pixels"}),
        ("--extractor gradients --cell 4", {"gradients 4"}),
        ("--cell 6", {"gradients 6"}),
        ("--extractor gradients", {"gradients 2", "gradients 3", "gradients 5"}),
    ],
)
def test_tune_does_not_vary_given_settings(striped: Runner, options: str, tried: set[str]) -> None:
    result = striped("tune", "gallery", *options.split(), "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    trials = json.loads(result.out)["trials"]
    assert {f"{one['extractor']} {one.get('cell', '')}".strip() for one in trials} == tried


def test_tune_tries_parts_on_request(striped: Runner) -> None:
    result = striped("tune", "gallery", "--extractor", "pixels", "--try-parts", "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    trials = json.loads(result.out)["trials"]
    assert {trial["parts"] for trial in trials} == {None, "2x2", "4x4"}
    named = striped("tune", "gallery", "--try-parts", "3x2", "--try-power", "1", "-o", "tuned.h5", "-q")
    assert named.exit == 0
    assert load_gallery(Path("tuned.h5")).recipe.settings["parts"] == "3x2"


def test_tune_tries_the_cells_of_each_grid(striped: Runner) -> None:
    """The cells of whole images, as far as they fit into the grid, and about a quarter of a tile."""
    options = ("--size", "32x32", "--extractor", "gradients", "--try-power", "1", "--json", "-q")
    result = striped("tune", "gallery", "--try-parts", "0,10x10", *options)
    assert (result.exit, result.err) == (0, "")
    trials = json.loads(result.out)["trials"]
    for parts, cells in ((None, {4, 6, 2}), ("10x10", {2})):
        assert {one["cell"] for one in trials if one["parts"] == parts} == cells
    options = ("--size", "64x64", "--extractor", "gradients", "--try-power", "1", "--json", "-q")
    trials = json.loads(striped("tune", "gallery", "--try-parts", "6x6,0", *options).out)["trials"]
    for parts, cells in ((None, {8, 12, 4}), ("6x6", {8, 4, 3})):
        assert {one["cell"] for one in trials if one["parts"] == parts} == cells


@pytest.mark.slow
def test_combinations_that_are_impossible_are_left_out(striped: Runner) -> None:
    result = striped("tune", "gallery", "--try-parts", "0,7x7,12x12", "--try-pca", "0,3", "--json")
    assert result.exit == 0
    trials = json.loads(result.out)["trials"]
    # Cells of 2 make 11 x 11 blocks, cells of 3 make 7 x 7, cells of 5 make 4 x 4.
    assert {(one["extractor"], one.get("cell")) for one in trials if one["parts"] == "7x7"} == {
        ("gradients", 2),
        ("gradients", 3),
        ("pixels", None),
    }
    assert {one["extractor"] for one in trials if one["parts"] == "12x12"} == {"pixels"}
    assert not any(one["parts"] and one["pca"] for one in trials)
    notes = [line for line in result.err.splitlines() if line.startswith("note: not tried: ")]
    assert any("--parts 12x12: choose at most 11x11" in note for note in notes)
    assert any("--parts cannot be combined with --pca" in note for note in notes)


def test_nothing_possible_is_an_error(striped: Runner) -> None:
    result = striped("tune", "gallery", "--extractor", "gradients", "--try-parts", "50x50")
    assert (result.exit, result.out) == (2, "")
    assert result.err.splitlines()[-1].startswith("error: --parts 50x50: choose at most 11x11 for gradients")


def test_an_image_that_one_extractor_cannot_use_is_left_out_of_all(crnr: Runner) -> None:
    """Red and green of the same brightness: gradients see its colours, but its grey pixels are the same."""
    for number, angle in enumerate((0.2, 1.6)):
        folder = crnr.here / "gallery" / f"class{number}"
        folder.mkdir(parents=True)
        for k in range(4):
            grey = np.asarray(stripes(angle, 10 * number + k))
            Image.fromarray(np.dstack([grey, 255 - grey, grey // 2])).save(folder / f"{k}.png")
    halves = np.zeros((24, 24, 3), np.uint8)
    halves[:, :12, 0], halves[:, 12:, 1] = 200, 102
    Image.fromarray(halves).save("gallery/class0/halves.png")
    assert len(np.unique(Image.fromarray(halves).convert("L"))) == 1
    left_out = "failed: gallery/class0/halves.png: nothing to compare: all of one colour"
    alone = crnr("tune", "gallery", "--extractor", "gradients", "--budget", "0", "--json")
    assert (alone.exit, json.loads(alone.out)["n"]) == (0, 9)
    both = crnr("tune", "gallery", "--budget", "0", "--json")
    assert (both.exit, json.loads(both.out)["n"]) == (3, 8)
    assert left_out in both.err.splitlines()


def test_the_command_that_is_shown_builds_the_chosen_gallery(striped: Runner) -> None:
    shown = striped("tune", "gallery", "--extractor", "pixels", "--budget", "0").err.splitlines()[-1]
    command = shown.removeprefix("to build a gallery with it: crnr ").split()
    assert command.count("--extractor") == 1
    assert striped(*command, "-o", "shown.h5", "-q").exit == 0
    assert load_gallery(Path("shown.h5")).recipe.extractor == RawPixels((24, 24))


@pytest.mark.slow
def test_compare_gives_all_methods_the_same_parts(striped: Runner) -> None:
    options = ("--parts", "2x2", "--methods", "crnr,nrc,crc,nn,nsc,svm", "--json", "-q")
    result = striped("compare", "gallery", "--test", "queries", *options)
    assert (result.exit, result.err) == (0, "")
    scores = {one["method"]: one["accuracy"] for one in json.loads(result.out)["methods"]}
    assert scores.keys() == {"crnr", "nrc", "crc", "nn", "nsc", "svm"}
    for name, accuracy in scores.items():
        assert striped("build", "gallery", "--parts", "2x2", "--method", name, "-q").exit == 0
        evaluated = json.loads(striped("evaluate", "queries", "--json", "-q").out)
        assert evaluated["accuracy"] == accuracy, name
