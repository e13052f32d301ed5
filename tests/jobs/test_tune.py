"""Tune: found from the gallery alone, and no change without a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.folded import FoldedSamples, VectorRecipe
from crnr_cli.jobs import tune as job
from crnr_cli.jobs.tune import Setting, Trial, choose
from crnr_cli.methods import Method
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.system.extras import describe_missing
from helpers.patches import remove_extras, set_free_bytes
from helpers.runner import Runner
from helpers.samples import make_images


def setting(method: Method, power: float = 1.0) -> Setting:
    return Setting(method, VectorRecipe(0, None, (("power", power), ("pca", None))))


PAPER = setting(Crnr())


def trial(setting: Setting, n_right: int, n: int = 400) -> Trial:
    """Right on the first `n_right` samples: of two, the better one is right wherever the other is."""
    return Trial(setting, np.arange(n) < n_right)


def test_lead_has_the_standard_error_of_paired_answers() -> None:
    right = np.array([1, 1, 1, 0, 0, 1, 0, 1], dtype=bool)
    other = np.array([1, 0, 0, 0, 1, 1, 0, 1], dtype=bool)
    lead, error = Trial(PAPER, right).lead(Trial(PAPER, other))
    # Two samples won and one lost of eight: mean 1/8, variance (3 - 8/64) / 7.
    assert lead == pytest.approx(1 / 8)
    assert error == pytest.approx(np.sqrt((3 - 8 / 64) / 7 / 8))


def test_the_papers_setting_stays_within_one_standard_error() -> None:
    paper, other = trial(PAPER, 300), trial(setting(Crnr(lam=1.0), 1.0), 301)
    # One sample more of 400: lead 1/400, error sqrt(1/400 * 399/400 / 399) = 1/400.
    assert other.lead(paper) == pytest.approx((1 / 400, 1 / 400))
    assert choose([paper, other], paper) is paper


def test_choose_prefers_the_fewest_changes_near_the_best() -> None:
    paper = trial(PAPER, 300)
    near = trial(setting(Crnr(lam=1.0), 1.0), 339)
    best = trial(setting(Crnr(lam=1.0, mu=0.3, iterations=8), 0.5), 340)
    far = trial(setting(Crnr(lam=0.1), 1.0), 320)
    assert choose([paper, far, near, best], paper) is near


def test_choose_requires_a_setting_that_beats_the_default() -> None:
    rng = np.random.default_rng(0)
    paper = trial(PAPER, 300)
    best = trial(setting(Crnr(lam=1.0), 0.5), 308)
    # As often right as the best, yet on other samples than the paper's: not clearly better than that.
    noisy = Trial(setting(Crnr(iterations=8), 1.0), rng.permutation(best.right))
    assert noisy.accuracy == best.accuracy
    assert noisy.lead(paper)[0] <= noisy.lead(paper)[1]
    assert choose([paper, best, noisy], paper) is best


def test_another_method_must_beat_all_of_crnr() -> None:
    paper = trial(PAPER, 300)
    crnr = trial(setting(Crnr(lam=1.0, mu=0.3), 0.5), 339)
    assert choose([paper, crnr, trial(setting(Nrc(), 1.0), 340)], paper) is crnr
    better = trial(setting(Nrc(), 1.0), 380)
    assert choose([paper, crnr, better], paper) is better


@pytest.fixture
def heavy_tails(tmp_path: Path) -> Path:
    """Classes that differ in many small features, drowned by a few large ones that say nothing."""
    rng = np.random.default_rng(3)
    centres = rng.uniform(0, 1, size=(5, 30))
    labels = np.repeat(np.arange(5), 12)
    noise = np.exp(rng.normal(1.2, 1.5, size=(60, 10)))
    small = np.abs(centres[labels] + 0.25 * rng.normal(size=(60, 30)))
    with h5py.File(path := tmp_path / "heavy.h5", "w") as file:
        file["features"], file["labels"] = np.hstack([small**2, noise]), labels
    return path


def test_tune_finds_a_power_and_builds_with_it(
    crnr: Runner, heavy_tails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "LAMS", (0.0, 0.01, 1.0))
    monkeypatch.setattr(job, "MUS", (0.1, 0.3))
    gallery, plot = tmp_path / "g.h5", tmp_path / "p.png"
    command = ["tune", str(heavy_tails), "-o", str(gallery), "--plot", str(plot), "--methods", "nrc"]
    result = crnr(*command, "--json")
    assert result.exit == 0, result.err
    record = json.loads(result.out)
    assert record["chosen"]["power"] == 0.5
    assert (record["n"], record["folds"], record["untried"]) == (60, 5, 0)
    assert len(record["trials"]) == 3 * (3 * 2 + 2) * 6
    accuracies = [trial["accuracy"] for trial in record["trials"]]
    assert accuracies == sorted(accuracies, reverse=True)
    assert record["paper"] in record["trials"]
    loaded = load_gallery(gallery)
    assert loaded.recipe.settings == {"power": 0.5, "pca": None, "whiten": 0.0, "parts": None}
    assert {name: getattr(loaded.method, name) for name in ("lam", "mu", "iterations")} == {
        name: record["chosen"][name] for name in ("lam", "mu", "iterations")
    }
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert f"{gallery}: built with --method crnr" in result.err


def test_tune_shows_a_table_with_the_papers_setting(
    crnr: Runner, heavy_tails: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "LAMS", (0.01, 1.0))
    monkeypatch.setattr(job, "MUS", (0.1,))
    result = crnr("tune", heavy_tails, "--try-pca", "0,10", "--samples-axis", "rows")
    assert result.exit == 0
    assert "60 examples, each labelled by the others, in 5 folds; best of 72 settings" in result.out
    assert "vs. default" in result.out
    assert (
        f"to build a gallery with it: crnr build {heavy_tails} --samples-axis rows --method crnr"
        in result.err
    )


def test_copies_do_not_make_a_setting_look_better(crnr: Runner, tmp_path: Path) -> None:
    """Classes that cannot be told apart: with every sample there twice, they still cannot."""
    values = np.random.default_rng(0).normal(size=(60, 20))
    labels = np.tile(np.repeat(["a", "b", "c"], 20), 2)
    np.savez(tmp_path / "twice.npz", features=np.concatenate([values, values]), labels=labels)
    result = crnr("tune", tmp_path / "twice.npz", "--budget", "0", "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    record = json.loads(result.out)
    assert record["n"] == 60
    assert record["paper"]["accuracy"] < 0.6


def budgeted(
    budget: float | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], float]:
    """Return the recipes and methods tried, and the time, on a clock with a fixed time per pass."""
    now = 0.0
    monkeypatch.setattr(job.time, "perf_counter", lambda: now)
    methods: list[Method] = [Crnr(lam=lam) for lam in (0.01, 0.1, 1.0)]
    tried = []
    recipes = [VectorRecipe(0, None, (("power", power),)) for power in (1.0, 0.5)]
    for this in job._passes(recipes, methods, 2, budget):
        now += seconds
        assert isinstance(this.method, Crnr)
        if this.fold == 0:
            tried.append(f"{this.vectors.steps[0][1]:g}/{this.method.lam:g}")
    return tried, now


def test_tune_keeps_its_budget_and_passes_unused_time_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = ["1/0.01", "1/0.1", "1/1", "0.5/0.01", "0.5/0.1", "0.5/1"]
    assert budgeted(None, 100.0, monkeypatch) == (everything, 1200.0)
    assert budgeted(12.0, 1.0, monkeypatch) == (everything, 12.0)
    assert budgeted(0.0, 1.0, monkeypatch) == (["1/0.01"], 2.0)
    # Half of the time for each recipe; a method of two folds takes 2 seconds.
    assert budgeted(4.0, 1.0, monkeypatch) == (["1/0.01", "0.5/0.01"], 4.0)
    assert budgeted(8.5, 1.0, monkeypatch) == (["1/0.01", "1/0.1", "0.5/0.01", "1/1"], 8.0)


@pytest.mark.parametrize("seconds", [0.1, 1.0, 3.0, 6.6])
def test_a_budget_for_three_methods_reaches_every_power(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,010 examples, whatever a fold takes, the default method is the first of each power."""
    now = 0.0
    monkeypatch.setattr(job.time, "perf_counter", lambda: now)
    raw = np.ones((1010, 2))
    order, nothing = np.arange(1010), np.zeros(1010)
    samples = FoldedSamples([raw], order, [Recipe(2)], nothing, nothing, raw[:, 0] > 0, "float32")
    recipes, notes = job._recipes(samples, job.TuneOptions())
    assert notes == []
    methods = job._methods((), job._neighbors(1010))
    first: dict[float, Method] = {}
    for this in job._passes(recipes, methods, 5, 100.0):
        now += seconds
        first.setdefault(dict(this.vectors.steps)["power"], this.method)
    assert first == dict.fromkeys((1.0, 0.7, 0.5), job.DEFAULT)
    assert list(first) == [1.0, 0.7, 0.5]
    assert now <= 100


def test_a_column_is_shown_for_all_that_was_tried(crnr: Runner, heavy_tails: Path) -> None:
    """Although the best settings may agree in it."""
    shown = crnr("tune", heavy_tails, "--try-pca", "0,5", "--budget", "20").out
    assert {"power", "pca"} <= set(shown.splitlines()[2].split())


def test_a_budget_of_nothing_tries_the_papers_setting_alone(crnr: Runner, heavy_tails: Path) -> None:
    result = crnr("tune", heavy_tails, "--budget", "0", "--json", "--quiet")
    assert (result.exit, result.err) == (0, "")
    record = json.loads(result.out)
    # One pass covers all counts of iterations.
    assert {(trial["lam"], trial["mu"], trial["power"]) for trial in record["trials"]} == {(0.01, 0.1, 1.0)}
    assert len(record["trials"]) == 6
    assert record["untried"] == (3 * 28 - 1) * 6
    shown = crnr("tune", heavy_tails, "--budget", "0").err
    assert f"note: the time budget ended with {(3 * 28 - 1) * 6} settings untried\n" in shown


def test_an_image_that_is_left_out_makes_the_exit_code_3(crnr: Runner, tmp_path: Path) -> None:
    make_images(tmp_path / "g", per_class=3)
    (tmp_path / "g" / "ant" / "empty.png").write_bytes(b"")
    command = ["tune", str(tmp_path / "g"), "--budget", "0", "-o", str(tmp_path / "g.h5")]
    result = crnr(*command)
    assert result.exit == 3
    assert f"failed: {tmp_path}/g/ant/empty.png: the file is empty\n" in result.err
    assert crnr(*command, "--allow-skipped").exit == 0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            "abcd",
            "every class has only one example, apart from copies: "
            "tune holds examples out, so it needs two per class",
        ),
        ("aaaa", "only one class: there is nothing to tune; add examples of other classes"),
    ],
)
def test_tune_refuses_one_class_and_single_samples(
    crnr: Runner, tmp_path: Path, labels: str, message: str
) -> None:
    np.savez(path := tmp_path / "f.npz", features=np.eye(4), labels=np.array(list(labels)))
    result = crnr("tune", path)
    assert (result.exit, result.out, result.err) == (1, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--methods", "magic"], "error: --methods: 'magic' is not one of crnr, nrc, "),
        (["--plot", "x.bmp"], "error: x.bmp: the name of a plot must end in .png, .svg, .pdf"),
        (["--try-pca", "1.5"], "--try-pca '1.5': give settings separated by commas"),
        (["--try-pca", "inf"], "--try-pca 'inf': give settings separated by commas"),
        (["--try-power", "a"], "--try-power 'a': give settings separated by commas"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_tune_refuses_invalid_options(crnr: Runner, heavy_tails: Path, option: list[str], words: str) -> None:
    result = crnr("tune", heavy_tails, *option)
    assert (result.exit, result.out) == (2, "")
    assert words in result.err


def test_tune_without_matplotlib_names_the_extra(
    crnr: Runner, heavy_tails: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_extras(monkeypatch.setattr)
    result = crnr("tune", heavy_tails, "--plot", "x.png")
    assert (result.exit, result.out) == (1, "")
    assert result.err == f"error: {describe_missing('report', '--plot', 'matplotlib')}\n"


def test_tune_refuses_more_than_fits_into_memory(
    crnr: Runner, heavy_tails: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_free_bytes(20_000, monkeypatch.setattr)  # enough to read them
    result = crnr("tune", heavy_tails)
    assert (result.exit, result.out) == (1, "")
    assert re.fullmatch(
        r"error: tuning on 60 examples with 40 features each needs [\d.]+ MB of memory, but 20\.0 kB are "
        r"free; "
        r"use a smaller --size or fewer examples\n",
        result.err,
    )


def test_any_method_of_the_registry_can_be_tried_within_a_budget(
    crnr: Runner, heavy_tails: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named methods are tried right after the default setting, and shown."""
    monkeypatch.setattr(job, "LAMS", (0.01, 1.0))
    monkeypatch.setattr(job, "MUS", (0.1,))
    result = crnr("tune", heavy_tails, "--methods", "nn,svm,crc", "--try-power", "1")
    assert result.exit == 0, result.err
    for name in ("nn", "svm", "crc"):
        assert sum(name in line.split()[:2] for line in result.out.splitlines()) == 1
    assert [method.name for method in job._methods(["nn", "svm"])[:3]] == ["crnr", "nn", "svm"]


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (("Cat", "cat", "dog"), "classes 'Cat' and 'cat' differ only in case or Unicode form; rename one"),
        (("ant", "unknown"), "class 'unknown': this name is reserved for rejected queries; rename the class"),
    ],
)
def test_classes_that_no_gallery_could_have_are_refused_before_any_work(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch, classes: tuple[str, ...], words: str
) -> None:
    make_images(crnr.here / "gallery", classes)
    monkeypatch.setattr(job, "_find_right_answers", None)  # nothing is to be tried
    outcome = crnr("tune", "gallery", "-o", "gallery.h5")
    assert (outcome.exit, outcome.out, outcome.err) == (1, "", f"error: {words}\n")
    assert crnr.files() == {"gallery"}
