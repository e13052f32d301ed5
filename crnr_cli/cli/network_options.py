"""The group of options for a network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.recipe.network_settings import CHANNELS, FILTERS, LAYOUTS, PRESETS, NetworkOptions

_network_option = partial(typer.Option, rich_help_panel="Network")


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network that turns pictures into features, and how pictures are prepared for it."""

    extractor: Annotated[
        Path | None,
        _network_option(
            metavar="MODEL.onnx", help="Compare pictures by the features that this network extracts."
        ),
    ] = None
    extractor_preset: Annotated[
        str | None,
        _network_option(
            metavar="NAME",
            help=f"How the network expects its pictures: {', '.join(PRESETS)}.",
            show_default="imagenet; efficientnet-lite by the model's name or layers",
        ),
    ] = None
    crop: Annotated[
        float | None,
        _network_option(
            metavar="SHARE",
            help="Central part of a picture that the network sees; 0 squeezes the full picture.",
            show_default="the preset's",
        ),
    ] = None
    filter: Annotated[
        str | None,
        _network_option(
            metavar="NAME", help=f"Resampling filter: {', '.join(FILTERS)}.", show_default="the preset's"
        ),
    ] = None
    mean: Annotated[
        str | None,
        _network_option(
            metavar="X[,Y,Z]",
            help="Subtracted from the values of 0 to 255, per channel.",
            show_default="the preset's",
        ),
    ] = None
    std: Annotated[
        str | None,
        _network_option(
            metavar="X[,Y,Z]", help="The result is divided by this, per channel.", show_default="the preset's"
        ),
    ] = None
    channels: Annotated[
        str | None,
        _network_option(
            metavar="ORDER",
            help=f"Order of the channels: {', '.join(CHANNELS)}.",
            show_default="rgb; grey if the network has one channel",
        ),
    ] = None
    layout: Annotated[
        str | None,
        _network_option(
            metavar="ORDER",
            help=f"Order of the axes: {', '.join(LAYOUTS)}.",
            show_default="as the model's input suggests",
        ),
    ] = None
    extractor_output: Annotated[
        str | None,
        _network_option(metavar="NAME", help="Which of several outputs to use."),
    ] = None
    pool: Annotated[
        str,
        _network_option(
            metavar="HOW", help="avg takes the mean of feature maps, if the network's output is not a vector."
        ),
    ] = "none"

    def options(self) -> NetworkOptions | None:
        """None if no network is used."""
        if self.extractor is None:
            if self != Network():
                raise typer.BadParameter("options for a network need --extractor MODEL.onnx")
            return None
        return NetworkOptions(
            model=self.extractor,
            preset=self.extractor_preset,
            crop=self.crop,
            filter=self.filter,
            mean=_parse_numbers("--mean", self.mean),
            std=_parse_numbers("--std", self.std),
            channels=self.channels,
            layout=self.layout,
            output=self.extractor_output,
            pool=self.pool,
        )


@dataclass(frozen=True, kw_only=True)
class Model:
    """For commands that use a gallery with a network."""

    extractor: Annotated[
        Path | None,
        _network_option(
            metavar="MODEL.onnx",
            help="Path of the gallery's network, if it has moved.",
            show_default="where it was, or next to the gallery",
        ),
    ] = None


def _parse_numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as e:
        raise typer.BadParameter(f"{option} {text}: give one number, or three separated by commas") from e
