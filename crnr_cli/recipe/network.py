"""Pixels become features: an ONNX model is opened, checked, and run on batches of pictures."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, UsageError
from crnr_cli.recipe.network_settings import Extraction, ExtractorOptions
from crnr_cli.system.optional import require

BATCH = 32  # pictures a run: enough to keep the cores busy, and progress is seen to move

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
}
# A file of weights that a large model may have beside it.
_COMPANIONS = (".data", "_data")


class Extractor:
    """A model in memory, and how pictures are to be given to it."""

    def __init__(self, extraction: Extraction, jobs: int) -> None:
        """Find the model and refuse one that is not the same to the byte."""
        self._how = extraction
        path = _found(extraction)
        if (actual := _sha256(path)) != extraction.sha256:
            raise DataError(
                f"{path}: not the model that the gallery was built with: SHA-256 is {actual[:12]}..., not "
                f"{extraction.sha256[:12]}...; name that one with --extractor, or build the gallery again"
            )
        self._session = _session(path, actual, jobs)
        given = self._session.get_inputs()[0]
        self._dtype = _TYPES[given.type]
        self._n_at_once = given.shape[0] if isinstance(given.shape[0], int) else None

    def vectors(self, pixels: list[bytes]) -> Array:
        """(m, n_outputs): features of pictures that have the extraction's size and bands, a byte a value."""
        if not pixels:
            return np.empty((0, self._how.n_outputs), np.float32)
        step = self._n_at_once or BATCH
        return np.concatenate(
            [self._run(pixels[start : start + step]) for start in range(0, len(pixels), step)]
        )

    def _run(self, pixels: list[bytes]) -> Array:
        how = self._how
        (width, height), bands = how.size, how.bands
        values: Array = np.stack([np.frombuffer(data, np.uint8) for data in pixels])
        values = values.reshape(len(pixels), height, width, bands)
        if how.channels == "bgr":
            values = values[..., ::-1]
        if self._dtype is not np.uint8:
            values = (values.astype(np.float32) - np.array(how.mean, np.float32)) / np.array(
                how.std, np.float32
            )
        if how.layout == "nchw":
            values = values.transpose(0, 3, 1, 2)
        if self._n_at_once and len(values) < self._n_at_once:  # the model takes so many and no fewer
            values = np.concatenate([values, np.repeat(values[-1:], self._n_at_once - len(values), axis=0)])
        inputs = {how.input: np.ascontiguousarray(values, self._dtype)}
        answer: Array = self._session.run([how.output], inputs)[0]
        pooled = _pooled(answer, how.layout, how.pool)[: len(pixels)]
        if pooled.shape != (len(pixels), how.n_outputs):
            raise DataError(f"{how.model}: gives {pooled.shape} for {len(pixels)} pictures")
        return pooled


def make_extraction(options: ExtractorOptions, jobs: int) -> Extraction:
    """What a model and a user say about it, put together; a model that makes no vectors is refused."""
    path = options.model
    if not path.is_file():
        raise DataError(f"{path}: no such file; --extractor names an ONNX model")
    sha256 = _sha256(path)
    session = _session(path, sha256, jobs)
    given = _picture_input(path, session)
    layout = options.layout or _layout(path, given)
    channels, height, width = _picture_shape(given.shape, layout)
    if options.size:
        for fixed, wanted in ((width, options.size[0]), (height, options.size[1])):
            if isinstance(fixed, int) and fixed != wanted:
                raise UsageError(f"--size: {path} takes pictures of {width}x{height} only")
        width, height = options.size
    if not isinstance(width, int) or not isinstance(height, int):
        raise UsageError(f"{path}: takes pictures of any size; choose one with --size, as in --size 224")
    scaling = options.scaling()
    if given.type == "tensor(uint8)":  # it scales its input itself
        scaling |= {"mean": (0.0,), "std": (1.0,)}
    order = options.channels or ("grey" if channels == 1 else "rgb")
    if order == "grey":  # a preset's figures for three channels serve one by their mean
        said = {"mean": options.mean, "std": options.std}
        scaling |= {name: (sum(scaling[name]) / len(scaling[name]),) for name in said if said[name] is None}
    output = _output(path, session, options.output)
    extraction = Extraction(
        model=str(path.resolve()),
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
    if isinstance(channels, int) and channels != extraction.bands:
        raise UsageError(f"{path}: takes pictures of {channels} channels, not {extraction.channels}")
    return _with_n_outputs(path, session, extraction)


def _found(extraction: Extraction) -> Path:
    """The model where it was, or beside the gallery."""
    places = [Path(extraction.model)]
    if extraction.folder is not None:
        places.append(Path(extraction.folder) / places[0].name)
    for place in places:
        if place.is_file():
            return place
    beside = "" if places[0].resolve() == places[-1].resolve() else f" nor at {places[-1]}"
    raise DataError(f"the gallery's extractor is not at {places[0]}{beside}; name it with --extractor")


def _sha256(path: Path) -> str:
    """Of the model, and of the file of weights beside it if there is one."""
    digest = hashlib.sha256()
    companions = [path.with_name(path.name + ending) for ending in _COMPANIONS]
    try:
        for file in (path, *(companion for companion in companions if companion.is_file())):
            with file.open("rb") as opened:
                while block := opened.read(2**20):
                    digest.update(block)
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _session(path: Path, sha256: str, jobs: int) -> Any:
    """The model in memory. It is asked for twice by build, and once a batch by a worker of a cluster."""
    require("onnx", "an extractor", "onnxruntime")
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = jobs
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4  # what is wrong comes as an exception
    try:
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    except Exception as e:  # of many types, none of them public
        raise DataError(f"{path}: not a model that onnxruntime can open ({_first_line(e)})") from e


def _picture_input(path: Path, session: Any) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(given.name for given in inputs)
        raise DataError(f"{path}: takes {len(inputs)} inputs ({names}), and a picture is one")
    given = inputs[0]
    if given.type not in _TYPES or len(given.shape) != 4:
        kind = (
            "text" if given.type in ("tensor(string)", "tensor(int64)", "tensor(int32)") else "something else"
        )
        raise DataError(
            f"{path}: expects {kind} and not pictures: its input {given.name} is {given.type} of "
            f"{len(given.shape)} dimensions, and pictures have 4"
        )
    return given


def _layout(path: Path, given: Any) -> str:
    if given.shape[1] in (1, 3):
        return "nchw"
    if given.shape[3] in (1, 3):
        return "nhwc"
    shape = " x ".join(map(str, given.shape))
    raise UsageError(
        f"{path}: its input of {shape} does not show which are the channels; choose --layout nchw or nhwc"
    )


def _picture_shape(shape: list[Any], layout: str) -> tuple[Any, Any, Any]:
    """Channels, height and width: numbers, or names where the model leaves them open."""
    return (shape[1], shape[2], shape[3]) if layout == "nchw" else (shape[3], shape[1], shape[2])


def _output(path: Path, session: Any, wanted: str | None) -> str:
    names = [output.name for output in session.get_outputs()]
    choice = names[0] if wanted is None and len(names) == 1 else wanted
    if choice not in names:
        which = "several outputs" if choice is None else f"no output {choice}"
        raise UsageError(f"{path}: has {which}; choose with --extractor-output: {', '.join(names)}")
    return str(choice)


def _with_n_outputs(path: Path, session: Any, extraction: Extraction) -> Extraction:
    """Run it once on a grey picture: what a model says about its output is not always all."""
    (width, height), bands = extraction.size, extraction.bands
    given = session.get_inputs()[0]
    count = given.shape[0] if isinstance(given.shape[0], int) else 1
    shape = (count, bands, height, width) if extraction.layout == "nchw" else (count, height, width, bands)
    try:
        answer = session.run([extraction.output], {extraction.input: np.ones(shape, _TYPES[given.type])})[0]
    except Exception as e:  # of many types, none of them public
        raise DataError(f"{path}: does not run on a picture of {width}x{height} ({_first_line(e)})") from e
    if not isinstance(answer, np.ndarray) or answer.dtype.kind != "f" or not 2 <= answer.ndim <= 4:
        raise DataError(f"{path}: its output {extraction.output} is no vector of numbers a picture")
    shape_words = " x ".join(map(str, answer.shape[1:]))
    if extraction.pool == "none" and answer.ndim > 2 and answer[0].size != max(answer.shape[1:]):
        raise DataError(
            f"{path}: its output {extraction.output} is a map of {shape_words} a picture and not a vector; "
            "--pool avg takes its mean"
        )
    if extraction.pool != "none" and answer.ndim == 2:
        raise UsageError(
            f"--pool: the output {extraction.output} of {path} is a vector of {shape_words} already"
        )
    pooled = _pooled(answer, extraction.layout, extraction.pool)
    if len(pooled) != count:
        raise DataError(f"{path}: gives {len(pooled)} answers for {count} pictures")
    return replace(extraction, n_outputs=int(pooled.shape[1]))


def _pooled(answer: Array, layout: str, pool: str) -> Array:
    """(m, n): maps by their mean over all places, vectors as they are."""
    if pool == "avg":
        if answer.ndim == 3:  # places x features, as transformers have them
            answer = answer.mean(axis=1)
        elif answer.ndim == 4:
            answer = answer.mean(axis=(2, 3) if layout == "nchw" else (1, 2))
    return answer.reshape(len(answer), -1).astype(np.float32, copy=False)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
