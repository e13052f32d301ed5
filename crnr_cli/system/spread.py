"""Independent pieces of work, done one after the other in this process, or in parallel elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

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


def here(
    work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
) -> Iterator[tuple[Item, Result]]:
    """Do the work in this process."""
    for item in items:
        yield item, work(shared, item)
