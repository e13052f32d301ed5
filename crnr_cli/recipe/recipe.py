"""The recipe: how a sample becomes a unit vector. It is fitted to the gallery and applied to queries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crnr_cli.arrays import Array, Batch
from crnr_cli.choices import AUTO, CPU
from crnr_cli.errors import SampleError, UsageError
from crnr_cli.images.pixels import MAX_PIXELS, PixelRequest
from crnr_cli.recipe.base import Block, Extractor, OpenExtractor, RecipePart, Step, Stored
from crnr_cli.recipe.gradients import Gradients
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.steps import Parts, Pca, Power
from crnr_cli.recipe.whitening import Whiten
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count

STEPS: dict[str, type[Step]] = {
    step.name: step
    for step in (
        Power,
        Pca,
        Whiten,
        Parts,
    )
}
EXTRACTORS: dict[str, type[Extractor]] = {
    extractor.name: extractor
    for extractor in (
        Gradients,
        RawPixels,
        Network,
    )
}
# The newest version of the gallery format: older ones lack some of these.
_PARTS: tuple[type[RecipePart], ...] = (*STEPS.values(), *EXTRACTORS.values())
NEWEST_VERSION = max(max(part.since_version, part.newest_version) for part in _PARTS)

_ROWS = 1024  # vectors that are whitened again at once


def make_steps(settings: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return the steps with these settings, by name, not fitted yet; a step without a setting is not used."""
    return tuple(
        step.of(settings[name]) for name, step in STEPS.items() if settings.get(name, step.off) != step.off
    )


def _leave_out_unused(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(step for step in steps if not step.is_fitted or step.setting != step.off)


def restore_extractor(stored: Stored) -> Extractor:
    """Return the extractor of a gallery file.

    Its name is part of its description. The oldest extractors have no name: raw pixels are described by the
    size and colour of the images alone, and a network by its other settings.
    """
    if "extractor" not in stored.attributes:
        return RawPixels.from_stored({}, stored)
    try:
        settings = json.loads(stored.attributes["extractor"])
    except (TypeError, ValueError, RecursionError):  # the last: nested too deeply
        settings = None
    if not isinstance(settings, dict) or not isinstance(settings.get("precise_jpegs", False), bool):
        raise ValueError("the description of the extractor is invalid")
    name = settings.pop("name", Network.name)
    if not isinstance(name, str) or name not in EXTRACTORS:
        raise ValueError(f"this version of crnr does not know the extractor {name}")
    return EXTRACTORS[name].from_stored(settings, stored)


@dataclass(frozen=True)
class Recipe:
    n_inputs: int  # raw values per sample, before the first step
    extractor: Extractor | None = None  # how an image becomes its raw values; None: samples are features
    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, n_inputs: int, extractor: Extractor | None = None, steps: tuple[Step, ...] = ()) -> Recipe:
        """Return a recipe with chosen steps, adapted to the extractor."""
        for i, step in enumerate(steps):
            mixing = [other for other in steps[:i] if not other.keeps_places]
            if mixing and step.for_extractor(extractor).part_edges is not None:
                raise UsageError(
                    f"--{step.name} cannot be combined with --{mixing[0].name}, after which values have no "
                    "place in the image"
                )
        adapted = tuple(step.for_extractor(extractor) for step in steps)
        return cls(n_inputs, extractor, _leave_out_unused(adapted))

    @classmethod
    def for_images(cls, extractor: Extractor, steps: tuple[Step, ...] = ()) -> Recipe:
        return cls.of(extractor.n_values, extractor, steps)

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """Return the same recipe with other steps, by their settings, not fitted yet."""
        return Recipe.of(self.n_inputs, self.extractor, make_steps(settings))

    def without_steps(self) -> Recipe:
        return Recipe.of(self.n_inputs, self.extractor)

    @property
    def kind(self) -> str:
        return "features" if self.extractor is None else "pictures"

    @property
    def _parts(self) -> list[RecipePart]:
        return [*filter(None, [self.extractor]), *self.steps]

    @property
    def n_outputs(self) -> int:
        n = self.n_inputs
        for step in self.steps:
            n = step.n_outputs(n)
        return n

    @property
    def part_edges(self) -> Array | None:
        """Where each part of a vector begins, and its dimension, if vectors are compared part by part."""
        return next((step.part_edges for step in self.steps if step.part_edges is not None), None)

    @property
    def is_fitted(self) -> bool:
        return all(step.is_fitted for step in self.steps)

    def request(self, max_pixels: int, *, with_hash: bool = False) -> PixelRequest | None:
        """Return which pixels the decoders should return; None if samples are not images."""
        return self.extractor.request(max_pixels, with_hash=with_hash) if self.extractor else None

    @property
    def has_network(self) -> bool:
        return self.extractor is not None and self.extractor.is_slow

    def open(
        self,
        *,
        has_values: bool = False,
        jobs: int = 1,
        provider: str = AUTO,
        max_pixels: int = MAX_PIXELS,
        with_hash: bool = False,
    ) -> OpenRecipe:
        """Make the recipe ready for samples, or for raw values if the source holds these already.

        A model is loaded and checked now, so that a missing model is reported before any work.
        """
        if has_values or self.extractor is None:
            return OpenRecipe(self, provider)
        extractor = self.extractor.open(jobs, provider)
        return OpenRecipe(
            recipe=self,
            provider=provider,
            request=self.extractor.request(max_pixels, with_hash=with_hash),
            extractor=extractor,
            is_network=self.extractor.is_slow,
            accelerator=extractor.provider if provider == AUTO and extractor.provider != CPU else None,
        )

    def decide(self, blocks: Iterable[Array]) -> Recipe:
        """Return the recipe with its automatic settings decided by the gallery's raw values."""
        if all(step.is_fitted or step.learns for step in self.steps):
            return self
        lowest = min(float(raw.min()) for raw in blocks)
        return replace(self, steps=_leave_out_unused(step.decide(lowest) for step in self.steps))

    def fit(self, raw: Array, class_index: Array) -> Recipe:
        """Return the recipe with its steps fitted, one after the other, to the gallery's raw values."""
        steps: list[Step] = []
        for step in self.decide([raw]).steps:
            steps.append(step if step.is_fitted else step.fit(_apply_steps(steps, raw), class_index))
        return replace(self, steps=_leave_out_unused(steps))

    def fit_to_blocks(self, blocks: Callable[[], Iterator[Block]]) -> Recipe:
        """Return the fitted recipe, like `fit`; the blocks of raw values are read again for every step."""
        steps: list[Step] = []
        for step in self.decide(block.values for block in blocks()).steps:
            steps.append(
                step if step.is_fitted else step.fit_to_blocks(_apply_steps_to_blocks(steps, blocks()))
            )
        return replace(self, steps=_leave_out_unused(steps))

    @property
    def whitening(self) -> Whiten | None:
        """The step that whitens vectors, which is the last one."""
        return next((step for step in self.steps if isinstance(step, Whiten)), None)

    def undo_whitening(self, vectors: Array) -> Array:
        """Return unit vectors as they would be without whitening."""
        if self.whitening is None:
            return vectors
        plain = np.empty_like(vectors)
        for rows in _slices(len(vectors)):
            plain[rows] = _undo(self.whitening, vectors[rows])
        return plain

    def refit_whitening(self, vectors: Array, class_index: Array) -> tuple[Recipe, Array]:
        """Return the recipe with its whitening fitted to these unit vectors, and the new vectors.

        Nothing changes without whitening, or if no class has two different samples any more.
        """
        old = self.whitening
        if old is None:
            return self, vectors
        if len(vectors) <= vectors.shape[1]:
            new = old.fit(_undo(old, vectors), class_index)
        else:
            new = old.fit_to_blocks(
                Block(_undo(old, vectors[rows]), class_index[rows]) for rows in _slices(len(vectors))
            )
        if new.axes is None:
            return self, vectors
        whitened, dtype = np.empty_like(vectors), str(vectors.dtype)
        for rows in _slices(len(vectors)):
            whitened[rows] = _unit(new.apply(_undo(old, vectors[rows]), dtype))
        return replace(self, steps=(*self.steps[:-1], new)), whitened

    def refitter(self, vectors: Array, class_index: Array) -> Callable[[Array], Array] | None:
        """Return a function from a mask of some samples to all vectors as whitened by these samples alone.

        None without whitening: other steps do not depend on classes, so held-out samples may fit them.
        """
        whitening = self.whitening
        if whitening is None:
            return None
        plain, dtype = self.undo_whitening(vectors), str(vectors.dtype)

        def refit(is_kept: Array) -> Array:
            fitted = whitening.fit(plain[is_kept].astype(np.float64), class_index[is_kept])
            if fitted.axes is None:
                return plain
            return _unit(fitted.apply(plain.astype(np.float64), dtype)).astype(dtype)

        return refit

    def fit_bytes(self, n_samples: int, itemsize: int) -> int:
        """Estimate how much memory is needed to hold the vectors and to fit the steps."""
        needed, n_inputs = 0, self.n_inputs
        for step in self.steps:
            needed += step.fit_bytes(n_samples, n_inputs, itemsize)
            n_inputs = step.n_outputs(n_inputs)
        return needed + n_samples * n_inputs * itemsize

    def drop_unusable(self, batch: Batch) -> Batch:
        """Return the raw values of the usable samples, for steps that are not fitted yet.

        Images of any depth get the scale of 8-bit images, as a step may give large values more weight.
        """
        _, faults = _magnitudes(batch.values)
        if batch.scales:
            scales = np.array(batch.scales, np.float32)[batch.rows, None]
            batch = replace(batch, values=batch.values * scales, scales=[])
        return batch.with_values(batch.values, faults)

    def apply(self, batch: Batch, dtype: str) -> Batch:
        """Turn a batch of raw values into a batch of unit vectors."""
        return batch.with_values(*self.unit_vectors(batch.values, dtype))

    def unit_vectors(self, raw: Array, dtype: str) -> tuple[Array, list[SampleError | None]]:
        """Return unit vectors (m, d), and the fault of every row or None; a row with a fault is all zero."""
        if not len(raw):
            return np.empty((0, self.n_outputs), dtype), []
        largest, faults = _magnitudes(raw)
        # Scale before computing the norm, so that values of 1e200 or 1e-200 neither overflow nor underflow.
        with np.errstate(invalid="ignore"):  # for signalling NaN; such a row has a fault
            values = np.divide(raw, np.where(largest > 0, largest, 1)[:, None], dtype=np.float64)
        values[[fault is not None for fault in faults]] = 0
        for step in self.steps:
            values = step.apply(values, dtype)
        norms = np.sqrt(np.einsum("md,md->m", values, values))
        for row in np.flatnonzero(norms == 0):
            faults[row] = faults[row] or _blank_error("the vector is all zero")
        if self.part_edges is not None:  # each part has unit length
            return values.astype(dtype), faults
        vectors = np.empty(values.shape, dtype)
        np.divide(values, np.where(norms > 0, norms, 1)[:, None], out=vectors, casting="same_kind")
        return vectors, faults

    def to_stored(self) -> Stored:
        """Return the recipe as stored in a gallery file."""
        no_images = {"width": 0, "height": 0, "color": False}  # replaced by the extractor's
        stored = Stored({"kind": self.kind, "n_inputs": self.n_inputs, **no_images})
        for part in self._parts:
            stored |= part.to_stored()
        if self.steps:
            stored |= Stored({"steps": " ".join(step.name for step in self.steps)})
        return stored

    @property
    def since_version(self) -> int:
        """The first version of the gallery format that supports this recipe."""
        return max((part.version_needed for part in self._parts), default=1)

    @classmethod
    def from_stored(cls, stored: Stored) -> Recipe:
        """Return the recipe of an untrusted file; ValueError, LookupError or TypeError if it is invalid."""
        values = stored.attributes
        kind = values["kind"]
        if kind not in ("pictures", "features"):
            raise ValueError(f"the examples are of an unknown kind, {kind}")
        if unknown := set(str(values.get("steps", "")).split()) - set(STEPS):
            raise ValueError(f"this version of crnr does not know the pipeline step {min(unknown)}")
        extractor = restore_extractor(stored) if kind == "pictures" else None
        names = stored.attributes.keys() | stored.arrays.keys()
        found = [step.from_stored(stored) for name, step in STEPS.items() if name in names]
        steps = tuple(step for step in found if step is not None)
        recipe = cls.of(int(values["n_inputs"]), extractor, steps)
        if extractor and extractor.n_values != recipe.n_inputs:
            raise ValueError("the arrays have different sizes")
        return recipe

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of all steps by name, including steps that are not used."""
        chosen = {step.name: step.setting for step in self.steps}
        return {name: chosen.get(name, step.off) for name, step in STEPS.items()}

    def facts(self) -> dict[str, Any]:
        """Return the plain values that `crnr info` shows."""
        extractor = {"size": None, "color": False, "extractor": None}
        if self.extractor:
            extractor = self.extractor.facts()
        return {"made_from": self.kind, "n_inputs": self.n_inputs, **extractor, **self.settings}

    def describe(self) -> list[str]:
        """Return a short description of each step, to print."""
        first = (
            format_count(self.n_inputs, "feature") if self.extractor is None else self.extractor.describe()
        )
        return [first, *(step.describe() for step in self.steps)]


@dataclass(frozen=True)
class OpenRecipe:
    """A recipe that is ready to be applied: its model, if it needs one, is loaded and checked."""

    recipe: Recipe
    provider: str  # what a network should run on
    request: PixelRequest | None = None  # which pixels the decoders should return; None: nothing is decoded
    extractor: OpenExtractor | None = None  # None: the source holds raw values already
    is_network: bool = False  # whether a network has to run, which takes longer than classifying
    accelerator: str | None = None  # the hardware that was chosen automatically, unless it is the processor

    @property
    def max_batch(self) -> int | None:
        """Maximum number of samples per batch, if it is limited."""
        return self.recipe.extractor.max_batch(self.provider) if self.recipe.extractor else None

    def batch_size(self, wanted: int) -> int:
        return min(wanted, self.max_batch or wanted)

    def raw(self, batch: Batch) -> Batch:
        """Turn a batch as it was read into a batch of raw values."""
        if self.extractor is None:
            return batch
        assert self.recipe.extractor is not None
        # A network gives features for a blank image too, but they mean nothing.
        is_blank = self.recipe.extractor.is_blank(batch.values)
        faults = [_blank_error("all of one colour") if blank else None for blank in is_blank.tolist()]
        batch = batch.with_values(batch.values, faults)
        raw = self.extractor.extract(batch.values)
        # Only pixels have the scale of the image.
        return batch.with_values(raw) if raw is batch.values else replace(batch, values=raw, scales=[])

    def vectors(self, raw: Batch, dtype: str) -> Batch:
        """Turn a batch of raw values into a batch of unit vectors."""
        return self.recipe.apply(raw, dtype)


def _blank_error(why: str) -> SampleError:
    return SampleError("zero_norm", f"nothing to compare: {why}")


def _magnitudes(raw: Array) -> tuple[Array, list[SampleError | None]]:
    """Return each row's largest absolute value, or 0 if not finite, and each row's fault, or None."""
    faults: list[SampleError | None] = [None] * len(raw)
    if not raw.size:
        return np.zeros(len(raw)), faults
    # min and max propagate NaN, which saves a boolean copy.
    low, high = raw.min(axis=1).astype(np.float64), raw.max(axis=1).astype(np.float64)
    finite = np.isfinite(low) & np.isfinite(high)
    largest = np.where(finite, np.maximum(np.abs(low), np.abs(high)), 0)
    for row in np.flatnonzero(~finite):
        faults[row] = SampleError("non_finite", "contains NaN or infinity")
    for row in np.flatnonzero(finite & (largest == 0)):
        faults[row] = _blank_error("all values are zero")
    return largest, faults


def _slices(n: int) -> Iterator[slice]:
    """Yield slices of rows, few enough that their copies in float64 need no memory."""
    return (slice(start, start + _ROWS) for start in range(0, n, _ROWS))


def _undo(whitening: Whiten, vectors: Array) -> Array:
    """Return (m, d): unit vectors in float64 as they would be without whitening."""
    return _unit(whitening.undo(vectors.astype(np.float64), "float64"))


def _unit(values: Array) -> Array:
    norms = np.sqrt(np.einsum("md,md->m", values, values))
    return values / np.where(norms > 0, norms, 1)[:, None]


def _apply_steps_to_blocks(steps: Sequence[Step], blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the values of the blocks after these steps, like `_apply_steps`.

    The first block sets the scale, which is as good as any: no step depends on it.
    """
    scale = 0.0
    for raw, class_index in blocks:
        scale = scale or max(abs(float(raw.min())), abs(float(raw.max())))
        values = np.divide(raw, scale, dtype=np.float64)
        for step in steps:
            values = step.apply(values, "float64")
        yield Block(values, class_index)


def _apply_steps(steps: Sequence[Step], raw: Array) -> Array:
    """Return the gallery's values after these steps, at one scale for all, so that their lengths matter."""
    largest = max(abs(float(raw.min())), abs(float(raw.max())))
    values = np.divide(raw, largest or 1.0, dtype=np.float64)
    for step in steps:
        values = step.apply(values, "float64")
    return values
