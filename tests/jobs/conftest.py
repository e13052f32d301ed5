"""Images to extract, and what is decoded of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crnr_cli.images.pool import DecoderPool
from helpers.onnx_models import projection_model
from helpers.runner import Runner
from helpers.samples import draw_image, make_images


@pytest.fixture
def photos(crnr: Runner) -> Runner:
    """photos/ with all kinds of images, healthy queries/, and a network."""
    make_images(crnr.here / "photos", per_class=4)
    make_images(crnr.here / "queries", first=9, per_class=2)
    deep = np.asarray(draw_image(1, 7)).astype(np.uint16) * 200
    Image.fromarray(deep).save("photos/bee/deep.png")
    Image.new("L", (8, 8), 77).save("photos/bee/blank.png")
    Path("photos/cow/broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    Path("photos/README.txt").write_text("Photographs of animals.")
    draw_image(2, 8).save("photos/of no class.png")
    projection_model(Path("model.onnx"))
    return crnr


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images that are decoded, in order; headers do not count."""
    names: list[str] = []
    original = DecoderPool.decode

    def decode(self: DecoderPool, paths: list[str], request: object) -> object:
        names.extend(paths)
        return original(self, paths, request)  # type: ignore[arg-type]

    monkeypatch.setattr(DecoderPool, "decode", decode)
    return names
