"""crnr, pausing in the third batch; run as a process: SECONDS, then crnr's arguments."""

from __future__ import annotations

import subprocess
import sys

from crnr_cli.cli import main
from helpers.patches import pause_in_batch
from helpers.runner import Runner, helper_command


def start_pausing(crnr: Runner, seconds: float, command: str) -> subprocess.Popen[bytes]:
    """Start a command of classify; returns when it is in its third batch, which takes so long."""
    process = crnr.start(seconds, *command.split(), program=helper_command("helpers.pausing"))
    assert process.stderr is not None
    assert process.stderr.readline() == b"begun\n"
    return process


if __name__ == "__main__":
    pause_in_batch(2, float(sys.argv.pop(1)), setattr)
    main()
