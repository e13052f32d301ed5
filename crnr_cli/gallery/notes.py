"""What a command should tell the user besides its result."""

from __future__ import annotations

from typing import NamedTuple


class Note(NamedTuple):
    """Something that the user should know. Only the first of many notes of one kind are shown."""

    kind: str
    text: str
