from __future__ import annotations

import os
from pathlib import Path

import pytest

# Tests, and the processes they start, run side by side; more threads of each would only fight for the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from shell import Shell


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="Fail every I/O call, not some.")
    parser.addoption(
        "--mutations", type=int, default=2400, metavar="N", help="How many damaged files to open, in all."
    )
    parser.addoption(
        "--update-docs", action="store_true", help="Write docs/faults.md anew from what the tests see."
    )


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full"))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """crnr in an empty folder, which is also the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRNR_GALLERY", raising=False)
    return Shell(tmp_path)
