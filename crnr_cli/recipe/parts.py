"""Parts: a picture is divided into tiles, which are compared with those of the samples one by one.

What covers one tile, such as sunglasses, then does not spoil the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.recipe.base import Extractor, Section, Step, Stored

_GRID = re.compile(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,2})")
_BLANK = 1e-6  # a part whose values differ by less than this share of the largest is all the same


class Tile(NamedTuple):
    """One part of a picture: the box that it takes, in shares of the height and the width."""

    top: float
    bottom: float
    left: float
    right: float
    name: str = ""  # of a part that is no tile, but belongs to the picture as a whole


@dataclass(frozen=True)
class Parts(Step):
    """Every part is centred if it holds pixels, and gets unit length; together they follow each other."""

    name: ClassVar[str] = "parts"
    off: ClassVar[Any] = None
    tried: ClassVar[tuple[Any, ...]] = (None,)
    since_version: ClassVar[int] = 2
    rows: int
    columns: int
    sections: tuple[Section, ...] = field(default=(), compare=False)  # of the raw values, once they are known

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1:
            raise UsageError(f"--parts {self.setting}: there must be at least one row and one column")

    @classmethod
    def of(cls, setting: Any) -> Parts:
        found = _GRID.fullmatch(str(setting))
        if not found:
            raise UsageError(f"--parts {setting!r}: write the rows and columns of tiles, such as 4x4")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def parse(cls, text: str) -> str | None:
        if text == "0":
            return None
        if not _GRID.fullmatch(text):
            raise ValueError(f"{text} is neither 0 nor rows and columns of tiles, such as 4x4")
        return text

    @property
    def setting(self) -> str:
        return f"{self.rows}x{self.columns}"

    def placed(self, extractor: Extractor | None) -> Parts:
        if extractor is None:
            raise UsageError("--parts is for pictures, but these are features")
        if not extractor.sections:
            raise UsageError(
                "--parts cannot be used with a network: its features have no place in the picture"
            )
        rows, columns = extractor.sections[0][:2]
        if self.rows > rows or self.columns > columns:
            raise UsageError(
                f"--parts {self.setting}: choose at most {rows}x{columns} for {extractor.describe()}"
            )
        return replace(self, sections=extractor.sections)

    @cached_property
    def tiles(self) -> list[Tile]:
        """The parts, in their order."""
        rows, columns, *_ = self.sections[0]
        down, right = _cuts(rows, self.rows) / rows, _cuts(columns, self.columns) / columns
        tiles = [
            Tile(float(down[i]), float(down[i + 1]), float(right[j]), float(right[j + 1]))
            for i in range(self.rows)
            for j in range(self.columns)
        ]
        return tiles + [Tile(0.0, 1.0, 0.0, 1.0, section.name) for section in self.sections[1:]]

    @cached_property
    def _order(self) -> Array:
        """Which raw value each value of the parts is, one part after the other."""
        rows, columns, depth, *_ = self.sections[0]
        places = np.arange(rows * columns * depth).reshape(rows, columns, depth)
        down, right = _cuts(rows, self.rows), _cuts(columns, self.columns)
        parts = [
            places[down[i] : down[i + 1], right[j] : right[j + 1]].ravel()
            for i in range(self.rows)
            for j in range(self.columns)
        ]
        return np.concatenate([*parts, np.arange(places.size, self.part_edges[-1])])

    @cached_property
    def part_edges(self) -> Array:
        """From the sizes alone, as a gallery of a stranger may declare more values than there are."""
        rows, columns, depth, *_ = self.sections[0]
        sizes = np.outer(np.diff(_cuts(rows, self.rows)), np.diff(_cuts(columns, self.columns))) * depth
        others = [section.rows * section.columns * section.depth for section in self.sections[1:]]
        return np.cumsum([0, *sizes.ravel().tolist(), *others])

    def n_outputs(self, n_inputs: int) -> int:
        if self.part_edges[-1] != n_inputs:
            raise ValueError("its parts do not fit its inputs")
        return n_inputs

    def apply(self, values: Array, dtype: str) -> Array:
        values = values[:, self._order]
        edges, sizes = self.part_edges[:-1], np.diff(self.part_edges)
        if not len(values):
            return values
        if self.sections[0].is_centred:
            means = np.add.reduceat(values, edges, axis=1) / sizes
            spread = np.maximum.reduceat(values, edges, axis=1) - np.minimum.reduceat(values, edges, axis=1)
            values -= np.repeat(means, sizes, axis=1)
            # Of a part that is all the same, only rounding errors are left.
            values *= np.repeat(spread > _BLANK * np.abs(means), sizes, axis=1)
        norms = np.sqrt(np.add.reduceat(values * values, edges, axis=1))
        values /= np.repeat(np.where(norms > 0, norms, 1), sizes, axis=1)
        return values

    def stored(self) -> Stored:
        return Stored({"parts": self.setting})

    @classmethod
    def restored(cls, stored: Stored) -> Parts | None:
        setting = stored.attributes.get("parts")
        return None if setting is None else cls.of(setting)

    def describe(self) -> str:
        return f"{self.setting} parts"


def _cuts(places: int, parts: int) -> Array:
    """Where each of the parts begins, and the number of places: parts of about the same size."""
    return np.round(np.linspace(0, places, parts + 1)).astype(int)
