"""Options that several commands share: each is declared once, in a group that is a panel of --help.

A group is a frozen dataclass whose fields are options. A command takes groups as keyword-only parameters;
`command` makes Typer see their fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli.boundary import SKIPPED
from crnr_cli.cli.command import Written, given_values
from crnr_cli.cli.parsing import Choice, Number, Whole
from crnr_cli.errors import UsageError
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.sources.formats import READERS

if TYPE_CHECKING:
    from crnr_cli.sources.label_table import LabelOptions

GALLERY = Path("gallery.h5")
_MOST_JOBS = 4096

_reading_option = partial(typer.Option, rich_help_panel="Reading")
_strictness_option = partial(typer.Option, rich_help_panel="Strictness")
_confidence_option = partial(typer.Option, parser=Number(at_most=1), rich_help_panel="How sure")
_output_option = partial(typer.Option, rich_help_panel="Output")


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help=f"Folders, images, feature files ({', '.join(READERS)}), or - for a list of files on stdin.",
    ),
]
GalleryPath = Annotated[
    Path,
    typer.Option(
        "--gallery", "-g", metavar="FILE", envvar="CRNR_GALLERY", help="Gallery written by `crnr build`."
    ),
]
GalleryArgument = Annotated[
    Path | None,
    typer.Argument(metavar="GALLERY", help="The gallery; --gallery is another way to name it."),
]
# Without a default and the environment variable: a gallery that is changed has to be named.
ChangedGallery = Annotated[
    Path | None,
    typer.Option("--gallery", "-g", metavar="FILE", help="Another way to name the gallery."),
    Written(is_gallery=True),
]
ImagesFrom = Annotated[
    list[Path] | None,
    typer.Option(
        "--images-from",
        metavar="DIR",
        help="Folder with the images to show, if they have moved; can be repeated.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print as CSV what would happen, and do nothing.")]
PortableNames = Annotated[
    bool,
    typer.Option(
        "--portable-names",
        help="Give files and folders names that Windows and macOS can have too; always so on Windows.",
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on a Dask cluster: tcp://host:8786, or local:N for N processes."
    ),
]


@dataclass(frozen=True, kw_only=True)
class ConfidenceOptions:
    """When an answer is too unsure to be given, and which others are possible."""

    reject: Annotated[
        float | None,
        _confidence_option(
            metavar="RATE",
            help="Label queries that probably belong to no class as unknown, at this rate of false "
            "rejections.",
            show_default="never",
        ),
    ] = None
    min_probability: Annotated[
        float | None,
        _confidence_option(
            metavar="P",
            help="Label queries whose best class is less probable than this as unknown.",
            show_default="never",
        ),
    ] = None
    sets: Annotated[
        float | None,
        _confidence_option(
            metavar="LEVEL",
            help="Add a column with the labels that cannot be excluded at this level, such as 0.95.",
            show_default="no sets",
        ),
    ] = None

    def to_fields(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How sources are read."""

    features_key: Annotated[
        str | None,
        _reading_option(metavar="NAME", help="Dataset or column with the features.", show_default="features"),
    ] = None
    labels_key: Annotated[
        str | None,
        _reading_option(
            metavar="NAME", help="Dataset, column or .npy file with the labels.", show_default="labels"
        ),
    ] = None
    samples: Annotated[
        str | None,
        _reading_option(
            "--samples",
            parser=Choice(("rows", "columns")),
            help="Whether the samples are the rows or the columns of the features.",
            show_default="what fits the number of labels; rows, except in .mat files, if both do",
        ),
    ] = None
    labels: Annotated[
        Path | None,
        _reading_option(
            metavar="FILE.csv",
            help="Table with the labels of images, instead of one folder per class.",
        ),
    ] = None
    path_column: Annotated[
        str | None,
        _reading_option(metavar="NAME", help="Column of the table with the paths.", show_default="path"),
    ] = None
    label_column: Annotated[
        str | None,
        _reading_option(metavar="NAME", help="Column of the table with the labels.", show_default="label"),
    ] = None
    root: Annotated[
        Path | None,
        _reading_option(
            metavar="DIR",
            help="Folder that the paths in the table are relative to.",
            show_default="that of the table",
        ),
    ] = None
    null: Annotated[
        bool,
        _reading_option("-0", "--null", help="The files listed on stdin are separated by NUL."),
    ] = False
    max_pixels: Annotated[
        int,
        _reading_option(
            parser=Whole(), metavar="N", help="Images with more pixels than this are not decoded."
        ),
    ] = MAX_PIXELS
    jobs: Annotated[
        int | None,
        _reading_option(
            "--jobs",
            "-j",
            parser=Whole(at_most=_MOST_JOBS),
            metavar="N",
            help="Number of cores to use.",
            show_default="all",
        ),
    ] = None

    def _labels(self) -> LabelOptions | None:
        from crnr_cli.sources.label_table import LabelOptions

        if self.labels is not None:
            return LabelOptions(self.labels, self.path_column, self.label_column, self.root)
        of_table = {
            "--path-column": self.path_column,
            "--label-column": self.label_column,
            "--root": self.root,
        }
        for option, value in of_table.items():
            if value is not None:
                raise UsageError(f"{option} is for a table of labels; name it with --labels")
        return None

    def to_fields(self) -> dict[str, Any]:
        """As fields of `InputOptions`."""
        from crnr_cli.sources.formats import Keys

        keys = Keys(self.features_key, self.labels_key, self.samples)
        return {
            "keys": keys,
            "labels": self._labels(),
            "nul_separated": self.null,
            "max_pixels": self.max_pixels,
            "jobs": self.jobs,
        }


@dataclass(frozen=True, kw_only=True)
class ErrorHandlingOptions:
    """What happens when inputs cannot be used."""

    strict: Annotated[
        bool,
        _strictness_option("--strict", help="Stop at the first input that has to be skipped."),
    ] = False
    max_failure_rate: Annotated[
        float,
        _strictness_option(
            parser=Number(at_most=1),
            metavar="SHARE",
            help="Stop when more than this share of the inputs has to be skipped.",
        ),
    ] = 1.0
    allow_skipped: Annotated[
        bool,
        _strictness_option("--allow-skipped", help="Exit with code 0 even if some inputs were skipped."),
    ] = False

    def to_fields(self) -> dict[str, Any]:
        """As fields of `InputOptions`."""
        return {"max_failure_rate": 0.0 if self.strict else self.max_failure_rate}

    def finish(self, skipped: int) -> None:
        """Exit with SKIPPED if inputs were skipped and that is not allowed."""
        if skipped and not self.allow_skipped:
            raise typer.Exit(SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Quiet:
    quiet: Annotated[
        bool,
        _output_option("--quiet", "-q", help="Print no progress and no notes."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Json:
    json: Annotated[bool, _output_option("--json", help="Print the result as JSON.")] = False


@dataclass(frozen=True, kw_only=True)
class PrintOptions(Json, Quiet):
    """What most commands print."""


def one_gallery(context: typer.Context, argument: Path | None, option: Path | None) -> Path:
    """The gallery that was named, as the argument or with --gallery."""
    if argument and given_values(context, ["option"]):
        context.fail(f"two galleries are named, {argument} and {option}; name one")
    chosen = argument or option
    if chosen is None:
        context.fail("missing argument: GALLERY")
    return chosen


def split_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]
