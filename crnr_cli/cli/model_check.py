"""crnr model check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli.command import command
from crnr_cli.cli.console import print_facts, print_json, results_console
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
    from crnr_cli.recipe.network_settings import NetworkOptions
    from crnr_cli.sources.base import InputOptions

    settings = {**network.settings(model), **({} if size is None else {"size": parse_size(size)})}
    report = check_model(NetworkOptions(**settings), InputOptions(provider=network.provider), picture)
    if output.json:
        print_json(_facts(report, picture))
    else:
        _show(report, picture)
    report.explanation.made()  # the reason why it cannot be used, if there is one


def _facts(report: CheckReport, picture: Path | None) -> dict[str, Any]:
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
        "picture": None if picture is None else str(picture),
        "is_blank": trial.is_blank,
        "smallest": float(trial.vector.min()),
        "largest": float(trial.vector.max()),
        "share_of_zeros": float((trial.vector == 0).mean()),
        "milliseconds_per_picture": round(trial.milliseconds, 2),
    }


def _show(report: CheckReport, picture: Path | None) -> None:
    """Every setting with its reason, as far as they could be decided, and what the trial gave."""
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
        facts.append(("features", str(len(trial.vector)), "numbers per picture"))
        facts.append(("their values", values, f"{what}, for {picture or 'random colours'}"))
        facts.append(("speed", f"{trial.milliseconds:.1f} ms", "per picture, without decoding it"))
    print_facts(results_console(), facts)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
