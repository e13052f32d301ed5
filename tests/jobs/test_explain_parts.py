"""Explain, for galleries with parts: every part is classified separately, with a signed margin."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.jobs.explain import ExplainReport, explain
from helpers.runner import Runner, rows
from helpers.samples import CLASSES, draw_image, make_images

SIDE, TILE, PER_CLASS = 16, 8, 4
LAM = 1e-3  # of crc, by default


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Galleries of 2x2 tiles, and an ant (column by column brighter) whose first tile is from a bee."""
    crnr = Runner(tmp_path_factory.mktemp("parts"))
    make_images(crnr.here / "gallery", per_class=PER_CLASS, size=(SIDE, SIDE))
    ant, bee = (draw_image(number, 9, (SIDE, SIDE)) for number in (0, 1))
    ant.paste(bee.crop((0, 0, TILE, TILE)))
    (crnr.here / "ant").mkdir()
    ant.save(crnr.here / "ant" / "mixed.png")
    for method in ("crnr", "crc", "nn", "svm"):
        build = ("build", "gallery", "--extractor", "pixels", "--parts", "2x2", "--dtype", "float64")
        assert crnr(*build, "--method", method, "-o", f"{method}.h5", "-q").exit == 0
    return crnr


def explained(crnr: Runner, *arguments: object) -> list[dict[str, Any]]:
    result = crnr("explain", *arguments, "--json")
    assert (result.exit, result.err) == (0, "")
    return json.loads(result.out)["explanations"]


def plain_tiles(path: Path) -> list[np.ndarray]:
    """Return the four tiles of an image, row by row: without their mean, of unit length."""
    pixels = np.asarray(Image.open(path), dtype=float)
    tiles = [pixels[i : i + TILE, j : j + TILE].ravel() for i in (0, TILE) for j in (0, TILE)]
    return [(tile - tile.mean()) / np.linalg.norm(tile - tile.mean()) for tile in tiles]


def gallery_tiles(here: Path) -> np.ndarray:
    """(classes, samples, tiles, values)."""
    return np.array(
        [[plain_tiles(here / f"gallery/{name}/{i}.png") for i in range(PER_CLASS)] for name in CLASSES]
    )


def plain_margin(own: float, other: float) -> float:
    return 1 - own / other if own <= other else other / own - 1


def check_parts(parts: list[dict[str, Any]], expected: np.ndarray, label: str) -> None:
    """Against residuals (tiles, classes)."""
    assert [(part["row"], part["column"]) for part in parts] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for part, residuals in zip(parts, expected.tolist(), strict=True):
        assert list(part["residuals"]) == list(CLASSES)
        assert list(part["residuals"].values()) == pytest.approx(residuals, abs=1e-9)
        of_class = dict(zip(CLASSES, residuals, strict=True))
        assert part["label"] == min(of_class, key=of_class.__getitem__)
        other = min(value for name, value in of_class.items() if name != label)
        assert part["margin"] == pytest.approx(plain_margin(of_class[label], other), abs=1e-7)


def test_crc_by_the_plain_formula(built: Runner) -> None:
    """Ridge regression on every tile; the residuals and weights shown are means over the tiles."""
    (answer,) = explained(built, "ant/mixed.png", "-g", "crc.h5")
    gallery, query = gallery_tiles(built.here), plain_tiles(built.here / "ant/mixed.png")
    residuals, codes = np.empty((4, 3)), []
    for tile in range(4):
        X = gallery[:, :, tile].reshape(-1, TILE * TILE).T
        code = np.linalg.solve(X.T @ X + LAM * np.eye(X.shape[1]), X.T @ query[tile])
        codes.append(code)
        for i, own in enumerate(code.reshape(3, PER_CLASS)):
            left = np.linalg.norm(query[tile] - gallery[i, :, tile].T @ own)
            residuals[tile, i] = left / np.linalg.norm(own)
    assert list(answer["residuals"].values()) == pytest.approx(residuals.mean(axis=0).tolist(), rel=1e-7)
    check_parts(answer["parts"], residuals, answer["label"])
    mean = np.mean(codes, axis=0)
    names = [f"gallery/{name}/{i}.png" for name in CLASSES for i in range(PER_CLASS)]
    largest = np.argsort(-np.abs(mean))[:8]
    assert [sample["name"] for sample in answer["strongest"]] == [names[i] for i in largest]
    weights = [sample["weight"] for sample in answer["strongest"]]
    assert weights == pytest.approx(mean[largest].tolist(), rel=1e-7)
    shares = np.maximum(mean, 0).reshape(3, PER_CLASS).sum(axis=1) / np.maximum(mean, 0).sum()
    assert list(answer["weight_shares"].values()) == pytest.approx(shares.tolist(), rel=1e-7)


def test_nn_by_the_plain_formula(built: Runner) -> None:
    """Every tile has a nearest sample of its own; the one that is named has the largest mean cosine."""
    (answer,) = explained(built, "ant/mixed.png", "-g", "nn.h5")
    gallery, query = gallery_tiles(built.here), np.array(plain_tiles(built.here / "ant/mixed.png"))
    residuals = (np.square(gallery - query).sum(axis=3) / 2).min(axis=1).T
    check_parts(answer["parts"], residuals, answer["label"])
    assert answer["label"] == "ant"
    cosines = (gallery[0] * query).sum(axis=2).mean(axis=1)
    assert answer["nearest"]["name"] == f"gallery/ant/{cosines.argmax()}.png"
    assert answer["nearest"]["weight"] == pytest.approx(cosines.max(), rel=1e-7)
    shown = built("explain", "ant/mixed.png", "-g", "nn.h5").out
    assert f"nearest example {answer['nearest']['name']} with mean cosine {cosines.max():.4f};" in shown


@pytest.mark.parametrize("method", ["crnr", "crc", "nn"])
def test_the_tile_of_another_class_is_not_believed(built: Runner, method: str) -> None:
    (answer,) = explained(built, "ant/mixed.png", "-g", f"{method}.h5")
    assert answer["label"] == "ant"
    assert [part["label"] for part in answer["parts"]] == ["bee", "ant", "ant", "ant"]
    assert [part["margin"] > 0 for part in answer["parts"]] == [False, True, True, True]


@pytest.mark.parametrize("method", ["crnr", "crc", "nn", "svm"])
def test_explain_with_parts_gives_the_answer_of_classify(built: Runner, method: str) -> None:
    (answer,) = explained(built, "ant/mixed.png", "-g", f"{method}.h5")
    (row,) = rows(built("classify", "ant/mixed.png", "-g", f"{method}.h5", "-q").out)
    assert (answer["label"], answer["runner_up"]) == (row["label"], row["runner_up"])
    assert answer["margin"] == pytest.approx(float(row["margin"]), rel=1e-5)
    for name in CLASSES:
        assert answer["residuals"][name] == pytest.approx(float(row[f"residual:{name}"]), rel=1e-5)
        mean = sum(part["residuals"][name] for part in answer["parts"]) / 4
        assert answer["residuals"][name] == pytest.approx(mean, rel=1e-9)


def test_scores_give_the_margin_of_scores(built: Runner) -> None:
    (answer,) = explained(built, "ant/mixed.png", "-g", "svm.h5")
    label = answer["label"]
    assert {part["margin"] > 0 for part in answer["parts"]} == {True, False}
    for part in answer["parts"]:
        gap = min(value for name, value in part["residuals"].items() if name != label)
        gap -= part["residuals"][label]
        assert part["margin"] == pytest.approx(math.copysign(1 - math.exp(-abs(gap)), gap), rel=1e-9)


@pytest.mark.parametrize("other", ["nrc", "nn", "svm"])
def test_another_method_is_fitted_part_by_part(built: Runner, other: str) -> None:
    first, second = explained(built, "ant/mixed.png", "-g", "crc.h5", "--compare-with", other)
    assert (first["method"], second["method"]) == ("crc", other)
    if other == "nrc":
        method = ("--method", "nrc", "-o", "own.h5", "-q")
        built("build", "gallery", "--extractor", "pixels", "--parts", "2x2", "--dtype", "float64", *method)
    (expected,) = explained(built, "ant/mixed.png", "-g", "own.h5" if other == "nrc" else f"{other}.h5")
    assert second["label"] == expected["label"]
    assert (second["weight_shares"] is None) == (expected["weight_shares"] is None)
    assert second["residuals"] == pytest.approx(expected["residuals"], rel=1e-9)
    for ours, theirs in zip(second["parts"], expected["parts"], strict=True):
        assert (ours["label"], ours["margin"]) == (theirs["label"], pytest.approx(theirs["margin"], abs=1e-9))
        assert ours["residuals"] == pytest.approx(theirs["residuals"], rel=1e-9)


def report_of(crnr: Runner, query: str, gallery: str) -> ExplainReport:
    return explain(str(crnr.here / query), crnr.here / gallery, QueryOptions())


def test_a_blank_tile_supports_no_class(built: Runner) -> None:
    ant = draw_image(0, 9, (SIDE, SIDE))
    ant.paste(77, (TILE, 0, SIDE, TILE))
    ant.save(built.here / "blank.png")
    report = report_of(built, "blank.png", "crnr.h5")
    blank = report.parts(report.explanations[0])[1]
    assert (blank.label, blank.margin, blank.is_against) == (None, 0.0, False)
    assert blank.residuals.tolist() == [0, 0, 0]
    shown = built("explain", "blank.png", "-g", "crnr.h5").out
    assert "\n3 of 4 tiles support ant, 0 contradict it, 1 is undecided:\n" in shown
    assert "   0.00\n" in shown


def test_colour_is_a_part_with_a_name(crnr: Runner) -> None:
    rng = np.random.default_rng(0)
    for name, color in (("red", (200, 20, 20)), ("green", (20, 200, 20))):
        (crnr.here / "g" / name).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 50, (32, 32, 3)) + color
            Image.fromarray(pixels.astype(np.uint8)).save(crnr.here / "g" / name / f"{i}.png")
    assert crnr("build", "g", "--parts", "2x3", "-o", "g.h5", "-q").exit == 0
    (crnr.here / "g/red/3.png").rename(crnr.here / "query.png")
    (answer,) = explained(crnr, "query.png", "-g", "g.h5")
    assert [(part.get("row"), part.get("column"), part.get("name")) for part in answer["parts"]] == [
        *((row, column, None) for row in (1, 2) for column in (1, 2, 3)),
        (None, None, "colour"),
    ]
    assert answer["parts"][-1]["label"] == "red"
    shown = crnr("explain", "query.png", "-g", "g.h5").out
    assert f"\n  colour: {answer['parts'][-1]['margin']:+.2f}\n" in shown


def test_explain_without_parts_prints_no_parts(built: Runner) -> None:
    built("build", "gallery", "-o", "whole.h5", "-q")
    (answer,) = explained(built, "ant/mixed.png", "-g", "whole.h5")
    assert "parts" not in answer
    report = report_of(built, "ant/mixed.png", "whole.h5")
    assert (report.grid, report.parts(report.explanations[0])) == (None, [])
    assert "part" not in built("explain", "ant/mixed.png", "-g", "whole.h5").out
