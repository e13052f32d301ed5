"""Open what the user named as a source: folders, picture files, feature files, or a list on stdin."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from crnr_cli.errors import DataError, UsageError
from crnr_cli.sources.base import InputOptions, Keys, Source
from crnr_cli.sources.folders import list_pictures
from crnr_cli.sources.readers import is_table
from crnr_cli.sources.tables import open_tables


def open_source(names: Sequence[str], options: InputOptions, *, allow_missing: bool = False) -> Source:
    """List all samples in these files and folders; `-` is a list of files on stdin.

    With `allow_missing`, a picture that does not exist is listed too, as it is if stdin names it, unless
    nothing else was named.
    """
    paths = [Path(name) for name in names if name != "-"]
    missing = [path for path in paths if not os.path.lexists(path)]
    if missing and (not allow_missing or len(missing) == len(names) or any(map(is_table, paths))):
        raise DataError(f"{missing[0]}: no such file or folder")
    tables = [path for path in paths if is_table(path) and os.path.isfile(path)]  # noqa: PTH113
    if tables and len(tables) < len(names):
        raise UsageError("give pictures or feature files, not both at once")
    if options.keys != Keys() and not tables:
        raise UsageError(
            "--features-key, --labels-key and --samples are for feature files, but these are pictures"
        )
    source: Source = (
        open_tables(tables, options.keys) if tables else list_pictures(names, options.nul_separated)
    )
    if not len(source):
        raise DataError(f"nothing to do: no files found in {', '.join(names)}")
    return source


def fingerprint(source: Source) -> str:
    """SHA-256 of a listing: the names, order, sizes and mtimes of its files."""
    digest = hashlib.sha256()
    for entry in source.listing():
        digest.update(ascii(entry).encode())
    return digest.hexdigest()
