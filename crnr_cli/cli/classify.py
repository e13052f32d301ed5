"""crnr classify."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.cluster import joined
from crnr_cli.cli.console import SKIPPED, boundary, finishing_batches, say, shown_progress
from crnr_cli.pictures.pool import early_decoder
from crnr_cli.system.cores import use_cores

if TYPE_CHECKING:
    from crnr_cli.cluster.dask import Cluster
    from crnr_cli.jobs.classify import Answering


def classify(
    sources: options.Sources,
    gallery: options.GalleryPath = options.GALLERY,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="CSV to write; - is stdout.")
    ] = "-",
    reject: options.Reject = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="K",
            help="Write the K best classes as label_1,residual_1,...",
            show_default="the residuals of all",
        ),
    ] = None,
    extractor: options.MovedExtractor = None,
    features_key: options.FeaturesKey = None,
    labels_key: options.LabelsKey = None,
    samples: options.SampleAxis = None,
    null: options.NulSeparated = False,
    max_pixels: options.MaxPixels = options.MAX_PIXELS,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped, if there is one.")
    ] = False,
    strict: options.Strict = False,
    max_failure_rate: options.MaxFailureRate = 1.0,
    allow_skipped: options.AllowSkipped = False,
    quiet: options.Quiet = False,
) -> None:
    """Label every input by the gallery: one CSV row each, with the residual of every class."""
    with boundary(), early_decoder():
        use_cores(jobs, side_by_side=True)
        from crnr_cli.jobs.classify import QueryOptions
        from crnr_cli.jobs.classify import classify as run
        from crnr_cli.sources.base import Keys
        from crnr_cli.system.files import is_stdout

        to_stdout = output == "-" or is_stdout(Path(output))
        remedy = "" if to_stdout else "; the same command with --resume goes on from there"
        with (
            joined(dask, quiet) as cluster,
            shown_progress(quiet) as shown,
            finishing_batches(shown, remedy) as progress,
        ):
            report = run(
                sources,
                gallery,
                sys.stdout.buffer if to_stdout else Path(output),
                QueryOptions(
                    Keys(features_key, labels_key, samples),
                    null,
                    max_pixels,
                    jobs,
                    reject,
                    top,
                    extractor,
                    max_failure_rate=0.0 if strict else max_failure_rate,
                ),
                progress,
                resume=resume,
                answered_by=_answering(cluster, gallery),
            )
        if not quiet:
            if resume:
                say(f"note: {report.resumed_after} of {report.n_queries} inputs were answered before")
            if report.ignored:
                say(f"note: {report.ignored} system files passed over (.DS_Store, Thumbs.db and the like)")
            answered = report.statuses["ok"]
            if report.rejection:
                rejected = report.statuses["rejected"]
                say(f"{rejected} of {report.n_queries} inputs are unknown: {report.rejection}")
            say(f"{answered} of {report.n_queries} inputs labelled" + ("" if to_stdout else f": {output}"))
            reasons = [
                f"{count} {status}"
                for status, count in report.statuses.most_common()
                if status not in ("ok", "rejected")
            ]
            for path, why in report.failures:
                say(f"no answer: {path}: {why}", style="yellow")
            if reasons:
                say(f"without an answer: {', '.join(reasons)} (see the column status)", style="yellow")
        if report.skipped and not allow_skipped:
            raise typer.Exit(SKIPPED)


def _answering(cluster: Cluster | None, gallery: Path) -> Answering | None:
    """Who is to answer: the workers of a cluster, or None for this process."""
    if cluster is None:
        return None
    from crnr_cli.cluster.answer import answering

    return answering(cluster, gallery)
