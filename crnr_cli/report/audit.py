"""The report of an audit: one page with suspicious images side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from crnr_cli.gallery.scenes import SameScene
from crnr_cli.gallery.suspects import Suspect
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.images.thumbnails import data_uri
from crnr_cli.jobs.audit import AuditReport
from crnr_cli.report.found_images import ImageSearch, find_images
from crnr_cli.report.names import common_folder, printable
from crnr_cli.report.pages import write_page
from crnr_cli.wording import format_count

_SUSPECTS = 60  # shown with their images
_GROUPS = 40
_MEMBERS = 6  # of a group
_OTHERS = 24  # outliers, and queries


def write_audit(
    report: AuditReport,
    path: Path,
    sources: Sequence[str],
    max_pixels: int = MAX_PIXELS,
    images_from: Sequence[Path] = (),
) -> list[str]:
    """Write the page; return notes about missing images."""
    groups = sorted(report.near + report.copies, key=lambda group: not report.is_across(group))[:_GROUPS]
    shown = [i for suspect in report.suspects[:_SUSPECTS] for i in (suspect.sample, *suspect.supporters)]
    shown += [i for group in groups for i in group[:_MEMBERS]]
    shown += [i for pair in report.scenes[:_GROUPS] for i in (pair.one, pair.other)]
    shown += [outlier.sample for outlier in report.outliers[:_OTHERS]]
    shown += [known.sample for known in report.known[:_OTHERS]]
    found = find_images(*_images_to_show(report, shown, images_from), max_pixels)
    shown_by = _Shown(report, {name: data_uri(image) for name, image in found.images.items()})
    sample, named = shown_by.sample, shown_by.image_record
    count = f"{len(report.suspects)} of {format_count(len(report.names), 'label')}"
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
            "suspects": [shown_by.suspect(suspect) for suspect in report.suspects[:_SUSPECTS]],
            "n_suspects": len(report.suspects),
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
    return found.notes("images", elsewhere="the folder where the gallery was built")


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

    def suspect(self, suspect: Suspect) -> dict[str, Any]:
        return {
            **self.sample(suspect.sample),
            "suggested": printable(self.report.label_of(suspect)),
            "score": f"{suspect.score:.3f}",
            "supporters": [self.sample(i) for i in suspect.supporters],
        }

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
