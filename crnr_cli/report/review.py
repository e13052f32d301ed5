"""The page of a review: answers with their images, to be accepted or corrected in a browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.images.thumbnails import data_uri
from crnr_cli.jobs.review import ReviewItem, ReviewReport, find_supporters, limit_note
from crnr_cli.progress import Progress, silent
from crnr_cli.report.found_images import (
    MISSING,
    OUTSIDE,
    FoundImages,
    ImageSearch,
    find_images,
    search_beside,
)
from crnr_cli.report.names import printable
from crnr_cli.report.pages import write_page
from crnr_cli.results.decision import UNKNOWN

_SIDE = 160  # of the images of answers, in pixels
_SAMPLE_SIDE = 96  # of gallery images
PER_PART = 512  # images that are in memory at the same time, and that the page unpacks at once


def write_review(
    report: ReviewReport,
    path: Path,
    table: Path,
    gallery_path: Path,
    options: QueryOptions,
    images_from: Sequence[Path] = (),
    progress: Progress = silent,
) -> list[str]:
    """Write the page; return notes on everything that is not on it."""
    search = search_beside([str(table)], images_from)
    names = [answer.row.path if answer.row.label else None for answer in report.answers]
    samples, why = _samples(report, search, options, progress)
    used = sorted({sample for of_answer in samples for found in of_answer.values() for sample in found})
    queries, of_gallery = _Embedded(progress, "images"), _Embedded(progress, "gallery images")
    sample_names: list[str] = []
    in_gallery = ImageSearch()
    if report.gallery:
        known = report.gallery
        sample_names = [known.names[sample] for sample in used]
        # A gallery may name any file; only one with the content of the sample is shown.
        hashes = {known.names[sample]: known.hashes[sample] for sample in used}
        in_gallery = ImageSearch([gallery_path.parent], images_from, hashes=hashes)
    place = {sample: i for i, sample in enumerate(used)}
    write_page(
        path,
        "review",
        {
            "title": f"Review of {printable(str(table))} - crnr",
            "table": printable(str(table)),
            "date": datetime.now(UTC).strftime("%Y-%m-%d, %H:%M UTC"),
            "n_answers": len(report.answers),
            "total": report.total,
            "by": "probability" if _has_probabilities(report) else "margin",
            "no_gallery": printable(why),
            "data": {
                "identity": report.identity,
                "unknown": UNKNOWN,
                "classes": report.classes,
                "answers": _records(report, samples, place),
                "samples": [printable(name) for name in sample_names],
                "per_part": PER_PART,
            },
            # These are decoded while the page is written, so few are in memory.
            "images": queries.parts(names, search, options.max_pixels, _SIDE),
            "sample_images": of_gallery.parts(sample_names, in_gallery, options.max_pixels, _SAMPLE_SIDE),
        },
    )
    notes = [limit_note(report)]
    if why:
        notes.append(f"the page shows no gallery images: {why}")
    notes += queries.found.notes("images", elsewhere="the folder where classify ran")
    notes += of_gallery.found.notes("gallery images", elsewhere="the folder where build ran")
    return [note for note in notes if note]


@dataclass
class _Embedded:
    """Images on their way into a page, some at a time."""

    progress: Progress
    step: str
    found: FoundImages = field(default_factory=lambda: FoundImages({}, [], []))

    def parts(
        self, names: Sequence[str | None], search: ImageSearch, max_pixels: int, longest: int
    ) -> Iterator[list[str]]:
        """Yield the images of these names as data URIs; empty for images that are not shown, and for None."""
        for start in range(0, len(names), PER_PART):
            part = names[start : start + PER_PART]
            found = find_images([name for name in part if name is not None], search, max_pixels, longest)
            # Only counted, as they are on the page now.
            self.found.images.update(dict.fromkeys(found.images, np.empty(0)))
            self.found.missing += found.missing
            self.found.outside += found.outside
            self.progress(self.step, start + len(part), len(names))
            yield [
                data_uri(found.images[name]) if name is not None and name in found.images else ""
                for name in part
            ]


def _samples(
    report: ReviewReport, search: ImageSearch, options: QueryOptions, progress: Progress
) -> tuple[list[Mapping[str, list[int]]], str]:
    """Return every answer's strongest gallery samples of its two best classes, or a reason."""
    nothing: list[Mapping[str, list[int]]] = [{} for _ in report.answers]
    if report.gallery is None:
        return nothing, report.no_gallery
    found = [search.find(answer.row.path) if answer.row.label else MISSING for answer in report.answers]
    readable = [i for i, file in enumerate(found) if file not in (OUTSIDE, MISSING)]
    strong = find_supporters(
        report.gallery,
        [found[i] for i in readable],
        [report.answers[i].candidates[:2] for i in readable],
        options,
        progress,
    )
    for i, samples in zip(readable, strong.samples, strict=True):
        nothing[i] = samples
    return nothing, strong.note


def _has_probabilities(report: ReviewReport) -> bool:
    return any(answer.row.probability is not None for answer in report.answers)


def _records(
    report: ReviewReport, samples: Sequence[Mapping[str, list[int]]], place: Mapping[int, int]
) -> list[list[Any]]:
    """Return the answers as short lists, because there may be many; classes are indexes."""
    number = {name: i for i, name in enumerate(report.classes)}

    def record(answer: ReviewItem, of_answer: Mapping[str, list[int]]) -> list[Any]:
        row = answer.row
        label = -1 if row.label == UNKNOWN else None if row.label is None else number[row.label]
        return [
            answer.number,
            row.path,
            label,
            [number[name] for name in answer.candidates],
            row.probability,
            row.margin,
            row.status,
            [[place[sample] for sample in of_answer.get(name, [])] for name in answer.candidates[:2]],
        ]

    return [record(answer, found) for answer, found in zip(report.answers, samples, strict=True)]
