"""Weights that PyTorch saved: the tensors that NumPy and Python itself read, and what is refused."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import struct
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.errors import DataError
from crnr_cli.models.catalog import MODELS, Weights
from crnr_cli.models.torch_weights import read_weights
from helpers.torch_files import (
    MAGIC,
    STORAGES,
    SYSTEM,
    VERSION,
    Block,
    Call,
    View,
    pickled,
    save,
    weights_bytes,
    whole,
)

KNOWN = {model.name: model.weights for model in MODELS.values() if model.weights}


def refused(path: Path, content: bytes) -> str:
    """Return the message for a file that is not read: one line."""
    save(path, content)
    with pytest.raises(DataError) as caught:
        read_weights(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: not a weights file saved by PyTorch: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300
    return message


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()  # NaN too


class Reference(pickle.Unpickler):
    """Python's own reader, which may only make dictionaries and descriptions of tensors."""

    def find_class(self, module: str, name: str) -> Any:
        return {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor_v2": lambda block, offset, shape, strides, *_: View(
                block, offset, shape, strides
            ),
            "torch.FloatStorage": np.float32,
            "torch.LongStorage": np.int64,
        }[f"{module}.{name}"]

    def persistent_load(self, reference: Any) -> Block:
        _, kind, key, _, length, _ = reference
        return Block(key, np.empty(length, kind))


def tensors_by_python(file: BinaryIO) -> dict[str, Any]:
    assert [Reference(file).load() for _ in range(3)] == [MAGIC, VERSION, SYSTEM]
    state, keys = Reference(file).load(), Reference(file).load()
    blocks = {view.block.key: view.block.numbers for view in state.values()}
    for key in keys:
        (length,) = struct.unpack("<Q", file.read(8))
        blocks[key][:] = np.frombuffer(file.read(length * blocks[key].itemsize), blocks[key].dtype)
    assert file.read() == b""
    expected = {}
    for name, view in state.items():
        of = blocks[view.block.key]
        places = sum(
            np.arange(length).reshape([-1 if i == axis else 1 for i in range(len(view.shape))]) * step
            for axis, (length, step) in enumerate(zip(view.shape, view.strides, strict=True))
        )
        expected[name] = np.asarray(of[view.offset + places])
    return expected


@pytest.mark.parametrize("weights", KNOWN.values(), ids=KNOWN)
def test_the_weights_of_the_catalogue_are_those_that_python_reads(weights: Weights) -> None:
    package = find_spec(weights.package)
    if package is None or package.origin is None:
        pytest.skip(f"{weights.package} is not installed")
    path = Path(package.origin).parent / weights.member
    content = path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == weights.sha256
    found, expected = read_weights(path), tensors_by_python(io.BytesIO(content))
    assert list(found) == list(expected)
    for name in found:
        same(found[name], expected[name])


@st.composite
def states(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors that are views of blocks in all ways, and the arrays that NumPy makes of the same views."""
    state: dict[str, Any] = OrderedDict()
    expected: dict[str, Any] = {}
    for key in draw(st.lists(st.text("0123456789ab", min_size=1), min_size=1, max_size=3, unique=True)):
        kind = np.dtype(draw(st.sampled_from(sorted(STORAGES))))
        sides = draw(st.lists(st.integers(0, 5), max_size=4))
        offset = draw(st.integers(0, 3))
        count = int(np.prod(sides)) + offset + draw(st.integers(0, 3))
        seed = draw(st.integers(0, 2**32))
        raw = np.random.default_rng(seed).integers(0, 256, count * kind.itemsize, dtype=np.uint8)
        numbers = raw.view(kind)
        block = Block(key, numbers)
        for _ in range(draw(st.integers(1, 3))):
            view = numbers[offset : offset + int(np.prod(sides))].reshape(sides)
            view = view.transpose(draw(st.permutations(range(view.ndim))))
            for axis in range(view.ndim):
                step, first = draw(st.integers(1, 3)), draw(st.integers(0, 2))
                view = view[(slice(None),) * axis + (slice(first, None, step),)]
            if view.ndim and view.shape[0] and draw(st.booleans()):
                view = view[draw(st.integers(0, view.shape[0] - 1)), ...]
            start = view.__array_interface__["data"][0] - numbers.__array_interface__["data"][0]
            strides = tuple(stride // kind.itemsize for stride in view.strides)
            name = f"layer.{len(state)}"
            state[name] = View(block, start // kind.itemsize if view.size else 0, view.shape, strides)
            expected[name] = view
    return state, expected


@given(case=states())
def test_read_weights_returns_the_tensors_of_numpy(
    tmp_path_factory: pytest.TempPathFactory, case: Any
) -> None:
    state, expected = case
    path = save(tmp_path_factory.getbasetemp() / f"{os.getpid()}.pth", weights_bytes(state))
    found = read_weights(path)
    assert list(found) == list(expected)
    for name in found:
        same(found[name], expected[name])


def test_only_tensors_are_kept(tmp_path: Path) -> None:
    state = OrderedDict(epoch=3, x=whole("0", np.arange(3)), inner={"y": 1}, n=None, names=["a"])
    state._metadata = OrderedDict(version=1)  # type: ignore[attr-defined]
    found = read_weights(save(tmp_path / "x.pth", weights_bytes(state)))
    assert list(found) == ["x"]
    assert found["x"].tolist() == [0, 1, 2]


def test_read_weights_returns_read_only_arrays(tmp_path: Path) -> None:
    """Tensors of one block share their memory."""
    found = read_weights(save(tmp_path / "x.pth", weights_bytes({"x": whole("0", np.arange(3))})))["x"]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def test_no_pickle_runs_anything(tmp_path: Path) -> None:
    """These are the ways in which a pickle can have a reader import, call or change something."""
    place = tmp_path / "made"
    touch = f"touch '{place}'"
    payloads = {
        "REDUCE": pickle.dumps(Call(os.system, touch), 2),
        "protocol 4": pickle.dumps(Call(os.system, touch), 4),
        "INST": b"(" + text(touch) + b"iposix\nsystem\n.",
        "OBJ": b"(cposix\nsystem\n" + text(touch) + b"o.",
        "exec": pickle.dumps(Call(exec, f"open({str(place)!r}, 'w').close()"), 2),
        "NEWOBJ": b"csubprocess\nPopen\n(" + text(touch) + b"tN}\x81.",
        "EXT": b"\x80\x02\x82\x01.",
        "PERSID": b"P" + touch.encode() + b"\n.",
        "a known name that is called": b"ccollections\nOrderedDict\n(" + text(touch) + b"tR.",
        "a type that is called": b"ctorch\nFloatStorage\n(" + text(touch) + b"tR.",
    }
    for how in ("REDUCE", "protocol 4", "INST", "OBJ", "exec"):
        pickle.loads(payloads[how])  # it does what it is meant to do
        place.unlink()
    for how, data in payloads.items():
        message = refused(tmp_path / "x.pth", weights_bytes(data))
        assert "nothing of it was run" in message or "which tensors do not need" in message, how
        assert not place.exists(), how
    state = {"x": whole("0", np.arange(3)), "y": Call(os.system, touch)}
    message = refused(tmp_path / "x.pth", weights_bytes(state))
    assert message.endswith("a pickle that wants to run posix.system; nothing of it was run")
    assert not place.exists()


NUMBERS = Block("0", np.arange(6, dtype=np.float32))


@pytest.mark.parametrize(
    "tensor",
    [
        View(NUMBERS, 0, (7,), (1,)),
        View(NUMBERS, 1, (6,), (1,)),
        View(NUMBERS, 6, (), ()),
        View(NUMBERS, 2**40, (1,), (1,)),
        View(NUMBERS, 0, (2, 3), (4, 1)),
        View(NUMBERS, 0, (2,), (2**47,)),
        View(NUMBERS, 0, (2, 3), (1,)),
        View(NUMBERS, 0, (1,) * 70, (1,) * 70),
        View(NUMBERS, -1, (1,), (1,)),
        View(NUMBERS, 0, (2,), (-1,)),
        View(NUMBERS, 0, (-1,), (1,)),
        View(NUMBERS, None, (2,), (1,)),
        View(NUMBERS, 0, "2", "1"),
        View(NUMBERS, 0, (2**70,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), declared=7), 0, (6,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), declared=-1), 0, (6,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), storage="BoolStorage"), 0, (6,), (1,)),
    ],
    ids=lambda view: f"{view.block.declared} {view.offset} {str(view.shape)[:20]} {str(view.strides)[:20]}",
)
def test_tensors_that_cannot_be(tensor: View, tmp_path: Path) -> None:
    refused(tmp_path / "x.pth", weights_bytes({"x": tensor}))


STATE = OrderedDict(
    a=whole("0", np.arange(6, dtype=np.float32).reshape(2, 3)), b=whole("1", np.array(5)), c=[1, ("x", 2**70)]
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "pickle exhausted", id="empty"),
        pytest.param(b"Weights of a network\n" * 99, "opcode b'W' unknown", id="text"),
        pytest.param(bytes(9999), "opcode b'\\x00' unknown", id="zeros"),
        pytest.param(b"PK\3\4" + bytes(99), "no newline found", id="the newer format"),
        pytest.param(pickled(STATE), "the beginning of the file is different", id="a pickle alone"),
        pytest.param(
            weights_bytes(STATE, system={**SYSTEM, "little_endian": False}), "byte order", id="big-endian"
        ),
        pytest.param(weights_bytes(STATE, system=[]), "damaged", id="no description of the machine"),
        pytest.param(weights_bytes(["x"]), "damaged", id="a list"),
        pytest.param(weights_bytes({"x": 1.5}), "the instruction BINFLOAT", id="other values"),
        pytest.param(weights_bytes(STATE, keys=7), "damaged", id="no list of keys"),
        pytest.param(weights_bytes(STATE, keys=["0"]), "damaged", id="a key is missing"),
        pytest.param(weights_bytes(STATE, keys=["2"]), "damaged", id="another key"),
        pytest.param(weights_bytes(STATE, keys=[[]]), "damaged", id="a key that is a list"),
        pytest.param(weights_bytes(STATE, keys=["1", "0"]), "another length", id="keys in another order"),
        pytest.param(weights_bytes(STATE, blocks=b""), "another length", id="no blocks"),
        pytest.param(b".", "damaged", id="no values"),
        pytest.param(b"t.", "damaged", id="no mark"),
        pytest.param(b"N(Nu.", "damaged", id="items of nothing"),
        pytest.param(b"}(Nu.", "argument 2 is shorter", id="a key without a value"),
        pytest.param(b"}Na.", "damaged", id="an item of a dictionary"),
        pytest.param(b"NNR.", "calls something", id="a call of nothing"),
        pytest.param(b"h\0.", "damaged", id="a value that was not put anywhere"),
        pytest.param(b"}Q.", "damaged", id="a block without a type"),
    ],
)
def test_read_weights_refuses_files_without_weights(content: bytes, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path / "x.pth", content)


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    content = weights_bytes(STATE)
    for length in range(len(content)):
        refused(tmp_path / "x.pth", content[:length])


@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=5))
def test_changed_bytes_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(weights_bytes(STATE))
    for place, mask in flips:
        content[place % len(content)] ^= mask
    path = save(tmp_path_factory.getbasetemp() / f"{os.getpid()}.pth", bytes(content))
    with contextlib.suppress(DataError):
        assert all(isinstance(one, np.ndarray) for one in read_weights(path).values())


def test_read_weights_reports_unreadable_files(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.pth", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(DataError) as caught:
            read_weights(path)
        assert str(caught.value) == f"{path}: cannot read it ({reason})"
