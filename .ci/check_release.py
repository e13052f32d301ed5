#!/usr/bin/env python3
"""Check that what a tag names can be released: .ci/check_release.py TAG

The package, the citation and the changelog must have the version of the tag, and the repository that
pyproject.toml names must be the one that publishes it. Needs nothing but Python.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(tag: str) -> list[str]:
    found = []
    version = line("crnr_cli/__init__.py", r'__version__ = "(.*)"')
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, but the version of the package is {version}")
    if (cited := line("CITATION.cff", r"version: (.*)")) != version:
        found.append(f"CITATION.cff has the version {cited}, not {version}")
    date = line("CHANGELOG.md", rf"## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)")
    if not date:
        found.append(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`")
    elif (cited := line("CITATION.cff", r'date-released: "?([\d-]*)"?')) != date:
        found.append(f"CITATION.cff has the date {cited or 'of no release'}, but CHANGELOG.md has {date}")
    home = f"{os.environ.get('GITHUB_SERVER_URL')}/{os.environ.get('GITHUB_REPOSITORY')}"
    named = tomllib.loads(read("pyproject.toml"))["project"]["urls"].get("Repository")
    if named != home:
        found.append(f"pyproject.toml: Repository in [project.urls] is {named}, but this is {home}")
    return found


def line(name: str, pattern: str) -> str:
    """What a whole line of this form has in its group; empty if there is no such line."""
    found = re.search(f"^{pattern}$", read(name), re.MULTILINE)
    return found[1] if found else ""


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit("\n".join(problems(sys.argv[1])) or 0)
