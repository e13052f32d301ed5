"""What may be read from a MATLAB file, whichever way it is stored: numbers and text."""

from __future__ import annotations

from pathlib import Path

from crnr_cli.errors import DataError

REFUSED = 2  # exit code of the reading process whose stderr is the whole message

_NUMBERS = {
    *("double", "single", "logical"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_TEXT = {"char", "cell"}


def refuse_odd_class(path: Path, name: str, kind: str) -> None:
    if kind not in _NUMBERS | _TEXT:
        remedy = f"full({name})" if kind == "sparse" else "it as a plain matrix"
        raise DataError(f"{path}: {name} is of the MATLAB class {kind}, not numbers or text; save {remedy}")


def odd_cells(path: Path, name: str) -> DataError:
    return DataError(f"{path}: {name} is a cell array of more than text; save one text or number per sample")
