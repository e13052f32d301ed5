"""What tests of several pages need."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from helpers.onnx_models import flat_model
from helpers.paths import SAMPLE_DATA
from helpers.runner import Runner
from helpers.samples import noise


@pytest.fixture
def folder(crnr: Runner, tmp_path: Path) -> Path:
    """A folder as the commands of README and guides expect it."""
    for digit in range(10):
        for part, count in (("gallery", 20), ("queries", 2), ("new_images", 2), ("photos", 2)):
            (tmp_path / part / str(digit)).mkdir(parents=True)
            source = "queries" if part == "queries" else "gallery"
            first = 20 if part == "new_images" else 0
            found = sorted((SAMPLE_DATA / source / str(digit)).iterdir())
            for image in found[first : first + count]:
                shutil.copy(image, tmp_path / part / str(digit))
    (tmp_path / "others").mkdir()
    for i in range(4):
        noise(i, (28, 28)).save(tmp_path / "others" / f"{i}.png")
    shutil.copy(SAMPLE_DATA / "features.h5", tmp_path)
    shutil.copy(SAMPLE_DATA / "queries" / "3" / "1550.png", tmp_path / "query.png")
    rng = np.random.default_rng(0)
    savemat(tmp_path / "faces.mat", {"train": rng.random((40, 30)), "trainlabels": np.repeat([1, 2, 3], 10)})
    flat_model(tmp_path / "model.onnx", ["n", 3, 28, 28])
    config = {"image_processor_type": "ViTImageProcessor", "size": {"height": 28, "width": 28}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    return tmp_path
