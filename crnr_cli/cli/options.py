"""Options that more than one command has, each named once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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

MAX_PIXELS = 89_478_485
GALLERY = Path("gallery.h5")


def parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) not in (1, 2) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"{text!r} is not a size; write 32 or 32x24")
    return int(parts[0]), int(parts[-1])
