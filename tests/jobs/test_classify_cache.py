"""classify --cache and review --cache: the same answers and pages, but the network runs once per image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest

from crnr_cli.gallery.queries import QueryOptions, RowBatch, Run
from crnr_cli.gallery.workers import Here
from crnr_cli.images.pool import DecoderPool
from crnr_cli.jobs.classify import classify
from crnr_cli.progress import Progress
from crnr_cli.recipe.network_session import OpenNetwork
from helpers.browser import data_of
from helpers.extracting import NETWORK, same
from helpers.onnx_models import projection_model
from helpers.runner import Outcome, Runner
from helpers.samples import draw_image, make_features, make_images

CACHED = ("--cache", "cache.h5")


@pytest.fixture
def network_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images that each run of a network gets."""
    counts: list[int] = []
    original = OpenNetwork.vectors

    def vectors(self: OpenNetwork, pixels: Any) -> Any:
        counts.append(len(pixels))
        return original(self, pixels)

    monkeypatch.setattr(OpenNetwork, "vectors", vectors)
    return counts


@pytest.fixture
def classified(crnr: Runner, network_runs: list[int]) -> Runner:
    """Six queries, answered by a gallery with a network, and their features in the cache."""
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "queries", first=9, per_class=2)
    projection_model(Path("model.onnx"))
    assert crnr("build", "gallery", *NETWORK, "-q") == Outcome(0, "", "")
    network_runs.clear()
    assert crnr("classify", "queries", "-o", "out.csv", *CACHED, "-q") == Outcome(0, "", "")
    assert sum(network_runs) == 6
    network_runs.clear()
    return crnr


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        NETWORK,
        (),
        ("--extractor", "pixels", "--pca", "4"),
        (*NETWORK, "--power", "0.5"),
        ("--size", "24x24", "--parts", "4x4"),
    ],
)
def test_classify_gives_the_same_answers_through_a_cache(
    photos: Runner, decoded: list[str], how: tuple[str, ...]
) -> None:
    """With the same messages and exit code; some queries have 16 bits, are blank, broken or no images."""
    assert photos("build", "photos", *how, "-q").exit == 3
    plain = photos("classify", "photos", "-o", "plain.csv")
    assert plain.exit == 3
    decoded.clear()
    cached = photos("classify", "photos", "-o", "out.csv", *CACHED)
    assert (cached.exit, cached.err) == (3, plain.err.replace("plain.csv", "out.csv"))
    assert same("plain.csv", "out.csv")
    assert len(decoded) == 17
    decoded.clear()
    assert photos("classify", "photos", "-o", "again.csv", *CACHED, "-q").exit == 3
    assert same("plain.csv", "again.csv")
    assert sorted(decoded) == ["photos/README.txt", "photos/bee/blank.png", "photos/cow/broken.png"]


def test_one_cache_serves_build_and_classify(crnr: Runner, network_runs: list[int]) -> None:
    make_images(crnr.here / "gallery")
    projection_model(Path("model.onnx"))
    assert crnr("build", "gallery", *NETWORK, *CACHED, "-q") == Outcome(0, "", "")
    network_runs.clear()
    assert crnr("classify", "gallery", "-o", "out.csv", *CACHED, "-q") == Outcome(0, "", "")
    assert network_runs == []
    assert crnr("classify", "gallery", "-o", "plain.csv", "-q") == Outcome(0, "", "")
    assert same("plain.csv", "out.csv")


def test_review_runs_no_network_for_cached_queries(classified: Runner, network_runs: list[int]) -> None:
    before = Path("cache.h5").read_bytes()
    assert classified("review", "out.csv", "-o", "cached.html", *CACHED, "-q") == Outcome(0, "", "")
    assert network_runs == []
    assert Path("cache.h5").read_bytes() == before
    assert classified("review", "out.csv", "-o", "plain.html", "-q") == Outcome(0, "", "")
    assert sum(network_runs) == 6
    assert data_of(Path("cached.html")) == data_of(Path("plain.html"))


def test_diverse_order_runs_the_network_once_at_most(classified: Runner, network_runs: list[int]) -> None:
    """For images that are not cached; the vectors of the choice serve for the examples too."""
    diverse = ("review", "out.csv", "--order", "diverse", "-q")
    assert classified(*diverse, "-o", "cached.html", *CACHED) == Outcome(0, "", "")
    assert network_runs == []
    assert classified(*diverse, "-o", "plain.html") == Outcome(0, "", "")
    assert sum(network_runs) == 6
    assert data_of(Path("cached.html"))["answers"] == data_of(Path("plain.html"))["answers"]


def test_review_reads_changed_and_new_queries_again(classified: Runner, network_runs: list[int]) -> None:
    """The features in the cache are the old ones, so the page would have other examples."""
    draw_image(2, 70).save("queries/ant/9.png")
    draw_image(0, 71).save("queries/cow/new.png")
    table = Path("out.csv").read_text()
    _, _, rest = table.splitlines()[-1].partition(",")
    Path("out.csv").write_text(f"{table}queries/cow/new.png,{rest}\n")
    assert classified("review", "out.csv", "-o", "cached.html", *CACHED, "-q") == Outcome(0, "", "")
    assert sum(network_runs) == 2
    assert classified("review", "out.csv", "-o", "plain.html", "-q") == Outcome(0, "", "")
    assert data_of(Path("cached.html")) == data_of(Path("plain.html"))


def test_classify_and_review_notice_an_image_of_the_same_size(
    classified: Runner, network_runs: list[int]
) -> None:
    image = Path("queries/ant/9.png")
    found = image.stat()
    os.utime(image, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert classified("review", "out.csv", *CACHED, "-q") == Outcome(0, "", "")
    assert network_runs == [1]
    assert classified("classify", "queries", "-o", "out.csv", *CACHED, "-q") == Outcome(0, "", "")
    assert network_runs == [1, 1]
    assert classified("review", "out.csv", *CACHED, "-q") == Outcome(0, "", "")
    assert network_runs == [1, 1]


def test_review_needs_no_network_if_all_queries_are_cached(classified: Runner) -> None:
    Path("model.onnx").unlink()
    outcome = classified("review", "out.csv", *CACHED)
    assert outcome.exit == 0
    assert "the page shows no gallery images" not in outcome.err
    outcome = classified("review", "out.csv")
    assert "note: the page shows no gallery images: " in outcome.err


def test_the_cache_of_another_network_is_refused(classified: Runner) -> None:
    projection_model(Path("model.onnx"), seed=3)
    assert classified("build", "gallery", *NETWORK, "-q") == Outcome(0, "", "")
    message = "cache.h5: its features come from another extractor than this gallery needs: 8 features of "
    before = Path("cache.h5").read_bytes()
    for command in (("classify", "queries", "-o", "new.csv"), ("review", "out.csv")):
        outcome = classified(*command, *CACHED)
        assert (outcome.exit, outcome.out) == (1, "")
        assert outcome.err.startswith(f"error: {message}")
    assert not Path("review.html").exists()
    assert Path("cache.h5").read_bytes() == before


@pytest.mark.parametrize("more", [(), ("--strict",)])
def test_classify_without_usable_queries_writes_no_cache(classified: Runner, more: tuple[str, ...]) -> None:
    Path("bad").mkdir()
    Path("bad/broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    plain = classified("classify", "bad", *more)
    cached = classified("classify", "bad", *more, "--cache", "new.h5")
    assert cached == plain
    assert plain.exit == (1 if more else 3)
    assert not Path("new.h5").exists()


def test_classify_and_review_refuse_unsuitable_caches(classified: Runner) -> None:
    make_features(Path("table.npz"))
    assert classified("build", "table.npz", "-o", "features.h5", "-q").exit == 0
    with h5py.File("mine.h5", "w") as file:
        file["features"] = [[1.0, 2.0]]
    assert classified("classify", "table.npz", "-g", "features.h5", *CACHED) == Outcome(
        2, "", "error: --cache only applies to images; leave it out for feature files\n"
    )
    words = "error: mine.h5: not written by `crnr extract`; give another file\n"
    for command in (
        ("classify", "queries"),
        ("review", "out.csv"),
        ("review", "out.csv", "--order", "diverse"),
    ):
        assert classified(*command, "--cache", "mine.h5") == Outcome(1, "", words)
    outcome = classified("review", "out.csv", "--cache", "none.h5")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith("error: none.h5: ")


def test_cached_queries_are_not_sent_to_workers(classified: Runner) -> None:
    class OnlyReads(Here):
        def answer_rows(self, run: Run, progress: Progress) -> Iterator[RowBatch]:
            raise AssertionError("their features are here already")

    workers = OnlyReads(DecoderPool(1))
    options = QueryOptions(jobs=1, cache=Path("cache.h5"))
    report = classify(["queries"], Path("gallery.h5"), Path("new.csv"), options, workers=workers)
    assert report.statuses == {"ok": 6}
    assert same("out.csv", "new.csv")


def test_classify_reports_extraction_that_continues(classified: Runner) -> None:
    class Stop(Exception):  # noqa: N818, it is a wish and not an error
        pass

    def stop(step: str, done: int, total: int) -> None:
        if step == "extracting" and done:
            raise Stop

    options = QueryOptions(jobs=1, batch_size=4, cache=Path("new.h5"))
    with pytest.raises(Stop):
        classify(["queries"], Path("gallery.h5"), Path("new.csv"), options, stop)
    report = classify(["queries"], Path("gallery.h5"), Path("new.csv"), options)
    assert [note.text for note in report.notes] == ["new.h5: continuing after 4 of 6 rows"]
    assert same("out.csv", "new.csv")
