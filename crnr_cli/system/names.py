"""Whether there is a file of a name, and what keeps us from finding out."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from crnr_cli.errors import DataError


def place_of(path: str) -> str:
    """A path in one form, from whatever folder it is named; links are not followed."""
    return unicodedata.normalize("NFC", os.path.abspath(path))  # noqa: PTH100


def existing(path: str | Path, *, follow_links: bool = True) -> os.stat_result | None:
    """The status of a file, or None if there is none.

    In a folder without access, or if the name is too long, it is an error: there may be a file, or there
    cannot be one. `Path.exists` would raise an exception there, or not, depending on the version of Python.
    """
    try:
        return os.stat(path, follow_symlinks=follow_links)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except ValueError as e:  # NUL in a name
        raise DataError(f"{path}: cannot read it ({e})") from e
