"""Power: the absolute value of every feature is raised to a power, and its sign is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.recipe.base import Step, Stored

_LARGEST = 100  # beyond that, all values but the largest vanish


@dataclass(frozen=True)
class Power(Step):
    """A power below 1 gives small features more weight."""

    name: ClassVar[str] = "power"
    off: ClassVar[Any] = 1.0
    tried: ClassVar[tuple[Any, ...]] = (1.0, 0.5)
    power: float

    def __post_init__(self) -> None:
        if not 0 < self.power <= _LARGEST:
            raise UsageError(f"power must be above 0 and at most {_LARGEST}, not {self.power:g}")

    @classmethod
    def of(cls, setting: Any) -> Power:
        return cls(float(setting))

    @classmethod
    def parse(cls, text: str) -> float:
        return float(text)

    @property
    def setting(self) -> float:
        return self.power

    def apply(self, values: Array, dtype: str) -> Array:
        raised: Array = np.copysign(np.abs(values) ** self.power, values)
        return raised

    def stored(self) -> Stored:
        return Stored({"power": self.power})

    @classmethod
    def restored(cls, stored: Stored) -> Power | None:
        power = float(stored.attributes.get("power", cls.off))
        return None if power == cls.off else cls(power)

    def describe(self) -> str:
        return f"features to the power {self.power:g}"
