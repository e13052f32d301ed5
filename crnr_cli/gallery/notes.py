"""What a command should tell the user besides its result."""

from __future__ import annotations

from typing import NamedTuple

from crnr_cli.methods import State
from crnr_cli.methods.local import measured_by

_WANTED_AGREEMENT = 0.99  # less than an index aims for, which it measures on few samples


class Note(NamedTuple):
    """Something that the user should know. Only the first of many notes of one kind are shown."""

    kind: str
    text: str


def index_notes(state: State) -> list[Note]:
    """Report an index with which too many labels are not those of the exact search."""
    measured = measured_by(state)
    if measured is None or measured.agreement >= _WANTED_AGREEMENT:
        return []
    text = (
        f"with the index, {100 * measured.agreement:.1f} % of the labels are those of the exact search; "
        "`crnr tune` may find settings that depend less on single samples, and --index exact is exact"
    )
    return [Note("index", text)]
