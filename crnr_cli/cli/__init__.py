"""The command line: one short module a command. Only here are Typer and Rich imported.

Commands import the rest of the package when they run, so that `crnr --help` does not load NumPy.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Annotated

import typer

from crnr_cli import __version__
from crnr_cli.cli.add import add
from crnr_cli.cli.build import build
from crnr_cli.cli.classify import classify
from crnr_cli.cli.compare import compare
from crnr_cli.cli.evaluate import evaluate
from crnr_cli.cli.explain import explain
from crnr_cli.cli.info import info
from crnr_cli.cli.remove import remove
from crnr_cli.cli.tune import tune
from crnr_cli.cli.verify import verify

app = typer.Typer(
    name="crnr",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a bug keeps its plain traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crnr {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Example: crnr build gallery/ && crnr classify queries/ -o out.csv && crnr evaluate out.csv"
)
def crnr(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Label files by comparing them with a gallery of labelled examples."""


app.command(epilog="Example: crnr build gallery/ --pca 100 --lam 0.1")(build)
app.command(epilog="Example: find queries -name '*.png' | crnr classify - -o out.csv")(classify)
app.command(epilog="Example: crnr evaluate out.csv --min-accuracy 0.9")(evaluate)
app.command(
    epilog="Example: crnr compare gallery/ --test labelled/ --methods crnr,crc,svm --set crc.lam=0.1"
)(compare)
app.command(epilog="Example: crnr info gallery.h5 --json")(info)
app.command(epilog="Example: crnr explain query.png --against nrc -o why.png")(explain)
app.command(epilog="Example: crnr tune gallery/ -o gallery.h5 --budget 60")(tune)
app.command(epilog="Example: crnr add gallery.h5 new_pictures/")(add)
app.command(epilog="Example: crnr remove gallery.h5 --class spam --sample gallery/ham/7.png")(remove)
app.command(epilog="Example: crnr verify gallery.h5 --against gallery/")(verify)


def main() -> None:
    _settle_streams()
    # A reader of the help that goes away ends it, as it ends other programs; commands have their boundary.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    app()


def _settle_streams() -> None:
    """The same bytes in cron as in a terminal, whatever the locale and whichever streams are closed.

    Names that are not UTF-8 come out as they went in, but on stderr, which is for people.
    """
    if sys.stdout is None:  # to write there is an error, told when somebody does
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
