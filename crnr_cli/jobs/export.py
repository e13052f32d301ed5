"""Export: write the answers of a predictions file in the format of another program."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from crnr_cli.errors import DataError, OutputError, UsageError, refuse_too_many
from crnr_cli.exports.answers import read_images
from crnr_cli.exports.base import Exported, ExportedImage, Exporter, ExportOptions, ImageHeader, exporter_of
from crnr_cli.images.pixels import MAX_PIXELS, PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.sorting.named_files import NamedFiles
from crnr_cli.system import descriptors
from crnr_cli.system.files import disk_errors, lock_of, locked, partial_of, replacing
from crnr_cli.system.names import stat_or_none
from crnr_cli.system.outputs import DeclaredOutput, planned, refuse_mentioned

_REPORTED_EVERY = 200  # images
_OPTIONS = {
    "boxes": "--boxes",
    "deployments": "--deployments",
    "metadata": "--metadata",
    "url_prefix": "--url-prefix",
}


@dataclass(frozen=True)
class ExportJob:
    """The format, and where its content comes from."""

    to: str
    options: ExportOptions = field(default_factory=ExportOptions)
    corrections: Path | None = None
    below: Sequence[Path] = ()  # more folders whose images may be read
    max_failure_rate: float = 1.0


@dataclass
class ExportReport:
    images: int
    answers: int  # that were exported
    unrelated: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)  # answers, and why
    notes: list[str] = field(default_factory=list)


def export(table: Path, path: Path, job: ExportJob, progress: Progress = silent) -> ExportReport:
    """Write the answers to a file or, if the format consists of several files, to a new folder."""
    exporter, options = exporter_of(job.to), job.options
    _check_options(exporter, options, job.to)
    inputs = (table, job.corrections, options.boxes, options.deployments, options.metadata)
    with _planned(exporter, path, [one for one in inputs if one]):
        read = read_images(table, job.corrections)
        refuse_mentioned(image.path for image in read.images)
        roots = [Path(), table.absolute().parent, *job.below]
        _add_headers(read.images, exporter, NamedFiles(roots, str(table), follow_links=True), progress)
        exported = exporter.make(read.images, options)
        left_out = [*read.twice, *exported.left_out]
        total = sum(len(image.answers) for image in read.images) + len(read.twice)
        refuse_too_many(
            [f"{name}: {reason}" for name, reason in left_out],
            total,
            job.max_failure_rate,
            "answer",
            fate="to be left out",
            where=f" in {table}",
        )
        if len(left_out) == total:
            name, reason = left_out[0]
            raise DataError(f"{table}: none of the answers can be exported; {name}: {reason}")
        _write(exporter, path, exported)
    return ExportReport(len(read.images), total - len(left_out), read.unrelated, left_out, exported.notes)


def _check_options(exporter: Exporter, options: ExportOptions, to: str) -> None:
    for name, option in _OPTIONS.items():
        if getattr(options, name) and name not in exporter.options:
            raise UsageError(f"{option} has no effect on --to {to}; leave it out")
        if not getattr(options, name) and name in exporter.required:
            raise UsageError(f"--to {to} needs {option}")


@contextmanager
def _planned(exporter: Exporter, path: Path, inputs: Sequence[Path]) -> Iterator[None]:
    """Refuse an output that cannot be written, or that is an input."""
    if exporter.is_folder:
        _check_folder(path)
        _refuse_inputs_in_part(path, inputs)
        yield
        return
    with planned([DeclaredOutput(path)], inputs):
        yield


def _refuse_inputs_in_part(folder: Path, inputs: Sequence[Path]) -> None:
    """Refuse inputs in the folder that a killed run may have left, and that is emptied."""
    part = partial_of(folder.absolute())
    for path in inputs:
        if Path(os.path.realpath(path)).parent == Path(os.path.realpath(part)):
            raise OutputError(
                f"{folder}: while it is written, crnr uses the name {part.name}, but {path} is an input of "
                "this run; choose another folder"
            )


def _check_folder(folder: Path) -> None:
    """Refuse a folder that has content, because four files cannot be replaced at once."""
    found = stat_or_none(folder)
    above = folder.absolute().parent
    if found is None and not above.is_dir():
        raise OutputError(f"{folder}: the folder {folder.parent} does not exist; create it first")
    if found and not stat.S_ISDIR(found.st_mode):
        raise OutputError(f"{folder}: is a file; --output is a new folder for this format")
    try:
        if found and any(folder.iterdir()):
            raise OutputError(f"{folder}: is a folder with content; choose a new one, or remove it first")
    except OSError as e:
        raise OutputError(f"{folder}: cannot read it ({e.strerror}); choose another place") from e
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"{folder}: no permission to write; choose another place")


def _add_headers(
    images: Sequence[ExportedImage], exporter: Exporter, files: NamedFiles, progress: Progress
) -> None:
    """Read the size and the capture date of images whose format, or whose boxes in pixels, need them."""
    wanted = [
        image
        for image in images
        if exporter.needs_headers or any(answer.query.is_in_pixels for answer in image.answers)
    ]
    places: list[str] = []
    found: list[ExportedImage] = []
    for image in wanted:
        file = files.find(image.path)
        image.reason = file.reason
        if not file.reason:
            places.append(file.source)
            found.append(image)
    request = PixelRequest(None, max_pixels=MAX_PIXELS, header_only=True, with_date=True)
    decoded = DecoderPool().decode(places, request) if places else iter(())
    for number, (image, header) in enumerate(zip(found, decoded, strict=True), 1):
        if isinstance(header, Pixels):
            image.header = ImageHeader(header.width, header.height, header.date)
        else:
            image.reason = header.detail or header.status
        if number % _REPORTED_EVERY == 0 or number == len(found):
            progress("reading image headers", number, len(found))


def _write(exporter: Exporter, path: Path, exported: Exported) -> None:
    if exporter.is_folder:
        _write_folder(path, exported.files)
        return
    with replacing(path) as file:
        file.write(exported.files[""].encode("ascii"))


def _write_folder(folder: Path, files: dict[str, str]) -> None:
    """Write all files into a folder of another name, which is renamed when it is complete."""
    target = folder.absolute()
    part = partial_of(target)
    with disk_errors(folder, "nothing is written"), locked(lock_of(target), folder):
        try:
            _remove_folder(part, files)
            part.mkdir()
            for name, text in files.items():
                with (part / name).open("xb") as file:
                    file.write(text.encode())
                    file.flush()
                    descriptors.sync(file.fileno())
            with contextlib.suppress(FileNotFoundError):
                target.rmdir()  # an empty one, which Windows cannot replace
            part.rename(target)
        except BaseException as e:
            with contextlib.suppress(OSError, OutputError):
                _remove_folder(part, files)
            if isinstance(e, FileExistsError | NotADirectoryError):
                raise OutputError(f"{folder}: another program has put something there; try again") from e
            if isinstance(e, PermissionError):
                raise OutputError(f"{folder}: no permission to write; choose another place") from e
            raise
        descriptors.sync_folder(target.parent)


def _remove_folder(part: Path, files: dict[str, str]) -> None:
    """Remove the files that a killed run left, but nothing else."""
    if not os.path.lexists(part):
        return
    if part.is_symlink() or not part.is_dir():
        raise OutputError(f"{part}: is in the way; remove it")
    for name in files:
        (part / name).unlink(missing_ok=True)
    try:
        part.rmdir()
    except OSError as e:
        raise OutputError(f"{part}: is in the way, and contains other files; remove it") from e
