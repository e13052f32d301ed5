"""Names of classes and files: which are equal, which are valid on all systems, how shells take them."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from pathlib import Path

from crnr_cli.errors import DataError

_INVALID_NAME = 123  # the Windows error for a name with a * or the like, which no file can have
ON_WINDOWS = sys.platform == "win32"
# Characters that a name on Windows cannot contain, or cannot end with, and the names of devices, which remain
# devices with any suffix. macOS also refuses bytes that are not UTF-8.
_FORBIDDEN = r'[<>:"|?*\\\x00-\x1f\ud800-\udfff]|[. ]\Z'
_DEVICE = r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(?= *(\.|\Z))"


def to_nfc(text: str) -> str:
    """Return the text in one Unicode form."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def class_key(name: str) -> str:
    """Return one text for all names of a class."""
    return to_nfc(name)


def path_key(path: str) -> str:
    """Return one text for all spellings of a path, such as q/0.png and ./q//0.png, without following links.

    A relative path differs from an absolute one: names in a gallery may be relative to another folder.
    """
    path = os.path.normcase(os.path.normpath(path))
    return to_nfc(path if path == path.lower() else _fold_case(path))


def normalize_path(path: str) -> str:
    """Return one text for all paths of a file, relative to any folder; links are not followed."""
    return path_key(os.path.abspath(path))  # noqa: PTH100


def _fold_case(path: str) -> str:
    """Return the path with names in lower case wherever a folder ignores case."""
    slash = os.sep
    names = path.split(slash)
    for i, name in enumerate(names):
        above = slash.join(names[:i]) + slash if i else os.curdir
        if name != name.lower() and _cached_folds(os.path.abspath(above)):  # noqa: PTH100
            names[i] = name.lower()
    return slash.join(names)


@lru_cache(maxsize=4096)  # by folder: there are usually many files in few folders
def _cached_folds(folder: str) -> bool:
    try:
        return folds_names(Path(folder))
    except ValueError:  # NUL in a name
        return False


class Spellings:
    """Names in the spelling of a gallery or a table, found by any other spelling of the same name."""

    def __init__(self, known: Iterable[str] = (), key: Callable[[str], str] = class_key) -> None:
        self.known = dict.fromkeys(known)
        self._key = key

    @cached_property
    def _by_key(self) -> dict[str, str]:
        """Made only when needed: most names have the known spelling."""
        return {self._key(name): name for name in reversed(self.known)}

    def find(self, name: str) -> str | None:
        """Return the known spelling of the name, or None."""
        return name if name in self.known else self._by_key.get(self._key(name))

    def spell(self, name: str) -> str:
        """Return the known spelling of the name, or the name itself."""
        found = self.find(name)
        return name if found is None else found

    def learn(self, name: str) -> str:
        """Return the known spelling of the name; add a new name in the given spelling."""
        found = self.find(name)
        if found is None:
            self.known[name] = None
            self._by_key[self._key(name)] = name
            return name
        return found


def with_slashes(path: str) -> str:
    """Return a path as stored and printed: with slashes on every system, so that files can be exchanged.

    Windows accepts slashes too. Elsewhere, a backslash is part of a name.
    """
    return path.replace("\\", "/") if os.sep == "\\" else path


def to_listed_form(path: str) -> str:
    """Return the path in the Unicode form that its folders list, if the file exists only in this form."""
    return ListedForms().find(path)


class ListedForms:
    """Finds many paths in the Unicode form that their folders list; each folder is listed at most once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}
        self._names: dict[str, dict[str, str | None]] = {}

    def find(self, path: str) -> str:
        """Return the path in the listed form, if the file exists only in this form; else the path itself."""
        if path.isascii() or os.path.lexists(path):
            return path
        above, name = os.path.split(path)
        if not name:
            return path
        folder = self._folders.get(above)
        if folder is None:
            folder = self._folders[above] = self.find(above)
        same = os.path.join(folder, name)  # noqa: PTH118
        if folder != above and os.path.lexists(same):
            return same
        listed = self._names_in(folder).get(to_nfc(name))
        return path if listed is None else os.path.join(folder, listed)  # noqa: PTH118

    def _names_in(self, folder: str) -> dict[str, str | None]:
        """Return the listed names by one form of each; None if two names have the same form."""
        if folder not in self._names:
            names: dict[str, str | None] = {}
            try:
                listed = os.listdir(folder or ".")  # noqa: PTH208, which are strings
            except (OSError, ValueError):
                listed = []
            for name in listed:
                key = to_nfc(name)
                names[key] = None if key in names else name
            self._names[folder] = names
        return self._names[folder]


def stat_or_none(path: str | Path, *, follow_links: bool = True) -> os.stat_result | None:
    """Return the status of a file, or None if it does not exist.

    In a folder without access, or if the name is too long, this is an error: the file may exist, or cannot
    exist. `Path.exists` would raise an exception there, or not, depending on the version of Python.
    """
    try:
        return os.stat(path, follow_symlinks=follow_links)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        if getattr(e, "winerror", None) == _INVALID_NAME:
            return None
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except ValueError as e:  # NUL in a name
        raise DataError(f"{path}: cannot read it ({e})") from e


def fold_name(name: str) -> str:
    """Return one text for all names that are the same for some file system.

    They differ in case, in their Unicode form, or in invisible characters. This is coarser than any single
    file system, because these fold by different tables.
    """
    if name.isascii():
        return name.lower()
    seen = "".join(one for one in unicodedata.normalize("NFD", name) if unicodedata.category(one) != "Cf")
    folded = unicodedata.normalize("NFD", seen.casefold().upper().casefold())
    return unicodedata.normalize("NFD", folded.casefold())


def folds_names(folder: Path) -> bool:
    """Return whether two names that differ only in case are the same file in this existing folder.

    Tested with an existing name: one in the folder, else the folder's own name in its parent, and so on.
    Nothing is written, because the folder may have to stay unchanged.
    """
    place = os.path.realpath(folder)
    try:
        answer = _folds(place, os.listdir(place))  # noqa: PTH208, which are strings
    except OSError:  # only its name remains to test
        answer = None
    while answer is None:
        above, name = os.path.split(place)
        if not name:
            return sys.platform in ("darwin", "win32")
        answer, place = _folds(above, [name]), above
    return answer


def _folds(folder: str, names: list[str]) -> bool | None:
    """Return whether the folder ignores case; None if none of these names decides it."""
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


def to_portable(name: str) -> str:
    """Return the name of a file or folder, with escapes as in URLs for anything that Windows cannot have."""
    name = re.sub(_FORBIDDEN, lambda found: percent_escape(found[0]), name)
    return percent_escape(name[0]) + name[1:] if re.match(_DEVICE, name, re.IGNORECASE) else name


def percent_escape(text: str) -> str:
    """Return every byte as an escape; `urllib.parse.unquote` gives the text again."""
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half of a pair of surrogates, which Windows permits
        data = text.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def join_command(words: Iterable[str]) -> str:
    """Return a command that the user can copy into a shell of this system."""
    return " ".join(map(quote_word, words))


def quote_word(word: str) -> str:
    """Return a word of a command, in quotes if a shell of this system needs them."""
    if not ON_WINDOWS:
        import shlex  # here, because it takes long to load

        return shlex.quote(word)
    if re.fullmatch(r"[\w+=:./\\~-]+", word):
        return word
    if re.search('[$`"]', word):  # PowerShell alone can quote these
        return "'" + word.replace("'", "''") + "'"
    # cmd has no others. A program takes \" for a quote, and \\" for a backslash at the end.
    return '"' + re.sub(r"\\+$", r"\g<0>\g<0>", word) + '"'
