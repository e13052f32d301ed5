"""Decoder processes: order, and images that take their decoder along."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from crnr_cli.errors import DataError, SampleError
from crnr_cli.images import pool
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from crnr_cli.system import spares
from helpers.patches import use_decoder, watch_decoders
from helpers.runner import Runner, helper_command
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


def test_a_reader_that_stops_early_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise(0).save(tmp_path / "0.png")
    started = watch_decoders(monkeypatch.setattr)
    stream = DecoderPool(2).decode([str(tmp_path / "0.png")] * 2000, PixelRequest(None))
    next(stream)
    stream.close()
    assert started
    assert all(decoder.returncode is not None for decoder in started)


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


def test_a_decoder_is_kept_for_the_next_request_until_the_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise(0, (9, 7)).save(tmp_path / "0.png")
    path = str(tmp_path / "0.png")
    requests = [PixelRequest(None), PixelRequest((4, 4), max_pixels=100), PixelRequest(None, max_pixels=10)]
    started = watch_decoders(monkeypatch.setattr)
    with spares.kept():
        with spares.kept():
            first, second, third = [next(iter([*DecoderPool(1).decode([path], each)])) for each in requests]
        assert started[0].poll() is None  # the outer block is still open
    assert [first, second] == [read_pixels(path, request) for request in requests[:2]]
    assert isinstance(third, SampleError)
    assert third.status == "too_large"
    assert [decoder.returncode is not None for decoder in started] == [True]


def test_without_a_block_every_request_has_decoders_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise(0).save(tmp_path / "0.png")
    started = watch_decoders(monkeypatch.setattr)
    for _ in range(2):
        list(DecoderPool(1).decode([str(tmp_path / "0.png")], PixelRequest(None)))
    assert [decoder.returncode is not None for decoder in started] == [True, True]


def test_a_kept_decoder_that_was_killed_is_replaced_and_one_in_another_folder_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        noise(ord(name)).save(tmp_path / name / "x.png")
    started = watch_decoders(monkeypatch.setattr)

    def decode() -> list[pool.Decoded]:
        return list(DecoderPool(1).decode(["x.png"], PixelRequest(None)))

    with spares.kept():
        monkeypatch.chdir(tmp_path / "a")
        first = decode()
        started[-1].kill()
        started[-1].wait()
        again = decode()
        monkeypatch.chdir(tmp_path / "b")
        other = decode()
        monkeypatch.chdir(tmp_path / "a")
        (tmp_path / "a").rename(tmp_path / "c")
        back = decode()
    assert first == again == back == [read_pixels(str(tmp_path / "c" / "x.png"), PixelRequest(None))]
    assert other == [read_pixels(str(tmp_path / "b" / "x.png"), PixelRequest(None))]
    assert len(started) == 2


def test_in_a_folder_that_is_gone_a_new_decoder_takes_the_place_of_a_kept_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise(0).save(tmp_path / "x.png")
    path = str(tmp_path / "x.png")
    (tmp_path / "gone").mkdir()
    started = watch_decoders(monkeypatch.setattr)
    with spares.kept():
        list(DecoderPool(1).decode([path], PixelRequest(None)))
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        assert list(DecoderPool(1).decode([path], PixelRequest(None))) == [
            read_pixels(path, PixelRequest(None))
        ]
    assert len(started) == 2


def test_a_reader_that_counts_its_images_leaves_the_decoders_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / f"{i}.png") for i in range(3)]
    for i, path in enumerate(paths):
        noise(i).save(path)
    started = watch_decoders(monkeypatch.setattr)
    with spares.kept():
        for _ in range(2):
            decoded = DecoderPool(1).decode(paths, PixelRequest(None))
            assert [next(decoded) for _ in paths] == [read_pixels(path, PixelRequest(None)) for path in paths]
            decoded.close()
    assert len(started) == 1


def test_a_build_starts_its_decoders_once(
    crnr: Runner, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = watch_decoders(monkeypatch.setattr)
    assert crnr("build", "gallery", "--jobs", "1").exit == 0
    assert len(started) == 1


def test_a_decoder_started_early_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise(0).save(tmp_path / "0.png")
    started = watch_decoders(monkeypatch.setattr)
    with spares.kept():
        decoders = DecoderPool(1)
        for _ in range(2):  # the second time, the first decoder waits already
            decoders.start_early()
            assert len(list(decoders.decode([str(tmp_path / "0.png")], PixelRequest(None)))) == 1
    assert len(started) == 1
