"""The samples that speak most for a class, compared with what explain shows and with plain cosines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.jobs.explain import explain
from crnr_cli.jobs.review import find_strongest_samples
from helpers.runner import Runner
from helpers.samples import make_features, make_images


@pytest.mark.parametrize("parts", [(), ("--parts", "2x2")], ids=["whole", "parts"])
@pytest.mark.parametrize("method", ["crnr", "src", "nrc"])
def test_strongest_samples_match_explain(crnr: Runner, method: str, parts: tuple[str, ...]) -> None:
    make_images(crnr.here / "gallery", per_class=6)
    make_images(crnr.here / "queries", per_class=2, first=10)
    assert crnr("build", "gallery", "--method", method, *parts, "-q").exit == 0
    gallery = load_gallery(Path("gallery.h5"))
    for query in sorted(Path("queries").rglob("*.png")):
        report = explain(str(query), Path("gallery.h5"), QueryOptions())
        (explanation,) = report.explanations
        vector = report.vector.astype(gallery.dtype)[np.newaxis]
        ((first, second),) = find_strongest_samples(gallery, vector, [explanation.order[:2].tolist()], 2)
        for label, found in zip(explanation.order[:2].tolist(), (first, second), strict=True):
            weighty = [one.name for one in report.strongest(explanation, 2, label) if one.weight > 1e-6]
            assert [gallery.names[i] for i in found][: len(weighty)] == weighty
            assert {gallery.samples.class_index[i] for i in found} == {label}


@pytest.mark.parametrize("method", ["nn", "nsc"])
def test_strongest_samples_without_weights_are_the_nearest(crnr: Runner, method: str) -> None:
    make_features(crnr.here / "g.npz", per_class=7)
    assert crnr("build", "g.npz", "--method", method, "-q").exit == 0
    gallery = load_gallery(Path("gallery.h5"))
    queries = np.random.default_rng(1).random((5, 6)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    found = find_strongest_samples(gallery, queries, [[2, 0]] * 5, 3)
    for query, of_query in zip(queries, found, strict=True):
        for k, samples in zip((2, 0), of_query, strict=True):
            own = [i for i in range(21) if gallery.samples.class_index[i] == k]
            own.sort(key=lambda i: -float(gallery.samples.vectors[i] @ query))
            assert samples == own[:3]


def test_a_class_with_fewer_samples_has_fewer(crnr: Runner) -> None:
    make_features(crnr.here / "g.npz", per_class=1)
    assert crnr("build", "g.npz", "-q").exit == 0
    gallery = load_gallery(Path("gallery.h5"))
    assert find_strongest_samples(gallery, gallery.samples.vectors[:1], [[0, 2]], 2) == [[[0], [2]]]
