"""Change a gallery file: load, change, fit and save it under its lock, or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from crnr_cli import __version__
from crnr_cli.gallery.cleaning import Cleaning
from crnr_cli.gallery.entries import Changes, compare_tables
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.gallery.fit import BuildReport, fit_again
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.queries import with_model_at
from crnr_cli.gallery.samples import ReadSamples
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.system.files import replacing
from crnr_cli.wording import Note


@dataclass(frozen=True)
class UpdateReport(BuildReport):
    changes: Changes


def rewrite(
    path: Path,
    change: Callable[[FittedGallery, ReadSamples, Cleaning], ReadSamples],
    model: Path | None = None,
    progress: Progress = silent,
    *,
    dry_run: bool = False,
) -> UpdateReport:
    """Load, change, fit and save while holding the lock, so that no other process writes the gallery.

    Nothing is written if nothing has changed; a dry run neither fits nor writes.
    """
    started = time.perf_counter()
    with nullcontext() if dry_run else replacing(path, if_written=True) as file:
        gallery = load_gallery(path, to_replace=True)
        if model:
            gallery = with_model_at(model, gallery, path)
        vectors, table, cleaning = gallery.samples.vectors, gallery.table.with_stamps(), Cleaning.of(gallery)
        old = ReadSamples(recipe=gallery.recipe, table=table, values=vectors, event_gap=gallery.event_gap)
        new = change(gallery, old, cleaning)
        changes, notes = compare_tables(table, new.table), new.notes
        kept = (step for step in gallery.recipe.steps if step.learns and not step.is_refitted)
        learnt = [step.describe() for step in kept]
        if learnt and (changes.added or changes.changed):
            text = (
                f"{', '.join(learnt)}: still fitted to the old examples; "
                "to fit them to all examples, build the gallery again from all its sources"
            )
            notes = [*notes, Note("kept steps", text)]
        if file:
            before = replace(gallery, table=table)
            gallery, of_gallery = fit_again(before, new, progress)
            gallery, notes = replace(gallery, cleaning=cleaning.to_table()), notes + of_gallery
            if model or gallery.state is not before.state or _differ(gallery, before):
                gallery = replace(gallery, crnr_version=__version__)
                save_gallery(gallery, file)
        file_bytes = (os.fstat(file.fileno()).st_size if file else 0) or path.stat().st_size
    return UpdateReport(
        gallery=gallery,
        seconds=time.perf_counter() - started,
        file_bytes=file_bytes,
        left_out=new.left_out,
        notes=notes,
        changes=changes,
    )


def _differ(one: FittedGallery, other: FittedGallery) -> bool:
    """Return whether two galleries with the same state have other classes, stamps or decisions."""
    return (one.table, one.classes, one.cleaning) != (other.table, other.classes, other.cleaning)
