"""Options that more than one command has, each named once."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crnr_cli.pictures.pixels import MAX_PIXELS as MAX_PIXELS
from crnr_cli.recipe.network_settings import CHANNELS, FILTERS, LAYOUTS, PRESETS, ExtractorOptions


class Axis(StrEnum):
    rows = "rows"
    columns = "columns"


class Precision(StrEnum):
    float32 = "float32"
    float64 = "float64"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Folders, pictures, .h5, .npz or .mat files, or - for a list of files on stdin.",
    ),
]
GalleryPath = Annotated[
    Path, typer.Option("--gallery", "-g", envvar="CRNR_GALLERY", help="Gallery written by `crnr build`.")
]
FeaturesKey = Annotated[
    str | None, typer.Option(metavar="NAME", help="Dataset that holds the features.", show_default="features")
]
LabelsKey = Annotated[
    str | None, typer.Option(metavar="NAME", help="Dataset that holds the labels.", show_default="labels")
]
Size = Annotated[
    str | None,
    typer.Option(
        metavar="WxH",
        help="Bring pictures to this size.",
        show_default="their own if all share one of at most 64x64, else 32x32",
    ),
]
Color = Annotated[bool, typer.Option("--color", help="Use colour, not grey values.")]
Pca = Annotated[int | None, typer.Option(min=1, metavar="K", help="Project on K principal components.")]
Dtype = Annotated[Precision, typer.Option(help="float64 is for agreement to 1e-10.")]
SampleAxis = Annotated[
    Axis | None,
    typer.Option(
        "--samples",
        help="Whether the samples are the rows or the columns of the features.",
        show_default="rows; in .mat as the number of labels tells",
    ),
]
NulSeparated = Annotated[bool, typer.Option("-0", "--null", help="The list on stdin is separated by NUL.")]
MaxPixels = Annotated[int, typer.Option(min=1, help="Pictures with more pixels than this are not decoded.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Cores to use.", show_default="all there are")
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Spread over a Dask cluster: tcp://scheduler:8786, or local:N processes."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes; errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first input that has to be skipped.")]
MaxFailureRate = Annotated[
    float, typer.Option(min=0, max=1, metavar="R", help="Stop when more than this share has to be skipped.")
]
AllowSkipped = Annotated[bool, typer.Option(help="Exit 0 even if some inputs were skipped.")]
Reject = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="RATE",
        help="Label as unknown what is likely none of the classes, at this rate of false rejections.",
        show_default="never",
    ),
]

Extractor = Annotated[
    Path | None,
    typer.Option(metavar="MODEL.onnx", help="Compare features that this network makes of pictures."),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--extractor-preset",
        metavar="NAME",
        help=f"How the network wants its pictures: {', '.join(PRESETS)}.",
        show_default="imagenet, but efficientnet-lite if the model is called so",
    ),
]
Crop = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Central part of a picture that the network sees; 0 is all of it, squeezed.",
        show_default="the preset's",
    ),
]
Filter = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"Resize by {', '.join(FILTERS)}.", show_default="the preset's"),
]
Mean = Annotated[
    str | None,
    typer.Option(
        metavar="X[,Y,Z]", help="Taken from the values of 0 to 255, by channel.", show_default="the preset's"
    ),
]
Std = Annotated[
    str | None,
    typer.Option(metavar="X[,Y,Z]", help="They are then divided by this.", show_default="the preset's"),
]
Channels = Annotated[
    str | None,
    typer.Option(metavar="ORDER", help=f"{', '.join(CHANNELS)}.", show_default="rgb, or grey if it has one"),
]
Layout = Annotated[
    str | None,
    typer.Option(metavar="ORDER", help=f"{', '.join(LAYOUTS)}.", show_default="by the model's shape"),
]
ModelOutput = Annotated[
    str | None,
    typer.Option("--extractor-output", metavar="NAME", help="Which of several outputs of the network."),
]
Pool = Annotated[
    str, typer.Option(metavar="HOW", help="avg: the mean of a network's maps, where they are no vectors.")
]
MovedExtractor = Annotated[
    Path | None,
    typer.Option(
        "--extractor",
        metavar="MODEL.onnx",
        help="Where the gallery's network is now.",
        show_default="where it was, or beside the gallery",
    ),
]

GALLERY = Path("gallery.h5")


def given(context: typer.Context, names: Iterable[str]) -> dict[str, Any]:
    """Those of these parameters that stand on the command line, by the names of their options."""
    return {
        f"--{name.replace('_', '-')}": context.params[name]
        for name in names
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }


def parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) not in (1, 2) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"{text!r} is not a size; write 32 or 32x24")
    return int(parts[0]), int(parts[-1])


def parse_methods(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(f"--methods {text!r}: write names with commas between, such as crnr,nrc")
    return names


def extractor_options(
    model: Path | None,
    *,
    preset: str | None,
    crop: float | None,
    filter: str | None,
    mean: str | None,
    std: str | None,
    channels: str | None,
    layout: str | None,
    output: str | None,
    pool: str,
) -> ExtractorOptions | None:
    """What was said of an extractor, None if there is none."""
    given = (preset, crop, filter, mean, std, channels, layout, output)
    if model is None:
        if pool != "none" or any(value is not None for value in given):
            raise typer.BadParameter(
                "how pictures are prepared for a network goes with --extractor MODEL.onnx"
            )
        return None
    return ExtractorOptions(
        model=model,
        preset=preset,
        crop=crop,
        filter=filter,
        mean=_parse_numbers("--mean", mean),
        std=_parse_numbers("--std", std),
        channels=channels,
        layout=layout,
        output=output,
        pool=pool,
    )


def _parse_numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as e:
        raise typer.BadParameter(f"{option} {text}: write a number, or three with commas") from e
