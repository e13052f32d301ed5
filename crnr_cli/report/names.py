"""How pages and tables show names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable


def as_text(name: str) -> str:
    """A name as displayable text: bytes that are not UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def common_folder(paths: Iterable[str]) -> str:
    """The folder that contains all paths, with a slash at the end; empty if there is none but the root."""
    try:
        shared = posixpath.commonpath({posixpath.dirname(path) for path in paths})
    except ValueError:  # no paths, or some absolute and some not
        return ""
    return f"{shared}/" if shared.strip("/") else ""
