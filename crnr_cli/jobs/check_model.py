"""Check a model: what it takes and returns, how its pictures would be prepared, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, SampleError
from crnr_cli.models.folder import named_model
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.recipe.base import Extractor, ExtractorNote
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.network_model import ports_of
from crnr_cli.sources.base import InputOptions
from crnr_cli.system.names import existing

_SECONDS = 1.0  # of runs, to find out how long a picture takes


@dataclass(frozen=True)
class CheckReport:
    path: Path
    inputs: list[dict[str, Any]]  # name, type and shape
    outputs: list[dict[str, Any]]
    network: Extractor
    notes: list[ExtractorNote]  # what was assumed
    provider: str
    vector: Array  # of the picture
    is_blank: bool  # whether the picture was all of one colour
    milliseconds: float  # per picture, without decoding


@dataclass(frozen=True)
class _NoPictures:
    """For an extractor whose settings do not depend on the pictures."""

    jobs: int
    provider: str

    def sizes(self) -> set[tuple[int, int]]:
        return set()

    def are_colored(self) -> bool:
        return True


def check_model(settings: dict[str, Any], options: InputOptions, picture: Path | None = None) -> CheckReport:
    """Try a model with these settings on a picture or, without one, on a made-up picture."""
    path = named_model(settings["model"])
    network, notes = Network.made(settings, _NoPictures(options.n_jobs, options.provider))
    inputs, outputs, provider = ports_of(path, options.n_jobs, options.provider)
    pixels = _made_up(network) if picture is None else _decoded(network, picture, options)
    extract = network.opened(options.n_jobs, options.provider)
    vector = extract(pixels)[0]
    if not np.isfinite(vector).all():
        raise DataError(f"{path}: returns NaN or infinity for {picture or 'a picture of random colours'}")
    return CheckReport(
        path=path,
        inputs=inputs,
        outputs=outputs,
        network=network,
        notes=notes,
        provider=provider,
        vector=vector,
        is_blank=bool(network.is_blank(pixels)[0]),
        milliseconds=_milliseconds(extract, pixels, network.max_batch(options.provider) or 1),
    )


def _decoded(network: Extractor, picture: Path, options: InputOptions) -> Array:
    if existing(picture) is None:
        raise DataError(f"{picture}: no such file")
    request = network.request(options.max_pixels)
    (found,) = DecoderPool(1).decode([str(picture)], request)
    if isinstance(found, SampleError):
        raise DataError(f"{picture}: {found}")
    return np.frombuffer(found.data, np.uint8)[None]


def _made_up(network: Extractor) -> Array:
    """A picture of random colours, always the same one."""
    request = network.request(0)
    width, height = request.size or (1, 1)
    n_values = width * height * request.bands
    return np.random.default_rng(0).integers(0, 256, (1, n_values), dtype=np.uint8)


def _milliseconds(extract: Callable[[Array], Array], pixels: Array, at_once: int) -> float:
    """Per picture, in batches of the usual size."""
    batch = np.repeat(pixels, at_once, axis=0)
    started, n_pictures = time.perf_counter(), 0
    while n_pictures == 0 or time.perf_counter() - started < _SECONDS:
        extract(batch)
        n_pictures += len(batch)
    return (time.perf_counter() - started) / n_pictures * 1000
