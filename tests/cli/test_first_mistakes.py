"""The likeliest first mistakes: each ends with one line that names the thing, the problem and the remedy."""

from __future__ import annotations

import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.cli.boundary import SKIPPED
from helpers.runner import Outcome, Runner, quoted, split_command
from helpers.samples import draw_image, make_features, make_images
from helpers.templates import Templates, build_cats_dogs_owls


def make_ready(crnr: Runner) -> None:
    here = crnr.here
    build_cats_dogs_owls(crnr)
    make_features(here / "features.npz")
    rows, labels = np.eye(6), np.arange(6) % 2
    np.savez(here / "three.npz", a=rows, b=rows, c=labels)
    np.savez(here / "short.npz", features=rows, labels=labels[:5])
    np.save(here / "objects.npy", np.array([{"a": 1}], dtype=object))
    with h5py.File(here / "other.h5", "w") as file:
        file["a"] = np.arange(3)
    (here / "text.txt").write_text("hello\n")
    (here / "labels.csv").write_text("file,class\na.png,1\nb.png,2\n")
    (here / "flat.csv").write_text("path,truth,label,status\na.png,,cat,ok\n")
    content = (here / "gallery.h5").read_bytes()
    (here / "half.h5").write_bytes(content[: len(content) // 2])
    (here / "empty").mkdir()
    (here / "alone" / "flat").mkdir(parents=True)
    draw_image(0, 0).save(here / "alone" / "flat" / "0.png")
    make_images(here / "nested", ["bird"])
    make_images(here / "nested" / "cow", ["calves", "herds"])
    assert crnr("build", "features.npz", "-o", "of_features.h5", "-q").exit == 0
    assert crnr("classify", "queries", "-o", "out.csv", "-q").exit == 0
    assert crnr("sort", "out.csv", "my sorted", "-q").exit == 0


@pytest.fixture
def ready(crnr: Runner, templates: Templates) -> Runner:
    """gallery.h5 of gallery/{cat,dog,owl}, queries/, and files that cannot be what a command expects."""
    templates.copy(make_ready, crnr.here)
    return crnr


PLACED = "put the images into one folder per class"
HELP = {name: f" (see `crnr {name} --help`)" for name in ("build", "classify", "evaluate")}


@pytest.mark.parametrize(
    ("command", "exit", "error"),
    [
        (
            "build alone/flat",
            1,
            f"alone/flat: contains images but no class folders; {PLACED}, or give their labels with --labels",
        ),
        (
            "build gallery/cat",
            1,
            "gallery/cat: contains images but no class folders; if cat is a class, give the folder above, "
            "as in "
            f"`crnr build gallery`; else {PLACED}",
        ),
        (
            "tune gallery/cat",
            1,
            "gallery/cat: contains images but no class folders; if cat is a class, give the folder above, "
            "as in "
            f"`crnr tune gallery`; else {PLACED}",
        ),
        (
            "build gallery/cat gallery/cat/",
            1,
            "gallery/cat: contains images but no class folders; if cat is a class, give the folder above, "
            "as in "
            f"`crnr build gallery`; else {PLACED}",
        ),
        (
            "build gallery alone/flat",
            1,
            "alone/flat: contains images like a class folder, but gallery is like a folder of "
            "classes; give either class folders or folders of classes",
        ),
        (
            "tune gallery/cat gallery/dog nested/bird nested/cow",
            1,
            "gallery/cat: contains images like a class folder, but nested/cow is like a folder of "
            "classes; give either class folders or folders of classes",
        ),
        (
            "build nested/bird nested/cow",
            1,
            "nested/bird: contains images like a class folder, but nested/cow is like a folder of "
            "classes; give either class folders or folders of classes; if both are classes, give "
            "the folder above, as in `crnr build nested`",
        ),
        (
            "build empty",
            1,
            "empty: contains no images or feature files; name a folder that contains images, or a feature "
            "file",
        ),
        (
            "classify empty",
            1,
            "empty: contains no images or feature files; name a folder that contains images, or a feature "
            "file",
        ),
        (
            "build text.txt",
            1,
            "no usable images or rows of features: text.txt: not an image in a supported format",
        ),
        ("build gallery -o x.txt", 2, "x.txt: a gallery is an HDF5 file; give it a name that ends in .h5"),
        (
            "build three.npz",
            1,
            "three.npz: no array called 'features'; choose with --features-key ('a' or 'b') and "
            "--labels-key ('c')",
        ),
        (
            "build short.npz",
            1,
            "short.npz: 'features' has 6 rows but 'labels' has 5; choose matching arrays with "
            "--features-key and "
            "--labels-key",
        ),
        (
            "build objects.npy",
            1,
            "objects.npy: contains Python objects, which crnr never loads; save a numeric array instead",
        ),
        (
            "build gallery features.npz",
            2,
            "features.npz is a feature file, but gallery is not; give images or feature files, not both",
        ),
        (
            "build features.npz --color",
            2,
            "--color only applies to images, but features.npz contains features; leave the option out",
        ),
        (
            "build gallery --mean 1",
            2,
            "--mean only applies to networks; add --extractor NAME or MODEL.onnx",
        ),
        (
            "build gallery --crop 0.5 --pool mean",
            2,
            "--crop, --pool only apply to networks; add --extractor NAME or MODEL.onnx",
        ),
        ("build gallery --gamma 0.1", 2, "--gamma does not apply to --method crnr; it belongs to procrc"),
        (
            "build gallery --index hnsw",
            2,
            "--index hnsw needs --neighbors K, the number of nearest examples to use",
        ),
        ("build gallery --lam -1", 2, f"--lam must be 0 or more, not -1{HELP['build']}"),
        ("build gallery --lam 1e13", 2, f"--lam must be at most 1e+12, not 1e13{HELP['build']}"),
        (
            "build gallery --extractor text.txt",
            1,
            "text.txt: not an ONNX model; export the network to ONNX first (see docs/reference/networks.md)",
        ),
        (
            "model check text.txt",
            1,
            "text.txt: not an ONNX model; export the network to ONNX first (see docs/reference/networks.md)",
        ),
        (
            "build gallery --dask localhost",
            2,
            "--dask localhost: not an address; write tcp://HOST:PORT or local:N",
        ),
        (
            "classify features.npz",
            1,
            "features.npz: contains features, but gallery.h5 was built from images; give images, or a "
            "gallery "
            "that was built from features",
        ),
        (
            "classify queries -g of_features.h5",
            1,
            "queries/cat/0.png: is an image, but of_features.h5 was built from features; give features, or a "
            "gallery that was built from images",
        ),
        ("classify queries -g other.h5", 1, "other.h5: not a gallery; create one with `crnr build`"),
        (
            "classify queries -g nope.csv",
            1,
            "nope.csv: no such gallery; create one with `crnr build FOLDER -o nope.h5`",
        ),
        (
            "classify queries -g 'my nope.h5'",
            1,
            f"my nope.h5: no such gallery; create it with `crnr build FOLDER -o {quoted('my nope.h5')}`",
        ),
        (
            "sort --undo 'my sorted'",
            1,
            "my sorted: is a folder; give the undo file in it: `crnr sort --undo "
            f"{quoted(str(Path('my sorted/.crnr-sort-1.jsonl')))}`",
        ),
        (
            "sort --undo queries",
            1,
            "queries: is a folder without an undo file of `crnr sort`; give the undo file",
        ),
        (
            "sort --undo out.csv",
            1,
            "out.csv: not an undo file of `crnr sort`, such as sorted/.crnr-sort-1.jsonl",
        ),
        (
            "classify queries -output new.csv",
            2,
            f"no such option: -output; did you mean --output?{HELP['classify']}",
        ),
        (
            "classify queries -output=new.csv",
            2,
            f"no such option: -output; did you mean --output?{HELP['classify']}",
        ),
        *(
            (
                f"classify queries -o {name}",
                2,
                f"{name}: crnr writes CSV, JSON Lines or Parquet; give a name that ends in .csv, .jsonl or "
                ".parquet, or choose with --format",
            )
            for name in ("new.xlsx", "new.JSON", "new.tsv")
        ),
        (
            "evaluate flat.csv",
            1,
            "flat.csv: no query has a true class; put the queries into folders named after the gallery's "
            "classes and run `crnr evaluate FOLDER`, or give their labels with --labels FILE.csv (columns "
            "path and label) or --corrections FILE",
        ),
        (
            "classify queries -g half.h5",
            1,
            "half.h5: not a readable gallery (the file is incomplete); restore it or build it again",
        ),
        (
            "build gallery --extractor dinov2-smal",
            1,
            "dinov2-smal: no such file, and no known network; give gradients, pixels, the path of an ONNX "
            "model, or a name that `crnr model list` shows; did you mean dinov2-small?",
        ),
        *(
            (
                command,
                1,
                "gallery.h5: is a gallery, not a source of images or features; classify and explain take it "
                "with --gallery; build takes the folder of its images",
            )
            for command in ("classify gallery.h5 queries", "classify queries gallery.h5", "build gallery.h5")
        ),
        *(
            (
                command,
                2,
                "gallery: is a folder, not a gallery; the order is `crnr add GALLERY SOURCE...` "
                "(see `crnr add --help`)",
            )
            for command in ("add gallery gallery.h5", "add gallery")
        ),
        (
            "sort queries new.csv",
            2,
            "queries: is a folder; the order is `crnr sort CSV FOLDER` (see `crnr sort --help`)",
        ),
        ("build Galery", 1, "Galery: no such file or folder; did you mean gallery?"),
        ("build labels", 1, "labels: no such file or folder"),  # labels.csv is similar, but no folder
        ("build lables.csv", 1, "lables.csv: no such file or folder; did you mean labels.csv?"),
        (
            "info gallery.h5 --list-examples --target-accuracy 0.9",
            2,
            "--list-examples and --target-accuracy cannot be combined; give one of them",
        ),
        (
            "build alone/flaat",
            1,
            "alone/flaat: no such file or folder; did you mean alone/flat?",
        ),
        (
            "build my sorted",
            1,
            f"my: no such file or folder; put names with spaces in quotes: {quoted('my sorted')}",
        ),
        (
            "classify queries 'my new.csv'",
            1,
            "my new.csv: no such file or folder; to write the labels there, use `-o 'my new.csv'`",
        ),
        ("classify queries --top -2", 2, f"--top must be 0 or more, not -2{HELP['classify']}"),
        (
            "classify queries --sets 95",
            2,
            f"--sets must be from 0 to 1, not 95; did you mean 0.95?{HELP['classify']}",
        ),
        (
            "evaluate out.csv --min-accuracy 97",
            2,
            f"--min-accuracy must be from 0 to 1, not 97; did you mean 0.97?{HELP['evaluate']}",
        ),
        (
            "evaluate labels.csv",
            1,
            "labels.csv: has neither predictions (columns truth and label) nor features; use --labels to "
            "give "
            "the labels of images",
        ),
        (
            "evaluate nope.csv",
            1,
            "nope.csv: no such file; give a predictions file written by `crnr classify`",
        ),
        (
            "evaluate out.csv --reject 0.05",
            2,
            "--reject has no effect on the existing predictions in out.csv; run `crnr classify --reject "
            "0.05` "
            "first",
        ),
        (
            "evaluate out.csv --min-rejected 0.3",
            2,
            "--min-rejected needs outsiders; name them with --outsiders DIR",
        ),
        *(
            (
                command,
                2,
                "explain takes one query, and the gallery as an option: "
                f"`crnr explain {query} --gallery gallery.h5` (see `crnr explain --help`)",
            )
            for command, query in (
                ("explain gallery.h5 queries/cat/0.png", "queries/cat/0.png"),
                ("explain queries/cat/0.png gallery.h5", "queries/cat/0.png"),
                ("explain gallery.h5 'my query.png' other.png", "'my query.png'"),
                ("explain gallery.h5 other.h5", "other.h5"),
                ("explain gallery.h5 other.h5#3 --json", "'other.h5#3'"),
            )
        ),
        (
            "explain queries/cat/0.png queries/cat/1.png",
            2,
            "explain takes one query, but 2 were given; run it once for each of them "
            "(see `crnr explain --help`)",
        ),
        ("explain queries", 2, "queries: explain takes one image, such as queries/cat/0.png"),
        (
            "explain features.npz -g of_features.h5",
            2,
            "features.npz: explain takes one row, such as features.npz#0",
        ),
        (
            "verify gallery.h5 --against alone",
            1,
            "gallery.h5: none of its 9 examples is in alone; name the source that it was built from",
        ),
        (
            "info text.txt",
            1,
            "text.txt: neither a gallery nor a feature file (.h5, .hdf5, .npz, .mat, .npy, .csv, .parquet)",
        ),
        (
            "audit gallery.h5 --pca 5",
            2,
            "--pca cannot be changed for an existing gallery; leave it out, or audit the folder that the "
            "gallery "
            "was built from",
        ),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(ready: Runner, command: str, exit: int, error: str) -> None:
    before = ready.files()
    assert ready(*shlex.split(command)) == Outcome(exit, "", f"error: {error}\n")
    assert ready.files() == before


def test_printed_commands_can_be_copied_to_a_shell(ready: Runner) -> None:
    """Paths with spaces and quotes are quoted: every printed command runs as it is."""
    sorted_ = ready("sort", "out.csv", "Ann's files").err.splitlines()[-1]
    split = ready("split", "gallery", "--train", "train one", "--test", "test one").err.splitlines()[-1]
    for line in (sorted_, split):
        program, *words = split_command(line.partition(": ")[2])
        assert program == "crnr"
        assert ready(*words).exit == 0
    assert not (ready.here / "Ann's files").exists()
    assert ready("extract", "gallery", "-o", "my features.h5", "-q").exit == 0
    for command in (["info", "my features.h5"], ["classify", "queries", "-g", "my features.h5"]):
        assert f"`crnr build {quoted('my features.h5')}`" in ready(*command).err


def test_the_format_can_be_chosen_against_the_name(ready: Runner) -> None:
    assert ready("classify", "queries", "-o", "new.json", "--json", "-q").exit == 0
    assert (ready.here / "new.json").read_text().startswith("{")
    assert ready("classify", "queries", "-o", "new.tsv", "--format", "csv", "-q").exit == 0
    assert ready("classify", "--", "-output").exit == 1
    assert ready("evaluate", "out.csv", "--html", "new.html").err.endswith("wrote new.html\n")
    assert ready("audit", "gallery", "--html", "audit.html").err.endswith("wrote audit.html\n")
    assert ready("audit", "gallery", "--html", "audit.html", "-q").err == ""


@pytest.mark.parametrize("source", ["text.txt", "alone/flat"])
def test_failed_build_says_nothing_about_the_old_gallery(ready: Runner, source: str) -> None:
    outcome = ready("build", source, "-o", "gallery.h5")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1


def test_folder_above_the_right_one_is_noted(crnr: Runner) -> None:
    for side in ("test", "train"):
        make_images(crnr.here / "data" / side)
    classes = sorted(path.name for path in (crnr.here / "data" / "train").iterdir())
    outcome = crnr("build", "data")
    assert outcome.exit == 0
    assert outcome.err.splitlines()[0] == (
        "note: data has 2 classes (test, train), but no images directly in a class folder; if the folders "
        "in it "
        f"({', '.join(classes)}) are the classes, run `crnr build data/train`"
    )


@pytest.mark.parametrize("inner", ["summer", "winter"])
def test_folders_within_one_class_are_no_reason_for_a_note(crnr: Runner, inner: str) -> None:
    make_images(crnr.here / "gallery")
    first = min((crnr.here / "gallery").iterdir())
    (first / inner).mkdir()
    draw_image(0, 9).save(first / inner / "9.png")
    outcome = crnr("build", "gallery")
    assert outcome.exit == 0
    assert "note" not in outcome.err


def test_failed_query_is_one_line(ready: Runner) -> None:
    outcome = ready("classify", "text.txt", "-o", "one.csv")
    assert outcome == Outcome(
        SKIPPED, "", "failed: text.txt: not_image, not an image in a supported format\n"
    )
    both = ready("classify", "text.txt", "queries/cat/0.png", "-o", "two.csv")
    assert both == Outcome(
        0,
        "",
        "labelled 1 of 2 queries: two.csv\nfailed: text.txt: not_image, not an image in a supported format\n",
    )


NETWORK = "run `crnr model get efficientnet-lite0`, then add --extractor efficientnet-lite0"


@pytest.mark.parametrize(
    ("mode", "size", "options", "is_noted"),
    [
        ("RGB", (120, 90), [], True),
        ("RGB", (120, 90), ["-q"], False),
        ("L", (120, 90), [], False),
        ("RGB", (32, 32), [], False),
        ("L", (8, 8), [], False),
    ],
)
def test_photographs_without_a_network_are_noted_once(
    crnr: Runner, mode: str, size: tuple[int, int], options: list[str], is_noted: bool
) -> None:
    for number, color in enumerate(((200, 60, 40), (40, 160, 60))):
        folder = crnr.here / "photos" / str(number)
        folder.mkdir(parents=True)
        for sample in range(2):
            image = draw_image(number, sample, size).convert("RGB")
            image.paste(color, (0, 0, size[0] // 2, size[1] // 2))
            image.convert(mode).save(folder / f"{sample}.png")
    outcome = crnr("build", "photos", *options)
    assert outcome.exit == 0
    assert outcome.err.count(NETWORK) == is_noted
