"""Galleries with an index of their samples: built, shown, classified with, changed, and damaged."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.arrays import to_dense
from crnr_cli.estimators import CRNRClassifier
from crnr_cli.gallery import fit
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.methods import Samples, make_method
from crnr_cli.methods.base import fit_method, make_indexes, residuals
from crnr_cli.methods.by_neighbors import worst_index_measurement
from crnr_cli.solvers import indexes
from crnr_cli.solvers.indexes import Measured
from crnr_cli.system import extras
from helpers.runner import Runner, read_rows

each_kind = pytest.mark.parametrize("kind", ["hnsw", "ivf"])
LOCAL = ["crnr", "nrc", "crc", "src"]


def rows(
    count: int, seed: int, classes: int = 20, d: int = 16, spread: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centers = np.random.default_rng(7).normal(size=(classes, d))
    return (centers[labels] + spread * rng.normal(size=(count, d))).astype(np.float32), labels


@pytest.fixture
def tables(crnr: Runner) -> Runner:
    """A folder with a table of samples and one of queries."""
    for name, count, seed in (("gallery", 400, 0), ("queries", 60, 1), ("more", 40, 2)):
        features, labels = rows(count, seed)
        np.savez(crnr.here / f"{name}.npz", features=features, labels=[f"c{k:02}" for k in labels])
    return crnr


def built(crnr: Runner, kind: str, *options: str) -> Path:
    result = crnr("build", "gallery.npz", "-o", f"{kind}.h5", "--neighbors", 12, "--index", kind, *options)
    assert (result.exit, result.out) == (0, "")
    return crnr.here / f"{kind}.h5"


def labels(crnr: Runner, gallery: str, *options: str) -> list[str]:
    result = crnr("classify", "queries.npz", "-g", gallery, "-o", "out.csv", *options)
    assert result.exit == 0
    return [row["label"] for row in read_rows(crnr.here / "out.csv")]


@each_kind
def test_build_and_info_print_the_recall_of_the_index(tables: Runner, kind: str) -> None:
    result = tables("build", "gallery.npz", "-o", "g.h5", "--neighbors", 12, "--index", kind)
    assert (result.exit, result.out) == (0, "")
    assert "vectors of length 16, method crnr, index with " in result.err
    assert re.search(r"index with [\d.]+% of the nearest examples and [\d.]+% of the labels; ", result.err)
    shown = tables("info", "g.h5")
    assert f"neighbors 12, index {kind}\n" in re.sub(" +\n", "\n", shown.out)
    about = json.loads(tables("info", "g.h5", "--json").out)
    assert about["format_version"] == 4
    assert about["parameters"]["index"] == kind
    assert 0.99 <= about["index_recall"] <= 1
    assert 0.99 <= about["index_agreement"] <= 1
    found, same = about["index_recall"], about["index_agreement"]
    assert f"finds {found:.1%} of the neighbours and {same:.1%} of the labels" in shown.out


def test_exact_galleries_have_no_index(tables: Runner) -> None:
    tables("build", "gallery.npz", "-o", "g.h5", "--neighbors", 12)
    tables("build", "gallery.npz", "-o", "same.h5", "--neighbors", 12, "--index", "exact")
    assert (tables.here / "g.h5").read_bytes() == (tables.here / "same.h5").read_bytes()
    assert "index_recall" not in json.loads(tables("info", "g.h5", "--json").out)
    with h5py.File(tables.here / "g.h5") as file:
        assert "index" not in file.attrs
        assert "state" not in file


@each_kind
def test_index_gives_the_labels_of_the_exact_search(tables: Runner, kind: str) -> None:
    built(tables, kind)
    built(tables, "exact")
    one = labels(tables, f"{kind}.h5", "--jobs", "1")
    content = (tables.here / "out.csv").read_bytes()
    assert labels(tables, f"{kind}.h5", "--jobs", "2", "--batch-size", "7") == one
    assert (tables.here / "out.csv").read_bytes() == content
    assert np.mean([a == b for a, b in zip(one, labels(tables, "exact.h5"), strict=True)]) >= 0.95


@each_kind
def test_the_same_gallery_is_built_with_any_jobs(tables: Runner, kind: str) -> None:
    built(tables, kind, "--jobs", "1")
    first = (tables.here / f"{kind}.h5").read_bytes()
    built(tables, kind, "--jobs", "2")
    assert (tables.here / f"{kind}.h5").read_bytes() == first


@each_kind
def test_a_changed_gallery_has_an_index_of_its_samples_now(tables: Runner, kind: str) -> None:
    path = built(tables, kind)
    assert tables("add", "more.npz", "-g", path).exit == 0
    gallery = load_gallery(path)
    assert len(gallery.names) == 440
    again = make_indexes(gallery.method, gallery.samples)
    assert again.keys() == gallery.state.keys()
    for key, array in again.items():
        np.testing.assert_array_equal(gallery.state[key], array)
    assert tables("remove", "-g", path, "--class", "c03").exit == 0
    assert len(load_gallery(path).names) == 440 - 22
    assert len(labels(tables, str(path))) == 60


@each_kind
def test_explain_agrees_with_classify(tables: Runner, kind: str) -> None:
    path = built(tables, kind)
    labels(tables, str(path))
    (first, *_) = read_rows(tables.here / "out.csv")
    result = tables("explain", "queries.npz#0", "-g", path, "--json")
    assert result.exit == 0
    (found,) = json.loads(result.out)["explanations"]
    assert (found["label"], found["runner_up"]) == (first["label"], first["runner_up"])
    assert found["margin"] == pytest.approx(float(first["margin"]), abs=1e-5)


@each_kind
def test_calibrate_and_reject(tables: Runner, kind: str) -> None:
    """Held-out samples are searched exactly, so the calibration is the same as with exact search."""
    stored = [load_gallery(built(tables, one, "--calibrate")).calibration for one in (kind, "exact")]
    assert stored[0] is not None
    assert stored[1] is not None
    np.testing.assert_array_equal(stored[0].standouts, stored[1].standouts)
    rejected = [labels(tables, f"{one}.h5", "--reject", "0.5").count("unknown") for one in (kind, "exact")]
    assert rejected[0] > 0
    assert abs(rejected[0] - rejected[1]) <= 3


@each_kind
@pytest.mark.parametrize("name", LOCAL)
def test_every_method_that_codes_by_neighbours(kind: str, name: str) -> None:
    features, of_class = rows(600, 0)
    order = np.argsort(of_class, kind="stable")
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    samples = Samples.of(unit[order], of_class[order])
    queries = unit[:50] * 0.5 + unit[50:100] * 0.5
    exact = make_method(name, {"neighbors": 9})
    method = make_method(name, {"neighbors": 9, "index": kind})
    expected = to_dense(residuals(exact, samples, {}, queries))
    found = to_dense(residuals(method, samples, make_indexes(method, samples), queries))
    is_same = np.isclose(found, expected, rtol=1e-4).all(axis=1)
    assert is_same.mean() > 0.9
    without = to_dense(residuals(method, samples, fit_method(method, samples), queries))
    np.testing.assert_array_equal(without, expected)


@each_kind
def test_every_part_has_an_index(kind: str) -> None:
    features, of_class = rows(300, 0)
    order = np.argsort(of_class, kind="stable")
    edges = np.array([0, 7, 16])
    for a, b in ((0, 7), (7, 16)):
        features[:, a:b] /= np.linalg.norm(features[:, a:b], axis=1, keepdims=True)
    samples = Samples.of(features[order], of_class[order], edges)
    method = make_method("crnr", {"neighbors": 9, "index": kind})
    state = make_indexes(method, samples)
    assert {key.rpartition(".")[2] for key in state} == {"0", "1"}
    exact = residuals(method, samples, {}, features[:40])
    found = residuals(method, samples, state, features[:40])
    assert np.isclose(found, exact, rtol=1e-4).all(axis=1).mean() > 0.9
    assert worst_index_measurement(state) == Measured(
        *np.minimum(state["index_measured.0"], state["index_measured.1"])
    )


def tiles_with_blanks(n: int, seed: int, spread: float = 0.5) -> tuple[Samples, np.ndarray]:
    """Return samples and queries of three tiles, two of which are blank in most of some classes."""
    rng = np.random.default_rng(seed)
    features, of_class = rows(n, seed, classes=10, spread=spread)
    for a, b, share in ((0, 5, 0), (5, 10, 0.9), (10, 16, 0.8)):
        features[:, a:b] /= np.linalg.norm(features[:, a:b], axis=1, keepdims=True)
        features[(rng.random(n) < share) & (of_class > 4), a:b] = 0
    order = np.argsort(of_class[: n // 2], kind="stable")
    samples = Samples.of(features[order], of_class[order], np.array([0, 5, 10, 16]))
    return samples, features[n // 2 :]


@each_kind
@pytest.mark.parametrize("name", LOCAL)
def test_an_index_that_finds_all_neighbours_gives_all_labels(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blank tile has no neighbours that could be missed, and no label."""
    samples, queries = tiles_with_blanks(1200, 0)
    monkeypatch.setitem(indexes._LEAST_WIDTH, kind, 10**6)
    method = make_method(name, {"neighbors": 20, "index": kind})
    state = make_indexes(method, samples)
    assert worst_index_measurement(state) == Measured(1.0, 1.0)
    exact, found = (to_dense(residuals(method, samples, given, queries)) for given in ({}, state))
    np.testing.assert_allclose(found, exact, rtol=1e-4)


@pytest.mark.slow
@each_kind
@pytest.mark.parametrize("name", LOCAL)
def test_blank_tiles_do_not_make_the_index_look_worse(kind: str, name: str) -> None:
    """They are equally near to all samples, of which a search finds any; so it would be widened in vain."""
    samples, queries = tiles_with_blanks(8000, 2, spread=0.1)
    method = make_method(name, {"neighbors": 20, "index": kind})
    state = make_indexes(method, samples)
    exact, found = (residuals(method, samples, given, queries).argmin(axis=1) for given in ({}, state))
    assert np.mean(exact == found) >= 0.995
    measured = worst_index_measurement(state)
    assert measured is not None
    assert measured.agreement >= 0.995
    assert [state[f"index_effort.{number}"].item() for number in range(3)] == 3 * [indexes._LEAST_WIDTH[kind]]


@pytest.mark.slow
@each_kind
def test_the_agreement_is_the_share_of_whole_queries(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other queries find it, of which the index of one list, or of a short walk, misses neighbours."""
    samples, queries = tiles_with_blanks(8000, 1)
    monkeypatch.setitem(indexes._LEAST_WIDTH, kind, 1)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0)
    monkeypatch.setattr(indexes, "WANTED_AGREEMENT", 0)
    method = make_method("crnr", {"neighbors": 20, "index": kind})
    state = make_indexes(method, samples)
    assert [state[f"index_effort.{number}"].item() for number in range(3)] == [1, 1, 1]
    exact, found = (residuals(method, samples, given, queries).argmin(axis=1) for given in ({}, state))
    measured = worst_index_measurement(state)
    assert measured is not None
    assert measured.agreement < 1
    assert measured.agreement == pytest.approx(np.mean(exact == found), abs=0.08)


@each_kind
def test_the_estimator_has_the_index_and_is_copied_and_saved(kind: str, tmp_path: Path) -> None:
    features, of_class = rows(400, 0)
    asked = rows(60, 1)[0]
    fitted = CRNRClassifier(neighbors=12, index=kind).fit(features, of_class)
    predicted = fitted.predict(asked)
    np.testing.assert_array_equal(copy.deepcopy(fitted).predict(asked), predicted)
    fitted.save(tmp_path / "g.h5")
    loaded = CRNRClassifier.load(tmp_path / "g.h5")
    assert loaded.get_params()["index"] == kind
    np.testing.assert_array_equal(loaded.predict(asked), predicted)
    with pytest.raises(ValueError, match="index must be exact or ivf or hnsw, not 'tree'"):
        CRNRClassifier(neighbors=12, index="tree").fit(features, of_class)


def test_an_index_without_neighbours_is_refused(tables: Runner) -> None:
    result = tables("build", "gallery.npz", "--index", "hnsw")
    assert (result.exit, result.out) == (2, "")
    words = "--index hnsw needs --neighbors K, the number of nearest examples to use"
    assert result.err == f"error: {words}\n"
    assert "gallery.h5" not in tables.files()
    result = tables("build", "gallery.npz", "--method", "nn", "--index", "hnsw")
    assert (result.exit, result.out) == (2, "")
    assert result.err == "error: --index does not apply to --method nn; it belongs to crnr, nrc, crc, src\n"


def test_a_missing_package_is_named(tables: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    path = built(tables, "hnsw")
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    result = tables("build", "gallery.npz", "-o", "g.h5", "--neighbors", 5, "--index", "ivf")
    assert (result.exit, result.out) == (1, "")
    assert result.err == f"error: {extras.describe_missing('faiss', '--index ivf', 'faiss')}\n"
    result = tables("classify", "queries.npz", "-g", path)
    assert (result.exit, result.out) == (1, "")
    assert result.err == f"error: {extras.describe_missing('faiss', '--index hnsw', 'faiss')}\n"


def test_index_notes_report_labels_that_differ_from_the_exact_search() -> None:
    low, high = ({"index_measured": np.array([0.9, same])} for same in (0.953, 0.99))
    (note,) = fit.index_notes(low)
    assert note.text == (
        "with the index, 95.3% of the labels agree with the exact search; `crnr tune` may find better "
        "settings, and --index exact makes no errors"
    )
    assert fit.index_notes(high) == fit.index_notes({}) == []


@pytest.mark.parametrize("key", ["index_measured", "index_measured.3"])
def test_invalid_index_measurements_are_refused_without_an_index(tables: Runner, key: str) -> None:
    gallery = load_gallery(built(tables, "exact"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(gallery), "gives_residuals", lambda self: True)
        save_gallery(replace(gallery, state={key: np.array([0.9, 7.0])}), tables.here / "damaged.h5")
    result = tables("info", "damaged.h5")
    assert (result.exit, result.out) == (1, "")
    assert result.err == (
        "error: damaged.h5: not a consistent gallery (the measured quality of the index is not given as "
        "shares); "
        "build it again\n"
    )


DAMAGE = {
    "hnsw": {"effort": 10**6, "measured": 2, "links": 400, "levels": 100, "graph": -1},
    "ivf": {"effort": 0, "measured": -1, "centers": np.nan, "edges": 3, "members": 7},
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in DAMAGE for name in DAMAGE[kind]])
def test_damage_with_a_right_checksum_is_refused(tables: Runner, kind: str, name: str) -> None:
    gallery = load_gallery(built(tables, kind))
    sound = gallery.state[f"index_{name}"]
    for damaged in (sound[:-1], np.full_like(sound, DAMAGE[kind][name])):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(gallery), "gives_residuals", lambda self: True)
            path = tables.here / "damaged.h5"
            save_gallery(replace(gallery, state=gallery.state | {f"index_{name}": damaged}), path)
        result = tables("classify", "queries.npz", "-g", "damaged.h5")
        assert (result.exit, result.out) == (1, "")
        assert result.err.startswith("error: damaged.h5: not a consistent gallery (")
        assert result.err.endswith("); build it again\n")
