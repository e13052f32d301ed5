"""The files of an ONNX model: which ones it names, according to the onnx package, and what identifies it."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import external_data_helper, helper, numpy_helper

from crnr_cli.choices import CPU
from crnr_cli.errors import DataError
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.models.onnx_files import _locations, external_files, model_hash
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.network_session import open_session
from helpers.onnx_models import flat_model, make_external, projection_model
from helpers.runner import Runner, rows
from helpers.samples import make_images


def tensors_everywhere() -> onnx.ModelProto:
    """Return a model with tensors in every place that onnx.proto has for them, each in a file of its own."""
    count = iter(range(100))

    def tensor() -> onnx.TensorProto:
        return make_external(numpy_helper.from_array(np.ones(3, np.float32)), f"{next(count)}.bin")

    def sparse() -> onnx.SparseTensorProto:
        both = onnx.SparseTensorProto()
        both.values.CopyFrom(tensor())
        both.indices.CopyFrom(tensor())
        return both

    def graph(*nodes: onnx.NodeProto) -> onnx.GraphProto:
        made = helper.make_graph(nodes, "g", [], [], [tensor()])
        made.sparse_initializer.append(sparse())
        return made

    def node() -> onnx.NodeProto:
        return helper.make_node("Constant", [], ["c"], value=tensor())

    odd = helper.make_node("Odd", [], [], tensors=[tensor(), tensor()], graphs=[graph(), graph(node())])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=graph(node()), else_branch=graph())
    thin = helper.make_node("Odd", [], [], sparse=sparse(), many=[sparse()])
    model = helper.make_model(graph(node(), branch, odd, thin))
    function = helper.make_function("d", "f", [], [], [node()], [helper.make_opsetid("", 17)])
    function.attribute_proto.append(helper.make_attribute("a", tensor()))
    model.functions.append(function)
    training = model.training_info.add()
    training.initialization.CopyFrom(graph())
    training.algorithm.CopyFrom(graph())
    model.graph.node[0].doc_string = "9.bin" * 1000
    return model


def tensors_in(message: Any) -> Iterator[onnx.TensorProto]:
    """Yield all tensors in a message, by the descriptors of the onnx package."""
    if isinstance(message, onnx.TensorProto):
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from tensors_in(inner)


def named_in(model: onnx.ModelProto) -> list[str]:
    return [
        external_data_helper.ExternalDataInfo(tensor).location
        for tensor in tensors_in(model)
        if external_data_helper.uses_external_data(tensor)
    ]


def read_locations(data: bytes) -> list[str]:
    return list(_locations(io.BytesIO(data)))


def test_every_file_that_a_model_names_is_found_wherever_it_is_named() -> None:
    model = tensors_everywhere()
    named = named_in(model)
    assert len(named) > 20
    assert sorted(read_locations(model.SerializeToString())) == sorted(named)


def test_a_tensor_that_is_stored_in_the_model_names_no_file() -> None:
    model = tensors_everywhere()
    for tensor in tensors_in(model):
        tensor.data_location = onnx.TensorProto.DEFAULT
    assert read_locations(model.SerializeToString()) == []


WHOLE = tensors_everywhere().SerializeToString()


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))), st.integers(0, len(WHOLE)))
def test_a_damaged_model_is_read_or_refused(changes: list[tuple[int, int]], length: int) -> None:
    damaged = bytearray(WHOLE)
    for position, value in changes:
        damaged[position] = value
    try:
        found = read_locations(bytes(damaged[:length]))
    except ValueError:
        return
    if not changes and length == len(WHOLE):
        assert sorted(found) == sorted(named_in(onnx.load_from_string(WHOLE)))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x80" * 11, id="endless number"),
        pytest.param(b"\x0b\x0c", id="group"),
        pytest.param(b"\x3a\xff\xff\xff\x7f", id="huge field"),
        pytest.param(b"\x3a\x05abc", id="truncated"),
        pytest.param(b"\x09123", id="truncated number"),
        pytest.param(b"\x3a\x02\x2a\x7f" + bytes(200), id="longer than its parent"),
    ],
)
def test_model_hash_refuses_files_other_than_protobuf(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(DataError, match=r"m\.onnx: not an ONNX model; export"):
        model_hash(tmp_path / "m.onnx")


def test_graphs_nested_deeper_than_the_stack_of_python() -> None:
    """A model that is made to exhaust a recursive reader: graph, node, attribute, graph, and so on."""
    data = b""
    for number in reversed([7, *[1, 5, 6] * 3000]):
        size, length = len(data), b""
        while size >= 128:
            size, length = size >> 7, length + bytes([size & 127 | 128])
        data = bytes([number << 3 | 2]) + length + bytes([size]) + data
    assert read_locations(data) == []


def sha256(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def test_models_that_early_versions_knew_keep_their_hash(tmp_path: Path) -> None:
    alone = flat_model(tmp_path / "alone.onnx", ["n", 3, 8, 8])
    assert model_hash(alone).sha256 == sha256(alone.read_bytes())
    for ending in (".data", "_data"):
        model = projection_model(tmp_path / "m.onnx", locations=(f"m.onnx{ending}",))
        weights = (tmp_path / f"m.onnx{ending}").read_bytes()
        assert model_hash(model).sha256 == sha256(model.read_bytes(), weights)
        (tmp_path / f"m.onnx{ending}").unlink()


def test_the_weights_count_and_the_names_of_files_do_not(tmp_path: Path) -> None:
    model = projection_model(tmp_path / "m.onnx", locations=("a.bin", "b.bin"))
    first = model_hash(model).sha256
    model = model.rename(tmp_path / "renamed.onnx")
    assert model_hash(model).sha256 == first
    a, b = (tmp_path / "a.bin").read_bytes(), (tmp_path / "b.bin").read_bytes()
    for changed in ((a, b[:-1] + b"x"), (b, a), (a + b[:4], b[4:])):
        (tmp_path / "a.bin").write_bytes(changed[0])
        (tmp_path / "b.bin").write_bytes(changed[1])
        assert model_hash(model).sha256 != first


@pytest.fixture
def photos(crnr: Runner) -> Runner:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "queries", first=50)
    return crnr


def test_a_model_in_the_format_of_onnxruntime_contains_its_weights(tmp_path: Path) -> None:
    (tmp_path / "m.ort").write_bytes(b"\x10\0\0\0ORTM" + bytes(30))
    assert external_files(tmp_path / "m.ort") == []


PRODUCERS = st.text(max_size=12) | st.builds(str.__add__, st.just("ORTM"), st.text(max_size=8))


@given(PRODUCERS, st.text(max_size=3))
def test_no_other_text_in_a_model_hides_its_weights(producer: str, version: str) -> None:
    """The first field of most models is their version, and the second one the name of the producer."""
    with tempfile.TemporaryDirectory() as folder:
        path = projection_model(Path(folder, "m.onnx"), locations=("weights.bin",))
        model = onnx.load(path, load_external_data=False)
        model.producer_name, model.producer_version = producer, version
        path.write_bytes(model.SerializeToString())
        assert external_files(path) == ["weights.bin"]


def to_ort_format(model: Path) -> bytes:
    """Return the model as onnxruntime itself writes it in its own format."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    settings.optimized_model_filepath = str(model.with_name("converted.ort"))
    onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return model.with_name("converted.ort").read_bytes()


@pytest.mark.parametrize("name", ["m.onnx", "m.ort", "M.ORT", "m.ort.onnx", "m.onnx.ort", "m", ".ort"])
@pytest.mark.parametrize("producer", ["", "ORTM", "in the other format"])
def test_onnxruntime_opens_no_other_weights_than_those_checked(
    tmp_path: Path, name: str, producer: str
) -> None:
    """If no weights are found, the network can do without them."""
    model = projection_model(tmp_path / "made.onnx", locations=("weights.bin",))
    content = onnx.load(model, load_external_data=False)
    content.producer_name = producer
    is_ort = producer == "in the other format"
    path = tmp_path / name
    path.write_bytes(to_ort_format(model) if is_ort else content.SerializeToString())
    can_open = name in (("m.ort", "M.ORT", "m.onnx.ort") if is_ort else ("m.onnx", "m.ort.onnx", "m", ".ort"))
    try:
        named = external_files(path)
        open_session(path, 1, CPU)
    except (DataError, ValueError):
        assert not can_open
        return
    assert can_open
    (tmp_path / "weights.bin").unlink()
    if named:
        assert named == ["weights.bin"]
    else:
        open_session(path, 1, CPU)


@pytest.mark.parametrize("location", ["weights.bin", "../secret.bin"])
def test_weights_are_checked_whatever_program_made_the_model(photos: Runner, location: str) -> None:
    Path("models").mkdir()
    model = projection_model(photos.here / "models" / "m.onnx", locations=(location,))
    content = onnx.load(model, load_external_data=False)
    content.producer_name = "ORTM"
    model.write_bytes(content.SerializeToString())
    built = photos("build", "gallery", "--extractor", "models/m.onnx", "--extractor-preset", "raw")
    if location == "../secret.bin":
        assert (built.exit, built.out) == (1, "")
        assert built.err.startswith(
            "error: models/m.onnx: the weights ../secret.bin are outside the model's folder"
        )
        return
    assert built.exit == 0, built.err
    weights = Path("models/weights.bin")
    weights.write_bytes(weights.read_bytes()[::-1])
    refused = photos("classify", "queries")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith(f"error: {model}: not the network that the gallery was built with")


def renamed_weights(folder: Path, name: str) -> Path:
    model = projection_model(folder / "m.onnx", locations=("inside.bin",))
    data = onnx.load(model, load_external_data=False)
    data.graph.initializer[0].external_data[0].value = name
    model.write_bytes(data.SerializeToString())
    return model


@pytest.mark.parametrize(
    "name", ["../secret.bin", "sub/../../secret.bin", "ABSOLUTE", "link.bin", "link/secret.bin"]
)
def test_no_file_outside_the_folder_of_the_model_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "models" / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(b"secret")
    (tmp_path / "models" / "link.bin").symlink_to(tmp_path / "secret.bin")
    (tmp_path / "models" / "link").symlink_to(tmp_path)
    name = name.replace("ABSOLUTE", str(tmp_path / "secret.bin"))
    model = renamed_weights(tmp_path / "models", name)
    with pytest.raises(DataError) as refused:
        external_files(model)
    assert str(refused.value) == (
        f"{model}: the weights {os.path.normpath(name)} are outside the model's folder, "
        "where crnr reads nothing; save the model again, with the weights next to it"
    )


@pytest.mark.parametrize("name", ["", ".", "nosuch.bin", "folder", "pipe", "x" * 300, "*/_ORT_MEM_ADDR_/*"])
def test_weights_must_be_a_regular_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    model = renamed_weights(tmp_path, name)
    with pytest.raises(DataError, match="are missing; put this file into the model's folder"):
        external_files(model)


@pytest.mark.parametrize("name", ["x" * 100_000, "nul\0.bin"])
def test_model_hash_refuses_invalid_names_of_weights(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"m\.onnx: not an ONNX model; export"):
        model_hash(renamed_weights(tmp_path, name))


@pytest.mark.parametrize(
    "locations",
    [("weights.bin",), tuple(f"w{i}" for i in range(8)), ("sub/w.data",)],
    ids=["one file", "a file per tensor", "in a folder"],
)
def test_changed_weights_are_noticed_whatever_their_file_is_called(
    photos: Runner, locations: tuple[str, ...]
) -> None:
    Path("sub").mkdir()
    model = projection_model(photos.here / "m.onnx", locations=locations)
    assert photos("build", "gallery", "--extractor", "m.onnx", "--extractor-preset", "raw").exit == 0
    answered = photos("classify", "queries")
    assert (answered.exit, len(rows(answered.out))) == (0, 12)
    projection_model(photos.here / "m.onnx", seed=1, locations=locations)
    refused = photos("classify", "queries")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith(f"error: {model}: not the network that the gallery was built with")
    projection_model(photos.here / "m.onnx", locations=locations)
    assert photos("classify", "queries") == answered
    Path(locations[0]).unlink()
    refused = photos("classify", "queries")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err == (
        f"error: {model}: the weights {locations[0]} are missing; put this file into the model's folder\n"
    )


def test_a_gallery_whose_weights_were_not_recorded_has_to_be_built_again(photos: Runner) -> None:
    model = projection_model(photos.here / "m.onnx", locations=("weights.bin",))
    assert photos("build", "gallery", "--extractor", "m.onnx", "--extractor-preset", "raw").exit == 0
    gallery = load_gallery(Path("gallery.h5"))
    extractor = gallery.recipe.extractor
    assert isinstance(extractor, Network)
    early = replace(extractor, sha256=sha256(model.read_bytes()))
    save_gallery(replace(gallery, recipe=replace(gallery.recipe, extractor=early)), Path("gallery.h5"))
    refused = photos("classify", "queries")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err == (
        f"error: {model}: the gallery was built by a version of crnr that did not record the weights in "
        f"{photos.here}/weights.bin, which may have changed since; build the gallery again\n"
    )


def test_a_model_that_is_a_link_next_to_links_to_its_weights(photos: Runner) -> None:
    """As in the cache of Hugging Face: all links lead to one folder, and have other names there."""
    Path("blobs").mkdir()
    Path("snapshot").mkdir()
    projection_model(photos.here / "m.onnx", locations=("m.onnx_data",))
    for name, blob in (("m.onnx", "1f3a"), ("m.onnx_data", "77c0")):
        Path(name).rename(f"blobs/{blob}")
        Path("snapshot", name).symlink_to(f"../blobs/{blob}")
    built = photos("build", "gallery", "--extractor", "snapshot/m.onnx", "--extractor-preset", "raw")
    assert built.exit == 0, built.err
    answered = photos("classify", "queries")
    assert (answered.exit, len(rows(answered.out))) == (0, 12)
