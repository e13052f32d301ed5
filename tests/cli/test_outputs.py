"""Every output of every command: no input is overwritten, and nothing is lost if it cannot be written."""

from __future__ import annotations

import os
import shlex
import stat
from inspect import signature
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import pytest

from crnr_cli.cli import COMMANDS, function_of
from crnr_cli.cli.command import Written
from helpers.onnx_models import flat_model
from helpers.runner import Outcome, Runner, powerless
from helpers.samples import make_features, make_images

# Each output by command and parameter, as a command that writes it to {}.
OUTPUTS = {
    ("build", "path"): "build gallery -o {}",
    ("build", "cache"): "build gallery -o gallery.h5 --gray --cache {}",
    ("extract", "path"): "extract gallery -o {}",
    ("classify", "path"): "classify queries -g gallery.h5 -o {}",
    ("classify", "cache"): "classify queries -g gallery.h5 -o out.csv --cache {}",
    ("evaluate", "errors"): "evaluate out.csv --errors {}",
    ("evaluate", "confusion"): "evaluate out.csv --confusion {}",
    ("evaluate", "html"): "evaluate out.csv --html {}",
    ("review", "path"): "review out.csv -g gallery.h5 -o {}",
    ("audit", "csv"): "audit gallery.h5 --csv {}",
    ("audit", "html"): "audit gallery.h5 --html {}",
    ("compare", "csv"): "compare features.npz --methods nn --draws 1 --csv {}",
    ("tune", "path"): "tune features.npz --folds 2 --budget 0 -o {}",
    ("tune", "plot"): "tune features.npz --folds 2 --budget 0 --plot {}",
    ("explain", "path"): "explain queries/ant/9.png -g gallery.h5 -o {}",
    ("add", "arguments"): "add {} queries",
    ("add", "option"): "add -g {} queries",
    ("remove", "gallery"): "remove {} --class cow",
    ("remove", "option"): "remove -g {} --class cow",
    ("rename", "gallery"): "rename {} cow emu",
    ("correct", "gallery"): "correct {} marked.csv",
    ("export", "path"): "export out.csv --to coco -o {}",
}
IN_PLACE = {"add", "correct", "remove", "rename"}  # these change a gallery, which has to exist
# Outputs whose names have to end like this.
ENDINGS = {
    **dict.fromkeys([("tune", "plot"), ("explain", "path")], ".png"),
    **dict.fromkeys([("build", "cache"), ("classify", "cache"), ("extract", "path")], ".h5"),
}
each_output = pytest.mark.parametrize("output", OUTPUTS, ids=" ".join)


def parameters(command: str) -> dict[str, Any]:
    parameters = signature(function_of(command)).parameters
    return {name: parameter.annotation for name, parameter in parameters.items()}


def is_written(annotation: Any) -> bool:
    return any(isinstance(mark, Written) for mark in get_args(annotation)[1:])


def is_path(annotation: Any) -> bool:
    kind = next(iter(get_args(annotation)), None)
    return Path in (kind, *get_args(kind))


def test_every_output_is_in_the_table() -> None:
    found = {(c, name) for c in COMMANDS for name, kind in parameters(c).items() if is_written(kind)}
    # The first contain more than the gallery. The format decides whether the second is a file or a folder.
    assert found | {("add", "arguments"), ("export", "path")} == OUTPUTS.keys()


def test_every_other_path_is_an_input() -> None:
    """A new option with a Path is an output, and has to be marked as Written, or is known here."""
    found = {
        name
        for command in COMMANDS
        for name, kind in parameters(command).items()
        if is_path(kind) and not is_written(kind)
    }
    of_galleries = {"gallery", "like", "option", "labels", "root", "marked", "corrections", "folder"}
    of_galleries |= {"boxes", "box_root"}
    of_galleries |= {"taxa", "deployments", "metadata", "path"}  # the last of export, whose job checks it
    of_networks = {"model_path", "given", "model", "image"}
    assert found == of_galleries | of_networks | {"table", "undo", "cache"}  # the last is read by review


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands need."""
    here = tmp_path_factory.mktemp("template")
    crnr = Runner(here)
    make_images(here / "gallery")
    make_images(here / "queries", first=9, per_class=1)
    make_features(here / "features.npz")
    assert crnr("build", "gallery", "-q") == Outcome(0, "", "")
    assert crnr("classify", "queries", "-q", "-o", "out.csv") == Outcome(0, "", "")
    (here / "marked.csv").write_text("path,remove\ngallery/ant/0.png,x\n")
    return here


@pytest.fixture
def here(template: Path, crnr: Runner) -> Path:
    """The current folder, with copies of the inputs that can be overwritten without harm."""
    for source in sorted(template.rglob("*")):
        copy = crnr.here / source.relative_to(template)
        if source.is_dir():
            copy.mkdir()
        else:
            copy.write_bytes(source.read_bytes())
    return crnr.here


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of everything in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.fsencode(path.readlink()) if path.is_symlink() else b""
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = status.st_mode, content
    return found


def command_for(output: tuple[str, str], name: str) -> list[str]:
    return shlex.split(OUTPUTS[output].format(shlex.quote(name)))


def name_for(output: tuple[str, str], stem: str = "new") -> str:
    """Return a name that the output may have; a gallery that is changed exists."""
    name = stem + ENDINGS.get(output, "")
    if output[0] in IN_PLACE:
        Path(name).write_bytes(Path("gallery.h5").read_bytes())
    return name


def refused(crnr: Runner, arguments: list[str], reason: str, stdin: bytes = b"") -> None:
    """One line gives the reason, and nothing has changed."""
    before = snapshot(crnr.here)
    outcome = crnr(*arguments, stdin=stdin)
    assert outcome.exit in (1, 2), outcome
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert reason in outcome.err
    assert snapshot(crnr.here) == before


@each_output
@pytest.mark.usefixtures("here")
def test_the_command_of_the_table_writes_it(crnr: Runner, output: tuple[str, str]) -> None:
    """Otherwise the tests below would find nothing."""
    name = name_for(output)
    before = snapshot(crnr.here)
    assert crnr(*command_for(output, name)).exit == 0
    after = snapshot(crnr.here)
    assert after.keys() == {*before, name}
    assert after.pop(name) != before.pop(name, None)
    if output == ("build", "cache"):  # which writes the gallery too
        del before["gallery.h5"], after["gallery.h5"]
    assert after == before


SAMPLE, QUERY = "gallery/ant/0.png", "queries/ant/9.png"
IS_INPUT = ": is an input of this run; write to another file\n"
INSIDE = ", which is an input; write it elsewhere\n"


INPUTS = {
    f"build gallery -o {SAMPLE}": IS_INPUT,
    f"build - -o {SAMPLE}": IS_INPUT,
    f"build gallery/bee {SAMPLE} -o {SAMPLE}": IS_INPUT,
    "build features.npz -o features.npz": IS_INPUT,
    "build features.npz -o linked.png": IS_INPUT,
    f"build gallery --update -o {SAMPLE}": "not a gallery; create one with `crnr build`\n",
    "build gallery --extractor model.onnx --extractor-preset raw -o model.onnx": IS_INPUT,
    "build gallery --cache gallery/ant/0.h5 -o new.h5": IS_INPUT,
    "extract gallery -o gallery/ant/0.h5": IS_INPUT,
    "extract features.npz -o linked.h5": IS_INPUT,
    "extract gallery --extractor model.onnx --extractor-preset raw -o model.onnx": IS_INPUT,
    "extract gallery -o gallery.h5": "is a gallery; write the features to another file\n",
    "build gallery --cache gallery.h5 -o new.h5": "is a gallery, not a feature file;",
    "classify - -o queries/bee/9.png": IS_INPUT,
    f"classify queries -o {QUERY}": INSIDE,
    "classify queries -o queries/new.csv": INSIDE,
    "classify queries -o queries/../queries/ant/new.csv": INSIDE,
    "classify queries -o gallery.h5": IS_INPUT,
    f"classify queries -o {SAMPLE}": IS_INPUT,
    "classify mine.crnr-part -o mine": "mine.crnr-part is an input of this run; write to another file\n",
    "classify mine.crnr-journal -o mine": "mine.crnr-journal is an input of this run;",
    f"evaluate queries --html {QUERY}": INSIDE,
    f"evaluate queries --errors {SAMPLE}": IS_INPUT,
    f"evaluate queries/ant/9.png --confusion {QUERY}": IS_INPUT,
    "evaluate out.csv --errors out.csv": IS_INPUT,
    "evaluate out.csv --confusion gallery.h5": IS_INPUT,
    f"evaluate out.csv --html {QUERY}": IS_INPUT,
    "evaluate - --html gallery.h5": IS_INPUT,
    "review out.csv -o out.csv": IS_INPUT,
    "review out.csv -o gallery.h5": IS_INPUT,
    f"review out.csv -o {QUERY}": IS_INPUT,
    f"review out.csv -o {SAMPLE}": IS_INPUT,
    f"compare gallery --csv {SAMPLE}": INSIDE,
    f"compare gallery --test queries --csv {QUERY}": INSIDE,
    f"compare - --csv {SAMPLE}": IS_INPUT,
    "compare features.npz --csv features.npz": IS_INPUT,
    f"tune gallery -o {SAMPLE}": IS_INPUT,
    f"tune gallery --plot {SAMPLE}": INSIDE,
    f"tune - --plot {SAMPLE}": IS_INPUT,
    "tune features.npz -o features.npz": IS_INPUT,
    "tune features.npz --plot linked.png": IS_INPUT,
    f"explain {QUERY} -o {QUERY}": IS_INPUT,
    f"explain {QUERY} -o {SAMPLE}": IS_INPUT,
    "explain features.npz#1 -g features.h5 -o linked.png": IS_INPUT,
    "export out.csv --to coco -o out.csv": IS_INPUT,
    f"export out.csv --to coco -o {QUERY}": IS_INPUT,
    "export out.csv --to coco --corrections corrections.csv -o corrections.csv": IS_INPUT,
    "export out.csv --to megadetector --boxes md.json -o md.json": IS_INPUT,
    "export out.csv --to megadetector --boxes md.json -o linked.json": IS_INPUT,
    "export out.csv --to camtrap-dp --deployments new.crnr-part/deployments.csv -o new": "new: while it is "
    "written, crnr uses the name new.crnr-part, but new.crnr-part/deployments.csv is an input of this run;",
    "add gallery.h5 gallery.h5": "is a gallery, not a source of images or features;",
    "evaluate out.csv --corrections corrections.csv --errors corrections.csv": IS_INPUT,
    "add corrections.csv --corrections corrections.csv": IS_INPUT,
    "add -g gallery.h5 --corrections itself.csv": IS_INPUT,
}


@pytest.mark.parametrize("command", INPUTS)
def test_an_input_is_not_overwritten(crnr: Runner, here: Path, command: str) -> None:
    """Whether it was named, found in a folder, listed on stdin, or is mentioned in a gallery or a CSV."""
    for name in ("linked.png", "linked.h5"):
        os.link("features.npz", name)
    os.link(SAMPLE, "gallery/ant/0.h5")
    for name, path in (("corrections.csv", QUERY), ("itself.csv", "gallery.h5")):
        Path(name).write_text(f"path,label,corrected,when\n{path},ant,ant,\n")
    for name in ("mine.crnr-part", "mine.crnr-journal"):
        Path(name).write_bytes(Path(QUERY).read_bytes())
    if "export" in command:
        Path("md.json").write_text('{"images": []}')
        os.link("md.json", "linked.json")
        Path("new.crnr-part").mkdir()
        Path("new.crnr-part/deployments.csv").write_text("deploymentID,latitude,longitude\nant,50,4\n")
    if "features.h5" in command:
        assert crnr("build", "features.npz", "-o", "features.h5", "-q").exit == 0
    if "model.onnx" in command:
        pytest.importorskip("onnxruntime")
        flat_model(here / "model.onnx", ["n", 3, 8, 8])
    rows = Path("out.csv").read_bytes()
    stdin = rows if "evaluate" in command else f"{SAMPLE}\nqueries/bee/9.png\n".encode()
    refused(crnr, shlex.split(command), INPUTS[command], stdin)


def test_a_second_name_of_a_file_that_is_no_input(crnr: Runner, here: Path) -> None:
    """It gets a file of its own, and the other name keeps the old one."""
    os.link("features.npz", "linked.csv")
    old = Path("features.npz").read_bytes()
    assert crnr("classify", QUERY, "-o", "linked.csv").exit == 0
    assert Path("features.npz").read_bytes() == old


@each_output
@pytest.mark.parametrize("ending", [".crnr-part", ".crnr-journal", ".crnr-rows"])
@pytest.mark.usefixtures("here")
def test_a_link_where_the_partial_file_will_be(crnr: Runner, output: tuple[str, str], ending: str) -> None:
    name = name_for(output)
    Path("victim").write_text("secret")
    Path(name + ending).symlink_to("victim")
    refused(crnr, command_for(output, name), f"needs the name {name}{ending}, which is a link")


@each_output
def test_a_folder_without_access(crnr: Runner, here: Path, output: tuple[str, str]) -> None:
    (here / "closed").mkdir()
    name = name_for(output, "closed/new")
    before = snapshot(here)
    for mode in (0o000, 0o444, 0o555):  # neither enter nor list; not enter; not write
        (here / "closed").chmod(mode)
        with powerless():
            outcome = crnr(*command_for(output, name))
        (here / "closed").chmod(0o755)
        assert (outcome.exit, outcome.out) == (1, "")
        assert outcome.err == f"error: {name}: no permission to write; choose another place\n"
        assert snapshot(here) == before


@each_output
@pytest.mark.usefixtures("here")
def test_a_name_that_is_too_long(crnr: Runner, output: tuple[str, str]) -> None:
    name = "x" * 300 + ENDINGS.get(output, "")
    refused(crnr, command_for(output, name), "File name too long")


@each_output
@pytest.mark.usefixtures("here")
def test_a_name_that_is_almost_too_long(crnr: Runner, output: tuple[str, str]) -> None:
    """Nothing can be appended to it, but it can be written."""
    name = name_for(output, "x" * (255 - len(ENDINGS.get(output, ""))))
    before = set(crnr.files())
    assert crnr(*command_for(output, name)).exit == 0
    assert crnr.files() == before | {name}


@pytest.mark.parametrize(
    ("one", "other"),
    [pair for pair in permutations(OUTPUTS, 2) if pair[0][0] == pair[1][0] and pair[0][0] not in IN_PLACE],
)
@pytest.mark.usefixtures("here")
def test_two_outputs_with_one_name_are_refused(
    crnr: Runner, one: tuple[str, str], other: tuple[str, str]
) -> None:
    name = "z.png"
    first, second = command_for(one, name), command_for(other, f"./{name}")
    both = [*first, *second[-2:]]
    before = snapshot(crnr.here)
    outcome = crnr(*both)
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err == "error: z.png: two outputs cannot be the same file; give them different names\n"
    assert snapshot(crnr.here) == before


@each_output
@pytest.mark.parametrize("mode", [0o600, 0o664])
@pytest.mark.usefixtures("here")
def test_the_permissions_of_the_old_file_are_kept(crnr: Runner, output: tuple[str, str], mode: int) -> None:
    name = name_for(output)
    Path(name).touch()
    Path(name).chmod(mode)
    assert crnr(*command_for(output, name)).exit == 0
    assert stat.S_IMODE(Path(name).stat().st_mode) == mode
    assert Path(name).stat().st_size > 0


@pytest.mark.usefixtures("here")
def test_a_gallery_may_be_made_in_the_folder_of_its_samples(crnr: Runner) -> None:
    """The second time it is in the listing, and so is what a killed run left behind."""
    Path("gallery/gallery.h5.crnr-part").write_bytes(b"unfinished")
    crnr.here = Path("gallery").absolute()
    for _ in range(3):
        assert crnr("build", ".").exit == 0
        assert crnr.files() == {"ant", "bee", "cow", "gallery.h5"}
