"""Folders of one class as a source: queries/ant instead of queries."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace

from crnr_cli.errors import UsageError
from crnr_cli.sources.base import Source
from crnr_cli.sources.folders import Pictures
from crnr_cli.sources.picture_files import PictureFile
from crnr_cli.sources.tables import Features
from crnr_cli.system.names import Spellings, class_key


def by_class_folders(source: Source, classes: Collection[str], *, strict: bool = False) -> Source:
    """The same listing; pictures directly in a named folder are of its class, if it is named after one.

    A folder may be named after a class and contain both pictures and folders of pictures. Then its pictures
    are of no class or, if `strict`, the source is refused.
    """
    if isinstance(source, Features):
        return replace(source, classes={class_key(name): name for name in classes})
    if not isinstance(source, Pictures) or source.is_labelled:
        return source
    files: list[PictureFile] = []
    known = Spellings(classes)
    for folder in source.named_folders:
        label = known.find(folder.name)
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
        files = files or list(source.files)
        for i in folder.loose:
            files[i] = files[i]._replace(folders=(label,))
    return replace(source, files=files) if files else source


def folder_of_no_class(source: Source) -> str | None:
    """A named folder that contains only pictures, as the folder of a class does, but belongs to none."""
    if isinstance(source, Features):
        named = possible_classes(source)
        known = zip(source.names(), source.all_candidates(), strict=True)
        alone = next((name for name, found in known if name in named and not found), None)
        return None if alone is None else os.path.dirname(alone) or os.curdir  # noqa: PTH120
    if not isinstance(source, Pictures):
        return None
    for folder in source.named_folders:
        if folder.loose and not folder.has_folders and not source.files[folder.loose[0]].folders:
            return folder.path
    return None


def possible_classes(source: Source) -> dict[str, str]:
    """By the name of a sample: the name of the folder that it is directly in, if that may be its class.

    That is a folder that the user named and that contains only pictures; some gallery may have its class.
    """
    if isinstance(source, Features):
        return source.named_folders()
    if not isinstance(source, Pictures):
        return {}
    return {
        source.files[i].path: folder.name
        for folder in source.named_folders
        if not folder.has_folders
        for i in folder.loose
    }
