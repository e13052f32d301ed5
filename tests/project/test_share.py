"""Man pages, completions and the reference page match the commands, and shells can use them."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from crnr_cli.cli import COMMANDS
from helpers.paths import DOCS
from helpers.runner import Runner
from helpers.samples import make_features

SHARE = DOCS / "share"
REFERENCE = DOCS / "reference" / "commands.md"
MADE = ("man", "bash-completion", "zsh", "fish", "pwsh")
PAGES = sorted((SHARE / "man" / "man1").iterdir())
SCRIPTS = {
    "bash": SHARE / "bash-completion" / "completions" / "crnr",
    "zsh": SHARE / "zsh" / "site-functions" / "_crnr",
    "fish": SHARE / "fish" / "vendor_completions.d" / "crnr.fish",
    "pwsh": SHARE / "pwsh" / "completions" / "_crnr.ps1",
}


def texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] in MADE
    }


def test_shared_files_match_the_commands(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SHARE / "make.py", tmp_path], check=True)
    assert texts(SHARE) == texts(tmp_path / "share"), "run `python docs/share/make.py`"
    made = (tmp_path / "reference" / "commands.md").read_text(encoding="utf-8")
    assert REFERENCE.read_text(encoding="utf-8") == made, "run `python docs/share/make.py`"


@pytest.mark.parametrize("command", ["", *COMMANDS, "model"])
def test_a_page_has_all_that_the_help_has(command: str, crnr: Runner) -> None:
    words = command.split()
    help = crnr(*words, "--help-all").out
    options = set(re.findall(r"^  (?:-\w, |    )(--[\w-]+)", help, re.MULTILINE))
    assert "--help" in options
    page = (SHARE / "man" / "man1" / f"{'-'.join(['crnr', *words])}.1").read_text().replace("\\-", "-")
    assert options == set(re.findall(r"^\.TP\n(?:\\fB-\w\\fR, )?\\fB(--[\w-]+)\\fR", page, re.MULTILINE))


@pytest.mark.parametrize("command", [*COMMANDS, "model"])
def test_the_reference_page_has_all_that_the_man_page_has(command: str) -> None:
    man = (SHARE / "man" / "man1" / f"crnr-{command.replace(' ', '-')}.1").read_text().replace("\\-", "-")
    _, found, section = REFERENCE.read_text(encoding="utf-8").partition(f"\n## crnr {command}\n")
    assert found
    listed = re.findall(r"^- (?:`-\w`, )?`(--[\w-]+)", section.partition("\n## ")[0], re.MULTILINE)
    assert listed == re.findall(r"^\.TP\n(?:\\fB-\w\\fR, )?\\fB(--[\w-]+)\\fR", man, re.MULTILINE)


def test_every_command_has_a_page() -> None:
    names = {name.replace(" ", "-") for name in COMMANDS}
    assert {page.stem for page in PAGES} == {"crnr", "crnr-model", *(f"crnr-{name}" for name in names)}


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_man_shows_a_page_without_warnings_on_80_columns(page: Path) -> None:
    command = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=80n", str(page)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stderr == b""
    shown = done.stdout.decode().splitlines()
    assert "SYNOPSIS" in shown
    (example,) = (i for i, line in enumerate(shown) if line.startswith("EXAMPLE"))
    assert max(map(len, shown[:example])) <= 80  # lines of an example are never broken


def in_bash(words: list[str], here: Path) -> list[str]:
    script = (
        f"source {shlex.quote(str(SCRIPTS['bash']))}; COMP_WORDS=({shlex.join(words)}); "
        f"COMP_CWORD={len(words) - 1}; _crnr crnr; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    return run(["bash", "--norc", "-c", script], here).split()


def in_fish(words: list[str], here: Path) -> list[str]:
    script = f"source {shlex.quote(str(SCRIPTS['fish']))}; complete -C {shlex.quote(' '.join(words))}"
    lines = run(["fish", "--no-config", "-c", script], here).splitlines()
    return [line.partition("\t")[0] for line in lines]


def in_pwsh(words: list[str], here: Path) -> list[str]:
    line = " ".join(words)
    script = (
        f". '{SCRIPTS['pwsh']}'; (TabExpansion2 '{line}' {len(line)}).CompletionMatches"
        " | ForEach-Object { $_.ListItemText }"
    )
    return run(["pwsh", "-NoProfile", "-NonInteractive", "-Command", script], here).split()


def in_zsh(words: list[str], here: Path) -> list[str]:
    """On a terminal, as zsh completes nowhere else."""
    import pty  # not on Windows

    setup = (
        f"fpath=({shlex.quote(str(SCRIPTS['zsh'].parent))} $fpath); autoload -Uz compinit; compinit -u -D; "
        "zstyle ':completion:*' verbose no; bindkey '^I' list-choices; "
        "unset zle_bracketed_paste; PS1='READY''> '\n"
    )
    line = " ".join(words)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(here)
        os.execvpe("zsh", ["zsh", "-f", "-i"], ENVIRONMENT | {"TERM": "dumb", "COLUMNS": "250"})
    try:
        os.write(terminal, setup.encode())
        read_until(terminal, "READY> ")
        os.write(terminal, f"{line}\t".encode())
        shown = read_until(terminal, f"READY> {line}")
    finally:
        os.close(terminal)
        os.waitpid(process, 0)
    return shown.partition(line)[2].split()


def read_until(terminal: int, end: str) -> str:
    """Return what a program writes on its terminal before this."""
    found, deadline = "", time.monotonic() + 60
    while end not in found:
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], found
        found += os.read(terminal, 65536).decode()
    return found.partition(end)[0]


ENVIRONMENT = {**os.environ, "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}


def run(command: list[str], here: Path) -> str:
    done = subprocess.run(command, cwd=here, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


SHELLS = {"bash": in_bash, "zsh": in_zsh, "fish": in_fish, "pwsh": in_pwsh}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("crnr model ", ["check", "get", "list"]),
        ("crnr help mod", ["model"]),
        ("crnr rename --", ["--help", "--help-all", "--json", "--merge", "--quiet"]),
        ("crnr build x --dtype ", ["float32", "float64"]),
        ("crnr model get clip", ["clip-b16", "clip-b32"]),
        ("crnr compare x --methods crnr,n", ["crnr,nn", "crnr,nrc", "crnr,nsc"]),
        ("crnr remove a.h5 --class ", ["ant", "bee", "cow"]),
        ("crnr rename a.h5 ant b", ["bee"]),
        ("crnr add a", ["a.h5", "a.npz"]),
        ("crnr build -o a.h", ["a.h5"]),
    ],
)
def test_shells_complete_commands_and_options(shell: str, line: str, names: list[str], crnr: Runner) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    if shell == "bash" and sys.platform == "win32":
        pytest.skip("bash may be that of another system, WSL")
    if shell == "bash" and names[0].startswith("a."):
        names = []  # left to readline
    make_features(crnr.here / "a.npz", per_class=2)
    assert crnr("build", "a.npz", "-o", "a.h5", "-q").exit == 0
    assert sorted(SHELLS[shell](line.split(" "), crnr.here)) == names
