"""The registry of steps, in the order of their application. A new step is one class, and its line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crnr_cli.recipe.base import Extractor, Step
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

# Tried in this order when a gallery file is read: pixels are what is left.
EXTRACTORS: tuple[type[Extractor], ...] = (Network, RawPixels)


def make_steps(settings: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps that these settings ask for, by name and not yet fitted; what is not named is left out."""
    return tuple(
        step.of(settings[name]) for name, step in STEPS.items() if settings.get(name, step.off) != step.off
    )
