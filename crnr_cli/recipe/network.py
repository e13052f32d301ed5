"""A network as the extractor: crop, resize, scale, and run an ONNX model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from crnr_cli.arrays import Array
from crnr_cli.choices import AUTO, CHANNELS, CPU, FILTERS, LAYOUTS, OLD_POOLS, POOLS, NetworkOptions
from crnr_cli.errors import UsageError
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.models.presets import PRESETS
from crnr_cli.recipe.base import (
    PRECISE_SINCE,
    Extractor,
    ImagesSeen,
    Made,
    OpenExtractor,
    Stored,
    describe_jpegs,
    is_one_color,
)
from crnr_cli.records import dataclass
from crnr_cli.wording import Note, format_count

if TYPE_CHECKING:
    from crnr_cli.recipe.network_session import Session

_STORED_POOLS = {new: old for old, new in OLD_POOLS.items()}
_NOT_STORED = {"folder", "session"}  # fields that belong to this process


@dataclass(frozen=True)
class Network(Extractor):
    name: ClassVar[str] = "network"
    settings: ClassVar[tuple[str, ...]] = tuple(f.name for f in fields(NetworkOptions))
    newest_version: ClassVar[int] = max(5, PRECISE_SINCE)
    is_slow: ClassVar[bool] = True
    default_power: ClassVar[float] = 0.7

    model: str  # the path of the file when the gallery was built
    sha256: str  # of the model
    input: str
    output: str
    size: tuple[int, int]  # width, height
    n_outputs: int  # numbers per vector
    crop: float  # scale of the centred box, with the aspect ratio of `size`, to cut out; 0 = no crop
    filter: str
    mean: tuple[float, ...]  # one value, or one per channel in the model's order: (x - mean) / std
    std: tuple[float, ...]
    channels: str
    layout: str
    pool: str  # how a map becomes a vector
    mirror: bool = False  # whether a vector is the mean over the image and its mirror image
    precise_jpegs: bool = True  # as in PixelRequest; False in galleries of crnr 0.2
    folder: str | None = field(default=None, compare=False)  # of the gallery, where the model may be too
    # The model, if choosing these settings has loaded it; it is not loaded again.
    session: Session | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check all settings, which come from the user or from an untrusted gallery."""
        for name, known in (
            ("filter", FILTERS),
            ("channels", CHANNELS),
            ("layout", LAYOUTS),
            ("pool", POOLS),
        ):
            if getattr(self, name) not in known:
                raise UsageError(f"extractor: {name} must be {' or '.join(known)}, not {getattr(self, name)}")
        if not 0 <= self.crop <= 1:
            raise UsageError(f"extractor: crop must be between 0 and 1, not {self.crop:g}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.bands) or not all(map(math.isfinite, values)):
                raise UsageError(
                    f"extractor: {name} must be one number, or one per channel ({self.bands} in all), "
                    f"not {format_count(len(values), 'number')}"
                )
        if 0 in self.std:
            raise UsageError("extractor: std must not be 0")
        if min(self.size) < 1 or max(self.size) > 4096 or self.n_outputs < 1:
            raise UsageError(f"extractor: invalid image size {self.size[0]}x{self.size[1]}")

    @classmethod
    def create(cls, settings: Mapping[str, Any], images: ImagesSeen) -> Made:
        from crnr_cli.recipe.network_session import explain_network

        explained = explain_network(NetworkOptions(**settings), images.jobs, images.provider)
        notes = [] if explained.note is None else [Note("preset", explained.note)]
        if images.provider == AUTO and explained.provider not in (None, CPU):
            text = f"the network runs on {explained.provider}; --provider cpu uses the processor instead"
            notes.append(Note("provider", text))
        return explained.require_network(), notes

    @property
    def bands(self) -> int:
        return 1 if self.channels == "grey" else 3

    @property
    def n_values(self) -> int:
        return self.n_outputs

    def request(self, max_pixels: int, *, with_hash: bool = False) -> PixelRequest:
        return PixelRequest(
            self.size,
            self.bands == 3,
            max_pixels,
            with_hash,
            crop=self.crop,
            filter=self.filter,
            eight_bit=True,
            precise_jpegs=self.precise_jpegs,
        )

    def is_blank(self, pixels: Array) -> Array:
        return is_one_color(pixels, self.bands)

    def open(self, jobs: int, provider: str = AUTO) -> OpenExtractor:
        from crnr_cli.recipe.network_session import OpenNetwork  # imported only if there is a network

        network = OpenNetwork(self, jobs, provider)
        return OpenExtractor(network.vectors, network.provider)

    def max_batch(self, provider: str) -> int:
        from crnr_cli.recipe.network_session import images_per_batch

        return images_per_batch(provider)

    def moved_to(self, model: Path) -> Network:
        from crnr_cli.models.catalog import find_model  # here, because most galleries have no network

        return replace(self, model=absolute_path(find_model(model)), folder=None, session=None)

    def is_same(self, other: Extractor) -> bool:
        return isinstance(other, Network) and replace(self, model="") == replace(other, model="")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to send to another process, which loads the model itself."""
        return vars(self) | {"session": None}

    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_STORED}

    @property
    def version_needed(self) -> int:
        """3 is the first version in which the class token can be the vector, 5 the first with `mirror`."""
        since = 5 if self.mirror else 3 if self.pool == "cls" else self.since_version
        return max(since, PRECISE_SINCE) if self.precise_jpegs else since

    def to_stored(self) -> Stored:
        width, height = self.size
        settings = self._settings() | {"pool": _STORED_POOLS.get(self.pool, self.pool)}
        # Older versions know neither of these.
        if not self.mirror:
            del settings["mirror"]
        if not self.precise_jpegs:
            del settings["precise_jpegs"]
        return Stored(
            {
                "extractor": json.dumps(settings),
                "width": width,
                "height": height,
                "color": self.bands == 3,
            }
        )

    @classmethod
    def from_stored(cls, settings: Mapping[str, Any], stored: Stored) -> Network:
        values = {"mirror": False, **settings, "precise_jpegs": settings.get("precise_jpegs", False)}
        expected = {f.name for f in fields(cls)} - _NOT_STORED
        if set(values) != expected:
            raise ValueError("the description of the extractor is incomplete")
        tuples = {
            "size": tuple(map(int, values["size"])),
            "mean": tuple(map(float, values["mean"])),
            "std": tuple(map(float, values["std"])),
        }
        texts = [values[name] for name in ("model", "sha256", "input", "output")]
        is_known = isinstance(values["mirror"], bool) and all(isinstance(text, str) for text in texts)
        if len(tuples["size"]) != 2 or not is_known:
            raise ValueError("the description of the extractor is invalid")
        folder = None if stored.folder is None else str(stored.folder)
        pool = OLD_POOLS.get(values["pool"], values["pool"])
        return cls(**{**values, **tuples, "pool": pool, "folder": folder})

    def facts(self) -> dict[str, Any]:
        """Return plain values, with lists instead of tuples, as in JSON."""
        settings = json.loads(json.dumps(self._settings()))
        return {
            "size": list(self.size),
            "color": self.bands == 3,
            "extractor": {"name": self.name, **settings},
        }

    def tunable_settings(self) -> dict[str, Any]:
        return {"extractor": self.model, **({"mirror": True} if self.mirror else {})}

    def describe(self) -> str:
        return (
            f"{format_count(self.n_outputs, 'feature')} of {Path(self.model).name}, "
            f"{self.size[0]}x{self.size[1]}, {self.channels}, {self._preset()}"
            f"{', mean with the mirror image' if self.mirror else ''}{describe_jpegs(self.precise_jpegs)}"
        )

    def _preset(self) -> str:
        """Return the preset that matches the stored settings."""
        for name, preset in PRESETS.items():
            if (
                self.filter == preset.filter
                and _is_close((self.crop,), (preset.crop_for(self.size),))
                and _is_close(self.mean, preset.mean)
                and _is_close(self.std, preset.std)
            ):
                return f"preset {name}"
        return "own preprocessing"


def _is_close(values: tuple[float, ...], others: tuple[float, ...]) -> bool:
    """Return whether the values are equal up to rounding; config files use other scales than presets."""
    width = max(len(values), len(others))
    return all(
        math.isclose(a, b, rel_tol=1e-6)
        for a, b in zip(values * (width // len(values)), others * (width // len(others)), strict=True)
    )


def absolute_path(model: Path) -> str:
    """Return the absolute path without resolving links: the model's weights may be next to the link."""
    return str(model.parent.resolve() / model.name)
