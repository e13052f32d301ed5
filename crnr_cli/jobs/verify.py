"""Verify: check that a gallery file is intact, and still matches its sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path

from crnr_cli.gallery.cleaning import CleanedSource, Cleaning
from crnr_cli.gallery.entries import sample_names
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.reading import refuse_mismatch
from crnr_cli.records import dataclass
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
    removed: list[str] = field(default_factory=list)  # like unknown, because people removed them

    @property
    def holds(self) -> bool:
        return not self.changed and not self.missing


def verify(path: Path, against: Sequence[str], options: InputOptions) -> VerifyReport:
    """Check a gallery's checksum and, if sources are given, compare every sample with their content.

    A file that was moved without a change of content or class does not count as a difference. Where a source
    has no class, as for samples whose class was given to `add`, only the content counts. The classes of the
    source are the classes after the gallery's cleaning, which may keep examples that are in no source.
    """
    gallery = load_gallery(path)
    report = VerifyReport(len(gallery.names))
    if not against:
        return report
    cleaning = Cleaning.of(gallery)
    source = open_source(against, options).with_classes({*gallery.classes, *cleaning.source_classes()})
    refuse_mismatch(source, gallery.recipe, path)
    found, removed = _clean(source.read_contents(), CleanedSource(cleaning, gallery.table))
    report.removed.extend(removed)
    contents = {(class_key(label), sha256) for _, label, sha256 in found}
    unclassed = {sha256 for _, label, sha256 in found if not label}
    names = sample_names((name for name, _, _ in found), gallery.recipe.kind)
    is_below, known = cleaning.find_below(against), sample_names(gallery.names, gallery.recipe.kind)
    moved = {sha256 for name, _, sha256 in found if known.find(name) is None} if cleaning else set()
    labels = [gallery.classes[i] for i in gallery.samples.class_index]
    for name, label, sha256 in zip(gallery.names, labels, gallery.hashes, strict=True):
        if (class_key(label), sha256) not in contents and sha256 not in unclassed:
            if names.find(name):
                report.changed.append(name)
            elif is_below(name) or sha256 in moved or not cleaning.is_by_hand(name, sha256):
                report.missing.append(name)
    hashes, changed = set(gallery.hashes), sample_names(report.changed, gallery.recipe.kind)
    report.unknown.extend(
        name for name, _, sha256 in found if sha256 not in hashes and changed.find(name) is None
    )
    return report


def _clean(
    contents: Iterable[tuple[str, str, str]], cleaned: CleanedSource
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return name, class and hash of each sample that was not removed, and the names of the others."""
    kept: list[tuple[str, str, str]] = []
    removed: list[str] = []
    for name, label, sha256 in contents:
        found = cleaned.find_label(name, sha256, label) if label else label
        if found is None:
            removed.append(name)
        else:
            kept.append((name, found, sha256))
    return kept, removed
