"""The recipe of a new gallery: the extractor that the user chose, with settings derived from the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from crnr_cli.errors import UsageError
from crnr_cli.gallery.raw_values import recipe_of
from crnr_cli.gallery.workers import Workers
from crnr_cli.pictures.pixels import PixelRequest
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.recipe.base import Extractor, Step
from crnr_cli.recipe.colors import are_colored
from crnr_cli.recipe.extractor_options import DEFAULT, ExtractorOptions
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.registry import EXTRACTORS
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.wording import Note

_LOOKED_AT = 100  # pictures, evenly spread over the source, to find out whether they are in colour
_SMALL = (32, 32)


class Seen:
    """The pictures of a source, of which headers and a few examples are read on request."""

    def __init__(self, source: Source, options: InputOptions, progress: Progress, workers: Workers) -> None:
        self.jobs, self.provider = options.n_jobs, options.provider
        self.sizes = cache(lambda: workers.picture_sizes(source, options.max_pixels, progress))
        self.are_colored = cache(lambda: _are_colored(source, options))


def _are_colored(source: Source, options: InputOptions) -> bool:
    """Whether most of the pictures that can be read are in colour."""
    places = np.unique(np.linspace(0, len(source) - 1, _LOOKED_AT).astype(int)).tolist()
    request = PixelRequest(_SMALL, True, options.max_pixels, eight_bit=True)
    decoders = DecoderPool(options.jobs)
    batches = source.batches([(place, place + 1) for place in places], request, decoders)
    found = np.concatenate([are_colored(batch.values) for batch in batches])
    return bool(found.size and found.mean() > 0.5)


def new_recipe(
    source: Source, chosen: ExtractorOptions, steps: tuple[Step, ...], seen: Seen
) -> tuple[Recipe, list[Note]]:
    """The recipe, with steps that are not fitted yet, and what the user should know about it."""
    if source.n_features is not None:
        if chosen.was_given:
            option = "--extractor" if chosen.name else _option(*min(chosen.settings.items()))
            raise UsageError(f"{option} is for pictures, but these are features{_of(source)}")
        known = recipe_of(source)
        return Recipe.of(source.n_features, known.extractor if known else None, steps), []
    kind = EXTRACTORS[chosen.name or DEFAULT]
    for setting, value in chosen.settings.items():
        if setting not in kind.settings:
            option = _option(setting, value)
            raise UsageError(f"{option} cannot be used with the extractor {kind.name}; leave it out")
    extractor, notes = kind.made(chosen.settings, seen)
    return Recipe.for_pictures(extractor, steps), notes


def _of(source: Source) -> str:
    return " that were extracted from pictures before; leave it out" if source.kind == "pictures" else ""


def alternatives(recipe: Recipe, chosen: ExtractorOptions, seen: Seen) -> Sequence[Extractor]:
    """Other extractors for `tune` to try: those that are left to choose by what the user gave."""
    if recipe.extractor is None:
        return []
    others = list(recipe.extractor.alternatives(chosen.settings))
    if not chosen.was_given:
        others.append(EXTRACTORS["pixels"].made({}, seen)[0])
    return others


def _option(setting: str, value: Any) -> str:
    """The option that the user gave."""
    return "--grey" if setting == "color" and not value else f"--{setting.replace('_', '-')}"
