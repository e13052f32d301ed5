"""crnr from Python: the answers of `crnr classify` and `crnr explain` as typed values.

    from crnr_cli import Gallery

    gallery = Gallery.load("gallery.h5")
    for answer in gallery.classify("queries"):
        print(answer.path, answer.label, answer.margin)

Errors are those of `crnr_cli.errors`, which all derive from `CrnrError`, with the messages of the commands.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from operator import index
from pathlib import Path
from typing import Any, Self

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.gallery import answer
from crnr_cli.gallery.answer import QueryOptions
from crnr_cli.gallery.gallery import Gallery as StoredGallery
from crnr_cli.gallery.gallery import describe
from crnr_cli.jobs.explain import ExplainReport, Query, WeightedSample, explained, opened_query
from crnr_cli.recipe.provider_names import AUTO, PROVIDERS
from crnr_cli.results.decision import OK, Answers, predictions
from crnr_cli.results.json_lines import by_class
from crnr_cli.results.probability import DECIMALS
from crnr_cli.sources.base import Source
from crnr_cli.sources.folders import list_pictures
from crnr_cli.sources.listing import open_source
from crnr_cli.sources.readers import is_table
from crnr_cli.sources.rows import rows_as_source
from crnr_cli.system.blas import product_threads
from crnr_cli.system.cores import available_cores
from crnr_cli.system.names import existing
from crnr_cli.wording import not_one_of

_STRONGEST = 8  # gallery samples of an explanation, as `crnr explain` shows them

Name = str | os.PathLike[str]
# One file or folder, several, or rows of features as an array: (m, d), or (d,) for one row.
Inputs = Name | Iterable[Name] | Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the gallery says about one input: a row of the CSV that `crnr classify` writes.

    An input that cannot be used has no label, a `status` that is the code of the reason, and an `error`.
    """

    path: str  # as it was named; for features, the name of the row
    truth: str | None  # the true class, if a folder or a label of the input names one
    label: str | None  # the best class; "unknown" if the input was rejected, None if it cannot be used
    residual: float | None  # of the best class
    runner_up: str | None  # the second-best class; for a rejected input, the best one
    margin: float | None  # 1 - best/second: 0 is a tie, 1 a perfect match
    status: str  # "ok", "rejected", or why there is no answer
    separation: float | None  # 1 - best/mean of the others
    probability: float | None  # that the best class is right; None if the gallery is not calibrated
    set: tuple[str, ...] | None  # the labels that cannot be excluded, the best first; None without `sets`
    residuals: dict[str, float] | None  # by class, in name order; with `top`, the best first
    probabilities: dict[str, float] | None  # likewise
    error: str | None  # why there is no answer, in words

    @property
    def ok(self) -> bool:
        """Whether there is a label, and it was not rejected."""
        return self.status == OK


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one part of a picture says by itself, in a gallery that was built with --parts."""

    row: int | None  # of the tile, counted from 1; None if the part is not a tile
    column: int | None
    name: str | None  # of a part that is not a tile
    label: str | None  # the class with the smallest residual; None if several have it
    margin: float  # how much the part speaks for the label of the query, from -1 to 1
    residuals: dict[str, float]  # by class, in name order


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why a query gets its label: what `crnr explain --json` prints."""

    query: str
    truth: str | None  # the true class, if a folder or a label of the query names one
    method: str
    parameters: dict[str, Any]  # of the method
    label: str
    runner_up: str
    margin: float
    residuals: dict[str, float]  # by class, in name order
    weight_shares: dict[str, float] | None  # of all positive weights; None for a method without weights
    nearest: WeightedSample | None  # for nn, the sample that decides
    strongest: list[WeightedSample]  # the gallery samples with the largest weights, the largest first
    parts: list[Part] | None  # None if the gallery has no parts
    against: Explanation | None = None  # by the other method, if one was named

    def record(self) -> dict[str, Any]:
        """The answer of this method as plain values, as in the JSON of `crnr explain`."""
        plain = asdict(self)
        for name in ("query", "truth", "against", *(() if self.parts else ("parts",))):
            del plain[name]
        for part in plain.get("parts", ()):
            for name in ("row", "column") if part["name"] else ("name",):
                del part[name]
        return plain


def explanations(report: ExplainReport, strongest: int = _STRONGEST) -> list[Explanation]:
    """By the gallery's method, and by the one that it is compared with."""
    classes = report.gallery.classes
    found = []
    for one in report.explanations:
        shares = report.shares(one)
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
                parameters=asdict(one.method),  # type: ignore[call-overload]
                label=classes[first],
                runner_up=classes[second],
                margin=one.margin,
                residuals=_by_name(classes, one.residuals),
                weight_shares=None if shares is None else _by_name(classes, shares),
                nearest=report.nearest(one),
                strongest=report.strongest(one, strongest),
                parts=parts or None,
            )
        )
    return found


def _by_name(classes: Sequence[str], values: Array) -> dict[str, float]:
    return dict(zip(classes, values.tolist(), strict=True))


class Gallery:
    """A gallery that `crnr build` wrote, ready to answer. Make one with `Gallery.load`.

    It does not change, and notices no changes of its file. Calls may come from several threads.
    """

    def __init__(self, stored: StoredGallery, path: str, provider: str = AUTO) -> None:
        self._stored, self._path, self._provider = stored, path, provider
        self._calibrated: StoredGallery | None = None  # computed when it is first needed

    @classmethod
    def load(cls, path: Name, *, extractor: Name | None = None, provider: str = AUTO) -> Self:
        """Read and check the file; GalleryError if it is missing, damaged or no gallery.

        For a gallery with a network, `extractor` is the path of the network, if it has moved, and `provider`
        what it runs on, as for `crnr classify`.
        """
        if provider not in (AUTO, *PROVIDERS):
            raise UsageError(f"provider: {not_one_of(provider, (AUTO, *PROVIDERS))}")
        model = None if extractor is None else Path(extractor)
        return cls(answer.load_for(QueryOptions(model=model), Path(path)), os.fspath(path), provider)

    def __repr__(self) -> str:
        stored = self._stored
        return (
            f"<Gallery {self._path}: {stored.method.name}, {len(stored.names)} samples, "
            f"{len(stored.classes)} classes>"
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """In name order."""
        return tuple(self._stored.classes)

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of the samples, class by class."""
        return tuple(self._stored.names)

    def describe(self) -> dict[str, Any]:
        """How the gallery was made, as plain values, as `crnr info --json` prints them."""
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
    ) -> list[Answer]:
        """The answers to all inputs, in the order of the rows that `crnr classify` writes.

        `inputs` is a file or folder, several of them, or an array of features with one row per sample. The
        keywords are the options of the command. An input that cannot be used has an answer too, whose
        `status` says why; so does each of several files that does not exist. What raises an error: a single
        file or folder that does not exist, and inputs of another kind than the gallery's (DataError); a
        keyword out of range (UsageError); a gallery of one class (GalleryError).

        One call for many inputs is much faster than many calls: each starts its own decoders.
        """
        options = {"reject": reject, "min_probability": min_probability, "sets": sets}
        return list(self.iter_classify(inputs, **options, top=top, jobs=jobs))

    def iter_classify(
        self,
        inputs: Inputs,
        *,
        reject: float | None = None,
        min_probability: float | None = None,
        sets: float | None = None,
        top: int | None = None,
        jobs: int | None = None,
    ) -> Iterator[Answer]:
        """Like `classify`, but the answers come batch by batch, for more inputs than fit into memory."""
        for name, value in (("reject", reject), ("min_probability", min_probability), ("sets", sets)):
            if value is not None and not 0 <= value <= 1:
                raise UsageError(f"{name} must be a number from 0 to 1, not {value}")
        for name, count in (("top", top), ("jobs", jobs)):
            if count is not None and index(count) < 1:
                raise UsageError(f"{name} must be a whole number of at least 1, not {count}")
        options = QueryOptions(
            reject=reject,
            min_probability=min_probability,
            sets=sets,
            top=top,
            jobs=jobs,
            provider=self._provider,
        )
        source = self._opened(inputs, options)
        if source is None:
            return iter(())
        with product_threads(1):
            ready = answer.ready_for(options, self._stored, lambda: self._with_calibration(options.n_jobs))
        return self._answers(ready, answer.accepted(source, ready, options), options)

    def explain(
        self, query: Name | Array, *, against: str | None = None, strongest: int = _STRONGEST
    ) -> Explanation:
        """Why a query gets its label: a picture, a row of a feature file such as `queries.h5#3`, or an array.

        `against` is the name of another method to compare with, and `strongest` the number of gallery samples
        to return. A query that cannot be used raises DataError.
        """
        options = QueryOptions(provider=self._provider)
        if isinstance(query, str | os.PathLike):
            one = opened_query(_file_name(query), self._stored, options)
        else:
            source = answer.accepted(rows_as_source(_as_rows(np.asarray(query))), self._stored, options)
            if len(source) != 1:
                raise UsageError(f"explain takes one row of features, not {len(source)}")
            one = Query("row 0", source, 0)
        with product_threads(available_cores()):
            report = explained(one, self._stored, options, against)
        found, *others = explanations(report, strongest)
        return replace(found, against=others[0]) if others else found

    @staticmethod
    def _answers(ready: StoredGallery, source: Source, options: QueryOptions) -> Iterator[Answer]:
        with product_threads(1), closing(answer.answer(ready, source, options)) as batches:
            for batch in batches:
                yield from _answers(batch, ready.classes, options.top)

    def _with_calibration(self, jobs: int) -> StoredGallery:
        if self._calibrated is None:
            self._calibrated = self._stored.calibrated(jobs)
        return self._calibrated

    def _opened(self, inputs: Inputs, options: QueryOptions) -> Source | None:
        """None if there are no inputs."""
        if isinstance(inputs, str | os.PathLike):
            return open_source([_file_name(inputs)], options, allow_missing=True)
        if hasattr(inputs, "__array__"):
            array = np.asarray(inputs)
            if array.dtype.kind in "fiub":
                rows = _as_rows(array)
                return rows_as_source(rows) if len(rows) else None
            inputs = array.ravel().tolist()
        names = [_file_name(name) for name in inputs]
        is_picture = self._stored.recipe.kind == "pictures" and not any(map(is_table, names))
        if is_picture and all(name and existing(name, follow_links=False) is None for name in names):
            return list_pictures(names, nul_separated=False) if names else None
        return open_source(names, options, allow_missing=True) if names else None


def _file_name(name: Name) -> str:
    if not isinstance(name, str | os.PathLike):
        raise TypeError(f"an input must be a path, or all of them an array of numbers; found {name!r}")
    text = os.fsdecode(name)
    return "./-" if text == "-" else text  # for a command, - is a list on stdin


def _as_rows(array: Array) -> Array:
    return array[np.newaxis] if array.ndim == 1 else array


def _answers(answers: Answers, classes: Sequence[str], top: int | None) -> list[Answer]:
    residuals, probabilities = answers.residuals, answers.probabilities
    top = None if top is None else min(top, len(classes))
    of_rows: list[dict[int, dict[str, float]]] = []
    for values in (residuals, None if probabilities is None else probabilities.round(DECIMALS)):
        found = [] if values is None else by_class(values, residuals, classes, top)
        of_rows.append(dict(zip(answers.batch.rows.tolist(), found, strict=False)))
    return [
        Answer(
            **row._asdict(),
            residuals=of_rows[0].get(query),
            probabilities=of_rows[1].get(query),
            error=None if error is None else str(error),
        )
        for query, (row, error) in enumerate(
            zip(predictions(answers, classes), answers.batch.errors, strict=True)
        )
    ]
