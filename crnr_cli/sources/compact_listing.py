"""The files of an image listing: single entries, or packed as text.

Text is sent, hashed and kept without unpacking the files, of which there may be millions.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate, islice
from typing import Any, NamedTuple, overload

from crnr_cli.arrays import Stamp
from crnr_cli.errors import SampleError
from crnr_cli.records import dataclass

PER_BLOCK = 1024  # files


class ImageFile(NamedTuple):  # faster to create than a dataclass: there may be millions
    """One file of a listing. `folders` are the candidates for its class, the best first."""

    path: str
    folders: tuple[str, ...]
    size: int = 0
    mtime_ns: int = 0
    error: SampleError | None = None  # found while listing; the file is then not opened

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.size, self.mtime_ns)


def to_json_text(entries: Sequence[tuple[Any, ...]]) -> bytes:
    """Return entries of a listing as JSON, each with a comma at its end, so that texts can be joined."""
    return (json.dumps(entries)[1:-1] + ", ").encode() if entries else b""


def to_json_texts(entries: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    remaining = iter(entries)
    while some := list(islice(remaining, PER_BLOCK)):
        yield to_json_text(some)


@dataclass(frozen=True)
class ListingBlock:
    """Consecutive files of a listing as text."""

    text: bytes
    count: int
    errors: Mapping[int, SampleError] = field(default_factory=dict)  # by the place of the file in the block

    @classmethod
    def of(cls, files: Sequence[ImageFile]) -> ListingBlock:
        errors = {place: file.error for place, file in enumerate(files) if file.error}
        return cls(to_json_text([file[:4] for file in files]), len(files), errors)

    def __len__(self) -> int:
        return self.count

    def files(self) -> list[ImageFile]:
        entries = json.loads(b"[" + self.text[:-2] + b"]")
        found = [ImageFile(path, tuple(folders), *stamp) for path, folders, *stamp in entries]
        for place, error in self.errors.items():
            found[place] = found[place]._replace(error=error)
        return found


class CompactListing(Sequence[ImageFile]):
    """Files that are unpacked on access, a block at a time."""

    def __init__(
        self, blocks: Sequence[ListingBlock | list[ImageFile]], span: tuple[int, int] | None = None
    ) -> None:
        """Take all files of the blocks, or a span of them."""
        self.blocks = blocks
        self._edges = list(accumulate(map(len, blocks), initial=0))  # where each block begins
        self._span = span or (0, self._edges[-1])
        self._last: tuple[int, list[ImageFile]] = (-1, [])  # the block that was unpacked last

    def __len__(self) -> int:
        return self._span[1] - self._span[0]

    @overload
    def __getitem__(self, index: int) -> ImageFile: ...
    @overload
    def __getitem__(self, index: slice) -> list[ImageFile]: ...
    def __getitem__(self, index: int | slice) -> ImageFile | list[ImageFile]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return list(self._between(start, stop))[::step] if step > 0 else list(self)[index]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        (file,) = self._between(index % len(self), index % len(self) + 1)
        return file

    def __iter__(self) -> Iterator[ImageFile]:
        return self._between(0, len(self))

    def cut(self, start: int, stop: int) -> CompactListing:
        """Return a span of the files, with no more blocks than it needs."""
        start, stop = self._span[0] + start, self._span[0] + stop
        first, end = bisect_right(self._edges, start) - 1, bisect_right(self._edges, stop - 1)
        before = self._edges[first]
        blocks = [
            block if isinstance(block, ListingBlock) else ListingBlock.of(block)
            for block in self.blocks[first:end]
        ]
        return CompactListing(blocks, (start - before, stop - before))

    def texts(self) -> Iterator[bytes]:
        """Yield the JSON text of all files, in pieces to join."""
        if self._span != (0, self._edges[-1]):
            yield from to_json_texts(file[:4] for file in self)
            return
        for block in self.blocks:
            if isinstance(block, ListingBlock):
                yield block.text
            else:
                yield from to_json_texts(file[:4] for file in block)

    def _between(self, start: int, stop: int) -> Iterator[ImageFile]:
        start, stop = self._span[0] + start, self._span[0] + stop
        number = bisect_right(self._edges, start) - 1
        while start < stop:
            files, before = self._unpack(number), self._edges[number]
            yield from files[start - before : stop - before]
            number += 1
            start = self._edges[number]

    def _unpack(self, number: int) -> list[ImageFile]:
        block = self.blocks[number]
        if not isinstance(block, ListingBlock):
            return block
        if self._last[0] != number:
            self._last = (number, block.files())
        return self._last[1]
