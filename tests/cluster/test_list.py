"""Listing folders on a real cluster of two processes on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from crnr_cli.cluster.dask import connected
from crnr_cli.cluster.work import OnCluster
from crnr_cli.errors import DataError
from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.jobs.classify import classify
from crnr_cli.sources.base import InputOptions
from crnr_cli.sources.compact_listing import CompactListing
from crnr_cli.sources.images import Images
from crnr_cli.sources.opening import fingerprint, open_source
from helpers.cluster import CLUSTER
from helpers.runner import Runner
from helpers.samples import make_images

pytestmark = CLUSTER
GALLERY = Path("gallery.h5")


@pytest.fixture
def folders(crnr: Runner, images: Path) -> Path:
    """Queries in folders with links between them, hidden files, and files that cannot be used."""
    Path("queries/dog/link").symlink_to("../cat")
    Path("queries/owl/link").symlink_to("../cat")
    Path("queries/owl/loop").symlink_to("..")
    Path("queries/owl/gone.png").symlink_to("nowhere")
    Path("queries/owl/.hidden").write_text("")
    Path(os.fsdecode(b"queries/owl/\xff.png")).write_bytes(Path("queries/owl/0.png").read_bytes())
    Path("queries/between.png").write_bytes(Path("queries/cat/0.png").read_bytes())
    Path("queries/empty").mkdir()
    return images


def test_workers_list_the_same_files(address: str, folders: Path) -> None:
    make_images(folders / "many", [f"c{i:02}" for i in range(30)], per_class=2)
    names = ["queries", "many", "gallery/cat"]
    alone = open_source(names, InputOptions())
    with connected(address) as cluster:
        spread = open_source(names, InputOptions(), lister=OnCluster(cluster).lister)
    assert isinstance(alone, Images)
    assert isinstance(spread, Images)
    assert isinstance(spread.files, CompactListing)
    assert list(map(repr, spread.files)) == list(map(repr, alone.files))
    assert spread.notes() == alone.notes()
    assert spread.named_folders == alone.named_folders
    assert fingerprint(spread) == fingerprint(alone)


@pytest.mark.parametrize("alone_first", [False, True])
def test_a_stopped_run_goes_on_with_and_without_a_cluster(
    address: str, crnr: Runner, folders: Path, alone_first: bool
) -> None:
    assert crnr("build", "gallery", "-q").exit == 0
    options = QueryOptions(batch_size=3)
    classify(["queries"], GALLERY, Path("whole.csv"), options)

    def stop(step: str, done: int, total: int) -> None:
        if done > 4:
            raise KeyboardInterrupt

    with connected(address) as cluster:
        both = [None, OnCluster(cluster, GALLERY)]
        first, then = both if alone_first else reversed(both)
        with pytest.raises(KeyboardInterrupt):
            classify(["queries"], GALLERY, Path("out.csv"), options, stop, workers=first)
        report = classify(["queries"], GALLERY, Path("out.csv"), options, resume=True, workers=then)
    assert report.resumed_after == 6
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_commands_on_a_cluster_list_the_same_files(address: str, crnr: Runner, folders: Path) -> None:
    for name, where in (("alone", ()), ("spread", ("--dask", address))):
        assert crnr("build", "gallery", "-o", f"{name}.h5", "-q", *where).exit == 0
        outcome = crnr("classify", "queries", "-g", "alone.h5", "-o", f"{name}.csv", *where)
        assert (outcome.exit, outcome.out) == (3, "")
        assert "note: 1 hidden or system file ignored" in outcome.err
    assert Path("spread.h5").read_bytes() == Path("alone.h5").read_bytes()
    assert Path("spread.csv").read_bytes() == Path("alone.csv").read_bytes()


def test_a_worker_without_the_folder_is_reported(address: str, tmp_path: Path) -> None:
    missing = tmp_path / "elsewhere"
    with connected(address) as cluster, pytest.raises(DataError) as caught:
        list(OnCluster(cluster).lister(str(missing), [[(str(missing / "a"), "a")]]))
    assert re.fullmatch(
        rf"worker tcp://127.0.0.1:\d+: cannot find {missing}; the gallery and the images must have "
        "the same paths on all workers",
        str(caught.value),
    )
