"""The option for events, which are bursts of photographs, of several commands."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli.parsing import Number
from crnr_cli.images.dates import BY_EXIF

if TYPE_CHECKING:
    from crnr_cli.gallery.samples import Reading

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"([0-9.]+)([smh]?)", re.ASCII)


class Duration(Number):
    """A time in seconds, minutes or hours."""

    name = "time"

    def parse(self, text: str) -> float:
        """Return the seconds; ValueError if it is no time."""
        found = _DURATION.fullmatch(text)
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


def with_events(reading: Reading, gap: float | None) -> Reading:
    """Return how examples are read, with the dates that events need."""
    if gap is None:
        return reading
    return replace(reading, event_gap=gap, dates=BY_EXIF, dates_option="--event-gap")
