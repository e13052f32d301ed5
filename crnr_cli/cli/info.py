"""crnr info."""

from __future__ import annotations

import typer

from crnr_cli.cli import options
from crnr_cli.cli.command import command
from crnr_cli.cli.console import plain, print_json, print_table, results_console


@command
def info(
    context: typer.Context,
    gallery: options.GalleryArgument = None,
    option: options.GalleryPath = options.GALLERY,
    *,
    output: options.Json,
) -> None:
    """Show what is in a gallery and how it was made, after verifying its checksum."""
    from crnr_cli.gallery.file import load_gallery
    from crnr_cli.gallery.gallery import describe

    gallery = options.one_gallery(context, gallery, option)
    loaded = load_gallery(gallery)
    about = {"gallery": str(gallery), "bytes": gallery.stat().st_size, **describe(loaded)}
    if output.json:
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
    print_table(console, table)
    print_table(console, classes)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        return "x".join(map(str, value))
    return "-" if value is None else str(value)
