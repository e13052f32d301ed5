"""The names that options offer. It loads nothing heavy, so that `crnr --help` is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from crnr_cli.errors import UsageError
from crnr_cli.models.presets import PRESETS
from crnr_cli.records import dataclass
from crnr_cli.wording import not_one_of

FORMATS = ("csv", "jsonl", "parquet")
_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
ENDINGS = (".csv", *_ENDINGS)
# Of formats that predictions files cannot have.
_OTHER_ENDINGS = {".json", ".tsv", ".xls", ".xlsx", ".ods", ".html"}
AUTO = "auto"
CPU = "cpu"
PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    CPU: "CPUExecutionProvider",
}
# The providers that `auto` tries, the best first, without those that prepare a model for minutes.
PREFERRED = ("cuda", "rocm", "directml", "coreml", "openvino", CPU)
# The package of a provider, if the installed one lacks it.
PACKAGES = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu",
    "rocm": "onnxruntime-rocm",
    "directml": "onnxruntime-directml",
    "openvino": "onnxruntime-openvino",
}
DEFAULT = "gradients"
BLOCK_NORMS = ("soft", "clipped", "none")  # how gradients are normalized, the default first
FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
CHANNELS = ("rgb", "bgr", "grey")
LAYOUTS = ("nchw", "nhwc")
POOLS = ("cls", "mean", "none")
OLD_POOLS = {"avg": "mean"}  # still accepted, and stored in galleries, so all versions can read them


def format_by_name(name: str) -> str:
    """Return the default format for a file of this name. Raises UsageError if it is named otherwise."""
    ending = Path(name).suffix.lower()
    if ending in _OTHER_ENDINGS:
        raise UsageError(
            f"{name}: crnr writes CSV, JSON Lines or Parquet; give a name that ends in .csv, .jsonl or "
            ".parquet, or choose with --format"
        )
    return _ENDINGS.get(ending, "csv")


@dataclass(frozen=True)
class ExtractorOptions:
    """The user's extractor; missing settings are derived from the images, or from the network's model."""

    name: str | None = None  # in the registry; None: the user did not choose
    settings: Mapping[str, Any] = field(default_factory=dict)  # given by the user
    try_mirror: bool = False  # for `tune`: try a network with and without mirror images

    @property
    def was_given(self) -> bool:
        return self.name is not None or bool(self.settings)


@dataclass(frozen=True)
class NetworkOptions:
    """The user's options for a model.

    An option that is None comes from the preset, from a file next to the model, or from the model itself.
    """

    model: Path
    preset: str | None = None
    size: tuple[int, int] | None = None
    crop: float | None = None
    filter: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channels: str | None = None
    layout: str | None = None
    output: str | None = None
    pool: str | None = None
    mirror: bool = False

    def __post_init__(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise UsageError(f"preset: {not_one_of(self.preset, PRESETS)}")
        if self.pool in OLD_POOLS:
            object.__setattr__(self, "pool", OLD_POOLS[self.pool])

    @property
    def scaling(self) -> dict[str, Any]:
        """Crop, filter, mean and std, as far as chosen."""
        names = ("crop", "filter", "mean", "std")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
