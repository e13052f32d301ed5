"""What build, add and remove print about the gallery that they wrote."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crnr_cli.cli.console import EarlyNotes, print_json, say, say_left_out, say_notes, say_some
from crnr_cli.wording import counted

if TYPE_CHECKING:
    from crnr_cli.cli.options import Output
    from crnr_cli.gallery.fit import BuildReport


def show_report(path: Path, report: BuildReport, output: Output, early: EarlyNotes | None = None) -> None:
    """Print what was written, as text or as JSON; for a gallery that existed before, also what changed.

    Notes that were printed early are not repeated.
    """
    from crnr_cli.gallery.gallery import describe
    from crnr_cli.jobs.update import UpdateReport

    changes = asdict(report.changes) if isinstance(report, UpdateReport) else {}
    if output.json:
        record: dict[str, Any] = {
            "gallery": str(path),
            **describe(report.gallery),
            "seconds": report.seconds,
            "bytes": report.file_bytes,
            "notes": [note.text for note in report.notes],
            "left_out": [{"name": left.name, "reason": str(left.error)} for left in report.left_out],
        }
        print_json(record | ({"changes": changes} if changes else {}))
    if output.quiet:
        return
    say_left_out(report.left_out)
    say_notes(early.rest(report.notes) if early else report.notes)
    for kind in ("added", "changed", "removed"):
        say_some(kind, changes.get(kind, []))
    if changes:
        counts = [f"{len(changes[kind])} {kind}" for kind in ("added", "changed", "removed")]
        say(f"{', '.join(counts)}, {changes['unchanged']} unchanged")
    gallery = report.gallery
    factor = f", {gallery.factor}" if gallery.factor else ""
    say(
        f"{path}: {counted(len(gallery.classes), 'class')}, {counted(len(gallery.names), 'sample')}, "
        f"dimension {gallery.samples.vectors.shape[1]}, {gallery.method.name}{factor}; "
        f"{report.seconds:.1f} s, {report.file_bytes / 1e6:.1f} MB"
    )
