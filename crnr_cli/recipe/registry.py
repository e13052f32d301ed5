"""The registry of steps, in the order of their application. To add a step, write a class and list it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crnr_cli.recipe.base import Extractor, Part, Step
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.pca import Pca
from crnr_cli.recipe.power import Power
from crnr_cli.recipe.raw_pixels import RawPixels

STEPS: dict[str, type[Step]] = {
    step.name: step
    for step in (
        Power,
        Pca,
    )
}

# Tried in this order when a gallery file is read; without a network, pictures are raw pixels.
EXTRACTORS: tuple[type[Extractor], ...] = (Network, RawPixels)

# The newest version of the gallery format: older ones lack some of these.
_PARTS: tuple[type[Part], ...] = (*STEPS.values(), *EXTRACTORS)
NEWEST_VERSION = max(part.since_version for part in _PARTS)


def make_steps(settings: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps with these settings, by name, not fitted yet; a step without a setting is not used."""
    return tuple(
        step.of(settings[name]) for name, step in STEPS.items() if settings.get(name, step.off) != step.off
    )
