"""Explain: why a query gets its label, and which gallery samples determine it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Array, Batch, find_largest, to_dense
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.queries import QueryOptions, Run, load_for_queries, make_truth_lookup, open_queries
from crnr_cli.gallery.reading import open_recipe
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import (
    CodingMethod,
    Method,
    Neighbors,
    Samples,
    State,
    fit_method,
    make_method,
)
from crnr_cli.methods.base import are_blank, states_of_parts
from crnr_cli.methods.nearest import Nn
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.recipe.recipe import OpenRecipe
from crnr_cli.recipe.steps import Parts
from crnr_cli.records import dataclass
from crnr_cli.results.decision import REJECTED, Answers, make_predictions, margins
from crnr_cli.results.probability import round_probabilities
from crnr_cli.sources.base import Source
from crnr_cli.sources.formats import is_table
from crnr_cli.system.names import stat_or_none

SHOWN_CLASSES = 12  # with bars, in the terminal and in drawings
REJECT = 0.05  # the rate of false rejections at which explain calls a query doubtful
SET_LEVEL = 0.95  # of the label set

_ROW = re.compile(r"(?P<path>.+)#(?P<row>\d+)")


@dataclass(frozen=True)
class WeightedSample:
    """A gallery sample and its weight in the code or, for the nearest sample, its cosine to the query.

    With parts, both are means over the parts.
    """

    name: str
    label: str
    weight: float
    is_nearest: bool = False


@dataclass(frozen=True)
class PartAnswer:
    """The result of one part of the query alone: a tile, or a part that belongs to the whole image."""

    row: int | None  # of the tile, counted from 1; None if the part is not a tile
    column: int | None
    name: str  # of a part that is not a tile
    label: int | None  # the class with the smallest residual; None for ties, as in a blank part
    margin: float  # how much the part supports the label of the query: see `_part_margins`
    residuals: Array  # (K,)

    @property
    def is_against(self) -> bool:
        return self.margin < 0


@dataclass(frozen=True)
class Confidence:
    """The confidence in an answer, by the calibration of the gallery: as `classify` would write it."""

    separation: float  # 1 - best/mean of the others
    min_separation: float  # below it, --reject 0.05 rejects the query
    is_rejected: bool
    probabilities: Array | None  # (K,); None in a gallery of an earlier crnr
    label_set: tuple[str, ...] | None  # the plausible labels, the best first; likewise
    can_exclude: bool = True  # False if too few samples were held out to exclude any label from the set


@dataclass(frozen=True)
class MethodExplanation:
    """How one method classifies the query."""

    method: Method
    residuals: Array  # (K,): with parts, the mean over the parts
    code: Array | None  # (n,): the weight of every gallery sample; None for a method that has no code
    of_parts: Array | None = None  # (P, K): the residuals of every part of the query, if it has parts
    confidence: Confidence | None = None  # None if the gallery is not calibrated, and for another method

    @property
    def order(self) -> Array:
        """The classes, the smallest residual first; ties in name order."""
        order: Array = np.argsort(self.residuals, kind="stable")
        return order

    @property
    def values(self) -> Array:
        """The value shown for each class: its residual or, if that is a negated score, the score."""
        return -self.residuals if self.method.signed else self.residuals

    @property
    def measure(self) -> str:
        return "score" if self.method.signed else "residual"

    @property
    def margin(self) -> float:
        best, second = self.residuals[self.order[:2]]
        return float(margins(np.array([best]), np.array([second]), self.method.signed)[0])


@dataclass(frozen=True)
class ExplainReport:
    query: str
    truth: str | None  # the true class, if the query's folder or label names one
    gallery: FittedGallery
    explanations: list[MethodExplanation]  # for the gallery's method, and the method to compare with
    vector: Array  # (d,): the query as a unit vector or, with parts, a vector of unit parts

    @property
    def grid(self) -> Parts | None:
        """How images are divided into parts; None without parts."""
        return next((step for step in self.gallery.recipe.steps if isinstance(step, Parts)), None)

    def shown_classes(self, explanation: MethodExplanation) -> list[int]:
        """Return the best classes, and the true class, in the order of their residuals."""
        classes = self.gallery.classes
        shown: list[int] = explanation.order[:SHOWN_CLASSES].tolist()
        if self.truth in classes and (true := classes.index(self.truth)) not in shown:
            shown.append(true)
        return shown

    def parts(self, explanation: MethodExplanation) -> list[PartAnswer]:
        """Return the result of every part, tile by tile and row by row; empty without parts."""
        if (grid := self.grid) is None or explanation.of_parts is None:
            return []
        supports = _part_margins(explanation)
        answers = []
        for i, (tile, residuals) in enumerate(zip(grid.tiles, explanation.of_parts, strict=True)):
            row, column = (None, None) if tile.name else (i // grid.columns + 1, i % grid.columns + 1)
            best = np.flatnonzero(residuals == residuals.min())
            label = int(best[0]) if len(best) == 1 else None
            answers.append(PartAnswer(row, column, tile.name, label, float(supports[i]), residuals))
        return answers

    def strongest(
        self, explanation: MethodExplanation, count: int, label: int | None = None
    ) -> list[WeightedSample]:
        """Return the samples with the largest weights, of all classes or of one."""
        if explanation.code is None:
            return []
        class_of = self.gallery.samples.class_index
        span = slice(0, len(class_of)) if label is None else self.gallery.samples.class_span(label)
        return [
            WeightedSample(
                self.gallery.names[i], self.gallery.classes[class_of[i]], float(explanation.code[i])
            )
            for i in find_largest([np.abs(explanation.code[span])], count, span.start)
        ]

    def nearest(self, explanation: MethodExplanation) -> WeightedSample | None:
        """Return, for nn, the sample that decides: the nearest sample of the winning class.

        With parts, each part has its own nearest sample; this one has the largest mean cosine.
        """
        if not isinstance(explanation.method, Nn):
            return None
        samples, label = self.gallery.samples, int(explanation.order[0])
        first = int(samples.edges[label])
        cosines = samples.vectors[first : samples.edges[label + 1]].astype(np.float64) @ self.vector
        cosines /= samples.n_parts
        row = int(cosines.argmax())
        name = self.gallery.names[first + row]
        return WeightedSample(name, self.gallery.classes[label], float(cosines[row]), is_nearest=True)

    def shares(self, explanation: MethodExplanation) -> Array | None:
        """Return (K,): each class's share of all positive weights; a few iterations leave negative ones."""
        if explanation.code is None:
            return None
        weights = np.add.reduceat(np.maximum(explanation.code, 0), self.gallery.samples.edges[:-1])
        shares: Array = weights / (weights.sum() or 1.0)
        return shares


@dataclass(frozen=True)
class Query:
    """One sample of a source."""

    name: str
    source: Source
    row: int


def explain(
    query: str, gallery_path: Path, options: QueryOptions, against: str | None = None
) -> ExplainReport:
    gallery = load_for_queries(options, gallery_path)
    return explain_query(open_query(query, gallery, options, gallery_path), gallery, options, against)


def explain_query(
    query: Query,
    gallery: FittedGallery,
    options: QueryOptions,
    against: str | None = None,
    recipe: OpenRecipe | None = None,
) -> ExplainReport:
    """Explain a query. The gallery's `recipe` is opened here, unless the caller has opened it."""
    other = None if against is None else _other_method(against, gallery.method)
    recipe = recipe or open_recipe(gallery.recipe, query.source, options)
    batch, truth = _read_query(query, gallery, recipe)
    vector = batch.values
    own = _explanation(gallery, gallery.method, vector, gallery.state)
    run = Run.prepare(gallery, query.source, replace(options, reject=REJECT, sets=SET_LEVEL), recipe)
    explanations = [replace(own, confidence=_confidence(run, own.residuals, batch))]
    if other:
        explanations.append(_explanation(gallery, other, vector, fit_method(other, gallery.samples)))
    return ExplainReport(query.name, truth, gallery, explanations, vector[0].astype(np.float64))


def _other_method(name: str, method: Method) -> Method:
    """Return the method at its defaults, with the same neighbours if it supports them.

    crnr and nrc get all common parameters, so only lam differs.
    """
    given, known = method.parameters, make_method(name, {}).parameters
    differ_in_lam = {name, method.name} <= {Crnr.name, Nrc.name}
    common = ("mu", "iterations", "tol", "neighbors") if differ_in_lam else ("neighbors",)
    return make_method(name, {key: given[key] for key in common if key in given and key in known})


def open_query(
    name: str, gallery: FittedGallery, options: QueryOptions, gallery_path: Path | str = "the gallery"
) -> Query:
    """Return an image, or a row of a feature file such as queries.h5#3."""
    named = _ROW.fullmatch(name)
    path, row = name, None
    if named and stat_or_none(name) is None and is_table(named["path"]):
        path, row = named["path"], int(named["row"])
    source = open_queries([path], gallery, options, path=gallery_path)
    if row is None and len(source) > 1:
        is_row = source.n_features is not None
        what, example = ("row", f"{path}#0") if is_row else ("image", source.names((0, 1))[0])
        raise UsageError(f"{path}: explain takes one {what}, such as {example}")
    if row is not None and row >= len(source):
        raise UsageError(f"{path}: has no row {row}; choose one from 0 to {len(source) - 1}")
    return Query(name, source, row or 0)


def _read_query(query: Query, gallery: FittedGallery, recipe: OpenRecipe) -> tuple[Batch, str | None]:
    """Return the query with its unit vector, (1, d), and the true class if it is known."""
    (read,) = query.source.read_batches([(query.row, query.row + 1)], recipe.request, DecoderPool(1))
    batch = recipe.vectors(recipe.raw(read), gallery.dtype)
    if error := batch.errors[0]:
        raise DataError(f"{query.name}: {error}")
    return batch, make_truth_lookup(gallery, query.source)(batch)[0]


def _confidence(run: Run, residuals: Array, batch: Batch) -> Confidence | None:
    """Return what `classify` decides with the options of the run; None without a calibration."""
    gallery = run.gallery
    if gallery.calibration is None:
        return None
    answers = Answers(
        batch=batch.without_values(),
        residuals=residuals[np.newaxis].astype(gallery.dtype),  # thresholds apply in this precision
        truths=[None],
        min_separation=run.min_separation,
        signed=gallery.method.signed,
        sureness=run.sureness,
    )
    (row,) = make_predictions(answers, gallery.classes)
    found, certainty = answers.probabilities, gallery.calibration.certainty
    assert row.separation is not None
    return Confidence(
        separation=row.separation,
        min_separation=run.min_separation,
        is_rejected=row.status == REJECTED,
        probabilities=None if found is None else round_probabilities(to_dense(found)[0]),
        label_set=row.set,
        can_exclude=certainty is None or certainty.can_exclude(SET_LEVEL),
    )


def _explanation(gallery: FittedGallery, method: Method, vector: Array, state: State) -> MethodExplanation:
    samples = gallery.samples
    if samples.parts is None:
        residuals, code = _residuals_and_weights(method, samples, state, vector)
        return MethodExplanation(method, residuals.astype(np.float64), code)
    answers = [
        _residuals_and_weights(method, samples.part(i), of_part, samples.part_of(vector, i))
        for i, of_part in enumerate(states_of_parts(state, samples.n_parts))
    ]
    for i, (residuals, _) in enumerate(answers):
        if are_blank(samples.part_of(vector, i))[0]:  # as in classify
            residuals[:] = 0
    of_parts = [residuals for residuals, _ in answers]
    codes = [code for _, code in answers if code is not None]
    # As in classify: summed in the precision of the gallery, so even a tie has the same winner.
    mean = sum(of_parts[1:], start=of_parts[0]) / samples.n_parts
    return MethodExplanation(
        method,
        mean.astype(np.float64),
        np.mean(codes, axis=0) if codes else None,
        np.array(of_parts, np.float64),
    )


def _residuals_and_weights(
    method: Method, samples: Samples, state: State, vector: Array
) -> tuple[Array, Array | None]:
    """Return the residual of every class and, if the method has a code, the weight of every sample."""
    if not isinstance(method, CodingMethod):
        return to_dense(method.residuals(samples, state, vector))[0], None
    codes = method.codes(samples, state, vector)
    if isinstance(method, Neighbors):  # as in classify, from Gram matrices
        return method.residuals(samples, state, vector).to_dense()[0], codes[0].astype(np.float64)
    return method.residuals_of(samples, codes, vector)[0], codes[0].astype(np.float64)


def _part_margins(explanation: MethodExplanation) -> Array:
    """Return (P,): how much every part supports the label of the query, from -1 to 1.

    It is the margin that `classify` would report for the two classes: the label, and the best other class of
    this part. It is negative if the other class has the smaller residual, and 0 if the two are equal.
    """
    assert explanation.of_parts is not None
    label = int(explanation.order[0])
    own = explanation.of_parts[:, label]
    other = np.delete(explanation.of_parts, label, axis=1).min(axis=1)
    sizes = margins(np.minimum(own, other), np.maximum(own, other), explanation.method.signed)
    return np.where(own <= other, sizes, -sizes)
