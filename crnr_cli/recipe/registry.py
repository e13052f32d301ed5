"""The registries of extractors and of steps, the latter in the order of their application.

To add one, write a class and list it here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crnr_cli.recipe.base import Extractor, Part, Step, Stored
from crnr_cli.recipe.gradients import Gradients
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.parts import Parts
from crnr_cli.recipe.pca import Pca
from crnr_cli.recipe.power import Power
from crnr_cli.recipe.raw_pixels import RawPixels

STEPS: dict[str, type[Step]] = {
    step.name: step
    for step in (
        Power,
        Pca,
        Parts,
    )
}

EXTRACTORS: dict[str, type[Extractor]] = {
    extractor.name: extractor
    for extractor in (
        Gradients,
        RawPixels,
        Network,
    )
}

# The newest version of the gallery format: older ones lack some of these.
_PARTS: tuple[type[Part], ...] = (*STEPS.values(), *EXTRACTORS.values())
NEWEST_VERSION = max(max(part.since_version, part.newest_version) for part in _PARTS)


def make_steps(settings: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps with these settings, by name, not fitted yet; a step without a setting is not used."""
    return tuple(
        step.of(settings[name]) for name, step in STEPS.items() if settings.get(name, step.off) != step.off
    )


def restored_extractor(stored: Stored) -> Extractor:
    """The extractor of a gallery file.

    Its name is part of its description. The oldest extractors have none: raw pixels are described by the size
    and colour of the pictures alone, and a network without its name.
    """
    if "extractor" not in stored.attributes:
        return RawPixels.restored({}, stored)
    try:
        settings = json.loads(stored.attributes["extractor"])
    except (TypeError, ValueError, RecursionError):  # the last for brackets within brackets, thousands deep
        settings = None
    if not isinstance(settings, dict):
        raise ValueError("the description of its extractor is invalid")
    name = settings.pop("name", Network.name)
    if not isinstance(name, str) or name not in EXTRACTORS:
        raise ValueError(f"its extractor {name} is not known to this version of crnr")
    return EXTRACTORS[name].restored(settings, stored)
