"""What build, add and remove print about the gallery that they wrote."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crnr_cli.cli.console import print_json, say, say_left_out, say_notes, say_some

if TYPE_CHECKING:
    from crnr_cli.cli.options import Output
    from crnr_cli.gallery.fit import BuildReport


def show_report(path: Path, report: BuildReport, output: Output) -> None:
    """Print what was written, as text or as JSON; for a gallery that existed before, also what changed."""
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
    say_notes(report.notes)
    for kind in ("added", "changed", "removed"):
        say_some(kind, changes.get(kind, []))
    if changes:
        counts = [f"{len(changes[kind])} {kind}" for kind in ("added", "changed", "removed")]
        say(f"{', '.join(counts)}, {changes['unchanged']} unchanged")
    gallery = report.gallery
    factor = f", {gallery.factor}" if gallery.factor else ""
    classes = "1 class" if len(gallery.classes) == 1 else f"{len(gallery.classes)} classes"
    say(
        f"{path}: {classes}, {len(gallery.names)} samples, "
        f"dimension {gallery.samples.vectors.shape[1]}, {gallery.method.name}{factor}; "
        f"{report.seconds:.1f} s, {report.file_bytes / 1e6:.1f} MB"
    )
