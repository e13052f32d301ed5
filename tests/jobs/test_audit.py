"""crnr audit finds what was planted, and crnr remove --marked-in removes what was marked."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.runner import Outcome, Runner, rows
from helpers.samples import draw_image, noise

CLASSES = ("ant", "bee", "cow")
PER_CLASS = 12
SIZE = (32, 32)


@pytest.fixture
def planted(crnr: Runner) -> Runner:
    """Three easy classes with one wrong label, an exact copy and a recompressed one, and an odd image."""
    for number, name in enumerate(CLASSES):
        (crnr.here / "images" / name).mkdir(parents=True)
        for sample in range(PER_CLASS):
            draw_image(number, sample, SIZE).save(crnr.here / "images" / name / f"{sample}.png")
    draw_image(1, 50, SIZE).save("images/ant/wrong.png")
    shutil.copy("images/bee/3.png", "images/bee/copy.png")
    Image.open("images/cow/5.png").save("images/bee/near.png", compress_level=0)
    noise(1, SIZE).save("images/cow/odd.png")
    (crnr.here / "queries").mkdir()
    shutil.copy("images/ant/7.png", "queries/leaked.png")
    draw_image(2, 60, SIZE).save("queries/new.png")
    return crnr


def found(outcome: Outcome) -> dict[str, list[dict[str, object]]]:
    assert (outcome.exit, outcome.err) == (0, ""), outcome
    return json.loads(outcome.out)


def paths(group: dict[str, object]) -> list[str]:
    return [sample["path"] for sample in group["samples"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("of", ["gallery.h5", "images"])
def test_everything_planted_is_found(planted: Runner, of: str) -> None:
    assert planted("build", "images", "-q").exit in (0, 3)
    report = found(planted("audit", of, "--json", "-q", "--queries", "queries"))
    suspects = {one["path"]: one for one in report["suspects"]}
    wrong = suspects["images/ant/wrong.png"]
    assert (wrong["label"], wrong["suggested"]) == ("ant", "bee")
    assert all(name.startswith("images/bee/") for name in wrong["supporters"])
    assert [paths(group) for group in report["copies"]] == [["images/bee/3.png", "images/bee/copy.png"]]
    assert [group["across_classes"] for group in report["copies"]] == [False]
    assert ["images/bee/near.png", "images/cow/5.png"] in map(paths, report["near_duplicates"])
    assert [group["across_classes"] for group in report["near_duplicates"]] == [True]
    assert "images/cow/odd.png" in [one["path"] for one in report["outliers"]]
    assert report["queries_in_gallery"] == [
        {
            "query": "queries/leaked.png",
            "path": "images/ant/7.png",
            "label": "ant",
            "copy": True,
            "same_scene": False,
        }
    ]
    assert (report["n_samples"], report["queries"]) == (3 * PER_CLASS + 4, 2)


def test_remove_takes_the_samples_marked_in_the_audit_csv(planted: Runner) -> None:
    assert planted("build", "images", "-q").exit == 0
    outcome = planted("audit", "gallery.h5", "--csv", "audit.csv", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    text = Path("audit.csv").read_text()
    table = rows(text)
    assert {row["finding"] for row in table} >= {"wrong_label", "copy", "near_duplicate", "outlier"}
    assert {row["remove"] for row in table} == {""}
    before = Path("gallery.h5").read_bytes()
    outcome = planted("remove", "gallery.h5", "--marked-in", "audit.csv")
    words = "audit.csv: no row is marked; write x into the column remove of the examples to remove"
    assert outcome == Outcome(1, "", f"error: {words}\n")
    assert Path("gallery.h5").read_bytes() == before
    marked = re.sub(r"(?m)^(images/(ant/wrong|bee/copy)\.png,.*),$", r"\1,x", text)
    Path("audit.csv").write_text(marked)
    outcome = planted("remove", "gallery.h5", "--marked-in", "audit.csv", "-q")
    assert outcome == Outcome(0, "", "")
    report = found(planted("audit", "gallery.h5", "--json", "-q"))
    assert report["n_samples"] == 3 * PER_CLASS + 2
    assert report["copies"] == []
    assert "images/ant/wrong.png" not in [one["path"] for one in report["suspects"]]


def test_all_labels_are_ranked_with_the_suspects_first(planted: Runner) -> None:
    some = planted("audit", "images", "--csv", "some.csv", "--json", "-q")
    everything = planted("audit", "images", "--csv", "all.csv", "--json", "-q", "--all")
    assert (some.exit, everything.exit, everything.err) == (0, 0, "")
    report, more = (json.loads(outcome.out) for outcome in (some, everything))
    assert "ranking" not in report
    few, many = (rows(Path(name).read_text()) for name in ("some.csv", "all.csv"))
    assert list(many[0]) == [
        *("path", "label", "finding", "suggested", "score", "group", "others", "corrected", "remove"),
    ]
    ranked = [row for row in many if row["finding"] == "ranked"]
    assert [row for row in many if row["finding"] != "ranked"] == few  # the findings are the same
    suspects = [row for row in many if row["finding"] == "wrong_label"]
    assert many[: len(suspects) + len(ranked)] == suspects + ranked
    every = {path.as_posix() for path in Path("images").rglob("*.png")}
    assert sorted(row["path"] for row in suspects + ranked) == sorted(every)
    assert [one["path"] for one in more["ranking"]] == [row["path"] for row in suspects + ranked]
    scores = [float(row["score"]) for row in ranked]
    assert scores == sorted(scores, reverse=True)
    assert all(-1 <= score < 1 for score in scores)
    assert all(row["suggested"] in {*CLASSES} - {row["label"]} for row in ranked)


def test_too_many_suspects_miss_the_gate(planted: Runner) -> None:
    count = len(found(planted("audit", "images", "--json", "-q"))["suspects"])
    assert count >= 1
    assert planted("audit", "images", "-q", "--max-suspects", str(count)).exit == 0
    outcome = planted("audit", "images", "-q", "--max-suspects", "0")
    what = "1 label looks" if count == 1 else f"{count} labels look"
    assert (outcome.exit, outcome.err) == (4, f"{what} wrong, but at most 0 may\n")
    assert "labels that look wrong" in outcome.out


def test_features_and_images_that_are_gone_are_reported(planted: Runner) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], 20)
    features = np.eye(2)[(labels == "b").astype(int)].repeat(5, axis=1) + 0.2 * rng.random((40, 10))
    features[3] = 2 * features[2]
    np.savez("table.npz", features=features, labels=labels)
    outcome = planted("audit", "table.npz", "--json")
    assert (outcome.exit, outcome.err) == (
        0,
        "note: near duplicates: found by the cosine of the features alone, because there are no images\n",
    )
    assert any(
        {"table.npz#2", "table.npz#3"} <= set(paths(g)) for g in json.loads(outcome.out)["near_duplicates"]
    )
    assert planted("build", "images", "-q").exit == 0
    Path("images/cow/5.png").unlink()
    outcome = planted("audit", "gallery.h5")
    assert outcome.exit == 0
    assert outcome.err.startswith("note: 1 of 40 images is gone or changed, such as images/cow/5.png: ")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["gallery.h5", "images"], 2, "gallery.h5: is a gallery; audit it alone"),
        (
            ["gallery.h5", "--gray", "--pca", "3"],
            2,
            "--gray, --pca cannot be changed for an existing gallery; leave them out, or audit the folder "
            "that the "
            "gallery was built from",
        ),
        (["gallery.h5", "--queries", "nowhere"], 1, "nowhere: no such file or folder"),
    ],
)
def test_audit_refuses_invalid_arguments(
    planted: Runner, arguments: list[str], code: int, words: str
) -> None:
    assert planted("build", "images", "-q").exit == 0
    outcome = planted("audit", *arguments, "-q")
    assert outcome == Outcome(code, "", f"error: {words}\n")


def test_the_tables_fit_a_screen(planted: Runner) -> None:
    outcome = planted("audit", "images", columns=80)
    assert outcome.exit == 0
    assert max(map(len, outcome.out.splitlines())) <= 80
    for words in (
        "labels confirmed",
        "images/ant/wrong.png",
        "exact copies",
        "near duplicates",
        "outliers",
    ):
        assert words in outcome.out


def test_the_page_shows_images_side_by_side(planted: Runner) -> None:
    outcome = planted("audit", "images", "--html", "audit.html", "--queries", "queries", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    page = Path("audit.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "ant/wrong.png" in page
    assert page.count("data:image/png;base64,") >= 10
    assert "http://" not in page
    assert "https://" not in page
    assert "queries/leaked.png" in page


def test_a_large_gallery_is_compared_by_neighbours_and_says_so(
    planted: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crnr_cli.gallery.suspects.LARGE", 20)
    outcome = planted("audit", "images", "--json")
    assert outcome.exit == 0
    assert (
        "note: large gallery: each label was compared by the 50 nearest examples, and the most doubtful "
        "labels again by all examples\n"
    ) in outcome.err
    first, *_ = json.loads(outcome.out)["suspects"]
    assert first["path"] == "images/ant/wrong.png"
