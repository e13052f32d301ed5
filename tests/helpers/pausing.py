"""crnr, pausing in its third batch or before its third move; run as a process: UNTIL, then crnr's arguments.

UNTIL is `signal` or `never`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

from crnr_cli.cli import main
from helpers.patches import pause_in_batch, pause_in_move
from helpers.runner import Runner, helper_command


def start_pausing(
    crnr: Runner, command: str, until: str = "never", **options: Any
) -> subprocess.Popen[bytes]:
    """Start classify or sort; returns when it pauses."""
    process = crnr.start(until, *command.split(), program=helper_command("helpers.pausing"), **options)
    assert process.stderr is not None
    assert process.stderr.readline() == b"begun\n", process.stderr.read()
    return process


def send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process that pauses; returns when crnr has handled it, and goes on."""
    process.send_signal(number)
    assert process.stderr is not None
    assert process.stderr.readline() == b"received\n"


if __name__ == "__main__":
    until = sys.argv.pop(1)
    pause_in_batch(2, until, setattr)
    pause_in_move(2, until, setattr)
    main()
