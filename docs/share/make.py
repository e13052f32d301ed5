"""Make the man pages, the completions and the reference page of all commands from the commands.

    python docs/share/make.py

Run it again when commands, options, their help or the version change. The wheel installs the first two into
share/. With a folder, it writes them there instead of docs/.
"""

from __future__ import annotations

import sys
from pathlib import Path

from commands import read_commands
from completions import completions
from man_pages import pages
from markdown import reference_page

DOCS = Path(__file__).resolve().parent.parent


def made() -> dict[str, str]:
    """Return the content of every file by its path below docs/."""
    program = read_commands()
    man = {f"share/man/man1/{name}": text for name, text in pages(program).items()}
    scripts = {f"share/{name}": text for name, text in completions(program).items()}
    return man | scripts | {"reference/commands.md": reference_page(program)}


def main(folder: Path = DOCS) -> None:
    for name, text in made().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
