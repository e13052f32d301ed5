"""Pictures whose labels come from a table, and not from their folders."""

from __future__ import annotations

import os
from dataclasses import replace

from crnr_cli.errors import DataError, UsageError
from crnr_cli.sources.base import Source
from crnr_cli.sources.folders import Pictures
from crnr_cli.sources.label_table import LabelOptions
from crnr_cli.system.names import place_of
from crnr_cli.wording import are, counted

_SHOWN = 3  # paths


def labelled(source: Source, options: LabelOptions) -> Source:
    """The same listing with the labels of the table; files that it does not have are of no class."""
    if not isinstance(source, Pictures):
        raise UsageError("--labels is for pictures, but these are features, which have labels of their own")
    labels = options.read()
    found = [labels.label_of(file.path) for file in source.files]
    if not any(found):
        example = next(iter(labels.by_place), None)
        looked_for = f"; the first one was looked for at {example}" if example else ""
        if example and "\\" in example and os.sep == "/":
            looked_for += ", with backslashes as on Windows; replace them by slashes"
        raise DataError(
            f"{labels.table}: has a label for none of the {counted(len(source), 'file')}{looked_for}; "
            "--root names the folder that its paths are relative to"
        )
    files = [
        file._replace(folders=(label,) if label else ())
        for file, label in zip(source.files, found, strict=True)
    ]
    notes = []
    if missing := labels.missing({place_of(file.path) for file in source.files}):
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        count = counted(len(missing), "file")
        notes.append(f"{count} of {labels.table} {are(len(missing))} not in the source: {shown}")
    return replace(
        source, files=files, named_folders=[], empty_folders=[], labels_from=labels.table, extra_notes=notes
    )
