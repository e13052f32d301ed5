"""crnr add."""

from __future__ import annotations

from crnr_cli.cli.command import command
from crnr_cli.cli.console import shown_progress
from crnr_cli.cli.gallery_report import show_report
from crnr_cli.cli.network_options import Model
from crnr_cli.cli.options import ChangedGallery, Input, Output, Sources, Strictness


@command
def add(
    gallery: ChangedGallery,
    sources: Sources,
    *,
    input: Input,
    model: Model,
    strictness: Strictness,
    output: Output,
) -> None:
    """Add classes or samples to a gallery. The sources that it was built from are not needed."""
    from crnr_cli.gallery.samples import Reading
    from crnr_cli.jobs.update import add as run

    reading = Reading(**input.values(), **strictness.values())
    with shown_progress(output.quiet) as progress:
        report = run(gallery, sources, reading, progress, model.extractor)
    show_report(gallery, report, output)
    strictness.finish(report.skipped)
