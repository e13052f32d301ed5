"""The options for events, which are bursts of photographs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli.parsing import Number
from crnr_cli.errors import UsageError

if TYPE_CHECKING:
    from crnr_cli.results.events import EventOptions

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


@dataclass(frozen=True, kw_only=True)
class Events:
    """Which queries are answered together."""

    event_gap: EventGap = None
    event_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Group images by this column of the label table."),
    ] = None

    def to_fields(self) -> dict[str, Any]:
        """Return fields of `QueryOptions`."""
        return {"events": self._choose()}

    def _choose(self) -> EventOptions | None:
        if self.event_gap is None and self.event_by is None:
            return None
        from crnr_cli.results.events import EventOptions

        if self.event_gap is not None and self.event_by is not None:
            raise UsageError("--event-gap and --event-by contradict each other; give one of them")
        return EventOptions(self.event_gap, self.event_by)
