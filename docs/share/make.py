"""Make the man pages and the completions from the commands: what the wheel installs into share/.

    python docs/share/make.py

Run it again when commands, options, their help or the version change. With a folder, it writes them there
instead.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from commands import read_commands
from completions import completions
from man_pages import pages

HERE = Path(__file__).resolve().parent


def read_exit_codes(page: str) -> dict[str, str]:
    """Return the table of docs/reference/output.md."""
    table = page.partition("## Exit codes")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (\d[\d, ]*) \| (.*) \|$", table, re.MULTILINE))


def made() -> dict[str, str]:
    """The content of every file by its path below share/."""
    program = read_commands()
    exit_codes = read_exit_codes((HERE.parent / "reference" / "output.md").read_text(encoding="utf-8"))
    man = {f"man/man1/{name}": text for name, text in pages(program, exit_codes).items()}
    return man | completions(program)


def main(folder: Path = HERE) -> None:
    for name, text in made().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
