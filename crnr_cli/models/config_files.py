"""Read and check the JSON files next to a model, which are untrusted."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.system.names import stat_or_none
from crnr_cli.system.outputs import refuse_inputs
from crnr_cli.wording import format_count

_LARGEST_FILE = 2**20  # bytes; a classifier's config contains the names of its classes
_ONNX_FOLDER = "onnx"  # of a Hugging Face repository, whose top folder has the other files
_REMEDY = "restore or remove this file, or choose --extractor-preset, which overrides it"
_LARGEST_SIDE = 4096  # of the images for a network
_LARGEST = 1e6
_LONGEST_SHOWN = 40  # characters
# Pillow's numbers of filters, and the names that timm and open_clip use.
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def config_folders(model: Path) -> list[Path]:
    """Return where the files of a model may be: its own folder first."""
    folder = model.parent
    if folder.absolute().name.lower() != _ONNX_FOLDER:
        return [folder]
    return [folder, folder.parent if folder.name else folder.absolute().parent]


def read_config(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None if there is no such file."""
    found = stat_or_none(path)
    if found is None:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path}: not a regular file; {_REMEDY}")
    if found.st_size > _LARGEST_FILE:
        raise DataError(
            f"{path}: larger than any such file ({format_count(found.st_size, 'byte')}); {_REMEDY}"
        )
    refuse_inputs([path])
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_LARGEST_FILE), parse_constant=_refuse_constant)
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except RecursionError as e:
        raise DataError(f"{path}: not readable JSON (too many brackets); {_REMEDY}") from e
    except ValueError as e:
        raise DataError(f"{path}: not readable JSON ({e}); {_REMEDY}") from e
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a JSON object; {_REMEDY}")
    return content


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


@dataclass
class FoundSettings:
    """The settings of a config file, by name, and why others cannot be used."""

    settings: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    family: str | None = None


def short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def require_number(value: Any, name: str) -> float:
    """Return a number of moderate size; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"{name} is {short_repr(value)}")
    return float(value)


def require_share(value: Any, name: str) -> float:
    found = require_number(value, name)
    if not 0 < found <= 1:
        raise ValueError(f"{name} is {short_repr(value)}, not between 0 and 1")
    return found


def require_side(value: Any, name: str) -> int:
    """Return a number of pixels."""
    found = require_number(value, name)
    if found != int(found) or not 1 <= found <= _LARGEST_SIDE:
        raise ValueError(f"{name} is {short_repr(value)}, not a number of pixels from 1 to {_LARGEST_SIDE}")
    return int(found)


def require_per_channel(value: Any, name: str) -> tuple[float, ...]:
    """Return one number, or three."""
    values = value if isinstance(value, list) else [value]
    if len(values) not in (1, 3):
        raise ValueError(f"{name} is {short_repr(value)}, not one number or three")
    return tuple(require_number(each, name) for each in values)


def mean_and_std(
    mean: tuple[float, ...], std: tuple[float, ...], factor: float, offset: float
) -> dict[str, Any]:
    """Return mean and std for pixels from 0 to 255 that are normalized after pixel * factor - offset."""
    if factor == 0 or 0 in std:
        raise ValueError("the preparation divides by 0")
    means, stds = tuple((m + offset) / factor for m in mean), tuple(s / factor for s in std)
    if not all(abs(value) <= _LARGEST for value in (*means, *stds)) or 0 in stds:
        raise ValueError("mean or std is out of range")
    return {"mean": means, "std": stds}


def find_section(values: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = values.get(name)
    return found if isinstance(found, dict) else None
