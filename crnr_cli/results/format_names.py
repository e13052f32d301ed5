"""The formats that predictions are written in, by the names of files."""

from __future__ import annotations

from pathlib import Path

FORMATS = ("csv", "jsonl", "parquet")
_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
ENDINGS = (".csv", *_ENDINGS)


def format_by_name(name: str) -> str:
    """The format that a file of this name is written in, unless the user says otherwise."""
    return _ENDINGS.get(Path(name).suffix.lower(), "csv")
