"""The group of options for a network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from crnr_cli.cli.values import Choice, Number, Numbers
from crnr_cli.errors import UsageError
from crnr_cli.models.presets import PRESETS
from crnr_cli.recipe.network_settings import CHANNELS, FILTERS, LAYOUTS, OLD_POOLS, POOLS
from crnr_cli.recipe.provider_names import AUTO, PROVIDERS

_network_option = partial(typer.Option, rich_help_panel="Network")

Provider = Annotated[
    str,
    _network_option(
        parser=Choice((AUTO, *PROVIDERS)),
        metavar="NAME",
        help="What the network runs on: {choices}. auto takes the best that onnxruntime has.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network that turns pictures into features, and how pictures are prepared for it."""

    extractor_preset: Annotated[
        str | None,
        _network_option(
            parser=Choice(PRESETS),
            help="How the network expects its pictures: {choices}.",
            show_default="as the file beside the model says, or by the model's name or layers",
        ),
    ] = None
    crop: Annotated[
        float | None,
        _network_option(
            parser=Number(at_most=1),
            metavar="SHARE",
            help="Central part of a picture that the network sees; 0 squeezes the full picture.",
            show_default="the preset's",
        ),
    ] = None
    filter: Annotated[
        str | None,
        _network_option(
            parser=Choice(FILTERS), help="Resampling filter: {choices}.", show_default="the preset's"
        ),
    ] = None
    mean: Annotated[
        Any,  # a tuple of numbers, which Typer would take for several values
        _network_option(
            parser=Numbers(),
            metavar="X[,Y,Z]",
            help="Mean per channel to subtract from the pixels, whose values are 0 to 255.",
            show_default="the preset's",
        ),
    ] = None
    std: Annotated[
        Any,  # a tuple of numbers, which Typer would take for several values
        _network_option(
            parser=Numbers(),
            metavar="X[,Y,Z]",
            help="Standard deviation per channel to divide by.",
            show_default="the preset's",
        ),
    ] = None
    channels: Annotated[
        str | None,
        _network_option(
            parser=Choice(CHANNELS),
            metavar="NAME",  # the names themselves would leave too little room beside them
            help="Order of the channels: {choices}.",
            show_default="rgb; grey if the network has one channel",
        ),
    ] = None
    layout: Annotated[
        str | None,
        _network_option(
            parser=Choice(LAYOUTS),
            metavar="NAME",
            help="Order of the axes of the network's input: {choices}.",
            show_default="as the model's input suggests",
        ),
    ] = None
    extractor_output: Annotated[
        str | None,
        _network_option(metavar="NAME", help="Which of several outputs to use."),
    ] = None
    pool: Annotated[
        str | None,
        _network_option(
            parser=Choice(POOLS, old_names=OLD_POOLS),
            metavar="NAME",
            help="How maps or tokens become a vector: {choices}. cls takes the first token, mean the mean "
            "of all places or tokens.",
            show_default="mean for maps; cls for tokens, if the network is known to have a class token",
        ),
    ] = None

    provider: Provider = AUTO

    def settings(self, model: Path) -> dict[str, Any]:
        """Those of `NetworkOptions` that were given."""
        given = {
            "preset": self.extractor_preset,
            "crop": self.crop,
            "filter": self.filter,
            "mean": self.mean,
            "std": self.std,
            "channels": self.channels,
            "layout": self.layout,
            "output": self.extractor_output,
            "pool": self.pool,
        }
        return {"model": model, **{name: value for name, value in given.items() if value is not None}}

    def refuse(self) -> None:
        """Without a network, there must be no options for one."""
        if self != Network():
            raise UsageError("options for a network need --extractor MODEL.onnx")


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
    provider: Provider = AUTO

    def values(self) -> dict[str, Any]:
        """As fields of `QueryOptions`."""
        return {"model": self.extractor, "provider": self.provider}
