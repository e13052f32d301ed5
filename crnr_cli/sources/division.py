"""Which samples of every class go to the gallery, and which are kept as queries.

The choice depends on the seed and on the names of the samples alone: not on the order of the listing, nor on
the machine. Samples of one group, such as exact copies of a picture, stay together.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from crnr_cli.errors import DataError
from crnr_cli.progress import Progress, silent
from crnr_cli.system.files import sha256_of
from crnr_cli.system.names import composed

_REPORTED_EVERY = 200  # files


@dataclass(frozen=True)
class Portion:
    """How many samples of a class go to the gallery: a share, or a number."""

    share: float = 0.8
    per_class: int | None = None

    def of(self, count: int) -> int:
        """At least one and, where there are several, not all."""
        wanted = int(self.share * count + 0.5) if self.per_class is None else self.per_class
        return max(1, min(wanted, count - 1))


def in_gallery(
    names: Sequence[tuple[str, str]], groups: Sequence[Hashable], portion: Portion, seed: int
) -> list[bool]:
    """Whether each sample, by its class and its name there, goes to the gallery.

    The groups are gone through in an order that the seed decides. Each goes to the gallery if all its classes
    still have room there. A class that would not be in the gallery at all gets its first group.
    """
    keys = [_key(seed, label, name) for label, name in names]
    members: dict[Hashable, list[int]] = {}
    for i in sorted(range(len(names)), key=keys.__getitem__):
        members.setdefault(groups[i], []).append(i)
    room = {label: portion.of(count) for label, count in Counter(label for label, _ in names).items()}
    chosen: set[Hashable] = set()
    present: set[str] = set()
    for group, samples in members.items():
        needed = Counter(names[i][0] for i in samples)
        if all(room[label] >= count for label, count in needed.items()):
            chosen.add(group)
            present.update(needed)
            for label, count in needed.items():
                room[label] -= count
    for group, samples in members.items():
        labels = {names[i][0] for i in samples}
        if not labels <= present and group not in chosen:
            chosen.add(group)
            present |= labels
    return [group in chosen for group in groups]


def by_content(files: Sequence[tuple[str, int]], progress: Progress = silent) -> list[Hashable]:
    """A group for every file, by its path and size: that of its bytes. Only files of one size are read."""
    sizes = Counter(size for _, size in files)
    groups: list[Hashable] = []
    for number, (path, size) in enumerate(files, 1):
        group: Hashable = number
        if sizes[size] > 1:
            try:
                group = sha256_of(path)
            except OSError as e:
                raise DataError(f"{path}: cannot read it ({e.strerror})") from e
        groups.append(group)
        if number % _REPORTED_EVERY == 0 or number == len(files):
            progress("looking for copies", number, len(files))
    return groups


def _key(seed: int, label: str, name: str) -> bytes:
    """A name can have two Unicode forms, as file systems differ."""
    text = composed(f"{seed}\0{label}\0{name}")
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
