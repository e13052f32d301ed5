"""The one way to run crnr in a test: in this process, which is fast, or as a process of its own."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import functools
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from crnr_cli.cli import make_application
from helpers.paths import TESTS

# All commands with their parameters. Built once for all tests: that takes longer than most commands that are
# refused, and `CliRunner.invoke` would do it for every run.
PROGRAM = typer.main.get_command(make_application())


@functools.cache
def declared_commands() -> dict[str, Any]:
    """Return all commands of Typer by name; commands of a group begin with its name.

    Not the options of `PROGRAM`: a command that has shown its help has changed the texts in it.
    """
    group = typer.main.get_command(make_application())
    assert isinstance(group, typer.core.TyperGroup)
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = command.commands if isinstance(command, typer.core.TyperGroup) else None
        found |= {f"{name} {own}": one for own, one in inner.items()} if inner else {name: command}
    return found


CRNR = (sys.executable, "-m", "crnr_cli")


# What a process needs to get the same last digits as this one, whatever else its environment lacks.
KERNEL = {
    name: os.environ[name]
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NPY_DISABLE_CPU_FEATURES")
    if name in os.environ
}


@dataclass(frozen=True)
class Outcome:
    """How a command ended. Bytes that are not UTF-8 are kept as lone surrogates."""

    exit: int
    out: str
    err: str

    @classmethod
    def of(cls, exit: int, out: bytes | None, err: bytes | None) -> Outcome:
        return cls(exit, *((said or b"").decode("utf-8", "surrogateescape") for said in (out, err)))


def run_here(arguments: Sequence[str], stdin: bytes | str, environment: Mapping[str, str]) -> Outcome:
    """Run a command in this process and the current folder, and return how it ended.

    A bug raises its exception.
    """
    with CliRunner().isolation(stdin, environment) as (out, err, *_):
        code: object = None
        try:
            PROGRAM.main(arguments, prog_name="crnr")
        except SystemExit as e:
            code = e.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        assert isinstance(code, int)
        return Outcome.of(code, out.getvalue(), err.getvalue())


class Runner:
    """crnr in the folder `here`."""

    def __init__(self, here: Path) -> None:
        self.here = here

    def __call__(self, *arguments: object, stdin: bytes | str = b"", columns: int = 200) -> Outcome:
        """Run a command in this process, on a screen of this width. A bug raises its exception."""
        environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
        with contextlib.chdir(self.here):
            return run_here([str(part) for part in arguments], stdin, environment)

    def start(
        self, *arguments: object, program: Sequence[str] = CRNR, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command as a process, with options of Popen: for signals, pipes and permissions.

        Its pipes have no buffers: `communicate` does not return what was buffered when a line was read.
        """
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [*program, *(str(argument) for argument in arguments)]
        return subprocess.Popen(command, **{"bufsize": 0, "cwd": self.here, **streams, **options})

    def process(self, *arguments: object, **options: Any) -> Outcome:
        """Run a command as a process to its end."""
        return ended(self.start(*arguments, **options))

    def bash(self, script: str, environment: Mapping[str, str] = os.environ) -> Outcome:
        """Run a script in which crnr is a command; any part of it that fails ends it."""
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # pip puts crnr next to Python
        command = ("bash", "-euo", "pipefail", "-c", script)
        return ended(self.start(program=command, env={**environment, "PATH": programs}))

    def files(self) -> set[str]:
        """Return the names in the folder itself."""
        return {path.name for path in self.here.iterdir()}


def ended(process: subprocess.Popen[bytes]) -> Outcome:
    """Wait for a process, but not for ever."""
    out, err = process.communicate(timeout=600)
    return Outcome.of(process.returncode, out, err)


def helper_command(module: str) -> tuple[str, ...]:
    """Return the program that runs a module of tests/helpers, in any folder."""
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(TESTS)!r}); "
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return sys.executable, "-c", code


def quoted(word: str) -> str:
    """Return a word in the quotes that commands in messages have on this system."""
    return f'"{word}"' if sys.platform == "win32" else f"'{word}'"


def split_command(line: str) -> list[str]:
    """Return the words of a command in a message."""
    return shlex.split(line.replace("\\", "\\\\") if sys.platform == "win32" else line)


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a CSV."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    return rows(path.read_bytes().decode("utf-8", "surrogateescape"))


def assert_same_rows(found: list[dict[str, str]], expected: list[dict[str, str]]) -> None:
    """Compare rows; numbers may differ in their last digits, which depend on a query's place in its batch."""
    assert [_numbers(row) for row in found] == [pytest.approx(_numbers(row), abs=1e-5) for row in expected]


def _numbers(row: dict[str, str]) -> dict[str, str | float]:
    return {name: float(text) if re.fullmatch(r"\d+\.\d+", text) else text for name, text in row.items()}


@contextlib.contextmanager
def powerless() -> Iterator[None]:
    """Let file permissions apply to this thread, even if we are root."""
    libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    before, after = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    if os.getuid() != 0 or libc.capget(header, before) != 0:
        yield
        return
    after[:] = before[:]
    after[0] &= ~0b110  # to read and write whatever the permissions say
    assert libc.capset(header, after) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0


def without_root() -> dict[str, Any]:
    """Options of a process that file permissions apply to, even if we are root."""

    def drop_capabilities() -> None:
        for capability in (1, 2):  # to read and write whatever the permissions say
            if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                raise OSError("cannot drop root's capabilities")

    return {"preexec_fn": drop_capabilities} if os.getuid() == 0 else {"start_new_session": True}
