"""One prediction from the values of a record, which another program may have written."""

from __future__ import annotations

import math
from typing import Any

from crnr_cli.errors import DataError
from crnr_cli.results.decision import OK, Prediction

_NUMBERS = ("residual", "margin", "separation")
_TEXTS = ("path", "truth", "label", "runner_up", "status")


def prediction_of(record: Any, where: str) -> Prediction:
    """`where` says in messages where the record is."""
    if not isinstance(record, dict):
        raise DataError(f"{where}: not an object with the keys truth and label")
    missing = [key for key in ("truth", "label") if key not in record]
    if missing:
        raise DataError(f"{where}: no {' or '.join(missing)}; was it written by `crnr classify`?")
    texts = {key: _text(record.get(key), key, where) for key in _TEXTS}
    numbers = {key: _number(record.get(key), key, where) for key in _NUMBERS}
    found: Any = record.get("probability")
    probability = float(found) if _is_number(found) and 0 <= found <= 1 else None
    labels = record.get("set") if "probability" in record and texts["label"] else None
    if labels is not None and not (isinstance(labels, list) and all(isinstance(one, str) for one in labels)):
        raise DataError(f"{where}: set is not a list of labels")
    return Prediction(
        path=texts["path"] or "",
        truth=texts["truth"],
        label=texts["label"],
        residual=numbers["residual"],
        runner_up=texts["runner_up"],
        margin=numbers["margin"],
        status=texts["status"] or (OK if texts["label"] else "no_label"),
        separation=numbers["separation"],
        probability=probability,
        set=None if labels is None else tuple(labels),
    )


def _text(value: Any, key: str, where: str) -> str | None:
    """Numbers are labels too, if another program wrote them."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{where}: {key} is not a text")


def _number(value: Any, key: str, where: str) -> float | None:
    """None for what is missing, also for nan and inf, which other programs write then."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if not _is_number(value):
        raise DataError(f"{where}: {key} is not a number")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308
