"""A decoder process that crashes or hangs on images whose names say so.

An argument, if given, is for how many seconds it may hold back answers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from crnr_cli.images import decoder_process
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest, Pixels


def read_badly(path: str, form: PixelRequest) -> Pixels:
    name = Path(path).name
    if name.startswith("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if name.startswith("hang"):
        time.sleep(600)  # until the parent ends it
    if name.startswith("hungry"):
        found = b"x" * 2**28
        time.sleep(600 if found else 0)
    if name.startswith("exit"):
        os._exit(7)
    return read_pixels(path, form)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        decoder_process.SECONDS_HELD_BACK = float(sys.argv[1])
    decoder_process.read_pixels = read_badly  # type: ignore[attr-defined]
    decoder_process.decode_requests()
