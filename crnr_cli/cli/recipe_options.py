"""The options of extractors, networks and steps."""

from __future__ import annotations

from collections.abc import Iterable
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
    ExtractorOptions,
)
from crnr_cli.cli.command import given_values
from crnr_cli.cli.options import Provider, SourceOptions, network_option
from crnr_cli.cli.parsing import Choice, ExtractorName, HiddenNames, Number, Numbers, OptionalText, Whole
from crnr_cli.errors import UsageError
from crnr_cli.models.presets import PRESETS
from crnr_cli.records import dataclass

if TYPE_CHECKING:
    from crnr_cli.gallery.samples import Reading
    from crnr_cli.recipe.base import Step

_TRIED = "try-"  # begins the names of options with settings to try
_LONGEST_SIDE = 65535  # of an image, in pixels
_vectors_option = partial(typer.Option, rich_help_panel="Features")
Size = Annotated[
    str | None,
    _vectors_option(
        metavar="WxH",
        help="Resize images to WxH pixels.",
        show_default="auto",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PreprocessingOptions:
    """A network that turns images into features, and how images are prepared for it."""

    extractor_preset: Annotated[
        str | None,
        network_option(
            parser=Choice(PRESETS),
            help="Prepare images as this kind of network expects: {choices}.",
            show_default="auto",
        ),
    ] = None
    crop: Annotated[
        float | None,
        network_option(
            parser=Number(at_most=1),
            metavar="SHARE",
            help="Crop images to their central SHARE; 0 squeezes the full image.",
            show_default="by preset",
        ),
    ] = None
    filter: Annotated[
        str | None,
        network_option(
            parser=Choice(FILTERS),
            help="Resize images with this filter: {choices}.",
            show_default="by preset",
        ),
    ] = None
    mean: Annotated[
        Any,  # a tuple of numbers, which Typer would take for several values
        network_option(
            parser=Numbers(),
            metavar="X[,Y,Z]",
            help="Subtract this mean per channel from pixel values of 0 to 255.",
            show_default="by preset",
        ),
    ] = None
    std: Annotated[
        Any,  # a tuple of numbers, which Typer would take for several values
        network_option(
            parser=Numbers(),
            metavar="X[,Y,Z]",
            help="Divide by this standard deviation per channel.",
            show_default="by preset",
        ),
    ] = None
    channels: Annotated[
        str | None,
        network_option(
            parser=Choice(CHANNELS),
            help="Pass the channels in this order: {choices}.",
            show_default="auto",
        ),
    ] = None
    layout: Annotated[
        str | None,
        network_option(
            parser=Choice(LAYOUTS),
            help="Pass the axes in this order: {choices}.",
            show_default="auto",
        ),
    ] = None
    extractor_output: Annotated[
        str | None,
        network_option(metavar="NAME", help="Use the network's output NAME."),
    ] = None
    pool: Annotated[
        str | None,
        network_option(
            parser=Choice(POOLS, old_names=OLD_POOLS),
            help="Reduce maps or tokens to one vector: {choices}. cls takes the first token, mean the mean "
            "of all.",
            show_default="auto",
        ),
    ] = None
    mirror: Annotated[
        bool,
        network_option(
            "--mirror",
            help="Use the mean of the features of an image and of its mirror image.",
        ),
    ] = False

    provider: Provider = AUTO

    def to_settings(self, model: Path) -> dict[str, Any]:
        """Return the fields of `NetworkOptions` that were given."""
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
            "mirror": self.mirror or None,
        }
        return {"model": model, **{name: value for name, value in given.items() if value is not None}}

    def refuse_without_network(self) -> None:
        """Raise UsageError if options for a network were given."""
        default = PreprocessingOptions()
        given = [name for name, value in vars(self).items() if value != getattr(default, name)]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            apply = "apply" if len(given) > 1 else "applies"
            raise UsageError(f"{options} only {apply} to networks; add --extractor NAME or MODEL.onnx")


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions:
    """How images become features."""

    extractor: Annotated[
        Any,  # a name, or the path of a network
        _vectors_option(
            parser=ExtractorName(),
            metavar="NAME|FILE",
            help="Turn images into features by gradients, pixels, a network from `crnr model list`, or an "
            "ONNX file.",
            show_default="gradients",
        ),
        HiddenNames("model-path"),  # with --update and a gallery: the path of its network, as elsewhere
    ] = None
    size: Size = None
    color: Annotated[
        bool,
        _vectors_option(
            "--color",
            help="Compare images in colour (gradients do if most of the images are).",
        ),
    ] = False
    gray: Annotated[bool, _vectors_option("--gray", help="Compare images in grey."), HiddenNames("grey")] = (
        False
    )
    cell: Annotated[
        int | None,
        _vectors_option(
            parser=Whole(at_most=_LONGEST_SIDE),
            metavar="N",
            help="Size of a gradient cell in pixels.",
            show_default="auto",
        ),
    ] = None
    bins: Annotated[
        int | None,
        _vectors_option(
            parser=Whole(2, 64),
            metavar="N",
            help="Number of gradient directions, an even number.",
            show_default="8",
        ),
    ] = None
    block_norm: Annotated[
        str | None,
        _vectors_option(
            parser=Choice(BLOCK_NORMS),
            help="Normalize blocks of 2x2 cells: {choices}. soft leaves weak blocks weak, clipped makes all "
            "equally strong.",
            show_default="soft",
        ),
    ] = None

    def moved_model(
        self, context: typer.Context, fixed: Iterable[str], what: str, option: str = "--update"
    ) -> Path | None:
        """Return the network's path for an option that keeps all other settings: the file may have moved."""
        model = self.extractor if isinstance(self.extractor, Path) else None
        changed = [
            name
            for name in given_values(context, fixed)
            if name != "--provider" and not (name == "--extractor" and model)
        ]
        if changed:
            raise UsageError(
                f"{option} keeps the settings of {what}; leave out {', '.join(changed)} or {option}"
            )
        return model

    def to_options(self, network: PreprocessingOptions) -> ExtractorOptions:
        """Return the extractor and its settings, as far as they were given."""
        if self.color and self.gray:
            raise UsageError("--color and --gray contradict each other; give one of them")
        of_images = {
            "size": parse_size(self.size),
            "color": True if self.color else False if self.gray else None,
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
            help="Compute in this precision: {choices}. Use float64 to reproduce published results to 1e-10.",
        ),
    ] = "float32"


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of the recipe: one option each, with the name of the step in the registry."""

    power: Annotated[
        float | None,
        _vectors_option(
            parser=Number(above=0, at_most=100),
            metavar="P",
            help="Raise every feature to the power P, keeping its sign.",
            show_default="auto",
        ),
    ] = None
    pca: Annotated[
        int | None,
        _vectors_option(parser=Whole(), metavar="K", help="Reduce features to K principal components."),
    ] = None
    whiten: Annotated[
        float,
        _vectors_option(
            parser=Number(at_most=1),
            metavar="RHO",
            help="Shrink the differences within classes: the smaller RHO, the more; 0 is off.",
        ),
    ] = 0.0
    parts: Annotated[
        str | None,
        _vectors_option(
            metavar="RxC",
            help="Compare RxC tiles separately; robust to covered regions.",
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
        _vectors_option(
            "--try-power",
            metavar="P,...",
            help="Powers to try, preferred one first: another is chosen only if it is clearly better.",
        ),
        HiddenNames("power"),
    ] = "auto,1,0.7,0.5"
    pca: Annotated[
        str,
        _vectors_option(
            "--try-pca",
            metavar="K,...",
            help="Numbers of principal components to try (0: no PCA), preferred one first.",
        ),
        HiddenNames("pca"),
    ] = "0"
    whiten: Annotated[
        str,
        _vectors_option(
            "--try-whiten",
            parser=OptionalText("0,0.9,0.7,0.5", r"[\d.]+(,[\d.]+)*"),
            metavar="[RHO,...]",
            help="Whitenings to try (0: none), preferred one first; without a value, 0,0.9,0.7,0.5.",
        ),
    ] = "0"
    parts: Annotated[
        str,
        _vectors_option(
            "--try-parts",
            parser=OptionalText("0,2x2,4x4", r"(0|\d+x\d+)(,(0|\d+x\d+))*"),
            metavar="[RxC,...]",
            help="Tile grids to try (0: whole images), preferred one first; without a value, 0,2x2,4x4.",
        ),
        HiddenNames("parts"),
    ] = "0"

    def parse(self) -> dict[str, list[Any]]:
        """Return the settings by the name of the step."""
        from crnr_cli.recipe.recipe import STEPS

        settings: dict[str, list[Any]] = {}
        for name, text in vars(self).items():
            try:
                settings[name] = [STEPS[name].parse(part) for part in text.split(",")]
            except (ValueError, OverflowError) as e:
                default = type(self)().__dict__[name]
                raise UsageError(
                    f"--{_TRIED}{name} {text!r}: give settings separated by commas, such as {default}"
                ) from e
        return settings


def make_reading(
    input: SourceOptions, vectors: VectorOptions, network: PreprocessingOptions, **other: Any
) -> Reading:
    """Join these groups of options to the options for reading a labelled source."""
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
