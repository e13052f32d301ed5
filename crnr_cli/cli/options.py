"""Options that several commands share: each is declared once, in a group that is a panel of --help.

A group is a frozen dataclass whose fields are options. A command takes groups as keyword-only parameters;
`command` makes Typer see their fields.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.choices import AUTO, PROVIDERS
from crnr_cli.cli.boundary import SKIPPED
from crnr_cli.cli.command import Written, given_values
from crnr_cli.cli.parsing import Choice, HiddenNames, Number, Whole
from crnr_cli.errors import UsageError
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.images.regions import MARGIN
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import READERS

if TYPE_CHECKING:
    from crnr_cli.sources.boxes import BoxOptions
    from crnr_cli.sources.label_table import LabelOptions

GALLERY = Path("gallery.h5")
_MOST_JOBS = 4096

_feature_file_option = partial(typer.Option, rich_help_panel="Feature file")
_label_table_option = partial(typer.Option, rich_help_panel="Label table")
_box_option = partial(typer.Option, rich_help_panel="Boxes")
_input_option = partial(typer.Option, rich_help_panel="Input")
_error_option = partial(typer.Option, rich_help_panel="Error handling")
_confidence_option = partial(typer.Option, parser=Number(at_most=1), rich_help_panel="Confidence")
_output_option = partial(typer.Option, rich_help_panel="Output")
network_option = partial(typer.Option, rich_help_panel="Network")


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help=f"Folders, images, feature files ({', '.join(READERS)}), or - to read a list of files from "
        "stdin.",
    ),
]
# Optional, because a label table names files too; see `require_sources`.
SourcesOrLabels = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SOURCE...",
        help=f"Folders, images, feature files ({', '.join(READERS)}), or - to read a list of files from "
        "stdin. With --labels or --boxes, the default is all files of that file.",
    ),
]
GalleryPath = Annotated[
    Path,
    typer.Option(
        "--gallery", "-g", metavar="FILE", envvar="CRNR_GALLERY", help="Gallery file from `crnr build`."
    ),
]
GalleryArgument = Annotated[
    Path | None,
    typer.Argument(metavar="GALLERY", help="Gallery file (same as --gallery)."),
]
# Without a default and the environment variable: a gallery that is changed has to be named.
ChangedGallery = Annotated[
    Path | None,
    typer.Option("--gallery", "-g", metavar="FILE", help="Gallery file (same as GALLERY)."),
    Written(is_gallery=True),
]
HtmlReport = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write an HTML report to this file."), Written()
]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FILE",
        help="Cache extracted features in this .h5 file; only new images are read.",
    ),
    Written(is_gallery=True),
]
ImagesFrom = Annotated[
    list[Path] | None,
    typer.Option("--images-from", metavar="DIR", help="Look for moved images in DIR."),
    HiddenNames("pictures-from"),
]
PredictionsFile = Annotated[
    Path, typer.Argument(metavar="CSV", help="Predictions file from `crnr classify`.")
]
ReviewedLabels = Annotated[
    Path | None,
    typer.Option("--corrections", metavar="FILE", help="Use the labels saved by `crnr review`."),
]
Below = Annotated[
    list[str] | None, typer.Option("--below", metavar="DIR", help="Also allow files below DIR.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print planned changes as CSV; change nothing.")]
PortableNames = Annotated[
    bool,
    typer.Option(
        "--portable-names",
        help="Use only names that are valid on Windows and macOS (always on in Windows).",
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run on a Dask cluster: tcp://HOST:PORT, or local:N for N processes.",
        rich_help_panel="Cluster",
    ),
]


Provider = Annotated[
    str,
    network_option(
        parser=Choice((AUTO, *PROVIDERS)),
        metavar="NAME",
        help="Run the network on this hardware: {choices}.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """For commands that use a gallery with a network."""

    model_path: Annotated[
        Path | None,
        network_option(
            metavar="MODEL.onnx",
            help="Path of the gallery's network, if it has moved.",
            show_default="as stored",
        ),
        HiddenNames("extractor"),
    ] = None
    provider: Provider = AUTO

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of `QueryOptions`."""
        return {"model": self.model_path, "provider": self.provider}


@dataclass(frozen=True, kw_only=True)
class ConfidenceOptions:
    """The limits below which crnr rejects a query, and the label sets of answers."""

    reject: Annotated[
        float | None,
        _confidence_option(
            metavar="RATE",
            help="Label queries that fit no class as unknown. RATE is the share of valid queries you accept "
            "to lose, such as 0.05.",
            show_default="never",
        ),
    ] = None
    min_probability: Annotated[
        float | None,
        _confidence_option(
            metavar="P",
            help="Label queries less probable than P as unknown.",
            show_default="never",
        ),
    ] = None
    taxa: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel="Confidence",
            help="Give such queries a broader class instead, by this CSV file of class,parent.",
        ),
    ] = None
    sets: Annotated[
        float | None,
        _confidence_option(
            metavar="LEVEL",
            help="Add a column of plausible labels that contains the true one with probability LEVEL, such "
            "as 0.95.",
        ),
    ] = None

    def to_fields(self) -> dict[str, Any]:
        if self.taxa is None:
            return dict(vars(self))
        from crnr_cli.results.taxa import read_taxa

        return {**vars(self), "taxa": read_taxa(self.taxa)}


@dataclass(frozen=True, kw_only=True)
class _InputOptions:
    """The base of the groups that say how sources are read, which a command combines as it needs them."""

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of `InputOptions`."""
        return {}


@dataclass(frozen=True, kw_only=True)
class _DecodingOptions(_InputOptions):
    """How images are decoded."""

    max_pixels: Annotated[
        int,
        _input_option(parser=Whole(), metavar="N", help="Do not decode images of more than N pixels."),
    ] = MAX_PIXELS
    jobs: Annotated[
        int | None,
        _input_option(
            "--jobs",
            "-j",
            parser=Whole(at_most=_MOST_JOBS),
            metavar="N",
            help="Number of CPU cores to use.",
            show_default="all",
        ),
    ] = None

    def to_fields(self) -> dict[str, Any]:
        return {**super().to_fields(), "max_pixels": self.max_pixels, "jobs": self.jobs}


@dataclass(frozen=True, kw_only=True)
class _ListOptions(_InputOptions):
    """A list of files on stdin."""

    null: Annotated[
        bool, _input_option("-0", "--null", help="Expect NUL between the file names on stdin.")
    ] = False

    def to_fields(self) -> dict[str, Any]:
        return {**super().to_fields(), "nul_separated": self.null}


@dataclass(frozen=True, kw_only=True)
class _LabelTableOptions(_InputOptions):
    """A table with the labels of images."""

    labels: Annotated[
        Path | None,
        _label_table_option(metavar="FILE.csv", help="Read labels from a CSV file instead of folders."),
    ] = None
    path_column: Annotated[
        str | None,
        _label_table_option(
            metavar="NAME", help="Column of the label table that holds the paths.", show_default="path"
        ),
    ] = None
    label_column: Annotated[
        str | None,
        _label_table_option(
            metavar="NAME", help="Column of the label table that holds the labels.", show_default="label"
        ),
    ] = None
    root: Annotated[
        Path | None,
        _label_table_option(
            metavar="DIR",
            help="Look for the paths of the label table below DIR.",
            show_default="the table's folder",
        ),
    ] = None

    def to_fields(self) -> dict[str, Any]:
        return {**super().to_fields(), "labels": self._labels()}

    def _labels(self) -> LabelOptions | None:
        if self.labels is not None:
            from crnr_cli.sources.label_table import LabelOptions

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


@dataclass(frozen=True, kw_only=True)
class _FeatureFileOptions(_InputOptions):
    """Which arrays of a feature file are used."""

    features_key: Annotated[
        str | None,
        _feature_file_option(
            metavar="NAME", help="Array or column that holds the features.", show_default="features"
        ),
    ] = None
    labels_key: Annotated[
        str | None,
        _feature_file_option(
            metavar="NAME", help="Array, column or .npy file that holds the labels.", show_default="labels"
        ),
    ] = None
    samples: Annotated[
        str | None,
        _feature_file_option(
            "--samples-axis",
            parser=Choice(("rows", "columns")),
            help="Read one item per row or per column of the features.",
            show_default="auto",
        ),
        HiddenNames("samples"),
    ] = None

    def to_fields(self) -> dict[str, Any]:
        from crnr_cli.sources.formats import Keys

        return {**super().to_fields(), "keys": Keys(self.features_key, self.labels_key, self.samples)}


BoxMargin = Annotated[
    float,
    _box_option(
        parser=Number(at_most=10),
        metavar="SHARE",
        help="Widen every box by SHARE of its size on each side.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class _BoxOptions(_InputOptions):
    """A detector's boxes, which are read instead of whole images."""

    boxes: Annotated[
        Path | None,
        _box_option(
            metavar="FILE",
            help="Read one item per box of this file: MegaDetector's JSON, or a CSV (path,x,y,width,height).",
        ),
    ] = None
    min_confidence: Annotated[
        float | None,
        _box_option(
            parser=Number(at_most=1),
            metavar="X",
            help="Leave out boxes with a confidence below X.",
            show_default="0.2",
        ),
    ] = None
    category: Annotated[
        str | None,
        _box_option(
            metavar="NAME",
            help="Use only boxes of this category of MegaDetector; any uses all.",
            show_default="animal",
        ),
    ] = None
    box_root: Annotated[
        Path | None,
        _box_option(
            metavar="DIR",
            help="Look for the paths of the box file below DIR.",
            show_default="auto",
        ),
    ] = None
    box_unit: Annotated[
        str | None,
        _box_option(
            parser=Choice(("relative", "pixels")),
            help="Read the numbers of a CSV in this unit: {choices}.",
            show_default="auto",
        ),
    ] = None
    box_margin: BoxMargin = MARGIN

    def to_fields(self) -> dict[str, Any]:
        return {**super().to_fields(), "boxes": self._boxes(), "box_margin": self.box_margin}

    def _boxes(self) -> BoxOptions | None:
        given = {
            "min_confidence": self.min_confidence,
            "category": self.category,
            "root": self.box_root,
            "unit": self.box_unit,
        }
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.boxes is None:
            options = {"root": "--box-root", "unit": "--box-unit"}
            for name in chosen:
                option = options.get(name, f"--{name.replace('_', '-')}")
                raise UsageError(f"{option} is for a file of boxes; name it with --boxes")
            return None
        from crnr_cli.sources.boxes import BoxOptions

        return BoxOptions(self.boxes, **chosen)


@dataclass(frozen=True, kw_only=True)
class ContentOptions(_ListOptions, _FeatureFileOptions, _LabelTableOptions, _BoxOptions):
    """How sources are read whose images are not decoded."""


@dataclass(frozen=True, kw_only=True)
class ImageSourceOptions(_DecodingOptions, _ListOptions, _LabelTableOptions):
    """How images are read."""


@dataclass(frozen=True, kw_only=True)
class QuerySourceOptions(_DecodingOptions, _FeatureFileOptions, _LabelTableOptions, _BoxOptions):
    """How one query is read."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions(_DecodingOptions, _ListOptions, _FeatureFileOptions, _LabelTableOptions, _BoxOptions):
    """How sources are read."""


@dataclass(frozen=True, kw_only=True)
class ErrorHandlingOptions:
    """The limits for inputs that fail."""

    strict: Annotated[
        bool,
        _error_option("--strict", help="Stop at the first file that fails."),
    ] = False
    max_failure_rate: Annotated[
        float,
        _error_option(
            parser=Number(at_most=1),
            metavar="SHARE",
            help="Stop when more than SHARE of the files fail.",
        ),
    ] = 1.0
    allow_skipped: Annotated[
        bool,
        _error_option("--allow-skipped", help="Exit with 0 even if some files failed."),
    ] = False
    verbose: Annotated[
        bool,
        _error_option("--verbose", help="Print all failed files and notes, not only the first 10 of a kind."),
    ] = False

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of `InputOptions`."""
        return {"max_failure_rate": self.allowed_rate, "all_failures": self.verbose}

    @property
    def allowed_rate(self) -> float:
        """The share of inputs that may fail."""
        return 0.0 if self.strict else self.max_failure_rate

    def finish(self, skipped: int) -> None:
        """Exit with SKIPPED if inputs were skipped and that is not allowed."""
        if skipped and not self.allow_skipped:
            raise typer.Exit(SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Quiet:
    quiet: Annotated[
        bool,
        _output_option("--quiet", "-q", help="Print no progress, notes or failed files."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Json:
    json: Annotated[bool, _output_option("--json", help="Print the result as JSON.")] = False


@dataclass(frozen=True, kw_only=True)
class PrintOptions(Json, Quiet):
    """The output options of most commands."""


def one_gallery(context: typer.Context, argument: Path | None, option: Path | None) -> Path:
    """Return the gallery that was named, as the argument or with --gallery."""
    if argument and given_values(context, ["option"]):
        context.fail(f"two galleries are named, {argument} and {option}; name one")
    chosen = argument or option
    if chosen is None:
        context.fail("missing argument: GALLERY")
    return chosen


def require_sources(context: typer.Context, sources: list[str] | None, *tables: Path | None) -> list[str]:
    """Return the sources; there may be none if one of the tables, of labels or boxes, names the files."""
    if not sources and not any(tables):
        from crnr_cli.cli.help import SCREENS

        example = SCREENS[context.info_name or ""].examples[0]
        context.fail(f"missing argument: SOURCE..., as in `{example}`")
    return sources or []


def split_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]
