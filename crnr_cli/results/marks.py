"""Read which samples of a CSV a person marked for removal."""

from __future__ import annotations

from pathlib import Path

from crnr_cli.errors import DataError
from crnr_cli.system.csv_file import records, require_file

PATH, MARK = "path", "remove"
_YES = {"x", "yes", "y", "1", "true"}
_NO = {"", "no", "n", "0", "false"}


def marked_samples(path: Path) -> list[str]:
    """The names in the column `path` of all rows that are marked in the column `remove`, each once."""
    require_file(path, "give the CSV that `crnr audit --csv` wrote")
    marked: dict[str, None] = {}
    for (name, text), where, _ in records(path, (PATH, MARK), "was it written by `crnr audit --csv`?"):
        mark = text.strip().lower()
        if mark not in _YES | _NO:
            raise DataError(f"{where}: the column {MARK} contains {mark!r}; write x, or leave it empty")
        if mark in _YES:
            marked[name] = None
    if not marked:
        raise DataError(f"{path}: no row is marked; write x into the column {MARK} of the samples to remove")
    return list(marked)
