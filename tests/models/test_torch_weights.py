"""Weights that PyTorch saved: the tensors that NumPy has, and what is refused."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.errors import DataError
from crnr_cli.models.torch_weights import read_weights
from helpers.torch_files import (
    FORMATS,
    STORAGES,
    SYSTEM,
    Block,
    Call,
    Parameter,
    View,
    older_bytes,
    pickled,
    save,
    whole,
    zip_bytes,
)

SECONDS = 5  # far less is needed, but not on a busy machine
each_format = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)


def refused(path: Path, content: bytes, most_memory: int = 2**23) -> str:
    """The message for a file that is not read; it takes neither long nor much memory to find out."""
    save(path, content)
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(DataError) as caught:
        read_weights(path)
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < SECONDS
    assert peak < most_memory + 20 * len(content)
    message = str(caught.value)
    assert message.startswith(f"{path}: not a file of weights that PyTorch saved: ")
    assert len(message) < len(str(path)) + 400
    return message


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()  # NaN too


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
            tensor = View(block, start // kind.itemsize if view.size else 0, view.shape, strides)
            state[name] = Parameter(tensor) if draw(st.booleans()) else tensor
            expected[name] = view
    return state, expected


@each_format
@given(case=states(), protocol=st.sampled_from([2, 3, 4, 5]))
def test_tensors_are_what_numpy_says(
    form: Callable[..., bytes], tmp_path_factory: pytest.TempPathFactory, case: Any, protocol: int
) -> None:
    state, expected = case
    path = save(tmp_path_factory.getbasetemp() / f"{os.getpid()}.pth", form(state, protocol))
    found = read_weights(path)
    assert list(found) == list(expected)
    for name in found:
        same(found[name], expected[name])


@each_format
def test_one_number_shared_by_all_elements(form: Callable[..., bytes], tmp_path: Path) -> None:
    """As `expand` gives it: a stride of 0."""
    block = Block("0", np.arange(6, dtype=np.float32))
    path = save(tmp_path / "x.pth", form({"x": View(block, 4, (2, 3), (0, 0))}))
    same(read_weights(path)["x"], np.full((2, 3), 4, np.float32))


@each_format
def test_only_tensors_are_kept(form: Callable[..., bytes], tmp_path: Path) -> None:
    state = OrderedDict(epoch=3, names=["a"], x=whole("0", np.arange(3.0)), inner={"y": 1}, n=None)
    state._metadata = OrderedDict(version=1)  # type: ignore[attr-defined]
    found = read_weights(save(tmp_path / "x.pth", form(state)))
    assert list(found) == ["x"]
    assert found["x"].tolist() == [0, 1, 2]


@each_format
def test_what_is_read_cannot_be_changed(form: Callable[..., bytes], tmp_path: Path) -> None:
    """Tensors of one block share their memory."""
    found = read_weights(save(tmp_path / "x.pth", form({"x": whole("0", np.arange(3.0))})))["x"]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@each_format
def test_a_pickle_that_runs_code(form: Callable[..., bytes], tmp_path: Path) -> None:
    made = tmp_path / "made"
    state = {"x": whole("0", np.arange(3.0)), "y": Call(os.system, f"touch '{made}'")}
    message = refused(tmp_path / "x.pth", form(state))
    assert message.endswith("a pickle that wants to run posix.system; nothing of it was run")
    assert not made.exists()


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
        View(NUMBERS, 0, (2**40,), (0,)),
        View(NUMBERS, 0, (2**24, 2**24), (0, 0)),
        View(NUMBERS, 0, (7,), (0,)),
        View(NUMBERS, 0, (2, 3), (1,)),
        View(NUMBERS, 0, (2,), (1, 1)),
        View(NUMBERS, 0, (1,) * 70, (1,) * 70),
        View(NUMBERS, 0, (2**47,) * 50_000, (1,) * 50_000),
        View(NUMBERS, -1, (1,), (1,)),
        View(NUMBERS, 5, (2,), (-1,)),
        View(NUMBERS, 0, (-1,), (1,)),
        View(NUMBERS, 0, (-2, -3), (3, 1)),
        View(NUMBERS, True, (1,), (1,)),
        View(NUMBERS, 0, (True,), (1,)),
        View(NUMBERS, 0, (2,), (True,)),
        View(NUMBERS, None, (2,), (1,)),
        View(NUMBERS, 0, "2", "1"),
        View(NUMBERS, 0, (2**70,), (1,)),
        View(NUMBERS, 0, (0, 2**47, 2**47), (1, 1, 1)),
        View(Block("0", np.arange(6, dtype=np.float32), declared=7), 0, (6,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), declared=5), 0, (5,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), declared=2**45), 0, (2**45,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), declared=2**63), 0, (6,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), declared=-1), 0, (6,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), declared=True), 0, (1,), (1,)),
        View(Block("0", np.arange(6, dtype=np.float32), storage="BoolStorage"), 0, (6,), (1,)),
    ],
    ids=lambda view: f"{view.block.declared} {view.offset} {str(view.shape)[:20]} {str(view.strides)[:20]}",
)
@each_format
def test_tensors_that_cannot_be(form: Callable[..., bytes], tensor: View, tmp_path: Path) -> None:
    refused(tmp_path / "x.pth", form({"x": tensor}))


def test_a_block_of_another_type(tmp_path: Path) -> None:
    """In the zip format, its member has another size; in the older one, two tensors contradict each other."""
    wide = Block("0", np.arange(6, dtype=np.float32), storage="DoubleStorage")
    assert "missing or not complete" in refused(
        tmp_path / "x.pth", zip_bytes({"x": View(wide, 0, (6,), (1,))})
    )
    narrow = Block("0", np.arange(6, dtype=np.float32), storage="IntStorage")
    state = {"x": View(NUMBERS, 0, (6,), (1,)), "y": View(narrow, 0, (6,), (1,))}
    assert "several types" in refused(tmp_path / "x.pth", older_bytes(state))


@each_format
def test_many_tensors_of_one_block_take_no_more_memory(form: Callable[..., bytes], tmp_path: Path) -> None:
    """Copied, these would have 2 GB."""
    block = Block("0", np.zeros(2**20, np.uint8))
    view = View(block, 0, (2**20,), (1,))
    content = form({str(number): view for number in range(2000)})
    path = save(tmp_path / "x.pth", content)
    tracemalloc.start()
    found = read_weights(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 2000
    assert peak < 2**24


STATE = OrderedDict(
    a=whole("0", np.arange(6, dtype=np.float32).reshape(2, 3)), b=Parameter(whole("1", np.array(5)))
)


@each_format
def test_truncated_at_every_byte(form: Callable[..., bytes], tmp_path: Path) -> None:
    content = form(STATE)
    path = tmp_path / "x.pth"
    for length in range(len(content)):
        save(path, content[:length])
        with pytest.raises(DataError, match="not a file of weights"):
            read_weights(path)


@each_format
@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=5))
def test_changed_bytes_are_refused_or_read(
    form: Callable[..., bytes], tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(form(STATE))
    for place, mask in flips:
        content[place % len(content)] ^= mask
    path = save(tmp_path_factory.getbasetemp() / f"{os.getpid()}.pth", bytes(content))
    with contextlib.suppress(DataError):
        assert all(isinstance(one, np.ndarray) for one in read_weights(path).values())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "not complete", id="empty"),
        pytest.param(b"Weights of a network\n" * 99, "which tensors do not need", id="text"),
        pytest.param(bytes(9999), "which tensors do not need", id="zeros"),
        pytest.param(pickled(STATE), "does not begin as such a file does", id="a pickle alone"),
        pytest.param(older_bytes(STATE)[:80], "not complete", id="truncated"),
        pytest.param(
            older_bytes(STATE, system={**SYSTEM, "little_endian": False}), "byte order", id="big-endian"
        ),
        pytest.param(older_bytes(STATE, system=[]), "byte order", id="no description of the machine"),
        pytest.param(
            older_bytes(STATE, system={**SYSTEM, "little_endian": 1}), "byte order", id="1 and not True"
        ),
        pytest.param(older_bytes(["x"]), "no dictionary of tensors", id="a list"),
        pytest.param(older_bytes(STATE, keys={}), "no dictionary of tensors", id="no list of keys"),
        pytest.param(older_bytes(STATE, keys=[]), "the block 0 is missing", id="no keys"),
        pytest.param(older_bytes(STATE, keys=["0"]), "the block 1 is missing", id="a key is missing"),
        pytest.param(older_bytes(STATE, keys=["2"]), "belongs to no tensor", id="another key"),
        pytest.param(older_bytes(STATE, keys=[0, 1]), "belongs to no tensor", id="keys that are numbers"),
        pytest.param(older_bytes(STATE, keys=[[]]), "belongs to no tensor", id="a key that is a list"),
        pytest.param(older_bytes(STATE, keys=["1", "0"]), "another length", id="keys in another order"),
        pytest.param(older_bytes(STATE, blocks=b""), "another length", id="no blocks"),
        pytest.param(
            older_bytes(STATE, blocks=b"\xff" * 100), "another length", id="a length that is too large"
        ),
        pytest.param(zip_bytes(["x"]), "no dictionary of tensors", id="a zip with a list"),
        pytest.param(zip_bytes(STATE, members={"data.pkl": None}), "without data.pkl", id="no data.pkl"),
        pytest.param(zip_bytes(STATE, members={"data.pkl": b""}), "not complete", id="data.pkl is empty"),
        pytest.param(
            zip_bytes(STATE, members={"byteorder": b"big"}), "another byte order", id="a zip, big-endian"
        ),
        pytest.param(
            zip_bytes(STATE, members={"data/1": None}),
            "the block 1 is missing or not complete",
            id="no block",
        ),
        pytest.param(
            zip_bytes(STATE, members={"data/0": b"abc"}), "the block 0 is missing or not", id="a short block"
        ),
        pytest.param(
            zip_bytes({"x": View(Block("../0", np.arange(2.0)), 0, (2,), (1,))}, members={"data/../0": None}),
            "the block ../0 is missing",
            id="a key that leads elsewhere",
        ),
        pytest.param(zip_bytes(STATE, method=zipfile.ZIP_DEFLATED), "compressed", id="compressed"),
        pytest.param(zip_bytes(STATE, method=zipfile.ZIP_LZMA), "compressed", id="compressed by LZMA"),
        pytest.param(
            zip_bytes(STATE, method=zipfile.ZIP_BZIP2, members={"data/0": bytes(2**28)}),
            "compressed",
            id="a bomb",
        ),
        pytest.param(b"PK\5\6" + bytes(18), "without data.pkl", id="an empty zip"),
    ],
)
def test_files_that_are_none(content: bytes, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path / "x.pth", content)


def test_a_deep_key_in_the_list_of_keys(tmp_path: Path) -> None:
    """To look it up would end the process."""
    deep = b"\x80\x02])" + b"\x85" * 100_000 + b"a."
    content = older_bytes(STATE, blocks=b"")
    content = content[: -len(pickled(["0", "1"]))] + deep
    assert "belongs to no tensor" in refused(tmp_path / "x.pth", content, 2**25)


def patched(content: bytes, signature: bytes, offset: int, form: str, value: int, which: int = 0) -> bytes:
    """A zip with another number in a header."""
    at = -1
    for _ in range(which + 1):
        at = content.index(signature, at + 1)
    changed = bytearray(content)
    struct.pack_into(form, changed, at + offset, value)
    return bytes(changed)


CENTRAL, LOCAL = b"PK\x01\x02", b"PK\x03\x04"
N_MEMBERS = 5


@pytest.mark.parametrize("which", range(N_MEMBERS))
@pytest.mark.parametrize(
    ("signature", "offset", "form", "value"),
    [
        pytest.param(CENTRAL, 24, "<I", 0x7FFFFFFF, id="size"),
        pytest.param(CENTRAL, 20, "<I", 0x7FFFFFFF, id="packed size"),
        pytest.param(CENTRAL, 20, "<Q", 0x7FFFFFFF7FFFFFFF, id="both sizes"),
        pytest.param(CENTRAL, 20, "<Q", 0, id="no sizes"),
        pytest.param(CENTRAL, 16, "<I", 1, id="checksum"),
        pytest.param(CENTRAL, 42, "<I", 0x7FFFFFFF, id="place"),
        pytest.param(CENTRAL, 42, "<I", 0, id="the place of another"),
        pytest.param(CENTRAL, 8, "<H", 1, id="encrypted"),
        pytest.param(CENTRAL, 8, "<H", 0x20, id="a patch"),
        pytest.param(CENTRAL, 10, "<H", 99, id="method"),
        pytest.param(CENTRAL, 6, "<H", 0xFF, id="version"),
        pytest.param(LOCAL, 26, "<H", 0xFFFF, id="length of the name"),
        pytest.param(LOCAL, 6, "<H", 1, id="encrypted, in the header"),
    ],
)
def test_damaged_members_of_a_zip(
    which: int, signature: bytes, offset: int, form: str, value: int, tmp_path: Path
) -> None:
    """Refused, or of no consequence: the member with the version is not read."""
    content = zip_bytes(STATE)
    assert content.count(CENTRAL) == N_MEMBERS
    path = tmp_path / "x.pth"
    changed = patched(content, signature, offset, form, value, which)
    try:
        found = read_weights(save(path, changed))
    except DataError:
        refused(path, changed)
    else:
        same(found["a"], np.arange(6, dtype=np.float32).reshape(2, 3))
        same(found["b"], np.array(5))


def test_a_block_that_ends_after_the_file(tmp_path: Path) -> None:
    """Its size is not larger than the file, but too large where it begins."""
    content = zip_bytes(STATE, members={"version": bytes(2000)})
    wanted = View(Block("0", np.arange(6, dtype=np.float32), declared=500), 0, (500,), (1,))
    content = zip_bytes({"x": wanted}, members={"data/0": b"1234" * 6})
    changed = patched(content, CENTRAL, 20, "<Q", 2000 << 32 | 2000, which=2)
    refused(tmp_path / "x.pth", changed + bytes(2000))


def test_two_members_of_one_name(tmp_path: Path) -> None:
    """Readers differ in which of them they take."""
    packed = io.BytesIO(zip_bytes(STATE))
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("other/data.pkl", pickled({}))
    assert "several members of one name" in refused(tmp_path / "x.pth", packed.getvalue())
    packed = io.BytesIO(zip_bytes(STATE))
    with zipfile.ZipFile(packed, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("archive/data/0", np.ones(6, np.float32).tobytes())
    assert "several members of one name" in refused(tmp_path / "x.pth", packed.getvalue())


def test_declared_sizes_take_no_memory(tmp_path: Path) -> None:
    """In a process that may not have much."""
    huge = Block("0", np.arange(6, dtype=np.float32), declared=2**31)
    state = {"x": View(huge, 0, (2**31,), (1,))}
    zipped = patched(zip_bytes(state), CENTRAL, 20, "<Q", 2**33 - 1, which=2)
    for content in (zipped, older_bytes(state, blocks=(2**31).to_bytes(8, "little") + bytes(24))):
        path = save(tmp_path / "x.pth", content)
        code = (
            "import resource, sys\nfrom pathlib import Path\n"
            "from crnr_cli.errors import DataError\nfrom crnr_cli.models.torch_weights import read_weights\n"
            "limit = 2**30 + 2**29\nresource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
            "try:\n    read_weights(Path(sys.argv[1]))\nexcept DataError:\n    print('refused')\n"
        )
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("refused\n", "")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.pth", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(DataError) as caught:
            read_weights(path)
        assert str(caught.value) == f"{path}: cannot read it ({reason})"
