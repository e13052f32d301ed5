"""Group images into events: bursts of photographs that a camera took of one scene."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.images.regions import parse_region


def group_by_gap(names: Sequence[str], dates: Iterable[str], gap: float) -> Array:
    """Return (n,): the event of every input, numbered from 1 in the order of the first inputs.

    In a folder, an image belongs to the event of the image before it in time, if both were taken within
    `gap` seconds. Regions of one image belong together. An image without a date is an event of its own, and
    times with a time zone are not compared with times without.
    """
    from datetime import UTC, datetime  # only if dates are wanted

    image_numbers, images = _number_images(names)
    seconds = [0.0] * len(images)
    clock_of = [-1] * len(images)
    numbers: dict[tuple[str, bool], int] = {}
    for image, date in zip(image_numbers.tolist(), dates, strict=True):
        if date and clock_of[image] < 0:
            time = datetime.fromisoformat(date)
            clock = images[image].rpartition("/")[0], time.tzinfo is not None
            seconds[image] = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
            clock_of[image] = numbers.setdefault(clock, len(numbers))
    times = np.array(seconds)
    clocks = np.array(clock_of, dtype=np.int64)  # the folder, and whether its times have a time zone
    order = np.lexsort((times, clocks))
    order = order[clocks[order] >= 0]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(clocks[order]) != 0) | (np.diff(times[order]) > gap)
    first_of = np.arange(len(images))  # of the event of each image
    first_of[order] = order[is_first][np.cumsum(is_first) - 1]
    return number_in_order(first_of[image_numbers].tolist())


def group_by_key(names: Sequence[str], find_key: Callable[[str], str | None]) -> Array:
    """Return (n,): the event of every input, by the key of its image; images without a key are alone."""
    image_numbers, images = _number_images(names)
    keys = [(key, 0) if (key := find_key(image)) else ("", place) for place, image in enumerate(images, 1)]
    return number_in_order(keys[image] for image in image_numbers.tolist())


def join_groups(one: Iterable[Hashable], other: Iterable[Hashable]) -> Array:
    """Return (n,): the group of every entry, if entries belong together that one of two groupings joins.

    The number of a group is the place of its first entry.
    """
    first: dict[tuple[int, Hashable], int] = {}
    parents: list[int] = []  # an earlier entry of the same group, or the entry itself

    def root(i: int) -> int:
        while parents[i] != i:
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    for i, groups in enumerate(zip(one, other, strict=True)):
        parents.append(i)
        for group in enumerate(groups):
            ends = root(i), root(first.setdefault(group, i))
            parents[max(ends)] = min(ends)
    return np.array([root(i) for i in range(len(parents))], dtype=np.int64)


def number_in_order(groups: Iterable[Hashable]) -> Array:
    """Return (n,): the number of every entry's group, from 1 in the order of the first entries."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers) + 1) for group in groups], dtype=np.int64)


def _number_images(names: Sequence[str]) -> tuple[Array, list[str]]:
    """Return (n,): the number of every input's image, from 0; and the paths of the images."""
    numbers: dict[str, int] = {}
    found = [
        numbers.setdefault(region.path if (region := parse_region(name)) else name, len(numbers))
        for name in names
    ]
    return np.array(found, dtype=np.int64), list(numbers)
