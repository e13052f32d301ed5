"""What all sources share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Keys:
    """Which dataset of a file is what, and which way the features lie."""

    features: str | None = None
    labels: str | None = None
    samples: str | None = None  # "rows" or "columns"; None: rows, or in .mat as the labels tell
