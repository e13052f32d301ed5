"""How the samples of a source become raw values, and whether they can be compared with those of a gallery.

A source may hold raw values already, as `crnr extract` stores them. Then the extractor is only described: no
picture is decoded, and no model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crnr_cli.errors import DataError, UsageError
from crnr_cli.recipe.base import Extractor, Stored
from crnr_cli.recipe.recipe import OpenRecipe, Recipe
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.wording import counted


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
    """The recipe, without steps, by which `crnr extract` made the values of a source; None if it did not.

    Several files must have been made by the same extractor.
    """
    found: list[tuple[Path, Recipe]] = []
    plain = [path for path, described in source.recipes if described is None]
    for path, described in source.recipes:
        if described is not None:
            found.append((path, restored_recipe(path, described, source.n_features)))
    if not found:
        return None
    first, recipe = found[0]
    if plain and recipe.extractor:
        raise DataError(
            f"{first}: was extracted from pictures, but {plain[0]} was not; give one kind of files"
        )
    for path, other in found[1:]:
        if not is_same(recipe.extractor, other.extractor):
            raise DataError(
                f"{first} and {path} were extracted in different ways: "
                f"{in_words(recipe.extractor, other.extractor, 'and')}; give files of one extractor"
            )
    return recipe


def restored_recipe(path: Path, described: Mapping[str, Any], n_features: int | None) -> Recipe:
    """The recipe that an untrusted file with so many values per sample describes."""
    try:
        recipe = Recipe.restored(Stored(dict(described), folder=path.parent))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UsageError) as e:
        raise DataError(
            f"{path}: the description of its extractor cannot be used ({e}); extract it again"
        ) from e
    if recipe.steps or recipe.n_inputs != n_features:
        raise DataError(f"{path}: its values are not those that its recipe describes; extract it again")
    return recipe


def is_same(one: Extractor | None, other: Extractor | None) -> bool:
    return one is other if one is None or other is None else one.is_same(other)


def in_words(one: Extractor | None, other: Extractor | None, link: str = "instead of") -> str:
    """Two extractors that differ, as words that differ."""
    texts = [extractor.describe() if extractor else "features" for extractor in (one, other)]
    if texts[0] == texts[1]:
        return f"{texts[0]}, but with another model or other settings"
    return f" {link} ".join(texts)


def refuse_mismatch(source: Source, recipe: Recipe) -> None:
    """Refuse queries, or samples to add, of another kind or dimension than the gallery was built from."""
    if source.kind != recipe.kind:
        raise DataError(f"the gallery was built from {recipe.kind}, but these are {source.kind}")
    known = recipe_of(source)
    if known and not is_same(known.extractor, recipe.extractor):
        raise DataError(
            f"{source.recipes[0][0]}: extracted in another way than the gallery's samples: "
            f"{in_words(known.extractor, recipe.extractor)}; extract it again, as the gallery's samples were"
        )
    if source.n_features not in (None, recipe.n_inputs):
        raise DataError(
            f"{next(source.listing())[0]}: {counted(source.n_features or 0, 'feature')} per sample, but the "
            f"gallery was built from {recipe.n_inputs}; use the same features for both"
        )
