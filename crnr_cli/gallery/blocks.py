"""Checksums of the blocks of a large array, so that an array that is mapped from a file can be checked.

docs/gallery-format.md defines them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.system.cores import available_cores, side_by_side

BLOCK = 2**20  # bytes
_AT_ONCE = 2**26  # bytes that one thread hashes before it returns


def block_digests(array: Array) -> Array:
    """(blocks, 32): the SHA-256 of each successive block of the values in C order; none if it is empty."""
    values = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
    parts = (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))
    if len(values) <= _AT_ONCE:
        return np.concatenate([np.empty((0, 32), np.uint8), *map(_digests, parts)])
    # Hashing releases the lock of the interpreter, so that threads run on as many cores.
    return np.concatenate(list(side_by_side(_digests, parts, available_cores())))


def _digests(values: Array) -> Array:
    found = b"".join(hashlib.sha256(block.data).digest() for block in _blocks(values))
    return np.frombuffer(found, np.uint8).reshape(-1, 32)


def _blocks(values: Array) -> Iterator[Array]:
    for start in range(0, len(values), BLOCK):
        yield values[start : start + BLOCK]
