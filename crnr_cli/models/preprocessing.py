"""Read from the files next to a model how the network expects images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from crnr_cli.errors import DataError
from crnr_cli.models import hugging_face
from crnr_cli.models.config_files import (
    FILTERS,
    FoundSettings,
    config_folders,
    find_section,
    mean_and_std,
    read_config,
    require_per_channel,
    require_share,
    require_side,
    short_repr,
)
from crnr_cli.records import dataclass

_TIMM = {
    **{"input_size": [3, 224, 224], "crop_pct": 0.875, "crop_mode": "center", "interpolation": "bicubic"},
    **{"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
}
_OPEN_CLIP = {
    **{"size": 224, "resize_mode": "shortest", "interpolation": "bicubic"},
    **{"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]},
}
# Another program's file of this name need not be JSON.
_OF_MANY_PROGRAMS = ("config.json",)


def read_timm(content: Mapping[str, Any]) -> FoundSettings | None:
    """Read timm's config.json; return None if the file belongs to another library."""
    config = find_section(content, "pretrained_cfg")
    if config is None:
        return None
    values = _TIMM | {name: value for name, value in config.items() if value is not None}
    found = FoundSettings()
    _scale(values, found)
    try:
        size = values["input_size"]
        if not isinstance(size, list) or len(size) != 3:
            raise ValueError(f"input_size is {short_repr(size)}, not channels, height and width")
        height, width = require_side(size[1], "input_size"), require_side(size[2], "input_size")
        found.settings["size"] = (width, height)
        crop, mode = require_share(values["crop_pct"], "crop_pct"), values["crop_mode"]
        if mode == "center":
            found.settings["crop"] = width / math.floor(width / crop)
        elif mode == "squash" and crop == 1:
            found.settings["crop"] = 0.0
        else:
            raise ValueError(
                f"crop_mode is {short_repr(mode)} with a crop_pct of {crop:g}, which crnr cannot do"
            )
    except ValueError as e:
        found.faults["crop"] = str(e)
        if "size" not in found.settings:
            found.faults["size"] = str(e)
    return found


def read_open_clip(content: Mapping[str, Any]) -> FoundSettings | None:
    config = find_section(content, "preprocess_cfg")
    if config is None:
        return None
    values = _OPEN_CLIP | {name: value for name, value in config.items() if value is not None}
    vision = find_section(find_section(content, "model_cfg") or {}, "vision_cfg") or {}
    size = vision.get("image_size") or values["size"]  # the model's size takes precedence
    found = FoundSettings(family="clip")
    _scale(values, found)
    try:
        sides = size if isinstance(size, list) else [size, size]
        if len(sides) != 2:
            raise ValueError(f"size is {short_repr(size)}, not height and width")
        found.settings["size"] = (require_side(sides[1], "size"), require_side(sides[0], "size"))
    except ValueError as e:
        found.faults["size"] = str(e)
    crops = {"shortest": 1.0, "squash": 0.0}
    mode = values["resize_mode"]
    if isinstance(mode, str) and mode in crops:
        found.settings["crop"] = crops[mode]
    else:
        found.faults["crop"] = f"resize_mode is {short_repr(mode)}, which crnr cannot do"
    return found


def _scale(values: Mapping[str, Any], found: FoundSettings) -> None:
    """Store filter, mean and std in `found`; both libraries divide pixels by 255 first."""
    if values["interpolation"] in FILTERS:
        found.settings["filter"] = values["interpolation"]
    else:
        found.faults["filter"] = f"interpolation is {short_repr(values['interpolation'])}"
    try:
        mean, std = require_per_channel(values["mean"], "mean"), require_per_channel(values["std"], "std")
        found.settings |= mean_and_std(mean, std, 1 / 255, 0.0)
    except ValueError as e:
        found.faults |= {"mean": str(e), "std": str(e)}


# The files in order of precedence, and the reader of each.
_READERS: dict[str, Callable[[Mapping[str, Any]], FoundSettings | None]] = {
    "preprocessor_config.json": hugging_face.read_image_processor,
    "processor_config.json": hugging_face.read_processor,
    "open_clip_config.json": read_open_clip,
    "config.json": read_timm,
}


@dataclass(frozen=True)
class Preparation:
    """The settings in a config file: size, crop, filter, mean, std and channels, as far as known.

    A setting that crnr cannot follow is among the faults instead, with the reason. A fault with an empty name
    concerns all settings.
    """

    path: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    family: str | None = None  # the preset whose outputs the network has

    def fault_of(self, setting: str) -> str | None:
        return self.faults.get(setting) or self.faults.get("")


def find_preparation(model: Path) -> Preparation | None:
    """Return the preparation from the first config file next to a model; None if there is no such file."""
    for folder in config_folders(model):
        for name, read in _READERS.items():
            try:
                content = read_config(folder / name)
            except DataError:
                if name in _OF_MANY_PROGRAMS:
                    continue
                raise
            found = None if content is None else read(content)
            if found is not None:
                return Preparation(folder / name, found.settings, found.faults, found.family)
    return None
