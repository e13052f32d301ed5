"""How a network is used: the choices, and the options that a user can set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crnr_cli.errors import UsageError
from crnr_cli.models.presets import PRESETS
from crnr_cli.wording import not_one_of

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
CHANNELS = ("rgb", "bgr", "grey")
LAYOUTS = ("nchw", "nhwc")
POOLS = ("cls", "mean", "none")
OLD_POOLS = {"avg": "mean"}  # still accepted, and stored in galleries, which all versions can then read


@dataclass(frozen=True)
class NetworkOptions:
    """The user's options for a model.

    Those that are None come from the preset, from a file beside the model, or from the model itself.
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

    def __post_init__(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise UsageError(f"preset: {not_one_of(self.preset, PRESETS)}")
        if self.pool in OLD_POOLS:
            object.__setattr__(self, "pool", OLD_POOLS[self.pool])

    @property
    def scaling(self) -> dict[str, Any]:
        """Crop, filter, mean and std, as far as they were chosen."""
        names = ("crop", "filter", "mean", "std")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
