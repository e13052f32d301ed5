"""Tune: the settings that label a gallery's own samples best, each by the others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.jobs.build import (
    BuildOptions,
    BuildReport,
    LabelledVectors,
    LeftOut,
    apply_recipe,
    make_gallery,
    read_samples,
    write_gallery,
)
from crnr_cli.methods import Method, NonNegative, make_method
from crnr_cli.methods.folds import Fold, stratified_folds
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.pca import principal_axes
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.results.scores import wilson
from crnr_cli.sources.folders import open_source
from crnr_cli.system import memory
from crnr_cli.system.files import check_output
from crnr_cli.system.spread import Spread, here

LAMS = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0)
MUS = (0.03, 0.1, 0.3, 1.0)
ITERATIONS = (2, 3, 5, 8, 12, 20)
PAPER = Crnr()  # lam 0.01, mu 0.1, 5 iterations


@dataclass(frozen=True)
class TuneOptions:
    """What to try. Of powers and numbers of components the first is preferred."""

    build: BuildOptions = field(default_factory=BuildOptions)
    powers: Sequence[float] = (1.0, 0.5)
    pcas: Sequence[int | None] = (None,)
    methods: Sequence[str] = ()  # beside crnr
    folds: int = 5
    budget: float | None = None  # seconds


@dataclass(frozen=True)
class Setting:
    method: Method
    power: float
    pca: int | None

    def parameters(self) -> dict[str, Any]:
        """Those that tune may change, by name."""
        tuned = ("lam", "mu", "iterations") if isinstance(self.method, NonNegative) else ()
        values = {name: getattr(self.method, name) for name in tuned if hasattr(self.method, name)}
        return {"method": self.method.name, **values, "power": self.power, "pca": self.pca}


@dataclass(frozen=True)
class Trial:
    """A setting, and which of the held-back samples it labelled right."""

    setting: Setting
    right: Array  # (n,), in the same order for every trial

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(int(self.right.sum()), len(self.right))

    def lead(self, other: Trial) -> tuple[float, float]:
        """How much more accurate than the other on the same samples, and the standard error of that."""
        difference = self.right.astype(float) - other.right
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


@dataclass(frozen=True)
class TuneReport:
    trials: list[Trial]  # the most accurate first
    paper: Trial
    chosen: Trial
    folds: int
    untried: int  # settings that the budget left no time for
    seconds: float
    left_out: list[LeftOut]
    notes: list[str]
    built: BuildReport | None = None


@dataclass
class FoldedSamples:
    """The raw samples sorted by class, the fold of each, and how unit vectors are made of them."""

    raw: Array
    class_index: Array
    fold_of: Array
    recipe: Recipe
    dtype: str
    _kept: tuple[float, int | None, dict[int, Fold]] | None = None  # the folds made of one recipe

    @property
    def count(self) -> int:
        return int(self.fold_of.max()) + 1

    def fold(self, power: float, pca: int | None, number: int) -> Fold:
        """As unit vectors. Kept until another recipe is asked for: its products serve all methods."""
        kept = self._kept  # read once: a worker's threads share this object
        if kept is None:
            _refuse_too_large(self.raw, self.count)
        if kept is None or kept[:2] != (power, pca):
            kept = self._kept = (power, pca, {})
        folds = kept[2]
        if number not in folds:
            folds[number] = self._made(power, pca, number)
        return folds[number]

    def _made(self, power: float, pca: int | None, number: int) -> Fold:
        held_back = self.fold_of == number
        # Principal axes are fitted without the samples held back.
        axes = None if pca is None else principal_axes(self.raw[~held_back], pca, power)
        vectors, _ = replace(self.recipe, power=power, pca=axes).unit_vectors(self.raw, self.dtype)
        return Fold.split(vectors, self.class_index, held_back)


@dataclass(frozen=True)
class Pass:
    """A method on one fold of one recipe: what is done at a time."""

    number: int  # of the method and the recipe, among all
    method: Method
    power: float
    pca: int | None
    fold: int


def tune(
    names: Sequence[str],
    options: TuneOptions,
    output: Path | None = None,
    progress: Progress = silent,
    spread: Spread = here,
) -> TuneReport:
    """Try all settings on the source alone, and build a gallery with the chosen one if there is an output."""
    started = time.perf_counter()
    if output:
        check_output(output, names)
    _methods(options.methods)  # refuses a name that is none before anything is read
    source = open_source(names, options.build.keys, nul_separated=options.build.nul_separated)
    labelled = read_samples(source, options.build, progress, raw=True)
    report = tune_samples(labelled, options, progress, spread)
    return replace(report, built=_build(labelled, report, options, output, started) if output else None)


def tune_samples(
    labelled: LabelledVectors, options: TuneOptions, progress: Progress = silent, spread: Spread = here
) -> TuneReport:
    """The same for samples at hand, as raw values."""
    started = time.perf_counter()
    class_index = np.unique(np.array(labelled.labels), return_inverse=True)[1]
    order = np.argsort(class_index, kind="stable")
    class_index = class_index[order]
    fold_of = stratified_folds(class_index, _fold_count(class_index, options.folds))
    samples = FoldedSamples(
        labelled.vectors[order], class_index, fold_of, labelled.recipe, options.build.dtype
    )
    recipes = [(power, pca) for pca in options.pcas for power in options.powers]
    methods = _methods(options.methods)
    trials: list[Trial] = []
    right: list[Array] = []  # of the folds so far
    for done, found in spread(_right, samples, _passes(recipes, methods, samples.count, options, started)):
        right.append(found)
        if len(right) == samples.count:
            trials += _trials(done, right)
            right = []
            progress("tuning", done.number + 1, len(recipes) * len(methods))
    paper = next(trial for trial in trials if trial.setting.method == PAPER)
    settings = len(recipes) * sum(len(_variants(method)) for method in methods)
    return TuneReport(
        trials=sorted(trials, key=lambda trial: -trial.accuracy),
        paper=paper,
        chosen=choose(trials, paper),
        folds=samples.count,
        untried=settings - len(trials),
        seconds=time.perf_counter() - started,
        left_out=labelled.left_out,
        notes=labelled.notes,
    )


def choose(trials: Sequence[Trial], paper: Trial) -> Trial:
    """The paper's setting, unless the most accurate one beats it by more than one standard error; then, of
    those that do so and are within one standard error of the most accurate, the one with the fewest changes.

    The most accurate of hundreds is in part the luckiest, and new queries may come from another day.
    """
    best = max(trials, key=lambda trial: trial.accuracy)
    if not _beats(best, paper):
        return paper
    contenders = [trial for trial in trials if _beats(trial, paper) and not _beats(best, trial)]
    return min(contenders, key=lambda trial: (*_changes(trial.setting, paper.setting), -trial.accuracy))


def _beats(trial: Trial, other: Trial) -> bool:
    lead, error = trial.lead(other)
    return lead > error


def _changes(setting: Setting, paper: Setting) -> tuple[bool, int]:
    """Whether it is another method, and how many other settings differ."""
    mine, theirs = setting.parameters(), paper.parameters()
    differing = sum(mine[name] != theirs.get(name) for name in mine)
    return setting.method.name != paper.method.name, differing


def _methods(names: Sequence[str]) -> list[Method]:
    """What is fitted: each crnr and nrc answers for all counts of iterations. The paper's comes first."""
    grid = sorted((Crnr(lam=lam, mu=mu) for lam in LAMS for mu in MUS), key=_distance)
    others: list[Method] = []
    for name in names:
        if name == Nrc.name:
            others += [Nrc(mu=mu) for mu in MUS]
        elif name != Crnr.name:
            others.append(make_method(name, {}))
    return [grid[0], *others, *grid[1:]]  # what was asked for by name is not left to the end of a budget


def _distance(method: Crnr) -> tuple[int, int]:
    """Steps in the grid from the paper's setting: what is near it is tried first, lam before mu."""
    return abs(MUS.index(method.mu) - MUS.index(PAPER.mu)), abs(
        LAMS.index(method.lam) - LAMS.index(PAPER.lam)
    )


def _variants(method: Method) -> list[Method]:
    """The methods that one pass answers for."""
    if isinstance(method, NonNegative):
        return [replace(method, iterations=count) for count in ITERATIONS]
    return [method]


def _passes(
    recipes: Sequence[tuple[float, int | None]],
    methods: Sequence[Method],
    folds: int,
    options: TuneOptions,
    started: float,
) -> Iterator[Pass]:
    """What to do, as long as there is time when it is asked for; no method stops between its folds."""
    for turn, (power, pca) in enumerate(recipes):
        for index, method in enumerate(methods):
            # Every recipe has its share of the time, and the paper's setting is always tried.
            share = None if options.budget is None else options.budget * (turn + 1) / len(recipes)
            if index and share is not None and time.perf_counter() - started > share:
                break
            for fold in range(folds):
                yield Pass(turn * len(methods) + index, method, power, pca, fold)


def _right(samples: FoldedSamples, this: Pass) -> Array:
    """(variants, held back): which of the samples held back are labelled right."""
    fold = samples.fold(this.power, this.pca, this.fold)
    right: Array = fold.winners(this.method, ITERATIONS) == fold.truth
    return right


def _trials(done: Pass, right: Sequence[Array]) -> list[Trial]:
    """Of all variants, from what was right in every fold."""
    settings = [Setting(variant, done.power, done.pca) for variant in _variants(done.method)]
    return [Trial(setting, row) for setting, row in zip(settings, np.hstack(right), strict=True)]


def _fold_count(class_index: Array, wanted: int) -> int:
    largest = int(np.bincount(class_index).max())
    if len(np.unique(class_index)) < 2:
        raise DataError("only one class: there is nothing to tell apart, and nothing to tune")
    if largest < 2:
        raise DataError("every class has one sample: tune holds samples back, and needs two of a class")
    return min(wanted, largest)


def _refuse_too_large(raw: Array, folds: int) -> None:
    """The unit vectors and, in every fold, the samples' products with one another."""
    n, d = raw.shape
    n_kept = n - n // folds
    products = 8 * n_kept * n_kept * (folds + 3) if n_kept <= 2 * d else 0  # in float64, and 3 to factorize
    needed = 8 * n * d + products
    memory.require(needed, f"tuning on {n} samples of {d} numbers", "use a smaller --size or fewer samples")


def _build(
    labelled: LabelledVectors, report: TuneReport, options: TuneOptions, output: Path, started: float
) -> BuildReport:
    """From the values at hand: nothing is read twice."""
    setting = report.chosen.setting
    axes = None if setting.pca is None else principal_axes(labelled.vectors, setting.pca, setting.power)
    apply_recipe(labelled, replace(labelled.recipe, power=setting.power, pca=axes), options.build.dtype)
    gallery = make_gallery(labelled, setting.method)
    return BuildReport(
        gallery=gallery,
        file_bytes=write_gallery(gallery, output),
        seconds=time.perf_counter() - started,
        left_out=labelled.left_out,
        notes=labelled.notes,
    )
