"""Names that Linux, macOS and Windows can all have, and names that some of them take for the same."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from pathlib import Path

ON_WINDOWS = sys.platform == "win32"
# What a name on Windows cannot contain, or cannot end with, and the names of its devices, which remain
# devices with any suffix. Bytes that are not UTF-8 are refused by macOS too.
_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f\ud800-\udfff]|[. ]\Z')
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(?= *(\.|\Z))", re.IGNORECASE)


def portable(name: str) -> str:
    """The name of a file or folder, with escapes as in URLs for what Windows cannot have."""
    name = _FORBIDDEN.sub(lambda found: percent(found[0]), name)
    return percent(name[0]) + name[1:] if _DEVICE.match(name) else name


def percent(text: str) -> str:
    """Every byte as an escape; `urllib.parse.unquote` gives the text again."""
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half of a pair of surrogates, which Windows permits
        data = text.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def folded(name: str) -> str:
    """One text for all names that some file system takes for the same.

    They differ in case, in their Unicode form, or in characters that are not seen. It is coarser than any
    single file system, as these fold by different tables.
    """
    if name.isascii():
        return name.lower()
    seen = "".join(one for one in unicodedata.normalize("NFD", name) if unicodedata.category(one) != "Cf")
    folded = unicodedata.normalize("NFD", seen.casefold().upper().casefold())
    return unicodedata.normalize("NFD", folded.casefold())


def folds_names(folder: Path) -> bool:
    """Whether two names that differ only in case are the same file in this folder, which exists.

    Tried with what there is: a name in the folder, or its own name in the one above, and so on. Nothing is
    written, as this may be asked about a folder that must not change.
    """
    place = os.path.realpath(folder)
    try:
        answer = _folds(place, os.listdir(place))  # noqa: PTH208, which are strings
    except OSError:  # only its name can tell
        answer = None
    while answer is None:
        above, name = os.path.split(place)
        if not name:
            return sys.platform in ("darwin", "win32")
        answer, place = _folds(above, [name]), above
    return answer


def _folds(folder: str, names: list[str]) -> bool | None:
    """None if none of the names in the folder can tell."""
    for name in names:
        other = name.swapcase()
        if other == name or other.swapcase() != name or other in names:
            continue
        try:
            return os.path.samestat(
                os.lstat(os.path.join(folder, name)),  # noqa: PTH118
                os.lstat(os.path.join(folder, other)),  # noqa: PTH118
            )
        except FileNotFoundError:
            return False
        except OSError:
            continue
    return None
