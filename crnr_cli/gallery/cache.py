"""A cache of raw values: what it does not have yet is extracted, and everything else is taken from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.extraction import Extraction, claimed_features, extract_to
from crnr_cli.gallery.features_file import is_there, open_extracted, require_ending
from crnr_cli.gallery.new_recipe import Seen, new_recipe
from crnr_cli.gallery.raw_values import in_words, is_same, restored_recipe
from crnr_cli.gallery.samples import Reading
from crnr_cli.gallery.workers import Workers
from crnr_cli.progress import Progress
from crnr_cli.recipe.base import Extractor
from crnr_cli.recipe.extractor_options import ExtractorOptions
from crnr_cli.sources.base import Source
from crnr_cli.sources.cached import CachedPictures
from crnr_cli.sources.folders import Pictures
from crnr_cli.sources.tables import FeatureFile
from crnr_cli.wording import Note


def cached(
    source: Source, reading: Reading, path: Path, progress: Progress, workers: Workers
) -> tuple[Source, Reading, list[Note]]:
    """The same pictures with values from the cache, how to read them, and what the user should know."""
    require_ending(path)
    if not isinstance(source, Pictures):
        raise UsageError("--cache is for pictures, but these are features; leave it out")
    seen = Seen(source, reading, progress, workers)
    recipe, notes = new_recipe(source, reading.extractor, (), seen)
    if reading.on_notes and notes:
        reading.on_notes(notes)
    with claimed_features(path) as claim:
        old = None
        if is_there(path):
            old = open_extracted(path)
            _refuse_another(old, recipe.extractor)
        report = extract_to(claim, Extraction(path, source, recipe, reading, workers, old), progress)
        file = open_extracted(path)
    errors = {left.name: left.error for left in report.left_out}
    assert file.origins is not None
    found = CachedPictures(
        **vars(source),
        cache=file,
        origins=file.origins,
        recipe=recipe.stored().attributes,
        errors=errors,
    )
    return found, replace(reading, extractor=ExtractorOptions()), notes + report.notes


def _refuse_another(old: FeatureFile, wanted: Extractor | None) -> None:
    assert old.origins is not None
    extractor = restored_recipe(old.path, old.origins.recipe, old.n_features).extractor
    if not is_same(extractor, wanted):
        raise DataError(
            f"{old.path}: was extracted in another way than this gallery needs: "
            f"{in_words(extractor, wanted)}; name another file with --cache, or remove this one"
        )
