"""Outsiders: queries that are known to belong to no class, to test how well they are rejected."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.answer import QueryOptions, open_queries
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.results.decision import UNKNOWN, Prediction
from crnr_cli.sources.base import Source
from crnr_cli.sources.readers import is_table
from crnr_cli.system.names import existing, place_of
from crnr_cli.wording import counted


def opened_outsiders(outsiders: Sequence[Path], gallery: Gallery, options: QueryOptions) -> Source:
    for path in outsiders:
        if existing(path, follow_links=False) is None:
            raise DataError(f"{path}: no such file or folder")
    return open_queries([str(path) for path in outsiders], gallery, replace(options, labels=None))


def without_outsiders(source: Source, outsiders: Source, names: Sequence[str]) -> Source:
    """The same listing without the outsiders, which may be in a folder among the queries."""
    places = set(map(place_of, outsiders.names()))
    rest = source.only(lambda name, stamp, candidates: place_of(name) not in places)
    if not len(rest):
        raise UsageError(f"--outsiders: everything in {', '.join(names)} would be an outsider")
    return rest


def require_read(rows: Sequence[Prediction], outsiders: Sequence[Path]) -> None:
    if not any(row.label for row in rows):
        raise DataError(
            f"--outsiders: nothing in {', '.join(map(str, outsiders))} can be used; "
            f"{rows[0].path}: {rows[0].status}"
        )


def marked(rows: list[Prediction], outsiders: Sequence[Path]) -> list[Prediction]:
    """The same rows; those of files that are outsiders, or in a folder of outsiders, belong to no class."""
    for folder in outsiders:
        place = place_of(str(folder))
        inside = tuple(place.rstrip(os.sep) + mark for mark in (os.sep, *("#" if is_table(folder) else "")))
        found = [row.path != "" and f"{place_of(row.path)}{os.sep}".startswith(inside) for row in rows]
        if not any(found):
            raise DataError(
                f"{folder}: none of the {counted(len(rows), 'row')} is of a file there; paths are relative "
                "to the current folder, so run it where `crnr classify` ran"
            )
        rows = [row._replace(truth=UNKNOWN) if is_in else row for row, is_in in zip(rows, found, strict=True)]
    return rows
