"""The same arrays in feature files of every kind, written by other programs than ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from scipy.io import savemat

SUFFIXES = ("npz", "h5", "mat", "npy", "csv", "parquet")


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Any arrays by name, to npz, h5 or mat."""
    match path.suffix:
        case ".npz":
            np.savez(path, **arrays)
        case ".h5":
            path.unlink(missing_ok=True)  # HDF5 does not replace a file that is still open
            with h5py.File(path, "w") as file:
                for name, array in arrays.items():
                    values = np.asarray(array)
                    is_text = values.dtype.kind == "U"
                    file[name] = np.char.encode(values, "utf-8") if is_text else values
        case ".mat":
            savemat(path, {name: _for_matlab(np.asarray(array)) for name, array in arrays.items()})


def _for_matlab(values: Any) -> Any:
    return values.astype(object)[:, None] if values.dtype.kind == "U" else values


def save_features(path: Path, features: Any, labels: Any = None) -> None:
    """Save a table of features and one label per row to a file of any kind."""
    match path.suffix:
        case ".npy":
            np.save(path, features)
            if labels is not None:
                np.save(path.with_name(f"{path.stem}_labels.npy"), labels)
        case ".csv" | ".parquet":
            frame = pd.DataFrame(
                np.asarray(features, float), columns=[f"f{i}" for i in range(len(features[0]))]
            )
            if labels is not None:
                frame["label"] = labels
            if path.suffix == ".csv":
                frame.to_csv(path, index=False)
            else:
                frame.to_parquet(path)
        case _:
            save_arrays(path, {"features": features} | ({} if labels is None else {"labels": labels}))
