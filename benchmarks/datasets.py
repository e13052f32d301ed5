"""The data that benchmarks measure on, as rows of numbers with labels. None of it is part of the project."""

from __future__ import annotations

import gzip
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from scipy.io import loadmat

DEFAULT_FOLDER = Path(__file__).parent.parent.parent / "shared" / "data"


@dataclass(frozen=True)
class Split:
    """Raw vectors, one row a sample, and their classes as numbers from 0."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def find(folder: Path, name: str) -> Path:
    """The path of a data file; ends the benchmark, saying so, where it is missing."""
    path = folder / name
    if not path.exists():
        sys.exit(f"skipped: {path} is not there; name the data folder with --data")
    return path


def ar(folder: Path) -> Split:
    mat = loadmat(find(folder, "AR_DAT.mat"))
    return Split(
        mat["NewTrain_DAT"].T,
        mat["trainlabels"].ravel().astype(int) - 1,
        mat["NewTest_DAT"].T,
        mat["testlabels"].ravel().astype(int) - 1,
    )


def ar_occluded(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """AR faces of 30 x 42 pixels: (people, 26 images, pixels row by row), and the person of each.

    13 of the first day, then 13 of the second; of each day 7 clean ones, 3 with sunglasses, 3 with a scarf.
    """
    mat = loadmat(find(folder, "AR_42_30.mat"))
    people = mat["Label"].reshape(-1, 26).astype(int) - 1
    return by_rows(mat["DATA"].T, 30, 42).reshape(*people.shape, -1), people


def by_rows(images: np.ndarray, width: int, height: int) -> np.ndarray:
    """Images that are stored column by column, row by row."""
    return images.reshape(-1, width, height).transpose(0, 2, 1).reshape(len(images), -1)


def mnist(folder: Path) -> Split:
    def read(name: str, header: int) -> np.ndarray:
        with gzip.open(find(folder, f"mnist/{name}.gz")) as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    return Split(
        read("train-images-idx3-ubyte", 16).reshape(-1, 784),
        read("train-labels-idx1-ubyte", 8).astype(int),
        read("t10k-images-idx3-ubyte", 16).reshape(-1, 784),
        read("t10k-labels-idx1-ubyte", 8).astype(int),
    )


def usps(folder: Path) -> Split:
    with h5py.File(find(folder, "usps.h5")) as file:
        return Split(*(file[name][()] for name in ("train/data", "train/target", "test/data", "test/target")))


def flowers(folder: Path, per_class: int) -> Split:
    """Oxford 102 Flowers by its official split: train (10 a class), or train and valid (20 a class)."""
    with h5py.File(find(folder, "flower102_features.h5")) as file:
        features, split = file["features"][()], file["official_split"].asstr()[()]
        classes = np.unique(file["class_id"][()], return_inverse=True)[1]
    train = np.isin(split, ["train"] if per_class == 10 else ["train", "valid"])
    return Split(features[train], classes[train], features[split == "test"], classes[split == "test"])


def draw(split: Split, per_class: int, seed: int) -> Split:
    """As many random training samples of every class, and the whole test set."""
    rng = np.random.default_rng(seed)
    chosen = np.concatenate(
        [
            rng.choice(np.flatnonzero(split.train_labels == label), per_class, replace=False)
            for label in np.unique(split.train_labels)
        ]
    )
    return Split(split.train[chosen], split.train_labels[chosen], split.test, split.test_labels)
