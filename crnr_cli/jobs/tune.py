"""Tune: cross-validation on a gallery's own samples finds the settings that label them best."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.choices import ExtractorOptions
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.file import refuse_other_ending
from crnr_cli.gallery.fit import (
    BuildReport,
    make_gallery,
    notes_on_copies,
    sort_by_class,
    suit_to_vectors,
    write_gallery,
)
from crnr_cli.gallery.folded import FoldedSamples, StepSettings, VectorRecipe, fit_recipe
from crnr_cli.gallery.reading import Grid, extractors_for_grid
from crnr_cli.gallery.samples import Reading, ReadSamples, Report, read_raw_by_all
from crnr_cli.gallery.workers import Here, Workers
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import METHODS, Method, make_method
from crnr_cli.methods.base import winners_after
from crnr_cli.methods.folds import (
    first_of_copies_mask,
    group_copies,
    hold_out_few,
    join_events,
    stratified_folds,
)
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import STEPS, Recipe, make_steps
from crnr_cli.recipe.steps import grid_of
from crnr_cli.records import dataclass
from crnr_cli.results.scores import wilson_interval
from crnr_cli.sources.opening import open_examples
from crnr_cli.system import memory
from crnr_cli.system.cores import pieces_at_once
from crnr_cli.wording import Note, format_count

LAMS = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0)
MUS = (0.03, 0.1, 0.3, 1.0)
NEIGHBORS = (50, 100, 200)
# The lam and mu to try with neighbours. Larger values are better where classes overlap: with small ones, a
# class with one near sample can win against a class with many.
_LOCAL = ((1e-2, 0.1), (0.1, 0.1), (1.0, 0.1), (1.0, 1.0), (10.0, 1.0))
_LOCAL_FROM = 1000  # samples: with fewer, coding by all samples is as fast
_ALL_UP_TO = 20_000  # samples: with more, coding by all samples, or holding out each of them, takes hours
_HELD_OUT = 4000  # samples in the single hold-out of a large gallery
_ITERATIONS = (2, 3, 5, 8, 12, 20)
_CODES = 2**27  # about how many bytes the codes of a batch take while methods are tried
DEFAULT = Crnr()  # lam 0.01, mu 0.1, 5 iterations


@dataclass(frozen=True)
class TuneOptions:
    """Which settings to try, and how."""

    reading: Reading = field(default_factory=Reading)  # its steps are not used
    # The settings of every step, by name, the preferred one first; by default, the step's own proposals.
    steps: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    methods: Sequence[str] = ()  # besides crnr
    neighbors: Sequence[int] = ()  # numbers to try, the preferred one first; by default, by gallery size
    folds: int = 5
    budget: float | None = None  # seconds

    def step_settings(self) -> list[StepSettings]:
        """Return all combinations of the steps' settings; the settings of the first step vary fastest."""
        candidates = {name: self.steps.get(name) or step.tried for name, step in STEPS.items()}
        names = list(candidates)
        return [
            tuple(zip(names, reversed(settings), strict=True))
            for settings in product(*reversed(candidates.values()))
        ]

    def grids(self) -> list[Grid]:
        """Return the grids of tiles to try, in their order."""
        return list(dict.fromkeys(grid_of(make_steps(dict(steps))) for steps in self.step_settings()))


@dataclass(frozen=True)
class TuneReport(Report):
    trials: list[Trial]  # the most accurate first
    default: Trial
    chosen: Trial
    folds: int  # 1: a single hold-out of some samples
    n_samples: int
    untried: int  # settings that the budget left out
    seconds: float
    built: BuildReport | None = None


@dataclass(frozen=True)
class Pass:
    """One piece of work: a method on one fold of one recipe."""

    number: int  # of the method and the recipe, in the order of trials
    method: Method
    vectors: VectorRecipe
    fold: int


def tune(
    names: Sequence[str],
    options: TuneOptions,
    output: Path | None = None,
    progress: Progress = silent,
    workers: Workers | None = None,
) -> TuneReport:
    """Try all settings on the source alone; if an output is given, build a gallery with the best choice."""
    started = time.perf_counter()
    _methods(options.methods, options.neighbors or (0,))  # refuse invalid ones before anything is read
    source = open_examples(names, options.reading)
    if output:
        refuse_other_ending(output)
    read = read_raw_by_all(source, options.reading, progress, options.grids())
    del source  # it may hold all features, of which there is a copy now
    report = tune_samples(read, options, progress, workers)
    if not output:
        return report
    chosen = _apply(read, report.chosen.setting.vectors, options.reading.dtype)
    del read  # the vectors take as much memory
    return replace(report, built=_build(chosen, report.chosen.setting.method, output, started))


def tune_samples(
    read: Sequence[ReadSamples],
    options: TuneOptions,
    progress: Progress = silent,
    workers: Workers | None = None,
) -> TuneReport:
    """Try all settings on samples that are already read, by each extractor to try."""
    started = time.perf_counter()
    raw = read[0]
    # Refuse invalid class names now, not when the tuned gallery is built.
    _, order, class_index = sort_by_class(raw.table.labels, raw.recipe.kind)
    in_order_of_source = group_copies(raw.values, raw.table.hashes)
    copies = in_order_of_source[order]
    is_tested = first_of_copies_mask(class_index, copies)
    events = raw.events
    together = join_events(copies, None if events is None else events[order])
    fold_of = _fold_of(class_index, is_tested, together, options.folds)
    samples = FoldedSamples(
        [one.values for one in read],
        np.asarray(order),
        [one.recipe for one in read],
        class_index,
        fold_of,
        is_tested,
        options.reading.dtype,
    )
    neighbors = options.neighbors or _neighbors(len(class_index))
    recipes, notes = _recipes(samples, options)
    default = make_method(DEFAULT.name, DEFAULT.parameters | {"neighbors": neighbors[0]})
    default = suit_to_vectors(default, raw.recipe.with_settings(dict(recipes[0].steps)), ())
    methods = _methods(options.methods, neighbors, default.parameters["mu"])
    _refuse_too_large(samples, min(samples.count, pieces_at_once(options.reading.n_jobs)), methods)
    trials: list[Trial] = []
    right: list[Array] = []  # of the folds so far
    passes = _passes(recipes, methods, samples.count, options.budget)
    workers = workers or Here(DecoderPool(options.reading.jobs))
    for done, found in workers.spread(_find_right_answers, samples, passes):
        right.append(found)
        if len(right) == samples.count:
            trials += _trials(done, right)
            right = []
            progress("tuning", done.number + 1, len(recipes) * len(methods))
    usual = next(trial for trial in trials if trial.setting.method == default)
    settings = len(recipes) * sum(len(method.variants(_ITERATIONS)) for method in methods)
    return TuneReport(
        trials=sorted(trials, key=lambda trial: -trial.accuracy),
        default=usual,
        chosen=choose(trials, usual),
        folds=samples.count,
        n_samples=len(class_index),
        untried=settings - len(trials),
        seconds=time.perf_counter() - started,
        left_out=raw.left_out,
        notes=raw.notes + notes + notes_on_copies(raw.table, in_order_of_source),
    )


def _recipes(samples: FoldedSamples, options: TuneOptions) -> tuple[list[VectorRecipe], list[Note]]:
    """Return all ways to make vectors; the extractors take turns, because they differ most.

    An automatic setting is decided by all samples; the same setting may then be in the list, too.
    """
    of_extractors = samples.recipes
    found: dict[VectorRecipe, None] = {}
    impossible: dict[str, None] = {}
    for steps in options.step_settings():
        for number, recipe in enumerate(of_extractors):
            if not _is_tried(recipe, of_extractors, steps, options.reading.extractor):
                continue
            try:
                decided = recipe.with_settings(dict(steps)).decide([samples.raw[number]])
            except UsageError as e:
                impossible[str(e)] = None
            else:
                found[VectorRecipe(number, recipe.extractor, tuple(decided.settings.items()))] = None
    if not found:
        raise UsageError(next(iter(impossible)))
    return list(found), [Note("not tried", f"not tried: {why}") for why in impossible]


def _is_tried(
    recipe: Recipe, of_extractors: Sequence[Recipe], steps: StepSettings, chosen: ExtractorOptions
) -> bool:
    """Return whether to try an extractor on these steps: each grid of tiles has its own sizes of cells."""
    extractor, first = recipe.extractor, of_extractors[0].extractor
    if len(of_extractors) == 1 or first is None or type(extractor) is not type(first):
        return True  # features that are extracted already have one size, and pixels have no cells
    return extractor in extractors_for_grid(first, chosen, grid_of(make_steps(dict(steps))))


def _neighbors(n_samples: int) -> Sequence[int]:
    """Return the numbers of neighbours to try, 0 for all samples, the preferred one first."""
    if n_samples < _LOCAL_FROM:
        return (0,)
    return (0, *NEIGHBORS) if n_samples <= _ALL_UP_TO else NEIGHBORS


def _methods(
    names: Sequence[str], neighbors: Sequence[int] = (0,), usual: float = DEFAULT.mu
) -> list[Method]:
    """Return the methods to fit, the default first, whose mu is the usual one.

    Each crnr and nrc covers all numbers of iterations.
    """
    grid: list[Method] = []
    for count in neighbors:
        tried = _LOCAL if count else sorted(product(LAMS, MUS), key=partial(_distance, usual))
        grid += [make_method(Crnr.name, {"lam": lam, "mu": mu, "neighbors": count}) for lam, mu in tried]
    others: list[Method] = []
    for name in names:
        if name == Nrc.name:
            pairs = [(mu, n) for n in neighbors for mu in ((DEFAULT.mu,) if n else MUS)]
            others += [make_method(name, {"mu": mu, "neighbors": n}) for mu, n in pairs]
        elif name != Crnr.name:
            local = {"neighbors": neighbors[0]} if METHODS[name].supports_neighbors else {}
            others.append(make_method(name, local))
    return [grid[0], *others, *grid[1:]]  # requested methods come early, in case the budget ends


def _distance(usual: float, setting: tuple[float, float]) -> tuple[int, int]:
    """Return the distance in the grid from the default lam and the usual mu, to try near settings first."""
    lam, mu = setting
    return abs(MUS.index(mu) - MUS.index(usual)), abs(LAMS.index(lam) - LAMS.index(DEFAULT.lam))


def _passes(
    recipes: Sequence[VectorRecipe], methods: Sequence[Method], folds: int, budget: float | None
) -> Iterator[Pass]:
    """Yield all passes, as long as there is time; a method that was started runs on all folds.

    The recipes take turns, and each turn gets an equal share of the remaining time. The default setting is
    always tried; no other begins if it would probably end after the budget.
    """
    started = time.perf_counter()
    number = 0
    waiting = deque((vectors, deque(methods)) for vectors in recipes)
    while waiting:
        vectors, untried = waiting.popleft()
        begun = time.perf_counter()
        left = math.inf if budget is None else started + budget - begun
        share, used = left / (1 + len(waiting)), 0.0
        for done in range(len(untried)):
            expected = used + ((begun + used - started) / number if number else 0.0)
            if number and expected > left:
                return
            if done and expected > share:
                waiting.append((vectors, untried))
                break
            method = untried.popleft()
            for fold in range(folds):
                yield Pass(number, method, vectors, fold)
            number += 1
            used = time.perf_counter() - begun


def _find_right_answers(samples: FoldedSamples, this: Pass) -> Array:
    """Return (variants, queries): which of the held-out samples each variant labels correctly."""
    with samples.fold(this.vectors, this.fold) as fold:
        right: Array = winners_after(this.method, fold, _ITERATIONS) == fold.truth
    return right


def _trials(done: Pass, right: Sequence[Array]) -> list[Trial]:
    """Return one trial per variant, from the results of all folds."""
    settings = [Setting(variant, done.vectors) for variant in done.method.variants(_ITERATIONS)]
    return [Trial(setting, row) for setting, row in zip(settings, np.hstack(right), strict=True)]


def _fold_of(class_index: Array, is_tested: Array, copies: Array, wanted: int) -> Array:
    """Return the fold of every sample; -1 if it is never held out, like most of very many samples."""
    count = _fold_count(class_index[is_tested], wanted)
    if len(class_index) <= _ALL_UP_TO:
        return stratified_folds(class_index, count, copies=copies)
    return np.where(hold_out_few(class_index, _HELD_OUT, copies), 0, -1)


def _fold_count(class_index: Array, wanted: int) -> int:
    largest = int(np.bincount(class_index).max())
    if len(np.unique(class_index)) < 2:
        raise DataError("only one class: there is nothing to tune; add examples of other classes")
    if largest < 2:
        raise DataError(
            "every class has only one example, apart from copies: tune holds examples out, so it needs two "
            "per class"
        )
    return min(wanted, largest)


def _refuse_too_large(samples: FoldedSamples, at_once: int, methods: Sequence[Method]) -> None:
    """Raise DataError if the folds need too much memory.

    Every fold keeps its unit vectors and, if samples are few, the products of all pairs of them. Each of the
    passes that run at once also needs some codes and, unless it uses neighbours, copies and a factor.
    """
    n, folds, itemsize = len(samples.class_index), samples.count, np.dtype(samples.dtype).itemsize
    d = max(raw.shape[1] for raw in samples.raw)
    n_kept = int((samples.fold_of != 0).sum())
    vectors = n * d * itemsize
    products, factor = (8 * n_kept**2, 4 * 8 * n_kept**2) if n_kept <= 2 * d else (0, 3 * 8 * n_kept * d)
    of_pass = 2 * vectors + factor
    if all(method.needs_few_samples for method in methods):
        products, of_pass = 0, 0
    needed = folds * (vectors + products) + at_once * (of_pass + _CODES)
    memory.require_memory(
        needed,
        f"tuning on {format_count(n, 'example')} with {format_count(d, 'feature')} each",
        "use a smaller --size or fewer examples",
    )


def _apply(read: Sequence[ReadSamples], how: VectorRecipe, dtype: str) -> ReadSamples:
    """Return the unit vectors of the values that were read for tuning, so nothing is read twice."""
    raw = read[how.number]
    recipe = fit_recipe(raw.recipe.with_settings(dict(how.steps)), raw.values, raw.class_index())
    return raw.apply(recipe, dtype)


def _build(chosen: ReadSamples, method: Method, output: Path, started: float) -> BuildReport:
    gallery, notes = make_gallery(chosen, method)
    return BuildReport(
        gallery=gallery,
        file_bytes=write_gallery(gallery, output),
        seconds=time.perf_counter() - started,
        left_out=chosen.left_out,
        notes=chosen.notes + notes,
    )


@dataclass(frozen=True)
class Setting:
    """A method with its parameters, on the vectors of an extractor and steps."""

    method: Method
    vectors: VectorRecipe

    def parameters(self) -> dict[str, Any]:
        """Return the method and the parameters that tune varies, by name."""
        values = {name: self.method.parameters[name] for name in self.method.tunable}
        return {"method": self.method.name, **values, **self.vectors.parameters()}

    def describe(self) -> str:
        """Describe the extractor and the steps of the recipe."""
        return self.vectors.describe()


@dataclass(frozen=True)
class Trial:
    """A setting, and which held-out samples it labelled correctly."""

    setting: Setting
    right: Array  # (n,), in the same order for every trial

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(int(self.right.sum()), len(self.right))

    def lead(self, other: Trial) -> tuple[float, float]:
        """Return the difference in accuracy from the other on the same samples, and its standard error."""
        difference = self.right.astype(float) - other.right
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


def choose(trials: Sequence[Trial], default: Trial) -> Trial:
    """Return the default setting, unless the most accurate one beats it by more than one standard error.

    In that case, consider the settings that also beat the default, and are not beaten by the most accurate
    one; of these, choose the setting with the fewest changes.

    The most accurate of hundreds of settings is partly lucky, and may be no better on new queries.
    """
    best = max(trials, key=lambda trial: trial.accuracy)
    if not _beats(best, default):
        return default
    contenders = [trial for trial in trials if _beats(trial, default) and not _beats(best, trial)]
    return min(contenders, key=lambda trial: (*_changes(trial.setting, default.setting), -trial.accuracy))


def _beats(trial: Trial, other: Trial) -> bool:
    lead, error = trial.lead(other)
    return lead > error


def _changes(setting: Setting, default: Setting) -> tuple[bool, int]:
    """Return whether the method differs, and how many parameters differ."""
    own, others = setting.parameters(), default.parameters()
    differing = sum(own[name] != others.get(name) for name in own)
    return setting.method.name != default.method.name, differing
