"""The outputs of a command: checked before any work, all different, and never one of its inputs.

A command declares its outputs with `planned`. Any code that opens an input calls `refuse_inputs`, which
compares the file itself, not its name, with everything that will be written. `files` writes only declared
outputs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from crnr_cli.errors import OutputError, UsageError
from crnr_cli.records import dataclass
from crnr_cli.system.files import (
    check_output,
    declared,
    is_replaceable,
    may_be_partial,
    occupied_error,
    places_beside,
)

_HDF5 = b"\x89HDF\r\n\x1a\n"  # the first bytes of a gallery


@dataclass(frozen=True)
class DeclaredOutput:
    path: Path
    # A gallery, or a file of extracted values. It has to be a regular file, and may be in the folder of its
    # samples, because it is not an image.
    is_gallery: bool = False

    @property
    def target(self) -> Path:
        """The file that is replaced, after all links."""
        return Path(os.path.realpath(self.path))

    @property
    def places(self) -> list[Path]:
        """All files that are written."""
        return [self.target, *places_beside(self.target)]


# None outside a command.
_planned: ContextVar[tuple[DeclaredOutput, ...] | None] = ContextVar("planned", default=None)


@contextmanager
def planned(outputs: Sequence[DeclaredOutput], inputs: Iterable[str | Path] = ()) -> Iterator[None]:
    """Refuse outputs that cannot be written and, until the block ends, inputs that they would overwrite."""
    for output in outputs:
        check_output(output.path)
        if output.is_gallery and not is_replaceable(output.path):
            raise OutputError(f"{output.path}: not a regular file; this output can only be written to one")
    _refuse_same(outputs)
    _refuse_occupied(outputs)
    before = _planned.set(tuple(outputs)), declared.set(tuple(output.path for output in outputs))
    try:
        refuse_inputs(inputs)
        yield
    finally:
        _planned.reset(before[0])
        declared.reset(before[1])


def refuse_inputs(paths: Iterable[str | Path], *, are_images: bool = False) -> None:
    """Refuse to overwrite these inputs. If they are images, a gallery cannot be one of them."""
    taken = _existing_outputs()
    for path in paths if taken else ():
        with suppress(OSError, ValueError):
            found = os.stat(path)  # noqa: PTH116
            output, place = taken.get((found.st_dev, found.st_ino), (None, path))
            if output and not (are_images and output.is_gallery and _is_hdf5(path)):
                raise _input_error(output, Path(path), Path(place))


def refuse_listed(listing: Iterable[tuple[str, int, int]], *, are_images: bool) -> None:
    """Act like `refuse_inputs` for many files of known size and mtime in ns, without checking each again."""
    from crnr_cli.arrays import Stamp  # here, because it loads NumPy

    stamps = set()
    for _, place in _existing_outputs().values():
        with suppress(OSError):
            stamps.add(Stamp.of(place.stat()))
    if stamps:
        same = (path for path, size, mtime_ns in listing if (size, mtime_ns) in stamps)
        refuse_inputs(same, are_images=are_images)


def refuse_mentioned(names: Iterable[str]) -> None:
    """Refuse to overwrite a file that a gallery or a CSV mentions as a sample.

    There may be a million of them, on a slow disk, so only files with the name of an output are checked.
    """
    own = {place.name for _, place in _existing_outputs().values()}
    if own:
        refuse_inputs(name for name in names if name.rpartition("/")[2] in own)


def refuse_inside(folder: str | Path) -> None:
    """Refuse outputs in a folder that is an input: the next run would read them as inputs."""
    real = Path(os.path.realpath(folder))
    for output in _planned.get() or ():
        if not output.is_gallery and is_replaceable(output.path) and output.target.is_relative_to(real):
            raise OutputError(f"{output.path}: is inside {folder}, which is an input; write it elsewhere")


def _existing_outputs() -> dict[tuple[int, int], tuple[DeclaredOutput, Path]]:
    """Return the regular files that exist where outputs will be written, by device and inode."""
    found: dict[tuple[int, int], tuple[DeclaredOutput, Path]] = {}
    for output in _planned.get() or ():
        for place in output.places if is_replaceable(output.path) else ():
            with suppress(OSError):
                status = place.stat()
                if stat.S_ISREG(status.st_mode):
                    found[status.st_dev, status.st_ino] = output, place
    return found


def _input_error(output: DeclaredOutput, path: Path, place: Path) -> OutputError:
    if place == output.target:
        return OutputError(f"{output.path}: is an input of this run; write to another file")
    return OutputError(
        f"{output.path}: while it is written, crnr uses the name {place.name}, but {path} is an input of "
        "this run; write to another file"
    )


def _refuse_same(outputs: Sequence[DeclaredOutput]) -> None:
    """Refuse two outputs of the same name, which would overwrite each other."""
    owners: dict[Path, DeclaredOutput] = {}
    for output in outputs:
        for place in output.places if is_replaceable(output.path) else ():
            other = owners.setdefault(place, output)
            if other is not output:
                given = f"{output.path} and {other.path}" if output.path != other.path else output.path
                raise UsageError(f"{given}: two outputs cannot be the same file; give them different names")


def _refuse_occupied(outputs: Sequence[DeclaredOutput]) -> None:
    """Refuse now any output that `files` would refuse in the end, after all the work."""
    for output in outputs:
        for place in output.places[1:] if is_replaceable(output.path) else ():
            with suppress(FileNotFoundError):
                if not may_be_partial(place.lstat()):
                    raise occupied_error(place, output.path)


def _is_hdf5(path: str | Path) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_HDF5)) in (_HDF5, b"")
    except OSError:
        return False
