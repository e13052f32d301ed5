"""Build and extract on a real cluster of two processes on this machine: the same bytes as without it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crnr_cli.cluster.dask import connected
from crnr_cli.cluster.work import OnCluster
from crnr_cli.errors import DataError
from crnr_cli.gallery.samples import Reading
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.jobs.build import BuildOptions, build
from crnr_cli.jobs.extract import ExtractOptions, extract
from crnr_cli.progress import silent
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.sources.compact_listing import ImageFile
from crnr_cli.sources.images import Images
from helpers.cluster import CLUSTER, killer
from helpers.extracting import NETWORK, same
from helpers.onnx_models import flat_model, projection_model
from helpers.runner import Runner
from helpers.samples import make_features

pytestmark = CLUSTER


@pytest.fixture
def mixed(crnr: Runner, images: Path) -> Runner:
    """Images of several sizes, modes and depths among files that cannot be used."""
    Image.new("RGB", (20, 12), (200, 30, 40)).save("gallery/cat/red.png")
    deep = np.random.default_rng(0).integers(0, 2**16, (9, 11), dtype=np.uint16)
    Image.fromarray(deep).save("gallery/dog/deep.png")
    Image.new("L", (8, 8), 0).save("gallery/dog/black.png")
    Path("gallery/cat/bad.png").write_bytes(b"no image")
    Path("gallery/cat/notes.txt").write_text("not an image either")
    Path("gallery/cat/.hidden").write_text("")
    Path("gallery/owl/gone.png").symlink_to("nowhere.png")
    Path("gallery/loose.png").write_bytes(Path("gallery/cat/0.png").read_bytes())
    Path("gallery/empty").mkdir()
    Path("gallery/none").mkdir()
    Path("gallery/none/bad.png").write_bytes(b"")
    return crnr


def plain(text: str) -> dict[str, Any]:
    """Return a report as JSON without what differs from run to run."""
    report: dict[str, Any] = json.loads(text)
    for name in ("seconds", "gallery", "features"):
        report.pop(name, None)
    return report


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--extractor", "pixels", "--size", "9x7"),
        ("--extractor", "pixels", "--color", "--pca", "3", "--method", "nrc"),
        ("--parts", "2x2", "--dtype", "float64"),
        NETWORK,
        ("--extractor", "pixels.onnx", "--extractor-preset", "raw", "--mirror"),
    ],
)
def test_the_same_gallery(address: str, mixed: Runner, options: tuple[str, ...]) -> None:
    projection_model(Path("model.onnx"))
    flat_model(Path("pixels.onnx"), ["n", 3, 8, 8])  # no feature is negative
    alone = mixed("build", "gallery", "-o", "alone.h5", "--json", *options)
    spread = mixed("build", "gallery", "-o", "spread.h5", "--json", "--dask", address, *options)
    assert (spread.exit, alone.exit) == (3, 3)
    assert plain(spread.out) == plain(alone.out)
    words, expected = spread.err.splitlines(), alone.err.splitlines()
    assert re.fullmatch(r"\d workers?; dashboard: http://.*", words.pop(0))
    assert words[:-1] == expected[:-1]  # the last line has the time
    assert same("spread.h5", "alone.h5")


def test_the_same_gallery_though_a_worker_is_killed(address: str, images: Path, crnr: Runner) -> None:
    names = ["gallery", *(str(path) for path in sorted(Path("queries").rglob("*.png")))] * 30
    options = BuildOptions(Reading(batch_size=16))
    build(names, Path("alone.h5"), options)
    with connected(address) as cluster:
        killed, kill_one = killer(cluster, "reading")
        build(names, Path("spread.h5"), options, kill_one, OnCluster(cluster))
    assert killed
    assert same("spread.h5", "alone.h5")


def test_the_share_of_failures_and_strictness(address: str, mixed: Runner) -> None:
    for options in (("--strict",), ("--max-failure-rate", "0.1")):
        alone = mixed("build", "gallery", "-q", *options)
        spread = mixed("build", "gallery", "-q", "--dask", address, *options)
        assert (spread.exit, spread.out, spread.err) == (1, "", alone.err)
        assert alone.exit == 1
    assert not Path("gallery.h5").exists()


def test_labels_from_a_table_and_a_list_on_stdin(address: str, mixed: Runner) -> None:
    paths = sorted(map(str, Path("queries").rglob("*.png")))
    table = "".join(f"{path},{'odd' if row % 2 else 'even'}\n" for row, path in enumerate(paths))
    Path("labels.csv").write_text("path,label\n" + table)
    listing = "".join(f"{path}\n" for path in paths)
    for name, options in (("alone.h5", ()), ("spread.h5", ("--dask", address))):
        command = ("build", "-", "-o", name, "--labels", "labels.csv", "-q", *options)
        assert mixed(*command, stdin=listing).exit == 0
    assert same("spread.h5", "alone.h5")


def test_build_on_a_cluster_fills_and_uses_the_cache(address: str, mixed: Runner) -> None:
    """It is filled by the workers; images in it are not read again."""
    for name, options in (("alone", ()), ("spread", ("--dask", address))):
        command = ("build", "gallery", "-o", f"{name}.h5", "--cache", f"{name}-cache.h5", "-q")
        assert mixed(*command, *options).exit == 3
    assert same("spread.h5", "alone.h5")
    assert same("spread-cache.h5", "alone-cache.h5")
    before = Path("spread-cache.h5").stat()
    command = ("build", "gallery", "-o", "again.h5", "--cache", "spread-cache.h5", "-q", "--dask", address)
    assert mixed(*command).exit == 3
    assert Path("spread-cache.h5").stat() == before
    assert same("again.h5", "alone.h5")


def test_build_update_on_a_cluster_gives_the_same_gallery(address: str, mixed: Runner) -> None:
    assert mixed("build", "gallery/", "-o", "alone.h5", "-q").exit == 3
    shutil.copy("alone.h5", "spread.h5")
    shutil.copy("queries/owl/1.png", "gallery/owl/new.png")
    Path("gallery/cat/1.png").unlink()
    for name, options in (("alone.h5", ()), ("spread.h5", ("--dask", address))):
        outcome = mixed("build", "gallery/", "-o", name, "--update", *options)
        assert outcome.exit == 3
        assert "1 added, 0 changed, 1 removed" in outcome.err
    assert same("spread.h5", "alone.h5")


@pytest.mark.parametrize("first", ["alone", "spread"])
def test_a_stopped_extraction_goes_on_with_and_without_a_cluster(
    address: str, mixed: Runner, first: str
) -> None:
    options = ExtractOptions(Reading(batch_size=3))
    extract(["gallery"], Path("whole.h5"), options)

    def stop(step: str, done: int, total: int) -> None:
        if step == "extracting" and done > 4:
            raise KeyboardInterrupt

    with connected(address) as cluster:
        workers = {"alone": None, "spread": OnCluster(cluster)}
        with pytest.raises(KeyboardInterrupt):
            extract(["gallery"], Path("f.h5"), options, stop, workers.pop(first))
        (other,) = workers.values()
        report = extract(["gallery"], Path("f.h5"), options, workers=other)
    assert any("continuing after 6 of 17 rows" in note.text for note in report.notes)
    assert same("f.h5", "whole.h5")


def test_extract_though_a_worker_is_killed(address: str, mixed: Runner) -> None:
    names = ["gallery", "queries"] * 20
    options = ExtractOptions(Reading(batch_size=9))
    extract(names, Path("alone.h5"), options)
    with connected(address) as cluster:
        killed, kill_one = killer(cluster, "extracting")
        extract(names, Path("spread.h5"), options, kill_one, OnCluster(cluster))
    assert killed
    assert same("spread.h5", "alone.h5")


def test_features_need_no_cluster(crnr: Runner) -> None:
    make_features(crnr.here / "features.npz")
    for command in (("build", "features.npz"), ("extract", "features.npz", "-o", "f.h5")):
        refused = crnr(*command, "--dask", "local:1")
        assert (refused.exit, refused.out) == (2, "")
        assert refused.err == (
            "error: --dask only applies to images, which the workers read; leave it out for feature files\n"
        )


def test_reading_reports_a_worker_without_the_file_system(address: str, tmp_path: Path) -> None:
    source = Images([ImageFile(str(tmp_path / "elsewhere" / "a.png"), ("cat",))])
    recipe = Recipe.for_images(RawPixels((8, 8), False))
    with connected(address) as cluster:
        workers = OnCluster(cluster)
        with pytest.raises(
            DataError, match=rf"worker tcp://127.0.0.1:\d+: cannot find {tmp_path}/elsewhere; the gallery and"
        ):
            list(workers.read_raw(source, [(0, 1)], [recipe.open(with_hash=True)]))
        assert workers.image_sizes(source, MAX_PIXELS, silent) == set()
