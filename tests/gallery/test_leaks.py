"""Queries that are altered copies of examples are reported, and only candidates are read twice."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import ImageEnhance, ImageOps
from scipy.spatial.distance import cdist

from crnr_cli.arrays import Batch
from crnr_cli.gallery import scenes
from crnr_cli.gallery.scenes import find_candidates
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import Decoded, DecoderPool
from crnr_cli.results.decision import Nearest
from helpers.onnx_models import flat_model
from helpers.runner import Runner, split_command
from helpers.samples import draw_photo, make_images
from helpers.templates import Templates

NETWORK = ("--extractor", "m.onnx", "--extractor-preset", "raw", "--mirror")
PER_CLASS = 8
QUERIES = 5


def make_photos(crnr: Runner) -> None:
    for number, name in enumerate(("ant", "bee")):
        for side, first, count in (("gallery", 0, PER_CLASS), ("queries", 50, QUERIES)):
            folder = crnr.here / side / name
            folder.mkdir(parents=True)
            for seed in range(first, first + count):
                draw_photo(100 * number + seed).save(folder / f"{seed}.png")
    flat_model(crnr.here / "m.onnx", ["n", 3, 24, 24])
    assert crnr("build", "gallery", "-q").exit == 0
    assert crnr("build", "gallery", "-o", "network.h5", "-q", *NETWORK).exit == 0


@pytest.fixture
def photos(crnr: Runner, templates: Templates) -> Runner:
    """Galleries of photographs, and clean queries; with --mirror, a mirrored copy has the same vector."""
    templates.copy(make_photos, crnr.here)
    return crnr


def plant(kind: str) -> None:
    if kind == "near duplicate":
        altered = ImageEnhance.Brightness(draw_photo(3)).enhance(1.1).resize((100, 75))
    elif kind == "mirrored":
        altered = ImageOps.mirror(draw_photo(3).resize((127, 96)))
    else:
        altered = draw_photo(3).crop((2, 2, 118, 92))
    altered.save("queries/ant/planted.jpg")


def note(count: str, gallery: str = "gallery.h5") -> str:
    return (
        f"note: {count} the same scene, such as queries/ant/planted.jpg and gallery/ant/3.png, so the scores "
        f"are too high; `crnr audit {gallery} --queries queries` lists all\n"
    )


ONE = "1 of 11 queries is a near duplicate of an example or shows"


@pytest.mark.parametrize(
    ("gallery", "kind"),
    [
        ("gallery.h5", "near duplicate"),
        ("network.h5", "near duplicate"),
        ("network.h5", "mirrored"),
        ("network.h5", "cut"),
    ],
)
def test_evaluate_reports_altered_copies_of_examples(photos: Runner, gallery: str, kind: str) -> None:
    clean = photos("evaluate", "queries", "-g", gallery, "--json")
    assert (clean.exit, clean.err) == (0, "")
    assert json.loads(clean.out)["similar_in_gallery"] == 0
    plant(kind)
    result = photos("evaluate", "queries", "-g", gallery, "--html", "r.html")
    assert (result.exit, result.err) == (0, f"{note(ONE, gallery)}wrote r.html\n")
    assert result.out.startswith("accuracy ")
    assert ONE in Path("r.html").read_text()
    record = photos("evaluate", "queries", "-g", gallery, "--json", "-q")
    assert (record.exit, record.err) == (0, "")
    assert [json.loads(record.out)[key] for key in ("in_gallery", "similar_in_gallery")] == [0, 1]
    [command] = [part for part in result.err.split("`") if part.startswith("crnr ")]
    audited = photos(*split_command(command)[1:], "--json", "-q")
    listed = json.loads(audited.out)["queries_in_gallery"]
    assert ("queries/ant/planted.jpg", "gallery/ant/3.png") in [(one["query"], one["path"]) for one in listed]


@pytest.mark.parametrize(
    ("how", "kind"), [((), "near duplicate"), (NETWORK, "near duplicate"), (NETWORK, "cut")]
)
def test_compare_reports_altered_copies_among_the_test_images(
    photos: Runner, how: tuple[str, ...], kind: str
) -> None:
    arguments = ("compare", "gallery", "--test", "queries", "--methods", "crnr,nn", *how)
    clean = photos(*arguments)
    assert (clean.exit, clean.err.count("the same scene")) == (0, 0)
    plant(kind)
    draw_photo(3).save("queries/ant/copy.bmp")
    result = photos(*arguments)
    assert result.exit == 0
    one = ONE.replace("11", "12")
    found = "such as queries/ant/planted.jpg and gallery/ant/3.png, so the scores are too high"
    command, same = "crnr audit gallery --queries queries", ", with the same extractor options" if how else ""
    assert f"note: {one} the same scene, {found}; `{command}` lists all{same}\n" in result.err
    assert "note: 1 of 12 queries is in the gallery too, such as queries/ant/copy.bmp" in result.err
    audited = photos(*shlex.split(command)[1:], *how, "--json", "-q")
    listed = json.loads(audited.out)["queries_in_gallery"]
    assert ("queries/ant/planted.jpg", "gallery/ant/3.png") in [
        (each["query"], each["path"]) for each in listed
    ]


def test_evaluate_names_each_source_in_the_command_that_lists_similar_images(photos: Runner) -> None:
    plant("near duplicate")
    result = photos("evaluate", "queries/bee", "queries/ant")
    command = "crnr audit gallery.h5 --queries queries/bee --queries queries/ant"
    assert f"; `{command}` lists all\n" in result.err
    assert photos(*shlex.split(command)[1:], "-q").exit == 0


def test_copies_are_reported_as_copies_alone(photos: Runner) -> None:
    draw_photo(3).save("queries/ant/copy.bmp")
    plant("near duplicate")
    draw_photo(104).resize((64, 48)).save("queries/bee/other.png")
    result = photos("evaluate", "queries")
    assert result.exit == 0
    similar, copies = result.err.splitlines()
    assert similar.startswith(
        "note: 2 of 13 queries are near duplicates of examples or show the same scene, "
    )
    assert copies.startswith("note: 1 of 13 queries is in the gallery too, such as queries/ant/copy.bmp, ")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, PixelRequest]]:
    """Collect every image that a decoder is asked for."""
    asked: list[tuple[str, PixelRequest]] = []
    decode = DecoderPool.decode

    def counted(self: DecoderPool, paths: Sequence[str], request: PixelRequest) -> Generator[Decoded]:
        asked.extend((path, request) for path in paths)
        return decode(self, paths, request)

    monkeypatch.setattr(DecoderPool, "decode", counted)
    return asked


def pixels_of(asked: list[tuple[str, PixelRequest]]) -> list[str]:
    return sorted(path for path, request in asked if not request.header_only)


def test_images_that_are_no_candidates_are_read_once(
    photos: Runner, requests: list[tuple[str, PixelRequest]]
) -> None:
    queries = sorted(str(path) for path in Path("queries").rglob("*.png"))
    assert photos("evaluate", "queries", "-q").exit == 0
    assert pixels_of(requests) == queries
    assert len(requests) == len(queries)
    plant("near duplicate")
    requests.clear()
    assert photos("evaluate", "queries", "-q").exit == 0
    of_queries = [path for path in pixels_of(requests) if path.startswith("queries")]
    assert of_queries == sorted([*queries, "queries/ant/planted.jpg", "queries/ant/planted.jpg"])
    of_gallery = [path for path in pixels_of(requests) if path.startswith("gallery")]
    assert len(of_gallery) == len(set(of_gallery))
    assert "gallery/ant/3.png" in of_gallery


def test_only_the_most_similar_queries_are_compared(
    photos: Runner, requests: list[tuple[str, PixelRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(6):
        ImageEnhance.Brightness(draw_photo(seed)).enhance(1 + seed / 50).resize((100, 75)).save(
            f"queries/ant/n{seed}.jpg"
        )
    assert "note: 6 of 16 queries are near duplicates" in photos("evaluate", "queries").err
    monkeypatch.setattr(scenes, "MAX_COMPARED", 2)
    monkeypatch.setattr(scenes, "_MAX_NEIGHBOURS", 3)
    requests.clear()
    result = photos("evaluate", "queries")
    assert result.exit == 0
    assert result.err.startswith(
        "note: 2 of 16 queries are near duplicates of examples or show the same scene"
    )
    assert "so the scores are too high (4 less similar queries not compared); " in result.err
    assert len(pixels_of(requests)) <= 16 + 2 + 2 + 3


def test_without_the_images_only_a_cosine_close_to_one_counts(photos: Runner) -> None:
    plant("near duplicate")
    draw_photo(3).save("queries/ant/again.png")
    draw_photo(103).crop((4, 0, 128, 93)).save("queries/bee/cut.png")
    before = photos("evaluate", "queries").err
    assert "note: 2 of 13 queries are near duplicates" in before
    Path("gallery").rename("elsewhere")
    result = photos("evaluate", "queries")
    assert result.exit == 0
    assert "note: 1 of 13 queries is a near duplicate of an example" in result.err
    assert "such as queries/ant/planted.jpg and gallery/ant/3.png" in result.err


def test_tiny_images_and_features_are_not_compared(
    crnr: Runner, requests: list[tuple[str, PixelRequest]]
) -> None:
    """Images of 8 x 8 pixels and one pattern are as alike as an image and its near duplicate."""
    make_images(crnr.here / "gallery", ("ant", "bee"), 4)
    make_images(crnr.here / "queries", ("ant", "bee"), 3, first=9)
    assert crnr("build", "gallery", "-q").exit == 0
    requests.clear()
    result = crnr("evaluate", "queries", "--json")
    assert (result.exit, result.err) == (0, "")
    assert json.loads(result.out)["similar_in_gallery"] == 0
    assert [path for path in pixels_of(requests) if path.startswith("gallery")] == []
    rows = np.random.default_rng(0).normal(size=(8, 5))
    np.savez("f.npz", features=rows, labels=np.repeat(["a", "b"], 4))
    np.savez("q.npz", features=rows + 1e-3, labels=np.repeat(["a", "b"], 4))
    assert crnr("build", "f.npz", "-o", "f.h5", "-q").exit == 0
    result = crnr("evaluate", "q.npz", "-g", "f.h5", "--json")
    assert (result.exit, result.err) == (0, "")
    assert json.loads(result.out)["similar_in_gallery"] is None


def test_galleries_with_an_index_are_not_searched_exactly(photos: Runner) -> None:
    plant("near duplicate")
    options = ("--neighbors", "3", "--index", "hnsw")
    assert photos("build", "gallery", "-o", "index.h5", "-q", *options).exit == 0
    result = photos("evaluate", "queries", "-g", "index.h5", "--json")
    assert (result.exit, result.err) == (0, "")
    assert json.loads(result.out)["similar_in_gallery"] is None


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1), st.booleans())
def test_candidates_are_found_as_by_comparing_all_with_all(
    n: int, m: int, seed: int, has_network: bool
) -> None:
    rng = np.random.default_rng(seed)
    samples = rng.normal(size=(n, 3))
    queries = rng.normal(size=(m, 3))
    samples, queries = (
        (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("float32") for rows in (samples, queries)
    )
    names = [f"{i}.png" for i in range(m)]
    stub: Any = SimpleNamespace(
        samples=SimpleNamespace(vectors=samples), recipe=SimpleNamespace(has_network=has_network)
    )
    found = find_candidates(Batch(names, [None] * m, queries, m), stub, ["0.png"])
    cosines = 1 - cdist(queries.astype(float), samples.astype(float), "cosine")
    least = 0.8 if has_network else 0.95
    expected = [i for i in range(1, m) if cosines[i].max() >= least]
    assume(np.abs(cosines.max(axis=1) - least).min() > 1e-5)
    assert [(one.query, one.sample) for one in found] == [(names[i], cosines[i].argmax()) for i in expected]
    np.testing.assert_allclose([one.cosine for one in found], cosines.max(axis=1)[expected], atol=1e-5)


@given(st.lists(st.lists(st.floats(0.8, 1), max_size=4), max_size=12), st.integers(1, 9))
def test_batches_keep_the_most_similar_queries(batches: list[list[float]], most: int) -> None:
    everything = [
        Nearest(cosine, f"{i}.{k}", 0) for i, row in enumerate(batches) for k, cosine in enumerate(row)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenes, "MAX_COMPARED", most)
        leaks = scenes.Leaks()
        for i in range(len(batches)):
            leaks.add([one for one in everything if one.query.startswith(f"{i}.")])
            assert len(leaks.candidates) <= most
    assert leaks.n_candidates == len(everything)
    assert leaks.candidates == sorted(everything, key=lambda one: (-one.cosine, one.query))[:most]
