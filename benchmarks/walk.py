"""The walk of the data: the files that a reader visits who follows one query or one gallery through the code.

    python benchmarks/walk.py

Every function of the package that runs is noted when it is first called, in order. `files` is the number of
files that these functions are in; `changes` counts how often the next function is in another file. `rooms`
and `changes of room` count the folders of the package likewise. What runs in decoder processes is not seen.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import tempfile
import threading
from itertools import pairwise
from pathlib import Path
from types import FrameType

import crnr_cli
from crnr_cli.cli import main as run_command

PACKAGE = Path(crnr_cli.__file__).parent
SAMPLE_DATA = Path(__file__).resolve().parent.parent / "sample_data"


def walk(*arguments: str) -> list[str]:
    """The file of every function that the command calls, in the order of the first calls."""
    seen: set[tuple[str, str]] = set()
    files: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(str(PACKAGE)):
            where = (code.co_filename, code.co_qualname)
            if where not in seen:
                seen.add(where)
                files.append(str(Path(code.co_filename).relative_to(PACKAGE)))

    sys.argv = ["crnr", *arguments]
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        with contextlib.suppress(SystemExit):
            run_command()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return files


def report(what: str, files: list[str]) -> None:
    rooms = [file.split("/")[0] for file in files]
    changes, moves = (sum(a != b for a, b in pairwise(each)) for each in (files, rooms))
    print(
        f"{what}: {len(set(files))} files, {changes} changes; "
        f"{len(set(rooms))} rooms, {moves} changes of room; {len(files)} functions"
    )


def main() -> None:
    query = str(next((SAMPLE_DATA / "queries" / "3").iterdir()))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        gallery = walk("build", str(SAMPLE_DATA / "gallery"), "-q", "--jobs", "1")
        report("one query", walk("classify", query, "-o", "out.csv", "-q", "--jobs", "1"))
        report("one gallery", gallery)


if __name__ == "__main__":
    main()
