"""Load and run networks with onnxruntime, on the hardware that it supports."""

from __future__ import annotations

import math
import warnings
from dataclasses import field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.choices import AUTO, CPU, PACKAGES, PREFERRED, PROVIDERS, NetworkOptions
from crnr_cli.errors import CrnrError, DataError, UsageError, first_line
from crnr_cli.models.catalog import find_local_copy, find_model, is_file
from crnr_cli.models.onnx_files import EXPORT_REMEDY, ModelHash, model_format, model_hash
from crnr_cli.recipe.network import Network, absolute_path
from crnr_cli.recipe.network_settings import Decider, Declared, Reasoned
from crnr_cli.records import dataclass
from crnr_cli.system.cores import run_side_by_side
from crnr_cli.system.extras import require_packages
from crnr_cli.wording import format_count

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
}
_PER_BATCH, _PER_RUN = 32, 4  # images on the processor: progress is shown often, and all cores are busy
_ON_OTHERS = 128  # at once: an accelerator with memory of its own needs many to be busy


class OpenNetwork:
    """A model in memory, and how images are passed to it."""

    def __init__(self, network: Network, jobs: int, provider: str) -> None:
        """Find and load the model; raise an error unless it is the same to the byte."""
        self._how = network
        session = network.session
        if session is None or (session.jobs, session.wanted) != (jobs, provider):
            session = open_session(_find_model(network), jobs, provider)
        self._session, self.provider = session.run, session.provider
        self._per_run = images_per_run(self.provider)
        self._at_once = jobs if self.provider == CPU else 1
        given = self._session.get_inputs()[0]
        self._dtype = _TYPES[given.type]
        means, stds = (
            np.broadcast_to(np.array(each, np.float32), network.bands) for each in (network.mean, network.std)
        )
        self._scales = list(zip(means, stds, strict=True))  # of each channel, in the model's order
        self._n_at_once = given.shape[0] if isinstance(given.shape[0], int) else None

    def vectors(self, pixels: Array) -> Array:
        """Return (m, n_outputs): the features of images given as bytes, (m, height * width * bands)."""
        if not self._how.mirror:
            return self._features(pixels)
        (width, height), m = self._how.size, len(pixels)
        mirrored = pixels.reshape(m, height, width, self._how.bands)[:, :, ::-1].reshape(pixels.shape)
        both = self._features(np.concatenate([pixels, mirrored]))
        both *= 0.5  # exact, and the sum of halves cannot overflow
        return both[:m] + both[m:]

    def _features(self, pixels: Array) -> Array:
        """Return (m, n_outputs): the features of these images alone."""
        if not len(pixels):
            return np.empty((0, self._how.n_outputs), np.float32)
        step = self._n_at_once or self._per_run
        pieces = [pixels[start : start + step] for start in range(0, len(pixels), step)]
        return np.concatenate(list(run_side_by_side(self._run, pieces, min(self._at_once, len(pieces)))))

    def _prepare(self, pixels: Array) -> Array:
        """Return the model's input: the channels are scaled one at a time, in one pass."""
        how = self._how
        (width, height), bands = how.size, how.bands
        given: Array = pixels.reshape(len(pixels), height, width, bands)
        if how.channels == "bgr":
            given = given[..., ::-1]
        is_nchw = how.layout == "nchw"
        # A model that takes a fixed number of images gets the last one again.
        count = self._n_at_once or len(given)
        shape = (count, bands, height, width) if is_nchw else (count, height, width, bands)
        values: Array = np.empty(shape, np.uint8 if self._dtype is np.uint8 else np.float32)
        for band, (mean, std) in enumerate(self._scales):
            plane = (values[:, band] if is_nchw else values[..., band])[: len(given)]
            if self._dtype is np.uint8:
                plane[:] = given[..., band]
            else:
                np.subtract(given[..., band], mean, out=plane, dtype=np.float32)
                plane /= std
        values[len(given) :] = values[len(given) - 1]
        return values.astype(self._dtype, copy=False)

    def _run(self, pixels: Array) -> Array:
        how = self._how
        inputs = {how.input: self._prepare(pixels)}
        try:
            output: Array = self._session.run([how.output], inputs)[0]
        except Exception as e:  # onnxruntime's exceptions have no public base class
            remedy = "" if self.provider == CPU else "; --provider cpu is slower, but may have more memory"
            images = format_count(len(pixels), "image")
            raise DataError(f"{how.model}: cannot be run on {images} ({first_line(e)}){remedy}") from e
        pooled = _pool(output, how.layout, how.pool)[: len(pixels)]
        if pooled.shape != (len(pixels), how.n_outputs):
            expected = f"{len(pixels)} x {how.n_outputs}"
            found = " x ".join(map(str, pooled.shape))
            raise DataError(f"{how.model}: returned an array of {found} instead of {expected}")
        return pooled


def make_network(options: NetworkOptions, jobs: int, provider: str = AUTO) -> Network:
    """Combine the model with the user's options; reject a model that does not turn images into vectors."""
    return explain_network(options, jobs, provider).require_network()


@dataclass
class NetworkExplanation:
    """The settings of a model and the reasons for them, as far as they could be decided."""

    inputs: list[Declared] = field(default_factory=list)
    outputs: list[Declared] = field(default_factory=list)
    # In the order of the decisions: input, preparation (the preset or file), layout, channels, size, crop,
    # filter, mean, std, output, pool.
    settings: dict[str, Reasoned] = field(default_factory=dict)
    provider: str | None = None  # the hardware that it runs on
    network: Network | None = None
    note: str | None = None  # the assumptions, for the user
    error: CrnrError | None = None  # why there is no network

    def require_network(self) -> Network:
        if self.error is not None:
            raise self.error
        assert self.network is not None
        return self.network


def explain_network(options: NetworkOptions, jobs: int, provider: str = AUTO) -> NetworkExplanation:
    """Explain how `--extractor MODEL` is used with these options; an error is part of the result."""
    result = NetworkExplanation()
    try:
        path = find_model(options.model)
        options = replace(options, model=path)
        if not is_file(path):
            raise DataError(
                f"{path}: no such file; give the path of an ONNX model, or a name of `crnr model list`"
            )
        sha256 = model_hash(path).sha256
        session = open_session(path, jobs, provider)
        result.provider = session.provider
        result.inputs = [_to_declared(given) for given in session.run.get_inputs()]
        result.outputs = [_to_declared(given) for given in session.run.get_outputs()]
        decider = Decider(options, result.inputs, result.outputs)
        result.settings = decider.settled
        decider.decide()
        n_outputs = _decide_pool(path, session.run, decider)
        settings = {name: one.value for name, one in decider.settled.items() if name != "preparation"}
        result.network = Network(
            model=absolute_path(path),
            sha256=sha256,
            n_outputs=n_outputs,
            mirror=options.mirror,
            session=session,
            **settings,
        )
        result.note = decider.note()
    except CrnrError as e:
        result.error = e
    return result


def _to_declared(given: Any) -> Declared:
    """Return the declared input; a dimension is fixed only if it is a positive number."""
    shape = [None if isinstance(n, int) and n < 1 else n for n in given.shape]
    return Declared(given.name, given.type, tuple(shape))


def _another_model_error(path: Path, recorded: str, found: ModelHash) -> DataError:
    if found.early == recorded:
        return DataError(
            f"{path}: the gallery was built by a version of crnr that did not record the weights in "
            f"{', '.join(found.others)}, which may have changed since; build the gallery again"
        )
    return DataError(
        f"{path}: not the network that the gallery was built with: SHA-256 is {found.sha256[:12]}..., not "
        f"{recorded[:12]}...; give the right one with --model-path, or build the gallery again"
    )


def _find_model(network: Network) -> Path:
    """Return the path of the model; raise an error unless the file is the same to the byte.

    It is at its old path, next to the gallery, or in this machine's folder of known models.
    """
    places = [Path(network.model)]
    if network.folder is not None:
        places.append(Path(network.folder) / places[0].name)
    if here := find_local_copy(places[0]):
        places.append(here.path)
    for place in places:
        if is_file(place):
            if (found := model_hash(place)).sha256 != network.sha256:
                raise _another_model_error(place, network.sha256, found)
            return place
    looked_at = {place.resolve(): str(place) for place in reversed(places)}  # by its first name
    remedy = f"get it with: {here.command}" if here else "give its path with --model-path"
    raise DataError(
        f"the gallery's network is not at {' nor at '.join(reversed(looked_at.values()))}; {remedy}"
    )


def _decide_pool(path: Path, session: Any, decider: Decider) -> int:
    """Run the model once and return the values per vector, as declared outputs are often incomplete."""
    (width, height), output_name = decider["size"], decider["output"]
    bands = 1 if decider["channels"] == "grey" else 3
    given = session.get_inputs()[0]
    count = given.shape[0] if isinstance(given.shape[0], int) else 1
    shape = (count, bands, height, width) if decider["layout"] == "nchw" else (count, height, width, bands)
    try:
        output = session.run([output_name], {given.name: np.ones(shape, _TYPES[given.type])})[0]
    except Exception as e:  # onnxruntime's exceptions have no public base class
        raise DataError(f"{path}: cannot be run on an image of {width}x{height} ({first_line(e)})") from e
    if not isinstance(output, np.ndarray) or output.dtype.kind != "f" or not 2 <= output.ndim <= 4:
        raise DataError(f"{path}: the output {output_name} is not one vector of numbers per image")
    decider.decide_pool(output.shape)
    pooled = _pool(output, decider["layout"], decider["pool"])
    if not pooled.size:
        raise DataError(
            f"{path}: the output {output_name} has no numbers; choose another one with --extractor-output"
        )
    if len(pooled) != count:
        raise DataError(
            f"{path}: returns {format_count(len(pooled), 'vector')} for {format_count(count, 'image')}"
        )
    return int(pooled.shape[1])


def _pool(output: Array, layout: str, pool: str) -> Array:
    """Return (m, n): the mean of maps over all positions, or the first token; vectors are not changed."""
    if pool == "cls":
        output = output[:, 0]
    elif pool == "mean":
        if output.ndim == 3:  # tokens x features, as in transformers
            output = output.mean(axis=1)
        elif output.ndim == 4:
            output = output.mean(axis=(2, 3) if layout == "nchw" else (1, 2))
    return output.reshape(len(output), math.prod(output.shape[1:])).astype(np.float32, copy=False)


class Session(NamedTuple):
    """A model in memory."""

    run: Any  # onnxruntime's session
    provider: str  # the hardware that it runs on
    jobs: int  # the cores that it may use
    wanted: str  # the requested provider, or auto


def available_providers() -> list[str]:
    """Return the providers of the installed onnxruntime, the best first."""
    require_packages("onnx", "an extractor that is a network", "onnxruntime")
    import onnxruntime

    found = set(onnxruntime.get_available_providers())
    names = dict.fromkeys((*PREFERRED, *PROVIDERS))
    return [name for name in names if PROVIDERS[name] in found]


def images_per_batch(provider: str) -> int:
    if provider == AUTO:
        provider = next(name for name in PREFERRED if name in (*available_providers(), CPU))
    return _PER_BATCH if provider == CPU else _ON_OTHERS


def images_per_run(provider: str) -> int:
    return _PER_RUN if provider == CPU else _ON_OTHERS


def open_session(path: Path, jobs: int, provider: str) -> Session:
    """Load a model."""
    names = available_providers()
    if provider != AUTO:
        if provider not in names:
            raise UsageError(
                f"--provider {provider}: the installed onnxruntime does not have it, only {', '.join(names)}"
                + (f"; install {PACKAGES[provider]} instead of it" if provider in PACKAGES else "")
            )
        run = _run_on(path, jobs, provider)
        if run is None:
            raise UsageError(
                f"--provider {provider}: onnxruntime cannot use it on this machine; is its driver installed?"
            )
        return Session(run, provider, jobs, provider)
    for name in filter(names.__contains__, PREFERRED):
        try:
            if run := _run_on(path, jobs, name):
                return Session(run, name, jobs, AUTO)
        except DataError:  # of the model, or of a provider that does not work here
            if name == CPU:
                raise
    raise DataError(f"{path}: onnxruntime cannot run this model on any of {', '.join(names)}")


def _run_on(path: Path, jobs: int, provider: str) -> Any:
    """Return a session of onnxruntime, or None if it would run the model on something else."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    # Several runs side by side, each in one thread, never wait for each other. The threads of one run wait
    # after every layer for any thread that lost its core to a decoder. The values are the same for any
    # --jobs.
    settings.intra_op_num_threads = 1 if provider == CPU else jobs
    settings.inter_op_num_threads = 1
    # A waiting thread gives its core away at once: on a busy machine the wait may be long.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Not left to onnxruntime: the weights were checked for this format.
    settings.add_session_config_entry("session.load_model_format", model_format(path))
    settings.log_severity_level = 4  # errors are raised as exceptions
    # Where a provider lacks an operator, the processor computes it.
    wanted = list(dict.fromkeys((PROVIDERS[provider], PROVIDERS[CPU])))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about using another provider, which is checked here
            session = onnxruntime.InferenceSession(path, settings, providers=wanted)
    except Exception as e:  # onnxruntime's exceptions have no public base class
        if "INVALID_PROTOBUF" in str(e):
            raise DataError(f"{path}: not an ONNX model; {EXPORT_REMEDY}") from e
        raise DataError(
            f"{path}: onnxruntime cannot open this model ({first_line(e)}); upgrade onnxruntime, or export "
            "the network again"
        ) from e
    if session.get_providers()[0] != PROVIDERS[provider]:
        return None
    session.disable_fallback()  # nor later, when a run fails
    return session
