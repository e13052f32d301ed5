"""The option --dask: how commands find their cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from crnr_cli.cli.console import say

if TYPE_CHECKING:
    from crnr_cli.cluster.dask import Cluster
    from crnr_cli.system.spread import Spread


@contextmanager
def joined(where: str | None, quiet: bool) -> Iterator[Cluster | None]:
    """The cluster, after printing its size and dashboard; None if none was requested."""
    if where is None:
        yield None
        return
    from crnr_cli.cluster.dask import connected

    with connected(where) as cluster:
        if not quiet:
            say(f"{cluster.n_workers} workers; dashboard: {cluster.dashboard}")
        yield cluster


@contextmanager
def spreading(where: str | None, quiet: bool) -> Iterator[Spread]:
    """Work is spread over the workers of the cluster, or done in this process."""
    from crnr_cli.system.spread import here

    with joined(where, quiet) as cluster:
        yield cluster.spread if cluster else here
