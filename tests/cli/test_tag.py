"""crnr tag: exit codes, stdout and stderr, and sidecars that lose nothing, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from crnr_cli.exports.xmp import HIERARCHY, SUBJECT, make_sidecar, read_keywords
from crnr_cli.results.taxa import read_taxa
from helpers.each import check_each
from helpers.runner import Outcome, Runner, ended, powerless, rows

UNDO = "to undo it: crnr tag --undo .crnr-tag-1.jsonl\n"
TABLE = (
    "path,truth,label,status,probability,corrected\n"
    '"q/a.jpg#0.1,0.25,0.5,0.3",,fox,ok,0.9,\n'
    '"q/a.jpg#20,10,40,50",,wolf,ok,0.4,bear\n'
    '"q/a.jpg#0.5,0.5,0.1,0.1",,fox,ok,0.5,\n'
    "q/b.jpg,,dog,ok,0.6,\n"
    "q/c.jpg,,unknown,rejected,0.2,\n"
    "q/d.jpg,,,truncated,,\n"
)
BEFORE = make_sidecar({SUBJECT: ["holiday"]}).replace(b"<rdf:Bag>", b"<!-- mine --><rdf:Bag>")


def make(table: str = TABLE) -> None:
    Path("out.csv").write_text(table)
    Path("q").mkdir()
    for name in "abcd":
        Path(f"q/{name}.jpg").write_text(f"pixels of {name}")


def keywords(path: str) -> list[str]:
    return read_keywords(Path(path).read_bytes(), SUBJECT)


def contents(folder: str = "q") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_tagging_and_undoing(crnr: Runner) -> None:
    make()
    Path("q/b.xmp").write_bytes(BEFORE)
    before = contents()
    words = f"note: 2 images without a label to write\n1 new sidecar, 1 changed sidecar\n{UNDO}"
    assert crnr("tag", "out.csv") == Outcome(0, "", words)
    assert keywords("q/a.jpg.xmp") == ["fox", "bear"]
    assert keywords("q/b.xmp") == ["holiday", "dog"]
    line = b"     <rdf:li>holiday</rdf:li>\n"
    assert Path("q/b.xmp").read_bytes() == BEFORE.replace(line, line + b"     <rdf:li>dog</rdf:li>\n")
    assert {name: data for name, data in contents().items() if name.endswith(".jpg")} == {
        name: data for name, data in before.items() if name.endswith(".jpg")
    }
    done = contents()
    again = (
        "note: 2 images without a label to write\nno sidecars to write, 2 sidecars with the labels already\n"
    )
    assert crnr("tag", "out.csv") == Outcome(0, "", again)
    assert contents() == done
    assert crnr("tag", "--undo", ".crnr-tag-1.jsonl") == Outcome(0, "", "2 sidecars as before\n")
    assert contents() == before
    assert crnr.files() == {"out.csv", "q"}
    missing = crnr("tag", "--undo", ".crnr-tag-1.jsonl")
    assert missing == Outcome(1, "", "error: .crnr-tag-1.jsonl: no such undo file\n")


def test_a_dry_run_prints_a_csv(crnr: Runner) -> None:
    make()
    Path("q/b.jpg").unlink()
    before = contents()
    outcome = crnr("tag", "out.csv", "--dry-run")
    assert outcome.exit == 3
    assert rows(outcome.out) == [
        {"path": "q/b.jpg", "sidecar": "", "result": "left out", "keywords": "dog", "reason": "no such file"},
        {"path": "q/a.jpg", "sidecar": "q/a.jpg.xmp", "result": "new", "keywords": "fox|bear", "reason": ""},
    ]
    assert outcome.err == (
        "left out: q/b.jpg: no such file\nnote: 2 images without a label to write\n"
        "planned: 1 new sidecar, 0 changed sidecars\n"
    )
    assert contents() == before
    assert crnr.files() == {"out.csv", "q"}


def test_json_has_the_counts(crnr: Runner) -> None:
    make()
    outcome = crnr("tag", "out.csv", "--json", "-q", "--min-probability", "0.7")
    assert (outcome.exit, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {
        **{"new": 1, "changed": 0, "there": 0, "untagged": 3, "left_out": []},
        "undo_list": ".crnr-tag-1.jsonl",
    }
    assert keywords("q/a.jpg.xmp") == ["fox", "bear"]
    undone = crnr("tag", "--undo", ".crnr-tag-1.jsonl", "--json", "-q")
    assert json.loads(undone.out) == {"undone": 1, "left_out": []}


@pytest.mark.parametrize(
    ("existing", "naming", "expected"),
    [
        ([], "auto", "b.jpg.xmp"),
        (["b.xmp"], "auto", "b.xmp"),
        (["b.XMP"], "auto", "b.XMP"),
        (["b.jpg.xmp", "b.xmp"], "auto", "b.jpg.xmp"),
        (["b.xmp"], "photo.jpg.xmp", "b.jpg.xmp"),
        (["b.jpg.xmp"], "photo.xmp", "b.xmp"),
        ([], "photo.xmp", "b.xmp"),
    ],
)
def test_sidecars_are_named_as_asked(crnr: Runner, existing: list[str], naming: str, expected: str) -> None:
    make("path,truth,label\nq/b.jpg,,dog\n")
    for name in existing:
        Path("q", name).write_bytes(BEFORE)
    assert crnr("tag", "out.csv", "--naming", naming).exit == 0
    assert [name for name, data in contents().items() if b"dog" in data] == [expected]


def test_two_images_never_share_a_sidecar(crnr: Runner) -> None:
    make("path,truth,label\nq/b.jpg,,dog\nq/b.png,,cat\n")
    Path("q/b.png").write_text("other pixels")
    Path("q/b.xmp").write_bytes(BEFORE)
    reason = "another image has the same name without its suffix; use --naming photo.jpg.xmp"
    outcome = crnr("tag", "out.csv", "--naming", "photo.xmp")
    assert outcome == Outcome(1, "", f"error: out.csv: none of the images can be tagged; q/b.jpg: {reason}\n")
    assert crnr("tag", "out.csv").exit == 0
    assert (keywords("q/b.jpg.xmp"), keywords("q/b.png.xmp"), keywords("q/b.xmp")) == (
        ["dog"],
        ["cat"],
        ["holiday"],
    )


def test_taxa_become_hierarchical_keywords(crnr: Runner) -> None:
    make()
    Path("taxa.csv").write_text("class,parent\nfox,canid\ncanid,mammal\nmammal,\ndog,canid\n")
    assert crnr("tag", "out.csv", "--taxa", "taxa.csv").exit == 0
    assert read_keywords(Path("q/a.jpg.xmp").read_bytes(), HIERARCHY) == ["mammal|canid|fox"]
    assert read_keywords(Path("q/b.jpg.xmp").read_bytes(), HIERARCHY) == ["mammal|canid|dog"]
    assert read_taxa(Path("taxa.csv")).list_above("mammal") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "taxa.csv: no column class or parent; write one row per class"),
        ("class,parent\na,b\nb,a\n", "taxa.csv: 'a' is its own ancestor"),
        ("class,parent\na,b\na,c\n", "taxa.csv, line 3: 'a' has two parents, 'b' and 'c'"),
        (
            "class,parent\na|b,c\n",
            "taxa.csv, line 2: 'a|b' contains |, which separates levels in the metadata",
        ),
        ("class,parent\n,c\n", "taxa.csv, line 2: the column class is empty"),
    ],
)
def test_wrong_taxa_are_refused(crnr: Runner, text: str, message: str) -> None:
    make()
    Path("taxa.csv").write_text(text)
    assert crnr("tag", "out.csv", "--taxa", "taxa.csv") == Outcome(1, "", f"error: {message}\n")


def test_only_probable_labels_need_probabilities(crnr: Runner) -> None:
    make("path,truth,label\nq/b.jpg,,dog\n")
    outcome = crnr("tag", "out.csv", "--min-probability", "0.5")
    assert outcome == Outcome(
        1,
        "",
        "error: out.csv: no column probability; leave out --min-probability, or classify with a gallery that "
        "was built with --calibrate\n",
    )


def test_files_elsewhere_are_refused(crnr: Runner, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "x.jpg").write_text("pixels")
    make(f"path,truth,label\n{elsewhere}/x.jpg,,dog\n")
    outcome = crnr("tag", "out.csv")
    assert outcome.exit == 1
    assert f"to allow this folder, add --below {elsewhere}" in outcome.err
    assert os.listdir(elsewhere) == ["x.jpg"]  # noqa: PTH208
    assert crnr("tag", "out.csv", "--below", elsewhere).exit == 0
    assert sorted(os.listdir(elsewhere)) == ["x.jpg", "x.jpg.xmp"]  # noqa: PTH208
    undone = crnr("tag", "--undo", ".crnr-tag-1.jsonl")
    assert undone.exit == 1
    assert crnr("tag", "--undo", ".crnr-tag-1.jsonl", "--below", elsewhere).exit == 0
    assert os.listdir(elsewhere) == ["x.jpg"]  # noqa: PTH208


def test_links_and_strange_sidecars_are_left_out(
    crnr: Runner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret"
    elsewhere.write_bytes(BEFORE)
    names = ("link", "linked", "bomb", "twins", "folder", "fine")
    make("path,truth,label\n" + "".join(f"q/{name}.jpg,,dog\n" for name in names))
    for name in names[1:]:
        Path(f"q/{name}.jpg").write_text("pixels")
    Path("q/link.jpg").symlink_to("a.jpg")
    Path("q/linked.jpg.xmp").symlink_to(elsewhere)
    Path("q/bomb.jpg.xmp").write_text('<!DOCTYPE a [<!ENTITY b "b">]><a>&b;</a>')
    Path("q/twins.jpg.xmp").write_bytes(BEFORE)
    Path("q/other").hardlink_to("q/twins.jpg.xmp")
    Path("q/folder.jpg.xmp").mkdir()
    outcome = crnr("tag", "out.csv", "-q", "--json")
    assert (outcome.exit, outcome.err) == (3, "")
    assert {one["name"]: one["reason"] for one in json.loads(outcome.out)["left_out"]} == {
        "q/link.jpg": "is a link; tag the file that it leads to",
        "q/linked.jpg": "the sidecar is a link or a folder",
        "q/bomb.jpg": "the sidecar has a document type, which XMP does not have",
        "q/twins.jpg": "the sidecar has several names, which would get different contents",
        "q/folder.jpg": "the sidecar is a link or a folder",
    }
    assert elsewhere.read_bytes() == Path("q/other").read_bytes() == BEFORE
    assert keywords("q/fine.jpg.xmp") == ["dog"]


def test_a_sidecar_that_changed_since_is_not_restored(crnr: Runner) -> None:
    make()
    assert crnr("tag", "out.csv").exit == 0
    changed = Path("q/a.jpg.xmp").read_bytes() + b"<!-- later -->"
    Path("q/a.jpg.xmp").write_bytes(changed)
    outcome = crnr("tag", "--undo", ".crnr-tag-1.jsonl")
    place = Path("q/a.jpg.xmp").resolve()
    assert outcome == Outcome(
        3,
        "",
        f"left out: {place}: has changed since it was tagged\n1 sidecar as before\n"
        "kept .crnr-tag-1.jsonl for the rest\n",
    )
    assert Path("q/a.jpg.xmp").read_bytes() == changed
    assert not Path("q/b.jpg.xmp").exists()


@pytest.mark.parametrize(
    "entry",
    [
        ["relative.xmp", None, ""],
        ["/etc/passwd", None, ""],
        ["/a\0.xmp", None, ""],
        ["/a\ud800.xmp", None, ""],
        ["/a.xmp", "not base64!", ""],
        ["/a.xmp", 1, ""],
        {},
    ],
)
def test_an_undo_file_of_a_stranger_is_refused(crnr: Runner, entry: object) -> None:
    Path(".crnr-tag-1.jsonl").write_text(f'{{"crnr_tag": 1}}\n{json.dumps(entry)}\n')
    outcome = crnr("tag", "--undo", ".crnr-tag-1.jsonl")
    message = "not an undo file of `crnr tag`; if it is in the way, remove it"
    assert outcome == Outcome(1, "", f"error: .crnr-tag-1.jsonl: {message}\n")


def test_a_folder_without_permission_is_reported(crnr: Runner) -> None:
    make()
    Path("q").chmod(0o555)
    try:
        with powerless():
            outcome = crnr("tag", "out.csv")
    finally:
        Path("q").chmod(0o755)
    assert outcome.exit == 3
    assert outcome.err.splitlines()[0].startswith("left out: q/a.jpg: ")
    assert "no permission to write" in outcome.err
    assert "no sidecars to write" in outcome.err
    assert set(contents()) == {f"{name}.jpg" for name in "abcd"}


# The process kills itself at the given number of a change to the disk.
KILLED = """
import os, signal, sys
from crnr_cli.cli import main
left = int(sys.argv.pop(1))
def watch(event, arguments):
    global left
    changes = event in ("os.rename", "os.remove") or (
        event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    )
    if changes and "crnr" in str(arguments[0]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
main()
"""


def check_killed_run(crnr: Runner, number: int) -> bool:
    """Kill a run at this change; return whether it came that far. The next run and the undo end well."""
    for path in {*Path("q").iterdir(), *Path().glob(".crnr*")}:
        path.unlink()
    for name in "abcd":
        Path(f"q/{name}.jpg").write_text(f"pixels of {name}")
    Path("q/b.jpg.xmp").write_bytes(BEFORE)
    before = contents()
    process = crnr.start(number, "tag", "out.csv", program=(sys.executable, "-c", KILLED))
    outcome = ended(process)
    was_killed = outcome.exit == -signal.SIGKILL
    assert was_killed or outcome.exit == 0, outcome
    for name, data in contents().items():
        if name.endswith(".xmp"):
            ElementTree.fromstring(data)  # whole
    assert Path("q/b.jpg.xmp").read_bytes() == BEFORE or keywords("q/b.jpg.xmp") == ["holiday", "dog"]
    assert crnr("tag", "out.csv", "-q") == Outcome(0, "", "")
    assert keywords("q/a.jpg.xmp") == ["fox", "bear"]
    assert keywords("q/b.jpg.xmp") == ["holiday", "dog"]
    assert set(contents()) == {*before, "a.jpg.xmp"}
    lists = sorted(Path().glob(".crnr-tag-*.jsonl"), reverse=True)
    for path in lists:
        assert crnr("tag", "--undo", path, "-q") == Outcome(0, "", "")
    assert contents() == before
    return was_killed


@pytest.mark.slow
def test_a_run_that_is_killed_anywhere_loses_nothing(crnr: Runner) -> None:
    make()
    reached = []
    check_each(list(range(1, 26)), lambda number: reached.append(check_killed_run(crnr, number)))
    assert reached[0]
    assert not reached[-1], "there are more changes than this test kills at"


def test_a_run_that_is_killed_between_two_sidecars_is_continued(crnr: Runner) -> None:
    make()
    assert check_killed_run(crnr, 13)
