"""The folder of models, and how a model is found there by its name."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.models.catalog import MODELS, Model
from crnr_cli.system.names import existing

_ENDINGS = (".onnx", ".ort")


def models_folder() -> Path:
    """`CRNR_MODELS`, or the folder of the user's cache, where platformdirs would place it too."""
    chosen = os.environ.get("CRNR_MODELS")
    try:
        return Path(chosen).expanduser() if chosen else _cache() / "models"
    except RuntimeError as e:  # of a user without a home
        if chosen:
            raise DataError(f"CRNR_MODELS: there is no home folder for {chosen}; give another path") from e
        raise DataError("there is no home folder for models; choose a folder with CRNR_MODELS") from e


def _cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "crnr" / "Cache"
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():  # others are to be ignored, says the standard
        return chosen / "crnr"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "crnr"


def place_of(model: Model) -> Path:
    """Where a known model is, or will be."""
    return models_folder() / model.file


def known_model(path: Path) -> Model | None:
    """The known model whose place this is."""
    return next((model for model in MODELS.values() if place_of(model) == path), None)


def other_models() -> list[Path]:
    """Models in the folder that crnr does not know, which are found by the names of their files."""
    known = {place_of(model) for model in MODELS.values()}
    folder = models_folder()
    try:
        found = sorted(folder.iterdir()) if is_folder(folder) else []
    except OSError as e:
        raise DataError(
            f"{folder}: cannot read this folder of models ({e.strerror}); choose another one with CRNR_MODELS"
        ) from e
    return [path for path in found if path.suffix in _ENDINGS and is_file(path) and path not in known]


def named_model(name: Path) -> Path:
    """The path of a model that the user named, by its path or by its name; DataError if there is none."""
    if is_file(name) or name.parent != Path() or name.suffix in _ENDINGS:
        return name
    if model := MODELS.get(name.name):
        if is_file(place_of(model)):
            return place_of(model)
        raise DataError(f"{model.name}: not on this machine yet; {how_to_get(model)}")
    for other in other_models():
        if other.stem == name.name:
            return other
    raise DataError(
        f"{name}: no such file, and no known model; --extractor takes gradients, pixels, the path of an ONNX "
        "model, or a name that `crnr model list` shows"
    )


class Place(NamedTuple):
    path: Path
    command: str  # that gets the model there


def like_known(path: Path) -> Place | None:
    """Where a known model is here, if this is its path on the machine where a gallery was built."""
    for model in MODELS.values():
        if path.parts[-model.file.count("/") - 1 :] == Path(model.file).parts:
            return Place(place_of(model), command_for(model))
    return None


def how_to_get(model: Model) -> str:
    """A sentence with the command that gets a model."""
    if model.weights:
        return f"get it with `crnr model get {model.name}`"
    return f"get it with: {command_for(model)}"


def command_for(model: Model) -> str:
    """The command line that gets a model."""
    if model.command is None:
        return f"crnr model get {model.name}"
    folder = models_folder()
    places = {"folder": folder, "own_folder": folder / model.name, "file": folder / model.file}
    return model.command.format(**{name: shlex.quote(str(place)) for name, place in places.items()})


def is_file(path: Path) -> bool:
    found = existing(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_folder(path: Path) -> bool:
    found = existing(path)
    return found is not None and stat.S_ISDIR(found.st_mode)
