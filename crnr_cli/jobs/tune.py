"""Tune: cross-validation on a gallery's own samples finds the settings that label them best."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.gallery.copies import copy_notes
from crnr_cli.gallery.fit import BuildReport, make_gallery, sort_by_class, write_gallery
from crnr_cli.gallery.samples import BATCH, LeftOut, Note, RawSamples, Reading, count_skipped, read_raw
from crnr_cli.methods import Method, make_method
from crnr_cli.methods.folds import Fold, copies_of, one_per_copies, stratified_folds
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.registry import STEPS, make_steps
from crnr_cli.results.scores import wilson
from crnr_cli.sources.listing import open_source
from crnr_cli.system import memory
from crnr_cli.system.cores import pieces_at_once
from crnr_cli.system.spread import Spread, here
from crnr_cli.wording import counted

LAMS = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0)
MUS = (0.03, 0.1, 0.3, 1.0)
_ITERATIONS = (2, 3, 5, 8, 12, 20)
_CODES = 2**27  # about how many bytes the codes of a batch take while methods are tried
PAPER = Crnr()  # lam 0.01, mu 0.1, 5 iterations
StepSettings = tuple[tuple[str, Any], ...]  # the setting of every step, by name


@dataclass(frozen=True)
class TuneOptions:
    """Which settings to try, and how."""

    reading: Reading = field(default_factory=Reading)  # its steps are not used
    # The settings of every step, by name, the preferred one first; by default those that the step proposes.
    steps: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    methods: Sequence[str] = ()  # besides crnr
    folds: int = 5
    budget: float | None = None  # seconds

    def recipes(self) -> list[StepSettings]:
        """All combinations of the settings of the steps; those of the first step vary fastest."""
        candidates = {name: self.steps.get(name) or step.tried for name, step in STEPS.items()}
        names = list(candidates)
        return [
            tuple(zip(names, reversed(settings), strict=True))
            for settings in product(*reversed(candidates.values()))
        ]


@dataclass(frozen=True)
class Setting:
    method: Method
    steps: StepSettings

    def parameters(self) -> dict[str, Any]:
        """The method and the parameters that tune varies, by name."""
        values = {name: getattr(self.method, name) for name in self.method.tunable}
        return {"method": self.method.name, **values, **dict(self.steps)}

    def describe(self) -> str:
        """The steps of the recipe as text."""
        steps = make_steps(dict(self.steps))
        return ", ".join(step.describe() for step in steps)


@dataclass(frozen=True)
class Trial:
    """A setting, and which of the held-out samples it labelled correctly."""

    setting: Setting
    right: Array  # (n,), in the same order for every trial

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(int(self.right.sum()), len(self.right))

    def lead(self, other: Trial) -> tuple[float, float]:
        """How much more accurate this is than the other on the same samples, and the standard error of it."""
        difference = self.right.astype(float) - other.right
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


@dataclass(frozen=True)
class TuneReport:
    trials: list[Trial]  # the most accurate first
    paper: Trial
    chosen: Trial
    folds: int
    untried: int  # settings for which there was no time
    seconds: float
    left_out: list[LeftOut]
    notes: list[Note]
    built: BuildReport | None = None

    @property
    def skipped(self) -> int:
        return count_skipped(self.left_out)


@dataclass
class FoldedSamples:
    """The raw samples sorted by class, the fold of each, and the recipe for their unit vectors."""

    raw: Array
    class_index: Array
    fold_of: Array
    is_asked: Array  # a mask without further copies of a sample
    recipe: Recipe
    dtype: str
    _kept: tuple[StepSettings, dict[int, Fold]] | None = None  # the folds made by one recipe

    @property
    def count(self) -> int:
        return int(self.fold_of.max()) + 1

    def fold(self, steps: StepSettings, number: int) -> Fold:
        """A fold as unit vectors, cached until another recipe is needed: all methods share its products."""
        kept = self._kept  # read once, as the threads of a worker share this object
        if kept is None or kept[0] != steps:
            kept = self._kept = (steps, {})
        folds = kept[1]
        if number not in folds:
            folds[number] = self._made(steps, number)
        return folds[number]

    def _made(self, steps: StepSettings, number: int) -> Fold:
        held_out = self.fold_of == number
        recipe = replace(self.recipe, steps=make_steps(dict(steps))).fitted(self.raw[~held_out])
        batches = [self.raw[start : start + BATCH] for start in range(0, len(self.raw), BATCH)]
        vectors = np.concatenate([recipe.unit_vectors(batch, self.dtype)[0] for batch in batches])
        return Fold.of(vectors, self.class_index, held_out, self.is_asked)


@dataclass(frozen=True)
class Pass:
    """One piece of work: a method on one fold of one recipe."""

    number: int  # of the method and the recipe, in the order in which they are tried
    method: Method
    steps: StepSettings
    fold: int


def tune(
    names: Sequence[str],
    options: TuneOptions,
    output: Path | None = None,
    progress: Progress = silent,
    spread: Spread = here,
) -> TuneReport:
    """Try all settings on the source alone; if an output is given, build a gallery with the chosen one."""
    started = time.perf_counter()
    _methods(options.methods)  # refuse unknown names before anything is read
    source = open_source(names, options.reading)
    raw = read_raw(source, options.reading, progress)
    report = tune_samples(raw, options, progress, spread)
    return replace(report, built=_build(raw, report, options, output, started) if output else None)


def tune_samples(
    raw: RawSamples, options: TuneOptions, progress: Progress = silent, spread: Spread = here
) -> TuneReport:
    """Try all settings on samples that have been read already."""
    started = time.perf_counter()
    # Refuse invalid class names now, not when the tuned gallery is built.
    _, order, class_index = sort_by_class(raw.labels, raw.recipe.kind)
    values = raw.values[order]
    in_order_of_source = copies_of(raw.values, raw.hashes)
    copies = in_order_of_source[order]
    is_asked = one_per_copies(class_index, copies)
    count = _fold_count(class_index[is_asked], options.folds)
    fold_of = stratified_folds(class_index, count, copies=copies)
    samples = FoldedSamples(values, class_index, fold_of, is_asked, raw.recipe, options.reading.dtype)
    _refuse_too_large(samples, min(count, pieces_at_once(options.reading.n_jobs)))
    recipes = options.recipes()
    methods = _methods(options.methods)
    trials: list[Trial] = []
    right: list[Array] = []  # of the folds so far
    passes = _passes(recipes, methods, samples.count, options.budget)
    for done, found in spread(_right, samples, passes):
        right.append(found)
        if len(right) == samples.count:
            trials += _trials(done, right)
            right = []
            progress("tuning", done.number + 1, len(recipes) * len(methods))
    paper = next(trial for trial in trials if trial.setting.method == PAPER)
    settings = len(recipes) * sum(len(method.variants(_ITERATIONS)) for method in methods)
    return TuneReport(
        trials=sorted(trials, key=lambda trial: -trial.accuracy),
        paper=paper,
        chosen=choose(trials, paper),
        folds=samples.count,
        untried=settings - len(trials),
        seconds=time.perf_counter() - started,
        left_out=raw.left_out,
        notes=raw.notes + copy_notes(raw, in_order_of_source),
    )


def choose(trials: Sequence[Trial], paper: Trial) -> Trial:
    """The paper's setting, unless the most accurate one beats it by more than one standard error.

    In that case, consider the settings that also beat the paper's, and are not beaten by the most accurate
    one; of these, choose the one with the fewest changes.

    The most accurate of hundreds of settings is partly lucky, and may be no better on new queries.
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
    """Whether the method differs, and how many parameters differ."""
    mine, theirs = setting.parameters(), paper.parameters()
    differing = sum(mine[name] != theirs.get(name) for name in mine)
    return setting.method.name != paper.method.name, differing


def _methods(names: Sequence[str]) -> list[Method]:
    """The methods to fit, the paper's setting first. Each crnr and nrc covers all numbers of iterations."""
    grid = sorted((Crnr(lam=lam, mu=mu) for lam in LAMS for mu in MUS), key=_distance)
    others: list[Method] = []
    for name in names:
        if name == Nrc.name:
            others += [Nrc(mu=mu) for mu in MUS]
        elif name != Crnr.name:
            others.append(make_method(name, {}))
    return [grid[0], *others, *grid[1:]]  # requested methods come early, in case the budget ends


def _distance(method: Crnr) -> tuple[int, int]:
    """The distance in the grid from the paper's setting: the nearest are tried first, lam before mu."""
    return abs(MUS.index(method.mu) - MUS.index(PAPER.mu)), abs(
        LAMS.index(method.lam) - LAMS.index(PAPER.lam)
    )


def _passes(
    recipes: Sequence[StepSettings], methods: Sequence[Method], folds: int, budget: float | None
) -> Iterator[Pass]:
    """All passes, as long as there is time; a method that was started is run on all folds.

    The recipes take turns, and each turn gets an equal share of the time that is left. The paper's setting is
    always tried; any other is not begun if it would probably end after the budget.
    """
    started = time.perf_counter()
    number = 0
    waiting = deque((steps, deque(methods)) for steps in recipes)
    while waiting:
        steps, untried = waiting.popleft()
        begun = time.perf_counter()
        left = math.inf if budget is None else started + budget - begun
        share, used = left / (1 + len(waiting)), 0.0
        for done in range(len(untried)):
            expected = used + ((begun + used - started) / number if number else 0.0)
            if number and expected > left:
                return
            if done and expected > share:
                waiting.append((steps, untried))
                break
            method = untried.popleft()
            for fold in range(folds):
                yield Pass(number, method, steps, fold)
            number += 1
            used = time.perf_counter() - begun


def _right(samples: FoldedSamples, this: Pass) -> Array:
    """(variants, queries): which of the held-out samples each variant labels correctly."""
    fold = samples.fold(this.steps, this.fold)
    right: Array = this.method.winners_after(fold, _ITERATIONS) == fold.truth
    return right


def _trials(done: Pass, right: Sequence[Array]) -> list[Trial]:
    """One trial per variant, from the results of all folds."""
    settings = [Setting(variant, done.steps) for variant in done.method.variants(_ITERATIONS)]
    return [Trial(setting, row) for setting, row in zip(settings, np.hstack(right), strict=True)]


def _fold_count(class_index: Array, wanted: int) -> int:
    largest = int(np.bincount(class_index).max())
    if len(np.unique(class_index)) < 2:
        raise DataError("only one class: there is nothing to tune; add samples of other classes")
    if largest < 2:
        raise DataError(
            "every class has only one sample, apart from copies: tune holds samples out, so that "
            "it needs two per class"
        )
    return min(wanted, largest)


def _refuse_too_large(samples: FoldedSamples, at_once: int) -> None:
    """Every fold keeps its unit vectors and, if samples are few, the products of all pairs of them.

    Each of the passes that run at once also needs a factor and the codes of a batch.
    """
    (n, d), folds, itemsize = samples.raw.shape, samples.count, np.dtype(samples.dtype).itemsize
    n_kept = n - n // folds
    vectors = n * d * itemsize
    products, factor = (8 * n_kept**2, 4 * 8 * n_kept**2) if n_kept <= 2 * d else (0, 3 * 8 * n_kept * d)
    needed = folds * (vectors + products) + at_once * (2 * vectors + factor + _CODES)
    memory.require(
        needed,
        f"tuning on {counted(n, 'sample')} of {counted(d, 'number')}",
        "use a smaller --size or fewer samples",
    )


def _build(
    raw: RawSamples, report: TuneReport, options: TuneOptions, output: Path, started: float
) -> BuildReport:
    """Build the gallery from the values that were read for tuning, so that nothing is read twice."""
    setting = report.chosen.setting
    recipe = replace(raw.recipe, steps=make_steps(dict(setting.steps))).fitted(raw.values)
    gallery = make_gallery(labelled := raw.labelled_by(recipe, options.reading.dtype), setting.method)
    return BuildReport(
        gallery=gallery,
        file_bytes=write_gallery(gallery, output),
        seconds=time.perf_counter() - started,
        left_out=labelled.left_out,
        notes=labelled.notes,
    )
