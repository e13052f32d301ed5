"""An ONNX model: opened, checked, and run on batches of pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, UsageError, first_line
from crnr_cli.models.folder import is_file, like_known, named_model
from crnr_cli.models.onnx_weights import ModelHash, model_hash
from crnr_cli.models.preset_guess import guess_preset
from crnr_cli.recipe.network import Network, absolute_path
from crnr_cli.recipe.network_settings import NetworkOptions
from crnr_cli.recipe.provider_names import AUTO
from crnr_cli.recipe.providers import opened_session, pictures_per_run
from crnr_cli.wording import counted

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
}


class OpenNetwork:
    """A model in memory, and how pictures are passed to it."""

    def __init__(self, network: Network, jobs: int, provider: str) -> None:
        """Find and load the model, and refuse one that is not the same to the byte."""
        self._how = network
        path = _found(network)
        found = model_hash(path)
        if found.sha256 != network.sha256:
            raise _another_model(path, network.sha256, found)
        self._session, provider = opened_session(path, found.sha256, jobs, provider)
        self._per_run = pictures_per_run(provider)
        given = self._session.get_inputs()[0]
        self._dtype = _TYPES[given.type]
        self._n_at_once = given.shape[0] if isinstance(given.shape[0], int) else None

    def vectors(self, pixels: Array) -> Array:
        """(m, n_outputs): the features of pictures given as bytes, (m, height * width * bands)."""
        if not len(pixels):
            return np.empty((0, self._how.n_outputs), np.float32)
        step = self._n_at_once or self._per_run
        return np.concatenate(
            [self._run(pixels[start : start + step]) for start in range(0, len(pixels), step)]
        )

    def _run(self, pixels: Array) -> Array:
        how = self._how
        (width, height), bands = how.size, how.bands
        values: Array = pixels.reshape(len(pixels), height, width, bands)
        if how.channels == "bgr":
            values = values[..., ::-1]
        if self._dtype is not np.uint8:
            values = (values.astype(np.float32) - np.array(how.mean, np.float32)) / np.array(
                how.std, np.float32
            )
        if how.layout == "nchw":
            values = values.transpose(0, 3, 1, 2)
        if self._n_at_once and len(values) < self._n_at_once:  # the model takes a fixed number of pictures
            values = np.concatenate([values, np.repeat(values[-1:], self._n_at_once - len(values), axis=0)])
        inputs = {how.input: np.ascontiguousarray(values, self._dtype)}
        output: Array = self._session.run([how.output], inputs)[0]
        pooled = _pooled(output, how.layout, how.pool)[: len(pixels)]
        if pooled.shape != (len(pixels), how.n_outputs):
            expected = f"{len(pixels)} x {how.n_outputs}"
            found = " x ".join(map(str, pooled.shape))
            raise DataError(f"{how.model}: returned an array of {found} instead of {expected}")
        return pooled


def make_network(options: NetworkOptions, jobs: int, provider: str = AUTO) -> Network:
    """Combine the model with the user's options; refuse a model that does not turn pictures into vectors."""
    path = named_model(options.model)
    if not is_file(path):
        raise DataError(f"{path}: no such file; --extractor takes gradients, pixels or an ONNX model")
    sha256 = model_hash(path).sha256
    session = opened_session(path, sha256, jobs, provider).run
    given = _picture_input(path, session)
    layout = options.layout or _layout(path, given)
    channels, height, width = _picture_shape(given.shape, layout)
    if options.size:
        for fixed, wanted in ((width, options.size[0]), (height, options.size[1])):
            if isinstance(fixed, int) and fixed != wanted:
                raise UsageError(f"--size: {path} only takes pictures of {width}x{height}; leave it out")
        width, height = options.size
    if not isinstance(width, int) or not isinstance(height, int):
        raise UsageError(f"{path}: takes pictures of any size; choose one with --size, such as --size 224")
    scaling = options.scaling(guess_preset(path).preset)
    if given.type == "tensor(uint8)":  # it scales its input itself
        scaling |= {"mean": (0.0,), "std": (1.0,)}
    order = options.channels or ("grey" if channels == 1 else "rgb")
    if order == "grey":  # use the mean of a preset's three values
        chosen = {"mean": options.mean, "std": options.std}
        scaling |= {
            name: (sum(scaling[name]) / len(scaling[name]),) for name in chosen if chosen[name] is None
        }
    output = _output(path, session, options.output)
    network = Network(
        model=absolute_path(path),
        sha256=sha256,
        input=given.name,
        output=output,
        size=(width, height),
        n_outputs=1,
        channels=order,
        layout=layout,
        pool=options.pool,
        **scaling,
    )
    if isinstance(channels, int) and channels != network.bands:
        raise UsageError(
            f"{path}: takes pictures with {channels} channels, not {network.channels}; change --channels"
        )
    return _with_n_outputs(path, session, network)


def ports_of(
    path: Path, jobs: int, provider: str = AUTO
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    """What a model takes and returns, by name, type and shape, and the provider that it runs on."""
    session, provider = opened_session(path, model_hash(path).sha256, jobs, provider)
    inputs, outputs = (
        [{"name": port.name, "type": port.type, "shape": list(port.shape)} for port in ports]
        for ports in (session.get_inputs(), session.get_outputs())
    )
    return inputs, outputs, provider


def _another_model(path: Path, recorded: str, found: ModelHash) -> DataError:
    if found.early == recorded:
        return DataError(
            f"{path}: the gallery was built by a version of crnr that did not record the weights in "
            f"{', '.join(found.others)}, which may have changed since; build the gallery again"
        )
    return DataError(
        f"{path}: not the network that the gallery was built with: SHA-256 is {found.sha256[:12]}..., not "
        f"{recorded[:12]}...; give the right one with --extractor, or build the gallery again"
    )


def _found(network: Network) -> Path:
    """The path of the model: where it was, next to the gallery, or where a known model is on this machine."""
    places = [Path(network.model)]
    if network.folder is not None:
        places.append(Path(network.folder) / places[0].name)
    if here := like_known(places[0]):
        places.append(here.path)
    for place in places:
        if is_file(place):
            return place
    looked_at = {place.resolve(): str(place) for place in reversed(places)}  # by its first name
    remedy = f"get it with: {here.command}" if here else "give its path with --extractor"
    raise DataError(
        f"the gallery's network is not at {' nor at '.join(reversed(looked_at.values()))}; {remedy}"
    )


def _picture_input(path: Path, session: Any) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(given.name for given in inputs)
        raise DataError(f"{path}: takes {counted(len(inputs), 'input')} ({names}), not one picture")
    given = inputs[0]
    if given.type not in _TYPES or len(given.shape) != 4:
        kind = (
            "text" if given.type in ("tensor(string)", "tensor(int64)", "tensor(int32)") else "something else"
        )
        raise DataError(
            f"{path}: expects {kind} and not pictures: its input {given.name} is {given.type} with "
            f"{len(given.shape)} dimensions, but pictures need 4"
        )
    return given


def _layout(path: Path, given: Any) -> str:
    if given.shape[1] in (1, 3):
        return "nchw"
    if given.shape[3] in (1, 3):
        return "nhwc"
    shape = " x ".join(map(str, given.shape))
    raise UsageError(
        f"{path}: the order of the axes of its input, {shape}, is not clear; choose --layout nchw or nhwc"
    )


def _picture_shape(shape: list[Any], layout: str) -> tuple[Any, Any, Any]:
    """Channels, height and width: numbers, or names if the model does not fix them."""
    return (shape[1], shape[2], shape[3]) if layout == "nchw" else (shape[3], shape[1], shape[2])


def _output(path: Path, session: Any, wanted: str | None) -> str:
    names = [output.name for output in session.get_outputs()]
    choice = names[0] if wanted is None and len(names) == 1 else wanted
    if choice not in names:
        which = "several outputs" if choice is None else f"no output {choice}"
        raise UsageError(f"{path}: has {which}; choose with --extractor-output: {', '.join(names)}")
    return str(choice)


def _with_n_outputs(path: Path, session: Any, network: Network) -> Network:
    """Find the number of outputs by running the model once, as models often declare it incompletely."""
    (width, height), bands = network.size, network.bands
    given = session.get_inputs()[0]
    count = given.shape[0] if isinstance(given.shape[0], int) else 1
    shape = (count, bands, height, width) if network.layout == "nchw" else (count, height, width, bands)
    try:
        output = session.run([network.output], {network.input: np.ones(shape, _TYPES[given.type])})[0]
    except Exception as e:  # onnxruntime's exceptions have no public base class
        raise DataError(f"{path}: cannot be run on a picture of {width}x{height} ({first_line(e)})") from e
    if not isinstance(output, np.ndarray) or output.dtype.kind != "f" or not 2 <= output.ndim <= 4:
        raise DataError(f"{path}: its output {network.output} is not one vector of numbers per picture")
    shape_text = " x ".join(map(str, output.shape[1:]))
    if network.pool == "none" and output.ndim > 2 and output[0].size != max(output.shape[1:]):
        raise DataError(
            f"{path}: its output {network.output} is a map of {shape_text} per picture, not a vector; "
            "--pool avg takes its mean"
        )
    if network.pool != "none" and output.ndim == 2:
        raise UsageError(
            f"--pool: the output {network.output} of {path} is already a vector of {shape_text}; leave it out"
        )
    pooled = _pooled(output, network.layout, network.pool)
    if not pooled.size:
        raise DataError(f"{path}: its output {network.output} has no numbers; choose another one")
    if len(pooled) != count:
        raise DataError(f"{path}: returns {counted(len(pooled), 'vector')} for {counted(count, 'picture')}")
    return replace(network, n_outputs=int(pooled.shape[1]))


def _pooled(output: Array, layout: str, pool: str) -> Array:
    """(m, n): the mean of maps over all positions; vectors are not changed."""
    if pool == "avg":
        if output.ndim == 3:  # positions x features, as in transformers
            output = output.mean(axis=1)
        elif output.ndim == 4:
            output = output.mean(axis=(2, 3) if layout == "nchw" else (1, 2))
    return output.reshape(len(output), math.prod(output.shape[1:])).astype(np.float32, copy=False)
