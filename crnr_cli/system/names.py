"""Names of files: their one form, how they are stored, and whether there is a file of a name."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from crnr_cli.errors import DataError

_INVALID_NAME = 123  # what Windows says of a name with a * or the like, which no file can have


def place_of(path: str) -> str:
    """A path in one form, from whatever folder it is named; links are not followed."""
    return composed(os.path.normcase(os.path.abspath(path)))  # noqa: PTH100


def composed(name: str) -> str:
    """A name in one Unicode form: macOS lists names in another one than keyboards type."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def slashed(path: str) -> str:
    """A path as it is stored and printed: with slashes on every system, so that files can be exchanged.

    Windows takes slashes too. Elsewhere, a backslash is part of a name.
    """
    return path.replace("\\", "/") if os.sep == "\\" else path


def as_listed(path: str) -> str:
    """The path of a file in the Unicode form that its folders list, if it is found only there."""
    if path.isascii() or os.path.lexists(path):
        return path
    above, name = os.path.split(path)
    if not name:
        return path
    above = as_listed(above)
    try:
        listed = os.listdir(above or ".")  # noqa: PTH208, which are strings
    except (OSError, ValueError):
        return path
    same = [other for other in listed if composed(other) == composed(name)]
    return os.path.join(above, same[0]) if len(same) == 1 else path  # noqa: PTH118


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
        if getattr(e, "winerror", None) == _INVALID_NAME:
            return None
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except ValueError as e:  # NUL in a name
        raise DataError(f"{path}: cannot read it ({e})") from e
