"""The option --dask: how commands connect to a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from crnr_cli.cli.console import say
from crnr_cli.errors import UsageError
from crnr_cli.sources.readers import is_table
from crnr_cli.wording import counted

if TYPE_CHECKING:
    from crnr_cli.cluster.dask import Cluster
    from crnr_cli.gallery.samples import Reading
    from crnr_cli.system.spread import Spread


@contextmanager
def joined(where: str | None, quiet: bool) -> Iterator[Cluster | None]:
    """Connect to the cluster and print its size and dashboard; None if --dask was not given."""
    if where is None:
        yield None
        return
    from crnr_cli.cluster.dask import connected

    with connected(where) as cluster:
        if not quiet:
            say(f"{counted(cluster.n_workers, 'worker')}; dashboard: {cluster.dashboard}")
        yield cluster


@contextmanager
def spreading(where: str | None, quiet: bool, jobs: int) -> Iterator[Spread]:
    """Spread work over the workers of the cluster or, if there is no --dask, over threads of this process."""
    from crnr_cli.system.cores import pieces_at_once
    from crnr_cli.system.spread import in_threads

    with joined(where, quiet) as cluster:
        yield cluster.spread if cluster else in_threads(pieces_at_once(jobs))


@contextmanager
def read_by(where: str | None, quiet: bool, sources: Sequence[str], reading: Reading) -> Iterator[Reading]:
    """How samples are read: by the workers of the cluster or, if there is no --dask, by this process."""
    if where is not None and all(map(is_table, sources)):
        raise UsageError(
            "--dask is for pictures, which the workers read, but these are features; leave it out"
        )
    with joined(where, quiet) as cluster:
        if cluster is None:
            yield reading
            return
        from crnr_cli.cluster.list import lister
        from crnr_cli.cluster.read import ReadOnCluster

        yield replace(reading, reader=ReadOnCluster(cluster), lister=lister(cluster))
