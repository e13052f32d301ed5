"""Classify on a real cluster of two processes on this machine."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli.cluster import dask as cluster_module
from crnr_cli.cluster.dask import Cluster, connected
from crnr_cli.cluster.work import OnCluster
from crnr_cli.errors import DataError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.queries import QueryOptions, Run
from crnr_cli.images.pool import DecoderPool
from crnr_cli.jobs.classify import classify
from crnr_cli.progress import silent
from crnr_cli.sources.base import InputOptions
from crnr_cli.sources.compact_listing import ImageFile
from crnr_cli.sources.images import Images
from crnr_cli.sources.opening import open_source
from helpers.cluster import CLUSTER, assert_same_rows
from helpers.runner import Runner
from helpers.samples import make_features

pytestmark = CLUSTER


@pytest.fixture
def many(crnr: Runner, images: Path) -> list[str]:
    """A gallery, and the names of 3600 queries in 8 batches: the same 9 files again and again."""
    assert crnr("build", "gallery").exit == 0
    return [str(path) for path in sorted(Path("queries").rglob("*.png"))] * 400


GALLERY = Path("gallery.h5")


def test_the_same_rows_though_a_worker_is_killed(address: str, many: list[str]) -> None:
    classify(many, GALLERY, Path("one.csv"), QueryOptions())
    with connected(address) as cluster:
        cluster._client.wait_for_workers(2, timeout=60)
        workers = cluster._client.run(os.getpid)
        assert len(set(workers.values()) - {os.getpid()}) == 2
        killed: list[int] = []

        def kill_one(step: str, done: int, total: int) -> None:
            if done and done < total and not killed:
                killed.append(next(iter(workers.values())))
                os.kill(killed[0], signal.SIGKILL)

        report = classify(
            many,
            GALLERY,
            Path("many.csv"),
            QueryOptions(),
            kill_one,
            workers=OnCluster(cluster, GALLERY),
        )
    assert killed
    assert report.statuses == {"ok": 3600}
    assert_same_rows(Path("many.csv").read_text(), Path("one.csv").read_text(), many)


@pytest.mark.parametrize("alone_then", [False, True])
def test_a_stopped_run_goes_on(address: str, many: list[str], alone_then: bool) -> None:
    classify(many, GALLERY, Path("one.csv"), QueryOptions())

    def stop(step: str, done: int, total: int) -> None:
        if done > 1000:
            raise KeyboardInterrupt

    with connected(address) as cluster:
        with pytest.raises(KeyboardInterrupt):
            classify(many, GALLERY, Path("x.csv"), QueryOptions(), stop, workers=OnCluster(cluster, GALLERY))
        assert not Path("x.csv").exists()
        workers = None if alone_then else OnCluster(cluster, GALLERY)
        report = classify(many, GALLERY, Path("x.csv"), QueryOptions(), resume=True, workers=workers)
    assert 1000 < report.resumed_after < 3600
    assert Path("x.csv").read_bytes() == Path("one.csv").read_bytes()


def test_features_are_sent_by_their_row_numbers(address: str, crnr: Runner, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.savez("g.npz", features=random.normal(size=(20, 5)), labels=np.arange(20) % 4)
    for name, count in (("a", 1300), ("b", 700)):
        np.savez(f"{name}.npz", features=random.normal(size=(count, 5)), labels=np.arange(count) % 4)
    assert crnr("build", "g.npz").exit == 0
    gallery, source = load_gallery(GALLERY), open_source(["a.npz", "b.npz"], InputOptions())
    whole = Run.prepare(gallery, source, QueryOptions())
    with connected(address) as cluster:
        for first in (0, 2, 4):
            run = replace(whole, first=first)
            expected = list(run.answer(DecoderPool()))
            found = list(OnCluster(cluster, GALLERY).answer(run, silent))
            assert [a.batch.names for a in found] == [a.batch.names for a in expected]
            assert [a.truths for a in found] == [a.truths for a in expected]
            for mine, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(mine.residuals, theirs.residuals, atol=1e-6)


def test_classify_on_a_cluster_prints_the_same_rows(address: str, crnr: Runner, images: Path) -> None:
    assert crnr("build", "gallery").exit == 0
    Path("queries/cat/bad.png").write_bytes(b"")
    alone = crnr("classify", "queries", "--reject", "0.1")
    spread = crnr("classify", "queries", "--reject", "0.1", "--dask", address)
    assert (alone.exit, spread.exit) == (3, 3)
    assert spread.out == alone.out
    assert re.match(r"2 workers", spread.err)


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--reject", "0.1", "--top", "2"),
        ("--min-probability", "0.9", "--sets", "0.6"),
    ],
)
def test_classify_on_a_cluster_writes_every_format(
    address: str, crnr: Runner, images: Path, format: str, options: tuple[str, ...]
) -> None:
    """Workers make the same rows as this process, also for failed files."""
    assert crnr("build", "gallery", "-q").exit == 0
    Path("queries/cat/bad.png").write_bytes(b"")
    Path("queries/dog/readme.txt").write_bytes(b"no image")
    Path('queries/dog/a,"b".png').write_bytes(Path("queries/dog/0.png").read_bytes())
    if format != "parquet":  # which has no place for a name that is not UTF-8
        Path(os.fsdecode(b"queries/dog/\xff.png")).write_bytes(Path("queries/dog/0.png").read_bytes())
    outcomes = []
    for name, where in (("alone", ()), ("spread", ("--dask", address))):
        command = ("classify", "queries", "-o", f"{name}.{format}", "--batch-size", "4", *options, *where)
        outcomes.append(crnr(*command))
    alone, spread = outcomes
    assert (alone.exit, spread.exit) == (3, 3)
    assert Path(f"spread.{format}").read_bytes() == Path(f"alone.{format}").read_bytes()
    said = [line.replace("spread.", "alone.") for line in spread.err.splitlines() if "dashboard" not in line]
    assert said == alone.err.splitlines()


def test_too_many_failures(address: str, crnr: Runner, images: Path) -> None:
    assert crnr("build", "gallery", "-q").exit == 0
    Path("queries/cat/bad.png").write_bytes(b"")
    command = ("classify", "queries", "-o", "out.csv", "-q", "--strict")
    alone, spread = crnr(*command), crnr(*command, "--dask", address)
    assert (spread.exit, spread.out, spread.err) == (alone.exit, "", alone.err) == (1, "", alone.err)
    assert alone.err.startswith("error: queries/cat/bad.png: ")


def test_queries_that_do_not_converge_on_workers_are_reported(address: str, crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz", "--method", "src", "--iterations", 1, "-q")
    outcome = crnr("classify", "gallery.npz", "-o", "out.csv", "--batch-size", 4, "--dask", address)
    assert outcome.exit == 0
    assert outcome.err.splitlines()[-1].startswith(
        "warning: 15 queries did not converge: method src stopped after 1 "
    )


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_workers_search_with_the_index_of_the_gallery(address: str, crnr: Runner, kind: str) -> None:
    make_features(crnr.here / "gallery.npz", per_class=40)
    crnr("build", "gallery.npz", "--neighbors", 7, "--index", kind, "-q")
    for path, options in (("one.csv", ()), ("many.csv", ("--dask", address))):
        outcome = crnr("classify", "gallery.npz", "-o", path, "--batch-size", 16, *options)
        assert (outcome.exit, outcome.out) == (0, "")
    assert (crnr.here / "one.csv").read_bytes() == (crnr.here / "many.csv").read_bytes()


def _error_of(cluster: Cluster, gallery: FittedGallery, source: Any, path: Path = GALLERY) -> str:
    with pytest.raises(DataError) as caught:
        list(OnCluster(cluster, path).answer(Run.prepare(gallery, source, QueryOptions()), silent))
    return str(caught.value)


def test_classify_reports_a_worker_without_the_file_system(
    address: str, many: list[str], tmp_path: Path
) -> None:
    gallery = load_gallery(GALLERY)
    queries = Images([ImageFile(many[0], ("cat",))])
    elsewhere = tmp_path / "elsewhere"
    remedy = "the gallery and the images must have the same paths on all workers"
    with connected(address) as cluster:
        message = _error_of(cluster, gallery, queries, elsewhere / "gallery.h5")
        assert re.fullmatch(
            rf"worker tcp://127.0.0.1:\d+: cannot find {elsewhere}/gallery.h5; {remedy}", message
        )
        message = _error_of(cluster, gallery, Images([ImageFile(str(elsewhere / "a.png"), ())]))
        assert re.fullmatch(rf"worker tcp://127.0.0.1:\d+: cannot find {elsewhere}; {remedy}", message)
        gone = Images([ImageFile(str(tmp_path / "gone.png"), ())])
        run = Run.prepare(gallery, gone, QueryOptions())
        (answers,) = OnCluster(cluster, GALLERY).answer(run, silent)
        assert [error.status for error in answers.batch.errors if error] == ["vanished"]


def test_a_worker_with_another_gallery_or_version_is_reported(
    address: str, crnr: Runner, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = load_gallery(GALLERY)
    assert crnr("build", "gallery", "--lam", "0.5").exit == 0
    queries = Images([ImageFile(many[0], ("cat",))])
    with connected(address) as cluster:
        assert "has a different gallery at" in _error_of(cluster, old, queries)
        monkeypatch.setattr(cluster_module, "__version__", "0.0.1")
        assert "but this is 0.0.1; install the same version everywhere" in _error_of(cluster, old, queries)


def test_classify_on_a_cluster_reads_feature_files(address: str, crnr: Runner, images: Path) -> None:
    """Workers read the file; a folder that was named is known as a class there too."""
    assert crnr("build", "gallery", "-q").exit == 0
    assert crnr("extract", "queries/dog", "-o", "f.h5", "-q").exit == 0
    assert crnr("classify", "queries/dog", "-o", "images.csv", "-q").exit == 0
    assert crnr("classify", "f.h5", "--dask", address, "-o", "cluster.csv", "-q").exit == 0
    assert Path("cluster.csv").read_bytes() == Path("images.csv").read_bytes()
    assert all(",dog," in line for line in Path("cluster.csv").read_text().splitlines()[1:])
