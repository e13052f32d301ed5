"""Packages that only some options need, and the error if they are missing."""

from __future__ import annotations

from importlib.util import find_spec

from crnr_cli.errors import CrnrError


def require(extra: str, what: str, *packages: str) -> None:
    """Refuse, before any work, an option that needs packages that are not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise CrnrError(f"{what} needs {' and '.join(missing)}: pip install 'crnr-cli[{extra}]'")
