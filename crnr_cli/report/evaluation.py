"""The report of an evaluation: one page with scores, the confusion matrix, classes and mistakes."""

from __future__ import annotations

import heapq
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import GalleryError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.fit import copies_note
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.images.thumbnails import data_uri
from crnr_cli.jobs.evaluate import LEAKS, EvaluateReport
from crnr_cli.records import dataclass
from crnr_cli.report.found_images import ImageSearch, find_images, search_beside
from crnr_cli.report.names import common_folder, printable
from crnr_cli.report.pages import write_page
from crnr_cli.results.decision import Prediction
from crnr_cli.results.intervals import macro_intervals
from crnr_cli.results.scores import OpenSet, Scores, has_answer, most_confused_pairs, wilson_interval
from crnr_cli.results.taxa import BroaderScores
from crnr_cli.results.thresholds import ThresholdStep, ThresholdTable, list_thresholds
from crnr_cli.wording import format_count, kind_in_words

_MAX_MISTAKES = 2000  # listed in the page
MAX_IMAGES = 60  # embedded in the page
_WORST = 24  # mistakes shown as cards
MANY_CLASSES = 1000  # with more, the matrix has only the most confused classes
_IN_MATRIX = 50  # if there are many
_PAIRS = 12  # listed next to the matrix


@dataclass(frozen=True)
class Card:
    name: str
    share: float | None
    interval: tuple[float, float] | None
    note: str


def write_report(
    report: EvaluateReport,
    path: Path,
    names: Sequence[str],
    gallery_path: Path,
    max_pixels: int = MAX_PIXELS,
    images_from: Sequence[Path] = (),
) -> list[str]:
    """Write the page, with the images of mistakes; return notes about missing images."""
    scores, mistakes = report.scores, report.mistakes
    classes = [score.name for score in scores.classes]
    in_matrix = matrix_classes(scores)
    named = _class_names([classes[i] for i in in_matrix.tolist()], mistakes)
    # The queries were named on the command line, but a CSV may name any user's files.
    search = ImageSearch() if report.gallery else search_beside(names, images_from)
    found = find_images(choose_images(mistakes), search, max_pixels)
    uris = {name: data_uri(image) for name, image in found.images.items()}
    folder = common_folder(row.path for row in mistakes)
    records = mistake_records(mistakes, named, uris, folder)
    shown, cells, size = list(map(printable, named)), matrix_cells(scores, in_matrix), len(in_matrix)
    write_page(
        path,
        "report",
        {
            "title": f"{_accuracy(report.over_all)} accuracy - crnr report",
            "headline": _headline(report),
            "sources": printable(", ".join(names)),
            "warnings": _warnings(report),
            "date": datetime.now(UTC).strftime("%Y-%m-%d, %H:%M UTC"),
            "blocks": _blocks(report),
            "names": shown,
            "k": size,
            "n_classes": len(classes),
            "short_names": max(map(len, shown[:size]), default=0) <= 3,
            "cells": cells,
            **matrix_layout(size),
            "pairs": _pairs(scores, in_matrix),
            "kinds": len(most_confused_pairs(scores)),
            "mistakes": records[:_WORST],
            "folder": printable(folder),
            "n_mistakes": len(mistakes),
            "without_answer": _describe_unanswered(report),
            "classes": _worst(report.over_all),
            "n_scored": len(report.over_all.classes),
            "histogram": histogram(report.rows),
            "reliability": report.reliability,
            "thresholds": draw_thresholds(report.thresholds),
            "unanswered": [(printable(status), count) for status, count in report.failed.most_common()],
            "facts": _facts(report.gallery, gallery_path, classes),
            "data": {
                "names": shown,
                "k": size,
                "support": queries_per_class(scores)[in_matrix].tolist(),
                "cells": [[cell["row"], cell["column"], cell["count"]] for cell in cells],
                "mistakes": records,
                "listed_all": len(mistakes) <= _MAX_MISTAKES,
            },
        },
    )
    return found.notes("images of mistakes", elsewhere="the folder where classify ran")


def _warnings(report: EvaluateReport) -> list[str]:
    """Return notes on queries that are in the gallery, or similar to its examples."""
    notes = [copies_note(report.copies, len(report.rows))] if report.copies else []
    notes += [note.text for note in report.notes if note.kind == LEAKS]
    return [printable(f"{note}.") for note in notes]


def _describe_unanswered(report: EvaluateReport) -> str:
    """Return a sentence on queries that are not in the matrix; empty if all are."""
    count = report.over_all.n - report.scores.n
    answer = "exact answer" if report.broader else "answer"
    return f"Queries without an {answer} are not counted here: {count}." if count else ""


def _accuracy(scores: Scores) -> str:
    return "n/a" if scores.accuracy is None else f"{100 * scores.accuracy:.1f}%"


def _headline(report: EvaluateReport) -> str:
    headline = f"{report.over_all.correct} of {report.over_all.n} labelled correctly"
    if found := report.open_set:
        headline += f", {found.rejected} of {format_count(found.outsiders, 'outsider')} rejected"
    return headline


def _blocks(report: EvaluateReport) -> list[tuple[str, list[Card]]]:
    """Return the heading and the scores of each group of queries; without outsiders, one without heading."""
    known, found = _known_cards(report), report.open_set
    if found is None:
        return [("", known)]
    return [
        (f"Known queries ({report.over_all.n})", known),
        (f"Outsiders ({found.outsiders})", _outsider_cards(found)),
    ]


def _known_cards(report: EvaluateReport) -> list[Card]:
    scores, answered = report.over_all, report.answered
    partly = answered < scores.n
    note = f"{scores.correct} of {scores.n} labelled correctly"
    exact = "exact answer" if report.broader else "answer"
    if partly:
        note += f"; queries without an {exact} count as wrong"
    cards = [Card("Accuracy", scores.accuracy, scores.interval, note)]
    if events := report.events:
        note = f"{events.correct} of {format_count(events.n, 'event')} labelled correctly"
        if events.mixed:
            note += f"; {events.mixed} with several true classes not counted"
        cards.append(Card("Accuracy by event", events.accuracy, events.interval, note))
    if partly:
        note = f"{answered} of {scores.n} got an {exact}"
        if answered:
            note += f"; {_accuracy(report.scores)} of the answers are correct"
        cards.append(Card("Answer rate", report.answer_rate, wilson_interval(answered, scores.n), note))
    cards += _broader_cards(report.broader)
    if report.rejected:
        count, right = len(report.rejected), report.rejected_guess_right
        note = f"{count} of {scores.n}; the best guess was right for {right}"
        interval = wilson_interval(count, scores.n)
        cards.append(Card("Rejected as unknown", count / scores.n, interval, note))
    if sets := report.sets:
        note = (
            f"of the label sets contain the true class; mean number of labels {sets.mean_size:.2f}, "
            f"{sets.empty} empty"
        )
        cards.append(Card("Set coverage", sets.coverage, sets.interval, note))
    intervals = macro_intervals(scores)
    cards.append(Card("Macro recall", scores.macro.recall, intervals.recall, "the mean over classes"))
    cards.append(Card("Macro F1", scores.macro.f1, intervals.f1, "the mean over classes"))
    return cards


def _broader_cards(found: BroaderScores | None) -> list[Card]:
    if found is None or found.broader_right is None or not found.broader:
        return []
    share, interval = found.broader_accuracy, found.broader_interval
    note = f"{found.broader_right} of {format_count(found.broader, 'broader answer')} right"
    both = f"{found.right} of {format_count(found.exact + found.broader, 'answer')} right"
    return [
        Card("Broader answers", share, interval, note),
        Card("Exact or broader", found.accuracy, found.interval, both),
    ]


def _outsider_cards(found: OpenSet) -> list[Card]:
    given = next(iter(found.given.items()), None)
    often = f"; most often as {printable(given[0])}, {format_count(given[1], 'time')}" if given else ""
    accepted = f"{found.accepted} of {found.outsiders} got the label of a class{often}"
    cards = [
        Card("Rejected", found.share, found.interval, f"{found.rejected} of {found.outsiders}"),
        Card("Wrongly accepted", found.share_accepted, found.interval_accepted, accepted),
    ]
    if found.auroc is not None:
        note = "of separation: 100% separates all outsiders, 50% is chance"
        cards.append(Card("AUROC", found.auroc, None, note))
    return cards


def _facts(gallery: FittedGallery | None, path: Path, classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return facts about the gallery, if there is one and it has these classes."""
    if gallery is None:  # the rows come from a CSV
        if not os.path.exists(path):  # noqa: PTH110, which raises if access is denied
            return []
        try:
            gallery = load_gallery(path)
        except GalleryError:  # the scores come from the CSV; an unreadable gallery adds nothing to them
            return []
    if not set(classes) <= set(gallery.classes):
        return []
    counts = np.sort(np.diff(gallery.samples.edges)).tolist()
    per_class = str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    settings = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in gallery.parameters.items()
    )
    method = gallery.method.name
    return [
        ("file", printable(str(path))),
        (
            "examples",
            f"{len(gallery.names)} in {format_count(len(gallery.classes), 'class')}, {per_class} per class",
        ),
        (
            "built from",
            f"{kind_in_words(gallery.recipe.kind)}: {printable('; '.join(gallery.recipe.describe()))}",
        ),
        ("dimension", str(gallery.samples.vectors.shape[1])),
        ("method", f"{method}: {settings}" if settings else method),
        ("written by", f"crnr {gallery.crnr_version}"),
    ]


def _class_names(in_matrix: Sequence[str], mistakes: Sequence[Prediction]) -> list[str]:
    """Return the classes of the matrix, and then other classes of listed mistakes."""
    listed = (name or "" for row in mistakes[:_MAX_MISTAKES] for name in (row.truth, row.label))
    return list(dict.fromkeys([*in_matrix, *listed]))


def _worst(scores: Scores) -> list[dict[str, Any]]:
    """Return the scores of the classes, the worst first; of very many, only these."""
    worst = heapq.nsmallest(MANY_CLASSES, scores.classes, key=lambda score: score.f1)
    return [{**vars(score), "name": printable(score.name)} for score in worst]


def _pairs(scores: Scores, in_matrix: Array) -> list[dict[str, Any]]:
    return [
        {**pair, "truth": printable(pair["truth"]), "label": printable(pair["label"])}
        for pair in pair_records(scores, in_matrix)
    ]


def mistake_records(
    mistakes: Sequence[Prediction], names: Sequence[str], uris: Mapping[str, str], folder: str
) -> list[dict[str, Any]]:
    """Return the data of each mistake for the page's script; classes are indexes in `names`."""
    place = {name: i for i, name in enumerate(names)}
    return [
        {
            "path": printable(row.path.removeprefix(folder)),
            "truth": place[row.truth or ""],
            "label": place[row.label or ""],
            "margin": row.margin,
            "image": uris.get(row.path),
        }
        for row in mistakes[:_MAX_MISTAKES]
    ]


def choose_images(mistakes: Sequence[Prediction]) -> list[str]:
    """Return the images to embed: the worst mistakes, then one of each kind, then others."""
    first: dict[tuple[str | None, str | None], str] = {}
    for row in mistakes:
        first.setdefault((row.truth, row.label), row.path)
    paths = [row.path for row in mistakes[:_WORST]] + list(first.values()) + [row.path for row in mistakes]
    return list(dict.fromkeys(filter(None, paths)))[:MAX_IMAGES]


def histogram(rows: Sequence[Prediction], bins: int = 20) -> list[dict[str, Any]] | None:
    """Return counts of right and wrong answers by margin, from 0 (or less, in CSVs of other programs)."""
    known = [row for row in rows if row.truth and has_answer(row) and row.margin is not None]
    if not known:
        return None
    margins: Array = np.array([row.margin for row in known])
    right = np.array([row.truth == row.label for row in known])
    edges = np.linspace(min(0.0, float(margins.min())), max(float(margins.max()), 1e-9), bins + 1)
    of_right, of_wrong = (np.histogram(margins[part], edges)[0].tolist() for part in (right, ~right))
    highest = max(a + b for a, b in zip(of_right, of_wrong, strict=True))
    return [
        {
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "right": of_right[i],
            "wrong": of_wrong[i],
            "right_height": of_right[i] / highest,
            "wrong_height": of_wrong[i] / highest,
        }
        for i in range(bins)
    ]


def draw_thresholds(table: ThresholdTable | None) -> dict[str, Any] | None:
    """Return the curves over all thresholds, in a square from 0 to 1, and the steps of a short table.

    Every threshold has the same width, which stretches the axis near 1. The accuracy begins at `floor`.
    """
    if table is None:
        return None
    steps, grid = table.steps, list_thresholds()
    edges = np.searchsorted(grid, [step.min_probability for step in steps]) / len(grid)
    ends = np.searchsorted(grid, [step.up_to for step in steps], side="right") / len(grid)
    floor = min(0.95, np.floor(20 * min(step.accuracy for step in steps)) / 20)

    def path(shares: Sequence[float], lowest: float = 0.0) -> str:
        """Draw steps from left to right; 1 is at the top, and `lowest` at the bottom."""
        heights = ((1 - np.maximum(shares, lowest)) / (1 - lowest)).tolist()
        corners = zip(edges.tolist(), heights, ends.tolist(), strict=True)
        return " ".join(f"{x:.4f} {y:.4f} {end:.4f} {y:.4f}" for x, y, end in corners)

    low, high = zip(*(step.interval for step in steps), strict=True)
    there, back = path(high, floor), path(low, floor).split()
    points = [f"{x} {y}" for x, y in zip(back[::2], back[1::2], strict=True)]
    ticks = (0, 0.5, 0.9, 0.95, 0.99, 0.999)
    return {
        "shown": table.choose_shown(),
        "outsiders": table.outsiders,
        "counted": table.describe(),
        "accuracy": f"M{path([step.accuracy for step in steps], floor)}",
        "interval": f"M{there} {' '.join(reversed(points))}Z",
        "answer_rate": f"M{path([step.answer_rate for step in steps])}",
        "floor": floor,
        "ticks": [(int(np.searchsorted(grid, tick)) / len(grid), f"{tick:g}") for tick in ticks],
        "bars": [
            {"x": x, "width": end - x, "text": _describe_step(step)}
            for x, end, step in zip(edges.tolist(), ends.tolist(), steps, strict=True)
        ],
    }


def _describe_step(step: ThresholdStep) -> str:
    low, high = step.interval
    return (
        f"--min-probability {step.min_probability:g}: {step.answered} of {step.n} answered, "
        f"{100 * step.accuracy:.1f}% of the answers right ({100 * low:.1f} to {100 * high:.1f})"
    )


def matrix_classes(scores: Scores) -> Array:
    """Return the classes in the matrix, ascending: all of them or, if they are many, the most confused."""
    n_classes = len(scores.classes)
    if n_classes <= MANY_CLASSES:
        return np.arange(n_classes)
    wrong = scores.cells[scores.cells[:, 0] != scores.cells[:, 1]]
    listed = wrong[np.argsort(-wrong[:, 2], kind="stable")][:_PAIRS]
    # Of equally frequent mistakes, prefer classes with most mistakes in all.
    mistakes = np.bincount(wrong[:, :2].ravel(), np.repeat(wrong[:, 2], 2), n_classes)
    order = np.lexsort((-mistakes[wrong[:, :2]].sum(axis=1), -wrong[:, 2]))[:_IN_MATRIX]
    chosen = dict.fromkeys([*listed[:, :2].ravel().tolist(), *wrong[order, :2].ravel().tolist()])
    return np.sort(np.array(list(chosen)[:_IN_MATRIX], dtype=np.int64))


def matrix_cells(scores: Scores, in_matrix: Array) -> list[dict[str, Any]]:
    """Return the non-empty cells; `strength` (0 to 1) is the opacity of their colour."""
    floor = 0.25 if len(in_matrix) <= 30 else 0.45  # small cells need a stronger colour
    queries = queries_per_class(scores)[in_matrix]
    placed = scores.cells.copy()
    placed[:, :2] = _places(scores, in_matrix)[placed[:, :2]]
    cells = []
    for i, j, count in placed[(placed[:, :2] >= 0).all(axis=1)].tolist():
        share = count / queries[i]
        # The square root and the floor keep a single mistake among hundreds visible.
        cells.append(
            {"row": i, "column": j, "count": count, "strength": round(floor + (1 - floor) * share**0.5, 3)}
        )
    return cells


def pair_records(scores: Scores, in_matrix: Array) -> list[dict[str, Any]]:
    place = {scores.classes[k].name: i for i, k in enumerate(in_matrix.tolist())}
    return [
        {"row": place[truth], "column": place[label], "truth": truth, "label": label, "count": count}
        for truth, label, count in most_confused_pairs(scores)[:_PAIRS]
    ]


def queries_per_class(scores: Scores) -> Array:
    """Return (K,): the number of queries of each true class."""
    return np.bincount(scores.cells[:, 0], scores.cells[:, 2], len(scores.classes)).astype(np.int64)


def _places(scores: Scores, in_matrix: Array) -> Array:
    """Return (K,): the place of every class in the matrix; -1 if it is not there."""
    places = np.full(len(scores.classes), -1)
    places[in_matrix] = np.arange(len(in_matrix))
    return places


def matrix_layout(k: int) -> dict[str, Any]:
    """Return the layout of the matrix: with many classes, counts and then names are left out."""
    density = "few" if k <= 14 else "several" if k <= 26 else "many" if k <= 50 else "crowded"
    return {
        "density": density,
        "name_size": 13 if k <= 14 else 12 if k <= 26 else 10,
        "gap": 0.06 if k <= 30 else 0.1,
        "matrix_width": f"{max(20, min(48, 5 + 4 * k))}rem",
    }
