"""What a shell completes after Tab."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.choices import CHANNELS, FILTERS, LAYOUTS, POOLS
from crnr_cli.cli import COMMANDS
from crnr_cli.methods import METHODS
from crnr_cli.models.presets import PRESETS
from helpers.runner import Runner, run_here
from helpers.samples import make_features


def completed(line: str) -> list[str]:
    """Return what bash offers for the last word of a line, which is incomplete."""
    words = line.split(" ")
    environment = {"_CRNR_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    outcome = run_here([], b"", environment)
    assert (outcome.exit, outcome.err) == (0, "")
    return list(filter(None, outcome.out.splitlines()))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        # Typer lists groups after commands.
        (
            "crnr ",
            sorted(dict.fromkeys(one.split()[0] for one in COMMANDS), key=lambda one: one not in COMMANDS),
        ),
        ("crnr export x --to ", ["megadetector", "camtrap-dp", "label-studio", "coco"]),
        ("crnr tag x --naming photo", ["photo.jpg.xmp", "photo.xmp"]),
        ("crnr model ", ["list", "get", "check"]),
        ("crnr model get clip", ["clip-b32", "clip-b16"]),
        ("crnr build x --extractor dinov2-", ["dinov2-small", "dinov2-base"]),
        ("crnr build x --provider open", ["openvino"]),
        ("crnr build x --method ", METHODS),
        ("crnr build x --method pro", ["procrc"]),
        ("crnr explain x --compare-with ", METHODS),
        ("crnr compare x --methods crnr,n", ["crnr,nrc", "crnr,nsc", "crnr,nn"]),
        ("crnr tune x --methods ", METHODS),
        ("crnr build x --factor ", ["auto", "dense", "low-rank"]),
        ("crnr build x --filter ", FILTERS),
        ("crnr build x --channels ", CHANNELS),
        ("crnr build x --layout ", LAYOUTS),
        ("crnr build x --extractor-preset ", PRESETS),
        ("crnr build x --pool ", POOLS),
        ("crnr build x --dtype ", ["float32", "float64"]),
        ("crnr classify x --samples-axis ", ["rows", "columns"]),
        ("crnr compare x --set crc.", ["crc.lam=", "crc.neighbors=", "crc.index="]),
        ("crnr build x --index ", ["exact", "ivf", "hnsw"]),
        ("crnr sort x y --how ", ["copy", "hardlink", "link", "move"]),
        ("crnr split x --how ", ["copy", "hardlink", "link"]),
        ("crnr build x --extractor mod", []),  # so that the shell offers files
        ("crnr build x --lam ", []),
    ],
)
def test_names_of_a_fixed_set(line: str, names: list[str]) -> None:
    assert completed(line) == list(names)


@pytest.fixture
def gallery(crnr: Runner) -> Path:
    make_features(crnr.here / "a.npz", per_class=2)
    assert crnr("build", "a.npz", "-o", "a.h5", "-q").exit == 0
    return crnr.here / "a.h5"


@pytest.mark.usefixtures("gallery")
def test_names_in_the_gallery_of_the_line() -> None:
    assert completed("crnr remove a.h5 --class ") == ["ant", "bee", "cow"]
    assert completed("crnr remove a.h5 --class b") == ["bee"]
    assert completed("crnr remove a.h5 --class bee --class a") == ["ant"]
    assert completed("crnr remove --gallery a.h5 --class c") == ["cow"]
    assert completed("crnr rename a.h5 ") == ["ant", "bee", "cow"]
    assert completed("crnr rename a.h5 ant b") == ["bee"]
    assert completed("crnr remove a.h5 --example a.npz#") == [f"a.npz#{i}" for i in range(6)]
    assert completed("crnr add a.h5 a.npz --class ") == ["ant", "bee", "cow"]


def test_a_file_that_is_no_gallery_offers_nothing(crnr: Runner, gallery: Path) -> None:
    Path("text.h5").write_text("hello")
    with h5py.File("other.h5", "w") as file:
        file["classes/names"] = np.arange(3)
    with h5py.File("nested.h5", "w") as file:
        file.create_group("classes/names")
    with h5py.File("text_of_any_length.h5", "w") as file:
        file["classes/names"] = ["a", "b"]
    for name in ("text.h5", "other.h5", "nested.h5", "text_of_any_length.h5", "missing.h5", "."):
        assert completed(f"crnr remove {name} --class ") == []
    assert completed("crnr remove --class ") == []
    # A name that a terminal would obey is not printed.
    with h5py.File(gallery, "r+") as file:
        file["classes/names"][0] = b"\x1b[31"
    assert completed("crnr remove a.h5 --class ") == ["bee", "cow"]
