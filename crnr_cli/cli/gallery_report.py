"""The messages of build, add and remove about the gallery that they wrote."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crnr_cli.cli.console import EarlyNotes, print_csv, print_json, say, say_left_out, say_notes, say_some
from crnr_cli.cli.options import GALLERY
from crnr_cli.system.names import join_command, quote_word
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.cli.options import PrintOptions
    from crnr_cli.gallery.file import GallerySummary
    from crnr_cli.gallery.fit import BuildReport
    from crnr_cli.gallery.gallery import FittedGallery
    from crnr_cli.progress import Progress

# Settings of a gallery that are not listed, because they follow from other settings.
NOT_LISTED = ("width", "height", "color", "n_inputs", "steps")


_KINDS = ("added", "changed", "removed")  # of changes


class Replaced:
    """The file that a command replaces, if there is one at `path`: what is printed about it.

    It is looked at before it is replaced, but the notes wait until the new file is written: if the command
    fails, nothing was replaced.
    """

    def __init__(self, path: Path | None, quiet: bool, *, is_gallery: bool = True) -> None:
        self._path, self._quiet, self._is_gallery = path, quiet, is_gallery
        self._looked = False
        self._note: str | None = None
        self._old: GallerySummary | None = None

    def look_before_work(self, progress: Progress) -> Progress:
        """Return the progress; when it begins, after all checks, the file is looked at."""

        def report(step: str, done: int, total: int) -> None:
            if not self._looked:
                self._looked = True
                self._look()
            progress(step, done, total)

        return report

    def announce(self) -> None:
        """Print that the file was replaced."""
        if self._note:
            say(f"note: {self._note}")

    def _look(self) -> None:
        from crnr_cli.errors import CrnrError
        from crnr_cli.gallery.file import GallerySummary
        from crnr_cli.system.names import stat_or_none

        if self._quiet or self._path is None or (found := stat_or_none(self._path)) is None:
            return
        try:
            made = datetime.fromtimestamp(found.st_mtime).strftime("%Y-%m-%d %H:%M")
        except (ValueError, OverflowError, OSError):  # no calendar has it
            made = "an unknown date"
        if not self._is_gallery:
            self._note = f"replaced {self._path} of {made}"
            return
        try:
            self._old = old = GallerySummary.read(self._path)
        except CrnrError:
            self._note = f"replaced {self._path} of {made}, which was not a readable gallery"
            return
        content = f"{format_count(old.n_classes, 'class')}, {format_count(len(old.names), 'example')}"
        self._note = f"replaced {self._path} of {made} ({content})"

    def say_lost(
        self, gallery: FittedGallery, sources: Sequence[str] = (), given: Collection[str] = ()
    ) -> None:
        """Print what it had that the new one does not: added examples, cleaning, tuned settings.

        Settings that the user has given are as wanted.
        """
        from crnr_cli.gallery.cleaning import Cleaning, count_decisions
        from crnr_cli.gallery.file import GallerySummary

        if self._old is None:
            return
        new = GallerySummary.of(gallery)
        self._say_lost_examples(new)
        where = [] if self._path == GALLERY else ["-o", str(self._path)]
        keep = f"next time use `crnr build {join_command([*sources, '--update', *where])}` to keep"
        if forgotten := count_decisions([*Cleaning(self._old.cleaning)]):
            say(f"note: the cleaning of the previous gallery is lost: {forgotten}; {keep} it")
        different = {
            key: value for key, value in self._old.settings.items() if new.settings.get(key) != value
        }
        if "method" in different:  # the settings of another method mean nothing to the new one
            different = {"method": different["method"]}
        different = {key: value for key, value in different.items() if key not in given}
        if different:
            shown = ", ".join(
                f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in different.items()
                if key not in NOT_LISTED
            )
            had = shown or "another network of the same name"
            say(f"note: the previous gallery had other settings: {had}; {keep} them")
        if self._old.is_calibrated and not new.is_calibrated:
            say("note: the previous gallery was calibrated; add --calibrate to calibrate this one")

    def _say_lost_examples(self, new: GallerySummary) -> None:
        """Print which examples have another class now, and which are gone; a renamed file is neither."""
        assert self._old is not None
        kept, now = set(new.names), dict(zip(new.hashes, new.names, strict=True))
        old = zip(self._old.names, self._old.hashes, strict=True)
        lost = [(name, sha256) for name, sha256 in old if name not in kept]
        before = set(self._old.names)
        moved = [(name, now[sha256]) for name, sha256 in lost if now.get(sha256, name) not in before]
        dropped = [name for name, sha256 in lost if now.get(sha256, name) in before]
        if moved:
            was = "was" if len(moved) == 1 else "were"
            name, place = moved[0]
            say(f"note: {format_count(len(moved), 'example')} {was} moved, such as {name}, now {place}")
        if dropped:
            were = "was" if len(dropped) == 1 else "were"
            again = f"crnr add {quote_word(str(self._path))}"
            say(
                f"note: {format_count(len(dropped), 'example')} of the previous gallery {were} dropped, "
                f"such as {dropped[0]}; to add files again, use `{again} FILES --class NAME` or "
                f"`{again} --corrections FILE`"
            )


def show_report(
    path: Path,
    report: BuildReport,
    output: PrintOptions,
    early: EarlyNotes | None = None,
    *,
    dry_run: bool = False,
    more: dict[str, Any] | None = None,
) -> None:
    """Print what was written, as text or as JSON, with `more`; of an old gallery, also what changed.

    Notes that were printed early are not repeated. Of a dry run, the changes are printed as CSV.
    """
    from crnr_cli.gallery.gallery import describe
    from crnr_cli.gallery.rewriting import UpdateReport
    from crnr_cli.methods.by_neighbors import worst_index_measurement
    from crnr_cli.system.memory import format_size

    changes = asdict(report.changes) if isinstance(report, UpdateReport) else {}
    planned = [(name, kind) for kind in _KINDS for name in changes.get(kind, [])] if dry_run else []
    said = {
        "notes": [note.text for note in report.notes],
        "left_out": [{"name": left.name, "reason": str(left.error)} for left in report.left_out],
    }
    if dry_run and output.json:
        rows = [{"sample": name, "change": kind} for name, kind in planned]
        print_json({"gallery": str(path), "planned": rows, "unchanged": changes["unchanged"], **said})
    elif dry_run:
        print_csv(["sample", "change"], planned)
    elif output.json:
        record: dict[str, Any] = {
            "gallery": str(path),
            **describe(report.gallery),
            "seconds": report.seconds,
            "bytes": report.file_bytes,
            **said,
        }
        print_json(record | ({"changes": changes} if changes else {}) | (more or {}))
    if output.quiet:
        return
    say_left_out(report.left_out)
    say_notes(early.rest(report.notes) if early else report.notes)
    if not dry_run:
        for kind in _KINDS:
            say_some(kind, changes.get(kind, []))
    if changes:
        counts = [f"{len(changes[kind])} {kind}" for kind in _KINDS]
        say(f"{', '.join(counts)}, {changes['unchanged']} unchanged")
    if dry_run:
        say(f"{path}: not changed by a dry run")
        return
    gallery = report.gallery
    measured = worst_index_measurement(gallery.state)
    found = "" if measured is None else f", index with {measured.describe()}"
    say(
        f"{path}: {format_count(len(gallery.classes), 'class')}, "
        f"{format_count(len(gallery.names), 'example')}, "
        f"vectors of length {gallery.samples.vectors.shape[1]}, method {gallery.method.name}{found}; "
        f"{report.seconds:.1f} s, {format_size(report.file_bytes)}"
    )
