"""Every path that a command takes, given as something that no file can be: one line with the problem."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import get_args

import pytest

from crnr_cli.cli import COMMANDS, function_of
from crnr_cli.cli.parsing import ExtractorName
from helpers.each import check_each
from helpers.onnx_models import flat_model
from helpers.runner import Outcome, Runner, powerless
from helpers.samples import make_features, make_images

# Each input by command and parameter, as a command that reads it from {}.
INPUTS = {
    ("build", "sources"): "build {} -o new.h5",
    ("build", "extractor"): "build gallery -o new.h5 --extractor {}",
    ("extract", "sources"): "extract {} -o new.h5",
    ("extract", "like"): "extract gallery -o new.h5 --like {}",
    ("extract", "extractor"): "extract gallery -o new.h5 --extractor {}",
    ("classify", "sources"): "classify {} -o new.csv",
    ("classify", "gallery"): "classify queries -o new.csv -g {}",
    ("classify", "model_path"): "classify queries -o new.csv --model-path {}",
    ("classify", "taxa"): "classify queries -o new.csv --min-probability 0.9 --taxa {}",
    ("evaluate", "sources"): "evaluate {}",
    ("evaluate", "taxa"): "evaluate queries --min-probability 0.9 --taxa {}",
    ("evaluate", "gallery"): "evaluate queries -g {}",
    ("evaluate", "model_path"): "evaluate queries --model-path {}",
    ("evaluate", "outsiders"): "evaluate queries --outsiders {}",
    ("review", "table"): "review {} -o new.html",
    ("review", "gallery"): "review out.csv -o new.html -g {}",
    ("review", "model_path"): "review out.csv -o new.html --model-path {}",
    ("split", "sources"): "split {} --train new --test other",
    ("sort", "table"): "sort {} sorted",
    ("sort", "undo"): "sort --undo {}",
    ("export", "table"): "export {} --to coco -o new.json",
    ("export", "corrections"): "export out.csv --to coco -o new.json --corrections {}",
    ("export", "boxes"): "export out.csv --to megadetector -o new.json --boxes {}",
    ("export", "deployments"): "export out.csv --to camtrap-dp -o new --deployments {}",
    (
        "export",
        "metadata",
    ): "export out.csv --to camtrap-dp -o new --deployments deployments.csv --metadata {}",
    ("tag", "table"): "tag {}",
    ("tag", "undo"): "tag --undo {}",
    ("tag", "taxa"): "tag out.csv --taxa {}",
    ("tag", "corrections"): "tag out.csv --corrections {}",
    ("compare", "sources"): "compare {} --methods nn",
    ("compare", "test"): "compare gallery --methods nn --test {}",
    ("compare", "extractor"): "compare gallery --methods nn --extractor {}",
    ("info", "gallery"): "info {}",
    ("info", "option"): "info -g {}",
    ("explain", "query"): "explain {}",
    ("explain", "gallery"): "explain queries/ant/9.png -g {}",
    ("explain", "model_path"): "explain queries/ant/9.png --model-path {}",
    ("tune", "sources"): "tune {}",
    ("tune", "extractor"): "tune gallery --extractor {}",
    ("add", "gallery"): "add {} queries",
    ("add", "sources"): "add gallery.h5 {}",
    ("add", "model_path"): "add gallery.h5 queries --model-path {}",
    ("add", "corrections"): "add gallery.h5 --corrections {}",
    ("evaluate", "corrections"): "evaluate out.csv --corrections {}",
    ("remove", "gallery"): "remove {} --class ant",
    ("remove", "marked"): "remove gallery.h5 --marked-in {}",
    ("rename", "gallery"): "rename {} ant emu",
    ("correct", "gallery"): "correct {} marked.csv",
    ("correct", "table"): "correct gallery.h5 {}",
    ("correct", "folder"): "correct gallery.h5 marked.csv --sources {}",
    ("audit", "sources"): "audit {}",
    ("audit", "queries"): "audit gallery.h5 --queries {}",
    ("audit", "extractor"): "audit gallery --extractor {}",
    ("model get", "given"): "model get efficientnet-lite0 --weights {}",
    ("model check", "model"): "model check {}",
    ("model check", "image"): "model check efficientnet-lite.onnx --image {}",
    ("verify", "gallery"): "verify {}",
    ("verify", "option"): "verify -g {}",
    ("verify", "source"): "verify gallery.h5 --source {}",
}
# A table of labels, for every command that reads images.
INPUTS |= {
    (command, "labels"): line.format("gallery") + " --labels {}"
    for (command, parameter), line in list(INPUTS.items())
    if parameter in ("sources", "query")
}
INPUTS |= {
    (command, "boxes"): line.replace("--labels", "--boxes")
    for (command, parameter), line in list(INPUTS.items())
    if parameter == "labels" and command != "split"
}
for table in ("labels", "boxes"):
    INPUTS["verify", table] = f"verify gallery.h5 --source gallery --{table} {{}}"
# Parameters that Typer makes paths of.
PATHS = (
    *(
        "gallery",
        "option",
        "extractor",
        "model_path",
        "given",
        "marked",
        "model",
        "image",
        "labels",
        "table",
        "undo",
    ),
    *("outsiders", "corrections", "boxes", "deployments", "metadata", "taxa"),
)
LONG = "x" * 300
# The argument, and a word that the message must have.
GIVEN = {
    "empty": ("", ""),
    "missing": ("missing", ""),
    "too long": (LONG, "File name too long"),
    "too long, csv": (f"{LONG}.csv", "File name too long"),
    "too long, features": (f"{LONG}.npz", "File name too long"),
    "in a folder too long": (f"{LONG}/x", "File name too long"),
    "NUL": ("a\0b", "null"),
    "NUL, csv": ("a\0b.csv", "null"),
    "in a closed folder": ("closed/x.png", "ermission"),
    "features in a closed folder": ("closed/x.npz", "ermission"),
    "row in a closed folder": ("closed/x.npz#1", "ermission"),
    "csv in a closed folder": ("closed/x.csv", "ermission"),
    "closed folder": ("closed", ""),
    "closed file": ("secret.h5", ""),
    "folder": ("empty folder", ""),
    "folder named like features": ("folder.npz", ""),
    "folder named like a csv": ("folder.csv", ""),
    "pipe": ("pipe", ""),
    "pipe named like features": ("pipe.npz", ""),
    "loop of links": ("loop", ""),
    "link to nowhere": ("lost", ""),
    "below a file": ("gallery.h5/x", ""),
    "device": ("/dev/null", ""),
}


def test_every_path_is_in_the_table() -> None:
    """Options with a Path, and arguments that are called SOURCE or QUERY."""
    found = set()
    for command in COMMANDS:
        for name, parameter in signature(function_of(command)).parameters.items():
            kind, *declared = get_args(parameter.annotation) or (None,)
            is_path = Path in (kind, *get_args(kind)) or any(
                type(getattr(one, "parser", None)) is ExtractorName for one in declared
            )
            is_path |= any(
                str(getattr(one, "metavar", "")).startswith(("SOURCE", "QUERY")) for one in declared
            )
            if is_path and not any(type(one).__name__ == "Written" for one in declared):
                found.add((command, name))
    changed = {("add", "gallery"), ("add", "sources"), ("remove", "gallery"), ("rename", "gallery")}
    changed.add(("correct", "gallery"))
    several = {("evaluate", "outsiders")}  # a list of paths
    never_opened = {(command, name) for command, name in found if name in ("root", "box_root")}
    never_opened.add(("export", "path"))  # the output, whose format decides whether it is a folder
    never_opened.add(("review", "cache"))  # refused by its name, unless it is a .h5 file
    assert (found | changed | several) - never_opened == INPUTS.keys()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The inputs of commands, and wrong ones instead."""
    here = tmp_path_factory.mktemp("here")
    make_images(here / "gallery")
    make_images(here / "queries", first=9, per_class=1)
    make_features(here / "features.npz")
    flat_model(here / "efficientnet-lite.onnx", ["n", 3, 8, 8])
    assert Runner(here)("build", "gallery", "-q") == Outcome(0, "", "")
    assert Runner(here)("classify", "queries", "-o", "out.csv", "-q") == Outcome(0, "", "")
    (here / "marked.csv").write_text("path,remove\ngallery/ant/0.png,x\n")
    (here / "deployments.csv").write_text(
        "deploymentID,latitude,longitude,deploymentStart,deploymentEnd\n"
        "d,0,0,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z\n"
    )
    for name in ("closed", "empty folder", "folder.npz", "folder.csv"):
        (here / name).mkdir()
    for name in ("pipe", "pipe.npz"):
        os.mkfifo(here / name)
    (here / "loop").symlink_to("loop")
    (here / "lost").symlink_to("nowhere")
    (here / "secret.h5").write_bytes((here / "gallery.h5").read_bytes())
    for name in ("closed", "secret.h5"):
        (here / name).chmod(0)
    yield here
    (here / "closed").chmod(0o755)


@pytest.mark.parametrize("argument", INPUTS, ids=" ".join)
def test_paths_that_cannot_be_used(here: Path, argument: tuple[str, str]) -> None:
    # Typer does not take a path with NUL, and no program can be given one.
    cases = [given for given, (value, _) in GIVEN.items() if "\0" not in value or argument[1] not in PATHS]
    check_each(cases, lambda given: check_refusal(here, argument, given))


def check_refusal(here: Path, argument: tuple[str, str], given: str) -> None:
    """Run the command with something else for its path: it prints one line, and changes nothing."""
    value, reason = GIVEN[given]
    arguments = shlex.split(INPUTS[argument].format("@"))
    arguments[arguments.index("@")] = value
    before = {path: path.lstat().st_mtime_ns for path in here.iterdir()}
    signal.alarm(60)  # nothing may wait for a pipe without a writer
    try:
        with powerless():
            outcome = Runner(here)(*arguments)
    finally:
        signal.alarm(0)
    for name in ("new.csv", "new.h5"):
        (here / name).unlink(missing_ok=True)
    assert {path: path.lstat().st_mtime_ns for path in here.iterdir()} == before
    if outcome.exit == 3:  # an input among others that cannot be used has its row
        assert argument == ("classify", "sources")
        assert "failed: " in outcome.err
        return
    assert outcome.exit in (1, 2), outcome
    assert outcome.out == ""
    *notes, error = outcome.err.splitlines()
    assert error.startswith("error: ")
    assert all(note.startswith(("failed: ", "missing: ", "... and ")) for note in notes)
    assert reason in error or "was built without a network" in error
    if given == "empty" and argument[1] in ("sources", "query", "test", "against"):
        assert error == "error: the name of a source is empty; is a variable of your script not set?"
    if given == "closed file" and argument[1] == "gallery":
        path = Path("secret.h5")
        assert error in (
            f"error: {path}: cannot read it (Permission denied)",
            f"error: {path}: no permission to write; choose another place",
        )
    if "closed folder" in given:
        assert "--update" not in error
    if "in a closed folder" in given:
        assert "crnr build" not in error  # nothing has to be built
