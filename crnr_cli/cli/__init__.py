"""The command line: one short module per command. Typer and Rich are imported only here.

Commands import the rest of the package when they run, so that `crnr --help` does not load NumPy.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated

import typer

from crnr_cli import __version__
from crnr_cli.cli.command import HelpAll
from crnr_cli.cli.help import COMMANDS, PANELS
from crnr_cli.cli.parsing import Command, Commands
from crnr_cli.system.cores import is_working
from crnr_cli.system.signals import die_of_broken_pipes, set_up_streams

_SIGNALLED = 128  # higher exit codes stand for signals


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crnr {__version__}")
        raise typer.Exit


def crnr(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    help_all: HelpAll = False,
) -> None:
    """Label images by comparing them with labelled examples.

    See `crnr help COMMAND`.
    """


def model(help_all: HelpAll = False) -> None:
    """List, install and check networks.

    They turn photographs into features.
    """


_GROUPS = {"model": model}


def make_application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return a Typer application with these commands."""
    app = typer.Typer(
        name="crnr",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # a bug keeps its plain traceback
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(crnr)
    wanted = set(names)
    groups: dict[str, typer.Typer] = {}
    for name in (name for commands in PANELS.values() for name in commands if name in wanted):
        group, _, own_name = name.rpartition(" ")
        if group and group not in groups:
            groups[group] = typer.Typer(cls=Commands, no_args_is_help=True)
            groups[group].callback()(_GROUPS[group])
            app.add_typer(groups[group], name=group)
        parent = groups[group] if group else app
        function = function_of(name)
        settings: dict[str, bool] = getattr(function, "context_settings", {})
        parent.command(own_name, cls=Command, context_settings=settings)(function)
    return app


def function_of(command: str) -> Callable[..., None]:
    """Import the module of a command, and return the command's function."""
    module = import_module(f"crnr_cli.cli.{command.partition(' ')[0]}")
    function: Callable[..., None] = getattr(module, command.replace(" ", "_"))
    return function


def main() -> None:
    _use_utf8()
    set_up_streams()
    die_of_broken_pipes()  # commands handle them in boundary()
    # Start-up creates almost no garbage, and looking for it takes a tenth of the time of a short command.
    gc.set_threshold(50_000, 20, 50)
    # Import only the command that runs; `crnr --help` and unknown names need them all.
    words = sys.argv[2:] if sys.argv[1:2] == ["help"] else sys.argv[1:]
    wanted = [" ".join(words[:count]) for count in (1, 2)]
    app = make_application([name for name in wanted if name in COMMANDS] or COMMANDS)
    try:
        app(windows_expand_args=False)  # a pattern may be one of names in a gallery; sources are expanded
    except SystemExit as e:
        if isinstance(e.code, int) and e.code > _SIGNALLED and is_working():
            # Everything is cleaned up, but Python would wait for threads in the middle of long products.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(e.code)
        raise
    finally:
        gc.freeze()  # no collection at exit either


def _use_utf8() -> None:
    """Start again if the locale is not UTF-8, as Python decodes arguments and file names by it.

    Names would otherwise not be the same text, and not give the same bytes, as in another locale. Python
    cannot change that once it runs. The environment tells the processes that we start.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.executable:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
