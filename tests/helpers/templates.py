"""Folders that many tests begin with: made once, and copied for each test."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from helpers.runner import Runner
from helpers.samples import noise


class Templates:
    """Keeps what functions made in a folder of its own each."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[Callable[[Runner], None], Path] = {}

    def copy(self, make: Callable[[Runner], None], to: Path) -> None:
        """Copy what `make` makes in an empty folder, which is then the current one, to another folder.

        Files keep their times, so that a gallery takes its images as unchanged.
        """
        if make not in self._made:
            folder = self._root / str(len(self._made))
            folder.mkdir()
            with contextlib.chdir(folder):
                make(Runner(folder))
            self._made[make] = folder
        shutil.copytree(self._made[make], to, symlinks=True, dirs_exist_ok=True)


def make_cats_dogs_owls(crnr: Runner) -> None:
    for i, name in enumerate(("cat", "dog", "owl")):
        for part in ("gallery", "queries"):
            (crnr.here / part / name).mkdir(parents=True)
        for k in range(3):
            image = noise(10 * i + k)
            image.save(crnr.here / "gallery" / name / f"{k}.png")
            image.point(lambda value: min(value + 9, 255)).save(crnr.here / "queries" / name / f"{k}.png")


def build_cats_dogs_owls(crnr: Runner) -> None:
    make_cats_dogs_owls(crnr)
    assert crnr("build", "gallery").exit == 0
