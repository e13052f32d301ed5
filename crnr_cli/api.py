"""crnr from Python: the answers of `crnr classify` and `crnr explain` as typed values.

    from crnr_cli import Gallery

    gallery = Gallery.load("gallery.h5")
    for answer in gallery.classify("queries"):
        print(answer.path, answer.label, answer.margin)

All errors derive from `crnr_cli.errors.CrnrError`, with the messages of the commands.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from operator import index
from pathlib import Path
from typing import Any, Self

import numpy as np

from crnr_cli.arrays import Array, map_values
from crnr_cli.choices import AUTO, PROVIDERS
from crnr_cli.errors import UsageError
from crnr_cli.gallery.gallery import FittedGallery, describe
from crnr_cli.gallery.queries import QueryOptions, Run, check_queries, load_for_queries, with_calibration
from crnr_cli.gallery.reading import open_recipe
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.images.pool import DecoderPool
from crnr_cli.jobs.explain import ExplainReport, Query, WeightedSample, explain_query, open_query
from crnr_cli.recipe.recipe import OpenRecipe
from crnr_cli.records import dataclass
from crnr_cli.results.decision import OK, Answers, make_predictions
from crnr_cli.results.formats import values_by_class
from crnr_cli.results.probability import round_probabilities
from crnr_cli.results.table import DATE, EVENT, EVENT_LABEL
from crnr_cli.sources.base import Source
from crnr_cli.sources.formats import Keys, is_table
from crnr_cli.sources.opening import open_source
from crnr_cli.sources.tables import rows_as_source
from crnr_cli.sources.walk import list_images
from crnr_cli.system.cores import available_cores, product_threads
from crnr_cli.wording import format_count, not_one_of

_ON_REQUEST = {
    DATE,
    EVENT,
    EVENT_LABEL,
    "rank",
    "class_probability",
}  # columns of options that the API does not have
STRONGEST = 8  # gallery samples of an explanation, as in `crnr explain`
Name = str | os.PathLike[str]
# One file or folder, several, or rows of features as an array: (m, d), or (d,) for one row.
Inputs = Name | Iterable[Name] | Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer for one input: a row of the CSV that `crnr classify` writes.

    A failed input has no label, a `status` that is the code of the reason, and an `error`.
    """

    path: str  # as named by the caller; for features, the name of the row
    truth: str | None  # the true class, if a folder or a label of the input names one
    label: str | None  # the best class; "unknown" if the input was rejected, None if it failed
    residual: float | None  # of the best class
    runner_up: str | None  # the second-best class; for a rejected input, the best one
    margin: float | None  # 1 - best/second: 0 is a tie, 1 a perfect match
    status: str  # "ok", "rejected", or the code of a failure
    separation: float | None  # 1 - best/mean of the others
    probability: float | None  # that the best class is right; None if the gallery is not calibrated
    set: tuple[str, ...] | None  # the plausible labels, the best first; None without `sets`
    residuals: dict[str, float] | None  # by class, in name order; with `top`, the best first
    probabilities: dict[str, float] | None  # likewise
    error: str | None  # why the input failed

    @property
    def ok(self) -> bool:
        """Whether there is a label, and it was not rejected."""
        return self.status == OK


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The result of one part of an image alone, in a gallery that was built with --parts."""

    row: int | None  # of the tile, counted from 1; None if the part is not a tile
    column: int | None
    name: str | None  # of a part that is not a tile
    label: str | None  # the class with the smallest residual; None for ties
    margin: float  # how much the part supports the label of the query, from -1 to 1
    residuals: dict[str, float]  # by class, in name order


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why a query gets its label: the output of `crnr explain --json`."""

    query: str
    truth: str | None  # the true class, if a folder or a label of the query names one
    method: str
    parameters: dict[str, Any]  # of the method
    label: str
    runner_up: str
    margin: float
    residuals: dict[str, float]  # by class, in name order
    probability: float | None  # that the label is right; None if the gallery is not calibrated
    probabilities: dict[str, float] | None  # by class, in name order
    set: tuple[str, ...] | None  # the labels that are plausible at the level 0.95, the best first
    rejected: bool | None  # whether `reject=0.05` rejects the query; None if the gallery is not calibrated
    weight_shares: dict[str, float] | None  # of all positive weights; None for a method without weights
    nearest: WeightedSample | None  # for nn, the sample that decides
    strongest: list[WeightedSample]  # the gallery samples with the largest weights, the largest first
    parts: list[Part] | None  # None if the gallery has no parts
    against: Explanation | None = None  # by the other method, if one was named

    def record(self) -> dict[str, Any]:
        """Return this method's explanation as plain values, as in the JSON of `crnr explain`."""
        plain = asdict(self)
        for name in ("query", "truth", "against", *(() if self.parts else ("parts",))):
            del plain[name]
        for part in plain.get("parts", ()):
            for name in ("row", "column") if part["name"] else ("name",):
                del part[name]
        return plain


def make_explanations(report: ExplainReport, strongest: int = STRONGEST) -> list[Explanation]:
    """Return the explanations by the gallery's method, and by the method to compare with."""
    classes = report.gallery.classes
    found = []
    for one in report.explanations:
        shares, sure = report.shares(one), one.confidence
        probabilities = sure.probabilities if sure else None
        first, second = one.order[:2].tolist()
        parts = [
            Part(
                row=part.row,
                column=part.column,
                name=part.name or None,
                label=None if part.label is None else classes[part.label],
                margin=part.margin,
                residuals=_by_name(classes, part.residuals),
            )
            for part in report.parts(one)
        ]
        found.append(
            Explanation(
                query=report.query,
                truth=report.truth,
                method=one.method.name,
                parameters=one.method.parameters,
                label=classes[first],
                runner_up=classes[second],
                margin=one.margin,
                residuals=_by_name(classes, one.residuals),
                probability=None if probabilities is None else float(probabilities[first]),
                probabilities=None if probabilities is None else _by_name(classes, probabilities),
                set=sure.label_set if sure else None,
                rejected=sure.is_rejected if sure else None,
                weight_shares=None if shares is None else _by_name(classes, shares),
                nearest=report.nearest(one),
                strongest=report.strongest(one, strongest),
                parts=parts or None,
            )
        )
    return found


def _by_name(classes: Sequence[str], values: Array) -> dict[str, float]:
    return dict(zip(classes, values.tolist(), strict=True))


def make_answers(answers: Answers, classes: Sequence[str], top: int | None = None) -> list[Answer]:
    """Return one Answer per input of a batch; `top` keeps the residuals of the best classes only."""
    residuals, probabilities = answers.residuals, answers.probabilities
    top = None if top is None else min(top, len(classes))
    of_rows: list[dict[int, dict[str, float]]] = []
    for values in (
        residuals,
        None if probabilities is None else map_values(round_probabilities, probabilities),
    ):
        found = [] if values is None else values_by_class(values, residuals, classes, top)
        of_rows.append(dict(zip(answers.batch.rows.tolist(), found, strict=False)))
    return [
        Answer(
            **{name: value for name, value in row._asdict().items() if name not in _ON_REQUEST},
            residuals=of_rows[0].get(query),
            probabilities=of_rows[1].get(query),
            error=None if error is None else str(error),
        )
        for query, (row, error) in enumerate(
            zip(make_predictions(answers, classes), answers.batch.errors, strict=True)
        )
    ]


class Gallery:
    """A gallery that `crnr build` wrote, ready to classify. Load one with `Gallery.load`.

    It does not change, and ignores later changes of its file. Calls may come from several threads.
    """

    def __init__(self, stored: FittedGallery, path: str, options: QueryOptions) -> None:
        self._stored, self._path, self._options = stored, path, options
        self._calibrated: FittedGallery | None = None  # computed on first use
        self._recipe: tuple[tuple[bool, int], OpenRecipe] | None = None  # and what it was opened for

    @classmethod
    def load(
        cls,
        path: Name,
        *,
        extractor: Name | None = None,
        provider: str = AUTO,
        max_pixels: int = MAX_PIXELS,
    ) -> Self:
        """Read and check the file; GalleryError if it is missing, damaged or not a gallery.

        The keywords are options of `crnr classify`. For a gallery with a network, `extractor` is the path of
        the network, if it has moved, and `provider` the hardware that it runs on. Images of more than
        `max_pixels` are not decoded.
        """
        if provider not in (AUTO, *PROVIDERS):
            raise UsageError(f"provider: {not_one_of(provider, (AUTO, *PROVIDERS))}")
        _require_counts(max_pixels=max_pixels)
        model = None if extractor is None else Path(extractor)
        options = QueryOptions(model=model, provider=provider, max_pixels=max_pixels)
        return cls(load_for_queries(options, Path(path)), os.fspath(path), options)

    def __repr__(self) -> str:
        stored = self._stored
        return (
            f"<Gallery {self._path}: {stored.method.name}, {format_count(len(stored.names), 'example')}, "
            f"{format_count(len(stored.classes), 'class')}>"
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in order."""
        return tuple(self._stored.classes)

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of the samples, class by class."""
        return tuple(self._stored.names)

    def describe(self) -> dict[str, Any]:
        """Return the settings of the gallery as plain values, as `crnr info --json` prints them."""
        return describe(self._stored)

    def classify(
        self,
        inputs: Inputs,
        *,
        reject: float | None = None,
        min_probability: float | None = None,
        sets: float | None = None,
        top: int | None = None,
        jobs: int | None = None,
        features_key: str | None = None,
        labels_key: str | None = None,
    ) -> list[Answer]:
        """Return the answers to all inputs, in the order of the rows that `crnr classify` writes.

        `inputs` is a file or folder, several of them, or an array of features with one row per sample. The
        keywords are the options of the command. A failed input also gets an answer, with the reason in
        `status`; so does each of several files that does not exist. Errors: DataError for a single file or
        folder that does not exist, and for inputs of another kind than the gallery's; UsageError for a
        keyword out of range; GalleryError for a gallery of one class.

        One call for many inputs is much faster than many calls: each starts its own decoders.
        """
        return list(
            self.iter_classify(
                inputs,
                reject=reject,
                min_probability=min_probability,
                sets=sets,
                top=top,
                jobs=jobs,
                features_key=features_key,
                labels_key=labels_key,
            )
        )

    def iter_classify(
        self,
        inputs: Inputs,
        *,
        reject: float | None = None,
        min_probability: float | None = None,
        sets: float | None = None,
        top: int | None = None,
        jobs: int | None = None,
        features_key: str | None = None,
        labels_key: str | None = None,
    ) -> Iterator[Answer]:
        """Yield the answers of `classify` batch by batch, for more inputs than fit into memory."""
        for name, value in (("reject", reject), ("min_probability", min_probability), ("sets", sets)):
            if value is not None and not 0 <= value <= 1:
                raise UsageError(f"{name} must be a number from 0 to 1, not {value}")
        _require_counts(jobs=jobs)
        _require_counts(0, top=top)
        options = replace(
            self._options,
            reject=reject,
            min_probability=min_probability,
            sets=sets,
            top=top,
            jobs=jobs,
            keys=Keys(features_key, labels_key),
        )
        source = self._open_source(inputs, options)
        if source is None:
            return iter(())
        with product_threads(1):
            ready = with_calibration(self._stored, options, lambda: self._calibrate(options.n_jobs))
        source = check_queries(source, ready)
        return self._answers(Run.prepare(ready, source, options, self._open_recipe(source, options)))

    def explain(
        self,
        query: Name | Array,
        *,
        against: str | None = None,
        strongest: int = STRONGEST,
        features_key: str | None = None,
        labels_key: str | None = None,
    ) -> Explanation:
        """Explain a query's label: an image, a row of a feature file such as `queries.h5#3`, or an array.

        `against` is the name of another method to compare with, and `strongest` the number of gallery samples
        to return. A failed query raises DataError.
        """
        options = replace(self._options, keys=Keys(features_key, labels_key))
        if isinstance(query, str | os.PathLike):
            one = open_query(_file_name(query), self._stored, options)
        else:
            source = check_queries(rows_as_source(_as_rows(np.asarray(query))), self._stored)
            if len(source) != 1:
                raise UsageError(f"explain takes one row of features, not {len(source)}")
            one = Query("row 0", source, 0)
        with product_threads(available_cores()):
            recipe = self._open_recipe(one.source, options)
            report = explain_query(one, self._stored, options, against, recipe)
        found, *others = make_explanations(report, strongest)
        return replace(found, against=others[0]) if others else found

    @staticmethod
    def _answers(run: Run) -> Iterator[Answer]:
        with product_threads(1), closing(run.answer(DecoderPool(run.options.jobs))) as batches:
            for batch in batches:
                yield from make_answers(batch, run.gallery.classes, run.top)

    def _open_recipe(self, source: Source, options: QueryOptions) -> OpenRecipe:
        """Return the recipe for these queries. The last one is kept, because loading a network is slow."""
        key = (source.n_features is not None, options.n_jobs)
        if self._recipe is None or self._recipe[0] != key:
            self._recipe = key, open_recipe(self._stored.recipe, source, options)
        return self._recipe[1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to send to another process, which opens the recipe itself."""
        return vars(self) | {"_recipe": None}

    def _calibrate(self, jobs: int) -> FittedGallery:
        if self._calibrated is None:
            self._calibrated = self._stored.calibrate(jobs)
        return self._calibrated

    def _open_source(self, inputs: Inputs, options: QueryOptions) -> Source | None:
        """Return the source; None without inputs."""
        if isinstance(inputs, str | os.PathLike):
            return open_source([_file_name(inputs)], options, allow_missing=True)
        if hasattr(inputs, "__array__"):
            array = np.asarray(inputs)
            if array.dtype.kind in "fiub":
                rows = _as_rows(array)
                return rows_as_source(rows) if len(rows) else None
            inputs = array.ravel().tolist()
        names = [_file_name(name) for name in inputs]
        if self._stored.recipe.kind != "pictures" or "" in names or any(map(is_table, names)):
            return open_source(names, options, allow_missing=True) if names else None
        images = list_images(names, nul_separated=False)  # even if none of them exists
        return images if len(images) else None


def _require_counts(at_least: int = 1, /, **counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and index(count) < at_least:
            raise UsageError(f"{name} must be a whole number of at least {at_least}, not {count}")


def _file_name(name: Name) -> str:
    if not isinstance(name, str | os.PathLike):
        raise TypeError(f"a query must be a path, or all queries an array of numbers; found {name!r}")
    text = os.fsdecode(name)
    return "./-" if text == "-" else text  # in a command, - is a list on stdin


def _as_rows(array: Array) -> Array:
    return array[np.newaxis] if array.ndim == 1 else array
