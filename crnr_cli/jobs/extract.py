"""Extract: write the raw values of a source to a file, from which galleries can be built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from crnr_cli.errors import CrnrError, DataError, OutputError, UsageError
from crnr_cli.gallery.extraction import Extraction, ExtractReport, claimed_features, extract_to
from crnr_cli.gallery.features_file import has_content, open_extracted_file, require_ending
from crnr_cli.gallery.file import GallerySummary, load_gallery
from crnr_cli.gallery.queries import with_model_at
from crnr_cli.gallery.reading import (
    ImageSurvey,
    describe_difference,
    is_same,
    new_recipe,
    recipe_of,
    refuse_mismatch,
    restore_recipe,
)
from crnr_cli.gallery.samples import Reading
from crnr_cli.gallery.workers import Here, Workers
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.records import dataclass
from crnr_cli.sources.base import Source
from crnr_cli.sources.opening import open_examples
from crnr_cli.sources.tables import FeatureFile
from crnr_cli.wording import Note, format_count, kind_in_words


@dataclass(frozen=True)
class ExtractOptions:
    reading: Reading = field(default_factory=Reading)
    update: bool = False  # keep the rows of an existing file, and add to them
    model: Path | None = None  # the path of the network of the file or of `like`, if it has moved
    like: Path | None = None  # a gallery, whose extractor is used


def extract(
    names: Sequence[str],
    path: Path,
    options: ExtractOptions,
    progress: Progress = silent,
    workers: Workers | None = None,
) -> ExtractReport:
    """Read the source, and write its raw values; an unfinished run with the same settings continues."""
    require_ending(path)
    reading = options.reading
    workers = workers or Here(DecoderPool(reading.jobs))
    source = open_examples(names, reading, workers.lister)
    notes = [Note("source", text) for text in source.notes()]
    like = _recipe_of_gallery(options.like, source, options.model) if options.like else None
    with claimed_features(path) as claim:
        old = None
        if not options.update and has_content(path):
            _refuse_gallery(path)
        if options.update and has_content(path):
            old = open_extracted_file(path)
            recipe = _recipe_of_file(old, source, options.model)
            if like and not is_same(recipe.extractor, like.extractor):
                difference = describe_difference(recipe.extractor, like.extractor)
                raise DataError(
                    f"{path}: its features come from another extractor than the features of {options.like} "
                    f"({difference}); write to another file"
                )
        elif like:
            recipe = like
        else:
            recipe, of_recipe = _new_recipe(source, reading, progress, workers)
            notes += of_recipe
        if reading.on_notes and notes:
            reading.on_notes(notes)
        report = extract_to(claim, Extraction(path, source, recipe, reading, workers, old), progress)
    if report.gone:
        text = f"no longer in the source, but kept in {path}: {format_count(report.gone, 'row')}"
        notes.append(Note("gone", text))
    return replace(report, notes=notes + report.notes)


def _new_recipe(
    source: Source, reading: Reading, progress: Progress, workers: Workers
) -> tuple[Recipe, list[Note]]:
    return new_recipe(source, reading.extractor, (), ImageSurvey(source, reading, progress, workers))


def _recipe_of_gallery(path: Path, source: Source, model: Path | None) -> Recipe:
    """Return the gallery's recipe without its steps, which classify applies to the values."""
    gallery = load_gallery(path)
    if model:
        gallery = with_model_at(model, gallery, path)
    refuse_mismatch(source, gallery.recipe, path)
    return gallery.recipe.without_steps()


def _recipe_of_file(old: FeatureFile, source: Source, model: Path | None) -> Recipe:
    """Return the recipe of the file, if it can be used for this source."""
    assert old.origins is not None
    recipe = restore_recipe(old.path, old.origins.recipe, old.n_features)
    if source.kind != recipe.kind:
        raise DataError(
            f"{old.path}: was extracted from {kind_in_words(recipe.kind)}, but the source contains "
            f"{kind_in_words(source.kind)}; write to another file"
        )
    if source.n_features is not None:
        known = recipe_of(source)
        extractor = known.extractor if known else None
        if not is_same(recipe.extractor, extractor):
            raise DataError(
                f"{old.path}: its features come from another extractor than chosen now: "
                f"{describe_difference(recipe.extractor, extractor)}; write to another file"
            )
        if source.n_features != recipe.n_inputs:
            raise DataError(
                f"{old.path}: {format_count(recipe.n_inputs, 'feature')} per row, but the source has "
                f"{source.n_features}; write to another file"
            )
    if model is None:
        return recipe
    moved = recipe.extractor and recipe.extractor.moved_to(model)
    if moved is None:
        raise UsageError(f"--extractor: {old.path} was extracted without a network; leave the option out")
    return replace(recipe, extractor=moved)


def _refuse_gallery(path: Path) -> None:
    try:
        GallerySummary.read(path)
    except CrnrError:
        return
    raise OutputError(f"{path}: is a gallery; write the features to another file")
