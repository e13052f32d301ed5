"""Settings that are tried on samples held out of a gallery, and the choice between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.methods import Method
from crnr_cli.recipe.base import Extractor
from crnr_cli.recipe.registry import make_steps
from crnr_cli.results.scores import wilson

StepSettings = tuple[tuple[str, Any], ...]  # the setting of every step, by name


@dataclass(frozen=True)
class Vectors:
    """How samples become vectors."""

    number: int  # of the extractor, among those that are tried
    extractor: Extractor | None  # None: samples are features
    steps: StepSettings

    def parameters(self) -> dict[str, Any]:
        return {**(self.extractor.chosen() if self.extractor else {}), **dict(self.steps)}

    def describe(self) -> str:
        """Only what differs between the settings that are tried."""
        steps = [step.describe() for step in make_steps(dict(self.steps))]
        if self.extractor is None:
            return ", ".join(steps)
        name, *others = self.extractor.chosen().items()
        chosen = [Path(str(name[1])).name, *(f"{option} {value}" for option, value in others)]
        return ", ".join([*chosen, *steps])


@dataclass(frozen=True)
class Setting:
    """A method with its parameters, on vectors that an extractor and steps make."""

    method: Method
    vectors: Vectors

    def parameters(self) -> dict[str, Any]:
        """The method and the parameters that tune varies, by name."""
        values = {name: self.method.parameters[name] for name in self.method.tunable}
        return {"method": self.method.name, **values, **self.vectors.parameters()}

    def describe(self) -> str:
        """The extractor and the steps of the recipe as text."""
        return self.vectors.describe()


@dataclass(frozen=True)
class Trial:
    """A setting, and which of the held-out samples it labelled correctly."""

    setting: Setting
    right: Array  # (n,), in the same order for every trial

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(int(self.right.sum()), len(self.right))

    def lead(self, other: Trial) -> tuple[float, float]:
        """How much more accurate this is than the other on the same samples, and the standard error of it."""
        difference = self.right.astype(float) - other.right
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


def choose(trials: Sequence[Trial], paper: Trial) -> Trial:
    """The paper's setting, unless the most accurate one beats it by more than one standard error.

    In that case, consider the settings that also beat the paper's, and are not beaten by the most accurate
    one; of these, choose the one with the fewest changes.

    The most accurate of hundreds of settings is partly lucky, and may be no better on new queries.
    """
    best = max(trials, key=lambda trial: trial.accuracy)
    if not _beats(best, paper):
        return paper
    contenders = [trial for trial in trials if _beats(trial, paper) and not _beats(best, trial)]
    return min(contenders, key=lambda trial: (*_changes(trial.setting, paper.setting), -trial.accuracy))


def _beats(trial: Trial, other: Trial) -> bool:
    lead, error = trial.lead(other)
    return lead > error


def _changes(setting: Setting, paper: Setting) -> tuple[bool, int]:
    """Whether the method differs, and how many parameters differ."""
    mine, theirs = setting.parameters(), paper.parameters()
    differing = sum(mine[name] != theirs.get(name) for name in mine)
    return setting.method.name != paper.method.name, differing
