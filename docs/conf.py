"""Sphinx builds the documentation site from the Markdown pages.

pip install '.[docs]'
sphinx-build -W -n --keep-going -b html docs build/html
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

_VERSION = Path(__file__).parent.parent / "crnr_cli" / "__init__.py"

project = "crnr"
release = re.findall(r'^__version__ = "(.*)"$', _VERSION.read_text(encoding="utf-8"), re.MULTILINE)[0]
version = release

extensions = ["myst_parser"]
exclude_patterns = ["share"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # the anchors that a forge gives headings
smartquotes = False  # two dashes begin an option

html_theme = "furo"
html_title = f"crnr {release}"
html_show_copyright = False


def setup(app: Sphinx) -> None:
    app.connect("source-read", _offer_files_outside_the_site)


def _offer_files_outside_the_site(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn links to files outside docs/, which work on a forge, into downloads."""
    folder = (Path(app.srcdir) / page).parent

    def link(match: re.Match[str]) -> str:
        path = (folder / match[1]).resolve()
        is_outside = path.is_file() and not path.is_relative_to(app.srcdir)
        return f"](path:{match[1]})" if is_outside else match[0]

    source[0] = re.sub(r"\]\((\.\./[^)#:]+)(?:#[^)]*)?\)", link, source[0])
