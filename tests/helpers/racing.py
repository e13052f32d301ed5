"""Another process that is faster."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def make_first(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object] = lambda: None) -> None:
    """Let another process make each folder right before we do, and then do something."""
    make = Path.mkdir

    def mkdir(folder: Path, *arguments: Any, **options: Any) -> None:
        if not folder.exists():
            os.mkdir(folder)  # noqa: PTH102
            then()
        make(folder, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
