"""Packages that only some options need, and the error if they are missing."""

from __future__ import annotations

from importlib.util import find_spec

from crnr_cli.errors import CrnrError


def missing(extra: str, what: str, *packages: str) -> str | None:
    """Why an option cannot be used: packages that are not installed; None if all are."""
    absent = [package for package in packages if find_spec(package) is None]
    return f"{what} needs {' and '.join(absent)}: pip install 'crnr-cli[{extra}]'" if absent else None


def require(extra: str, what: str, *packages: str) -> None:
    """Refuse, before any work, an option that needs packages that are not installed."""
    if reason := missing(extra, what, *packages):
        raise CrnrError(reason)
