"""The gallery in memory: labelled unit vectors, the recipe that made them, and a fitted method."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from crnr_cli import __version__
from crnr_cli.arrays import Array, Stamp, Values, mapped, row_minima
from crnr_cli.errors import NotConverged
from crnr_cli.gallery.calibration import Calibration, calibrate
from crnr_cli.gallery.columns import SampleTable
from crnr_cli.methods import Method, Samples, State
from crnr_cli.methods.fitting import residuals
from crnr_cli.methods.local import measured_by
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.results.probability import Certainty

_TRIED_ITERATIONS = 20
# NumPy's names of the types of labels that are not text.
_NUMBERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
LABEL_TYPES = frozenset({"bool", "float16", "float32", "float64"} | _NUMBERS)


@dataclass(frozen=True)
class Gallery:
    """Everything that classify needs; the pictures that it was made from are not needed any more."""

    samples: Samples
    table: SampleTable  # of the samples
    classes: list[str]  # in name order
    recipe: Recipe
    method: Method
    state: State
    crnr_version: str = __version__
    calibration: Calibration | None = None  # for rejecting queries of no class
    sha256: str = ""  # of the file it was loaded from
    label_type: str = ""  # of the labels that an estimator was fitted to, if they were not text

    @property
    def names(self) -> Sequence[str]:
        return self.table.names

    @property
    def hashes(self) -> Sequence[str]:
        return self.table.hashes

    @property
    def stamps(self) -> Sequence[Stamp]:
        """Empty if unknown."""
        return self.table.stamps

    @property
    def dtype(self) -> str:
        return str(self.samples.vectors.dtype)

    @property
    def factor(self) -> str | None:
        """dense or low-rank, for methods that have a factor."""
        arrays = {key.partition(".")[0] for key in self.state}  # which have a number each if there are parts
        if "H" in arrays:
            return "dense"
        return "low-rank" if "E" in arrays else None

    @property
    def format_version(self) -> int:
        """The first version of the file's format that has everything in this gallery."""
        return max(self.recipe.since_version, self.method.since_version)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the method."""
        return self.method.parameters

    def residuals(self, vectors: Array) -> Values:
        """(m, K), for m unit vectors as rows."""
        return residuals(self.method, self.samples, self.state, vectors)

    def gives_residuals(self) -> bool:
        """Classify one sample, to find out whether the state matches the samples, whatever the method."""
        measured_by(self.state)  # which is shown, even if the index is not used
        iterations = self.parameters.get("iterations", 0)
        # Few, as an untrusted gallery may ask for more than anybody would wait for.
        few = {"iterations": _TRIED_ITERATIONS} if iterations > _TRIED_ITERATIONS else {}
        tried = replace(
            self,
            method=self.method.with_parameters(**few),
            samples=self.method.tried_on(self.samples),
        )
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)  # the sample is not one of the user's queries
            found = tried.residuals(self.samples.vectors[:1])
        return found.shape == (1, len(self.classes)) and bool(row_minima(mapped(np.isfinite, found)).all())

    def calibrated(self, jobs: int, progress: Progress = silent) -> Gallery:
        """The gallery with a calibration, for which up to `jobs` parts of it are classified at once."""
        return replace(self, calibration=calibrate(self.samples, self.method, self.hashes, jobs, progress))

    @cached_property
    def certainty(self) -> Certainty:
        """How probable answers are: as stored, or computed once, when it is first asked for."""
        stored = self.calibration or calibrate(self.samples, self.method, self.hashes)
        if stored.certainty is None:
            stored = calibrate(self.samples, self.method, self.hashes)
        assert stored.certainty is not None
        return stored.certainty


def describe(gallery: Gallery) -> dict[str, Any]:
    """What is in a gallery and how it was made, as plain values."""
    counts = np.diff(gallery.samples.edges).tolist()
    return {
        "format_version": gallery.format_version,
        "crnr_version": gallery.crnr_version,
        "n_classes": len(gallery.classes),
        "n_samples": len(gallery.names),
        "dimension": int(gallery.samples.vectors.shape[1]),
        "dtype": gallery.dtype,
        "method": gallery.method.name,
        "parameters": gallery.parameters,
        "factor": gallery.factor,
        **_about_index(gallery),
        **gallery.recipe.facts(),
        "calibration": gallery.calibration.origin if gallery.calibration else None,
        "classes": dict(zip(gallery.classes, counts, strict=True)),
    }


def _about_index(gallery: Gallery) -> dict[str, Any]:
    measured = measured_by(gallery.state)
    if measured is None:
        return {}
    return {"index_recall": round(measured.recall, 6), "index_agreement": round(measured.agreement, 6)}
