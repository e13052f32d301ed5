"""What an audit found, as tables for people, as rows of a CSV, and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from crnr_cli.cli.console import plain, print_facts, print_table, results_console
from crnr_cli.wording import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from crnr_cli.jobs.audit import AuditReport

_SHOWN = 10  # rows of a table
_MEMBERS = 3  # of a group

# The last column is for people: `crnr remove --from` removes the samples that they mark there.
CSV_COLUMNS = ("path", "label", "finding", "suggested", "score", "group", "others", "remove")


def csv_rows(report: AuditReport) -> Iterator[Sequence[Any]]:
    """One row per finding and sample, the clearest first. Several others are separated by |."""
    names, labels = report.names, report.labels
    for suspect in report.suspects:
        others = "|".join(names[i] for i in suspect.supporters)
        i = suspect.sample
        yield (
            names[i],
            labels[i],
            "wrong_label",
            report.label_of(suspect),
            f"{suspect.score:.6f}",
            "",
            others,
            "",
        )
    number = 0
    for finding, groups in (("copy", report.copies), ("near_duplicate", report.near)):
        for group in groups:
            number += 1
            for i in group:
                others = "|".join(names[other] for other in group if other != i)
                yield names[i], labels[i], finding, "", "", number, others, ""
    for outlier in report.outliers:
        i = outlier.sample
        yield names[i], labels[i], "outlier", "", f"{outlier.separation:.6f}", "", "", ""
    for known in report.known:
        finding = "query_copy" if known.is_copy else "query_near_duplicate"
        yield names[known.sample], labels[known.sample], finding, "", "", "", known.query, ""


def record(report: AuditReport) -> dict[str, Any]:
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
        "copies": groups(report.copies),
        "near_duplicates": groups(report.near),
        "outliers": [
            {**sample(outlier.sample), "separation": outlier.separation} for outlier in report.outliers
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
            {"query": known.query, **sample(known.sample), "copy": known.is_copy} for known in report.known
        ],
        "seconds": report.seconds,
    }


def show_audit(report: AuditReport) -> None:
    console = results_console()
    print_facts(console, _facts(report))
    names, labels, classes = report.names, report.labels, report.classes
    _show(
        console,
        "labels that look wrong, the clearest first",
        ("score", "label", "suggested", "sample"),
        [
            (f"{found.score:.3f}", labels[found.sample], report.label_of(found), names[found.sample])
            for found in report.suspects
        ],
    )
    for title, groups in (("exact copies", report.copies), ("near duplicates", report.near)):
        _show(
            console,
            f"groups of {title}; those of several classes come first",
            ("samples", "classes", "such as"),
            [_group(report, group) for group in sorted(groups, key=lambda g: not report.is_across(g))],
        )
    _show(
        console,
        "outliers, which look like no class",
        ("separation", "label", "sample"),
        [(f"{found.separation:.3f}", labels[found.sample], names[found.sample]) for found in report.outliers],
    )
    _show(
        console,
        "classes that are taken for each other",
        ("share", "class", "class", "samples"),
        [
            (f"{pair.share:.0%}", *(classes[k] for k in pair.classes), str(sum(pair.confused)))
            for pair in report.alike
        ],
    )
    _show(
        console,
        "classes with few different samples",
        ("samples", "class"),
        [(str(count), classes[k]) for k, count in report.small],
    )
    _show(
        console,
        "queries that are among the samples too",
        ("as", "query", "sample"),
        [
            ("copy" if known.is_copy else "near duplicate", known.query, names[known.sample])
            for known in report.known
        ],
    )


def _facts(report: AuditReport) -> list[tuple[str, str, str]]:
    """Name, value and a remark."""
    share = f"{report.n_wins} of {report.n_answered}"
    near = sum(map(report.is_across, report.near))
    copies = sum(map(report.is_across, report.copies))
    facts = [
        ("samples", str(len(report.names)), f"of {counted(len(report.classes), 'class')}"),
        ("labels confirmed", share, f"by the other samples, in {counted(report.folds, 'fold')}"),
        ("labels that look wrong", str(len(report.suspects)), ""),
        ("groups of copies", str(len(report.copies)), f"{copies} of them in several classes"),
        ("groups of near duplicates", str(len(report.near)), f"{near} of them in several classes"),
        ("outliers", str(len(report.outliers)), ""),
    ]
    if report.n_queries:
        facts.append(("queries among the samples", f"{len(report.known)} of {report.n_queries}", ""))
    return facts


def _group(report: AuditReport, group: Sequence[int]) -> tuple[str, str, list[str]]:
    labels = list(dict.fromkeys(report.labels[i] for i in group))
    return str(len(group)), ", ".join(labels), [report.names[i] for i in group[:_MEMBERS]]


def _show(
    console: Console, title: str, header: Sequence[str], rows: Sequence[Sequence[str | list[str]]]
) -> None:
    """The first rows of a table, if there are any."""
    from rich import box
    from rich.table import Table

    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in header:
        number = column in ("score", "samples", "separation", "share")
        table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows[:_SHOWN]:
        table.add_row(*map(_cell, row))
    more = f" ({_SHOWN} of {len(rows)}; --csv FILE writes all)" if len(rows) > _SHOWN else ""
    console.print(f"{title}{more}")
    print_table(console, table)


def _cell(content: str | list[str]) -> Text:
    """A name, or several on lines of their own."""
    from rich.text import Text

    return plain(content) if isinstance(content, str) else Text("\n").join(map(plain, content))
