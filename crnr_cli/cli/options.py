"""Options that more than one command has, each named once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...", help="Folders, pictures, .h5 or .npz files, or - for a list of files on stdin."
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

MAX_PIXELS = 89_478_485
GALLERY = Path("gallery.h5")
