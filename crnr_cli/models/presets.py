"""How pictures were prepared when the networks of each family were trained."""

from __future__ import annotations

from typing import Any

# Means and standard deviations are for pixels from 0 to 255.
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
