"""The current folder may belong to another user: crnr and its children execute and obey nothing in it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from crnr_cli.cluster.dask import connected
from helpers.runner import Outcome, Runner
from helpers.samples import draw_image, make_images

# The program that pip installs. With `python -m`, Python itself adds the current folder to its path.
CRNR = (sys.executable, str(Path(sys.executable).parent / "crnr"))
OTHERS = ("numpy", "h5py", "scipy", "PIL", "typer", "rich", "click", "distributed", "matplotlib", "crnr_cli")
TRAP = "open(__file__.rpartition('/')[0] + '/executed', 'a').write(__name__)"


@pytest.fixture
def trapped(crnr: Runner) -> Runner:
    """A folder with images, features, and a malicious module for every name that Python may import."""
    make_images(crnr.here / "gallery")
    features, labels = np.eye(4), ["a", "a", "b", "b"]
    savemat(crnr.here / "features.mat", {"features": features, "labels": labels})
    with h5py.File(crnr.here / "features.h5", "w") as file:
        file["features"], file["labels"] = features, labels  # text of variable length
    for name in (*sys.stdlib_module_names, *OTHERS):
        (crnr.here / f"{name}.py").write_text(TRAP)
    return crnr


def run(crnr: Runner, command: str) -> Outcome:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    outcome = crnr.process(*command.split(), program=CRNR, env=environment)
    assert not (crnr.here / "executed").exists(), (crnr.here / "executed").read_text()
    return outcome


@pytest.mark.parametrize(
    "command",
    [
        "build gallery -q",
        "build features.mat --samples-axis rows -q",
        "build features.h5 -q",
        "tune gallery --budget 0 --folds 2 --plot plot.png",
    ],
)
def test_no_module_in_the_current_folder_is_imported(trapped: Runner, command: str) -> None:
    assert run(trapped, command).exit == 0


@pytest.mark.slow
def test_no_module_in_the_current_folder_is_imported_by_workers(trapped: Runner) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    assert run(trapped, "build gallery -q").exit == 0
    outcome = run(trapped, "classify gallery -q -o out.csv --dask local:1")
    assert outcome == Outcome(0, "", "")


def test_workers_are_started_safely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that replace dead ones, until the cluster is closed."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    started: list[str | None] = []

    class Cluster:
        def __init__(self, **options: object) -> None:
            pass

        def __enter__(self) -> None:
            started.append(os.environ.get("PYTHONSAFEPATH"))
            raise ZeroDivisionError

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(distributed, "LocalCluster", Cluster)
    for before in (None, "", "yes"):
        monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
        if before is not None:
            monkeypatch.setenv("PYTHONSAFEPATH", before)
        with pytest.raises(ZeroDivisionError), connected("local:1"):
            pass
        assert os.environ.get("PYTHONSAFEPATH") == before
    assert started == ["1"] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [b"text.usetex: True\naxes.facecolor: red\nfont.size: 30\n", b"\xff\xfe not text"],
    ids=["tex", "odd"],
)
def test_matplotlibrc_of_the_current_folder_is_not_obeyed(crnr: Runner, content: bytes) -> None:
    make_images(crnr.here / "gallery")
    draw_image(0, 9).save(crnr.here / "query.png")
    assert run(crnr, "build gallery -q").exit == 0
    explain = "explain query.png -q --json -o why.png"
    plain = run(crnr, explain)
    assert (plain.exit, plain.err) == (0, "")
    usual = shutil.move(crnr.here / "why.png", crnr.here / "usual.png")
    (crnr.here / "matplotlibrc").write_bytes(content)
    assert run(crnr, explain) == plain
    assert (crnr.here / "why.png").read_bytes() == Path(usual).read_bytes()
