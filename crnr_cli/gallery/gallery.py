"""The gallery in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from crnr_cli import __version__
from crnr_cli.arrays import Array, Stamp
from crnr_cli.gallery.calibration import Calibration
from crnr_cli.methods import Method, Samples, State
from crnr_cli.recipe.recipe import Recipe


@dataclass(frozen=True)
class Gallery:
    """All that classify needs. The pictures it was made from may be gone."""

    samples: Samples
    names: list[str]  # of the samples: paths, or file#row
    hashes: list[str]  # SHA-256 of each sample's content
    classes: list[str]  # in name order
    recipe: Recipe
    method: Method
    state: State
    crnr_version: str = __version__
    calibration: Calibration | None = None  # for telling what is none of the classes
    stamps: list[Stamp] = field(default_factory=list)  # of the samples' files; empty if unknown
    sha256: str = ""  # of the file it was loaded from

    @property
    def dtype(self) -> str:
        return str(self.samples.vectors.dtype)

    @property
    def factor(self) -> str | None:
        """How the method's state is held, where there is a choice."""
        if "H" in self.state:
            return "dense"
        return "low-rank" if "E" in self.state else None

    def residuals(self, vectors: Array) -> Array:
        """(m, K) for m unit rows."""
        return self.method.residuals(self.samples, self.state, vectors)
