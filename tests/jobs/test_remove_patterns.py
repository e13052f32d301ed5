"""Remove by patterns, what would be removed, and the list of samples that `info` prints."""

from __future__ import annotations

import csv
import io
import json
import os
from datetime import UTC, datetime
from hashlib import sha256

import numpy as np
import pytest

from crnr_cli import CRNRClassifier
from crnr_cli.gallery.file import load_gallery
from helpers.runner import Runner, rows
from helpers.samples import draw_image, make_features, make_images
from helpers.templates import Templates


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", ("ham", "spam", "spinach"), 3)
    assert crnr("build", "gallery", "-q").exit == 0


@pytest.fixture
def built(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(build_gallery, crnr.here)
    return crnr


def test_remove_by_pattern_equals_remove_by_name(built: Runner) -> None:
    (built.here / "other.h5").write_bytes((built.here / "gallery.h5").read_bytes())
    result = built("remove", "gallery.h5", "--example", "gallery/ham/[01].png", "--class", "spi*")
    assert (result.exit, result.out) == (0, "")
    lines = result.err.splitlines()
    assert lines[:2] == [
        "note: spi* matches 1 class",
        "note: gallery/ham/[01].png matches 2 examples",
    ]
    assert "0 added, 0 changed, 5 removed, 4 unchanged" in lines
    by_name = ("--example", "gallery/ham/0.png", "--example", "gallery/ham/1.png", "--class", "spinach")
    assert built("remove", "other.h5", *by_name, "-q").exit == 0
    assert (built.here / "gallery.h5").read_bytes() == (built.here / "other.h5").read_bytes()


def test_a_literal_name_wins(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", ("ham", "spam"), 3)
    draw_image(0, 7).save(crnr.here / "gallery" / "ham" / "[01].png")
    assert crnr("build", "gallery", "-q").exit == 0
    result = crnr("remove", "gallery.h5", "--example", "gallery/ham/[01].png", "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    assert json.loads(result.out)["changes"]["removed"] == ["gallery/ham/[01].png"]


def test_marked_samples_are_never_patterns(built: Runner) -> None:
    """A CSV has names, and one that is gone must not remove others."""
    (built.here / "audit.csv").write_text("path,remove\ngallery/ham/*.png,x\n")
    before = (built.here / "gallery.h5").read_bytes()
    result = built("remove", "gallery.h5", "--marked-in", "audit.csv")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("error: gallery.h5: has no example gallery/ham/*.png; there are ")
    assert (built.here / "gallery.h5").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--class", "x*"), "no class matches x*; there are ham, spam, spinach"),
        (
            ("--example", "gallery/*"),
            "no example matches gallery/*; * ends at a slash, and gallery/** matches 9",
        ),
        (("--class", "*"), "no examples would remain; delete the file instead"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_remove_refuses_patterns_that_match_nothing_or_everything(
    built: Runner, arguments: tuple[str, ...], message: str, more: tuple[str, ...]
) -> None:
    before = (built.here / "gallery.h5").read_bytes()
    result = built("remove", "gallery.h5", *arguments, *more)
    assert (result.exit, result.out, result.err) == (1, "", f"error: gallery.h5: {message}\n")
    assert (built.here / "gallery.h5").read_bytes() == before


def test_remove_dry_run_lists_the_samples(built: Runner) -> None:
    before = (built.here / "gallery.h5").stat()
    arguments = ("remove", "gallery.h5", "--class", "ham", "--example", "gallery/sp*/2.png", "--dry-run")
    result = built(*arguments)
    assert result.exit == 0
    assert rows(result.out) == [
        *({"sample": f"gallery/ham/{i}.png", "class": "ham"} for i in range(3)),
        {"sample": "gallery/spam/2.png", "class": "spam"},
        {"sample": "gallery/spinach/2.png", "class": "spinach"},
    ]
    assert result.err == (
        "note: gallery/sp*/2.png matches 2 examples\n"
        "gallery.h5: 5 of 9 examples would be removed, and 1 class with them\n"
    )
    as_json = built(*arguments, "--json", "-q")
    assert (as_json.exit, as_json.err) == (0, "")
    assert json.loads(as_json.out) == {"gallery": "gallery.h5", "planned": rows(result.out), "unchanged": 4}
    after = (built.here / "gallery.h5").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert built.files() == {"gallery", "gallery.h5"}


def test_the_samples_of_a_gallery_are_listed(built: Runner) -> None:
    path = built.here / "gallery" / "ham" / 'a,"b.png'
    draw_image(0, 8).save(path)
    os.utime(path, ns=(0, 1_700_000_000_987_654_321))
    assert built("add", "gallery.h5", "gallery", "-q").exit == 0
    result = built("info", "gallery.h5", "--list-examples")
    assert (result.exit, result.err) == (0, "")
    header, *listed = csv.reader(io.StringIO(result.out, newline=""))
    assert header == ["sample", "class", "sha256", "bytes", "modified"]
    expected = {}
    for file in (built.here / "gallery").rglob("*.png"):
        modified = datetime.fromtimestamp(file.stat().st_mtime_ns // 10**9, UTC).isoformat()
        expected[str(file.relative_to(built.here))] = [
            *(file.parent.name, sha256(file.read_bytes()).hexdigest(), str(file.stat().st_size), modified)
        ]
    assert {name: rest for name, *rest in listed} == expected
    assert len(listed) == 10
    assert [name for name, *_ in listed] == load_gallery(built.here / "gallery.h5").names
    as_json = built("info", "gallery.h5", "--list-examples", "--json")
    assert (as_json.exit, as_json.err) == (0, "")
    assert [[str(value) for value in record.values()] for record in json.loads(as_json.out)] == listed


def test_samples_of_which_no_file_is_known(crnr: Runner) -> None:
    """An estimator's samples were never in a file."""
    random = np.random.default_rng(0)
    CRNRClassifier().fit(random.random((6, 4)), list("aabbcc")).save(crnr.here / "gallery.h5")
    result = crnr("info", "--list-examples")
    assert (result.exit, result.err) == (0, "")
    listed = rows(result.out)
    assert [row["class"] for row in listed] == list("aabbcc")
    assert {row["bytes"] for row in listed} == {row["modified"] for row in listed} == {""}
    assert json.loads(crnr("info", "--list-examples", "--json").out)[0]["bytes"] is None


def test_a_list_can_be_cut_short(crnr: Runner) -> None:
    """The reader of the list may stop reading."""
    make_features(crnr.here / "many.npz", per_class=5000)
    assert crnr("build", "many.npz", "--method", "nn", "-q").exit == 0
    result = crnr.bash("set +o pipefail; crnr info gallery.h5 --list-examples | head -2 | cut -d, -f1,2")
    assert (result.exit, result.out, result.err) == (0, "sample,class\nmany.npz#0,ant\n", "")
