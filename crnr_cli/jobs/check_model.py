"""Check a model: what it takes and returns, how its pictures would be prepared, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, SampleError
from crnr_cli.models.folder import named_model
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.network_model import Explanation, explain_network
from crnr_cli.recipe.network_settings import NetworkOptions
from crnr_cli.sources.base import InputOptions
from crnr_cli.system.names import existing

_SECONDS = 1.0  # of runs, to find out how long a picture takes


@dataclass(frozen=True)
class Trial:
    """What a network made of one picture."""

    vector: Array
    is_blank: bool  # whether the picture was all of one colour
    milliseconds: float  # per picture, in batches of the usual size, without decoding


@dataclass(frozen=True)
class CheckReport:
    path: Path
    explanation: Explanation
    trial: Trial | None  # None if the model cannot be used, for the reason that the explanation gives


def check_model(
    network_options: NetworkOptions, options: InputOptions, picture: Path | None = None
) -> CheckReport:
    """Try a model on a picture or, without one, on random colours."""
    path = named_model(network_options.model)
    explanation = explain_network(network_options, options.n_jobs, options.provider)
    if (network := explanation.network) is None:
        return CheckReport(path, explanation, None)
    pixels = _random_colors(network) if picture is None else _decoded(network, picture, options)
    extract = network.open(options.n_jobs, options.provider).extract
    vector = extract(pixels)[0]
    if not np.isfinite(vector).all():
        raise DataError(f"{path}: returns NaN or infinity for {picture or 'a picture of random colours'}")
    milliseconds = _milliseconds(extract, pixels, network.max_batch(options.provider))
    return CheckReport(path, explanation, Trial(vector, bool(network.is_blank(pixels)[0]), milliseconds))


def _decoded(network: Network, picture: Path, options: InputOptions) -> Array:
    if existing(picture) is None:
        raise DataError(f"{picture}: no such file")
    request = network.request(options.max_pixels)
    (found,) = DecoderPool(1).decode([str(picture)], request)
    if isinstance(found, SampleError):
        raise DataError(f"{picture}: {found}")
    return np.frombuffer(found.data, np.uint8)[None]


def _random_colors(network: Network) -> Array:
    """Always the same picture."""
    request = network.request(0)
    width, height = request.size or (1, 1)
    n_values = width * height * request.bands
    return np.random.default_rng(0).integers(0, 256, (1, n_values), dtype=np.uint8)


def _milliseconds(extract: Callable[[Array], Array], pixels: Array, at_once: int) -> float:
    batch = np.repeat(pixels, at_once, axis=0)
    started, n_pictures = time.perf_counter(), 0
    while n_pictures == 0 or time.perf_counter() - started < _SECONDS:
        extract(batch)
        n_pictures += len(batch)
    return (time.perf_counter() - started) / n_pictures * 1000
