"""The options of extractors, networks and steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.choices import (
    AUTO,
    BLOCK_NORMS,
    CHANNELS,
    FILTERS,
    LAYOUTS,
    OLD_POOLS,
    POOLS,
    PROVIDERS,
    ExtractorOptions,
)
from crnr_cli.cli.command import given_values
from crnr_cli.cli.options import SourceOptions
from crnr_cli.cli.parsing import Choice, ExtractorName, Number, Numbers, Whole
from crnr_cli.errors import UsageError
from crnr_cli.models.presets import PRESETS

if TYPE_CHECKING:
    from crnr_cli.gallery.samples import Reading
    from crnr_cli.recipe.base import Step

_network_option = partial(typer.Option, rich_help_panel="Network")
Provider = Annotated[
    str,
    _network_option(
        parser=Choice((AUTO, *PROVIDERS)),
        metavar="NAME",
        help="What the network runs on: {choices}. auto takes the best that onnxruntime has.",
    ),
]
_LONGEST_SIDE = 65535  # of an image, in pixels
TRIED_PARTS = "0,2x2,4x4"
_vectors_option = partial(typer.Option, rich_help_panel="Vectors")
Size = Annotated[
    str | None,
    _vectors_option(
        metavar="WxH",
        help="Resize images to this size.",
        show_default="their own if it is the same for all and at most 64x64; else 32x32, or for the "
        "gradients of larger images 64x64; for a network the model's",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PreprocessingOptions:
    """A network that turns images into features, and how images are prepared for it."""

    extractor_preset: Annotated[
        str | None,
        _network_option(
            parser=Choice(PRESETS),
            help="How the network expects its images: {choices}.",
            show_default="as the file beside the model says, or by the model's name or layers",
        ),
    ] = None
    crop: Annotated[
        float | None,
        _network_option(
            parser=Number(at_most=1),
            metavar="SHARE",
            help="Central part of an image that the network sees; 0 squeezes the full image.",
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

    def to_settings(self, model: Path) -> dict[str, Any]:
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

    def refuse_without_network(self) -> None:
        """Without a network, there must be no options for one."""
        default = PreprocessingOptions()
        given = [name for name, value in vars(self).items() if value != getattr(default, name)]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            apply = "apply" if len(given) > 1 else "applies"
            raise UsageError(f"{options} only {apply} to networks; add --extractor NAME or MODEL.onnx")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
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

    def to_fields(self) -> dict[str, Any]:
        """As fields of `QueryOptions`."""
        return {"model": self.extractor, "provider": self.provider}


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions:
    """How images become numbers."""

    extractor: Annotated[
        Any,  # a name, or the path of a network
        _vectors_option(
            parser=ExtractorName(),
            metavar="NAME|FILE",
            help="What turns an image into numbers: gradients, pixels, or a network: the name of one that "
            "`crnr model list` shows, or the path of an ONNX model.",
            show_default="gradients",
        ),
    ] = None
    size: Size = None
    color: Annotated[
        bool,
        _vectors_option(
            "--color",
            help="Compare images in colour; by default, gradients do if most of the gallery's images are "
            "in colour.",
        ),
    ] = False
    grey: Annotated[bool, _vectors_option("--grey", help="Compare images in grey.")] = False
    cell: Annotated[
        int | None,
        _vectors_option(
            parser=Whole(at_most=_LONGEST_SIDE),
            metavar="N",
            help="Side in pixels of the cells that gradients are collected in.",
            show_default="an eighth of the shorter side, but at least 3",
        ),
    ] = None
    bins: Annotated[
        int | None,
        _vectors_option(
            parser=Whole(2, 64),
            metavar="N",
            help="Number of gradient directions; it must be even.",
            show_default="8",
        ),
    ] = None
    block_norm: Annotated[
        str | None,
        _vectors_option(
            parser=Choice(BLOCK_NORMS),
            metavar="NAME",
            help="How blocks of 2x2 cells are normalized: {choices}. soft leaves weak blocks weak; clipped "
            "makes all equally strong.",
            show_default="soft",
        ),
    ] = None

    def moved_model(self, context: typer.Context, fixed: Iterable[str], what: str) -> Path | None:
        """The network's path for --update, which keeps all other settings: the file may have moved."""
        model = self.extractor if isinstance(self.extractor, Path) else None
        changed = [
            name
            for name in given_values(context, fixed)
            if name != "--provider" and not (name == "--extractor" and model)
        ]
        if changed:
            raise UsageError(
                f"--update keeps the settings of {what}; leave out {', '.join(changed)} or --update"
            )
        return model

    def to_options(self, network: PreprocessingOptions) -> ExtractorOptions:
        """The extractor and its settings, as far as they were given."""
        if self.color and self.grey:
            raise UsageError("--color and --gray contradict each other; give one of them")
        of_images = {
            "size": parse_size(self.size),
            "color": True if self.color else False if self.grey else None,
            "cell": self.cell,
            "bins": self.bins,
            "block_norm": self.block_norm,
        }
        settings = {name: value for name, value in of_images.items() if value is not None}
        if isinstance(self.extractor, Path):
            if "color" in settings:
                raise UsageError("--color and --gray do not apply to networks; use --channels")
            return ExtractorOptions("network", {**settings, **network.to_settings(self.extractor)})
        network.refuse_without_network()
        return ExtractorOptions(self.extractor, settings)


@dataclass(frozen=True, kw_only=True)
class VectorOptions(ExtractionOptions):
    """How samples become vectors, besides the steps of the recipe."""

    dtype: Annotated[
        str,
        _vectors_option(
            parser=Choice(("float32", "float64")),
            help="Precision of the numbers. Use float64 to reproduce published results to 1e-10.",
        ),
    ] = "float32"


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of the recipe: one option each, with the name of the step in the registry."""

    power: Annotated[
        float,
        _vectors_option(
            parser=Number(above=0, at_most=100),
            metavar="P",
            help="Raise the absolute value of every feature to the power P, keeping its sign.",
        ),
    ] = 1.0
    pca: Annotated[
        int | None,
        _vectors_option(parser=Whole(), metavar="K", help="Project on K principal components."),
    ] = None
    parts: Annotated[
        str | None,
        _vectors_option(
            metavar="RxC",
            help="Divide images into R rows and C columns of tiles, each compared by itself: robust if a "
            "part of an image may be covered.",
            show_default="whole images",
        ),
    ] = None

    def make_steps(self) -> tuple[Step, ...]:
        from crnr_cli.recipe.recipe import make_steps

        return make_steps(vars(self))


@dataclass(frozen=True, kw_only=True)
class TriedSteps:
    """The steps of the recipe for `tune`: the settings to try, separated by commas."""

    power: Annotated[
        str,
        _vectors_option(metavar="P,...", help="Powers to try; the first is preferred."),
    ] = "1,0.5"
    pca: Annotated[
        str,
        _vectors_option(
            metavar="K,...",
            help="Numbers of principal components to try, 0 for no PCA; the first is preferred.",
        ),
    ] = "0"
    parts: Annotated[
        str,
        _vectors_option(
            metavar="RxC,...",
            help="Divisions into tiles to try, 0 for whole images; the first is preferred.",
        ),
    ] = "0"

    def parse(self) -> dict[str, list[Any]]:
        """The settings by the name of the step."""
        from crnr_cli.recipe.recipe import STEPS

        settings: dict[str, list[Any]] = {}
        for name, text in vars(self).items():
            try:
                settings[name] = [STEPS[name].parse(part) for part in text.split(",")]
            except (ValueError, OverflowError) as e:
                default = type(self)().__dict__[name]
                raise UsageError(
                    f"--{name} {text!r}: give settings separated by commas, such as {default}"
                ) from e
        return settings


def make_reading(
    input: SourceOptions, vectors: VectorOptions, network: PreprocessingOptions, **other: Any
) -> Reading:
    """How a labelled source is read, from these groups of options."""
    from crnr_cli.gallery.samples import Reading

    of_vectors: dict[str, Any] = {
        "extractor": vectors.to_options(network),
        "dtype": vectors.dtype,
        "provider": network.provider,
    }
    return Reading(**input.to_fields(), **of_vectors, **other)


def parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) not in (1, 2) or not all(map(_is_side, parts)):
        raise UsageError(f"--size {text!r}: write 32 or 32x24, with at most {_LONGEST_SIDE} pixels per side")
    return int(parts[0]), int(parts[-1])


def _is_side(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and 0 < int(text) <= _LONGEST_SIDE
