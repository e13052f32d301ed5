"""The option --dask: run the work of a command in this process, or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crnr_cli.cli.console import say
from crnr_cli.errors import UsageError
from crnr_cli.images.pool import DecoderPool
from crnr_cli.sources.formats import is_table
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.gallery.workers import Workers


@contextmanager
def workers(
    where: str | None,
    quiet: bool,
    jobs: int | None,
    *,
    gallery: Path | None = None,
    decoders: DecoderPool | None = None,
) -> Iterator[Workers]:
    """Connect to the cluster, and print its size and dashboard; without --dask, this process does the work.

    The workers of a cluster classify by the `gallery`. This process uses the `decoders`, if there are some.
    """
    if where is None:
        from crnr_cli.gallery.workers import Here

        yield Here(decoders or DecoderPool(jobs))
        return
    from crnr_cli.cluster.dask import connected
    from crnr_cli.cluster.work import OnCluster

    with connected(where) as cluster:
        if not quiet:
            say(f"{format_count(cluster.n_workers, 'worker')}; dashboard: {cluster.dashboard}")
        yield OnCluster(cluster, gallery)


def refuse_features(where: str | None, sources: Sequence[str]) -> None:
    """Refuse --dask for feature files: reading them is faster than sending them."""
    if where is not None and sources and all(map(is_table, sources)):
        raise UsageError(
            "--dask only applies to images, which the workers read; leave it out for feature files"
        )
