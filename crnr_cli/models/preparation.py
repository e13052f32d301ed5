"""How the files beside a model say that pictures are prepared for it, in crnr's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crnr_cli.errors import DataError
from crnr_cli.models import hugging_face, timm_config
from crnr_cli.models.config_files import config_folders, read_config
from crnr_cli.models.config_values import Found

# The files by which to go, the first one first, and what reads each of them.
_READERS: dict[str, Callable[[Mapping[str, Any]], Found | None]] = {
    "preprocessor_config.json": hugging_face.read_image_processor,
    "processor_config.json": hugging_face.read_processor,
    "open_clip_config.json": timm_config.read_open_clip,
    "config.json": timm_config.read_timm,
}
# Another program's file of this name need not be JSON.
_OF_MANY_PROGRAMS = ("config.json",)


@dataclass(frozen=True)
class Preparation:
    """What a file says: size, crop, filter, mean, std and channels, as far as it is known.

    A setting that crnr cannot follow is among the faults instead, with the reason. One under an empty name
    concerns all settings.
    """

    path: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    family: str | None = None  # the preset whose outputs the network has

    def fault_of(self, setting: str) -> str | None:
        return self.faults.get(setting) or self.faults.get("")


def preparation_beside(model: Path) -> Preparation | None:
    """What the first of the files beside a model says about pictures; None if there is none."""
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
