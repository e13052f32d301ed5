"""The page of a review: answers with their images, to be accepted or corrected in a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.images.thumbnails import data_uri, shrink
from crnr_cli.jobs.review import ReviewItem, ReviewReport, find_supporters, limit_note
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
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
from crnr_cli.system.names import with_slashes

ITEM_SIDE = 160  # of the images of answers, in pixels
LARGE_SIDE = 480  # of the images of the first answers, which fill the card
SAMPLE_SIDE = 96  # of gallery images
PER_PART = 512  # images that are in memory at the same time, and that the page unpacks at once
_N_LARGE = 256  # a page with large images of all answers would be too big
PER_LARGE = 16  # large images that the page unpacks at once


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
    files = [search.find(answer.row.path) for answer in report.answers]
    samples, why = _samples(report, files, options, progress)
    used = sorted({sample for of_answer in samples for found in of_answer.values() for sample in found})
    queries, of_gallery = EmbeddedImages(progress, "images"), EmbeddedImages(progress, "gallery images")
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
            "order": _describe_order(report),
            "no_gallery": printable(why),
            "data": {
                "identity": report.identity,
                "content": report.content,
                "unknown": UNKNOWN,
                "classes": report.classes,
                "answers": _records(report, samples, place, [link_to(file, path) for file in files]),
                "samples": [printable(name) for name in sample_names],
                "side": ITEM_SIDE,
                "per_part": PER_PART,
                "per_large": PER_LARGE,
            },
            # These are decoded while the page is written, so few are in memory.
            "images": queries.parts(names, search, options.max_pixels, ITEM_SIDE, LARGE_SIDE),
            "large_images": queries.large_parts(),
            "sample_images": of_gallery.parts(sample_names, in_gallery, options.max_pixels, SAMPLE_SIDE),
        },
    )
    notes = [limit_note(report)]
    if why:
        notes.append(f"the page shows no gallery images: {why}")
    notes += queries.found.notes("images", elsewhere="the folder where classify ran")
    notes += of_gallery.found.notes("gallery images", elsewhere="the folder where build ran")
    return [note for note in notes if note]


@dataclass
class EmbeddedImages:
    """Images on their way into a page, some at a time."""

    progress: Progress
    step: str
    found: FoundImages = field(default_factory=lambda: FoundImages({}, [], []))
    large: list[str] = field(default_factory=list)  # data URIs; empty for images that are small anyway

    def parts(
        self, names: Sequence[str | None], search: ImageSearch, max_pixels: int, longest: int, large: int = 0
    ) -> Iterator[list[str]]:
        """Yield the images of these names as data URIs; empty for images that are not shown, and for None.

        The first images are also kept with up to `large` pixels.
        """
        done: list[str] = []
        n_large = min(_N_LARGE, len(names)) if large else 0
        edges = [*range(0, n_large, PER_PART // 8), *range(n_large, len(names), PER_PART), len(names)]
        for start, end in pairwise(edges):
            part, side = names[start:end], large if start < n_large else longest
            found = find_images([name for name in part if name is not None], search, max_pixels, side)
            # Only counted, as they are on the page now.
            self.found.images.update(dict.fromkeys(found.images, np.empty(0)))
            self.found.missing += found.missing
            self.found.outside += found.outside
            images = [found.images.get(name) if name is not None else None for name in part]
            if start < n_large:
                self.large += [
                    "" if image is None or max(image.shape[:2]) <= longest else data_uri(image)
                    for image in images
                ]
            done += ["" if image is None else data_uri(shrink(image, longest)) for image in images]
            self.progress(self.step, end, len(names))
            if len(done) >= PER_PART:
                yield done[:PER_PART]
                done = done[PER_PART:]
        if done:
            yield done

    def large_parts(self) -> Iterator[list[str]]:
        """Yield the large images, a few at a time; the small ones must have been written before."""
        if any(self.large):
            for start in range(0, len(self.large), PER_LARGE):
                yield self.large[start : start + PER_LARGE]


def link_to(file: str, page: Path) -> str | int:
    """Return the address of a file relative to the page; 0 if it was not found, -1 if it is not allowed."""
    if file in (MISSING, OUTSIDE):
        return 0 if file == MISSING else -1
    place = os.path.abspath(file)  # noqa: PTH100 - links are not followed, because the browser does not
    try:
        relative = os.path.relpath(place, os.path.abspath(page.parent))  # noqa: PTH100
    except ValueError:  # another drive
        return Path(place).as_uri()
    return quote(os.fsencode(with_slashes(relative)))


def _samples(
    report: ReviewReport, files: Sequence[str], options: QueryOptions, progress: Progress
) -> tuple[list[Mapping[str, list[int]]], str]:
    """Return every answer's strongest gallery samples of the classes to choose from, or a reason."""
    nothing: list[Mapping[str, list[int]]] = [{} for _ in report.answers]
    if report.gallery is None:
        return nothing, report.no_gallery
    readable = [
        i
        for i, (answer, file) in enumerate(zip(report.answers, files, strict=True))
        if answer.row.label and file not in (OUTSIDE, MISSING)
    ]
    strong = find_supporters(
        report.gallery,
        [files[i] for i in readable],
        [report.answers[i].candidates for i in readable],
        options,
        report.vectors,
        progress,
    )
    for i, samples in zip(readable, strong.samples, strict=True):
        nothing[i] = samples
    return nothing, strong.note


def _describe_order(report: ReviewReport) -> str:
    if report.is_diverse:
        return "doubtful and different ones"
    has_probabilities = any(answer.row.probability is not None for answer in report.answers)
    return f"the smallest {'probability' if has_probabilities else 'margin'}"


def _records(
    report: ReviewReport,
    samples: Sequence[Mapping[str, list[int]]],
    place: Mapping[int, int],
    links: Sequence[str | int],
) -> list[list[Any]]:
    """Return the answers as short lists, because there may be many; classes are indexes."""
    number = {name: i for i, name in enumerate(report.classes)}

    def record(answer: ReviewItem, of_answer: Mapping[str, list[int]], link: str | int) -> list[Any]:
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
            1 if link == row.path else link,  # most links equal the path
            [[place[sample] for sample in of_answer.get(name, [])] for name in answer.candidates],
        ]

    return [record(*each) for each in zip(report.answers, samples, links, strict=True)]
