"""Values of configuration files, checked: each may be of any type and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LARGEST_SIDE = 4096  # of a picture that a network takes
_LARGEST = 1e6
_LONGEST_SHOWN = 40  # characters

# Pillow's numbers of filters, and the names that timm and open_clip use.
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


@dataclass
class Found:
    """Settings that a file gives, by name, and why others cannot be used."""

    settings: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    family: str | None = None


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def number(value: Any, name: str) -> float:
    """A number of moderate size; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"its {name} is {shown(value)}")
    return float(value)


def share(value: Any, name: str) -> float:
    found = number(value, name)
    if not 0 < found <= 1:
        raise ValueError(f"its {name} is {shown(value)}, not between 0 and 1")
    return found


def side(value: Any, name: str) -> int:
    """A number of pixels."""
    found = number(value, name)
    if found != int(found) or not 1 <= found <= _LARGEST_SIDE:
        raise ValueError(f"its {name} is {shown(value)}, not a number of pixels from 1 to {_LARGEST_SIDE}")
    return int(found)


def per_channel(value: Any, name: str) -> tuple[float, ...]:
    """One number, or three."""
    values = value if isinstance(value, list) else [value]
    if len(values) not in (1, 3):
        raise ValueError(f"its {name} is {shown(value)}, not one number or three")
    return tuple(number(each, name) for each in values)


def scaled(mean: tuple[float, ...], std: tuple[float, ...], factor: float, offset: float) -> dict[str, Any]:
    """Mean and std for pixels from 0 to 255, if `factor` times the pixel minus `offset` is normalized."""
    if factor == 0 or 0 in std:
        raise ValueError("it divides by 0")
    means, stds = tuple((m + offset) / factor for m in mean), tuple(s / factor for s in std)
    if not all(abs(value) <= _LARGEST for value in (*means, *stds)) or 0 in stds:
        raise ValueError("its mean or std is out of range")
    return {"mean": means, "std": stds}


def section(values: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = values.get(name)
    return found if isinstance(found, dict) else None
