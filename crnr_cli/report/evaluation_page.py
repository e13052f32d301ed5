"""Report: an evaluation becomes one page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crnr_cli.errors import GalleryError
from crnr_cli.gallery.file import describe, load_gallery
from crnr_cli.jobs.evaluate import EvaluateReport
from crnr_cli.pictures.pixels import MAX_PIXELS
from crnr_cli.pictures.thumbnails import data_uri, thumbnails
from crnr_cli.report.evaluation import (
    MISTAKES,
    WORST,
    Card,
    histogram,
    matrix_cells,
    mistake_records,
    pairs,
    pictured,
)
from crnr_cli.report.names import as_text, common_folder
from crnr_cli.report.pages import write_page
from crnr_cli.results.scores import macro_intervals, most_confused, wilson


def write_report(
    report: EvaluateReport,
    path: Path,
    names: Sequence[str],
    gallery_path: Path,
    max_pixels: int = MAX_PIXELS,
) -> None:
    """Write the page; pictures are shown where the queries' files are still to be found."""
    scores, mistakes = report.scores, report.mistakes
    classes = [score.name for score in scores.classes]
    pictures = thumbnails(pictured(mistakes), max_pixels)
    uris = {name: data_uri(picture) for name, picture in pictures.items()}
    folder = common_folder(row.path for row in mistakes)
    records = mistake_records(mistakes, classes, uris, folder)
    shown = [as_text(name) for name in classes]
    cells = matrix_cells(scores)
    k = len(classes)
    accuracy = "n/a" if scores.accuracy is None else f"{100 * scores.accuracy:.1f} %"
    write_page(
        path,
        "report",
        {
            "title": f"{accuracy} accuracy - crnr report",
            "headline": f"{scores.correct} of {scores.n} labelled right",
            "sources": as_text(", ".join(names)),
            "date": datetime.now(UTC).strftime("%Y-%m-%d, %H:%M UTC"),
            "cards": _cards(report),
            "names": shown,
            "short_names": max(map(len, shown), default=0) <= 3,
            "cells": cells,
            **_layout(k),
            "pairs": [
                {**pair, "truth": as_text(pair["truth"]), "label": as_text(pair["label"])}
                for pair in pairs(scores)
            ],
            "kinds": len(most_confused(scores)),
            "mistakes": records[:WORST],
            "folder": as_text(folder),
            "n_mistakes": len(mistakes),
            "classes": sorted(
                ({**vars(score), "name": as_text(score.name)} for score in scores.classes),
                key=lambda score: score["f1"],
            ),
            "histogram": histogram(report.rows),
            "unanswered": report.failed.most_common(),
            "facts": _facts(gallery_path, classes),
            "data": {
                "names": shown,
                "cells": [[cell["row"], cell["column"], cell["count"]] for cell in cells],
                "mistakes": records,
                "listed_all": len(mistakes) <= MISTAKES,
            },
        },
    )


def _cards(report: EvaluateReport) -> list[Card]:
    scores = report.scores
    cards = [
        Card("Accuracy", scores.accuracy, scores.interval, f"{scores.correct} of {scores.n} labelled right")
    ]
    if report.n_with_failures > scores.n:
        cards.append(
            Card(
                "Accuracy, failures as wrong",
                report.accuracy_with_failures,
                report.interval_with_failures,
                f"{report.n_with_failures - scores.n} with a true class had no answer",
            )
        )
    if report.rejected:
        n = scores.n + sum(1 for row in report.rejected if row.truth)
        rejected = n - scores.n
        share, interval = (rejected / n, wilson(rejected, n)) if n else (None, None)
        note = (
            f"{len(report.rejected)}, not scored; the best guess was right for {report.rejected_guess_right}"
        )
        cards.append(Card("Rejected as unknown", share, interval, note))
    recall, f1 = macro_intervals(scores) if scores.n else (None, None)
    cards.append(Card("Macro recall", scores.macro.recall, recall, "the mean over classes"))
    cards.append(Card("Macro F1", scores.macro.f1, f1, "the mean over classes"))
    return cards


def _layout(k: int) -> dict[str, Any]:
    """How much a cell can hold: its count, its names, or only its colour."""
    density = "few" if k <= 14 else "several" if k <= 26 else "many" if k <= 50 else "crowded"
    return {
        "density": density,
        "name_size": 13 if k <= 14 else 12 if k <= 26 else 10,
        "gap": 0.06 if k <= 30 else 0.1,
        "matrix_width": f"{max(20, min(48, 5 + 4 * k))}rem",
    }


def _facts(gallery_path: Path, classes: Sequence[str]) -> list[tuple[str, str]]:
    """What the gallery says of itself, if it is at hand and knows these classes."""
    if not gallery_path.exists():
        return []
    try:
        about = describe(load_gallery(gallery_path))
    except (
        GalleryError
    ):  # the scores are those of the CSV; a gallery that cannot be read adds nothing to them
        return []
    if not set(classes) <= set(about["classes"]):
        return []
    counts = sorted(about["classes"].values())
    a_class = str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    made_from = about["made_from"]
    if about["size"]:
        made_from += f", {about['size'][0]}x{about['size'][1]}, {'colour' if about['color'] else 'grey'}"
    settings = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in about["parameters"].items()
    )
    return [
        ("file", as_text(str(gallery_path))),
        ("samples", f"{about['n_samples']} in {about['n_classes']} classes, {a_class} a class"),
        ("made from", made_from),
        ("power of features", f"{about['power']:g}"),
        ("principal components", "no PCA" if about["pca"] is None else str(about["pca"])),
        ("dimension", str(about["dimension"])),
        ("method", f"{about['method']}: {settings}" if settings else about["method"]),
        ("made by", f"crnr {about['crnr_version']}"),
    ]
