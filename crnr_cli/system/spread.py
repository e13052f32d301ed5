"""Independent pieces of work: done here one after the other, or elsewhere at the same time."""

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
        """Each item with `work(shared, item)`, in the order of the items, which are taken when there is
        somebody to do them. `work` is a function of a module, and what it shares is sent once."""


def here(
    work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
) -> Iterator[tuple[Item, Result]]:
    """In this process."""
    for item in items:
        yield item, work(shared, item)
