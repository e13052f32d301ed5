"""A decoder process that crashes or hangs on pictures whose names say so."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from crnr_cli.pictures import decoder_process
from crnr_cli.pictures.decode import read_pixels
from crnr_cli.pictures.pixels import Form, Pixels


def read_badly(path: str, form: Form) -> Pixels:
    if Path(path).name.startswith("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if Path(path).name.startswith("hang"):
        time.sleep(600)
    if Path(path).name.startswith("exit"):
        os._exit(7)
    return read_pixels(path, form)


decoder_process.read_pixels = read_badly  # type: ignore[attr-defined]
decoder_process.main()
