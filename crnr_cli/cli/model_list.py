"""crnr model list."""

from __future__ import annotations

from typing import Any

from crnr_cli.cli.command import command
from crnr_cli.cli.console import plain, print_json, print_table, results_console, say
from crnr_cli.cli.options import Json


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
    print_table(console, _table(known))
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


def _table(models: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("name", "features", "pixels", "MB", "licence", "preset", "here"):
        table.add_column(name, justify="right" if name in ("features", "pixels", "MB") else "left")
    for model in models:
        sizes = (model["features"], model["size"], model["megabytes"])
        here = "yes" if model["is_here"] else "no"
        table.add_row(model["name"], *map(str, sizes), model["licence"], model["preset"], here)
    return table
