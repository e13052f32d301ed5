"""The folds of `tune`: unit vectors by many recipes, made of the same raw samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from pathlib import Path
from threading import Condition
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.gallery.samples import BATCH
from crnr_cli.methods import Samples
from crnr_cli.methods.base import ProcessCache
from crnr_cli.methods.folds import Fold
from crnr_cli.recipe.base import Block, Extractor
from crnr_cli.recipe.recipe import Recipe, make_steps
from crnr_cli.records import dataclass

_FITTED_AT_ONCE = 20_000  # samples: copies of more of them in float64 would take too much memory
StepSettings = tuple[tuple[str, Any], ...]  # the setting of every step, by name


@dataclass(frozen=True)
class VectorRecipe:
    """The extractor and steps that turn samples into vectors."""

    number: int  # of the extractor, among those to try
    extractor: Extractor | None  # None: samples are features
    steps: StepSettings

    def parameters(self) -> dict[str, Any]:
        return {**(self.extractor.tunable_settings() if self.extractor else {}), **dict(self.steps)}

    def describe(self) -> str:
        """Describe only the differences between the settings to try."""
        steps = [step.describe() for step in make_steps(dict(self.steps))]
        if self.extractor is None:
            return ", ".join(steps)
        name, *others = self.extractor.tunable_settings().items()
        chosen = [Path(str(name[1])).name]
        chosen += [option if value is True else f"{option} {value}" for option, value in others]
        return ", ".join([*chosen, *steps])


class _FoldCache:
    """The folds of one recipe at a time, because two folds of a million samples take too much memory.

    Like every cache, it is neither stored, copied nor sent to another process.
    """

    def __init__(self) -> None:
        self._freed = Condition()
        self._users = 0
        self._recipe: VectorRecipe | None = None
        self._folds: dict[int, ProcessCache] = {}

    @contextmanager
    def use(self, recipe: VectorRecipe, number: int, make: Callable[[], Fold]) -> Iterator[Fold]:
        """Hold a fold, made by the first thread that needs it, once no thread uses another recipe."""
        with self._freed:
            self._freed.wait_for(lambda: not self._users or self._recipe == recipe)
            if self._recipe != recipe:
                self._recipe, self._folds = recipe, {}
            self._users += 1
            cache = self._folds.setdefault(number, ProcessCache())
        try:
            yield cache.compute_once(self._recipe, make)
        finally:
            with self._freed:
                self._users -= 1
                self._freed.notify_all()

    def __reduce__(self) -> tuple[type[_FoldCache], tuple[()]]:
        return _FoldCache, ()


@dataclass
class FoldedSamples:
    """The raw samples, the fold of each, and the recipes for their unit vectors.

    There may be a million samples: a fold is made batch by batch, and once for all threads.
    """

    raw: list[Array]  # by every extractor, in the order of the source
    order: Array  # the places of the samples in the source, sorted by class
    recipes: list[Recipe]  # without steps, for every extractor
    class_index: Array  # sorted
    fold_of: Array
    is_tested: Array  # a mask without further copies of a sample
    dtype: str
    _made: _FoldCache = field(default_factory=_FoldCache, compare=False, repr=False)

    @property
    def count(self) -> int:
        return int(self.fold_of.max()) + 1

    def fold(self, vectors: VectorRecipe, number: int) -> AbstractContextManager[Fold]:
        """Hold a fold as unit vectors, cached per recipe, because all methods share its products."""
        return self._made.use(vectors, number, lambda: self._make_fold(vectors, number))

    def _make_fold(self, how: VectorRecipe, number: int) -> Fold:
        is_held, raw = self.fold_of == number, self.raw[how.number]
        unfitted = self.recipes[how.number].with_settings(dict(how.steps))
        recipe = fit_recipe(unfitted, raw, self.class_index[~is_held], self.order[~is_held])
        is_query = is_held & self.is_tested
        kept, queries = (self._unit_vectors(recipe, raw, mask) for mask in (~is_held, is_query))
        samples = Samples.of(kept, self.class_index[~is_held], recipe.part_edges)
        return Fold(samples, queries, self.class_index[is_query])

    def _unit_vectors(self, recipe: Recipe, raw: Array, mask: Array) -> Array:
        """Return the unit vectors of the samples of a mask, without a copy of all raw values."""
        rows = self.order[mask]
        vectors = np.empty((len(rows), recipe.n_outputs), self.dtype)
        for start in range(0, len(rows), BATCH):
            batch = slice(start, start + BATCH)
            vectors[batch] = recipe.unit_vectors(raw[rows[batch]], self.dtype)[0]
        return vectors


def fit_recipe(recipe: Recipe, raw: Array, class_index: Array, rows: Array | None = None) -> Recipe:
    """Return the recipe fitted to these rows of the raw values, by default all, and their classes.

    Very many samples are fitted block by block, which only rounds differently, as `build` does.
    """
    if recipe.is_fitted:
        return recipe
    rows = np.arange(len(raw)) if rows is None else rows
    if len(rows) <= max(_FITTED_AT_ONCE, recipe.n_inputs):
        return recipe.fit(raw[rows], class_index)

    def blocks() -> Iterator[Block]:
        for start in range(0, len(rows), BATCH):
            batch = slice(start, start + BATCH)
            yield Block(raw[rows[batch]], class_index[batch])

    return recipe.fit_to_blocks(blocks)
