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
POOLS = ("none", "avg")


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
    def needs_guess(self) -> bool:
        """Whether the way that pictures are prepared was not chosen completely."""
        return self.preset is None and None in self._chosen.values()

    @property
    def _chosen(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("crop", "filter", "mean", "std")}

    def scaling(self, guessed: str) -> dict[str, Any]:
        """Crop, filter, mean and std: as chosen, otherwise from the preset, which may have to be guessed."""
        preset = PRESETS[self.preset or guessed]
        return preset | {name: value for name, value in self._chosen.items() if value is not None}
