"""Choose the recipe that turns samples into raw values, and refuse sources that do not match it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.choices import DEFAULT, ExtractorOptions
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.workers import Workers
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.recipe.base import Extractor, Made, Step, Stored
from crnr_cli.recipe.gradients import are_colored
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.recipe import EXTRACTORS, OpenRecipe, Recipe
from crnr_cli.recipe.steps import Parts, grid_of
from crnr_cli.sources.base import InputOptions, Source, Span
from crnr_cli.system.names import join_command
from crnr_cli.wording import Note, format_count, kind_in_words

_LOOKED_AT = 100  # images, evenly spread over the source, to test whether they are in colour
_SMALL = (32, 32)
_COMPARED, _RUN = 500, 10  # examples to compare two sizes of cells on, and how many of them are in a row
Grid = tuple[int, int]  # rows and columns of tiles
WHOLE: Grid = (1, 1)


class ImageSurvey:
    """The images of a source; headers and a few examples are read on demand."""

    def __init__(self, source: Source, options: InputOptions, progress: Progress, workers: Workers) -> None:
        self.jobs, self.provider = options.n_jobs, options.provider
        self.sizes = cache(lambda: workers.image_sizes(source, options.max_pixels, progress))
        self.are_colored = cache(lambda: _are_colored(source, options))
        self._source, self._options = source, options

    def labelled_vectors(self, recipes: Sequence[Recipe]) -> tuple[list[Array], list[str]]:
        """Return the vectors of a few examples by recipes that need the same pixels, and the labels.

        Examples that one of the recipes cannot use are left out.
        """
        source, options = self._source, self._options
        opened = [open_recipe(recipe, source, options) for recipe in recipes]
        found: list[list[Array]] = [[] for _ in recipes]
        labels: list[str] = []
        request = recipes[0].request(options.max_pixels)
        for batch in source.read_batches(spread_runs(len(source)), request, DecoderPool(options.jobs)):
            by_recipe = [one.vectors(one.raw(batch), "float32") for one in opened]
            kept = [
                sample
                for sample in range(len(batch.names))
                if batch.candidates[sample] and not any(one.errors[sample] for one in by_recipe)
            ]
            labels += [batch.candidates[sample][0] for sample in kept]
            for vectors, one in zip(found, by_recipe, strict=True):
                vectors.append(one.values[np.searchsorted(one.rows, kept)])
        return [np.concatenate(vectors) for vectors in found], labels


def _are_colored(source: Source, options: InputOptions) -> bool:
    """Return whether most of the readable images are in colour."""
    places = np.unique(np.linspace(0, len(source) - 1, _LOOKED_AT).astype(int)).tolist()
    request = PixelRequest(_SMALL, True, options.max_pixels, eight_bit=True)
    decoders = DecoderPool(options.jobs)
    batches = source.read_batches([(place, place + 1) for place in places], request, decoders)
    found = np.concatenate([are_colored(batch.values) for batch in batches])
    return bool(found.size and found.mean() > 0.5)


def spread_runs(n_samples: int) -> list[Span]:
    """Return runs of examples, spread evenly: examples of a class usually follow each other in a source."""
    if n_samples <= _COMPARED:
        return [(start, min(start + _RUN, n_samples)) for start in range(0, n_samples, _RUN)]
    starts = np.linspace(0, n_samples - _RUN, _COMPARED // _RUN).astype(int).tolist()
    return [(start, start + _RUN) for start in starts]


def find_right_neighbors(vectors: Array, labels: Sequence[str]) -> Array:
    """Return (n,): for which examples the nearest other example has the same label."""
    cosines = vectors @ vectors.T  # with tiles, the sum over the tiles
    np.fill_diagonal(cosines, -np.inf)
    classes = np.array(labels, dtype=object)
    if len(classes) < 2:
        return np.zeros(len(classes), dtype=bool)
    right: Array = classes[cosines.argmax(axis=1)] == classes
    return right.astype(bool)


def new_recipe(
    source: Source, chosen: ExtractorOptions, steps: tuple[Step, ...], seen: ImageSurvey
) -> tuple[Recipe, list[Note]]:
    """Return the recipe, with steps that are not fitted yet, and notes for the user."""
    if source.n_features is not None:
        if chosen.was_given:
            option = "--extractor" if chosen.name else _option(*min(chosen.settings.items()))
            raise UsageError(
                f"{option} only applies to images, but {next(source.listing())[0]} {_of(source)}; leave the "
                "option out"
            )
        known = recipe_of(source)
        return Recipe.of(source.n_features, known.extractor if known else None, steps), []
    kind = EXTRACTORS[chosen.name or DEFAULT]
    for setting, value in chosen.settings.items():
        if setting not in kind.settings:
            option = _option(setting, value)
            raise UsageError(f"{option} does not apply to --extractor {kind.name}; leave it out")
    extractor, notes = kind.create(chosen.settings, seen)
    extractor, of_tiles = adapt_to_tiles(extractor, chosen, steps, seen)
    return Recipe.for_images(extractor, steps), notes + of_tiles


def adapt_to_tiles(
    extractor: Extractor, chosen: ExtractorOptions, steps: tuple[Step, ...], seen: ImageSurvey
) -> Made:
    """Return the extractor adapted to the tiles if a few examples of the gallery support it, and a note.

    Small cells keep what covers a tile out of its neighbours. But they tolerate smaller shifts, so they are
    for images that are aligned, such as faces, and not for digits. The gallery shows which images it has:
    the lead in examples with a right neighbour must be at least its standard error.
    """
    adapted = extractor.for_tiles(*grid_of(steps), chosen.settings)
    if adapted == extractor:
        return extractor, []
    try:
        both = [Recipe.for_images(one, steps) for one in (adapted, extractor)]
    except UsageError:  # the cells of whole images are too large for these tiles
        return adapted, []
    vectors, labels = seen.labelled_vectors(both)
    ours, theirs = (find_right_neighbors(one, labels) for one in vectors)
    gained, lost = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    better = adapted if gained - lost >= math.sqrt(gained + lost) else extractor
    text = (
        f"with these tiles, crnr uses {_options_of(better)}: of {format_count(len(labels), 'example')}, "
        f"{ours.sum()} resemble one of their own class most with {_options_of(adapted)}, and {theirs.sum()} "
        f"with {_options_of(extractor)}"
    )
    return better, [Note("tiles", text)]


def _options_of(extractor: Extractor) -> str:
    """Return the options that `tune` varies, without the name of the extractor."""
    _, *options = extractor.tunable_settings().items()
    return " ".join(f"{_option(name, value)} {value}" for name, value in options)


def _of(source: Source) -> str:
    return "was extracted from images before" if source.kind == "pictures" else "contains features"


def extractors_to_try(
    extractor: Extractor, chosen: ExtractorOptions, grids: Sequence[Grid], seen: ImageSurvey
) -> list[Extractor]:
    """Return the extractors for `tune` to try on any of the grids, the default of the first grid first."""
    steps = () if grids[0] == WHOLE else (Parts(*grids[0]),)
    found = [adapt_to_tiles(extractor, chosen, steps, seen)[0]]
    found += [one for grid in grids for one in extractors_for_grid(extractor, chosen, grid)]
    if not chosen.was_given:
        found.append(EXTRACTORS["pixels"].create({}, seen)[0])
    return list(dict.fromkeys(found))


def extractors_for_grid(extractor: Extractor, chosen: ExtractorOptions, grid: Grid) -> list[Extractor]:
    """Return the extractor as for whole images, its alternatives, and the extractor adapted to the tiles."""
    whole = extractor.for_tiles(*WHOLE, chosen.settings)
    mirrored = [replace(whole, mirror=True)] if chosen.try_mirror and isinstance(whole, Network) else []
    return [
        whole,
        *mirrored,
        *whole.alternatives(chosen.settings),
        whole.for_tiles(*grid, chosen.settings),
    ]


def _option(setting: str, value: Any) -> str:
    """Return the option that the user gave."""
    return "--gray" if setting == "color" and not value else f"--{setting.replace('_', '-')}"


def open_recipe(
    recipe: Recipe, source: Source, options: InputOptions, *, with_hash: bool = False
) -> OpenRecipe:
    """Make a recipe ready for a source; a model that is missing or has changed is reported now."""
    return recipe.open(
        has_values=source.n_features is not None,
        jobs=options.n_jobs,
        provider=options.provider,
        max_pixels=options.max_pixels,
        with_hash=with_hash,
    )


def recipe_of(source: Source) -> Recipe | None:
    """Return the recipe, without steps, that `crnr extract` used for a source; None for other sources.

    Several files must have been made by the same extractor.
    """
    found: list[tuple[Path, Recipe]] = []
    plain = [path for path, described in source.recipes if described is None]
    for path, described in source.recipes:
        if described is not None:
            found.append((path, restore_recipe(path, described, source.n_features)))
    if not found:
        return None
    first, recipe = found[0]
    if plain and recipe.extractor:
        raise DataError(f"{first}: was extracted from images, but {plain[0]} was not; give one kind of files")
    for path, other in found[1:]:
        if not is_same(recipe.extractor, other.extractor):
            raise DataError(
                f"{first} and {path} come from different extractors: "
                f"{describe_difference(recipe.extractor, other.extractor, 'and')}; give files of one "
                "extractor"
            )
    return recipe


def restore_recipe(path: Path, described: Mapping[str, Any], n_features: int | None) -> Recipe:
    """Return the recipe in an untrusted file with this many values per sample."""
    try:
        recipe = Recipe.from_stored(Stored(dict(described), folder=path.parent))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UsageError) as e:
        raise DataError(
            f"{path}: the description of the extractor cannot be used ({e}); extract the file again"
        ) from e
    if recipe.steps or recipe.n_inputs != n_features:
        raise DataError(f"{path}: the values do not match the stored pipeline; extract the file again")
    return recipe


def is_same(one: Extractor | None, other: Extractor | None) -> bool:
    return one is other if one is None or other is None else one.is_same(other)


def describe_difference(one: Extractor | None, other: Extractor | None, link: str = "instead of") -> str:
    """Describe two extractors that differ, without equal descriptions."""
    texts = [extractor.describe() if extractor else "features" for extractor in (one, other)]
    if texts[0] == texts[1]:
        return f"{texts[0]}, but with another model or other settings"
    return f" {link} ".join(texts)


def refuse_mismatch(source: Source, recipe: Recipe, gallery: Path | str = "the gallery") -> None:
    """Refuse queries, or examples to add, of another kind or dimension than the gallery was built from."""
    first = next(source.listing(), ("the source",))[0]
    if source.kind != recipe.kind:
        wanted, given = kind_in_words(recipe.kind), kind_in_words(source.kind)
        of_images = "is an image" if source.n_features is None else "was extracted from images"
        is_given = of_images if source.kind == "pictures" else "contains features"
        raise DataError(
            f"{first}: {is_given}, but {gallery} was built from {wanted}; give {wanted}, or a gallery that "
            f"was built from {given}"
        )
    known = recipe_of(source)
    if known and not is_same(known.extractor, recipe.extractor):
        file = source.recipes[0][0]
        like = str(gallery) if isinstance(gallery, Path) else "GALLERY"
        again = f"crnr extract IMAGES {join_command(['--like', like, '-o', str(file)])}"
        raise DataError(
            f"{file}: its features come from another extractor than the features of "
            f"{gallery} ({describe_difference(known.extractor, recipe.extractor)}); extract them again "
            f"with `{again}`"
        )
    if source.n_features not in (None, recipe.n_inputs):
        raise DataError(
            f"{first}: {format_count(source.n_features or 0, 'feature')} per query, but {gallery} was built "
            f"from {recipe.n_inputs}; use the same features for both"
        )
