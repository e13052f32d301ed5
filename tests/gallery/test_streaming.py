"""A gallery that is built block by block is the one that is built in memory, to the last bit."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.arrays import to_dense
from crnr_cli.errors import DataError, OutputError, UsageError
from crnr_cli.gallery import streaming
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.gallery.fit import make_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.hdf5_output import PlacedRows
from crnr_cli.gallery.samples import Reading, read_samples
from crnr_cli.jobs.build import BuildOptions, build
from crnr_cli.methods import make_method
from crnr_cli.recipe.steps import Pca, Power
from crnr_cli.sources.opening import open_source
from crnr_cli.sources.tables import Features
from crnr_cli.system import memory
from helpers.runner import Runner
from helpers.samples import draw_image, make_images


def features(n: int = 90, d: int = 8, n_classes: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n)
    labels[:n_classes] = np.arange(n_classes)
    values = rng.normal(size=(n_classes, d))[labels] + 0.3 * rng.normal(size=(n, d))
    return values.astype(np.float32), labels


def write_file(values: np.ndarray, labels: np.ndarray, path: str = "features.h5") -> None:
    with h5py.File(path, "w") as file:
        file["features"], file["labels"] = values, labels


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(streaming, "_BLOCK", 100)  # numbers, so that a few rows are a block
    return tmp_path


def built(reading: Reading, path: str = "streamed.h5") -> FittedGallery:
    build(["features.h5"], Path(path), BuildOptions(reading, parameters={"neighbors": 5}))
    return load_gallery(Path(path))


def in_memory(reading: Reading) -> FittedGallery:
    read = read_samples(open_source(["features.h5"], reading), reading)
    gallery, _ = make_gallery(read, make_method("crnr", {"neighbors": 5}))
    save_gallery(gallery, Path("memory.h5"))
    return load_gallery(Path("memory.h5"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["as it comes", "sorted by class"])
@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("steps", [(), (Power.of(0.5),)], ids=["plain", "power"])
def test_streamed_gallery_equals_the_gallery_built_in_memory(
    here: Path, dtype: str, order: str, jobs: int, steps: tuple[Power, ...]
) -> None:
    values, labels = features()
    if order == "sorted by class":
        labels = np.sort(labels)
    write_file(values, labels)
    reading = Reading(dtype=dtype, jobs=jobs, steps=steps)
    assert built(reading).sha256 == in_memory(reading).sha256
    # Nothing but the order of the datasets in the file differs, which takes hardly any space.
    assert abs(Path("streamed.h5").stat().st_size - Path("memory.h5").stat().st_size) < 4096


@pytest.mark.parametrize("zeros", [[0], [89], [3, 17, 40]], ids=str)
def test_samples_that_cannot_be_used_leave_no_gap(here: Path, zeros: list[int]) -> None:
    values, labels = features()
    values[zeros] = 0
    write_file(values, labels)
    report = build(["features.h5"], Path("streamed.h5"), BuildOptions(parameters={"neighbors": 5}))
    assert [(left.name, left.error.status) for left in report.left_out] == [
        (f"features.h5#{row}", "zero_norm") for row in zeros
    ]
    assert load_gallery(Path("streamed.h5")).sha256 == in_memory(Reading()).sha256
    assert Path("streamed.h5").stat().st_size < Path("memory.h5").stat().st_size + 4096


def test_a_class_without_usable_samples_is_reported(here: Path) -> None:
    values, labels = features()
    values[labels == 3] = 0
    write_file(values, labels)
    report = build(["features.h5"], Path("streamed.h5"), BuildOptions(parameters={"neighbors": 5}))
    assert report.gallery.classes == ["0", "1", "2", "4", "5", "6"]
    assert load_gallery(Path("streamed.h5")).sha256 == in_memory(Reading()).sha256


def test_values_that_are_not_finite_are_refused(here: Path) -> None:
    values, labels = features()
    values[[4, 50], 2] = np.nan
    write_file(values, labels)
    with pytest.raises(
        DataError, match=r"NaN or infinity in 2 rows; correct or remove features.h5#4, features.h5#50$"
    ):
        built(Reading())
    assert not Path("streamed.h5").exists()


def test_too_many_unusable_samples_stop_it(here: Path) -> None:
    values, labels = features()
    values[10:20] = 0
    write_file(values, labels)
    with pytest.raises(DataError, match=r"stopped: .* of 90 examples have to be skipped"):
        built(Reading(max_failure_rate=0.05))


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.25, 0.5, 1.0])
def test_as_many_may_fail_as_in_memory(here: Path, rate: float) -> None:
    values, labels = features()
    values[15:60:2] = 0  # 23 of 90
    write_file(values, labels)
    reading = Reading(max_failure_rate=rate, batch_size=1)
    if rate > 0.25:
        assert built(reading).sha256 == in_memory(reading).sha256
        return
    messages = []
    for work in (built, in_memory):
        with pytest.raises(DataError) as caught:
            work(reading)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert f"stopped: {int(rate * 90) + 1} of 90 examples" in messages[0]


def test_failed_samples_are_listed_in_linear_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many need twice as many names, however many blocks they are in."""
    names = Features.names
    asked: list[int] = []

    def counting(source: Features, span: tuple[int, int] | None = None) -> list[str]:
        found = names(source, span)
        asked.append(len(found))
        return found

    monkeypatch.setattr(Features, "names", counting)
    counts = []
    for n in (400, 800):
        values, labels = features(n)
        values[np.arange(n) % 10 > 0] = 0
        write_file(values, labels)
        asked.clear()
        assert len(built(Reading()).names) == n // 10
        counts.append(sum(asked))
    assert counts[1] <= 2 * counts[0]
    assert counts[0] < 10 * 400


def test_without_any_usable_sample_there_is_no_gallery(here: Path) -> None:
    values, labels = features()
    write_file(np.zeros_like(values), labels)
    with pytest.raises(DataError, match=r"no usable images or rows of features: features\.h5#0: "):
        built(Reading())


@pytest.mark.parametrize("before", [(), (Power.of(0.5),)], ids=["plain", "power"])
def test_pca_of_blocks_equals_pca_of_all_samples(here: Path, before: tuple[Power, ...]) -> None:
    values, labels = features()
    values[5] = 0
    values += 3  # a mean that must not spoil the covariance
    values[7] = 0
    write_file(values, labels)
    reading = Reading(steps=(*before, Pca.of(4)), dtype="float64")
    found, expected = built(reading), in_memory(reading)
    axes, expected_axes = (gallery.recipe.steps[-1].axes for gallery in (found, expected))  # type: ignore[attr-defined]
    # Each axis separately: its sign does not matter.
    np.testing.assert_allclose(np.abs((axes * expected_axes).sum(axis=0)), 1, atol=1e-9)
    queries = np.eye(4)
    signs = np.sign((axes * expected_axes).sum(axis=0))
    np.testing.assert_allclose(
        to_dense(found.residuals(queries * signs)), to_dense(expected.residuals(queries)), atol=1e-6
    )
    assert list(found.names) == list(expected.names)


def test_pca_of_more_components_than_there_are(here: Path) -> None:
    write_file(*features(n=9, n_classes=3))
    with pytest.raises(
        UsageError, match="--pca 9: choose 1 to 8 principal components for 9 examples with 8 features each"
    ):
        built(Reading(steps=(Pca.of(9),)))


def test_several_files_and_labels_beside_them(here: Path) -> None:
    values, labels = features()
    write_file(values[:40], labels[:40], "one.h5")
    write_file(values[40:], labels[40:], "other.h5")
    reading, options = Reading(), BuildOptions(parameters={"neighbors": 5})
    build(["one.h5", "other.h5"], Path("streamed.h5"), options)
    read = read_samples(open_source(["one.h5", "other.h5"], reading), reading)
    gallery, _ = make_gallery(read, make_method("crnr", {"neighbors": 5}))
    save_gallery(gallery, Path("memory.h5"))
    assert load_gallery(Path("streamed.h5")).sha256 == load_gallery(Path("memory.h5")).sha256


def test_a_full_disk_leaves_the_old_gallery(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(*features())
    before = built(Reading()).sha256

    def full(handle: int, data: object, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    write_file(*features(seed=1))
    with pytest.raises(OutputError, match=r"streamed.h5: cannot write \(No space left on device\)"):
        built(Reading())
    assert load_gallery(Path("streamed.h5")).sha256 == before
    assert sorted(os.listdir()) == ["features.h5", "streamed.h5"]  # noqa: PTH208


def test_a_write_of_some_bytes_is_continued(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(*features())
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, offset: whole(handle, data[:7], offset))
    assert built(Reading()).sha256 == in_memory(Reading()).sha256


@settings(max_examples=30)
@given(order=st.permutations(range(12)), cut=st.integers(0, 12))
def test_placed_rows_are_written_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], cut: int
) -> None:
    rows = np.arange(36, dtype=np.float32).reshape(12, 3)
    path = tmp_path_factory.mktemp("rows") / "rows.h5"
    with path.open("wb+", buffering=0) as file, h5py.File(file, "w") as content:
        content["before"] = np.arange(5)
        placed = PlacedRows.of(content, "group/rows", (12, 3), "float32", file.fileno())
        for part in (order[:cut], order[cut:]):
            placed.write(np.array(part, dtype=np.int64), rows[part])
        content["after"] = np.arange(7)
        np.testing.assert_array_equal(placed.map_rows(), rows)
    with h5py.File(path) as content:
        np.testing.assert_array_equal(content["group/rows"][()], rows)
        np.testing.assert_array_equal(content["after"][()], np.arange(7))


def test_vectors_are_never_all_in_memory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_BLOCK", 2**17)
    values, labels = features(n=8000, d=1024)
    write_file(values, labels)
    size = values.nbytes
    del values
    options = BuildOptions(Reading(jobs=2), parameters={"neighbors": 5})
    tracemalloc.start()
    try:
        build(["features.h5"], Path("streamed.h5"), options)
        _, of_build = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        loaded = load_gallery(Path("streamed.h5"))
        before, of_load = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert of_build < size / 2
    assert of_load - before < size / 4
    assert not loaded.samples.vectors.flags.writeable


def test_unlabelled_and_empty_labels_in_a_stream(here: Path) -> None:
    values, _ = features(n=4, n_classes=3)
    with h5py.File("features.h5", "w") as file:
        file["features"], file["labels"] = values, [b"a", b"", b"b", b"c"]
    with pytest.raises(DataError) as refused:
        built(Reading())
    assert str(refused.value) == "features.h5#1: the label is empty"
    report = build(
        ["features.h5"], Path("one.h5"), BuildOptions(Reading(label="z"), parameters={"neighbors": 2})
    )
    assert (report.gallery.classes, len(report.gallery.names)) == (["z"], 4)


def test_extracted_images_without_a_class_are_left_out_of_a_stream(here: Path) -> None:
    """Their hashes and stamps are those of the files, and PCA is fitted to the others alone."""
    crnr = Runner(here)
    make_images(here / "photos", per_class=30)
    for number in range(3):
        draw_image(number, 50).save(here / "photos" / f"{number} of no class.png")
    how = ("--extractor", "pixels", "--size", "4x4")
    assert crnr("extract", "photos", *how, "-o", "features.h5", "-q").exit == 0
    reading = Reading(steps=(Pca.of(3),), dtype="float64")
    report = build(["features.h5"], Path("streamed.h5"), BuildOptions(reading, parameters={"neighbors": 5}))
    assert sorted((left.name, left.error.status) for left in report.left_out) == [
        (f"photos/{number} of no class.png", "no_class") for number in range(3)
    ]
    found, expected = load_gallery(Path("streamed.h5")), in_memory(reading)
    assert found.table == expected.table
    axes, expected_axes = (gallery.recipe.steps[-1].axes for gallery in (found, expected))  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.abs((axes * expected_axes).sum(axis=0)), 1, atol=1e-9)


def test_an_example_that_pca_reduces_to_nothing_is_named(here: Path) -> None:
    """All variance is along the first feature, and the last example has none of it."""
    values = np.zeros((12, 3))
    values[:10, 0] = 1, -1, 2, -2, 3, -3, 4, -4, 5, -5
    values[11, 2] = 1e-3  # row 10 is all zero, and left out before
    write_file(values, np.arange(12) % 2)
    for work in (built, in_memory):
        with pytest.raises(DataError) as refused:
            work(Reading(steps=(Pca.of(1),), dtype="float64"))
        assert str(refused.value) == "features.h5#11: the vector is all zero; remove this example"


def test_pca_too_large_for_memory_is_refused_before_the_file_is_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three covariances of 8 features in float64."""
    write_file(*features())
    monkeypatch.setattr(memory, "free_bytes", lambda: 3 * 8 * 8 * 8 - 1)
    with pytest.raises(DataError) as refused:
        built(Reading(steps=(Pca.of(3),)))
    assert str(refused.value) == (
        "--pca of 8 features needs 1.5 kB of memory, but 1.5 kB are free; use fewer features"
    )


@pytest.mark.parametrize(
    ("rows", "steps", "expected"),
    [(8, (), True), (8, (Power.of(0.5),), True), (8, (Pca.of(2),), False), (9, (Pca.of(2),), True)],
)
def test_steps_that_learn_stream_more_examples_than_features(
    here: Path, rows: int, steps: tuple[Power | Pca, ...], expected: bool
) -> None:
    write_file(*features(n=rows, d=8, n_classes=2))
    source = open_source(["features.h5"], Reading())
    assert isinstance(source, Features)
    reading = Reading(steps=steps)
    assert streaming.can_stream(source, reading, make_method("crnr", {"neighbors": 5})) == expected
    assert not streaming.can_stream(source, reading, make_method("crnr", {}))


def test_blocks_have_as_many_rows_as_fit(here: Path) -> None:
    """100 values are 12 rows of 8; a row that is larger is a block too."""
    write_file(*features(n=30))
    seen: list[tuple[str, int, int]] = []
    options = BuildOptions(Reading(jobs=1), parameters={"neighbors": 5})
    build(["features.h5"], Path("streamed.h5"), options, lambda *step: seen.append(step))
    assert [step for step in seen if step[0] == "reading"] == [("reading", end, 30) for end in (12, 24, 30)]
    write_file(*features(n=8, d=101))
    seen.clear()
    build(["features.h5"], Path("streamed.h5"), options, lambda *step: seen.append(step))
    assert [end for step, end, _ in seen if step == "reading"] == list(range(1, 9))
