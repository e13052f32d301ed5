"""When a photograph was taken, in ISO 8601. Decoder processes import this module."""

from __future__ import annotations

import re
from typing import Any

BY_EXIF, BY_FILE = SOURCES = ("exif", "file")
_EXIF_BLOCK = 0x8769
_LATEST_MTIME = 2**63 - 1  # ns since 1970; `Stamp` stores this time for any later one
_ORIGINAL, _OFFSET = 0x9003, 0x9011  # DateTimeOriginal and OffsetTimeOriginal
_DATE = r"(\d{4}):(\d\d):(\d\d) (\d\d:\d\d:\d\d)"
_ZONE = r"[+-](?:0\d|1[0-4]):[0-5]\d"


def read_exif_date(image: Any) -> str:
    """Return DateTimeOriginal, with the time zone if there is one; empty if there is no such date."""
    try:
        block = image.getexif().get_ifd(_EXIF_BLOCK)
        return to_iso(block.get(_ORIGINAL), block.get(_OFFSET))
    except Exception:  # a broken EXIF block is no reason to reject the image
        return ""


def to_iso(date: object, zone: object) -> str:
    """Return the two texts of a camera in ISO 8601; empty if they are no date, as of a clock never set."""
    from datetime import datetime  # only if dates are wanted

    found = re.fullmatch(_DATE, _clean(date), re.ASCII)
    if found is None:
        return ""
    year, month, day, time = found.groups()
    text = f"{year}-{month}-{day}T{time}"
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return ""
    return text + (_clean(zone) if re.fullmatch(_ZONE, _clean(zone), re.ASCII) else "")


def _clean(value: object) -> str:
    """Return the text of a tag, which C programs end with NUL."""
    return value.strip("\0 ") if isinstance(value, str) else ""


def date_of_file(mtime_ns: int) -> str:
    """Return the time when a file was last changed, in UTC; empty if it is unknown, or no calendar has it."""
    from datetime import UTC, datetime

    if abs(mtime_ns) >= _LATEST_MTIME:
        return ""
    try:
        return datetime.fromtimestamp(mtime_ns // 10**9, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""
