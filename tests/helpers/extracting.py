"""What the tests of extract and of its files share."""

from __future__ import annotations

from pathlib import Path

import h5py

NETWORK = ("--extractor", "model.onnx", "--extractor-preset", "imagenet")


def same(one: str | Path, other: str | Path) -> bool:
    return Path(one).read_bytes() == Path(other).read_bytes()


def values(path: str) -> dict[str, list[float]]:
    with h5py.File(path) as file:
        names = [name.decode() for name in file["paths"][()].tolist()]
        return dict(zip(names, file["features"][()].tolist(), strict=True))
