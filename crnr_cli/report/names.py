"""Names as pages and tables show them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable


def as_text(name: str) -> str:
    """A name that may hold bytes that are not UTF-8, in a form that can be displayed."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def common_folder(paths: Iterable[str]) -> str:
    """The folder, with its slash, that all paths are in; empty if there is none worth showing."""
    try:
        shared = posixpath.commonpath({posixpath.dirname(path) for path in paths})
    except ValueError:  # no paths, or some absolute and some not
        return ""
    return f"{shared}/" if shared.strip("/") else ""
