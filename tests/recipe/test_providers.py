"""What a network runs on: the requested one or an error, and batches that fit it."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from crnr_cli import Gallery
from crnr_cli.choices import AUTO, CPU, PACKAGES, PREFERRED, PROVIDERS, NetworkOptions
from crnr_cli.errors import DataError, UsageError
from crnr_cli.recipe import network_session
from crnr_cli.recipe.network_session import (
    available_providers,
    images_per_batch,
    images_per_run,
    make_network,
    open_session,
)
from helpers.onnx_models import flat_model
from helpers.runner import Runner, read_rows
from helpers.samples import make_features, make_images

RealSession = onnxruntime.InferenceSession


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return flat_model(tmp_path / "m.onnx", ["n", 3, 8, 8])


def claim(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let onnxruntime list these providers, which it does not have, and the processor."""
    listed = [PROVIDERS[name] for name in (*names, CPU)]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)


class Accelerator:
    """A session that claims to run on the requested provider, and records its arguments."""

    broken: tuple[str, ...] = ()  # those that raise an exception
    asked: list[str]  # all that were tried
    sizes: list[int]  # of batches
    has_fallback = True

    def __init__(self, path: Path, settings: Any, providers: list[str]) -> None:
        self.providers = providers
        Accelerator.asked.append(providers[0])
        if providers[0] in self.broken:
            raise RuntimeError("no device was found\nand more lines")
        self.session = RealSession(path, settings, providers=["CPUExecutionProvider"])

    def get_providers(self) -> list[str]:
        return self.providers

    def disable_fallback(self) -> None:
        self.has_fallback = False

    def run(self, outputs: Any, inputs: dict[str, Any]) -> Any:
        assert not self.has_fallback
        Accelerator.sizes += [len(values) for values in inputs.values()]
        return self.session.run(outputs, inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> type[Accelerator]:
    monkeypatch.setattr(onnxruntime, "InferenceSession", Accelerator)
    monkeypatch.setattr(Accelerator, "asked", [], raising=False)
    monkeypatch.setattr(Accelerator, "sizes", [], raising=False)
    return Accelerator


def opened(model: Path, provider: str) -> str:
    """Return the provider that a model runs on."""
    return open_session(model, 1, provider).provider


def test_provider_names_match_onnxruntime() -> None:
    assert set(onnxruntime.get_all_providers()) >= set(PROVIDERS.values()) - {"ROCMExecutionProvider"}
    assert set(PREFERRED) <= set(PROVIDERS)
    assert PREFERRED[-1] == CPU  # which is always there
    assert set(PACKAGES) <= set(PROVIDERS) - {CPU}
    assert AUTO not in PROVIDERS


def test_available_providers_are_ordered_by_preference(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CPU in available_providers()
    claim(monkeypatch, "tensorrt", "openvino", "cuda")
    assert available_providers() == ["cuda", "openvino", CPU, "tensorrt"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["NewExecutionProvider"])
    assert available_providers() == []


@pytest.mark.parametrize(
    "provider", [name for name in PROVIDERS if PROVIDERS[name] != "CPUExecutionProvider"]
)
def test_a_missing_provider_names_its_package(
    model: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(monkeypatch)
    with pytest.raises(UsageError) as caught:
        opened(model, provider)
    package = f"; install {PACKAGES[provider]} instead of it" if provider in PACKAGES else ""
    assert str(caught.value) == (
        f"--provider {provider}: the installed onnxruntime does not have it, only cpu{package}"
    )


def test_a_listed_provider_that_fails_is_an_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime itself goes on with the processor, and only warns."""
    claim(monkeypatch, "cuda", "rocm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = RealSession(model, providers=[PROVIDERS["cuda"], PROVIDERS[CPU]])
    assert session.get_providers() == [PROVIDERS[CPU]]
    for provider in ("cuda", "rocm"):
        with pytest.raises(UsageError) as caught:
            opened(model, provider)
        assert str(caught.value) == (
            f"--provider {provider}: onnxruntime cannot use it on this machine; is its driver installed?"
        )
    assert opened(model, AUTO) == CPU
    assert opened(model, CPU) == CPU


def test_auto_takes_the_best(
    model: Path, accelerator: type[Accelerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(monkeypatch, "openvino", "tensorrt", "cuda", "xnnpack")
    assert opened(model, AUTO) == "cuda"
    assert accelerator.asked == ["CUDAExecutionProvider"]
    claim(monkeypatch, "tensorrt", "xnnpack", "openvino")
    assert opened(model, AUTO) == "openvino"
    claim(monkeypatch, "tensorrt", "xnnpack")  # these only on request
    assert opened(model, AUTO) == CPU
    assert opened(model, "tensorrt") == "tensorrt"


def test_auto_goes_on_after_one_that_fails(
    model: Path, accelerator: type[Accelerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(monkeypatch, "cuda", "openvino")
    monkeypatch.setattr(accelerator, "broken", ("CUDAExecutionProvider",))
    assert opened(model, AUTO) == "openvino"
    assert accelerator.asked == ["CUDAExecutionProvider", "OpenVINOExecutionProvider"]
    monkeypatch.setattr(accelerator, "broken", ("CUDAExecutionProvider", "OpenVINOExecutionProvider"))
    assert opened(model, AUTO) == CPU
    with pytest.raises(DataError) as caught:
        opened(model, "cuda")
    assert str(caught.value) == (
        f"{model}: onnxruntime cannot open this model (no device was found); upgrade onnxruntime, or export "
        "the "
        "network again"
    )


def test_auto_with_a_damaged_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(monkeypatch, "cuda")
    model.write_bytes(b"text")
    with pytest.raises(DataError, match=r"m\.onnx: not an ONNX model; export"):
        opened(model, AUTO)


def test_auto_without_any(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["NewExecutionProvider"])
    with pytest.raises(DataError, match="onnxruntime cannot run this model on any of"):
        opened(model, AUTO)


def test_batches_fit_the_provider(
    model: Path, accelerator: type[Accelerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones on the processor, large ones elsewhere; all images in their order."""
    pixels = np.random.default_rng(0).integers(0, 256, (300, 192), dtype=np.uint8)
    claim(monkeypatch, "openvino")
    options = NetworkOptions(model, "raw")
    expected = None
    for provider in (CPU, "openvino", AUTO):
        network = make_network(options, 1, provider)
        accelerator.sizes.clear()
        vectors = network.open(1, provider).extract(pixels)
        most = images_per_run(CPU if provider == CPU else "openvino")
        assert sum(accelerator.sizes) == 300
        assert max(accelerator.sizes) == most
        assert len(accelerator.sizes) == -(-300 // most)
        expected = vectors if expected is None else expected
        np.testing.assert_array_equal(vectors, expected)
        np.testing.assert_array_equal(np.sort(vectors), np.sort(pixels))
    assert images_per_run(CPU) < images_per_batch(CPU) < images_per_batch("cuda")
    assert images_per_batch(AUTO) == images_per_batch("openvino")
    claim(monkeypatch)
    assert images_per_batch(AUTO) == images_per_batch(CPU)


def test_a_run_that_fails_is_not_repeated_elsewhere(
    model: Path, accelerator: type[Accelerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(monkeypatch, "cuda")
    network = make_network(NetworkOptions(model, "raw"), 1, "cuda")

    def run(*arguments: object) -> None:
        raise RuntimeError("out of memory\nmore")

    monkeypatch.setattr(Accelerator, "run", run)
    for provider, remedy in (("cuda", "; --provider cpu is slower, but may have more memory"), (CPU, "")):
        with pytest.raises(DataError) as caught:
            network.open(1, provider).extract(np.ones((2, 192), np.uint8))
        assert str(caught.value) == f"{model}: cannot be run on 2 images (out of memory){remedy}"


RAW = ("--extractor", "m.onnx", "--extractor-preset", "raw")
COMMANDS: dict[str, tuple[str, ...]] = {
    "build": ("build", "photos", "-o", "new.h5", *RAW),
    "extract": ("extract", "photos", "-o", "new.h5", *RAW),
    "tune": ("tune", "photos", *RAW),
    "compare": ("compare", "photos", "queries", "--methods", "nsc", *RAW),
    "classify": ("classify", "queries", "-g", "g.h5", "-o", "new.csv"),
    "evaluate": ("evaluate", "queries", "-g", "g.h5"),
    "explain": ("explain", "queries/ant/7.png", "-g", "g.h5"),
    "add": ("add", "g.h5", "queries"),
    "model check": ("model", "check", *RAW[1:]),
}


@pytest.fixture
def ready(crnr: Runner, model: Path) -> Runner:
    make_images(crnr.here / "photos", per_class=3)
    make_images(crnr.here / "queries", per_class=2, first=7)
    assert crnr("build", "photos", "-o", "g.h5", *RAW, "--provider", "cpu").exit == 0
    return crnr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_with_a_network(
    ready: Runner, command: str, accelerator: type[Accelerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requested provider is used, or nothing is done."""
    monkeypatch.setattr("crnr_cli.jobs.model._SECONDS", 0)
    claim(monkeypatch, "openvino")
    before = {path: path.read_bytes() for path in ready.here.rglob("*") if path.is_file()}
    outcome = ready(*COMMANDS[command], "--provider", "directml")
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err == (
        "error: --provider directml: the installed onnxruntime does not have it, only openvino, cpu; install "
        "onnxruntime-directml instead of it\n"
    )
    assert {path: path.read_bytes() for path in ready.here.rglob("*") if path.is_file()} == before
    for provider, asked in (("openvino", "OpenVINOExecutionProvider"), ("cpu", "CPUExecutionProvider")):
        accelerator.asked.clear()
        (ready.here / "new.h5").unlink(missing_ok=True)
        (ready.here / "g.h5").write_bytes(before[ready.here / "g.h5"])
        assert ready(*COMMANDS[command], "--provider", provider).exit == 0
        assert accelerator.asked == [asked]  # it is loaded once


def test_auto_provider_prints_the_chosen_one(
    ready: Runner, accelerator: type[Accelerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "runs on" not in ready(*COMMANDS["build"]).err  # the processor
    claim(monkeypatch, "openvino")
    outcome = ready(*COMMANDS["build"])
    assert outcome.exit == 0
    assert "note: the network runs on openvino; --provider cpu uses the processor instead\n" in outcome.err
    assert "runs on" not in ready(*COMMANDS["build"], "--provider", "openvino").err
    note = "note: the network ran on openvino; --provider cpu uses the processor instead\n"
    assert ready(*COMMANDS["classify"]).err.startswith(note)
    assert "ran on" not in ready(*COMMANDS["classify"], "--provider", "openvino").err


def test_outsiders_are_classified_by_the_model_of_the_queries(
    ready: Runner, accelerator: type[Accelerator]
) -> None:
    command = (*COMMANDS["evaluate"], "--outsiders", "photos", "--reject", "0.1", "--provider", "cpu")
    assert ready(*command).exit == 0
    assert accelerator.asked == ["CPUExecutionProvider"]


def test_a_gallery_in_python_keeps_its_model(ready: Runner, accelerator: type[Accelerator]) -> None:
    """It is loaded once for all calls, and by each process that the gallery is sent to."""
    gallery = Gallery.load("g.h5", provider="cpu")
    first = gallery.classify("queries", jobs=1)
    assert gallery.classify("queries", jobs=1) == first
    assert accelerator.asked == ["CPUExecutionProvider"]
    assert pickle.loads(pickle.dumps(gallery)).classify("queries", jobs=1) == first
    assert accelerator.asked == ["CPUExecutionProvider"] * 2


def test_a_provider_needs_a_network(crnr: Runner) -> None:
    make_features(crnr.here / "f.npz")
    outcome = crnr("build", "f.npz", "--provider", "cpu")
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err == "error: --provider only applies to networks; add --extractor NAME or MODEL.onnx\n"


def test_a_run_is_not_resumed_on_another_provider(ready: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers may differ a little."""
    start = ("classify", "queries", "-g", "g.h5", "-o", "out.csv", "--batch-size", 2)
    (ready.here / "queries/cow/broken.png").write_bytes(b"text")
    outcome = ready(*start, "--strict", "--provider", "cpu")
    assert outcome.exit == 1
    outcome = ready(*start, "--resume", "--provider", "auto")
    assert (outcome.exit, outcome.out) == (1, "")
    assert "--provider" in outcome.err
    assert ready(*start, "--resume", "--provider", "cpu").exit == 3
    assert len(read_rows(ready.here / "out.csv")) == 7


def test_a_network_without_onnxruntime_names_the_extra(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from helpers.patches import remove_extras

    remove_extras(monkeypatch.setattr)
    with pytest.raises(Exception, match="an extractor that is a network needs onnxruntime; install with: "):
        network_session.available_providers()
