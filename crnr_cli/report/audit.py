"""The report of an audit: one page with suspicious images side by side."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import find_largest
from crnr_cli.gallery.scenes import SameScene
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.images.thumbnails import data_uri
from crnr_cli.jobs.audit import AuditReport
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.report.found_images import FoundImages, ImageSearch, find_images
from crnr_cli.report.names import common_folder, printable
from crnr_cli.report.pages import write_page
from crnr_cli.report.review import (
    ITEM_SIDE,
    LARGE_SIDE,
    PER_LARGE,
    PER_PART,
    SAMPLE_SIDE,
    EmbeddedImages,
    link_to,
)
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.wording import format_count

_GROUPS = 40
_MEMBERS = 6  # of a group
_OTHERS = 24  # outliers, and queries
_CHOICES = 5  # classes to choose from
_EXAMPLES = 2  # for each of them


@dataclass(frozen=True)
class PageOptions:
    everything: bool = False  # all examples, and not only those with a finding
    limit: int = 2000  # examples to decide about
    max_pixels: int = MAX_PIXELS
    images_from: Sequence[Path] = ()


def write_audit(
    report: AuditReport,
    path: Path,
    sources: Sequence[str],
    options: PageOptions,
    progress: Progress = silent,
) -> list[str]:
    """Write the page; return notes on everything that is not on it."""
    groups = sorted(report.near + report.copies, key=lambda group: not report.is_across(group))[:_GROUPS]
    shown = [i for group in groups for i in group[:_MEMBERS]]
    shown += [i for pair in report.scenes[:_GROUPS] for i in (pair.one, pair.other)]
    shown += [outlier.sample for outlier in report.outliers[:_OTHERS]]
    shown += [known.sample for known in report.known[:_OTHERS]]
    found = find_images(*_images_to_show(report, shown, options.images_from), options.max_pixels)
    shown_by = _Shown(report, {name: data_uri(image) for name, image in found.images.items()})
    sample, named = shown_by.sample, shown_by.image_record
    count = f"{len(report.suspects)} of {format_count(len(report.names), 'label')}"
    desk = _Desk.of(report, options, progress)
    write_page(
        path,
        "audit",
        {
            "title": f"{count} may be wrong - crnr audit",
            "headline": f"{count} may be wrong",
            "sources": printable(", ".join(sources)),
            "date": datetime.now(UTC).strftime("%Y-%m-%d, %H:%M UTC"),
            "folder": printable(shown_by.folder),
            "cards": _cards(report),
            "folds": report.folds,
            "everything": options.everything,
            "n_examples": len(report.names),
            **desk.contents(path, sources),
            "groups": [shown_by.group(group) for group in groups],
            "n_groups": len(report.near) + len(report.copies),
            "scenes": [shown_by.scene(pair) for pair in report.scenes[:_GROUPS]],
            "n_scenes": len(report.scenes),
            "outliers": [
                {**sample(outlier.sample), "similarity": f"{outlier.similarity:.3f}"}
                for outlier in report.outliers[:_OTHERS]
            ],
            "n_outliers": len(report.outliers),
            **_classes(report),
            "known": [
                {"query": named(known.query), "sample": sample(known.sample), "as_what": known.as_what}
                for known in report.known[:_OTHERS]
            ],
            "n_known": len(report.known),
            "n_queries": report.n_queries,
        },
    )
    return desk.notes(found)


@dataclass(frozen=True)
class _Desk:
    """The examples that a person can decide about on the page, with the scripts of the review."""

    report: AuditReport
    options: PageOptions
    items: list[int]  # samples
    total: int  # of the samples, before the limit
    findings: dict[int, list[str]]  # by sample
    images: EmbeddedImages  # of the items
    example_images: EmbeddedImages

    @classmethod
    def of(cls, report: AuditReport, options: PageOptions, progress: Progress) -> _Desk:
        findings: dict[int, list[str]] = {}
        for finding, samples in (
            ("wrong_label", [suspect.sample for suspect in report.suspects]),
            ("copy", [i for group in report.copies for i in group]),
            ("near_duplicate", [i for group in report.near for i in group]),
            ("same_scene", [i for pair in report.scenes for i in (pair.one, pair.other)]),
            ("outlier", [outlier.sample for outlier in report.outliers]),
        ):
            for i in dict.fromkeys(samples):
                findings.setdefault(i, []).append(finding)
        items = [ranked.sample for ranked in report.ranking] if options.everything else list(findings)
        images = [EmbeddedImages(progress, step) for step in ("images", "similar images")]
        return cls(report, options, items[: options.limit], len(items), findings, *images)

    def contents(self, page: Path, sources: Sequence[str]) -> dict[str, Any]:
        """Return the values of the template; images are decoded when they are written."""
        report, items = self.report, self.items
        choices = self._choices()
        strong = _find_examples(report, items, choices)
        used = sorted({i for of_item in strong for found in of_item for i in found})
        names, of_examples = ([report.names[i] for i in rows] for rows in (items, used))
        search = self._search([*items, *used])
        place = {i: number for number, i in enumerate(used)}
        records = [
            [
                number,
                report.names[i],
                choices[number][0],
                choices[number],
                None,
                self._scores.get(i),
                " ".join(self.findings.get(i, [])),
                link_to(search.find(report.names[i]), page),
                [[place[example] for example in found] for found in strong[number]],
            ]
            for number, i in enumerate(items)
        ]
        sides = (ITEM_SIDE, LARGE_SIDE)
        return {
            "n_items": len(items),
            "n_all_items": self.total,
            "data": {
                "page": "audit",
                "identity": _identity(sources),
                "unknown": UNKNOWN,
                "classes": report.classes,
                "answers": records,
                "samples": [printable(name) for name in of_examples],
                "side": ITEM_SIDE,
                "per_part": PER_PART,
                "per_large": PER_LARGE,
            },
            "images": self.images.parts(names, search, self.options.max_pixels, *sides),
            "large_images": self.images.large_parts(),
            "sample_images": self.example_images.parts(
                of_examples, search, self.options.max_pixels, SAMPLE_SIDE
            ),
        }

    @cached_property
    def _scores(self) -> dict[int, float | None]:
        return {ranked.sample: ranked.score for ranked in self.report.ranking}

    def _choices(self) -> list[list[int]]:
        """Return the classes to choose from for each item: its own, the suggested one, and others."""
        ranked = {one.sample: one for one in self.report.ranking}
        found = []
        for i in self.items:
            one = ranked[i]
            first = [
                int(self.report.samples.class_index[i]),
                *([] if one.suggested is None else [one.suggested]),
            ]
            found.append(list(dict.fromkeys([*first, *ranked[i].candidates]))[:_CHOICES])
        return found

    def _search(self, samples: Sequence[int]) -> ImageSearch:
        hashes = {self.report.names[i]: self.report.hashes[i] for i in samples}
        return ImageSearch(moved_to=self.options.images_from, hashes=hashes)

    def notes(self, found: FoundImages) -> list[str]:
        """Return notes on examples and images that are not on the page."""
        notes = []
        if len(self.items) < self.total:
            notes.append(
                f"{len(self.items)} of {format_count(self.total, 'example')} can be corrected on the page, "
                "the most doubtful first; --limit shows more"
            )
        for part in (self.images.found, self.example_images.found):
            found.images.update(dict.fromkeys(part.images, np.empty(0)))
            found.missing.extend(part.missing)
            found.outside.extend(part.outside)
        found = replace(found, missing=list(dict.fromkeys(found.missing)))
        return notes + found.notes("images", elsewhere="the folder where the gallery was built")


def _identity(sources: Sequence[str]) -> str:
    """Return the key of the decisions in a browser: the same when the audit is repeated."""
    places = [os.path.abspath(name) for name in sources]  # noqa: PTH100, names may be any text
    return hashlib.sha256(ascii(["audit", *places]).encode()).hexdigest()[:32]


def _find_examples(
    report: AuditReport, items: Sequence[int], choices: Sequence[Sequence[int]]
) -> list[list[list[int]]]:
    """Return similar examples of the classes to choose from for each item; all of a class at once."""
    samples = report.samples
    found: list[list[list[int]]] = [[[] for _ in some] for some in choices]
    for k in range(len(report.classes)):
        wanted = [(number, some.index(k)) for number, some in enumerate(choices) if k in some]
        rows = np.array([items[number] for number, _ in wanted], dtype=np.int64)
        span = samples.class_span(k)
        similarity = samples.vectors[rows] @ samples.vectors[span].T if len(rows) else np.empty((0, 0))
        for (number, choice), of_item in zip(wanted, similarity, strict=True):
            nearest = find_largest([of_item], _EXAMPLES + 1, span.start)
            found[number][choice] = [i for i in nearest if i != items[number]][:_EXAMPLES]
    return found


def _images_to_show(
    report: AuditReport, shown: Sequence[int], images_from: Sequence[Path]
) -> tuple[list[str], ImageSearch]:
    """Return the names of the images to show, and where to find them.

    Files must still have the content of the samples; the queries were named on the command line.
    """
    hashes = {report.names[i]: report.hashes[i] for i in shown}
    names = [*hashes, *(known.query for known in report.known[:_OTHERS])]
    return names, ImageSearch(moved_to=images_from, hashes=hashes)


@dataclass(frozen=True)
class _Shown:
    """How the page shows samples."""

    report: AuditReport
    uris: dict[str, str]  # of the images, by name

    @cached_property
    def folder(self) -> str:
        return common_folder(self.report.names)

    def image_record(self, name: str) -> dict[str, str]:
        return {"path": printable(name.removeprefix(self.folder)), "image": self.uris.get(name, "")}

    def sample(self, i: int) -> dict[str, str]:
        return {**self.image_record(self.report.names[i]), "label": printable(self.report.labels[i])}

    def group(self, group: list[int]) -> dict[str, Any]:
        return {
            "samples": [self.sample(i) for i in group[:_MEMBERS]],
            "more": max(0, len(group) - _MEMBERS),
            "across": self.report.is_across(group),
            "are_copies": group in self.report.copies,
        }

    def scene(self, pair: SameScene) -> dict[str, Any]:
        return {
            "samples": [self.sample(pair.one), self.sample(pair.other)],
            "similarity": f"{pair.similarity:.3f}",
            "is_mirrored": pair.is_mirrored,
            "across": self.report.is_across((pair.one, pair.other)),
        }


def _cards(report: AuditReport) -> list[tuple[str, str, str]]:
    across = sum(map(report.is_across, report.near + report.copies))
    of_several = f"{across} of them in several classes"
    return [
        (
            "Labels that look wrong",
            str(len(report.suspects)),
            f"of {format_count(len(report.names), 'example')}",
        ),
        ("Labels confirmed", f"{report.n_wins} of {report.n_answered}", "by the other examples"),
        ("Groups of duplicates", str(len(report.near) + len(report.copies)), of_several),
        ("Outliers", str(len(report.outliers)), "examples unlike any class"),
    ]


def _classes(report: AuditReport) -> dict[str, Any]:
    names = [printable(name) for name in report.classes]
    return {
        "alike": [
            {
                "classes": [names[k] for k in pair.classes],
                "confused": pair.confused,
                "share": pair.share,
            }
            for pair in report.alike
        ],
        "small": [(names[k], count) for k, count in report.small],
    }
