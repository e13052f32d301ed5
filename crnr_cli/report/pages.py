"""HTML pages, each one self-contained file, from templates that escape all values."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from crnr_cli import __version__
from crnr_cli.system.files import replacing

# Pages on which a person decides: all have the style and the scripts of the review.
_DECIDED_ON = {"review": ["tools.js", "review.js"], "audit": ["tools.js", "review.js"]}


def write_page(path: Path, template: str, context: dict[str, Any]) -> None:
    """Render `template`.html, with the common style and the style and script of the same name, if any.

    It is written piece by piece: a value may be an iterator whose items are made when they are written.
    """
    environment = Environment(
        loader=PackageLoader("crnr_cli.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = _percent
    loader = environment.loader
    assert loader is not None
    # Style and script contain no user input. Only they are inserted unescaped, and only this script can run.
    known = environment.list_templates()
    own = "review.css" if template in _DECIDED_ON else f"{template}.css"
    styles = [name for name in ("page.css", own) if name in known]
    style = "".join(loader.get_source(environment, name)[0] for name in styles)
    scripts = _DECIDED_ON.get(template, [f"{template}.js"])
    script = "".join(loader.get_source(environment, name)[0] for name in scripts if name in known)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    pieces = environment.get_template(f"{template}.html").generate(
        context, style=Markup(style), script=Markup(script), script_hash=digest, version=__version__
    )
    with replacing(path) as file:
        for piece in pieces:
            file.write(piece.encode())


def _percent(share: float | None, digits: int = 1) -> str:
    return "n/a" if share is None else f"{100 * share:.{digits}f}%"
