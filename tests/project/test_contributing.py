"""The method, the table format, the step and the extractor in developing/extend.md work as documented."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

import crnr_cli
import crnr_cli.methods as registry
from crnr_cli.methods import METHODS, Method, make_method
from helpers.method_checks import CHECKS, problem
from helpers.paths import ROOT

TEXT = (ROOT / "docs" / "developing" / "extend.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A block of code, and the file of the package that was named last before it."""

    path: str
    kind: str
    code: str


def blocks() -> list[Block]:
    found = []
    for match in re.finditer(r"^```(python|diff)\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE):
        path = re.findall(r"`(crnr_cli/[\w/]+\.py)`", TEXT[: match.start()])[-1]
        found.append(Block(path, match[1], match[2]))
    return found


BLOCKS = blocks()
CENTROID = next(block.code for block in BLOCKS if block.path == "crnr_cli/methods/centroid.py")


def applied(source: str, diff: str) -> str:
    """Apply a diff to the source; all lines but the added ones must be in it, once and in order."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    assert source.count(before) == 1
    return source.replace(before, after)


def test_every_example_is_found() -> None:
    files = [block.path for block in BLOCKS if block.kind == "python"]
    assert files == [
        "crnr_cli/methods/centroid.py",
        "crnr_cli/sources/formats/tsv.py",
        "crnr_cli/recipe/standardize.py",
        "crnr_cli/recipe/histogram.py",
    ]
    assert len([block for block in BLOCKS if block.kind == "diff"]) == 12


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Method]:
    """The class, from the text; its module has another name than in the package, which coverage counts."""
    path = tmp_path / "centroid.py"
    path.write_text(CENTROID, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("centroid", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    for name in ("centroid", "crnr_cli.methods.centroid"):
        monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    method: type[Method] = module.Centroid
    return method


@pytest.fixture
def centroid(shown: type[Method], monkeypatch: pytest.MonkeyPatch) -> str:
    """Its name, in the registry."""
    monkeypatch.setitem(METHODS, shown.name, shown)
    return shown.name


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_shown_method_passes_every_check(check: Callable[[str], None], centroid: str) -> None:
    check(centroid)


def test_shown_method_is_its_formula(centroid: str) -> None:
    samples, queries, _ = problem()
    method = make_method(centroid, {"shrink": 2.0})
    parts = np.split(samples.vectors, samples.edges[1:-1])
    means = [part.sum(axis=0) / (len(part) + 2) for part in parts]
    expected = [[np.linalg.norm(y - mean) for mean in means] for y in queries]
    np.testing.assert_allclose(method.residuals(samples, method.fit(samples), queries), expected)


def test_the_registry_with_the_shown_lines_contains_the_method(shown: type[Method]) -> None:
    source = Path(registry.__file__).read_text(encoding="utf-8")
    for block in BLOCKS:
        if block.path == "crnr_cli/methods/__init__.py":
            source = applied(source, block.code)
    names: dict[str, object] = {}
    exec(source, names)
    assert names["METHODS"] == METHODS | {"centroid": shown}


class Copy:
    """A copy of the package with all examples in it, run as processes."""

    def __init__(self, here: Path) -> None:
        self.here = here
        shutil.copytree(Path(crnr_cli.__file__).parent, here / "crnr_cli")
        for path, kind, code in BLOCKS:
            file = here / path
            file.write_text(code if kind == "python" else applied(file.read_text(), code))
        # Coverage would count the copy's lines.
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return self._run("-m", "crnr_cli", *map(str, arguments))

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        return self._run("-c", code)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.here, env=self._environment, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    made = Copy(tmp_path_factory.mktemp("examples"))
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c"], 8)
    centres = rng.normal(size=(3, 6))
    # One feature is large and useless.
    scales = np.array([1, 1, 1, 1, 1, 50.0])
    for name in ("gallery", "queries"):
        features = (np.repeat(centres, 8, axis=0) + 0.7 * rng.normal(size=(24, 6))) * scales
        features[:, 5] = 50 * rng.normal(size=24)
        np.savez(made.here / f"{name}.npz", features=features, labels=labels)
        rows = [
            "\t".join([label, *map(repr, row)]) for label, row in zip(labels, features.tolist(), strict=True)
        ]
        (made.here / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    return made


def residuals(table: str) -> np.ndarray:
    return np.array([line[7:] for line in list(csv.reader(io.StringIO(table)))[1:]], dtype=float)


@pytest.mark.slow
def test_the_shown_method_is_a_method_of_every_command(copy: Copy) -> None:
    assert copy("build", "gallery.npz", "--method", "centroid", "-q").returncode == 0
    scored = copy(
        "compare", "gallery.npz", "--methods", "centroid,nn", "--set", "centroid.shrink=1", "--json"
    )
    methods = {row["method"]: row["parameters"] for row in json.loads(scored.stdout)["methods"]}
    assert methods == {"centroid": {"shrink": 1.0}, "nn": {}}


@pytest.mark.slow
def test_the_shown_reader_gives_the_answers_of_npz(copy: Copy) -> None:
    for kind in ("npz", "tsv"):
        built = copy("build", f"gallery.{kind}", "-o", f"{kind}.h5", "--dtype", "float64", "-q")
        assert (built.returncode, built.stderr) == (0, "")
    by_npz, by_tsv = (
        copy("classify", f"queries.{kind}", "-g", f"{kind}.h5", "-q") for kind in ("npz", "tsv")
    )
    np.testing.assert_allclose(residuals(by_tsv.stdout), residuals(by_npz.stdout), atol=1e-12)
    (copy.here / "bad.tsv").write_text("a\tx\n")
    refused = copy("build", "bad.tsv")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: bad.tsv: not a readable tsv file (could not convert")


@pytest.mark.slow
def test_the_shown_step_is_fitted_stored_applied_and_described(copy: Copy) -> None:
    options = ["--pca", 4, "--dtype", "float64", "-q"]
    built = copy("build", "gallery.npz", "--standardize", *options, "-o", "s.h5")
    assert (built.returncode, built.stderr) == (0, "")
    by_step = copy("classify", "queries.npz", "-g", "s.h5", "-q").stdout
    deviations = np.load(copy.here / "gallery.npz")["features"].std(axis=0)
    for name in ("gallery", "queries"):
        with np.load(copy.here / f"{name}.npz") as arrays:
            scaled = arrays["features"] / deviations
            np.savez(copy.here / f"scaled-{name}.npz", features=scaled, labels=arrays["labels"])
    copy("build", "scaled-gallery.npz", *options, "-o", "by-hand.h5")
    by_hand = copy("classify", "scaled-queries.npz", "-g", "by-hand.h5", "-q").stdout
    np.testing.assert_allclose(residuals(by_step), residuals(by_hand), atol=1e-9)
    about = json.loads(copy("info", "s.h5", "--json").stdout)
    assert (about["format_version"], about["standardize"], about["pca"]) == (6, True, 4)
    page = copy("evaluate", "queries.npz", "-g", "s.h5", "--html", "report.html")
    assert page.returncode == 0, page.stderr
    assert "6 features; features divided by their standard deviations; 4 principal components" in (
        copy.here / "report.html"
    ).read_text(encoding="utf-8")


@pytest.mark.slow
def test_tune_tries_the_shown_step(copy: Copy) -> None:
    tried = copy("tune", "gallery.npz", "--try-standardize", "0,1", "--json")
    assert tried.returncode == 0, tried.stderr
    trials = json.loads(tried.stdout)["trials"]
    assert {(trial["standardize"], trial["power"]) for trial in trials} == {
        (standardize, power) for standardize in (False, True) for power in (1.0, 0.7, 0.5)
    }
    tuned = copy("tune", "gallery.npz", "--try-standardize", "1", "--try-power", "1", "-o", "tuned.h5")
    assert tuned.returncode == 0, tuned.stderr
    assert " --standardize;" in tuned.stderr
    assert json.loads(copy("info", "tuned.h5", "--json").stdout)["standardize"] is True
    wrong = copy("tune", "gallery.npz", "--try-standardize", "maybe")
    assert wrong.returncode == 2


@pytest.mark.slow
def test_an_older_crnr_refuses_a_gallery_with_the_shown_step(copy: Copy) -> None:
    from crnr_cli.errors import GalleryError
    from crnr_cli.gallery.file import load_gallery

    copy("build", "gallery.npz", "--standardize", "-o", "new.h5", "-q")
    with pytest.raises(GalleryError, match=r"gallery format 6, but this crnr .* reads up to 5"):
        load_gallery(copy.here / "new.h5")


LEVELS = 10


@pytest.fixture(scope="module")
def greys(copy: Copy) -> Copy:
    """Folders of images whose greys differ by class, and tables of their histograms."""
    rng = np.random.default_rng(1)
    for name in ("old", "new"):
        features, labels = [], []
        for i, label in enumerate(("a", "b", "c")):
            (copy.here / name / label).mkdir(parents=True)
            for k in range(4):
                pixels = np.clip(rng.normal(60 + 70 * i, 40, size=(12, 9)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(copy.here / name / label / f"{k}.png")
                counts, _ = np.histogram(pixels, bins=LEVELS, range=(0, 256))
                features.append(np.sqrt(counts / pixels.size))
                labels.append(label)
        np.savez(copy.here / f"{name}.npz", features=np.array(features), labels=np.array(labels))
    return copy


@pytest.mark.slow
def test_the_shown_extractor_gives_the_histograms_that_numpy_counts(greys: Copy) -> None:
    options = ["--dtype", "float64", "-q"]
    by_extractor = greys(
        "build", "old", "-o", "h.h5", "--extractor", "histogram", "--levels", LEVELS, *options
    )
    assert (by_extractor.returncode, by_extractor.stderr) == (0, "")
    assert greys("build", "old.npz", "-o", "table.h5", *options).returncode == 0
    labelled = greys("classify", "new", "-g", "h.h5", "-q")
    assert (labelled.returncode, labelled.stderr) == (0, "")
    expected = greys("classify", "new.npz", "-g", "table.h5", "-q").stdout
    np.testing.assert_allclose(residuals(labelled.stdout), residuals(expected), atol=1e-6)


@pytest.mark.slow
def test_the_shown_extractor_is_stored_described_and_checked(greys: Copy) -> None:
    built = greys("build", "old", "-o", "k.h5", "--extractor", "histogram", "-q")
    assert (built.returncode, built.stderr) == (0, "")
    about = json.loads(greys("info", "k.h5", "--json").stdout)
    assert (about["format_version"], about["n_inputs"], about["size"]) == (6, 16, [9, 12])
    assert about["extractor"] == {"name": "histogram", "levels": 16}
    page = greys("evaluate", "new", "-g", "k.h5", "--html", "histogram.html")
    assert page.returncode == 0, page.stderr
    assert "histogram, 9x12, 16 levels of grey" in (greys.here / "histogram.html").read_text(encoding="utf-8")
    described = {"name": "histogram", "size": [9, 12], "levels": "many"}
    refused = greys.python(
        "from crnr_cli.recipe.base import Stored; from crnr_cli.recipe.recipe import restore_extractor\n"
        f"restore_extractor(Stored({{'extractor': {json.dumps(described)!r}}}))"
    )
    assert refused.stderr.endswith("\nValueError: the description of the extractor is invalid\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--parts", "2x2"], "--parts"),
        (["--levels", 1], "--levels must be from 2 to 256, not 1"),
        (["--size", 3000], "histogram: size must be at most 2048 pixels per side"),
        (["--cell", 3], "--cell"),
    ],
)
def test_the_shown_extractor_refuses_invalid_options(greys: Copy, options: list[object], error: str) -> None:
    refused = greys("build", "old", "-o", "no.h5", "--extractor", "histogram", *options)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert error in refused.stderr


@pytest.mark.slow
def test_tune_tries_the_shown_extractor(greys: Copy) -> None:
    tried = greys("tune", "old", "--extractor", "histogram", "--try-power", "1", "--json")
    assert tried.returncode == 0, tried.stderr
    assert {trial["levels"] for trial in json.loads(tried.stdout)["trials"]} == {16, 64}
