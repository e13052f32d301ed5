"""The JSON Schemas in docs/reference/schemas: each --json output follows its schema, and no key is missing.

A command that prints a new key fails here until docs/reference/schemas/COMMAND.json describes the key.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from crnr_cli.exports.xmp import SUBJECT, make_sidecar
from crnr_cli.images.pool import DecoderPool
from crnr_cli.jobs import model
from helpers.lite import TINY, add_tiny_model
from helpers.onnx_models import flat_model
from helpers.paths import DOCS, TESTS
from helpers.runner import Runner, declared_commands
from helpers.samples import make_features, make_images, noise

FOLDER = DOCS / "reference" / "schemas"
COMMON = "common"  # definitions that several schemas share
NETWORK = "model.onnx --extractor-preset raw --size 8x8"
# Command lines by schema. Those of a group run in this order, in the folder that `ready` describes.
LINES = {
    "build": [
        "build gallery -o b.h5",
        "build gallery -o b.h5 --update",
        "build gallery -o e.h5 --event-gap 60s",
        "build gallery more -o b.h5 --update --dry-run",
        "build features.npz -o b.h5 --calibrate --neighbors 5 --index hnsw --pca 3 --power 0.5",
        "build gallery -o b.h5 --parts 2x2 --extractor pixels --size 8x8 --method nn --allow-skipped",
        f"build photos -o b.h5 --extractor {NETWORK} --mirror --whiten 0.9",
    ],
    "add": ["add a.h5 more --dry-run", "add a.h5 more"],
    "remove": [
        "remove a.h5 --example gallery/ant/0.png --dry-run",
        "remove a.h5 --example gallery/ant/0.png",
    ],
    "rename": ["rename a.h5 ant emu"],
    "correct": [
        "correct mixed.h5 marks.csv --dry-run",
        "correct mixed.h5 marks.csv --dry-run --sources mixed",
        "correct mixed.h5 marks.csv",
        "correct mixed.h5 marks.csv --sources mixed",
    ],
    "info": [
        "info",
        "info a.h5",
        "info features.npz",
        "info odd.npz",
        "info --list-examples",
        "info network.h5",
        "info calibrated.h5 --target-accuracy 0.5",
        "info calibrated.h5 --target-accuracy 1",
        f"info {shlex.quote(str(TESTS))}/data/gallery-v1.h5",
        f"info {shlex.quote(str(TESTS))}/data/gallery-steps-v1.h5 --list-examples",
    ],
    "verify": ["verify", "verify gallery.h5 --source gallery"],
    "classify": [
        "classify queries",
        "classify queries --allow-skipped --reject 0.05 --sets 0.9 -g calibrated.h5",
        "classify queries --top 2 -g calibrated.h5",
        "classify queries --dates",
        "classify queries --dates file --boxes boxes.csv --format jsonl",
        "classify queries --allow-skipped --min-probability 1 --taxa taxa.csv -g calibrated.h5",
        "classify queries --allow-skipped --dates file --event-gap 1h -g calibrated.h5",
        "classify features.npz -g features.h5",
    ],
    "evaluate": [
        "evaluate queries --allow-skipped",
        "evaluate queries --allow-skipped -g calibrated.h5 --reject 0.2 --sets 0.9 --outsiders others",
        "evaluate queries --allow-skipped -g calibrated.h5 --outsiders others --target-accuracy 0.5",
        "evaluate out.csv",
        "evaluate queries --allow-skipped --min-probability 1 --taxa taxa.csv -g calibrated.h5",
        "evaluate events.csv",
        "evaluate features.npz -g features.h5",
    ],
    "explain": [
        "explain queries/ant/9.png",
        "explain queries/ant/9.png -g calibrated.h5 --compare-with nn",
        "explain queries/ant/9.png -g tiles.h5",
        "explain features.npz#1 -g features.h5 --compare-with nn",
    ],
    "audit": [
        "audit dirty --queries queries --allow-skipped",
        "audit gallery.h5",
        "audit dirty --all",
        "audit features.npz",
    ],
    "review": ["review out.csv -o r.html"],
    "compare": ["compare gallery --holdout 0.5 --draws 2 --methods crnr,nn,crc"],
    "tune": ["tune features.npz --folds 2 --try-pca 2,3"],
    "split": [
        "split dirty --train tr --test te --dry-run",
        "split dirty --train tr --test te --dry-run --event-gap 5m",
        "split dirty --train tr --test te --group-similar",
    ],
    "sort": [
        "sort out.csv sorted --dry-run --allow-skipped",
        "sort out.csv sorted --allow-skipped",
        "sort --undo sorted/.crnr-sort-1.jsonl",
    ],
    "tag": [
        "tag answers.csv --dry-run",
        "tag answers.csv",
        "tag --undo .crnr-tag-1.jsonl",
    ],
    "export": [
        "export answers.csv --to megadetector -o md.json",
        "export answers.csv --to label-studio -o tasks.json",
        "export answers.csv --to coco -o coco.json",
        "export answers.csv --to camtrap-dp -o dp --deployments deployments.csv",
    ],
    "extract": [
        "extract queries -o f.h5 --allow-skipped",
        "extract queries -o f.h5 --update --allow-skipped",
        "extract queries -o like.h5 --like gallery.h5 --dates --allow-skipped",
    ],
    "model-list": ["model list"],
    "model-get": [f"model get {TINY}", f"model get {TINY}"],
    "model-check": [f"model check {NETWORK}", f"model check {NETWORK} --image photos/ant/0.png"],
}
# Lines that import scikit-learn, whose methods have other scores, or that take long; they run in this order.
SLOW_LINES = (
    "build gallery -o s.h5 --method svm",
    "audit s.h5 --all",
    "explain features.npz#1 -g features.h5 --compare-with svm",
    "compare gallery --holdout 0.5 --draws 2 --methods crnr,svm,softmax",
    "tune gallery --folds 2",
)
# Options that add keys to the output, or print another one.
TELLING = (
    "--dry-run",
    "--undo",
    "--list-examples",
    "--all",
    "--target-accuracy",
    "--sets",
    "--top",
    "--dates",
)
# Keys that no line above prints: for similar classes and for scenes, and for a network of a hub.
UNSEEN = {"audit": {"classes", "confused", "share", "mirrored"}, "model-get": {"commit"}}
# The keys of objects that have others too, which depend on the extractor or on the method.
OPEN = (["name"], ["method", "accuracy", "interval", "lead", "lead_error"])
# A correction, a removal, a confirmed label, and a file that changes after the gallery was built.
MARKS = """path,label,corrected,remove
mixed/ant/0.png,ant,bee,
mixed/bee/0.png,bee,,x
mixed/cow/0.png,cow,cow,
mixed/cow/1.png,cow,ant,
"""
# Labels for a new sidecar, for an old one and for a box, a rejected query, and a file that is gone.
ANSWERS = """path,truth,label,status,probability,timestamp
shots/ant/0.png,,ant,ok,0.9,2026-07-01T05:06:07Z
shots/ant/1.png,,bee,ok,0.8,2026-07-01T05:06:08Z
"shots/ant/2.png#0.1,0.25,0.5,0.3",,ant,ok,0.7,2026-07-01T05:06:09Z
shots/ant/3.png,,unknown,rejected,0.2,
shots/ant/gone.png,,ant,ok,0.6,
"""
DEPLOYMENTS = """deploymentID,latitude,longitude,deploymentStart,deploymentEnd
d1,52.5,13.4,2026-01-01T00:00:00Z,2026-12-31T00:00:00Z
"""
Schema = dict[str, Any]


@cache
def schema(name: str) -> Schema:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@cache
def validator(name: str) -> Draft202012Validator:
    names = [path.stem for path in FOLDER.glob("*.json")]
    resources = [(f"{each}.json", Resource.from_contents(schema(each))) for each in names]
    return Draft202012Validator({"$ref": f"{name}.json"}, registry=Registry().with_resources(resources))


def find_nested(value: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object in a JSON value, with the key that it is found at."""
    if isinstance(value, dict):
        yield name, value
        for key, each in value.items():
            yield from find_nested(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from find_nested(each, name)


def find_keys(document: Any) -> set[str]:
    return {key for _, each in find_nested(document) for key in each}


def find_described_keys(name: str) -> set[str]:
    parts = [part["properties"] for _, part in find_nested(schema(name)) if is_closable(part)]
    return {key for properties in parts for key in properties}


def is_closable(part: Schema) -> bool:
    """Return whether a part of a schema describes the keys of an object."""
    properties = part.get("properties")
    return isinstance(properties, dict) and all(isinstance(each, dict) for each in properties.values())


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Folders of images and feature files, galleries of them, predictions, and a network."""
    here = tmp_path_factory.mktemp("schemas")
    crnr = Runner(here)
    make_images(here / "gallery")
    make_images(here / "queries", per_class=2, first=9)
    (here / "queries" / "ant" / "bad.png").write_bytes(b"no image")
    make_images(here / "more", ("ant", "dog"), per_class=2, first=20)
    make_images(here / "photos", per_class=3, size=(40, 36))
    make_images(here / "dirty", per_class=6)
    (here / "dirty/bee/copy.png").write_bytes((here / "dirty/ant/0.png").read_bytes())
    noise(1).save(here / "dirty/ant/odd.png")
    (here / "others").mkdir()
    for i in range(4):
        noise(i).save(here / "others" / f"{i}.png")
    make_images(here / "mixed", per_class=5)
    (here / "marks.csv").write_text(MARKS)
    make_images(here / "shots", ("ant",), per_class=4)
    (here / "shots/ant/1.png.xmp").write_bytes(make_sidecar({SUBJECT: ["holiday"]}))
    (here / "answers.csv").write_text(ANSWERS)
    (here / "deployments.csv").write_text(DEPLOYMENTS)
    (here / "boxes.csv").write_text("path,x,y,width,height\nqueries/ant/9.png,0,0,4,4\n")
    make_features(here / "features.npz")
    (here / "taxa.csv").write_text("class,parent\nant,insect\nbee,insect\n")
    np.savez(here / "odd.npz", a=np.eye(3), b=np.eye(3))
    flat_model(here / "model.onnx", ["n", 3, 8, 8])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("CRNR_MODELS", str(here / "models"))
        patch.setattr(model, "_SECONDS", 0)
        # The decoders of the lines before are kept: one that just started would be slower.
        patch.setattr(DecoderPool, "start_early", lambda self: None)
        add_tiny_model(here, patch)
        for line in (
            "build gallery",
            "build gallery -o a.h5",
            "build gallery --calibrate -o calibrated.h5",
            "build features.npz -o features.h5",
            "build mixed -o mixed.h5",
            "build gallery -o tiles.h5 --parts 2x2 --extractor pixels",
            f"build photos -o network.h5 --extractor {NETWORK}",
            "classify queries -o out.csv --allow-skipped",
            "classify queries -o events.csv --allow-skipped --event-gap 60s",
        ):
            outcome = crnr(*shlex.split(line), "-q")
            assert outcome.exit == 0, outcome.err
        noise(2).save(here / "mixed/cow/1.png")  # an example that has changed cannot be moved
        yield crnr


@pytest.fixture(scope="module")
def print_documents(ready: Runner) -> Callable[[str], list[Any]]:
    """A function that returns the JSON that the lines of a schema print, which run once."""

    @cache
    def run_lines(name: str) -> list[Any]:
        return [document for line in LINES[name] for document in run_line(ready, line)]

    return run_lines


def run_line(crnr: Runner, line: str) -> list[Any]:
    """Return the JSON that a line prints: one document or, of classify, one per query."""
    outcome = crnr(*shlex.split(line), "--json")
    assert outcome.exit in (0, 3), (line, outcome.err)
    assert outcome.out, line
    return [
        json.loads(each)
        for each in (outcome.out.splitlines() if line.startswith("classify") else [outcome.out])
    ]


def find_errors(name: str, document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(document)][:3]


@pytest.mark.parametrize("name", LINES)
def test_json_output_follows_its_schema(print_documents: Callable[[str], list[Any]], name: str) -> None:
    for document in print_documents(name):
        assert not find_errors(name, document)


@pytest.mark.slow
def test_json_output_of_slow_lines_follows_its_schema(ready: Runner) -> None:
    for line in SLOW_LINES:
        for document in run_line(ready, line):
            assert not find_errors(line.partition(" ")[0], document), line


def test_json_of_a_network_that_cannot_be_used_follows_its_schema(ready: Runner) -> None:
    (ready.here / "bad.onnx").write_bytes(b"no network")
    for name in ("bad.onnx", "model.onnx"):  # the latter needs a preset
        outcome = ready("model", "check", name, "--json")
        assert outcome.exit in (1, 2), outcome.err
        assert not find_errors("model-check", json.loads(outcome.out))


@pytest.mark.parametrize("name", LINES)
def test_a_new_key_does_not_follow_the_schema(print_documents: Callable[[str], list[Any]], name: str) -> None:
    for document in print_documents(name):
        changed = copy.deepcopy(document)
        first = changed[0] if isinstance(changed, list) else changed
        first["a new key"] = 1
        assert not validator(name).is_valid(changed)


def test_every_described_key_is_printed(print_documents: Callable[[str], list[Any]]) -> None:
    seen = {name: find_keys(print_documents(name)) for name in LINES}
    for name, keys in seen.items():
        assert find_described_keys(name) - keys <= UNSEEN.get(name, set()), name
    assert find_described_keys(COMMON) <= set().union(*seen.values())


def test_every_command_with_json_has_a_schema() -> None:
    printing = {
        name.replace(" ", "-")
        for name, command in declared_commands().items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert {path.stem for path in FOLDER.glob("*.json")} == {*printing, COMMON}
    assert set(LINES) == printing


@pytest.mark.parametrize("name", LINES)
def test_options_that_change_the_keys_have_a_line(name: str) -> None:
    words = {word for line in LINES[name] for word in shlex.split(line)}
    declared = {
        opt for parameter in declared_commands()[name.replace("-", " ")].params for opt in parameter.opts
    }
    assert declared.intersection(TELLING) <= words


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_schemas_are_strict_and_describe_every_key(path: Path) -> None:
    whole = schema(path.stem)
    Draft202012Validator.check_schema(whole)
    assert whole["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert whole["title"]
    shared = whole.get("$defs", {}).values() if path.stem == COMMON else ()
    for _, part in filter(lambda found: is_closable(found[1]), find_nested(whole)):
        for key, each in part["properties"].items():
            assert re.fullmatch(r".*\w\.", each["description"]), (key, each)
        # A shared part is closed where it is used, because it may be used with more keys.
        is_shared = any(part is each for each in shared)
        is_closed = False in (part.get("additionalProperties"), part.get("unevaluatedProperties"))
        assert is_closed or is_shared or list(part["properties"]) in OPEN, part


def test_page_lists_every_schema() -> None:
    page = (DOCS / "reference" / "json.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(schemas/([\w-]+)\.json\)", page))
    assert linked == {path.stem for path in FOLDER.glob("*.json")}
