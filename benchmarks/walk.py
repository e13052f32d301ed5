"""The walk of the data: the files that a reader visits who follows one query or one gallery through the code.

    python benchmarks/walk.py

Every function of the package that runs is noted when it is first called, in order. `files` is the number of
files that these functions are in; `changes` counts how often the next function is in another file. `rooms`
and `changes of room` count the folders of the package likewise. The data path lacks `cli/` and `system/`.
What runs in decoder processes, or while a module is imported, is not seen; nor are the methods that all
dataclasses share.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pkgutil
import sys
import tempfile
import threading
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import FrameType

import crnr_cli
from crnr_cli.cli import main as run_command

PACKAGE = Path(crnr_cli.__file__).parent
SAMPLE_DATA = Path(__file__).resolve().parent.parent / "sample_data"
BESIDE_THE_DATA = ("cli", "system")  # rooms
DATACLASSES = str(PACKAGE / "records.py")


def import_everything() -> None:
    """Import all modules, so that no import is part of a walk."""
    for module in pkgutil.walk_packages(crnr_cli.__path__, "crnr_cli."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of an optional package
                import_module(module.name)


class Steps(threading.local):
    """The functions that one thread calls, in the order of the first calls."""

    def __init__(self, threads: list[dict[tuple[str, str], None]]) -> None:
        self.seen: dict[tuple[str, str], None] = {}
        threads.append(self.seen)


def walk(*arguments: str) -> list[str]:
    """Return the file of every function that the command calls, in the order of the first calls.

    One thread comes after the other, by name of its first function, so that the order is always the same.
    """
    threads: list[dict[tuple[str, str], None]] = []
    steps = Steps(threads)

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")
        file = code.co_filename
        is_ours = file.startswith(str(PACKAGE)) and file != DATACLASSES
        if event == "call" and is_function and is_ours:
            steps.seen[code.co_filename, code.co_qualname] = None

    sys.argv = ["crnr", *arguments]
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        with contextlib.suppress(SystemExit):
            run_command()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    main_thread, *others = threads
    others.sort(key=lambda functions: next(iter(functions)))
    found = dict.fromkeys(function for functions in (main_thread, *others) for function in functions)
    return [Path(file).relative_to(PACKAGE).as_posix() for file, _ in found]


def room_of(file: str) -> str:
    return file.split("/")[0]


def data_path(files: list[str]) -> list[str]:
    return [file for file in files if room_of(file) not in BESIDE_THE_DATA]


def report(what: str, files: list[str]) -> None:
    rooms = [room_of(file) for file in files]
    changes, moves = (sum(a != b for a, b in pairwise(each)) for each in (files, rooms))
    print(
        f"{what}: {len(set(files))} files, {changes} changes; "
        f"{len(set(rooms))} rooms, {moves} changes of room; {len(files)} functions"
    )


def main() -> None:
    import_everything()
    query = str(next((SAMPLE_DATA / "queries" / "3").iterdir()))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        gallery = walk("build", str(SAMPLE_DATA / "gallery"), "-q", "--jobs", "1")
        files = walk("classify", query, "-o", "out.csv", "-q", "--jobs", "1")
        os.chdir(PACKAGE)  # Windows removes no current folder
    for what, found in (("one query", files), ("one gallery", gallery)):
        report(f"{what}, data path", data_path(found))
        report(f"{what}, everything", found)


if __name__ == "__main__":
    main()
