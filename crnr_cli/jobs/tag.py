"""Tag: write labels as keywords into XMP sidecars, next to the images, which are never touched."""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError, OutputError, refuse_too_many
from crnr_cli.exports.answers import read_images
from crnr_cli.exports.base import ExportedImage
from crnr_cli.exports.xmp import (
    HIERARCHY,
    LARGEST,
    SUBJECT,
    Property,
    SidecarError,
    add_keywords,
    make_sidecar,
)
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.taxa import Taxa
from crnr_cli.sorting.named_files import NamedFiles
from crnr_cli.sorting.placing import ALREADY_THERE, LEFT_OUT, folder_errors
from crnr_cli.system.files import lock_of, locked, replacing
from crnr_cli.system.folders import Place
from crnr_cli.system.names import stat_or_none
from crnr_cli.system.outputs import DeclaredOutput, planned

AUTO, WITH_SUFFIX, WITHOUT_SUFFIX = "auto", "photo.jpg.xmp", "photo.xmp"
NEW, CHANGED = "new", "changed"
_LOCK = ".crnr-tag.lock"
_NAME = re.compile(r"\.crnr-tag-(\d{1,9})\.jsonl")
_VERSION = 1
_REPORTED_EVERY = 50  # sidecars
_STOPPING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # every other sidecar would fail too
_LINK = "is a link; tag the file that it leads to"
_MEANWHILE = "another program has changed it meanwhile"


@dataclass(frozen=True)
class TagOptions:
    naming: str = AUTO
    min_probability: float | None = None
    taxa: Taxa | None = None  # for hierarchical keywords
    corrections: Path | None = None
    below: Sequence[Path] = ()  # more folders whose images may be tagged
    max_failure_rate: float = 1.0
    dry_run: bool = False


class TagOutcome(NamedTuple):
    """The outcome for one image."""

    path: str
    sidecar: str
    result: str  # NEW, CHANGED, ALREADY_THERE or LEFT_OUT
    keywords: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass
class TagReport:
    rows: list[TagOutcome] = field(default_factory=list)
    untagged: int = 0  # images without a label to write
    list: Path | None = None  # None if there was nothing to do

    @property
    def left_out(self) -> Sequence[TagOutcome]:
        return [row for row in self.rows if row.result == LEFT_OUT]

    def count(self, *results: str) -> int:
        return sum(1 for row in self.rows if row.result in results)


class _Change(NamedTuple):
    """A sidecar to write."""

    row: int  # in the report
    path: str  # absolute, without links
    before: bytes | None  # None if there is no sidecar yet
    after: bytes


def tag(table: Path, options: TagOptions, progress: Progress = silent) -> TagReport:
    """Add the labels of a predictions file to sidecars. A second run has nothing to do."""
    read = read_images(table, options.corrections)
    _refuse_without_probability(table, read.images, options)
    report = TagReport()
    folder = table.absolute().parent
    if options.dry_run:
        _plan_changes(table, read.images, options, report)
        return report
    with folder_errors(folder), locked(folder / _LOCK, folder):
        changes = _plan_changes(table, read.images, options, report)
        if changes:
            report.list = _next_list(folder)
            _write_list(report.list, changes)
            for number, change in enumerate(changes, 1):
                _write_change(change, report)
                if number % _REPORTED_EVERY == 0 or number == len(changes):
                    progress("tagging", number, len(changes))
    return report


def _refuse_without_probability(table: Path, images: Sequence[ExportedImage], options: TagOptions) -> None:
    answers = [answer for image in images for answer in image.answers]
    if options.min_probability is not None and all(answer.score is None for answer in answers):
        raise DataError(
            f"{table}: no column probability; leave out --min-probability, or classify with a gallery "
            "that was built with --calibrate"
        )


def _labels_of(image: ExportedImage, least: float | None) -> list[str]:
    """Return the labels of the image and of its boxes, each once, without doubtful ones."""
    return list(
        dict.fromkeys(
            answer.label
            for answer in image.answers
            if answer.label and (least is None or (answer.score is not None and answer.score >= least))
        )
    )


def _plan_changes(
    table: Path, images: Sequence[ExportedImage], options: TagOptions, report: TagReport
) -> list[_Change]:
    """Return the sidecars to write; add every image with a label to the report."""
    named = NamedFiles([Path(), table.absolute().parent, *options.below], str(table), follow_links=False)
    wanted: list[tuple[ExportedImage, list[str], str]] = []
    for image in images:
        labels = _labels_of(image, options.min_probability)
        if not labels:
            report.untagged += 1
            continue
        found = named.find(image.path)
        reason = found.reason
        if found.status and stat.S_ISLNK(found.status.st_mode):
            reason = _LINK
        if reason:
            report.rows.append(TagOutcome(image.path, "", LEFT_OUT, "|".join(labels), reason))
        else:
            wanted.append((image, labels, found.source))
    changes = []
    for (image, labels, source), sidecar in zip(
        wanted, _choose_sidecars([source for _, _, source in wanted], options.naming), strict=True
    ):
        shown = image.path[: len(image.path) - len(os.path.basename(source))] + os.path.basename(sidecar)  # noqa: PTH119
        row = TagOutcome(image.path, shown, ALREADY_THERE, "|".join(labels))
        try:
            before = _read_sidecar(sidecar)
            after = _add(before, labels, options.taxa)
            if after != before:
                row = row._replace(result=NEW if before is None else CHANGED)
                changes.append(_Change(len(report.rows), sidecar, before, after))
            elif not options.dry_run:
                _remove_lock(Path(sidecar))
        except SidecarError as e:
            row = row._replace(sidecar="", result=LEFT_OUT, reason=str(e))
        report.rows.append(row)
    refuse_too_many(
        report.left_out,
        len(report.rows),
        options.max_failure_rate,
        "image",
        fate="to be left out",
        where=f" in {table}",
    )
    if report.rows and len(report.left_out) == len(report.rows):
        raise DataError(f"{table}: none of the images can be tagged; {report.rows[0]}")
    return changes


def _remove_lock(sidecar: Path) -> None:
    """Remove the lock file of a run that was killed after it had written the sidecar."""
    place = lock_of(sidecar)
    if os.path.lexists(place):
        with contextlib.suppress(OSError, OutputError), locked(place, sidecar):
            pass


def _choose_sidecars(sources: Sequence[str], naming: str) -> Iterator[str]:
    """Yield the sidecar of each image: the existing one, or photo.jpg.xmp.

    photo.xmp is never shared by two images, such as photo.jpg and photo.png, because it would have the labels
    of both.
    """
    stems: dict[str, int] = {}
    for source in sources:
        stem = os.path.splitext(source)[0]  # noqa: PTH122
        stems[stem] = stems.get(stem, 0) + 1
    for source in sources:
        stem = os.path.splitext(source)[0]  # noqa: PTH122
        long = _existing_or(f"{source}.xmp")
        short = _existing_or(f"{stem}.xmp")
        is_shared = stems[stem] > 1
        if naming == WITHOUT_SUFFIX:
            yield "" if is_shared else short
        elif naming == AUTO and not is_shared and not os.path.lexists(long) and os.path.lexists(short):
            yield short
        else:
            yield long


def _existing_or(path: str) -> str:
    """Return the path, or the same path in the case that some cameras and programs use."""
    other = path[: -len(".xmp")] + ".XMP"
    return other if os.path.lexists(other) and not os.path.lexists(path) else path


def _read_sidecar(path: str) -> bytes | None:
    """Return the content of a sidecar, or None if it does not exist. A link is not followed."""
    if not path:
        raise SidecarError("another image has the same name without its suffix; use --naming photo.jpg.xmp")
    place = Place(path)
    try:
        status = place.status()
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise SidecarError("the sidecar is a link or a folder")
        if status.st_nlink > 1:
            raise SidecarError("the sidecar has several names, which would get different contents")
        with os.fdopen(place.open(), "rb") as file:
            return file.read(LARGEST + 1)
    except OSError as e:
        raise SidecarError(f"cannot read the sidecar ({e.strerror})") from e


def _add(before: bytes | None, labels: Sequence[str], taxa: Taxa | None) -> bytes:
    keywords: dict[Property, list[str]] = {SUBJECT: list(labels)}
    found = [label for label in labels if taxa and taxa.find(label)]
    if taxa and (levels := ["|".join([*reversed(taxa.list_above(label)), label]) for label in found]):
        keywords[HIERARCHY] = levels
    return make_sidecar(keywords) if before is None else add_keywords(before, keywords)


def _write_change(change: _Change, report: TagReport) -> None:
    """Replace a sidecar at once; leave it out if it is not as it was when the change was planned."""
    row = report.rows[change.row]
    try:
        _replace_sidecar(change.path, change.before, change.after)
    except (SidecarError, PermissionError, OutputError) as e:
        is_output = isinstance(e, OutputError)
        if is_output and isinstance(e.__cause__, OSError) and e.__cause__.errno in _STOPPING:
            raise
        reason = str(e.strerror) if isinstance(e, OSError) else str(e)
        report.rows[change.row] = row._replace(sidecar="", result=LEFT_OUT, reason=reason)


def _replace_sidecar(path: str, before: bytes | None, after: bytes) -> None:
    place = Path(path)
    with planned([DeclaredOutput(place)]), replacing(place) as file:
        if _read_sidecar(path) != before:
            raise SidecarError(_MEANWHILE)
        file.write(after)


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _next_list(folder: Path) -> Path:
    numbers = [int(found[1]) for path in folder.iterdir() if (found := _NAME.fullmatch(path.name))]
    return folder / f".crnr-tag-{max(numbers, default=0) + 1}.jsonl"


def _write_list(path: Path, changes: Sequence[_Change]) -> None:
    """Write the undo file to the disk completely, before any sidecar is touched: with the old contents."""
    lines = [json.dumps({"crnr_tag": _VERSION})]
    for change in changes:
        old = None if change.before is None else base64.b64encode(change.before).decode()
        lines.append(json.dumps([change.path, old, _digest(change.after)]))
    with planned([DeclaredOutput(path)]), replacing(path) as file:
        file.write(("\n".join(lines) + "\n").encode("ascii"))


@dataclass
class UntagReport:
    undone: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)  # sidecars that stay, and why


def untag(path: Path, below: Sequence[Path] = (), progress: Progress = silent) -> UntagReport:
    """Restore the sidecars in an undo file, unless they have changed since.

    It can be stopped and started again. The undo file is removed when all of it is undone.
    """
    report, folder = UntagReport(), path.absolute().parent
    _check_list(path)
    with folder_errors(folder), locked(folder / _LOCK, folder):
        entries = _read_list(path)
        named = NamedFiles([Path(), folder, *below], str(path), follow_links=False)
        for above in {os.path.dirname(entry[0]): None for entry in entries}:  # noqa: PTH120 - it may be untrusted
            named.check_folder(above, above)
        for number, (sidecar, before, digest) in enumerate(entries, 1):
            try:
                report.undone += _restore(sidecar, before, digest)
            except (SidecarError, OutputError, PermissionError) as e:
                report.left_out.append((sidecar, str(e)))
            if number % _REPORTED_EVERY == 0 or number == len(entries):
                progress("tagging", number, len(entries))
        if not report.left_out:
            path.unlink()
    return report


def _restore(sidecar: str, before: bytes | None, digest: str) -> bool:
    """Return whether a sidecar was restored, and was not as before already."""
    now = _read_sidecar(sidecar)
    if now == before:
        return False
    if _digest(now) != digest:
        raise SidecarError("has changed since it was tagged" if now is not None else "no such file")
    if before is None:
        Place(sidecar).remove()
    else:
        _replace_sidecar(sidecar, now, before)
    return True


def _check_list(path: Path) -> None:
    found = stat_or_none(path)
    if found is None:
        raise DataError(f"{path}: no such undo file")
    if not stat.S_ISREG(found.st_mode) or _NAME.fullmatch(path.name) is None:
        raise DataError(f"{path}: not an undo file of `crnr tag`, such as .crnr-tag-1.jsonl")


def _read_list(path: Path) -> list[tuple[str, bytes | None, str]]:
    """Return the entries of an undo file; an untrusted one may name sidecars only."""
    try:
        header, *lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        if header != {"crnr_tag": _VERSION}:
            raise ValueError("not a list")
        return [_entry(line) for line in lines]
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: not an undo file of `crnr tag`; if it is in the way, remove it") from e


def _entry(value: object) -> tuple[str, bytes | None, str]:
    match value:
        case [str(path), str() | None as old, str(digest)] if (
            os.path.isabs(path) and path.lower().endswith(".xmp") and "\0" not in path  # noqa: PTH117
        ):
            os.fsencode(path)
            try:
                return path, None if old is None else base64.b64decode(old, validate=True), digest
            except binascii.Error as e:
                raise ValueError("not an entry") from e
    raise ValueError("not an entry")
