"""The JSON files beside a model, which may come from strangers: they are checked before they are read."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from crnr_cli.errors import DataError
from crnr_cli.system.names import existing
from crnr_cli.system.outputs import refuse_inputs
from crnr_cli.wording import counted

_LARGEST_FILE = 2**20  # bytes; that of a classifier has the names of its classes
_ONNX_FOLDER = "onnx"  # of a repository of Hugging Face, whose top folder has the other files
_REMEDY = "restore or remove it, or choose --extractor-preset, which counts more than this file"


def config_folders(model: Path) -> list[Path]:
    """Where the files of a model may be: its own folder first."""
    folder = model.parent
    if folder.absolute().name.lower() != _ONNX_FOLDER:
        return [folder]
    return [folder, folder.parent if folder.name else folder.absolute().parent]


def read_config(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no such file."""
    found = existing(path)
    if found is None:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path}: not a regular file; {_REMEDY}")
    if found.st_size > _LARGEST_FILE:
        raise DataError(f"{path}: larger than any such file ({counted(found.st_size, 'byte')}); {_REMEDY}")
    refuse_inputs([path])
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_LARGEST_FILE), parse_constant=_refused)
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except RecursionError as e:
        raise DataError(f"{path}: not readable JSON (too many brackets); {_REMEDY}") from e
    except ValueError as e:
        raise DataError(f"{path}: not readable JSON ({e}); {_REMEDY}") from e
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a JSON object; {_REMEDY}")
    return content


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
