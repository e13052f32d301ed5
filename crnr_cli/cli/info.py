"""crnr info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.console import boundary, plain, print_json, results_console


def info(
    gallery: Annotated[
        Path, typer.Argument(envvar="CRNR_GALLERY", help="Gallery written by `crnr build`.")
    ] = options.GALLERY,
    json: options.Json = False,
) -> None:
    """Show what is in a gallery and how it was made. Its checksum is verified."""
    with boundary():
        from crnr_cli.gallery.file import describe, load_gallery

        loaded = load_gallery(gallery)
        about = {"gallery": str(gallery), "bytes": gallery.stat().st_size, **describe(loaded)}
        if json:
            print_json(about)
            return
        from rich.table import Table

        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column()
        table.add_column(overflow="fold")
        for name, value in about.items():
            if name != "classes":
                table.add_row(name.replace("_", " "), plain(_shown(value)))
        classes = Table(title="classes", box=None, pad_edge=False, title_justify="left")
        classes.add_column("class")
        classes.add_column("samples", justify="right")
        for name, count in about["classes"].items():
            classes.add_row(plain(name), str(count))
        console = results_console()
        console.print(table)
        console.print(classes)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        return "x".join(map(str, value))
    return "-" if value is None else str(value)
