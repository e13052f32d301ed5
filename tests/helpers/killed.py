"""crnr extract that is killed when it keeps a batch; run as a process: WHEN, then crnr's arguments.

WHEN is `before` a second batch is kept, `between` its values and its line in the journal, or `after` a batch.
With `waits`, it reports its start, and waits to be killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from crnr_cli.cli import main
from crnr_cli.results.journal import Journal


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    when = sys.argv.pop(1)
    add = Journal.add

    def killed(self: Journal, data: bytes, record: Mapping[str, Any]) -> None:
        if when == "waits":
            sys.stderr.write("begun\n")
            sys.stderr.flush()
            sys.stdin.read()  # which the test does not close before
        if when == "before" and self.size:
            die()
        if when == "between" and self.size:
            self._file.write(data)
            self._file.flush()
            die()
        add(self, data, record)
        if when == "after":
            die()

    Journal.add = killed  # type: ignore[method-assign]
    main()
