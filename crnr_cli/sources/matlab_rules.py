"""What is read from a MATLAB file of any version: only numbers and text."""

from __future__ import annotations

from pathlib import Path

from crnr_cli.errors import DataError

REFUSED = 2  # exit code of the reading process if its stderr is the complete message

_NUMBERS = {
    *("double", "single", "logical"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_TEXT = {"char", "cell"}


def refuse_odd_class(path: Path, name: str, kind: str) -> None:
    if kind not in _NUMBERS | _TEXT:
        remedy = f"full({name})" if kind == "sparse" else "it as a plain matrix"
        raise DataError(
            f"{path}: {name} is of the MATLAB class {kind}, but must be numbers or text; save {remedy}"
        )


def odd_cells(path: Path, name: str) -> DataError:
    return DataError(
        f"{path}: {name} is a cell array of something else than texts, or arrays of numbers of one size; "
        "save one text, number or picture per sample"
    )
