"""The cleaning of a gallery: the examples that people removed, relabelled or added, and renamed classes.

The sources still have the old classes, so `build --update` would undo a decision that is not remembered. A
decision on an example belongs to its content, and to the class that the source gives it: a file with another
content, or in another class folder, is a new example. An example outside the sources stays if a person gave
its class.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from crnr_cli.arrays import Stamp
from crnr_cli.gallery.gallery import CleaningTable, FittedGallery, SampleTable
from crnr_cli.gallery.samples import ReadSamples
from crnr_cli.system.names import class_key, path_key
from crnr_cli.wording import Note, format_count, is_or_are

ADDED = "add"  # the reason of a decision for the class in the source, where the gallery had renamed it
_KINDS = ("removed example", "relabelled example", "added example", "renamed class")


class Decision(NamedTuple):
    """A row of the table. Without a hash, it renames a class."""

    sha256: str
    name: str
    former: str  # the class that the source gives, by the present names of classes; empty if it gives none
    label: str  # empty if the example was removed
    when: str
    why: str
    stamp: Stamp = Stamp()

    @property
    def is_addition(self) -> bool:
        """Whether a person gave the example a class, and the source gives it none or the same."""
        return self.label != "" and class_key(self.former) in ("", class_key(self.label))


class Cleaning:
    """The decisions in a gallery, to look up and to change."""

    def __init__(self, table: CleaningTable, kind: str = "pictures") -> None:
        self._are_paths = kind == "pictures"
        self._classes: dict[str, Decision] = {}  # by the former name
        self._examples: dict[str, dict[str, Decision]] = {}  # by hash and name; the latest is the last
        self._when = datetime.fromtimestamp(_current_time(), UTC).isoformat(timespec="seconds")
        texts = (table.hashes, table.names, table.former, table.labels, table.times, table.reasons)
        for decision in map(Decision, *texts, table.stamps):
            if decision.sha256:
                self._set(decision)
            elif decision.label:
                self._classes[class_key(decision.former)] = decision

    @classmethod
    def of(cls, gallery: FittedGallery) -> Cleaning:
        return cls(gallery.cleaning, gallery.recipe.kind)

    def __bool__(self) -> bool:
        return bool(self._classes or self._examples)

    def __iter__(self) -> Iterator[Decision]:
        """Yield all decisions, the oldest first."""
        examples = [one for of_content in self._examples.values() for one in of_content.values()]
        return iter(sorted([*self._classes.values(), *examples], key=lambda one: one.when))

    def to_table(self) -> CleaningTable:
        """Return the decisions as a gallery stores them."""
        return CleaningTable(*(list(column) for column in zip(*self, strict=True)))

    def clear(self) -> str:
        """Forget all decisions; return how many there were and what becomes of them, as text."""
        added = [one for one in self if _kind_of(one) == "added example"]
        others = [one for one in self if one not in added]
        self._classes, self._examples = {}, {}
        texts = [f"{count_decisions(others)} restored"] if others else []
        return ", ".join([*texts, f"{count_decisions(added)} forgotten"] if added else texts)

    def find(self, name: str, sha256: str) -> Decision | None:
        """Return the decision on the example of this name and content."""
        return self._examples[sha256].get(self.key_of(name)) if sha256 in self._examples else None

    def is_by_hand(self, name: str, sha256: str) -> bool:
        """Return whether a person gave the example of this name and content its class, and not its source."""
        known = self.find(name, sha256)
        return known is not None and known.label != "" and known.why != ADDED

    def of_content(self, sha256: str) -> Sequence[Decision]:
        """Return the decisions on a content, the latest last."""
        return list(self._examples[sha256].values()) if sha256 in self._examples else ()

    def removals_by_name(self) -> dict[str, list[Decision]]:
        """Return the removed examples by the keys of their names."""
        found: dict[str, list[Decision]] = {}
        for of_content in self._examples.values():
            for key, decision in of_content.items():
                if not decision.label:
                    found.setdefault(key, []).append(decision)
        return found

    def key_of(self, name: str) -> str:
        """Return one text for all spellings of an example's name."""
        return path_key(name) if self._are_paths else class_key(name)

    def rename(self, label: str) -> str:
        """Return the present name of a class of the sources."""
        found = self._classes.get(class_key(label)) if self._classes else None
        return found.label if found else label

    def source_classes(self) -> set[str]:
        """Return the classes that only the sources may still have."""
        return {one.former for one in self if one.former and not one.is_addition}

    def note_removed(self, removed: SampleTable, why: str) -> None:
        """Remember that examples were removed."""
        for name, label, sha256, stamp in _rows(removed):
            known = self.find(name, sha256)
            former = known.former if known and known.former else label
            self._set(Decision(sha256, name, former, "", self._when, why, stamp))

    def note_added(self, added: SampleTable, old: SampleTable, why: str, *, by_hand: bool) -> list[Note]:
        """Remember the classes of added or changed examples, where the source would give another class.

        A class given `by_hand` is not the class of the source. Otherwise people add examples as the source
        has them, and decisions on them are forgotten; return a note on these.
        """
        before = {name: (label, sha256) for name, label, sha256, _ in _rows(old)}
        classes = set(map(class_key, old.labels)) if by_hand else set()
        forgotten: list[Decision] = []
        for name, label, sha256, stamp in _rows(added):
            known = self.find(name, sha256)
            if not by_hand:
                former = self.rename(label)
                forgotten += [known] if known else []
            elif known:
                former = known.former
            elif name in before:
                earlier = self.find(name, before[name][1])
                former = earlier.former if earlier else before[name][0]
                if earlier and earlier.is_addition:
                    self._forget(name, before[name][1])
            else:  # new: it is relabelled only if its folder is named after another class
                folder = self.rename(PurePosixPath(name).parent.name)
                former = folder if self._are_paths and class_key(folder) in classes else ""
            self._forget(name, sha256)
            if by_hand or class_key(former) != class_key(label):
                self._set(Decision(sha256, name, former, label, self._when, why, stamp))
        if not forgotten:
            return []
        text = (
            f"{count_decisions(forgotten)} {is_or_are(len(forgotten))} added again as in the source, so the "
            "gallery forgets the earlier decision"
        )
        return [Note("added again", text)]

    def note_moved(self, sha256: str, label: str) -> None:
        """Forget decisions against the class that a content has in the sources now: a person chose it."""
        for one in self.of_content(sha256):
            if class_key(one.former) == class_key(label) and not one.is_addition:
                self._forget(one.name, sha256)

    def note_renamed(self, old: str, new: str, why: str) -> None:
        """Remember that a class has another name; decisions refer to it by its new name."""
        key = class_key(old)
        for name, one in self._classes.items():
            if class_key(one.label) == key:
                self._classes[name] = one._replace(label=new)
        if key not in self._classes:  # else its folder has become another class before
            self._classes[key] = Decision("", "", old, new, self._when, why)
        self._classes = {name: one for name, one in self._classes.items() if name != class_key(one.label)}
        for of_content in list(self._examples.values()):
            for one in list(of_content.values()):
                self._forget(one.name, one.sha256)
                former, label = (new if class_key(name) == key else name for name in (one.former, one.label))
                self._set(one._replace(former=former, label=label))

    def keep_outside(
        self, gone: SampleTable, sources: Sequence[str], moved: Container[str]
    ) -> tuple[list[str], list[Note]]:
        """Return the names of the examples that stay though the sources do not have them, and notes.

        These are examples outside the sources whose class a person gave. `gone` has all examples that are not
        in the sources; a file that is gone from a source was removed there, and contents in `moved` are
        elsewhere in the sources now.
        """
        is_below = self.find_below(sources)
        kept: list[str] = []
        others: list[str] = []
        for name, _, sha256, _ in _rows(gone):
            known = self.find(name, sha256)
            if sha256 not in moved and not is_below(name):
                (kept if self.is_by_hand(name, sha256) else others).append(name)
            elif known and known.is_addition:
                self._forget(name, sha256)
        notes = []
        if n := len(kept):
            text = (
                f"{format_count(n, 'example')} added with --class or --corrections {is_or_are(n)} kept, "
                f"such as {kept[0]}; `--restore` drops {'it' if n == 1 else 'them'}"
            )
            notes.append(Note("added before", text))
        if n := len(others):
            text = (
                f"{format_count(n, 'example')} outside the sources {is_or_are(n)} removed, "
                f"such as {others[0]}; to keep such examples, name their sources too"
            )
            notes.append(Note("outside", text))
        return kept, notes

    def find_below(self, sources: Sequence[str]) -> Callable[[str], bool]:
        """Return a test whether an example's name is in one of the sources: a folder or a feature file."""
        keys = set(map(self.key_of, sources))
        starts = tuple(key.rstrip(os.sep) + end for key in keys for end in (os.sep, "#"))
        is_here = os.curdir in keys

        def is_below(name: str) -> bool:
            key = self.key_of(name)
            return key in keys or key.startswith(starts) or (is_here and not Path(key).is_absolute())

        return is_below

    def _set(self, decision: Decision) -> None:
        of_content = self._examples.setdefault(decision.sha256, {})
        key = self.key_of(decision.name)
        of_content.pop(key, None)  # so that the latest is the last
        of_content[key] = decision

    def _forget(self, name: str, sha256: str) -> None:
        if sha256 in self._examples:
            self._examples[sha256].pop(self.key_of(name), None)
            if not self._examples[sha256]:
                del self._examples[sha256]


class CleanedSource:
    """The classes of a source's examples after the cleaning, and what it changed."""

    def __init__(self, cleaning: Cleaning, gallery: SampleTable) -> None:
        self._cleaning = cleaning
        self._removals = cleaning.removals_by_name()
        self.is_needed = bool(cleaning)
        contents = zip(gallery.hashes, gallery.labels, strict=True) if self.is_needed else ()
        self._held = {(sha256, class_key(label)) for sha256, label in contents if cleaning.of_content(sha256)}
        # The class in the source, its present name and the class of the example, unless all are the same.
        self._found: dict[str, tuple[str, str, str | None]] = {}

    def find_label(self, name: str, sha256: str, label: str) -> str | None:
        """Return the class of an example, or None if it was removed.

        A decision on an example of another name holds too: the file was moved or copied. It does not if the
        gallery still has this content in this class: then the decision was on one of several copies.
        """
        if not self.is_needed:
            return label
        present = self._cleaning.rename(label)
        found = self._decide(name, sha256, present)
        if label == present == found:
            self._found.pop(name, None)
        else:
            self._found[name] = (label, present, found)
        return found

    @property
    def removed(self) -> set[str]:
        """The names of the examples that stay removed."""
        return {name for name, (_, _, found) in self._found.items() if found is None}

    def _decide(self, name: str, sha256: str, present: str) -> str | None:
        key, known = class_key(present), self._cleaning.of_content(sha256)
        decisions = [one for one in known if class_key(one.former) == key and not one.is_addition]
        own = self._cleaning.find(name, sha256)
        if own and own.is_addition:
            return own.label
        if not decisions:
            return present
        if own in decisions:
            return own.label or None
        return present if (sha256, key) in self._held else decisions[-1].label or None

    def is_still_removed(self, name: str, stamp: Stamp, label: str) -> bool:
        """Return whether a file was removed and has not changed since, so it need not be read."""
        known = self._removals.get(self._cleaning.key_of(name), ()) if self._removals else ()
        return any(one.stamp == stamp and self.find_label(name, one.sha256, label) is None for one in known)

    def apply(self, read: ReadSamples) -> ReadSamples:
        """Return the examples that were not removed, with their classes."""
        columns = zip(read.table.names, read.table.hashes, read.table.labels, strict=True)
        labels = [self.find_label(*values) for values in columns]
        kept = [row for row, label in enumerate(labels) if label is not None]
        rest = read.take(kept)
        return replace(
            rest, table=replace(rest.table, labels=[label for label in labels if label is not None])
        )

    def notes(self, known: Mapping[str, int]) -> list[Note]:
        """Return notes on the decisions that were kept; `known` has the names of the gallery's examples."""
        notes = []
        if n := len(self.removed):
            stay, them = ("stays", "it") if n == 1 else ("stay", "them")
            text = f"{format_count(n, 'removed example')} {stay} removed; `--restore` brings {them} back"
            notes.append(Note("removed before", text))
        if n := sum(found not in (present, None) for _, present, found in self._found.values()):
            keep = "keeps its class" if n == 1 else "keep their classes"
            text = (
                f"{format_count(n, 'relabelled example')} {keep}; `--restore` takes the class of the source"
            )
            notes.append(Note("relabelled before", text))
        by_class: dict[tuple[str, str], list[str]] = {}
        for name, (label, present, found) in self._found.items():
            if found == present != label:
                by_class.setdefault((label, present), []).append(name)
        for (old, new), names in sorted(by_class.items()):
            fresh = sum(name not in known for name in names)
            news = f", {fresh} of them new" if fresh else ""
            text = f"class {old} was renamed to {new}: {format_count(len(names), 'example')}{news}"
            notes.append(Note("renamed before", text))
        return notes


def _current_time() -> float:
    """Return the time; SOURCE_DATE_EPOCH fixes it for galleries that have to be the same to the byte."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(fixed) if fixed.isdecimal() else time.time()


def count_decisions(decisions: Sequence[Decision]) -> str:
    """Return the number of decisions of each kind as text."""
    kinds = [_kind_of(one) for one in decisions]
    counts = {kind: kinds.count(kind) for kind in _KINDS}
    texts = [format_count(count, kind) for kind, count in counts.items() if count]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def _kind_of(decision: Decision) -> str:
    if not decision.sha256:
        return "renamed class"
    if not decision.label:
        return "removed example"
    return "added example" if decision.is_addition else "relabelled example"


def _rows(table: SampleTable) -> Iterator[tuple[str, str, str, Stamp]]:
    table = table.with_stamps()
    return zip(table.names, table.labels, table.hashes, table.stamps, strict=True)
