"""How pictures are prepared for a network: the presets, and the options that a user can set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crnr_cli.errors import UsageError
from crnr_cli.wording import not_one_of

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
CHANNELS = ("rgb", "bgr", "grey")
LAYOUTS = ("nchw", "nhwc")
POOLS = ("none", "avg")

# How pictures were prepared when the networks of each family were trained, for pixels from 0 to 255.
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
class NetworkOptions:
    """The user's options for a model; those that are None come from the preset or from the model itself."""

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
            raise UsageError(f"preset: {not_one_of(self.preset, PRESETS)}")

    @property
    def preset_name(self) -> str:
        """The chosen preset, or the one that the name of the model suggests; by default imagenet."""
        if self.preset is not None:
            return self.preset
        model_name = self.model.name.lower().replace("_", "-")
        return "efficientnet-lite" if "efficientnet-lite" in model_name else "imagenet"

    def scaling(self) -> dict[str, Any]:
        """Crop, filter, mean and std: as chosen, otherwise from the preset."""
        chosen = {name: getattr(self, name) for name in ("crop", "filter", "mean", "std")}
        return PRESETS[self.preset_name] | {
            name: value for name, value in chosen.items() if value is not None
        }
