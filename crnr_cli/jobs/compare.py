"""Compare: score several methods on the same unit vectors."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from crnr_cli.arrays import Array, Batch, take_rows
from crnr_cli.errors import CrnrError, DataError, UsageError
from crnr_cli.gallery.fit import KnownSamples, copies_note, notes_on_copies, sort_by_class, suit_to_vectors
from crnr_cli.gallery.gallery import FittedGallery, SampleTable
from crnr_cli.gallery.queries import make_class_chooser
from crnr_cli.gallery.reading import refuse_mismatch
from crnr_cli.gallery.samples import (
    Reading,
    ReadSamples,
    Report,
    read_by_recipe,
    read_raw,
    read_samples,
)
from crnr_cli.gallery.scenes import Leaks, find_candidates
from crnr_cli.gallery.workers import Here, Workers
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import METHODS, Method, Samples, Split, State, fit_method, make_method
from crnr_cli.methods.base import ProcessCache, residuals_in_batches
from crnr_cli.methods.folds import first_of_copies_mask, group_copies, hold_out_share, join_events
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.decision import best_classes
from crnr_cli.results.scores import Scores, mcnemar_p_value, score, wilson_interval
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.opening import open_examples
from crnr_cli.system.names import join_command
from crnr_cli.wording import Note


@dataclass(frozen=True)
class CompareOptions:
    reading: Reading = field(default_factory=Reading)
    methods: Sequence[str] | None = None  # None: all methods that are available on this machine
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
    interval: tuple[float, float]  # 95 % interval of the accuracy
    build_seconds: float  # to fit, per draw
    query_ms: float
    p_value: float | None  # of the difference from the best method; None for the best one


@dataclass(frozen=True)
class CompareReport(Report):
    results: list[MethodResult]  # the best first
    n_gallery: int  # samples that each method was fitted to, per draw
    n_tested: int  # distinct samples that were classified
    dimension: int
    n_classes: int


@dataclass(frozen=True)
class _Given:
    """The only split of a comparison with a test source."""

    only: Split

    def split(self, draw: int) -> Split:
        return self.only


@dataclass
class _Drawn:
    """Random splits of a gallery, whose raw values are sorted by class."""

    gallery: ReadSamples
    class_index: Array
    held: list[Array]  # for every draw, a mask of the samples that are held out
    is_tested: Array  # a mask without further copies of a sample
    dtype: str
    _made: ProcessCache = field(default_factory=ProcessCache, compare=False, repr=False)

    @property
    def n_held(self) -> int:
        """The number of held-out samples in the first draw; other draws hold out about as many."""
        return int(self.held[0].sum())

    def split(self, draw: int) -> Split:
        """Return a split, cached until another one is needed; test samples never fit the recipe.

        The threads of a worker share this object, and wait for one of them to make the split.
        """
        held = self.held[draw]
        return self._made.compute_once(held, lambda: self._make_split(held))

    def _make_split(self, held: Array) -> Split:
        recipe = self.gallery.recipe.fit(self.gallery.values[~held], self.class_index[~held])
        vectors = self.gallery.vectors_by(recipe, self.dtype)
        samples = Samples.of(vectors[~held], self.class_index[~held], recipe.part_edges)
        return Split(samples, vectors[held & self.is_tested])


@dataclass(frozen=True)
class _Turn:
    """One piece of work: a method on one split."""

    number: int
    method: Method
    draw: int


@dataclass(frozen=True)
class _Outcome:
    winners: Array  # the class index of every query
    build_seconds: float
    query_seconds: float


@dataclass
class _Tally:
    """The results of one method in the splits so far."""

    truths: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    build_seconds: float = 0.0
    query_seconds: float = 0.0


def compare(
    names: Sequence[str],
    options: CompareOptions,
    progress: Progress = silent,
    workers: Workers | None = None,
) -> CompareReport:
    """Fit and score every method, on a test source or on held-out parts of the gallery."""
    methods, notes = _choose_methods(options)
    gallery, test = _read(names, options, progress)
    classes, order, class_index = sort_by_class(gallery.table.labels, gallery.recipe.kind)
    given = options.settings
    methods = [suit_to_vectors(method, gallery.recipe, given.get(method.name, {})) for method in methods]
    splits: _Given | _Drawn
    truths: Sequence[str]
    if test is None:
        copies = group_copies(gallery.values, gallery.table.hashes)
        gallery = replace(gallery, notes=gallery.notes + notes_on_copies(gallery.table, copies))
        splits = _draw_splits(gallery, order, class_index, copies[order], options)
        tested = [
            np.flatnonzero(held & splits.is_tested) for held in splits.held
        ]  # the sample number of each query, per draw
        truths = [classes[i] for i in class_index]
    else:
        tested = [np.arange(len(test.table))]
        truths = test.table.labels
        samples = Samples.of(gallery.values[order], class_index, gallery.recipe.part_edges)
        splits = _Given(Split(samples, test.values))
        notes += _note_leaks(gallery.take(order), samples, test, names, options)
    tallies = {method.name: _Tally() for method in methods}
    total = len(tested) * len(methods)
    progress("comparing", 0, total)
    workers = workers or Here(DecoderPool(options.reading.jobs))
    for turn, outcome in workers.spread(_run, splits, _turns(methods, len(tested), tallies)):
        if isinstance(outcome, DataError):  # drop this method and go on with the others
            # Report it only once: other draws of this method may already be running.
            if tallies.pop(turn.method.name, None):
                notes.append(Note("method", f"left out: {outcome}"))
        elif tally := tallies.get(turn.method.name):
            tally.truths += take_rows(truths, tested[turn.draw])
            tally.labels += [classes[i] for i in outcome.winners]
            tally.build_seconds += outcome.build_seconds
            tally.query_seconds += outcome.query_seconds
        progress("comparing", turn.number + 1, total)
    if not tallies:
        raise DataError("no method could be fitted: " + "; ".join(note.text for note in notes))
    left_out = [*gallery.left_out, *(test.left_out if test else [])]
    unknown = sorted(set(truths) - set(classes))
    if unknown:
        text = f"classes that are not in the gallery, so never labelled correctly: {', '.join(unknown)}"
        notes.append(Note("unknown classes", text))
    numbers = np.concatenate(tested)
    return CompareReport(
        results=_results([m for m in methods if m.name in tallies], tallies, numbers, len(tested)),
        n_gallery=len(gallery.table) - (splits.n_held if isinstance(splits, _Drawn) else 0),
        n_tested=len(np.unique(numbers)),
        dimension=gallery.recipe.n_outputs,
        n_classes=len(classes),
        left_out=left_out,
        notes=[*gallery.notes, *notes],
    )


def _choose_methods(options: CompareOptions) -> tuple[list[Method], list[Note]]:
    notes: list[Note] = []
    names = list(dict.fromkeys(METHODS if options.methods is None else options.methods))
    for name in options.settings:
        if name not in names:
            raise UsageError(f"a parameter is set for {name}, which is not among the compared methods")
    methods = [make_method(name, options.settings.get(name, {})) for name in names]
    for method in list(methods):
        if reason := method.why_unavailable():
            if options.methods is not None:
                raise CrnrError(reason)
            methods.remove(method)
            notes.append(Note("method", f"left out: {reason}"))
    return methods, notes


def _read(
    names: Sequence[str], options: CompareOptions, progress: Progress
) -> tuple[ReadSamples, ReadSamples | None]:
    """Return the gallery as raw values to draw from, or as vectors, with the samples of a test source."""
    reading = options.reading
    source = open_examples(names, reading)
    if options.test is None:
        if not 0 < options.holdout < 1:
            raise UsageError(f"--holdout must be between 0 and 1, not {options.holdout:g}")
        raw = read_raw(source, reading, progress)
        _refuse_one_class(raw)
        return raw, None
    test_source = open_examples(options.test, replace(reading, keys=options.test_keys))
    gallery = read_samples(source, reading, progress)
    _refuse_one_class(gallery)
    refuse_mismatch(test_source, gallery.recipe)
    truth = make_class_chooser(set(gallery.table.labels), is_labelled=test_source.is_labelled)
    test = read_by_recipe(
        gallery.recipe, test_source, reading, progress, lambda found: truth(found) or found[0]
    )
    if not test.table:
        raise DataError(f"{', '.join(options.test)}: no usable query has a true class")
    if not set(test.table.labels) & set(gallery.table.labels):
        raise DataError(
            f"{', '.join(options.test)}: none of the classes is in the gallery; "
            "put the queries into folders named after the gallery's classes"
        )
    return gallery, test


def _note_leaks(
    read: ReadSamples, samples: Samples, test: ReadSamples, names: Sequence[str], options: CompareOptions
) -> list[Note]:
    """Return notes on test samples that are copies of the gallery's samples, or similar images."""
    # The search needs a gallery, but neither its classes nor a fitted method.
    gallery = FittedGallery(samples, read.table, [], read.recipe, make_method("nn", {}), {})
    known = KnownSamples.of(gallery.recipe.kind, gallery.hashes, gallery.samples.vectors)
    copies = take_rows(test.table.names, np.flatnonzero(known.known_mask(test.table.hashes, test.values)))
    n_queries = len(test.table)
    notes = [Note("copies", copies_note(copies, n_queries))] if copies else []
    if gallery.recipe.kind != "pictures":
        return notes
    queries = Batch(list(test.table.names), [None] * n_queries, test.values, n_queries)
    leaks = Leaks()
    leaks.add(find_candidates(queries, gallery, copies))
    leaks.compare_images(gallery, DecoderPool(options.reading.jobs), options.reading.max_pixels)
    if leaks.pairs:
        of_test = (part for name in options.test or () for part in ("--queries", name))
        remedy = join_command(["crnr", "audit", *names, *of_test])
        same = ", with the same extractor options" if options.reading.extractor.was_given else ""
        notes.append(Note("leaks", leaks.describe(n_queries, remedy) + same))
    return notes


def _refuse_one_class(gallery: ReadSamples) -> None:
    if len(set(gallery.table.labels)) < 2:
        raise DataError(f"only one class, {gallery.table.labels[0]}: there is nothing to compare")


def _draw_splits(
    gallery: ReadSamples, order: Array, class_index: Array, copies: Array, options: CompareOptions
) -> _Drawn:
    """Draw the splits; `copies` are sorted by class."""
    events = gallery.events
    together = join_events(copies, None if events is None else events[order])
    held = [
        hold_out_share(class_index, options.holdout, np.random.default_rng([options.seed, draw]), together)
        for draw in range(options.draws)
    ]
    # Without labels and hashes, which a split does not need: this may be sent to the workers of a cluster.
    table = SampleTable(take_rows(gallery.table.names, order))
    raw = ReadSamples(recipe=gallery.recipe, table=table, values=gallery.values[order])
    return _Drawn(raw, class_index, held, first_of_copies_mask(class_index, copies), options.reading.dtype)


def _turns(methods: Sequence[Method], draws: int, wanted: Container[str]) -> Iterator[_Turn]:
    """Yield all methods of the first draw, then of the next, and so on, as long as they are `wanted`."""
    for draw in range(draws):
        for index, method in enumerate(methods):
            if method.name in wanted:
                yield _Turn(draw * len(methods) + index, method, draw)


def _run(splits: _Given | _Drawn, turn: _Turn) -> _Outcome | DataError:
    """Return the outcome, or the error if the method cannot be used on this data."""
    split, method = splits.split(turn.draw), turn.method
    try:
        # The processor time of this thread: unlike the time on the clock, it does not grow with the load.
        started = time.thread_time()
        state = fit_method(method, split.samples)
        built = time.thread_time()
        winners = _winners(method, state, split)
        return _Outcome(winners, built - started, time.thread_time() - built)
    except DataError as e:
        return e


def _winners(method: Method, state: State, split: Split) -> Array:
    batches = residuals_in_batches(method, split, state)
    return np.concatenate([best_classes(residuals, 1)[:, 0] for residuals in batches])


def _results(
    methods: Sequence[Method], tallies: Mapping[str, _Tally], numbers: Array, n_draws: int
) -> list[MethodResult]:
    """Return the results, the best first.

    A sample that several draws tested counts once in the interval and in the paired test; there, the method
    that was right more often wins the pair.
    """
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
            interval=wilson_interval(n_tested * scores[method.name].correct / len(numbers), n_tested),
            build_seconds=tallies[method.name].build_seconds / n_draws,
            query_ms=1000 * tallies[method.name].query_seconds / len(numbers),
            p_value=None
            if method is ranked[0]
            else mcnemar_p_value(
                int((hits[method.name] > best).sum()), int((hits[method.name] < best).sum())
            ),
        )
        for method in ranked
    ]


def _hits(tally: _Tally, numbers: Array) -> Array:
    """Return how often each test sample was labelled correctly."""
    right = np.array([truth == label for truth, label in zip(tally.truths, tally.labels, strict=True)])
    return np.bincount(numbers, weights=right)
