"""Packages that only some options need, and the command that installs them where crnr is installed."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from crnr_cli.errors import CrnrError
from crnr_cli.system.names import quote_word

_DISTRIBUTION = "crnr-cli"
# The names of packages to install, by the modules that have other names.
_PACKAGES = {"sklearn": "scikit-learn", "pillow_heif": "pillow-heif"}
# The tools that keep a program in an environment of its own, by a file that they leave there.
_TOOLS = {"uv-receipt.toml": "uv tool install --force", "pipx_metadata.json": "pipx install --force"}


def require_packages(extra: str, what: str, *packages: str) -> None:
    """Raise an error, before any work, if the packages of an option are not installed."""
    if reason := why_missing(extra, what, *packages):
        raise CrnrError(reason)


def why_missing(extra: str, what: str, *packages: str) -> str | None:
    """Return why an option cannot be used: missing packages; None if all are installed."""
    absent = [package for package in packages if find_spec(package) is None]
    return describe_missing(extra, what, *absent) if absent else None


def describe_missing(extra: str, what: str, *packages: str) -> str:
    """Return the one message about packages of an extra that are not installed, with the remedy."""
    names = " and ".join(_PACKAGES.get(package, package) for package in packages)
    return f"{what} needs {names}; install with: {command_for_extra(extra)}"


def describe_missing_alone(what: str, requirement: str) -> str:
    """Return the message about a package that no extra can install, because of what it requires itself."""
    name = requirement.partition("==")[0]
    return f"{what} needs {name}; install with: {_pip_install()} --no-deps {requirement}"


def command_for_extra(extra: str) -> str:
    """Return the command that installs an extra into this environment, the way crnr was installed."""
    where, is_editable = _installed_from()
    prefix = Path(sys.prefix)
    for marker, installer in _TOOLS.items():
        if (prefix / marker).is_file():  # they make the environment again, so all extras have to be named
            wanted = where.format(",".join(sorted({*_installed_extras(), extra})))
            return f"{installer} {'--editable ' if is_editable else ''}{quote_word(wanted)}"
    return f"{_pip_install()} {'-e ' if is_editable else ''}{quote_word(where.format(extra))}"


def _pip_install() -> str:
    """Return the command that installs packages into this environment."""
    python = sys.executable or "python"
    if find_spec("pip") is None:
        return f"uv pip install --python {quote_word(python)}"
    own = Path(python).parent
    is_first = any(shutil.which("pip") == str(own / name) for name in ("pip", "pip.exe"))
    return "pip install" if is_first else f"{quote_word(python)} -m pip install"


def _installed_from() -> tuple[str, bool]:
    """Return what to install, with braces for the extras, and whether a folder is used in place.

    That is a folder or an archive that is still there, a repository, or else the name of the package.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # slow to load, and only for an error
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
        url = str(origin["url"])
        if "vcs_info" in origin:
            found = origin["vcs_info"]
            return f"{_DISTRIBUTION}[{{}}] @ {found['vcs']}+{url}@{found['commit_id']}", False
        path = Path(url2pathname(urlsplit(url).path))
        is_editable = bool(origin.get("dir_info", {}).get("editable"))
    except (PackageNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return f"{_DISTRIBUTION}[{{}}]", False
    if not url.startswith("file:") or not path.exists() or "{" in str(path):
        return f"{_DISTRIBUTION}[{{}}]", False
    return f"{'.' if path == Path.cwd() else path}[{{}}]", is_editable


def _installed_extras() -> list[str]:
    """Return the extras all of whose packages are installed."""
    from importlib.metadata import PackageNotFoundError, distribution

    missing: set[str] = set()
    found: set[str] = set()
    try:
        requirements = distribution(_DISTRIBUTION).requires or []
    except PackageNotFoundError:
        return []
    for text in requirements:
        if parsed := re.fullmatch(r"([\w.-]+).*;.*extra\s*==\s*[\"']([\w-]+)[\"'].*", text):
            name, extra = parsed.groups()
            found.add(extra)
            try:
                distribution(name)
            except PackageNotFoundError:
                missing.add(extra)
    return [extra for extra in found - missing if extra not in ("test", "lint")]
