"""Compare: several methods on the same unit vectors, their scores side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from crnr_cli.errors import DataError, UsageError
from crnr_cli.features import Keys
from crnr_cli.jobs.build import (
    BuildOptions,
    LabelledVectors,
    LeftOut,
    apply_recipe,
    read_by_recipe,
    read_labelled,
    read_samples,
    refuse_unfittable,
    sort_by_class,
)
from crnr_cli.jobs.classify import batch_size, refuse_misfit
from crnr_cli.jobs.progress import Progress, silent
from crnr_cli.methods import METHODS, Method, Samples, make_method
from crnr_cli.metrics import Scores, mcnemar, score, wilson
from crnr_cli.recipe import principal_axes
from crnr_cli.solvers import Array
from crnr_cli.sources import is_unclaimed, open_source


@dataclass(frozen=True)
class CompareOptions:
    reading: BuildOptions = field(default_factory=BuildOptions)  # all but its method
    methods: Sequence[str] | None = None  # None: all that can be fitted here
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # parameters by method
    test: Sequence[str] | None = None  # None: parts of the gallery are held out
    test_keys: Keys = field(default_factory=Keys)
    holdout: float = 0.3
    draws: int = 5
    seed: int = 0


@dataclass(frozen=True)
class MethodResult:
    method: Method
    scores: Scores  # over all answers of all draws
    interval: tuple[float, float]  # of the accuracy, 95 %
    build_seconds: float  # to fit, a draw
    query_ms: float
    p_value: float | None  # of the difference to the best method; None for that one


@dataclass(frozen=True)
class CompareReport:
    results: list[MethodResult]  # the best first
    n_gallery: int  # samples that methods were fitted on, a draw
    n_tested: int  # different samples that were classified
    dimension: int
    n_classes: int
    left_out: list[LeftOut]
    notes: list[str]

    @property
    def skipped(self) -> int:
        return sum(not is_unclaimed(left.name, left.error.status) for left in self.left_out)


@dataclass(frozen=True)
class _Trial:
    """A gallery and queries with their true classes; `numbers` tells which test sample each query is."""

    samples: Samples
    classes: list[str]
    queries: Array
    truths: list[str]
    numbers: Array


@dataclass
class _Tally:
    """What one method did in the trials so far."""

    truths: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    build_seconds: float = 0.0
    query_seconds: float = 0.0


def compare(names: Sequence[str], options: CompareOptions, progress: Progress = silent) -> CompareReport:
    """Fit and score every method, on a test source or on parts of the gallery that are held out."""
    methods, notes = _chosen_methods(options)
    gallery, test, n_draws = _read(names, options, progress)
    trials = _drawn(gallery, options) if test is None else iter([_given(gallery, test)])
    tallies = {method.name: _Tally() for method in methods}
    numbers: list[Array] = []
    total = n_draws * len(methods)
    done = 0
    for trial in trials:
        progress("comparing", done, total)
        numbers.append(trial.numbers)
        for method in methods:
            if method.name in tallies:
                try:
                    _run(method, trial, tallies[method.name])
                except DataError as e:  # it has no answer on this data; the others have
                    del tallies[method.name]
                    notes.append(f"left out: {e}")
            done += 1
            progress("comparing", done, total)
    if not tallies:
        raise DataError("no method could be fitted: " + "; ".join(notes))
    left_out = [*gallery.left_out, *(test.left_out if test else [])]
    strangers = sorted(set((test or gallery).labels) - set(trial.classes))
    if strangers:
        notes.append(f"not in the gallery, so never right: {', '.join(strangers)}")
    return CompareReport(
        results=_results(
            [m for m in methods if m.name in tallies], tallies, np.concatenate(numbers), n_draws
        ),
        n_gallery=len(trial.samples.vectors),
        n_tested=len(np.unique(np.concatenate(numbers))),
        dimension=trial.samples.vectors.shape[1],
        n_classes=len(trial.classes),
        left_out=left_out,
        notes=[*gallery.notes, *notes],
    )


def _chosen_methods(options: CompareOptions) -> tuple[list[Method], list[str]]:
    notes: list[str] = []
    names = list(dict.fromkeys(METHODS if options.methods is None else options.methods))
    for name in options.settings:
        if name not in names:
            raise UsageError(f"a parameter is set for {name}, which is not compared")
    methods = [make_method(name, options.settings.get(name, {})) for name in names]
    for method in list(methods):
        if reason := method.unavailable():
            if options.methods is not None:
                raise UsageError(reason)
            methods.remove(method)
            notes.append(f"left out: {reason}")
    return methods, notes


def _read(
    names: Sequence[str], options: CompareOptions, progress: Progress
) -> tuple[LabelledVectors, LabelledVectors | None, int]:
    """The gallery, the test samples if they have their own source, and how many trials there will be."""
    reading = options.reading
    source = open_source(names, reading.keys, nul_separated=reading.nul_separated)
    if options.test is None:
        if not 0 < options.holdout < 1:
            raise UsageError(f"--holdout must lie between 0 and 1, not {options.holdout:g}")
        gallery = read_samples(source, reading, progress, raw=True)
        _refuse_one_class(gallery)
        return gallery, None, options.draws
    test_source = open_source(options.test, options.test_keys, nul_separated=reading.nul_separated)
    gallery = read_labelled(source, reading, progress)
    _refuse_one_class(gallery)
    refuse_misfit(test_source, gallery.recipe)
    test = read_by_recipe(gallery.recipe, test_source, reading, progress)
    if not test.labels:
        raise DataError(f"{', '.join(options.test)}: no sample to test with has a true class")
    if not set(test.labels) & set(gallery.labels):
        raise DataError(
            f"{', '.join(options.test)}: none of its classes is one of the gallery's; "
            "put the queries into folders named as those"
        )
    return gallery, test, 1


def _refuse_one_class(gallery: LabelledVectors) -> None:
    if len(set(gallery.labels)) < 2:
        raise DataError(f"only one class, {gallery.labels[0]}: there is nothing to compare")


def _given(gallery: LabelledVectors, test: LabelledVectors) -> _Trial:
    classes, order, class_index = sort_by_class(gallery.labels)
    samples = Samples.of(gallery.vectors[order], class_index)
    return _Trial(samples, classes, test.vectors, test.labels, np.arange(len(test.labels)))


def _drawn(gallery: LabelledVectors, options: CompareOptions) -> Iterator[_Trial]:
    """Trials on random parts of the gallery. PCA is fitted on each trial's own gallery, never on its test."""
    classes, order, class_index = sort_by_class(gallery.labels)
    raw = gallery.vectors[order]
    for draw in range(options.draws):
        held = held_out(class_index, options.holdout, np.random.default_rng([options.seed, draw]))
        recipe = gallery.recipe
        if options.reading.pca:
            recipe = replace(recipe, pca=principal_axes(raw[~held], options.reading.pca))
        drawn = replace(gallery, names=[gallery.names[i] for i in order], vectors=raw)
        apply_recipe(drawn, recipe, options.reading.dtype)
        samples = Samples.of(drawn.vectors[~held], class_index[~held])
        truths = [classes[i] for i in class_index[held]]
        yield _Trial(samples, classes, drawn.vectors[held], truths, np.flatnonzero(held))


def held_out(class_index: Array, share: float, rng: np.random.Generator) -> Array:
    """A mask of this share of every class, drawn at random; one sample at least of each stays behind."""
    held = np.zeros(len(class_index), dtype=bool)
    for i in np.unique(class_index):
        rows = rng.permutation(np.flatnonzero(class_index == i))
        held[rows[: min(round(share * len(rows)), len(rows) - 1)]] = True
    if not held.any():
        raise UsageError(
            f"--holdout {share:g} of so few samples a class is none; hold out more, or give --test"
        )
    return held


def _run(method: Method, trial: _Trial, tally: _Tally) -> None:
    refuse_unfittable(method, trial.samples)
    started = time.perf_counter()
    state = method.fit(trial.samples)
    fitted = time.perf_counter()
    step = batch_size(len(trial.samples.vectors))
    winners = [
        method.residuals(trial.samples, state, trial.queries[start : start + step]).argmin(axis=1)
        for start in range(0, len(trial.queries), step)
    ]
    tally.query_seconds += time.perf_counter() - fitted
    tally.build_seconds += fitted - started
    tally.truths += trial.truths
    tally.labels += [trial.classes[i] for i in np.concatenate(winners)]


def _results(
    methods: Sequence[Method], tallies: Mapping[str, _Tally], numbers: Array, n_draws: int
) -> list[MethodResult]:
    """The best first. A sample that several draws tested is still one sample: in the interval, and as one
    pair of the test, won by the method that was right on it more often."""
    n_tested = len(np.unique(numbers))
    scores = {
        method.name: score(tallies[method.name].truths, tallies[method.name].labels) for method in methods
    }
    ranked = sorted(methods, key=lambda method: -scores[method.name].correct)
    hits = {method.name: _hits(tallies[method.name], numbers) for method in methods}
    best = hits[ranked[0].name]
    return [
        MethodResult(
            method=method,
            scores=scores[method.name],
            interval=wilson(n_tested * scores[method.name].correct / len(numbers), n_tested),
            build_seconds=tallies[method.name].build_seconds / n_draws,
            query_ms=1000 * tallies[method.name].query_seconds / len(numbers),
            p_value=None
            if method is ranked[0]
            else mcnemar(int((hits[method.name] > best).sum()), int((hits[method.name] < best).sum())),
        )
        for method in ranked
    ]


def _hits(tally: _Tally, numbers: Array) -> Array:
    """How often each test sample was labelled rightly."""
    right = np.array([truth == label for truth, label in zip(tally.truths, tally.labels, strict=True)])
    return np.bincount(numbers, weights=right)
