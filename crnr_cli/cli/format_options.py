"""The format that `crnr classify` writes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from crnr_cli.cli.values import Choice
from crnr_cli.errors import UsageError
from crnr_cli.results.format_names import FORMATS, format_by_name

_output_option = partial(typer.Option, rich_help_panel="Output")


@dataclass(frozen=True, kw_only=True)
class Format:
    json: Annotated[
        bool, _output_option("--json", help="Write JSON Lines instead of CSV: one object per input.")
    ] = False
    format: Annotated[
        str | None,
        _output_option(
            parser=Choice(FORMATS),
            help=f"Format to write: {', '.join(FORMATS)}.",
            show_default="csv, or as the name of the output ends: .jsonl, .parquet",
        ),
    ] = None

    def chosen(self, output: str) -> str:
        if self.json and self.format not in (None, "jsonl"):
            raise UsageError(f"--json and --format {self.format} contradict each other; give one of them")
        return "jsonl" if self.json else self.format or format_by_name(output)
