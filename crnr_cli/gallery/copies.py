"""Copies of samples: within a gallery, and test samples that are in the gallery too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array, Batch
from crnr_cli.gallery.columns import SampleTable
from crnr_cli.sources.tables import row_hash
from crnr_cli.wording import Note, are, counted

_TOLERANCE = 1e-5  # between unit vectors of the same picture, which are rounded differently in other batches


@dataclass(frozen=True)
class KnownSamples:
    """The samples of a gallery, to look up others in.

    Rows of features are the same if their hashes are. Pictures are the same if their vectors are, as a copy
    in another file format has another hash. Vectors can be equal only if their projections on a line are.
    """

    hashes: frozenset[str]
    vectors: Array | None  # (n, d); None for features
    line: Array  # (d,)
    order: Array  # the samples, sorted by their projection
    projections: Array  # ascending

    @classmethod
    def of(cls, kind: str, hashes: Sequence[str], vectors: Array) -> KnownSamples:
        line: Array = np.random.default_rng(0).standard_normal((vectors.shape[1],)).astype(vectors.dtype)
        line /= np.linalg.norm(line)
        projections = vectors @ line
        order = np.argsort(projections)
        return cls(
            frozenset(hashes), vectors if kind == "pictures" else None, line, order, projections[order]
        )

    def among(self, hashes: Sequence[str], vectors: Array) -> Array:
        """A mask of the samples, with these hashes and unit vectors, that are in the gallery."""
        found = np.array([name in self.hashes for name in hashes], dtype=bool)
        if self.vectors is None:
            return found
        places = vectors @ self.line
        first = np.searchsorted(self.projections, places - 2 * _TOLERANCE, side="left")
        last = np.searchsorted(self.projections, places + 2 * _TOLERANCE, side="right")
        for i in np.flatnonzero((last > first) & ~found).tolist():
            near = self.vectors[self.order[first[i] : last[i]]] - vectors[i]
            found[i] = bool((np.einsum("nd,nd->n", near, near) <= _TOLERANCE**2).any())
        return found

    def in_batch(self, raw: Batch, vectors: Batch) -> list[str]:
        """The names of the samples of a batch that are in the gallery; `raw` is the batch as it was read."""
        rows = vectors.rows.tolist()
        if self.vectors is None:
            row_of = {sample: row for row, sample in enumerate(raw.rows.tolist())}
            hashes = [row_hash(raw.values[row_of[sample]]) for sample in rows]
        else:
            hashes = [""] * len(rows)
        mask = self.among(hashes, vectors.values)
        return [vectors.names[sample] for sample, known in zip(rows, mask.tolist(), strict=True) if known]


def copies_note(copies: Sequence[str], total: int) -> str:
    """What to say of test samples that are in the gallery, if there are any."""
    return (
        f"{len(copies)} of {counted(total, 'test sample')} {are(len(copies))} in the gallery too, "
        f"such as {copies[0]}, so the scores are too high; test with samples that are not in the gallery"
    )


def copy_notes(table: SampleTable, copies: Array) -> list[Note]:
    """Notes on copies: in one class they add nothing, and in two classes at most one can be right."""
    names, labels = table.names, table.labels
    again = np.flatnonzero(copies != np.arange(len(copies)))
    pairs = list(zip(copies[again].tolist(), again.tolist(), strict=True))
    notes = [
        Note(
            "in two classes",
            f"the same content in two classes: {names[first]} ({labels[first]}) and {names[i]} ({labels[i]})",
        )
        for first, i in pairs
        if labels[first] != labels[i]
    ]
    alike = [(first, i) for first, i in pairs if labels[first] == labels[i]]
    if alike:
        first, i = alike[0]
        what = "is a copy" if len(alike) == 1 else "are copies"
        pair = f"such as {names[i]} of {names[first]}"
        text = f"{counted(len(alike), 'sample')} {what} of others in the same class, {pair}"
        notes.append(Note("copies", text))
    return notes
