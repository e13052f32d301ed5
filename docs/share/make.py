"""Make the man pages, the completions and the reference page of all commands from the commands.

    python docs/share/make.py

Run it again when commands, options, their help or the version change. The wheel installs the first two into
share/. With a folder, it writes them there instead of docs/.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from commands import read_commands
from completions import completions
from man_pages import pages
from markdown import reference_page

DOCS = Path(__file__).resolve().parent.parent


def read_exit_codes(page: str) -> dict[str, str]:
    """Return the table of docs/reference/output.md."""
    table = page.partition("## Exit codes")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (\d[\d, ]*) \| (.*) \|$", table, re.MULTILINE))


def made() -> dict[str, str]:
    """Return the content of every file by its path below docs/."""
    program = read_commands()
    exit_codes = read_exit_codes((DOCS / "reference" / "output.md").read_text(encoding="utf-8"))
    man = {f"share/man/man1/{name}": text for name, text in pages(program, exit_codes).items()}
    scripts = {f"share/{name}": text for name, text in completions(program).items()}
    return man | scripts | {"reference/commands.md": reference_page(program, exit_codes)}


def main(folder: Path = DOCS) -> None:
    for name, text in made().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
