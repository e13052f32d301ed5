"""Get a network's model, and check how well a model works."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.choices import NetworkOptions
from crnr_cli.errors import CrnrError, DataError, OutputError, SampleError, UsageError
from crnr_cli.images.pool import DecoderPool
from crnr_cli.models.catalog import (
    MODELS,
    KnownModel,
    Weights,
    command_for,
    find_model,
    is_file,
    is_folder,
    model_path,
)
from crnr_cli.models.mobile_networks import make_model
from crnr_cli.models.torch_weights import read_weights
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.network_session import NetworkExplanation, explain_network
from crnr_cli.sources.base import InputOptions
from crnr_cli.system.extras import describe_missing, describe_missing_alone, require_packages
from crnr_cli.system.files import replacing, sha256_of
from crnr_cli.system.names import stat_or_none
from crnr_cli.system.outputs import DeclaredOutput, planned
from crnr_cli.wording import not_one_of

_SECONDS = 1.0  # of runs, to measure the time per image


class GotModel(NamedTuple):
    model: KnownModel
    path: Path
    was_here: bool  # before


def get_model(name: str, given: Path | None = None) -> GotModel:
    """Make a known model, unless it exists. `given` is a file with its weights."""
    if name not in MODELS:
        raise UsageError(f"NAME: {not_one_of(name, MODELS)}")
    model = MODELS[name]
    place = model_path(model)
    if model.weights is None:
        if given is None and is_file(place):
            return GotModel(model, place, was_here=True)
        raise UsageError(
            f"{name}: crnr does not download networks and cannot build this one itself; "
            f"get it with: {command_for(model)}"
        )
    if given is None and is_file(place) and _sha256(place) == model.weights.model_sha256:
        return GotModel(model, place, was_here=True)
    content = _make_content(model, model.weights, given or _find_in_package(model, model.weights))
    _write_model(place, content, given)
    return GotModel(model, place, was_here=False)


def _make_content(model: KnownModel, weights: Weights, source: Path) -> bytes:
    """Return the content of the model; the weights are read only if their checksum is the known one."""
    if not is_file(source):
        raise DataError(f"{source}: no such file; give the weights file with --weights")
    if (found := _sha256(source)) != weights.sha256:
        raise DataError(
            f"{source}: not the weights of {model.name}: SHA-256 is {found[:12]}..., not "
            f"{weights.sha256[:12]}...; crnr did not use it; give {Path(weights.member).name}"
        )
    require_packages("photos", f"crnr model get {model.name}", "onnx")
    try:
        content = make_model(read_weights(source), model.size, weights.depth)
    except ValueError as e:
        raise DataError(f"{source}: not the weights of {model.name}: {e}") from e
    if hashlib.sha256(content).hexdigest() != weights.model_sha256:
        raise DataError(
            f"{model.name}: the built model has the wrong checksum, probably because of the version of "
            "onnx; install another version, and report this as a bug"
        )
    return content


def _find_in_package(model: KnownModel, weights: Weights) -> Path:
    """Return the file in the package, which is looked for, but not imported."""
    found = find_spec(weights.package)
    if found is None or found.origin is None:
        what = f"crnr model get {model.name}"
        missing = (
            describe_missing("photos", what, weights.package)
            if weights.requirement is None
            else describe_missing_alone(what, weights.requirement)
        )
        raise CrnrError(f"{missing}; or give its file {Path(weights.member).name} with --weights")
    return Path(found.origin).parent / weights.member


def _write_model(place: Path, content: bytes, given: Path | None) -> None:
    """Write the complete model, or nothing; if the disk is full, remove a new folder again."""
    folder = place.parent
    is_new = not is_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OutputError(
            f"{folder}: cannot create this folder ({e.strerror}); choose another one with CRNR_MODELS"
        ) from e
    try:
        with planned([DeclaredOutput(place)], [given] if given else []), replacing(place) as file:
            file.write(content)
    except BaseException:
        if is_new:
            with suppress(OSError):  # another crnr uses it now
                folder.rmdir()
        raise


def _sha256(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


@dataclass(frozen=True)
class NetworkTrial:
    """The result of a network for one image."""

    vector: Array
    is_blank: bool  # whether the image was all of one colour
    milliseconds: float  # per image, in batches of the usual size, without decoding


@dataclass(frozen=True)
class CheckReport:
    path: Path
    explanation: NetworkExplanation
    trial: NetworkTrial | None  # None if the model cannot be used, for the reason in the explanation


def check_model(
    network_options: NetworkOptions, options: InputOptions, image: Path | None = None
) -> CheckReport:
    """Try a model on an image or, without one, on random colours."""
    path = find_model(network_options.model)
    explanation = explain_network(network_options, options.n_jobs, options.provider)
    if (network := explanation.network) is None:
        return CheckReport(path, explanation, None)
    pixels = _random_colors(network) if image is None else _decode_image(network, image, options)
    extract = network.open(options.n_jobs, options.provider).extract
    vector = extract(pixels)[0]
    if not np.isfinite(vector).all():
        raise DataError(f"{path}: returns NaN or infinity for {image or 'an image of random colours'}")
    milliseconds = _milliseconds(extract, pixels, network.max_batch(options.provider))
    return CheckReport(
        path, explanation, NetworkTrial(vector, bool(network.is_blank(pixels)[0]), milliseconds)
    )


def _decode_image(network: Network, image: Path, options: InputOptions) -> Array:
    if stat_or_none(image) is None:
        raise DataError(f"{image}: no such file")
    request = network.request(options.max_pixels)
    (found,) = DecoderPool(1).decode([str(image)], request)
    if isinstance(found, SampleError):
        raise DataError(f"{image}: {found}")
    return np.frombuffer(found.data, np.uint8)[None]


def _random_colors(network: Network) -> Array:
    """Return an image of random colours, always the same."""
    request = network.request(0)
    width, height = request.size or (1, 1)
    n_values = width * height * request.bands
    return np.random.default_rng(0).integers(0, 256, (1, n_values), dtype=np.uint8)


def _milliseconds(extract: Callable[[Array], Array], pixels: Array, at_once: int) -> float:
    batch = np.repeat(pixels, at_once, axis=0)
    started, n_images = time.perf_counter(), 0
    while n_images == 0 or time.perf_counter() - started < _SECONDS:
        extract(batch)
        n_images += len(batch)
    return (time.perf_counter() - started) / n_images * 1000
