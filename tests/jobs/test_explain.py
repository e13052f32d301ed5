"""Explain: the numbers match classify, and the plot shows them."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crnr_cli.cli.explain import BAR
from crnr_cli.gallery.file import load_gallery
from crnr_cli.methods import make_method
from crnr_cli.system.extras import describe_missing
from helpers.patches import remove_extras
from helpers.paths import SAMPLE_DATA
from helpers.runner import Runner, rows
from helpers.samples import make_features, make_images

QUERY = str(SAMPLE_DATA / "queries/9/4558.png")


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A gallery of the sample data."""
    folder = tmp_path_factory.mktemp("explain")
    result = Runner(folder)("build", SAMPLE_DATA / "gallery", "-o", "g.h5", "-q", "--extractor", "pixels")
    assert result.exit == 0, result.err
    return str(folder / "g.h5")


def explained(crnr: Runner, *arguments: str) -> dict:
    result = crnr("explain", *arguments, "--json")
    assert result.exit == 0, result.err
    return json.loads(result.out)


def test_explain_gives_the_answer_of_classify(crnr: Runner, gallery: str) -> None:
    record = explained(crnr, QUERY, "-g", gallery)
    answer = record["explanations"][0]
    row = rows(crnr("classify", QUERY, "-g", gallery, "-q").out)[0]
    assert record["truth"] == row["truth"] == "9"
    assert (answer["label"], answer["runner_up"]) == (row["label"], row["runner_up"])
    assert answer["margin"] == pytest.approx(float(row["margin"]), rel=1e-4)
    for name, residual in answer["residuals"].items():
        assert residual == pytest.approx(float(row[f"residual:{name}"]), rel=1e-5)


def test_the_weights_leave_the_residuals(crnr: Runner, gallery: str) -> None:
    """The code that is shown is the one that the residuals are taken from."""
    answer = explained(crnr, QUERY, "-g", gallery)["explanations"][0]
    loaded = load_gallery(Path(gallery))
    pixels = np.asarray(Image.open(QUERY), dtype=float).ravel()
    query = (pixels / np.linalg.norm(pixels)).astype("float32")
    code = loaded.method.codes(loaded.samples, loaded.state, query[np.newaxis])[0]
    largest = np.argsort(-np.abs(code))[:8]
    assert [sample["name"] for sample in answer["strongest"]] == [loaded.names[i] for i in largest]
    for i, name in enumerate(loaded.classes):
        rows = slice(loaded.samples.edges[i], loaded.samples.edges[i + 1])
        left = np.linalg.norm(query - code[rows] @ loaded.samples.vectors[rows])
        assert answer["residuals"][name] == pytest.approx(left, rel=1e-4)
        share = np.maximum(code[rows], 0).sum() / np.maximum(code, 0).sum()
        assert answer["weight_shares"][name] == pytest.approx(share, rel=1e-5)


def test_another_method_is_fitted_on_the_gallery_with_the_same_steps(crnr: Runner, gallery: str) -> None:
    first, other = explained(crnr, QUERY, "-g", gallery, "--compare-with", "nrc")["explanations"]
    assert (first["method"], other["method"]) == ("crnr", "nrc")
    assert other["parameters"]["mu"] == first["parameters"]["mu"]
    loaded = load_gallery(Path(gallery))
    pixels = np.asarray(Image.open(QUERY), dtype=float).ravel()
    query = (pixels / np.linalg.norm(pixels)).astype("float32")[np.newaxis]
    crnr_at_0 = make_method("crnr", {"lam": 0.0})
    expected = crnr_at_0.residuals(loaded.samples, crnr_at_0.fit(loaded.samples), query)[0]
    np.testing.assert_allclose(list(other["residuals"].values()), expected, rtol=1e-5)


def test_explain_prints_bars_samples_and_the_margin(crnr: Runner, gallery: str) -> None:
    result = crnr("explain", QUERY, "-g", gallery)
    assert (result.exit, result.err) == (0, "")
    answer = explained(crnr, QUERY, "-g", gallery)["explanations"][0]
    label, second = answer["label"], answer["runner_up"]
    assert "█" in result.out
    assert f"{label}: residual {answer['residuals'][label]:.4f}" in result.out
    assert f"{second}: residual {answer['residuals'][second]:.4f}" in result.out
    for sample in answer["strongest"]:
        assert "/".join(sample["name"].split("/")[-2:]) in result.out


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_explain_writes_a_plot(crnr: Runner, gallery: str, tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"why.{suffix}"
    result = crnr("explain", QUERY, "-g", gallery, "--compare-with", "nrc", "-o", output, "--json")
    assert result.exit == 0, result.err
    assert result.err == f"wrote {output}\n"
    if suffix == "png":
        with Image.open(output) as image:
            assert image.size[1] > image.size[0] > 800
            assert len(image.convert("RGB").getcolors(1_000_000)) > 50
    else:
        text = output.read_text()
        assert text.startswith("<?xml" if suffix == "svg" else "<!DOCTYPE html>")
        assert suffix == "svg" or text.count("data:image/png") == 8  # the query and seven samples


def test_names_are_drawn_as_they_are(crnr: Runner, tmp_path: Path) -> None:
    """No formula of matplotlib, no tag of HTML, and a sign that no font has."""
    names = np.array(["a$\\frac{$", "<b>b</b>", "\U0001f33b flower"])
    np.savez(features := tmp_path / "f.npz", features=np.eye(6) + 0.1, labels=np.repeat(names, 2))
    gallery = tmp_path / "g.h5"
    assert crnr("build", features, "-o", gallery).exit == 0
    for suffix in ("svg", "png", "html"):
        output = tmp_path / f"why.{suffix}"
        result = crnr("explain", f"{features}#3", "-g", gallery, "-o", output)
        assert result.exit == 0, result.err
    assert "<b>b</b>" not in output.read_text()
    assert "&lt;b&gt;b&lt;/b&gt;" in output.read_text()


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        (
            "{features}",
            2,
            "error: {features}: explain takes one row, such as {features}#0\n",
        ),
        ("{features}#100", 2, "error: {features}: has no row 100; choose one from 0 to 99\n"),
        ("{features}#x", 1, "error: {features}#x: no such file or folder\n"),
    ],
)
def test_a_query_that_is_not_one_is_refused(
    crnr: Runner, tmp_path: Path, query: str, code: int, words: str
) -> None:
    rng = np.random.default_rng(0)
    np.savez(features := tmp_path / "f.npz", features=rng.random((100, 4)), labels=np.arange(100) % 3)
    gallery = tmp_path / "g.h5"
    assert crnr("build", features, "-o", gallery).exit == 0
    result = crnr("explain", query.format(features=features), "-g", gallery)
    assert (result.exit, result.out) == (code, "")
    assert result.err == words.format(features=features)


def test_an_image_that_cannot_be_read_is_named(crnr: Runner, gallery: str, tmp_path: Path) -> None:
    (bad := tmp_path / "bad.png").write_bytes(b"no image")
    result = crnr("explain", bad, "-g", gallery)
    assert (result.exit, result.out) == (1, "")
    assert result.err == f"error: {bad}: not an image in a supported format\n"


def test_a_drawing_of_no_known_form_is_refused(crnr: Runner, gallery: str) -> None:
    result = crnr("explain", QUERY, "-g", gallery, "-o", "why.doc")
    assert (result.exit, result.out) == (2, "")
    assert result.err == "error: why.doc: the name must end in .png, .svg, .pdf or .html\n"


def test_explain_without_matplotlib_names_the_extra(
    crnr: Runner, gallery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_extras(monkeypatch.setattr)
    result = crnr("explain", QUERY, "-g", gallery, "-o", "why.png")
    assert (result.exit, result.out) == (1, "")
    assert result.err == f"error: {describe_missing('report', '--output', 'matplotlib', 'jinja2')}\n"


@pytest.mark.slow
@pytest.mark.parametrize("other", ["nn", "crc", "svm"])
def test_every_kind_of_method_can_be_compared_with(
    crnr: Runner, gallery: str, tmp_path: Path, other: str
) -> None:
    """Without a code, with another decision, and with scores in the place of residuals."""
    output = tmp_path / "why.png"
    record = explained(crnr, QUERY, "-g", gallery, "--compare-with", other, "-o", str(output))
    assert (record["explanations"][1]["weight_shares"] is None) == (other != "crc")
    assert 0 <= record["explanations"][1]["margin"] <= 1
    assert output.exists()
    shown = crnr("explain", QUERY, "-g", gallery, "--compare-with", other)
    assert (shown.exit, shown.err) == (0, "")
    assert f" by {other} (runner-up " in shown.out.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["svm", "softmax"])
def test_scores_are_shown_as_scores_and_the_most_wins(crnr: Runner, tmp_path: Path, method: str) -> None:
    scored = str(tmp_path / "scored.h5")
    built = crnr("build", SAMPLE_DATA / "gallery", "--method", method, "-o", scored, "-q")
    assert built.exit == 0, built.err
    page, drawing = tmp_path / "why.html", tmp_path / "why.svg"
    answer = explained(crnr, QUERY, "-g", scored, "-o", str(page))["explanations"][0]
    scores = {name: -residual for name, residual in answer["residuals"].items()}
    first, second, *_ = sorted(scores, key=scores.__getitem__, reverse=True)
    shown = crnr("explain", QUERY, "-g", scored, "-o", drawing).out
    assert f"{first}: score {scores[first]:.4f};\n{second}: score {scores[second]:.4f}." in shown
    assert "largest wins" in shown
    bars = {line.split()[0]: line.count("█") for line in shown.splitlines() if "█" in line}
    assert bars[first] == BAR
    low, high = min(scores.values()), max(scores.values())
    assert bars[second] == int(BAR * (scores[second] - low) / (high - low))
    assert "<!-- largest wins -->" in drawing.read_text()
    html = page.read_text()
    assert f"{first}: score {scores[first]:.3f}; {second}: score {scores[second]:.3f}" in html
    assert '<th scope="col">score</th>' in html
    for text in (shown, html, drawing.read_text()):
        assert "smallest" not in text.replace("the smallest wins.", "")
        assert "<!-- residual -->" not in text


def test_explain_shows_the_best_of_many_classes_and_the_true_class(crnr: Runner, tmp_path: Path) -> None:
    """40 classes, and a query whose true class is the worst of them."""
    rng = np.random.default_rng(0)
    names = [f"class {i:02}" for i in range(40)]
    np.savez(tmp_path / "g.npz", features=np.eye(40), labels=names)
    query = np.linspace(2, 1, 40) + 0.001 * rng.random(40)
    np.savez(tmp_path / "q.npz", features=query[np.newaxis], labels=names[-1:])
    gallery, image = str(tmp_path / "g.h5"), tmp_path / "why.svg"
    crnr("build", tmp_path / "g.npz", "-o", gallery, "-q")
    shown = crnr("explain", tmp_path / "q.npz", "-g", gallery, "-o", image)
    assert shown.exit == 0, shown.err
    table = shown.out.partition("largest weights")[0]
    assert [name for name in names if f" {name} " in table] == [*names[:12], names[-1]]
    assert "27 more classes have larger residuals" in table
    drawn = image.read_text()
    assert [name for name in names if f"<!-- {name} -->" in drawn] == [*names[:12], names[-1]]


def test_a_row_far_down_is_the_row_that_is_explained(crnr: Runner, tmp_path: Path) -> None:
    """Beyond the first batch that is read."""
    np.savez(tmp_path / "g.npz", features=np.eye(3), labels=["a", "b", "c"])
    features = np.tile([3.0, 1, 0], (1030, 1))
    features[1027] = [0, 1, 3]
    np.savez(tmp_path / "q.npz", features=features)
    crnr("build", tmp_path / "g.npz", "-o", tmp_path / "g.h5", "-q")
    labels = [
        explained(crnr, f"{tmp_path}/q.npz#{row}", "-g", str(tmp_path / "g.h5"))["explanations"][0]["label"]
        for row in (1026, 1027, 1028)
    ]
    assert labels == ["a", "c", "a"]


def test_explain_finds_the_truth_in_any_unicode_form(crnr: Runner) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Käse") for form in ("NFC", "NFD"))
    make_images(crnr.here / "gallery", (composed, "bee"))
    make_images(crnr.here / "queries", (decomposed, "bee"), per_class=1, first=9)
    crnr("build", "gallery", "-q")
    query = f"queries/{decomposed}/9.png"
    (row,) = rows(crnr("classify", query, "-q").out)
    explained = json.loads(crnr("explain", query, "--json").out)
    assert row["truth"] == explained["truth"] == composed


def test_the_label_of_a_feature_file_is_the_truth_as_in_classify(crnr: Runner) -> None:
    """Also one that the gallery does not have: the answer is then wrong, and not of unknown truth."""
    make_features(crnr.here / "gallery.npz")
    make_features(crnr.here / "queries.npz", classes=("stranger", "bee"))
    crnr("build", "gallery.npz", "-q")
    (first, *_) = rows(crnr("classify", "queries.npz", "-q").out)
    explained = crnr("explain", "queries.npz#0", "--json")
    assert first["truth"] == json.loads(explained.out)["truth"] == "stranger"
    first = crnr("explain", "queries.npz#0").out.splitlines()[0]
    assert first.startswith("queries.npz#0: ")
    assert first.endswith("; true class stranger")
    assert crnr("explain", "queries.npz#0", "-o", "why.png").exit == 0
