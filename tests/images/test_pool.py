"""Decoder processes: order, and images that take their decoder along."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from crnr_cli.errors import DataError, SampleError
from crnr_cli.images import pool
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from helpers.patches import use_decoder, watch_decoders
from helpers.runner import helper_command
from helpers.samples import draw_image, noise


def test_decoder_pool_returns_images_in_order(tmp_path: Path) -> None:
    paths = []
    for i in range(50):
        noise(i).save(tmp_path / f"{i}.png")
        paths.append(str(tmp_path / f"{i}.png"))
    expected = [read_pixels(path, PixelRequest(None)) for path in paths]
    assert list(DecoderPool(2).decode(paths, PixelRequest(None))) == expected


def test_a_decoder_that_is_killed_as_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise(0).save(tmp_path / "0.png")
    path = str(tmp_path / "0.png")
    started = watch_decoders(monkeypatch.setattr, kill_first=pool.ATTEMPTS - 1)
    assert list(DecoderPool(1).decode([path], PixelRequest(None))) == [read_pixels(path, PixelRequest(None))]
    assert len(started) == pool.ATTEMPTS


def test_pixels_without_limit(tmp_path: Path) -> None:
    noise(0).save(tmp_path / "0.png")
    (answer,) = DecoderPool(1).decode([str(tmp_path / "0.png")], PixelRequest(None, max_pixels=10**18))
    assert isinstance(answer, Pixels)


def test_a_reader_that_stops_early_leaves_no_process_behind(tmp_path: Path) -> None:
    noise(0).save(tmp_path / "0.png")
    stream = DecoderPool(2).decode([str(tmp_path / "0.png")] * 2000, PixelRequest(None))
    next(stream)
    stream.close()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [command for command in commands if b"decoder_process" in command]


def test_a_reader_that_stops_early_starts_no_more_decoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those at work are ended, which is no reason to look for the image that did it."""
    noise(0).save(tmp_path / "0.png")
    started = watch_decoders(monkeypatch.setattr)
    stream = DecoderPool(2).decode([str(tmp_path / "0.png")] * 5000, PixelRequest(None))
    for _ in range(200):  # by now both are in the middle of their next request
        next(stream)
    stream.close()
    assert len(started) == 2


@pytest.mark.parametrize("seconds", [-1.0, 60.0], ids=["each at once", "all at the end"])
def test_answers_may_come_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """However many answers one reply holds, a request has all of its own, and no decoder is started twice."""
    use_decoder((*helper_command("helpers.bad_decoder"), str(seconds)), monkeypatch.setattr)
    started = watch_decoders(monkeypatch.setattr)
    paths = [str(tmp_path / f"{i}.png") for i in range(20)]
    for i, path in enumerate(paths):
        if i % 3:
            noise(i).save(path)
    answers = list(DecoderPool(1).decode(paths, PixelRequest(None)))
    there = [read_pixels(path, PixelRequest(None)) for path in paths if Path(path).exists()]
    assert [answer for answer in answers if isinstance(answer, Pixels)] == there
    assert [isinstance(answer, SampleError) for answer in answers] == [i % 3 == 0 for i in range(20)]
    assert len(started) == 1


@pytest.mark.parametrize(
    ("name", "words"), [("crash.png", "crashed (signal 11)"), ("hang.png", "did not reply within 1 s")]
)
def test_an_image_that_ends_its_decoder_costs_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    use_decoder(helper_command("helpers.bad_decoder"), monkeypatch.setattr, seconds=1.0)
    paths = []
    for each in ("a.png", name, "b.png", name, "c.png"):
        noise(0).save(tmp_path / each)
        paths.append(str(tmp_path / each))
    answers = list(DecoderPool(1).decode(paths, PixelRequest(None)))
    assert [isinstance(answer, Pixels) for answer in answers] == [True, False, True, False, True]
    assert isinstance(answers[1], SampleError)
    assert (answers[1].status, words in answers[1].detail) == ("decode_error", True)


def test_many_images_come_in_order(tmp_path: Path) -> None:
    """More than are decoded ahead, so that the first are taken while the last still wait."""
    draw_image(0, 1).save(tmp_path / "x.png")
    n = pool.MAX_PER_CHUNK * (pool.CHUNKS_AHEAD + 2)
    paths = [str(tmp_path / ("x.png" if i % 7 else f"gone{i}")) for i in range(n)]
    answers = list(DecoderPool(2).decode(paths, PixelRequest(None)))
    assert [isinstance(answer, Pixels) for answer in answers] == [bool(i % 7) for i in range(n)]


def test_a_decoder_that_never_starts_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    use_decoder((sys.executable, "-c", "pass"), monkeypatch.setattr)
    with pytest.raises(DataError, match="the decoder process does not start"):
        list(DecoderPool(1).decode(["x.png"], PixelRequest(None)))


def test_a_decoder_that_dies_inside_an_answer_loses_only_that_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; sys.stdin.readline()\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
        "print('[[9, 9, 1, false, \"\", 81]]')\n"
        "print('short', end='')"
    )
    use_decoder((sys.executable, "-c", code), monkeypatch.setattr)
    (answer,) = DecoderPool(1).decode(["x.png"], PixelRequest(None))
    assert isinstance(answer, SampleError)
    assert (answer.status, answer.detail) == ("decode_error", "the decoder ended (exit 0)")
