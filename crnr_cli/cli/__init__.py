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
from crnr_cli.cli.parsing import Command, Commands
from crnr_cli.system.cores import is_working
from crnr_cli.system.signals import die_of_broken_pipes, set_up_streams

# Every command is a function in the module of the same name; its help ends with this example. The panels are
# those of `crnr --help`, and both they and their commands are in the order of use. The commands of a group,
# such as `crnr model get`, are named after it.
PANELS = {
    "Label files": {
        "build": "crnr build gallery/ --pca 100 --lam 0.1",
        "classify": "find queries -name '*.png' | crnr classify - -o out.csv",
        "evaluate": "crnr evaluate out.csv --min-accuracy 0.9",
        "review": "crnr review out.csv -o review.html",
        "sort": "crnr sort out.csv sorted/ --how link",
    },
    "Choose a method and its settings": {
        "compare": "crnr compare gallery/ --test labelled/ --methods crnr,crc,svm --set crc.lam=0.1",
        "tune": "crnr tune gallery/ -o gallery.h5 --budget 60",
    },
    "Inspect answers and galleries": {
        "audit": "crnr audit gallery.h5 --csv audit.csv --html audit.html",
        "explain": "crnr explain query.png --against nrc -o why.png",
        "info": "crnr info gallery.h5 --json",
        "verify": "crnr verify gallery.h5 --against gallery/",
    },
    "Manage galleries": {
        "split": "crnr split images/ --gallery gallery/ --queries queries/ --share 0.7",
        "add": "crnr add gallery.h5 new_images/",
        "remove": "crnr remove gallery.h5 --class spam --sample 'gallery/ham/*.png'",
        "rename": "crnr rename gallery.h5 spam junk",
    },
    "Photographs and networks": {
        "extract": "crnr extract photos/ --extractor efficientnet-lite0 -o features.h5",
        "model list": "crnr model list",
        "model get": "crnr model get efficientnet-lite0",
        "model check": "crnr model check model.onnx --image photo.jpg",
    },
}
_SIGNALLED = 128  # exit codes above this are those of a signal
# What the help of a group says about it, and its example.
GROUPS = {
    "model": (
        "Get networks that turn photographs into features, and check models of your own.",
        "crnr model get efficientnet-lite0 && crnr build photos/ --extractor efficientnet-lite0",
    )
}
COMMANDS = [name for commands in PANELS.values() for name in commands]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crnr {__version__}")
        raise typer.Exit


def crnr(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Label files by comparing them with a gallery of labelled examples."""


def make_application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The Typer application with these commands."""
    app = typer.Typer(
        name="crnr",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # a bug keeps its plain traceback
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(
        epilog="Example: crnr build gallery/ && crnr classify queries/ -o out.csv && crnr evaluate out.csv"
    )(crnr)
    wanted = set(names)
    groups: dict[str, typer.Typer] = {}
    for panel, commands in PANELS.items():
        for name in filter(wanted.__contains__, commands):
            group, _, own_name = name.rpartition(" ")
            if group and group not in groups:
                about, example = GROUPS[group]
                groups[group] = typer.Typer(
                    cls=Commands, no_args_is_help=True, help=about, epilog=f"Example: {example}"
                )
                app.add_typer(groups[group], name=group, rich_help_panel=panel)
            epilog = f"Example: {commands[name]}"
            parent = groups[group] if group else app
            parent.command(own_name, cls=Command, epilog=epilog, rich_help_panel=None if group else panel)(
                function_of(name)
            )
    return app


def function_of(command: str) -> Callable[..., None]:
    """The function of a command, whose module is imported now."""
    module = import_module(f"crnr_cli.cli.{command.partition(' ')[0]}")
    function: Callable[..., None] = getattr(module, command.replace(" ", "_"))
    return function


def main() -> None:
    _use_utf8()
    set_up_streams()
    die_of_broken_pipes()  # commands handle them in boundary()
    # Start-up creates almost no garbage, and looking for it takes a tenth of the time of a short command.
    gc.set_threshold(50_000, 20, 50)
    # Import only the command that runs; --help and unknown names need them all.
    wanted = [" ".join(sys.argv[1:end]) for end in (2, 3)]
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
