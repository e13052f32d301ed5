"""The options for events, which are bursts of photographs, and for dates, of several commands."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli.parsing import Number, OptionalText
from crnr_cli.errors import UsageError
from crnr_cli.images.dates import BY_EXIF
from crnr_cli.records import dataclass

if TYPE_CHECKING:
    from crnr_cli.gallery.samples import Reading
    from crnr_cli.results.events import EventOptions

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_DURATION = r"([0-9.]+)([smh]?)"


class Duration(Number):
    """A time in seconds, minutes or hours."""

    name = "time"

    def parse(self, text: str) -> float:
        """Return the seconds; ValueError if it is no time."""
        found = re.fullmatch(_DURATION, text)
        if found is None:
            raise ValueError(text)
        return float(found[1]) * _SECONDS[found[2]]

    @property
    def description(self) -> str:
        return "a time such as 60s, 5m or 1h"


EventGap = Annotated[
    float | None,
    typer.Option(
        "--event-gap",
        parser=Duration(),
        metavar="TIME",
        help="Group images of a folder taken within TIME of the one before, such as 60s.",
    ),
]


Dates = Annotated[
    str | None,
    typer.Option(
        parser=OptionalText("exif", "exif|file"),
        metavar="[exif|file]",
        help="Add the capture dates of the EXIF data; with file, undated images get the file's time.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Events:
    """The queries that get one answer together."""

    event_gap: EventGap = None
    event_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Group images by this column of the label table."),
    ] = None

    def choose(self) -> EventOptions:
        """Return how queries are grouped, if one of the options is given."""
        from crnr_cli.results.events import EventOptions

        if self.event_gap is not None and self.event_by is not None:
            raise UsageError("--event-gap and --event-by contradict each other; give one of them")
        return EventOptions(self.event_gap, self.event_by)


def with_events(reading: Reading, gap: float | None) -> Reading:
    """Return how examples are read, with the dates that events need."""
    if gap is None:
        return reading
    return replace(reading, event_gap=gap, dates=BY_EXIF, dates_option="--event-gap")
