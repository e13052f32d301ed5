"""What tests of the command line share: running crnr in a folder of its own, and small made-up data."""

from __future__ import annotations

import csv
import ctypes
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from crnr_cli.cli import application

app = application()  # made once for all tests: it takes a while

CRNR = [sys.executable, "-m", "crnr_cli"]
CLASSES = ("ant", "bee", "cow")


@dataclass(frozen=True)
class Outcome:
    exit: int
    out: str
    err: str

    @property
    def statuses(self) -> list[str]:
        return statuses(self.out)


class Shell:
    """crnr, called in `here`."""

    def __init__(self, here: Path) -> None:
        self.here = here

    def crnr(self, *args: str, stdin: bytes = b"") -> Outcome:
        """In this process: fast. A bug keeps its traceback."""
        result = CliRunner().invoke(app, list(args), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        out = result.stdout_bytes.decode("utf-8", "surrogateescape")
        return Outcome(result.exit_code, out, result.stderr)

    def start(self, *args: str, **how: object) -> subprocess.Popen[bytes]:
        """In a process of its own, for signals and pipes."""
        usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*CRNR, *args], **{"cwd": self.here, **usual, **how})  # type: ignore[call-overload]

    def process(self, *args: str, **how: object) -> Outcome:
        process = self.start(*args, **how)
        out, err = process.communicate(timeout=120)
        return Outcome(
            process.returncode, (out or b"").decode("utf-8", "surrogateescape"), (err or b"").decode()
        )

    def files(self) -> set[str]:
        """All that is in the folder itself."""
        return {path.name for path in self.here.iterdir()}


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def read_rows(path: Path) -> list[dict[str, str]]:
    return rows(path.read_bytes().decode("utf-8", "surrogateescape"))


def statuses(text: str) -> list[str]:
    return [row["status"] for row in rows(text)]


def picture(class_number: int, sample: int, size: tuple[int, int] = (8, 8)) -> Image.Image:
    """Noise on a pattern of its class: easy to tell apart."""
    width, height = size
    random = np.random.default_rng([class_number, sample])
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    pattern = [x, y, x * y, (1 - x) * y][class_number % 4]
    return Image.fromarray((200 * pattern + 20 + 30 * random.random((height, width))).astype(np.uint8))


def noise(seed: int, size: tuple[int, int] = (8, 8)) -> Image.Image:
    """A grey picture of noise, the same for the same seed."""
    values = np.random.default_rng(seed).integers(1, 256, (size[1], size[0]), dtype=np.uint8)
    return Image.fromarray(values)


def make_pictures(
    folder: Path, classes: Sequence[str] = CLASSES, per_class: int = 4, first: int = 0, **form: object
) -> None:
    """folder/class/0.png and so on; `first` tells sets of samples apart."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for sample in range(first, first + per_class):
            picture(number, sample, **form).save(folder / name / f"{sample}.png")  # type: ignore[arg-type]


def make_features(
    path: Path, per_class: int = 5, dimension: int = 6, seed: int = 0, classes: Sequence[str] = CLASSES
) -> None:
    """An npz of features with labels: one direction a class, with noise."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.array(classes), per_class)
    centres = np.eye(max(dimension, len(classes)))[: len(classes), :dimension]
    features = np.repeat(centres, per_class, axis=0) + 0.3 * random.random((len(labels), dimension))
    np.savez(path, features=features.astype(np.float32), labels=labels)


def without_root() -> dict[str, object]:
    """Options of a process that file permissions hold for, even if we are root."""

    def forget_root() -> None:
        for capability in (1, 2):  # to read and write whatever the permissions say
            if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError("cannot drop root's capabilities")

    return {"preexec_fn": forget_root} if os.getuid() == 0 else {"start_new_session": True}
