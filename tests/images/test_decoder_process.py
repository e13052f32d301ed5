"""The decoder process, run inside the test: its answers and its limit of memory."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crnr_cli.images import decoder_process
from crnr_cli.images.pixels import PixelRequest
from helpers.samples import draw_image


def test_a_decoder_process_answers_with_headers_and_then_the_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here in this process, to see the messages."""
    draw_image(0, 1).save(tmp_path / "good.png")
    limits: list[PixelRequest] = []
    monkeypatch.setattr(
        decoder_process, "limit_memory", limits.append
    )  # of this process it would be for good
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    monkeypatch.setattr(decoder_process, "SECONDS_HELD_BACK", 60.0)
    request = json.dumps([str(tmp_path / "good.png"), str(tmp_path / "gone.png")])
    form = PixelRequest((8, 8), max_pixels=1000)
    said = f"{json.dumps(form._asdict())}\n{request}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.encode())))
    answers = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(answers))
    import signal

    before = signal.getsignal(signal.SIGINT)
    try:
        decoder_process.decode_requests()
    finally:
        signal.signal(signal.SIGINT, before)
    answers.seek(0)
    assert answers.readline() == b"ready\n"
    assert json.loads(answers.readline()) == [
        [8, 8, 1, False, "", 64],
        {"status": "vanished", "detail": "no such file"},
    ]
    assert answers.read() == np.asarray(draw_image(0, 1)).tobytes()
    assert limits == [form]


def test_the_limit_of_memory_grows_with_the_pixels_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: given.append(limits))
    for hard in (resource.RLIM_INFINITY, 10**6):
        monkeypatch.setattr(resource, "getrlimit", lambda what, hard=hard: (hard, hard))
        decoder_process.limit_memory(PixelRequest(None, max_pixels=10**6))
    assert given == [(2**29 + 24 * 10**6, resource.RLIM_INFINITY), (10**6, 10**6)]
