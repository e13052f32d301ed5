"""Read queries, compare them with all classes, and answer them, batch by batch."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from crnr_cli import __version__
from crnr_cli.arrays import Batch
from crnr_cli.errors import GalleryError, UsageError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.reading import open_recipe, refuse_mismatch
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import OpenRecipe
from crnr_cli.records import dataclass
from crnr_cli.results.decision import Answers, Nearest, Prediction
from crnr_cli.results.journal import Identity
from crnr_cli.results.probability import Thresholds
from crnr_cli.results.table import DATE, CsvFormatter
from crnr_cli.solvers.neighbors import search_bytes
from crnr_cli.sources.base import InputOptions, Source, Span
from crnr_cli.sources.images import NO_BOX, Images, ignored_note, is_unrelated, removed_notes
from crnr_cli.sources.opening import fingerprint, open_source
from crnr_cli.sources.walk import Lister
from crnr_cli.system.cores import pieces_at_once, run_side_by_side
from crnr_cli.system.memory import room_for
from crnr_cli.system.names import Spellings, quote_word
from crnr_cli.system.outputs import refuse_mentioned
from crnr_cli.wording import Note, format_count

if TYPE_CHECKING:
    from crnr_cli.gallery.fit import KnownSamples
    from crnr_cli.results.events import EventOptions
    from crnr_cli.results.formats import JsonLinesFormatter
    from crnr_cli.results.taxa import Taxa

_MANY_CLASSES = 1000  # with more, only the best are written by default
_BEST = 5
TruthOf = Callable[[Batch], list[str | None]]  # the true class of each sample of a batch, or None
MAX_FAILURES = 10  # kept for the report without `all_failures`; the output has all failures


@dataclass(frozen=True, kw_only=True)
class QueryOptions(InputOptions):
    reject: float | None = None  # reject queries at this rate of false rejections
    min_probability: float | None = None  # reject queries whose best class is less probable
    taxa: Taxa | None = None  # broader classes, to answer instead of rejecting by the probability
    sets: float | None = None  # write the labels that are plausible at this level
    # Write only this many of the best classes; 0: all residuals; None: all, unless there are many.
    top: int | None = None
    format: str = "csv"  # of the output: csv, jsonl or parquet
    model: Path | None = None  # the path of the gallery's network, if it has moved
    cache: Path | None = None  # a feature file of the images, to read their features from
    events: EventOptions | None = None  # how queries are grouped, to answer each group; None: not at all
    find_copies: bool = False  # look for queries that are also in the gallery, or similar to its samples


@dataclass(frozen=True)
class Run:
    """A classification, with everything decided before the first query is read."""

    gallery: FittedGallery
    source: Source
    recipe: OpenRecipe
    options: QueryOptions
    batch_size: int  # queries that are classified at once
    top: int | None  # the number of best classes to write for each query; None: all residuals
    min_separation: float  # a query whose best class is less separate is rejected
    sureness: Thresholds | None  # None if the gallery holds no probabilities
    first: int = 0  # the first batch: an earlier run finished those before it

    @classmethod
    def prepare(
        cls, gallery: FittedGallery, source: Source, options: QueryOptions, recipe: OpenRecipe | None = None
    ) -> Run:
        """Decide everything; a model that is missing or has changed is reported now, before any work.

        The gallery's `recipe` is opened here, unless the caller has opened it.
        """
        if recipe is None:
            recipe = open_recipe(gallery.recipe, source, options)
        return cls(
            gallery=gallery,
            source=source,
            recipe=recipe,
            options=options,
            batch_size=queries_per_batch(gallery, recipe, options),
            top=_n_written_classes(gallery, options),
            min_separation=_min_separation(gallery, options),
            sureness=_sureness(gallery, options),
        )

    def with_source(self, source: Source) -> Run:
        """Return the same run for other queries; the model is kept, unless they are of another kind."""
        if (source.n_features is None) == (self.source.n_features is None):
            return replace(self, source=source)
        return Run.prepare(self.gallery, source, self.options)

    @property
    def spans(self) -> list[Span]:
        """The batches that remain to be classified."""
        return self.source.spans(self.batch_size)[self.first :]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of MORE_COLUMNS, and DATE, that the answers have."""
        of_dates = () if self.options.dates is None else (DATE,)
        return (*(self.sureness.columns if self.sureness else ()), *of_dates)

    def identity(self) -> Identity:
        """Return everything that the bytes of the output depend on, by names for messages."""
        return {
            **self.settings(),
            "number of inputs": len(self.source),
            "list of inputs": fingerprint(self.source),
            "batch": self.batch_size,
        }

    def settings(self) -> Identity:
        """Return everything that the row of a query depends on, besides the query."""
        options = self.options
        return {
            "crnr": __version__,
            "gallery": self.gallery.sha256,
            "--max-pixels": options.max_pixels,
            "--features-key": options.keys.features,
            "--labels-key": options.keys.labels,
            "--samples-axis": options.keys.samples,
            "--reject": options.reject,
            "--min-probability": options.min_probability,
            "--sets": options.sets,
            "--top": self.top,
            "--provider": options.provider if self.gallery.recipe.has_network else None,
            "--format": options.format,
            "--dates": options.dates,
            **({options.events.option: options.events.value} if options.events else {}),
            **({"--taxa": options.taxa.digest()} if options.taxa else {}),
        }

    def notes(self) -> list[Note]:
        """Return notes for the user about the run, whatever the answers are."""
        notes = []
        if name := self.recipe.accelerator:
            text = f"the network ran on {name}; --provider cpu uses the processor instead"
            notes.append(Note("provider", text))
        if not isinstance(self.source, Images):
            notes += [Note("source", text) for text in self.source.notes()]
        if self.source.ignored:
            notes.append(Note("ignored", ignored_note(self.source.ignored)))
        if self.source.removed_folders:
            notes += [Note("removed folder", text) for text in removed_notes(self.source.removed_folders)]
        if self.options.top is None and self.top is not None:
            text = (
                f"of {format_count(len(self.gallery.classes), 'class')}, the {self.top} best of each query "
                "are written; choose how many with --top, or --top 0 for the residuals of all"
            )
            notes.append(Note("top", text))
        level, sure = self.options.sets, self.sureness
        notes += sure.broader.notes if sure and sure.broader else []
        if level is not None and sure is not None and not sure.certainty.can_exclude(level):
            held_out = format_count(len(sure.certainty.of_truth), "example")
            text = (
                f"--sets {level:g} excludes no label: too few examples could be held out of the gallery "
                f"({held_out}) for so high a level; choose a lower one, or add examples"
            )
            notes.append(Note("sets", text))
        return notes

    def rejection_rule(self) -> str | None:
        """Describe when a query is labelled as unknown; None if this never happens."""
        options, calibration = self.options, self.gallery.calibration
        if calibration is None:
            return None
        rules = []
        if options.reject is not None:
            rules.append(calibration.describe_rule(options.reject, self.gallery.dtype))
        if options.min_probability is not None:
            broader = ", of broader classes too" if options.taxa else ""
            rules.append(f"probability below {options.min_probability:g}{broader}")
        return "; or ".join(rules) or None

    @cached_property
    def row_formatter(self) -> RowFormatter:
        classes, top, columns = self.gallery.classes, self.top, self.columns
        if self.options.format == "jsonl":
            from crnr_cli.results.formats import JsonLinesFormatter  # here, because few runs need it

            return RowFormatter(JsonLinesFormatter(classes, top, columns))
        return RowFormatter(CsvFormatter(classes, self.gallery.dtype, top, columns))

    def answer(self, decoders: DecoderPool, progress: Progress = silent) -> Generator[Answers]:
        """Classify all queries in this process, in fixed batches of the listing."""
        total = len(self.source)
        progress("classifying", 0, total)
        truth_of = make_truth_lookup(self.gallery, self.source)
        answer_batch = partial(self._answer_batch, truth_of, self._known_samples())
        with (
            closing(self.source.read_batches(self.spans, self.recipe.request, decoders)) as batches,
            closing(
                run_side_by_side(answer_batch, self._read(batches, progress), self._batches_at_once())
            ) as done,
        ):
            for answers in done:
                yield answers
                progress("classifying", answers.batch.end, total)

    def _read(self, batches: Iterable[Batch], progress: Progress) -> Iterator[Batch]:
        """Run a network here and not in the threads that answer, because it uses all cores itself."""
        for batch in batches:
            if not self.recipe.is_network:
                yield batch
                continue
            raw = self.recipe.raw(batch)
            progress("reading", batch.end, len(self.source))  # answers come several batches later
            yield raw

    def _answer_batch(self, truth_of: TruthOf, known: KnownSamples | None, batch: Batch) -> Answers:
        """Compare a batch with all classes; a network has run on it before."""
        raw = batch if self.recipe.is_network else self.recipe.raw(batch)
        vectors = self.recipe.vectors(raw, self.gallery.dtype)
        copies = known.names_in_batch(raw, vectors) if known else []
        similar: list[Nearest] = []
        if self.finds_similar:
            from crnr_cli.gallery.scenes import find_candidates  # here, because few runs need it

            similar = find_candidates(vectors, self.gallery, copies)
        return Answers(
            batch=vectors.without_values(),
            residuals=self.gallery.residuals(vectors.values),
            truths=truth_of(raw),
            min_separation=self.min_separation,
            signed=self.gallery.method.signed,
            copies=copies,
            similar=similar,
            sureness=self.sureness,
        )

    @property
    def finds_similar(self) -> bool:
        """Whether the run looks for images similar to samples; an index is for galleries too large for it."""
        of_images = self.gallery.recipe.kind == "pictures" and self.source.n_features is None
        has_index = self.gallery.parameters.get("index", "exact") != "exact"
        return self.options.find_copies and of_images and not has_index

    def _known_samples(self) -> KnownSamples | None:
        """Return the gallery's samples, if the run looks for copies among the queries."""
        if not self.options.find_copies:
            return None
        from crnr_cli.gallery.fit import KnownSamples  # here, because few runs need it

        gallery = self.gallery
        return KnownSamples.of(gallery.recipe.kind, gallery.hashes, gallery.samples.vectors)

    def _batches_at_once(self) -> int:
        """Return one batch per core, but fewer if they would fill half of the free memory."""
        needed = self.gallery.method.batch_bytes(self.gallery.samples, self.batch_size)
        if self.finds_similar:
            needed += search_bytes(len(self.gallery.names), self.batch_size)
        return min(room_for(needed), pieces_at_once(self.options.n_jobs))


def load_for_queries(options: QueryOptions, gallery_path: Path, progress: Progress = silent) -> FittedGallery:
    """Load the gallery, and calibrate it if the options need it and its file has no calibration."""
    if options.taxa and options.min_probability is None:
        raise UsageError(
            "--taxa needs --min-probability: a query less probable gets a broader class; add it, such as "
            "--min-probability 0.9"
        )
    gallery = load_gallery(gallery_path)
    refuse_mentioned(gallery.names)
    if options.model is not None:
        gallery = with_model_at(options.model, gallery, gallery_path)
    return with_calibration(gallery, options, lambda: gallery.calibrate(options.n_jobs, progress))


def with_calibration(
    gallery: FittedGallery, options: QueryOptions, compute: Callable[[], FittedGallery]
) -> FittedGallery:
    """Return the gallery, calibrated if the options need it and the file holds no calibration.

    A calibration by the residuals of an earlier crnr is replaced, whatever the options.
    """
    stored = gallery.calibration
    if stored is not None and stored.is_outdated(gallery.method):
        return compute()
    if options.min_probability is not None or options.sets is not None or options.events is not None:
        is_ready = stored is not None and stored.certainty is not None
        return gallery if is_ready else compute()
    if options.reject is None or stored:
        return gallery
    gallery = compute()
    assert gallery.calibration is not None
    # The column `probability` is written if the gallery's file has probabilities, or on request.
    return replace(gallery, calibration=replace(gallery.calibration, certainty=None))


def with_model_at(model: Path, gallery: FittedGallery, gallery_path: Path) -> FittedGallery:
    extractor = gallery.recipe.extractor and gallery.recipe.extractor.moved_to(model)
    if extractor is None:
        raise UsageError(f"{gallery_path}: was built without a network; leave out {model}")
    return replace(gallery, recipe=replace(gallery.recipe, extractor=extractor))


def open_queries(
    names: Sequence[str],
    gallery: FittedGallery,
    options: QueryOptions,
    lister: Lister | None = None,
    path: Path | str = "the gallery",
    *,
    allow_empty: bool = False,
) -> Source:
    """List the queries, and refuse those that the gallery at `path` cannot classify, before any work."""
    source = open_source(names, options, allow_missing=True, allow_empty=allow_empty, lister=lister)
    return check_queries(source, gallery, path)


def check_queries(source: Source, gallery: FittedGallery, path: Path | str = "the gallery") -> Source:
    """Return the queries as the gallery sees them; those that it cannot classify are refused."""
    if len(gallery.classes) < 2:
        name = quote_word(str(path)) if isinstance(path, Path) else "GALLERY"
        command = f"crnr add {name} FOLDER --class NAME"
        raise GalleryError(
            f"{path}: has only one class, {gallery.classes[0]}; add examples of another class with "
            f"`{command}`"
        )
    source = source.with_classes(gallery.classes)
    if len(source):
        refuse_mismatch(source, gallery.recipe, path)
    return source


def make_truth_lookup(gallery: FittedGallery, source: Source) -> TruthOf:
    """Return a function that returns the true class of each sample of a batch, or None if unknown."""
    truth = make_class_chooser(gallery.classes, is_labelled=source.is_labelled)
    return lambda batch: list(map(truth, batch.candidates))


def make_class_chooser(
    classes: Iterable[str], *, is_labelled: bool
) -> Callable[[tuple[str, ...]], str | None]:
    """Return a function from the possible classes of a sample to its true class.

    The class of an image is the first of its folders that is named after a class; a label in a file is used
    unchanged. Both are returned in the gallery's spelling, because a name can have two Unicode forms.
    """
    known = Spellings(classes)

    @functools.lru_cache(maxsize=4096)  # there are usually few different folders or labels, but many samples
    def truth(candidates: tuple[str, ...]) -> str | None:
        for candidate in candidates:
            name = known.find(candidate)
            if name is not None or is_labelled:
                return candidate if name is None else name
        return None

    return truth


def queries_per_batch(gallery: FittedGallery, recipe: OpenRecipe, options: QueryOptions) -> int:
    return recipe.batch_size(options.batch_size or gallery.method.batch_size(gallery.samples))


def _n_written_classes(gallery: FittedGallery, options: QueryOptions) -> int | None:
    """Return how many of the best classes to write for each query; None: all residuals."""
    if options.top is None:
        return _BEST if len(gallery.classes) > _MANY_CLASSES else None
    return options.top or None


def _min_separation(gallery: FittedGallery, options: QueryOptions) -> float:
    if options.reject is None or gallery.calibration is None:
        return 0.0
    return gallery.calibration.min_standout(options.reject)


def _sureness(gallery: FittedGallery, options: QueryOptions) -> Thresholds | None:
    certainty = gallery.calibration.certainty if gallery.calibration else None
    if certainty is None:
        return None
    least = None if options.sets is None else certainty.least_probability(options.sets)
    found = Thresholds(certainty, options.min_probability or 0.0, least)
    if options.taxa is None:
        return found
    from crnr_cli.results.taxa import BroaderClasses

    return replace(found, broader=BroaderClasses.of(options.taxa, gallery.classes))


@dataclass(frozen=True)
class RowBatch:
    """The rows of a batch of queries."""

    data: bytes
    statuses: Counter[str]  # number of queries by status
    missing: int  # failed queries, except unrelated files
    missing_rows: list[int]  # their places in the batch
    first_missing: tuple[str, str] | None  # the path and the status of the first failed query
    failures: list[tuple[str, str]]  # the failed queries, and the reasons

    @classmethod
    def of(cls, answers: Answers, rows: Sequence[Prediction], data: bytes = b"") -> RowBatch:
        missing = [
            place
            for place, row in enumerate(rows)
            if row.label is None and not is_unrelated(row.path, row.status)
        ]
        first = rows[missing[0]] if missing else None
        names = answers.batch.names
        failed = [
            (names[query], f"{error.status}, {error}")
            for query, error in answers.batch.failures()
            if error.status != NO_BOX
        ]
        return cls(
            data,
            Counter(row.status for row in rows),
            len(missing),
            missing,
            (first.path, first.status) if first else None,
            failed,
        )


@dataclass(frozen=True)
class RowFormatter:
    """Makes rows of CSV or of JSON Lines."""

    lines: CsvFormatter | JsonLinesFormatter

    def format(self, answers: Answers) -> RowBatch:
        rows, data = self.lines.format(answers)
        return RowBatch.of(answers, rows, data)
