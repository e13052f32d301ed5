"""Names that Linux, macOS and Windows can all have."""

from __future__ import annotations

import re
import sys

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
