"""The report names the network and the preset of a gallery that was made with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.onnx_models import flat_model
from helpers.runner import Runner
from helpers.samples import make_images


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--extractor-preset", "raw"], "preset raw"),
        (["--extractor-preset", "imagenet"], "preset imagenet"),
        (["--extractor-preset", "raw", "--std", "7"], "own preprocessing"),
    ],
)
def test_the_report_names_the_network_and_its_preset(crnr: Runner, options: list[str], words: str) -> None:
    make_images(crnr.here / "gallery")
    flat_model(crnr.here / "some-model.onnx", ["n", 3, 8, 8])
    assert crnr("build", "gallery", "--extractor", "some-model.onnx", "-q", *options).exit == 0
    assert crnr("evaluate", "gallery", "--html", "r.html", "-q").exit == 0
    page = Path("r.html").read_text()
    assert f"features of some-model.onnx, 8x8, rgb, {words}" in page
