"""What tests on a Dask cluster share. Workers import this module, which a test module they could not."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import numpy as np
import pytest

from crnr_cli.progress import Progress
from helpers.runner import rows

if TYPE_CHECKING:
    from crnr_cli.cluster.dask import Cluster

# For tests with the fixture `address`: Dask's own threads and sockets may outlive a test by a moment.
CLUSTER = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def assert_same_rows(text: str, expected_text: str, paths: list[str]) -> None:
    """Every query once, in order; labels equal, residuals to 1e-6: rounding varies with the batch."""
    found, expected = (rows(some) for some in (text, expected_text))
    assert [row["path"] for row in found] == [row["path"] for row in expected] == paths
    assert [row["label"] for row in found] == [row["label"] for row in expected]
    for name in ("residual", "residual:cat", "residual:dog", "residual:owl"):
        np.testing.assert_allclose(
            [float(row[name]) for row in found], [float(row[name]) for row in expected], atol=1e-6
        )


def count_calls(shared: dict[str, int], item: int) -> tuple[int, int]:
    shared["calls"] += 1
    return os.getpid(), shared["calls"]


def killer(cluster: Cluster, step: str) -> tuple[list[int], Progress]:
    """Return a progress that kills one of the workers in the middle of the step, and whom it killed."""
    cluster._client.wait_for_workers(2, timeout=60)  # another test may have killed one
    workers = cluster._client.run(os.getpid)
    assert len(set(workers.values()) - {os.getpid()}) == 2
    killed: list[int] = []

    def kill_one(name: str, done: int, total: int) -> None:
        if name == step and total // 4 < done < total and not killed:
            killed.append(next(iter(workers.values())))
            os.kill(killed[0], signal.SIGKILL)

    return killed, kill_one
