"""Independent pieces of work, done in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TypeVar

from crnr_cli.system.cores import side_by_side

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


def spread_over_threads(
    count: int, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
) -> Iterator[tuple[Item, Result]]:
    """Yield (item, work(shared, item)) in order; up to `count` pieces of work run at a time.

    Items are taken only when a thread is free.
    """
    pieces = side_by_side(lambda item: (item, work(shared, item)), items, count, ahead=0, wait=False)
    with closing(pieces) as done:
        yield from done
