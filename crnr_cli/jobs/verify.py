"""Verify: check that a gallery file is intact, and still matches its sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crnr_cli.gallery.entries import sample_names
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.reading import refuse_mismatch
from crnr_cli.sources.base import InputOptions
from crnr_cli.sources.opening import open_source
from crnr_cli.system.names import class_key


@dataclass(frozen=True)
class VerifyReport:
    """The differences between a gallery and its sources, by the names of the samples."""

    n_samples: int
    changed: list[str] = field(default_factory=list)  # in content or class
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # in the sources, but not in the gallery

    @property
    def holds(self) -> bool:
        return not self.changed and not self.missing


def verify(path: Path, against: Sequence[str], options: InputOptions) -> VerifyReport:
    """Check a gallery's checksum and, if sources are given, compare every sample with their content.

    A file that was moved without a change of content or class does not count as a difference. Where a source
    has no class, as for samples whose class was given to `add`, only the content counts.
    """
    gallery = load_gallery(path)
    report = VerifyReport(len(gallery.names))
    if not against:
        return report
    source = open_source(against, options).with_classes(gallery.classes)
    refuse_mismatch(source, gallery.recipe, path)
    found = list(source.read_contents())
    contents = {(class_key(label), sha256) for _, label, sha256 in found}
    unclassed = {sha256 for _, label, sha256 in found if not label}
    names = sample_names((name for name, _, _ in found), gallery.recipe.kind)
    labels = [gallery.classes[i] for i in gallery.samples.class_index]
    for name, label, sha256 in zip(gallery.names, labels, gallery.hashes, strict=True):
        if (class_key(label), sha256) not in contents and sha256 not in unclassed:
            (report.changed if names.find(name) else report.missing).append(name)
    hashes, changed = set(gallery.hashes), sample_names(report.changed, gallery.recipe.kind)
    report.unknown.extend(
        name for name, _, sha256 in found if sha256 not in hashes and changed.find(name) is None
    )
    return report
