"""The outputs of a command: checked before any work, different from each other, and never one of its inputs.

A command declares its outputs with `planned`. Whatever opens an input calls `refuse_inputs`, which compares
the file itself, not its name, with everything that will be written. `files` writes only what was declared.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from crnr_cli.errors import OutputError, UsageError
from crnr_cli.system.folders import longest_name

_DESCRIPTOR = re.compile(r"/dev/std(?:in|out|err)|/dev/fd/\d+|/proc/(?:self|\d+)/fd/\d+")
_EFFECTIVE = os.access in os.supports_effective_ids  # as for opening files, not the user who started us
_HDF5 = b"\x89HDF\r\n\x1a\n"  # the first bytes of a gallery

# A file that is being written has one of these names; nobody else uses them.
_PARTIAL, _JOURNAL, _ROWS, _LOCK = ".crnr-part", ".crnr-journal", ".crnr-rows", ".crnr-lock"
PARTIAL_ENDINGS = (_PARTIAL, _JOURNAL, _ROWS, _LOCK)


@dataclass(frozen=True)
class Output:
    path: Path
    # A gallery, or a file of extracted values. It has to be a regular file, and may be in the folder of its
    # samples, as it is not a picture.
    is_gallery: bool = False

    @property
    def target(self) -> Path:
        """The file that is replaced, after all links."""
        return Path(os.path.realpath(self.path))

    @property
    def places(self) -> list[Path]:
        """All files that are written."""
        return [self.target, *(_beside(self.target, ending) for ending in PARTIAL_ENDINGS)]


# None outside of a command: a library user is free to write anywhere.
_planned: ContextVar[tuple[Output, ...] | None] = ContextVar("planned", default=None)


@contextmanager
def planned(outputs: Sequence[Output], inputs: Iterable[str | Path] = ()) -> Iterator[None]:
    """Refuse outputs that cannot be written, and until the block ends, inputs that they would overwrite."""
    for output in outputs:
        check_output(output.path)
        if output.is_gallery and not is_replaceable(output.path):
            raise OutputError(f"{output.path}: not a regular file; this output can only be written to one")
    _refuse_same(outputs)
    _refuse_occupied(outputs)
    before = _planned.set(tuple(outputs))
    try:
        refuse_inputs(inputs)
        yield
    finally:
        _planned.reset(before)


def check_output(path: Path) -> None:
    """Refuse an output that cannot be written."""
    try:
        found: os.stat_result | None = _status(path)
        folder = _status(path.parent)
    except OSError as e:
        reason = "no permission to write" if e.errno == errno.EACCES else f"cannot write ({e.strerror})"
        raise OutputError(f"{path}: {reason}; choose another place") from e
    except ValueError as e:  # NUL in a name
        raise OutputError(f"{path}: cannot write ({e}); choose another place") from e
    if found and stat.S_ISDIR(found.st_mode):
        raise OutputError(f"{path}: is a directory; give a file name")
    if folder is None or not stat.S_ISDIR(folder.st_mode):
        raise OutputError(f"{path}: there is no directory {path.parent}; create it first")
    if _is_descriptor(path) and found and stat.S_ISREG(found.st_mode):
        raise OutputError(f"{path}: refers to a file that is already open; give the name of that file")
    target = Path(os.path.realpath(path))
    if not os.path.isdir(target.parent):  # noqa: PTH112, which raises if access is denied
        raise OutputError(f"{path}: is a link to {target}, whose directory does not exist; create it first")
    if (is_replaceable(path) and not _may(target.parent, os.W_OK | os.X_OK)) or (
        found and not _may(path, os.W_OK)
    ):
        raise OutputError(f"{path}: no permission to write; choose another place")


def is_replaceable(path: Path) -> bool:
    """Whether this is a regular file or does not exist yet; a pipe or /dev/null is written to directly."""
    return not _is_descriptor(path) and (os.path.isfile(path) or not os.path.exists(path))  # noqa: PTH110, PTH113


def is_stdout(path: Path) -> bool:
    return os.path.abspath(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")  # noqa: PTH100


def partial_of(target: Path) -> Path:
    """The file that an output is written to until it is complete."""
    return _beside(target, _PARTIAL)


def journal_of(target: Path) -> Path:
    """The journal of a partial file, see results/journal.py."""
    return _beside(target, _JOURNAL)


def rows_of(target: Path) -> Path:
    """What a run has extracted so far, if the output itself is only written at the end."""
    return _beside(target, _ROWS)


def lock_of(target: Path) -> Path:
    """The file that is locked while an output is written."""
    return _beside(target, _LOCK)


def may_be_partial(found: os.stat_result) -> bool:
    """Whether we may write to a file that has the name of a partial file: it leads to no other file."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1


def occupied(place: Path, path: Path) -> OutputError:
    return OutputError(
        f"{path}: while it is written, crnr needs the name {place.name}, which is a link, a directory or the "
        "like; remove it, or write to another file"
    )


def refuse_undeclared(path: Path) -> None:
    """Every output of a command has to be declared, as otherwise it could overwrite an input."""
    outputs = _planned.get()
    declared = outputs is None or any(output.target == Path(os.path.realpath(path)) for output in outputs)
    assert declared, f"{path} is not declared as an output of this command"


def refuse_inputs(paths: Iterable[str | Path], *, are_pictures: bool = False) -> None:
    """Refuse to overwrite these inputs. A gallery among `are_pictures` cannot be one of them."""
    taken = _taken()
    for path in paths if taken else ():
        with suppress(OSError, ValueError):
            found = os.stat(path)  # noqa: PTH116
            output, place = taken.get((found.st_dev, found.st_ino), (None, path))
            if output and not (are_pictures and output.is_gallery and _is_hdf5(path)):
                raise _is_input(output, Path(path), Path(place))


def refuse_listed(listing: Iterable[tuple[str, int, int]], *, are_pictures: bool) -> None:
    """`refuse_inputs` for many files whose size and mtime in ns are known, without looking at each again."""
    stamps = set()
    for _, place in _taken().values():
        with suppress(OSError):
            found = place.stat()
            stamps.add((found.st_size, found.st_mtime_ns))
    if stamps:
        same = (path for path, size, mtime_ns in listing if (size, mtime_ns) in stamps)
        refuse_inputs(same, are_pictures=are_pictures)


def refuse_mentioned(names: Iterable[str]) -> None:
    """Refuse to overwrite a file that a gallery or a CSV mentions as a sample.

    There may be a million of them, on a slow disk, so only those with the name of an output are looked at.
    """
    own = {place.name for _, place in _taken().values()}
    if own:
        refuse_inputs(name for name in names if name.rpartition("/")[2] in own)


def refuse_inside(folder: str | Path) -> None:
    """Refuse outputs in a folder that is an input: the next run would take them for inputs."""
    real = Path(os.path.realpath(folder))
    for output in _planned.get() or ():
        if not output.is_gallery and is_replaceable(output.path) and output.target.is_relative_to(real):
            raise OutputError(f"{output.path}: is inside {folder}, which is an input; write it elsewhere")


def _taken() -> dict[tuple[int, int], tuple[Output, Path]]:
    """The regular files that exist where outputs will be written, by device and inode."""
    found: dict[tuple[int, int], tuple[Output, Path]] = {}
    for output in _planned.get() or ():
        for place in output.places if is_replaceable(output.path) else ():
            with suppress(OSError):
                status = place.stat()
                if stat.S_ISREG(status.st_mode):
                    found[status.st_dev, status.st_ino] = output, place
    return found


def _is_input(output: Output, path: Path, place: Path) -> OutputError:
    if place == output.target:
        return OutputError(f"{output.path}: is an input of this run; write to another file")
    return OutputError(
        f"{output.path}: while it is written, crnr uses the name {place.name}, but {path} is an input of "
        "this run; write to another file"
    )


def _refuse_same(outputs: Sequence[Output]) -> None:
    """Two outputs of one name would overwrite each other."""
    owners: dict[Path, Output] = {}
    for output in outputs:
        for place in output.places if is_replaceable(output.path) else ():
            other = owners.setdefault(place, output)
            if other is not output:
                given = f"{output.path} and {other.path}" if output.path != other.path else output.path
                raise UsageError(f"{given}: two outputs cannot be the same file; give them different names")


def _refuse_occupied(outputs: Sequence[Output]) -> None:
    """Refuse now what `files` would refuse in the end, after all the work."""
    for output in outputs:
        for place in output.places[1:] if is_replaceable(output.path) else ():
            with suppress(FileNotFoundError):
                if not may_be_partial(place.lstat()):
                    raise occupied(place, output.path)


def _status(path: Path) -> os.stat_result | None:
    """None if there is nothing of this name."""
    try:
        return os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None


def _may(path: Path, access: int) -> bool:
    return os.access(path, access, effective_ids=_EFFECTIVE)


def _is_descriptor(path: Path) -> bool:
    """Whether this is /dev/stdout or the like: even if it refers to a regular file, it cannot be replaced."""
    return _DESCRIPTOR.fullmatch(os.path.abspath(path)) is not None  # noqa: PTH100, which follows links


def _beside(target: Path, ending: str) -> Path:
    """A name next to the target; if it would be too long, made of a hash, so that --resume finds it too."""
    name = target.name + ending
    if len(os.fsencode(name)) > longest_name(target.parent):
        import hashlib

        name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:32] + ending
    return target.with_name(name)


def _is_hdf5(path: str | Path) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_HDF5)) in (_HDF5, b"")
    except OSError:
        return False
