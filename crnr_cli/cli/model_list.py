"""crnr model list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crnr_cli.cli.command import command
from crnr_cli.cli.console import natural_width, plain, print_json, print_table, results_console, say
from crnr_cli.cli.options import Json

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = ("name", "features", "pixels", "MB", "licence", "preset", "here")
_NUMBERS = ("features", "pixels", "MB")
_DISPENSABLE = ("preset", "pixels", "MB", "features")  # on a narrow terminal, in this order


@command
def model_list(*, output: Json) -> None:
    """Show the networks that crnr knows, which of them are here, and how to get the others."""
    from crnr_cli.models.catalog import MODELS
    from crnr_cli.models.folder import command_for, is_file, models_folder, other_models, place_of

    known = [
        {
            "name": model.name,
            "features": model.n_features,
            "size": model.size,
            "megabytes": model.megabytes,
            "licence": model.licence,
            "origin": model.origin,
            "preset": model.preset,
            "path": str(place_of(model)),
            "is_here": is_file(place_of(model)),
            "command": command_for(model),
        }
        for model in MODELS.values()
    ]
    others = [{"name": path.stem, "path": str(path)} for path in other_models()]
    if output.json:
        print_json({"folder": str(models_folder()), "models": known, "others": others})
        return
    console = results_console()
    print_table(console, _fitting(console, known))
    for other in others:
        console.print(plain(f"{other['name']}: yours, {other['path']}"))
    if missing := [model for model in known if not model["is_here"]]:
        console.print("\nTo get a model, run its command; then use it with --extractor NAME.")
        for model in missing:
            console.print()
            console.print(plain(f"{model['name']} ({model['origin']})"))
            # Never wrapped, so that it can be copied.
            console.print(plain(f"  {model['command']}"), soft_wrap=True)
    say(f"models are in {models_folder()}, or in the folder that CRNR_MODELS names")


def _table(models: list[dict[str, Any]], columns: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for model in models:
        cells = model | {"pixels": model["size"], "MB": model["megabytes"]}
        cells["here"] = "yes" if model["is_here"] else "no"
        table.add_row(*(str(cells[column]) for column in columns))
    return table


def _fitting(console: Console, models: list[dict[str, Any]]) -> Any:
    """The table with as many columns as fit; --json has all."""
    for left_out in range(len(_DISPENSABLE) + 1):
        table = _table(models, [name for name in _COLUMNS if name not in _DISPENSABLE[:left_out]])
        if not console.is_terminal or natural_width(console, table) <= console.width:
            break
    return table
