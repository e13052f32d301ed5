"""Any sequence of build, add, remove, --update, rename, verify and classify, against a dictionary of files.

`pytest tests/project/test_state_machine.py --steps 5000` tries that many steps.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from PIL import Image

from crnr_cli.gallery.file import load_gallery
from helpers.runner import Outcome, Runner, read_rows

CLASSES = ("ant", "bée", "cat,x", 'd"og', "-e", "=f")
SIDE = 4
BUILD = ("build", "--method", "nn", "--extractor", "pixels", "-q")
STEPS_PER_RUN = 40

classes = st.sampled_from(CLASSES)
numbers = st.integers(0, 4)


@dataclass(frozen=True)
class Content:
    """What is in a file: its hash, and its pixels if it is a usable image."""

    sha256: str
    pixels: tuple[int, ...] | None

    @property
    def vector(self) -> np.ndarray:
        values = np.array(self.pixels, dtype=float)
        return values / np.linalg.norm(values)


class Galleries(RuleBasedStateMachine):
    """Class and content by name: `files` is what is on the disk, `known` what should be in the gallery.

    `decided` has, by content and name, the class of an example without and with a decision of the user (None
    if it was removed), the latest decision last; `renamed` has the present names of classes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.here = Path(tempfile.mkdtemp())
        self.crnr = Runner(self.here)
        self.source = "source"
        self.moment = 0
        self.files: dict[str, tuple[str, Content]] = {}
        self.known: dict[str, tuple[str, Content]] = {}
        self.decided: dict[tuple[str, str], tuple[str, str | None]] = {}
        self.renamed: dict[str, str] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.here)

    @initialize(first=numbers, second=numbers)
    def build(self, first: int, second: int) -> None:
        for label, number in (("ant", first), ("bée", second)):
            self.image(label, number, seed=number)
        assert self.crnr(*BUILD, self.source, "--size", SIDE) == Outcome(0, "", "")
        self.known = dict(self.files)

    @rule(label=classes, number=numbers, seed=st.integers(0, 9))
    def image(self, label: str, number: int, seed: int) -> None:
        """Save a new image, or replace one; with few seeds, so that some are copies."""
        pixels = np.random.default_rng(seed).integers(1, 256, (SIDE, SIDE), dtype=np.uint8)
        path = self.place(label, number)
        Image.fromarray(pixels).save(path)
        self.noted(path, label, tuple(pixels.ravel().tolist()))

    @rule(label=classes, number=numbers, content=st.sampled_from([b"", b"no image", b"\x89PNG\r\n\x1a\n"]))
    def broken(self, label: str, number: int, content: bytes) -> None:
        (path := self.place(label, number)).write_bytes(content)
        self.noted(path, label, None)

    @precondition(lambda self: self.files)
    @rule(data=st.data(), label=classes, number=numbers)
    def moved(self, data: st.DataObject, label: str, number: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.files)))
        _, content = self.files.pop(name)
        path = self.place(label, number)
        (self.here / name).rename(path)
        self.noted(path, label, content.pixels)

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def deleted(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.files)))
        (self.here / name).unlink()
        del self.files[name]

    @rule()
    def renamed(self) -> None:
        """Rename the folder of all classes."""
        old, self.source = self.source, f"source {self.moment}"
        self.moment += 1
        if (self.here / old).exists():
            (self.here / old).rename(self.here / self.source)
        self.files = {name.replace(old, self.source, 1): found for name, found in self.files.items()}

    @precondition(lambda self: self.files)
    @rule()
    def add(self) -> None:
        usable = self.usable()
        outcome = self.crnr("add", "gallery.h5", self.source, "-q")
        if usable or self.known.keys() & self.files.keys():
            self.assert_done(outcome, self.files.keys() - usable.keys())
            for name, (label, content) in usable.items():
                if self.known.get(name) != (label, content):  # as the folder has it: earlier decisions end
                    self.decide(name, content, self.renamed.get(label, label), label)
            self.known |= usable
        else:
            self.assert_refused(outcome)

    @rule(label=classes, number=numbers, seed=st.integers(0, 9))
    def added_by_hand(self, label: str, number: int, seed: int) -> None:
        """An image that is not in the source, with its class."""
        pixels = np.random.default_rng(seed).integers(1, 256, (SIDE, SIDE), dtype=np.uint8)
        path = self.here / "outside" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
        self.moment += 1
        os.utime(path, ns=(self.moment * 10**9, self.moment * 10**9))
        name = f"outside/{number}.png"
        self.assert_done(self.crnr("add", "-q", f"--class={label}", "gallery.h5", name), set())
        content = Content(hashlib.sha256(path.read_bytes()).hexdigest(), tuple(pixels.ravel().tolist()))
        if self.known.get(name) != (label, content):
            before = self.known[name][1].sha256 if name in self.known else ""
            former, _ = self.decided.get((content.sha256, name), self.decided.get((before, name), ("", "")))
            if not former:
                self.decided.pop((before, name), None)
            self.decide(name, content, former if former != label else "", label)
        self.known[name] = (label, content)

    @precondition(lambda self: self.files)
    @rule()
    def update(self) -> None:
        usable, failed = self.usable(), self.files.keys() - self.usable().keys()
        cleaned = self.cleaned(usable)
        kept = {name: self.known[name] for name in self.known.keys() & failed}
        before = {(label, content.sha256) for label, content in self.known.values()}
        now = {(label, content.sha256) for label, content in self.cleaned(self.files).values()}
        outcome = self.crnr("build", self.source, "--update", "-q")
        is_another = self.known.keys().isdisjoint(self.files) and not before & now
        if is_another or (not cleaned and not kept):
            self.assert_refused(outcome)
        else:
            self.assert_done(outcome, failed)
            fresh = {content for name, (_, content) in cleaned.items() if name not in self.known}
            by_hand = {
                name: found
                for name, found in self.known.items()
                if name.startswith("outside/") and found[1] not in fresh
            }
            self.known = cleaned | kept | by_hand

    @rule(data=st.data(), by_class=st.booleans())
    def remove(self, data: st.DataObject, by_class: bool) -> None:
        names = sorted({label for label, _ in self.known.values()} if by_class else self.known)
        name = data.draw(st.sampled_from(names))
        rest = {key: found for key, found in self.known.items() if name != (found[0] if by_class else key)}
        outcome = self.crnr("remove", "gallery.h5", f"--{'class' if by_class else 'sample'}={name}", "-q")
        if rest:
            self.assert_done(outcome, set())
            for gone in self.known.keys() - rest.keys():
                label, content = self.known[gone]
                self.decide(gone, content, self.former(gone, content, label), None)
            self.known = rest
        else:
            self.assert_refused(outcome)

    @rule(data=st.data(), new=classes)
    def class_renamed(self, data: st.DataObject, new: str) -> None:
        """In the gallery, which remembers the new name of the folder's class."""
        labels = sorted({label for label, _ in self.known.values()})
        old = data.draw(st.sampled_from(labels))
        if old == new:
            return
        merge = ["--merge"] if new in labels else []
        self.assert_done(self.crnr("rename", "-q", *merge, "--", "gallery.h5", old, new), set())
        self.known = {
            name: (new if label == old else label, content) for name, (label, content) in self.known.items()
        }
        self.renamed = {old: old} | self.renamed
        self.renamed = {name: new if label == old else label for name, label in self.renamed.items()}
        for (sha256, name), pair in list(self.decided.items()):
            former, label = (new if label == old else label for label in pair)
            self.decided[sha256, name] = (former if former and former != label else "", label)

    @precondition(lambda self: self.files)
    @rule()
    def verify(self) -> None:
        cleaned = self.cleaned(self.files)
        contents = {(label, content.sha256) for label, content in cleaned.values()}
        moved = {content.sha256 for name, (_, content) in cleaned.items() if name not in self.known}
        is_same = all(
            (label, content.sha256) in contents
            or (name.startswith("outside/") and content.sha256 not in moved)
            for name, (label, content) in self.known.items()
        )
        outcome = self.crnr("verify", "--source", self.source, "-q")
        assert outcome.exit == (0 if is_same else 1), outcome

    @precondition(lambda self: self.files)
    @rule()
    def classify(self) -> None:
        """All files, by the nearest samples."""
        outcome = self.crnr("classify", self.source, "-o", "out.csv", "-q")
        labels = sorted({label for label, _ in self.known.values()})
        if len(labels) < 2:
            self.assert_refused(outcome)
            return
        usable = self.usable()
        self.assert_done(outcome, self.files.keys() - usable.keys())
        found = {row["path"]: row for row in read_rows(self.here / "out.csv")}
        assert found.keys() == self.files.keys()
        for name, (label, content) in usable.items():
            row = found[name]
            assert row["truth"] == (label if label in labels else "")
            for each in labels:
                samples = [known.vector for own, known in self.known.values() if own == each]
                expected = min(((content.vector - sample) ** 2).sum() / 2 for sample in samples)
                assert float(row[f"residual:{each}"]) == pytest.approx(expected, abs=1e-6)

    @invariant()
    def gallery_is_as_it_should_be(self) -> None:
        if not self.known:  # before the first build
            return
        gallery = load_gallery(self.here / "gallery.h5")
        labels = [gallery.classes[i] for i in gallery.samples.class_index]
        found = dict(zip(gallery.names, zip(labels, gallery.hashes, strict=True), strict=True))
        assert len(found) == len(gallery.names)
        assert found == {name: (label, content.sha256) for name, (label, content) in self.known.items()}
        vectors = np.array([self.known[name][1].vector for name in gallery.names])
        np.testing.assert_allclose(gallery.samples.vectors, vectors, atol=1e-6)

    def place(self, label: str, number: int) -> Path:
        folder = self.here / self.source / label
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{number}.png"

    def noted(self, path: Path, label: str, pixels: tuple[int, ...] | None) -> None:
        """Note what is in a file. Its time is always new, because a file system's may be too coarse."""
        self.moment += 1
        os.utime(path, ns=(self.moment * 10**9, self.moment * 10**9))
        content = Content(hashlib.sha256(path.read_bytes()).hexdigest(), pixels)
        self.files[str(path.relative_to(self.here))] = (label, content)

    def decide(self, name: str, content: Content, former: str, label: str | None) -> None:
        self.decided.pop((content.sha256, name), None)
        if former != label:
            self.decided[content.sha256, name] = (former, label)

    def former(self, name: str, content: Content, label: str) -> str:
        """Return the class that an example would have without the decision on it."""
        pair = self.decided.get((content.sha256, name))
        return pair[0] if pair and pair[0] and pair[0] != pair[1] else label

    def cleaned(self, files: dict[str, tuple[str, Content]]) -> dict[str, tuple[str, Content]]:
        """Return the files without removed ones, with the classes that were decided."""
        found: dict[str, tuple[str, Content]] = {}
        for name, (folder, content) in files.items():
            label: str | None = self.renamed.get(folder, folder)
            pairs = {
                other: after
                for (sha256, other), (former, after) in self.decided.items()
                if sha256 == content.sha256 and former == label != after
            }
            is_held = any(known == (label, content) for known in self.known.values())
            if name in pairs:
                label = pairs[name]
            elif pairs and not is_held:
                label = list(pairs.values())[-1]
            if label is not None:
                found[name] = (label, content)
        return found

    def usable(self) -> dict[str, tuple[str, Content]]:
        return {name: found for name, found in self.files.items() if found[1].pixels}

    def assert_done(self, outcome: Outcome, left_out: set[str]) -> None:
        assert (outcome.exit, outcome.out) == (3 if left_out else 0, ""), (outcome, left_out)

    def assert_refused(self, outcome: Outcome) -> None:
        assert (outcome.exit, outcome.out) == (1, ""), outcome
        assert outcome.err.startswith("error: ")


def test_galleries_follow_their_files(request: pytest.FixtureRequest) -> None:
    runs = -(-request.config.getoption("--steps") // STEPS_PER_RUN)
    quick = settings(
        max_examples=runs,
        stateful_step_count=STEPS_PER_RUN,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_machine(Galleries, settings=quick)
