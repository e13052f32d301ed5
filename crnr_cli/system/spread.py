"""Independent pieces of work, done one after the other, in threads, or by other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Protocol, TypeVar

from crnr_cli.system.cores import side_by_side

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


class Spread(Protocol):
    def __call__(
        self, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        """Yield (item, work(shared, item)) in order. Items are taken only when a worker is free.

        `work` must be a module-level function; `shared` is sent to each worker once.
        """


def in_threads(count: int) -> Spread:
    """Do the work in this process, up to `count` pieces at a time."""

    def spread(
        work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        pieces = side_by_side(lambda item: (item, work(shared, item)), items, count, ahead=0, wait=False)
        with closing(pieces) as done:
            yield from done

    return spread


def here(
    work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
) -> Iterator[tuple[Item, Result]]:
    """Do the work in this process."""
    for item in items:
        yield item, work(shared, item)
