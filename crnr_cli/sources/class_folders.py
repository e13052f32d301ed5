"""Folders of one class as a source: queries/ant instead of queries."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import replace

from crnr_cli.errors import UsageError
from crnr_cli.sources.base import Source
from crnr_cli.sources.folders import Pictures


def by_class_folders(source: Source, classes: Collection[str], *, strict: bool = False) -> Source:
    """The same listing; pictures directly in a named folder are of its class, if it is named after one.

    A folder may be named after a class and contain both pictures and folders of pictures. Then its pictures
    are of no class or, if `strict`, the source is refused.
    """
    if not isinstance(source, Pictures):
        return source
    files = list(source.files)
    by_form = {unicodedata.normalize("NFC", name): name for name in classes}  # macOS uses another form
    for folder in source.named_folders:
        label = by_form.get(unicodedata.normalize("NFC", folder.name))
        if label is None or not folder.loose:
            continue
        if folder.has_folders:
            if strict:
                raise UsageError(
                    f"{folder.path}: contains both pictures, as the folder of a class does, and folders, "
                    f"which may be classes; name its files or folders one by one, or put all pictures into "
                    f"one class with --class {label}"
                )
            continue
        for i in folder.loose:
            files[i] = files[i]._replace(folders=(label,))
    return replace(source, files=files)


def folder_of_no_class(source: Source) -> str | None:
    """A named folder that contains only pictures, as the folder of a class does, but belongs to none."""
    if not isinstance(source, Pictures):
        return None
    for folder in source.named_folders:
        if folder.loose and not folder.has_folders and not source.files[folder.loose[0]].folders:
            return folder.path
    return None
