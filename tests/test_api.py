"""Galleries from Python: the same answers as the commands, to the last digit, as typed values."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from threadpoolctl import ThreadpoolController

import crnr_cli
from crnr_cli import Answer, CrnrError, Gallery
from crnr_cli.arrays import Batch
from crnr_cli.errors import DataError, GalleryError, UsageError
from crnr_cli.gallery.queries import Run
from helpers.latch import Latch
from helpers.onnx_models import projection_model
from helpers.patches import open_at_product_threads
from helpers.paths import ROOT, SAMPLE_DATA
from helpers.runner import KERNEL, Runner, rows
from helpers.samples import make_features, make_images, noise

BUILDS: dict[str, tuple[str, ...]] = {
    "gradients": ("gallery", "--calibrate"),
    "pixels": ("gallery", "--extractor", "pixels", "--dtype", "float64"),
    "network": ("gallery", "--extractor", "model.onnx", "--extractor-preset", "imagenet", "--crop", "0"),
    "parts": ("gallery", "--extractor", "pixels", "--parts", "2x2", "--method", "crc"),
    "nearest": ("gallery", "--extractor", "pixels", "--method", "nn"),
    "scores": ("gallery", "--extractor", "pixels", "--method", "softmax", "--calibrate"),
    "features": ("features.npz", "--pca", "4", "--calibrate"),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reject": 0.5},
    {"min_probability": 0.95, "top": 2},
    {"sets": 0.8},
    {"reject": 0.3, "min_probability": 0.5, "sets": 0.9, "top": 9, "jobs": 1},
]
NUMBERS = ("residual", "margin", "separation")
# Every gallery without options and with most of them, and two with each.
CASES = [
    (name, keywords)
    for name in BUILDS
    for keywords in (OPTIONS if name in ("pixels", "features") else (OPTIONS[0], OPTIONS[-1]))
]

each_gallery = pytest.mark.parametrize("name", BUILDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Galleries of every kind, and queries of which some cannot be used."""
    here = tmp_path_factory.mktemp("galleries")
    crnr = Runner(here)
    make_images(here / "gallery", per_class=6)
    make_images(here / "queries", per_class=3, first=20)
    (here / "queries" / "bee" / "text.png").write_text("no image")
    (here / "queries" / "notes.txt").write_text("no image either")
    Image.new("L", (8, 8), 90).save(here / "queries" / "blank.png")
    noise(1).save(here / "queries" / "noise.png")
    projection_model(here / "model.onnx")
    make_features(here / "features.npz")
    make_features(here / "more.npz", per_class=2, seed=1)
    with np.load(here / "more.npz") as more:
        values, labels = more["features"].copy(), more["labels"]
    values[1], values[3, 2] = 0, np.nan
    np.savez(here / "queries.npz", features=values, labels=labels)
    np.savez(here / "bare.npz", features=values)
    for name, build in BUILDS.items():
        assert crnr("build", *build, "-o", f"{name}.h5", "-q").exit == 0
    return here


@pytest.fixture
def crnr(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.chdir(folder)
    return Runner(folder)


def source_of(name: str) -> str:
    return "queries.npz" if name == "features" else "queries"


def as_options(keywords: dict[str, Any]) -> list[str]:
    return [text for key, value in keywords.items() for text in (f"--{key.replace('_', '-')}", str(value))]


def as_record(answer: Answer, keys: list[str]) -> dict[str, Any]:
    """Return what the command writes as JSON, by way of JSON."""
    plain = dataclasses.asdict(answer)
    return json.loads(json.dumps({key: plain[key] for key in keys}))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "keywords"), CASES, ids=str)
def test_the_same_answers_as_the_json_of_the_command(
    crnr: Runner, name: str, keywords: dict[str, Any]
) -> None:
    command = ("classify", source_of(name), "-g", f"{name}.h5", "--json", "-q", "--allow-skipped")
    written = crnr(*command, *as_options(keywords))
    assert (written.exit, written.err) == (0, "")
    expected = [json.loads(line) for line in written.out.splitlines()]
    found = Gallery.load(f"{name}.h5").classify(source_of(name), **keywords)
    assert [as_record(answer, list(expected[0])) for answer in found] == expected
    assert {answer.status for answer in found} >= {"ok", "zero_norm"}
    for answer, record in zip(found, expected, strict=True):  # the order of the classes too
        assert list(answer.residuals or ()) == list(record["residuals"] or ())
        # Left out by the command.
        missing = {"probability", "set", "probabilities"} - record.keys()
        assert {getattr(answer, key) for key in missing} <= {None}
        assert (answer.error is None) == (answer.label is not None)
        assert answer.ok == (answer.status == "ok")


@pytest.mark.parametrize("name", ["gradients", "pixels", "features"])
def test_the_same_digits_as_the_csv(crnr: Runner, name: str) -> None:
    written = crnr("classify", source_of(name), "-g", f"{name}.h5", "-q", "--allow-skipped", "--sets", "0.9")
    assert written.exit == 0
    gallery = Gallery.load(f"{name}.h5")
    found = gallery.classify(Path(source_of(name)), sets=0.9)
    dtype = gallery.describe()["dtype"]

    def shown(value: float | None) -> str:
        if value is None:
            return ""
        return f"{value:.9g}" if dtype == "float32" else repr(value)

    for answer, row in zip(found, rows(written.out), strict=True):
        for key in ("path", "truth", "label", "runner_up", "status"):
            assert (getattr(answer, key) or "") == row[key]
        assert [shown(getattr(answer, key)) for key in NUMBERS] == [row[key] for key in NUMBERS]
        assert "|".join(answer.set or ()) == row["set"]
        if answer.ok:
            assert f"{answer.probability:.4f}" == row["probability"]
        residuals = answer.residuals or dict.fromkeys(gallery.classes)
        assert {f"residual:{key}": shown(value) for key, value in residuals.items()}.items() <= row.items()


@each_gallery
def test_the_same_explanation_as_the_command(
    crnr: Runner, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crnr_cli.api.available_cores", lambda: 1)  # as for all commands in this process
    query = "queries.npz#4" if name == "features" else "queries/bee/21.png"
    printed = crnr("explain", query, "-g", f"{name}.h5", "--json", "--compare-with", "nrc")
    assert (printed.exit, printed.err) == (0, "")
    expected = json.loads(printed.out)
    found = Gallery.load(f"{name}.h5").explain(query, against="nrc")
    assert (found.query, found.truth) == (expected["query"], expected["truth"])
    assert found.against is not None
    both = [found, found.against]
    assert [json.loads(json.dumps(one.record())) for one in both] == expected["explanations"]
    first = expected["explanations"][0]
    assert (found.label, found.runner_up, found.method) == (
        first["label"],
        first["runner_up"],
        first["method"],
    )
    assert [sample.name for sample in found.strongest] == [sample["name"] for sample in first["strongest"]]
    assert (found.parts is None) == ("parts" not in first)


@pytest.mark.slow
def test_digits_do_not_depend_on_the_threads_of_the_program(crnr: Runner) -> None:
    """A program may have loaded NumPy with any number of threads; afterwards it has as many as before."""
    crnr("build", SAMPLE_DATA / "gallery", "-o", "digits.h5", "-q")
    code = """
import json, sys
from crnr_cli import Gallery
from threadpoolctl import threadpool_info
before = threadpool_info()
gallery = Gallery.load("digits.h5")
found = gallery.classify(sys.argv[1])
print(json.dumps([*(answer.residuals for answer in found), gallery.explain(found[0].path).residuals]))
print(all(library in threadpool_info() for library in before), file=sys.stderr)
"""
    source = str(SAMPLE_DATA / "queries")
    written = crnr.process("classify", source, "-g", "digits.h5", "--json", "-q")
    assert (written.exit, written.err) == (0, "")
    expected = [json.loads(line)["residuals"] for line in written.out.splitlines()]
    first = json.loads(written.out.splitlines()[0])["path"]
    explained = crnr.process("explain", first, "-g", "digits.h5", "--json")
    expected.append(json.loads(explained.out)["explanations"][0]["residuals"])
    for threads in ("1", "2"):
        program = (sys.executable, "-c", code, source)
        environment = {"OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": str(ROOT), **KERNEL}
        found = crnr.process(program=program, env=environment)
        assert (found.exit, found.err) == (0, "True\n")
        assert json.loads(found.out) == expected


def test_explain_between_two_batches_leaves_their_threads(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is computed meanwhile and those that follow have one thread per product, as the first."""
    gallery = Gallery.load("features.h5")
    libraries = ThreadpoolController().select(internal_api="openblas")
    found: list[int] = []
    answer_batch = Run._answer_batch
    changing, seen = Latch(), Latch()

    def answer_late(self: Run, truth_of: Any, known: Any, batch: Batch) -> Any:
        if batch.end > 1:
            changing.wait()
            # The number of faiss is one for each thread of the program.
            found.extend(one["num_threads"] for one in libraries.info() if "faiss" not in one["filepath"])
            seen.count_down()
        return answer_batch(self, truth_of, known, batch)

    monkeypatch.setattr(Run, "_answer_batch", answer_late)
    monkeypatch.setattr("crnr_cli.gallery.queries.queries_per_batch", lambda gallery, recipe, options: 1)
    monkeypatch.setattr("crnr_cli.api.available_cores", lambda: 3)
    answers = gallery.iter_classify("more.npz")
    first = next(answers)
    open_at_product_threads(changing, seen, monkeypatch.setattr)
    assert gallery.explain("more.npz#0").label == first.label
    assert len(list(answers)) > 3
    assert set(found) == {1}


def test_rows_of_an_array_get_the_answers_of_a_file(crnr: Runner) -> None:
    gallery = Gallery.load("features.h5")
    with np.load("bare.npz") as stored:
        values = stored["features"]
    expected = gallery.classify("bare.npz", sets=0.9)
    found = gallery.classify(values, sets=0.9)
    assert [answer.path for answer in found] == [f"row {i}" for i in range(len(values))]
    assert [dataclasses.replace(answer, path="") for answer in found] == [
        dataclasses.replace(answer, path="") for answer in expected
    ]
    (alone,) = gallery.classify(values[0])
    assert alone.label == found[0].label
    (swapped,) = gallery.classify(values[:1].astype(">f8"))
    assert swapped.residual == pytest.approx(alone.residual)
    explained = gallery.explain(values[4])
    assert dataclasses.replace(explained, query="") == dataclasses.replace(
        gallery.explain("bare.npz#4"), query=""
    )
    assert gallery.classify(values[:0]) == []


def test_paths_in_every_form(crnr: Runner) -> None:
    gallery = Gallery.load(Path("pixels.h5"))
    names = ["queries/ant/20.png", "queries/cow/21.png"]
    expected = gallery.classify(names)
    assert [answer.label for answer in expected] == ["ant", "cow"]
    assert [answer.truth for answer in expected] == ["ant", "cow"]
    assert gallery.classify(map(Path, names)) == expected
    assert gallery.classify(tuple(names)) == expected
    assert gallery.classify(np.array(names, dtype=object)) == expected
    assert list(gallery.iter_classify(iter(names))) == expected
    assert gallery.classify(names[0])[0].label == "ant"
    assert gallery.classify([]) == []
    folders = gallery.classify(["queries/ant", "queries/cow"])
    assert [answer.path for answer in folders][:1] == names[:1]


def test_a_file_of_several_that_is_missing_has_a_status(crnr: Runner) -> None:
    gallery = Gallery.load("pixels.h5")
    for names in (["nothing.png", "queries/ant/20.png"], ["nothing.png"], [Path("nothing.png")]):
        missing = gallery.classify(names)[0]
        assert (missing.path, missing.status, missing.label) == ("nothing.png", "vanished", None)
        assert missing.error == "no such file"
        assert missing.residuals is None


def test_a_name_that_no_file_can_have_has_a_status_too(crnr: Runner) -> None:
    found = Gallery.load("pixels.h5").classify(["a\0b.png", "x" * 300, "queries/ant/20.png"])
    assert [answer.status for answer in found] == ["unreadable", "unreadable", "ok"]


def test_features_and_labels_of_other_names(crnr: Runner) -> None:
    with np.load("queries.npz") as stored:
        np.savez("named.npz", values=stored["features"], kinds=stored["labels"])
    gallery = Gallery.load("features.h5")
    expected = gallery.classify("queries.npz")
    keys = {"features_key": "values", "labels_key": "kinds"}
    found = gallery.classify("named.npz", **keys)
    assert [dataclasses.replace(answer, path="") for answer in found] == [
        dataclasses.replace(answer, path="") for answer in expected
    ]
    assert gallery.explain("named.npz#4", **keys).truth == expected[4].truth == "cow"


def test_images_of_too_many_pixels_are_not_decoded(crnr: Runner) -> None:
    (answer,) = Gallery.load("pixels.h5", max_pixels=63).classify(["queries/ant/20.png"])
    (row,) = rows(crnr("classify", "queries/ant/20.png", "-g", "pixels.h5", "--max-pixels", 63).out)
    assert answer.status == row["status"] != "ok"


def test_empty_folders_have_no_answers(crnr: Runner, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    gallery = Gallery.load("pixels.h5")
    assert gallery.classify([tmp_path / "empty"]) == []
    with pytest.raises(DataError, match="contains no images or feature files"):
        gallery.classify(tmp_path / "empty")


def test_a_dash_is_a_file_and_not_stdin(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    (answer,) = Gallery.load("pixels.h5").classify(["-"])
    assert (answer.path, answer.status) == ("./-", "vanished")


def loaded(*path: str, **keywords: Any) -> Any:
    return lambda _: Gallery.load(*path, **keywords)


def classified(inputs: Any, **keywords: Any) -> Any:
    return lambda gallery: gallery.classify(inputs, **keywords)


def explained(query: Any, **keywords: Any) -> Any:
    return lambda gallery: gallery.explain(query, **keywords)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (DataError, "nothing.png: no such file or folder", classified("nothing.png")),
        (DataError, "nothing.npz: no such file or folder", classified(["nothing.npz"])),
        (
            DataError,
            "the array: contains features, but the gallery was built from images",
            classified(np.eye(3)),
        ),
        (DataError, "the array: features must be a table of numbers", classified(np.ones((1, 1, 1)))),
        (UsageError, "the name of a source is empty", classified([""])),
        (UsageError, "reject must be a number from 0 to 1, not 1.5", classified("queries", reject=1.5)),
        (UsageError, "sets must be a number from 0 to 1, not nan", classified("queries", sets=np.nan)),
        (UsageError, "top must be a whole number of at least 0, not -1", classified("queries", top=-1)),
        (UsageError, "jobs must be a whole number of at least 1, not -1", classified("queries", jobs=-1)),
        (UsageError, "method: 'ncr' is not one of", explained("queries/ant/20.png", against="ncr")),
        (UsageError, "queries: explain takes one image", explained("queries")),
        (DataError, "queries/blank.png: nothing to compare", explained("queries/blank.png")),
        (GalleryError, "nothing.h5: no such gallery", loaded("nothing.h5")),
        (GalleryError, "features.npz: not a gallery; create one with `crnr build`", loaded("features.npz")),
        (UsageError, "provider: 'gpu' is not one of", loaded("pixels.h5", provider="gpu")),
        (UsageError, "max_pixels must be a whole number of at least 1", loaded("pixels.h5", max_pixels=0)),
        (UsageError, "pixels.h5: was built without", loaded("pixels.h5", extractor="model.onnx")),
        (TypeError, "a query must be a path, or all queries an array", classified([0.5])),
    ],
)
def test_errors_are_our_own_and_have_the_words_of_the_command(
    crnr: Runner, error: type[Exception], message: str, call: Any
) -> None:
    gallery = Gallery.load("pixels.h5")
    with pytest.raises(error) as raised:
        call(gallery)
    assert message in str(raised.value)
    assert isinstance(raised.value, CrnrError) or error is TypeError


def test_explain_takes_one_row(crnr: Runner) -> None:
    with pytest.raises(UsageError, match=r"^explain takes one row of features, not 2$"):
        Gallery.load("features.h5").explain(np.eye(6)[:2])


def test_a_network_that_has_moved(crnr: Runner, tmp_path: Path) -> None:
    expected = Gallery.load("network.h5").classify("queries")
    (tmp_path / "network.h5").write_bytes(Path("network.h5").read_bytes())
    moved = projection_model(tmp_path / "elsewhere.onnx")
    gallery = Gallery.load(tmp_path / "network.h5", extractor=moved, provider="cpu")
    assert gallery.classify("queries") == expected


def test_a_calibration_is_computed_once(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = Gallery.load("pixels.h5")
    assert gallery.classify("queries")[0].probability is None
    (first, *_) = gallery.classify("queries", min_probability=0)
    monkeypatch.setattr("crnr_cli.gallery.gallery.calibrate", None)
    assert gallery.classify("queries", sets=0.9)[0].probability == first.probability
    assert gallery.classify("queries", reject=0.1)[0].probability is None  # as in the CSV


def test_answers_come_batch_by_batch(crnr: Runner) -> None:
    values = np.random.default_rng(0).random((5000, 6))
    answers = Gallery.load("features.h5").iter_classify(values, top=1)
    assert next(answers).path == "row 0"
    answers.close()  # type: ignore[attr-defined]


def test_threads_may_share_a_gallery(crnr: Runner) -> None:
    gallery = Gallery.load("pixels.h5")
    expected = gallery.classify("queries")
    found: list[list[Answer]] = []
    threads = [
        threading.Thread(target=lambda: found.append(gallery.classify("queries", jobs=1))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 3


def test_gallery_describes_itself(crnr: Runner) -> None:
    gallery = Gallery.load("gradients.h5")
    assert gallery.classes == ("ant", "bee", "cow")
    assert gallery.samples[:2] == ("gallery/ant/0.png", "gallery/ant/1.png")
    about = json.loads(crnr("info", "gradients.h5", "--json").out)
    described = json.loads(json.dumps(gallery.describe()))
    assert {key: value for key, value in about.items() if key not in ("gallery", "bytes")} == described
    assert repr(gallery) == "<Gallery gradients.h5: crnr, 18 examples, 3 classes>"


def test_answers_are_values(crnr: Runner) -> None:
    (answer,) = Gallery.load("pixels.h5").classify(["queries/ant/20.png"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.label = "bee"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="has no attribute 'Galery'"):
        _ = crnr_cli.Galery  # type: ignore[attr-defined]


SNIPPET = """
from pathlib import Path

from crnr_cli import Answer, CrnrError, Explanation, Gallery

def labels(folder: Path) -> dict[str, str | None]:
    gallery: Gallery = Gallery.load("gallery.h5")
    answers: list[Answer] = gallery.classify([folder / "a.png", "b.png"], reject=0.05, top=3)
    try:
        why: Explanation = gallery.explain(folder / "a.png", against="nrc")
    except CrnrError:
        raise
    weight: float = why.strongest[0].weight
    return {answer.path: answer.label for answer in answers if weight > 0}
"""


@pytest.mark.slow
def test_the_types_are_seen_by_mypy(tmp_path: Path) -> None:
    """In a user's program, whose settings are not the project's; only the mistake is reported."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    mistake = SNIPPET.count("\n") + 1
    (tmp_path / "program.py").write_text(SNIPPET + "print(labels(Path()), Gallery.load(1))\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    complaint, total = done.stdout.splitlines()
    assert complaint.startswith(f'program.py:{mistake}: error: Argument 1 to "load" of "Gallery" has')
    assert total == "Found 1 error in 1 file (checked 1 source file)"
