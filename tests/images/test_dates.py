"""Capture dates: from EXIF data as cameras write it, and of files."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crnr_cli.arrays import Stamp
from crnr_cli.images.dates import date_of_file, to_iso
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from helpers.samples import noise


def save_dated(path: Path, date: object, zone: object = None) -> None:
    """Save an image with the tags of a camera."""
    exif = Image.Exif()
    exif[0x8769] = {0x9003: date} if zone is None else {0x9003: date, 0x9011: zone}
    noise(1, (20, 20)).convert("RGB").save(path, exif=exif.tobytes())


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_dates_become_iso_8601(date: datetime) -> None:
    date = date.replace(microsecond=0)
    written = f"{date.year:04}:{date.month:02}:{date.day:02} {date.hour:02}:{date.minute:02}:{date.second:02}"
    assert to_iso(written, None) == date.isoformat()
    assert to_iso(written + "\0", "+05:30\0") == date.isoformat() + "+05:30"


@given(st.text() | st.none() | st.integers() | st.binary(), st.text() | st.none())
def test_other_values_are_no_dates(date: object, zone: object) -> None:
    assert to_iso(date, zone) == ""
    assert to_iso("2026:07:01 05:06:07", zone) == "2026-07-01T05:06:07"


@pytest.mark.parametrize(
    "date", ["0000:00:00 00:00:00", "    :  :     :  :  ", "2026:02:30 10:00:00", "2026-01-01 10:00:00", ""]
)
def test_a_clock_that_was_never_set_has_no_date(date: str) -> None:
    assert to_iso(date, "+01:00") == ""


def test_dates_of_files_are_in_utc() -> None:
    assert date_of_file(1_700_000_000 * 10**9 + 999) == "2023-11-14T22:13:20+00:00"
    assert date_of_file(10**30) == ""


@pytest.mark.parametrize("seconds", [-11_644_473_600, 13_569_465_600])  # 1601 and 2400
def test_times_that_are_not_stored_are_no_dates(seconds: int) -> None:
    """Galleries and records have room for the years from 1677 to 2262."""
    result = os.stat_result((0,) * 7 + (0, seconds, 0), {"st_mtime_ns": seconds * 10**9})
    assert date_of_file(Stamp.of(result).mtime_ns) == ""


@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "webp"])
def test_decoders_return_dates_on_request(tmp_path: Path, ending: str) -> None:
    save_dated(tmp_path / f"a.{ending}", "2026:07:01 05:06:07", "+02:00")
    noise(2, (20, 20)).save(tmp_path / f"b.{ending}")
    names = [str(tmp_path / f"a.{ending}"), f"{tmp_path}/a.{ending}#0,0,9,9", str(tmp_path / f"b.{ending}")]
    for request in (
        PixelRequest((4, 4), with_date=True),
        PixelRequest(None, header_only=True, with_date=True),
    ):
        found = list(DecoderPool(1).decode(names, request))
        assert [one.date for one in found if isinstance(one, Pixels)] == ["2026-07-01T05:06:07+02:00"] * 2 + [
            ""
        ]
    (plain,) = DecoderPool(1).decode(names[:1], PixelRequest((4, 4)))
    assert isinstance(plain, Pixels)
    assert plain.date == ""


def test_a_date_of_a_file_has_the_form_of_other_dates(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    os.utime(path, (0, 86400 * 365))
    assert datetime.fromisoformat(date_of_file(path.stat().st_mtime_ns)) == datetime(1971, 1, 1, tzinfo=UTC)
