"""How a network makes features of a picture: plain values, which the gallery keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from crnr_cli.errors import UsageError

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
CHANNELS = ("rgb", "bgr", "grey")
LAYOUTS = ("nchw", "nhwc")
POOLS = ("none", "avg")

# What the networks of each family were trained with, on pixels of 0 to 255.
PRESETS: dict[str, dict[str, Any]] = {
    "efficientnet-lite": {"crop": 224 / 256, "filter": "bicubic", "mean": (127.0,), "std": (128.0,)},
    "imagenet": {
        "crop": 224 / 256,
        "filter": "bilinear",
        "mean": (123.675, 116.28, 103.53),
        "std": (58.395, 57.12, 57.375),
    },
    "raw": {"crop": 0.0, "filter": "bilinear", "mean": (0.0,), "std": (1.0,)},
}


@dataclass(frozen=True)
class Extraction:
    """From a picture to a vector: crop, resize, scale, and one run of an ONNX model."""

    model: str  # where the file was
    sha256: str  # of the model
    input: str
    output: str
    size: tuple[int, int]  # width, height
    n_outputs: int  # numbers a vector
    crop: float  # largest central part of the input's shape, times this; 0 is the whole picture, squeezed
    filter: str
    mean: tuple[float, ...]  # one, or one a channel in the model's order: (x - mean) / std
    std: tuple[float, ...]
    channels: str
    layout: str
    pool: str  # how a map becomes a vector
    folder: str | None = field(default=None, compare=False)  # of the gallery: another place to look

    def __post_init__(self) -> None:
        """Settings come from a user, or from a gallery that a stranger made."""
        for name, known in (
            ("filter", FILTERS),
            ("channels", CHANNELS),
            ("layout", LAYOUTS),
            ("pool", POOLS),
        ):
            if getattr(self, name) not in known:
                raise UsageError(f"extractor: {name} must be {' or '.join(known)}, not {getattr(self, name)}")
        if not 0 <= self.crop <= 1:
            raise UsageError(f"extractor: crop must be between 0 and 1, not {self.crop:g}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.bands) or not all(map(math.isfinite, values)):
                raise UsageError(f"extractor: {name} must be 1 or {self.bands} numbers, not {len(values)}")
        if 0 in self.std:
            raise UsageError("extractor: std must not be 0")
        if min(self.size) < 1 or max(self.size) > 4096 or self.n_outputs < 1:
            raise UsageError(f"extractor: no size to bring a picture to: {self.size[0]}x{self.size[1]}")

    @property
    def bands(self) -> int:
        return 1 if self.channels == "grey" else 3

    def found_at(self, path: Path) -> Extraction:
        """The same, with the model in this one place."""
        return replace(self, model=str(path.resolve()), folder=None)

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if name != "folder"})

    @classmethod
    def from_json(cls, text: str, folder: Path) -> Extraction:
        values: Mapping[str, Any] = json.loads(text)
        expected = {f.name for f in fields(cls)} - {"folder"}
        if not isinstance(values, dict) or set(values) != expected:
            raise ValueError("its extractor is not described in full")
        tuples = {
            "size": tuple(map(int, values["size"])),
            "mean": tuple(map(float, values["mean"])),
            "std": tuple(map(float, values["std"])),
        }
        texts = [values[name] for name in ("model", "sha256", "input", "output")]
        if len(tuples["size"]) != 2 or not all(isinstance(text, str) for text in texts):
            raise ValueError("its extractor is not described well")
        return cls(**{**values, **tuples, "folder": str(folder)})


@dataclass(frozen=True)
class ExtractorOptions:
    """What a user may say about a model; what is None comes from the preset or from the model itself."""

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
    pool: str = "none"

    def __post_init__(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise UsageError(f"no preset is called {self.preset}; there are {', '.join(PRESETS)}")

    @property
    def preset_name(self) -> str:
        """As said; else as the model is called, and most networks were trained as imagenet says."""
        if self.preset is not None:
            return self.preset
        called = self.model.name.lower().replace("_", "-")
        return "efficientnet-lite" if "efficientnet-lite" in called else "imagenet"

    def scaling(self) -> dict[str, Any]:
        """Crop, filter, mean and std: the preset's, but for what was said."""
        said = {name: getattr(self, name) for name in ("crop", "filter", "mean", "std")}
        return PRESETS[self.preset_name] | {name: value for name, value in said.items() if value is not None}
