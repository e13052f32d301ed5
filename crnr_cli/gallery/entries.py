"""The samples of a gallery as single entries, and what changed between two lists of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError
from crnr_cli.gallery.gallery import Gallery


@dataclass(frozen=True)
class Changes:
    """Names of samples, by what happened to them."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # in content or class
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0  # only counted


@dataclass(frozen=True)
class Entry:
    name: str
    label: str
    sha256: str
    stamp: Stamp
    vector: Array

    def is_same(self, other: Entry) -> bool:
        return (self.label, self.sha256) == (other.label, other.sha256)


def entries_of(gallery: Gallery) -> Iterator[Entry]:
    labels = np.array(gallery.classes, dtype=object)[gallery.samples.class_index]
    stamps = gallery.stamps or [Stamp()] * len(gallery.names)
    columns = zip(
        gallery.names, labels.tolist(), gallery.hashes, stamps, gallery.samples.vectors, strict=True
    )
    return (Entry(*column) for column in columns)


def by_name(samples: Iterable[Entry]) -> dict[str, Entry]:
    """Samples by name. Two different samples of one name are refused, as one of them would be lost."""
    found: dict[str, Entry] = {}
    for sample in samples:
        if not sample.is_same(found.setdefault(sample.name, sample)):
            raise DataError(
                f"two different samples are called {sample.name}; give them different names, or build "
                "the gallery again from all its sources"
            )
    return found


def compared(old: Iterable[Entry], new: Iterable[Entry]) -> Changes:
    before = {sample.name: sample for sample in old}
    after = {sample.name: sample for sample in new}
    both = before.keys() & after.keys()
    changed = [name for name in after if name in both and not after[name].is_same(before[name])]
    return Changes(
        added=[name for name in after if name not in both],
        changed=changed,
        removed=[name for name in before if name not in both],
        unchanged=len(both) - len(changed),
    )
