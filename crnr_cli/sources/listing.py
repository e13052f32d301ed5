"""Open what the user named as a source: folders, picture files, feature files, or a list on stdin."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from crnr_cli.errors import DataError, UsageError
from crnr_cli.sources.base import InputOptions, Keys, Source
from crnr_cli.sources.labelled_pictures import labelled
from crnr_cli.sources.readers import is_table
from crnr_cli.sources.tables import open_tables
from crnr_cli.sources.walk import Lister, list_pictures
from crnr_cli.system.names import as_listed, existing
from crnr_cli.system.outputs import refuse_inputs, refuse_inside, refuse_listed
from crnr_cli.system.portable import ON_WINDOWS


def open_source(
    names: Sequence[str], options: InputOptions, *, allow_missing: bool = False, lister: Lister | None = None
) -> Source:
    """List all samples in these files and folders; `-` is a list of files on stdin.

    With `allow_missing`, a picture that does not exist is listed too, as it is if stdin names it, unless
    nothing else was named. The `lister` lists the folders below those that are named; None: this process.
    """
    if "" in names:  # as a path, it would be the current folder
        raise UsageError("the name of a source is empty; is a variable of your script not set?")
    names = [found for name in names for found in _expanded(name)]
    paths = [Path(name) for name in names if name != "-"]
    missing = [path for path in paths if existing(path, follow_links=False) is None]
    named_tables = _named_tables(paths, len(names))
    if missing and (not allow_missing or len(missing) == len(names) or named_tables):
        raise DataError(f"{missing[0]}: no such file or folder")
    tables = [path for path in named_tables if os.path.isfile(path)]  # noqa: PTH113
    if tables and len(tables) < len(names):
        raise UsageError("give pictures or feature files, not both at once")
    if options.keys != Keys() and not tables:
        raise UsageError(
            "--features-key, --labels-key and --samples are for feature files, but these are pictures"
        )
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112, which raises if access is denied
            refuse_inside(path)
    refuse_inputs(tables)  # before they are opened
    source: Source = (
        open_tables(tables, options.keys) if tables else list_pictures(names, options.nul_separated, lister)
    )
    if options.labels is not None:
        source = labelled(source, options.labels)
    listed = ((path, size, mtime_ns) for path, _, size, mtime_ns in source.listing())
    refuse_listed(listed, are_pictures=source.kind == "pictures")
    if not len(source):
        if list(names) == ["-"]:
            raise DataError("nothing to do: the list of files on stdin is empty")
        raise DataError(f"nothing to do: no files found in {', '.join(names)}")
    return source


def _expanded(name: str) -> list[str]:
    """The files that were meant: shells of Windows leave patterns such as *.png to the programs."""
    if ON_WINDOWS and existing(name, follow_links=False) is None and (found := sorted(glob.glob(name))):  # noqa: PTH207
        return found
    return [as_listed(name)]


def _named_tables(paths: list[Path], n_named: int) -> list[Path]:
    """Those that are named like feature files. A CSV among pictures is no more than a file beside them."""
    tables = [path for path in paths if is_table(path)]
    only_csv = all(path.suffix.lower() == ".csv" for path in tables)
    return [] if only_csv and len(tables) < n_named else tables


def fingerprint(source: Source) -> str:
    """SHA-256 of a listing: the names, order, sizes and mtimes of its files."""
    digest = hashlib.sha256()
    for text in source.listing_texts():
        digest.update(text)
    return digest.hexdigest()
