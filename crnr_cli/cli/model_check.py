"""crnr model check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli.command import command
from crnr_cli.cli.console import plain, print_json, print_table, results_console
from crnr_cli.cli.network_options import Network
from crnr_cli.cli.options import Json
from crnr_cli.cli.vector_options import Size, parse_size

if TYPE_CHECKING:
    from crnr_cli.jobs.check_model import CheckReport


@command
def model_check(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Path of an ONNX model, or a name of `crnr model list`.")
    ],
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Picture to try the model on.", show_default="random colours"),
    ] = None,
    size: Size = None,
    *,
    network: Network,
    output: Json,
) -> None:
    """Show what a network takes and returns, how pictures are prepared for it and why, and how fast it is."""
    from crnr_cli.jobs.check_model import check_model
    from crnr_cli.sources.base import InputOptions

    settings = {**network.settings(model), **({} if size is None else {"size": parse_size(size)})}
    report = check_model(settings, InputOptions(provider=network.provider), picture)
    facts = _facts(report, picture)
    if output.json:
        print_json(facts)
        return
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), plain(_shown(name, value)))
    print_table(results_console(), table)


def _facts(report: CheckReport, picture: Path | None) -> dict[str, Any]:
    about = report.network.facts()["extractor"]
    prepared = ("size", "channels", "layout", "crop", "filter", "mean", "std")
    vector = report.vector
    return {
        "model": str(report.path),
        "inputs": report.inputs,
        "outputs": report.outputs,
        "assumed": [note.text for note in report.notes],
        "preparation": {name: about[name] for name in prepared},
        "features": {"count": len(vector), "output": about["output"], "pool": about["pool"]},
        "picture": None if picture is None else str(picture),
        "is_blank": report.is_blank,
        "values": {
            "smallest": float(vector.min()),
            "largest": float(vector.max()),
            "zeros": float((vector == 0).mean()),
        },
        "provider": report.provider,
        "milliseconds_per_picture": round(report.milliseconds, 2),
    }


def _shown(name: str, value: Any) -> str:
    """A fact as text."""
    if name in ("inputs", "outputs"):
        return "\n".join(f"{port['name']}, {port['type']}: {_shape(port['shape'])}" for port in value)
    if name == "assumed":
        return "\n".join(value) or "nothing"
    if name == "picture":
        return value or "random colours"
    if name == "values":
        return f"{value['smallest']:.4g} to {value['largest']:.4g}, {value['zeros']:.0%} are 0"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_setting(item)}" for key, item in value.items())
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _shape(shape: list[Any]) -> str:
    return " x ".join("?" if side is None else str(side) for side in shape)


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_setting, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
