"""crnr audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.boundary import GATE_MISSED
from crnr_cli.cli.command import Written, given_values, make_command, parameter_names
from crnr_cli.cli.console import (
    EarlyNotes,
    plain_text,
    print_facts,
    print_json,
    print_table,
    results_console,
    say,
    say_left_out,
    say_notes,
    say_page,
    shown_progress,
    write_csv,
)
from crnr_cli.cli.events import EventGap, with_events
from crnr_cli.cli.options import ErrorHandlingOptions, PrintOptions, SourceOptions
from crnr_cli.cli.parsing import HiddenNames, Whole
from crnr_cli.cli.recipe_options import PreprocessingOptions, Steps, VectorOptions
from crnr_cli.cli.recipe_options import make_reading as reading_of
from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from crnr_cli.jobs.audit import AuditReport


# How samples become vectors, which a gallery has decided already.
_OF_SOURCES = [
    "event_gap",
    *(name for name in parameter_names(VectorOptions, Steps, PreprocessingOptions) if name != "provider"),
]
_SHOWN = 10  # rows of a table
_MEMBERS = 3  # of a group
_LIMIT = 2000  # examples on the page
# The last two columns are for people: `crnr correct` applies what they write there.
CSV_COLUMNS = ("path", "label", "finding", "suggested", "score", "group", "others", "corrected", "remove")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The examples that are listed besides the findings, and shown on the page."""

    everything: Annotated[
        bool,
        typer.Option("--all", help="List all examples, the most doubtful label first."),
    ] = False
    limit: Annotated[
        int,
        typer.Option(parser=Whole(), metavar="N", help="Offer at most N examples on the page."),
    ] = _LIMIT


@make_command(side_by_side=True)
def audit(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A gallery, or the folders, images or feature files to build one from; - reads a list of "
            "files from stdin.",
        ),
    ],
    queries: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="Find queries that are also examples."),
        HiddenNames("against"),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write the findings to this CSV, for `crnr correct`."),
        Written(),
    ] = None,
    html: options.HtmlReport = None,
    images_from: options.ImagesFrom = None,
    max_suspects: Annotated[
        int | None,
        typer.Option(parser=Whole(0), metavar="N", help="Exit with 4 if more than N labels look wrong."),
    ] = None,
    event_gap: EventGap = None,
    *,
    listing: Listing,
    vectors: VectorOptions,
    steps: Steps,
    network: PreprocessingOptions,
    input: SourceOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Find wrong labels, duplicates and outliers.

    Checks every example of a gallery, or of the folders to build one from, against the others.
    """
    reading = reading_of(
        input,
        vectors,
        network,
        command="audit",
        steps=steps.make_steps(),
        on_notes=(early := EarlyNotes(output.quiet)),
        **error_handling.to_fields(),
    )
    from crnr_cli.gallery.hdf5_contents import is_gallery
    from crnr_cli.jobs.audit import audit as run
    from crnr_cli.system.extras import require_packages

    if html:
        require_packages("report", "--html", "jinja2")
    model = None
    if any(is_gallery(Path(name)) for name in sources):
        model = vectors.extractor if isinstance(vectors.extractor, Path) else None
        _refuse_settings(context, model)
    with shown_progress(output.quiet) as progress:
        report = run(sources, with_events(reading, event_gap), queries or [], model, progress)
    if csv:
        write_csv(csv, CSV_COLUMNS, csv_rows(report, everything=listing.everything))
    notes: list[str] = []
    if html:
        from crnr_cli.report.audit import PageOptions, write_audit

        shown = PageOptions(listing.everything, listing.limit, input.max_pixels, images_from or [])
        with shown_progress(output.quiet) as progress:
            notes = write_audit(report, html, sources, shown, progress)
    if output.json:
        print_json(audit_record(report, everything=listing.everything))
    else:
        show_audit(report)
    if not output.quiet:
        say_left_out(report.left_out)
        say_notes(early.rest(report.notes))
        say_page(html, notes)
    _finish(report, max_suspects)
    error_handling.finish(report.skipped)


def _refuse_settings(context: typer.Context, model: Path | None) -> None:
    """Refuse options that a gallery has settled; the path of its network may be given."""
    fixed = [name for name in given_values(context, _OF_SOURCES) if not (name == "--extractor" and model)]
    if fixed:
        it = "it" if len(fixed) == 1 else "them"
        raise UsageError(
            f"{', '.join(fixed)} cannot be changed for an existing gallery; leave {it} out, or audit the "
            "folder that the gallery was built from"
        )


def _finish(report: AuditReport, max_suspects: int | None) -> None:
    """Exit with GATE_MISSED if more labels look wrong than are allowed."""
    count = len(report.suspects)
    if max_suspects is not None and count > max_suspects:
        looks = "looks" if count == 1 else "look"
        say(f"{format_count(count, 'label')} {looks} wrong, but at most {max_suspects} may", style="red")
        raise typer.Exit(GATE_MISSED)


def csv_rows(report: AuditReport, *, everything: bool = False) -> Iterator[Sequence[Any]]:
    """Yield one row per finding and example, the clearest first; | separates the names of other examples.

    With `everything`, all other examples follow the labels that look wrong, the most doubtful first.
    """
    for row in _findings(report, everything=everything):
        yield *row, "", ""


def _findings(report: AuditReport, *, everything: bool) -> Iterator[Sequence[Any]]:
    names, labels = report.names, report.labels
    for suspect in report.suspects:
        others = "|".join(names[i] for i in suspect.supporters)
        i = suspect.sample
        suggested, score = report.label_of(suspect), f"{suspect.score:.6f}"
        yield names[i], labels[i], "wrong_label", suggested, score, "", others
    for ranked in report.ranking[len(report.suspects) :] if everything else ():
        i, score = ranked.sample, "" if ranked.score is None else f"{ranked.score:.6f}"
        yield names[i], labels[i], "ranked", report.suggested_for(ranked), score, "", ""
    number = 0
    for finding, groups in (("copy", report.copies), ("near_duplicate", report.near)):
        for group in groups:
            number += 1
            for i in group:
                others = "|".join(names[other] for other in group if other != i)
                yield names[i], labels[i], finding, "", "", number, others
    for pair in report.scenes:
        number += 1
        for i, other in ((pair.one, pair.other), (pair.other, pair.one)):
            yield names[i], labels[i], "same_scene", "", f"{pair.similarity:.6f}", number, names[other]
    for outlier in report.outliers:
        i = outlier.sample
        yield names[i], labels[i], "outlier", "", f"{outlier.similarity:.6f}", "", ""
    for known in report.known:
        finding = f"query_{known.as_what.replace(' ', '_')}"
        yield names[known.sample], labels[known.sample], finding, "", "", "", known.query


def audit_record(report: AuditReport, *, everything: bool = False) -> dict[str, Any]:
    """Return the findings as plain values; `everything` includes the ranking of all labels."""
    names, labels, classes = report.names, report.labels, report.classes

    def sample(i: int) -> dict[str, Any]:
        return {"path": names[i], "label": labels[i]}

    def groups(found: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        return [
            {"across_classes": report.is_across(group), "samples": [sample(i) for i in group]}
            for group in found
        ]

    return {
        "n_samples": len(names),
        "n_classes": len(classes),
        "compared": report.n_answered,
        "agree": report.n_wins,
        "folds": report.folds,
        "suspects": [
            {
                **sample(suspect.sample),
                "suggested": report.label_of(suspect),
                "score": suspect.score,
                "supporters": [names[i] for i in suspect.supporters],
            }
            for suspect in report.suspects
        ],
        **({"ranking": _ranking_record(report)} if everything else {}),
        "copies": groups(report.copies),
        "near_duplicates": groups(report.near),
        "same_scene": [
            {
                "similarity": pair.similarity,
                "mirrored": pair.is_mirrored,
                **groups([(pair.one, pair.other)])[0],
            }
            for pair in report.scenes
        ],
        "outliers": [
            {**sample(outlier.sample), "similarity": outlier.similarity} for outlier in report.outliers
        ],
        "small_classes": [{"class": classes[k], "different_samples": count} for k, count in report.small],
        "alike_classes": [
            {
                "classes": [classes[k] for k in pair.classes],
                "confused": list(pair.confused),
                "share": pair.share,
            }
            for pair in report.alike
        ],
        "queries": report.n_queries,
        "queries_in_gallery": [
            {
                "query": known.query,
                **sample(known.sample),
                "copy": known.as_what == "copy",
                "same_scene": known.as_what == "same scene",
            }
            for known in report.known
        ],
        "seconds": report.seconds,
    }


def _ranking_record(report: AuditReport) -> list[dict[str, Any]]:
    return [
        {
            "path": report.names[ranked.sample],
            "label": report.labels[ranked.sample],
            "suggested": report.suggested_for(ranked) or None,
            "score": ranked.score,
        }
        for ranked in report.ranking
    ]


def show_audit(report: AuditReport) -> None:
    console = results_console()
    print_facts(console, _facts(report))
    names, labels, classes = report.names, report.labels, report.classes
    _show(
        console,
        "labels that look wrong, the clearest first",
        ("score", "label", "suggested", "example"),
        [
            (f"{found.score:.3f}", labels[found.sample], report.label_of(found), names[found.sample])
            for found in report.suspects
        ],
    )
    for title, groups in (("exact copies", report.copies), ("near duplicates", report.near)):
        _show(
            console,
            f"groups of {title}, those spanning several classes first",
            ("examples", "classes", "such as"),
            [_group(report, group) for group in sorted(groups, key=lambda g: not report.is_across(g))],
        )
    _show(
        console,
        "pairs of the same scene (cut, mirrored, turned or partly covered), the most similar first",
        ("similarity", "classes", "images"),
        [(f"{pair.similarity:.3f}", *_group(report, (pair.one, pair.other))[1:]) for pair in report.scenes],
    )
    _show(
        console,
        "outliers: examples unlike any class",
        ("similarity", "label", "example"),
        [(f"{found.similarity:.3f}", labels[found.sample], names[found.sample]) for found in report.outliers],
    )
    _show(
        console,
        "classes that are often confused",
        ("share", "class", "class", "examples"),
        [
            (f"{pair.share:.0%}", *(classes[k] for k in pair.classes), str(sum(pair.confused)))
            for pair in report.alike
        ],
    )
    _show(
        console,
        "classes with few different examples",
        ("examples", "class"),
        [(str(count), classes[k]) for k, count in report.small],
    )
    _show(
        console,
        "queries that are also in the gallery",
        ("as", "query", "example"),
        [(known.as_what, known.query, names[known.sample]) for known in report.known],
    )


def _facts(report: AuditReport) -> list[tuple[str, str, str]]:
    """Return the name of each fact, its value and a remark."""
    share = f"{report.n_wins} of {report.n_answered}"
    near = sum(map(report.is_across, report.near))
    copies = sum(map(report.is_across, report.copies))
    scenes = sum(report.is_across((pair.one, pair.other)) for pair in report.scenes)
    facts = [
        ("examples", str(len(report.names)), f"of {format_count(len(report.classes), 'class')}"),
        ("labels confirmed", share, f"by the other examples, in {format_count(report.folds, 'fold')}"),
        ("labels that look wrong", str(len(report.suspects)), ""),
        ("groups of copies", str(len(report.copies)), f"{copies} of them in several classes"),
        ("groups of near duplicates", str(len(report.near)), f"{near} of them in several classes"),
        ("pairs of the same scene", str(len(report.scenes)), f"{scenes} of them in several classes"),
        ("outliers", str(len(report.outliers)), ""),
    ]
    if report.n_queries:
        facts.append(("queries also in the gallery", f"{len(report.known)} of {report.n_queries}", ""))
    return facts


def _group(report: AuditReport, group: Sequence[int]) -> tuple[str, str, list[str]]:
    labels = list(dict.fromkeys(report.labels[i] for i in group))
    return str(len(group)), ", ".join(labels), [report.names[i] for i in group[:_MEMBERS]]


def _show(
    console: Console, title: str, header: Sequence[str], rows: Sequence[Sequence[str | list[str]]]
) -> None:
    """Print the first rows of a table; nothing if it has no rows."""
    from rich import box
    from rich.table import Table

    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in header:
        number = column in ("score", "examples", "separation", "share")
        table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows[:_SHOWN]:
        table.add_row(*map(_cell, row))
    more = f" ({_SHOWN} of {len(rows)}; --csv FILE writes all)" if len(rows) > _SHOWN else ""
    console.print(f"{title}{more}")
    print_table(console, table)


def _cell(content: str | list[str]) -> Text:
    """Return a name, or several names on lines of their own."""
    from rich.text import Text

    return plain_text(content) if isinstance(content, str) else Text("\n").join(map(plain_text, content))
