"""What a command should tell the user besides its result."""

from __future__ import annotations

from typing import NamedTuple

from crnr_cli import solvers
from crnr_cli.methods import State
from crnr_cli.methods.local import recall_of


class Note(NamedTuple):
    """Something that the user should know. Only the first of many notes of one kind are shown."""

    kind: str
    text: str


def index_notes(state: State) -> list[Note]:
    """Report an index that finds fewer of the nearest samples than it should."""
    recall = recall_of(state)
    if recall is None or recall >= solvers.WANTED_RECALL:
        return []
    text = (
        f"the index finds {100 * recall:.1f} % of the nearest samples, fewer than "
        f"{100 * solvers.WANTED_RECALL:g} %; --index exact finds all"
    )
    return [Note("index", text)]
