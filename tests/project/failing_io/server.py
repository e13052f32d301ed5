"""Runs crnr again and again, each time in a fork that fails at another call. See ../test_failing_io.py.

A line of JSON on stdin asks for one run; a line of JSON on stdout reports how it ended. Forking saves the
second that Python and NumPy take to start.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import tempfile
from pathlib import Path

import crnr_cli.cli
import crnr_cli.jobs.build
import crnr_cli.jobs.evaluate
import crnr_cli.jobs.sort
import crnr_cli.jobs.split
import crnr_cli.jobs.update
from helpers.runner import Runner

shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
shim.failing_io_calls.restype = ctypes.c_long
shim.failing_io_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]


def run(folder: str, args: list[str], fail_at: int, fail_with: int, errors: int) -> None:
    os.chdir(folder)
    os.dup2(errors, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    few = ["--batch-size", "2"] if args[0] == "classify" else []
    sys.argv = ["crnr", *args, *few]
    shim.failing_io_names(args[0] in ("sort", "split"))  # whose results are names
    shim.failing_io_arm(os.fsencode(folder), fail_at, fail_with)
    code = 70
    try:
        crnr_cli.cli.main()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 0
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    shim.failing_io_share()
    # Late imports happen now.
    Runner(Path.cwd())("info", "nowhere")
    gc.freeze()
    for line in sys.stdin:
        with tempfile.TemporaryFile() as errors:
            request = json.loads(line)
            child = os.fork()
            if child == 0:
                run(**request, errors=errors.fileno())
            _, status = os.waitpid(child, 0)
            errors.seek(0)
            answer = {
                "exit": os.waitstatus_to_exitcode(status),
                "err": errors.read().decode(),
                "calls": shim.failing_io_calls(),
            }
        print(json.dumps(answer), flush=True)  # noqa: T201, it is how we answer


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
