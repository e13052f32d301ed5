"""Which extractor a user chose, and with which settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT = "gradients"
BLOCK_NORMS = ("soft", "clipped", "none")  # how gradients are normalized, the default first


@dataclass(frozen=True)
class ExtractorOptions:
    """The settings that are not given are derived from the pictures, or from the model of a network."""

    name: str | None = None  # in the registry; None: the user did not choose
    settings: Mapping[str, Any] = field(default_factory=dict)  # those that were given

    @property
    def was_given(self) -> bool:
        return self.name is not None or bool(self.settings)
