"""Lets the README's links and image work outside the repository, on the page of the package on PyPI."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def make_links_absolute(text: str, home: str) -> str:
    """Return Markdown whose links to files lead to the repository."""

    def link(match: re.Match[str]) -> str:
        kind = "raw" if match[1] == "!" else "blob"
        return f"{match[1]}[{match[2]}]({home}/{kind}/HEAD/{match[3]})"

    return re.sub(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", link, text)


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        home = metadata.get("urls", {}).get("Repository")
        text = make_links_absolute(text, home) if home else text
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
