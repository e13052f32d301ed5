"""Let one operation on files fail, or the process be killed there."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from crnr_cli.sorting import placing
from crnr_cli.system import descriptors

PRIMITIVES = ("rename_new", "link_new", "symlink_new", "_new_part")
COPYING = ("copy_bytes", "copy_status")
OPERATIONS = ("unlink", "mkdir", "link", "symlink", "fsync", "rmdir", "makedirs")


class Killed(BaseException):
    """Nothing after it is done, not even what cleans up."""


def fail_at(number: int, error: type[BaseException], patch: pytest.MonkeyPatch) -> list[int]:
    """Let operation number / 2 fail. Odd numbers let it be done and then killed; an error has only even ones.

    The list has the number of operations so far.
    """
    calls = [0]

    def failing(function: Any) -> Any:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if error is Killed and 0 < number <= 2 * calls[0]:
                raise error  # the process is gone
            calls[0] += 1
            if number == 2 * calls[0]:
                raise error(errno.EIO, "broken") if error is OSError else error
            result = function(*arguments, **named)
            if number == 2 * calls[0] + 1 and error is Killed:
                calls[0] += 1
                raise error
            return result

        return wrapper

    for name in PRIMITIVES:
        patch.setattr(placing, name, failing(getattr(placing, name)))
    for name in COPYING:
        patch.setattr(descriptors, name, failing(getattr(descriptors, name)))
    for name in OPERATIONS:
        patch.setattr(placing.os, name, failing(getattr(os, name)))
    return calls
