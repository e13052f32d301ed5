"""The reader of pickles: what it gives back, and all that it does not run."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import pickle
import struct
import subprocess
import sys
import time
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crnr_cli.models.pickled import Storage, Tensor, read_pickle
from helpers.torch_files import Call, Parameter, pickled, whole

SECONDS = 5  # far less is needed, but not on a busy machine
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)

TEXTS = st.text(max_size=300)
INTEGERS = st.integers(-(2**120), 2**120)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXTS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(TEXTS | INTEGERS, inner)
        | st.dictionaries(TEXTS, inner).map(OrderedDict)
    ),
    max_leaves=30,
)


def read(data: bytes) -> Any:
    return read_pickle(io.BytesIO(data))


def refused(data: bytes) -> str:
    """The message for a pickle that is not read; it takes neither long nor much memory to find out."""
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(ValueError, match="pickle") as caught:
        read(data)
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < SECONDS
    assert peak < 200 * len(data) + 2**20
    message = str(caught.value)
    assert len(message) < 300
    return message


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(value=VALUES)
def test_plain_values_are_those_that_were_pickled(protocol: int, value: Any) -> None:
    found = read(pickle.dumps(value, protocol))
    assert found == value
    assert repr(found) == repr(
        eval(repr(value), {"OrderedDict": dict})
    )  # types too: 1, 1.0 and True are equal


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tensors_are_described(protocol: int) -> None:
    first = whole("a", np.ones((2, 3), np.float32))
    state = OrderedDict(first=first, again=first, second=Parameter(whole("b", np.array(7))))
    state._metadata = OrderedDict({"": {"version": 1}})  # type: ignore[attr-defined]
    a = Tensor(Storage("<f4", "a", 6), 0, (2, 3), (3, 1))
    assert read(pickled(state, protocol)) == {
        "first": a,
        "again": a,
        "second": Tensor(Storage("<i8", "b", 1), 0, (), ()),
    }


def test_a_file_may_have_several_pickles_and_more() -> None:
    file = io.BytesIO(pickle.dumps(1, 2) + pickle.dumps(["x"], 2) + b"rest")
    assert (read_pickle(file), read_pickle(file), file.read()) == (1, ["x"], b"rest")


@pytest.mark.parametrize("protocol", [0, 1])
def test_pickles_as_old_as_python_2_are_refused(protocol: int) -> None:
    assert "which tensors do not need" in refused(pickle.dumps(2**90, protocol))


@pytest.mark.parametrize(
    "value",
    [1.5, b"bytes", bytearray(b"x"), {1, 2}, frozenset([1]), complex(1, 2), Path("x"), np.ones(2), range(3)],
    ids=repr,
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_other_values_are_refused(protocol: int, value: Any) -> None:
    refused(pickle.dumps({"x": value}, protocol))


def test_no_pickle_runs_anything(tmp_path: Path) -> None:
    """These are the ways in which a pickle can have a reader import, call or change something."""
    place = tmp_path / "made"
    touch = f"touch '{place}'"
    python = f"open({str(place)!r}, 'w')"

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def short(value: str) -> bytes:
        return b"\x8c" + bytes([len(value)]) + value.encode()

    payloads = {
        "REDUCE of os.system": pickle.dumps(Call(os.system, touch), 2),
        "in a tensor's place": pickled({"weights": Call(os.system, touch)}),
        "protocol 4": pickle.dumps(Call(os.system, touch), 4),
        "eval": pickle.dumps(Call(builtins.eval, python), 2),
        "exec": pickle.dumps(Call(builtins.exec, python), 2),
        "subprocess": pickle.dumps(Call(subprocess.call, ["touch", str(place)]), 2),
        "open": pickle.dumps(Call(open, str(place), "w"), 2),
        "getattr, as gadgets do": pickle.dumps(Call(builtins.getattr, Call(__import__, "os"), "system"), 2),
        "GLOBAL and REDUCE": b"cposix\nsystem\n(" + text(touch) + b"tR.",
        "STACK_GLOBAL": short("posix") + short("system") + b"\x93(" + text(touch) + b"tR.",
        "STACK_GLOBAL of a path": short("os") + short("path.os.system") + b"\x93" + text(touch) + b"\x85R.",
        "INST": b"(" + text(touch) + b"iposix\nsystem\n.",
        "OBJ": b"(cposix\nsystem\n" + text(touch) + b"o.",
        "NEWOBJ": b"csubprocess\nPopen\n(" + text(touch) + b"tN}\x81.",
        "NEWOBJ_EX": b"csubprocess\nPopen\n" + text(touch) + b"\x85}\x92.",
        "a known name that is called": b"ccollections\nOrderedDict\n(" + text(touch) + b"tR.",
        "a type that is called": b"ctorch\nFloatStorage\n(" + text(touch) + b"tR.",
        "EXT": b"\x80\x02\x82\x01.",
        "PERSID": b"P" + touch.encode() + b"\n.",
        "BUILD of a name": b"ccollections\nOrderedDict\n}(" + text("__call__") + b"Nub.",
        "a name in a name": b"ccollections\nOrderedDict.__init__.__globals__\n.",
        "a buffer": b"\x80\x05\x97.",
    }
    for how in ("GLOBAL and REDUCE", "protocol 4", "STACK_GLOBAL", "INST", "OBJ"):
        pickle.loads(payloads[how])  # it does what it is meant to do
        place.unlink()
    for how, data in payloads.items():
        message = refused(data)
        assert not place.exists(), how
        assert "nothing of it was run" in message or "which tensors do not need" in message, how
    assert refused(payloads["REDUCE of os.system"]) == (
        "a pickle that wants to run posix.system; nothing of it was run"
    )


@pytest.mark.parametrize(
    "name",
    [
        "torch._utils _rebuild_tensor",
        "torch.storage _load_from_bytes",
        "torch BoolStorage",
        "collections defaultdict",
        "builtins dict",
        "__builtin__ eval",
        "numpy.core.multiarray _reconstruct",
        "torch.FloatStorage ",
        " ",
        "torch\u2028 FloatStorage",
    ],
)
def test_unknown_names_are_refused(name: str) -> None:
    module, _, attribute = name.partition(" ")
    message = refused(f"c{module}\n{attribute}\n.".encode())
    assert message == f"a pickle that wants to run {module}.{attribute}; nothing of it was run"


TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
FLOATS = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0aX\x03\0\0\0cpuK\x02tQ"
FLAT = b"(K\x02t"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"N",
        b"NN.",
        b"t.",
        b"Nt.",
        b"e.",
        b"(e.",
        b"u.",
        b"N(Nu.",
        b"}(Nu.",  # a key without a value
        b"}(NNu.",
        b"](NNu.",
        b"}(Ne.",
        b"}Na.",
        b"]NNs.",
        b"\x85.",
        b"N\x87.",
        b"a.",
        b"s.",
        b"b.",
        b"Nb.",
        b"NNb.",
        b"]}b.",
        b"R.",
        b"NR.",
        b"NNR.",
        b"ccollections\nOrderedDict\nNR.",
        b"\x93.",
        b"NN\x93.",
        b"]]\x93.",
        b"Q.",
        b"NQ.",
        b"}Q.",
        b")Q.",
        b"X\x05\0\0\0storaQ.",
        b"q\0.",
        b"\x94.",
        b"h\0.",
        b"j\0\0\0\0.",
        b"c\n",
        b"ccollections\n",
        b"c" + b"x" * 10_000,
        b"\xff.",
        b"\x8a\xff" + b"1" * 255 + b".",
        b"X\xff\xff\xff\xff",
        b"X\0\x20\0\0" + b"a" * 0x2000 + b".",
        b"X\x01\0\0\0\xff.",  # not UTF-8
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"B\xff\xff\xff\x7f",
        b"\x8b\xff\xff\xff\x7f1",
        b"\x95\xff",
        b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
        TENSOR + b"NR.",
        TENSOR + b")R.",
        TENSOR + b"(NNNNtR.",
        TENSOR + b"(" + FLOATS + b"K\0N" + FLAT + b"tR.",
        TENSOR + b"(" + FLOATS + b"\x89" + FLAT + FLAT + b"tR.",  # an offset that is False
        TENSOR + b"(" + FLOATS + b"K\0(\x88t" + FLAT + b"tR.",
        TENSOR + b"(" + FLOATS + b"K\0" + FLAT + b"(J\xff\xff\xff\xffttR.",
        TENSOR + b"(" + FLOATS + b"K\0" + FLAT + b"(\x8a\x09\0\0\0\0\0\0\0\0\x01ttR.",
        TENSOR + b"(" + FLOATS + b"K\0X\x01\0\0\x002" + FLAT + b"tR.",
        b"ctorch._utils\n_rebuild_parameter\n)R.",
        b"ctorch._utils\n_rebuild_parameter\n(NtR.",
        b"ctorch._utils\n_rebuild_parameter\nNR.",
        FLOATS.replace(b"storage", b"STORAGE") + b".",
        FLOATS.replace(b"torch\nFloatStorage", b"collections\nOrderedDict") + b".",
        FLOATS.replace(b"K\x02", b"\x88") + b".",
        FLOATS.replace(b"K\x02", b"J\xff\xff\xff\xff") + b".",
        FLOATS.replace(b"X\x01\0\0\0a", b"N") + b".",
    ],
    ids=repr,
)
def test_damaged_pickles_are_refused(data: bytes) -> None:
    refused(data)


def test_these_pieces_of_a_tensor_are_sound() -> None:
    """Otherwise the test before would be refused for another reason than it means."""
    found = read(TENSOR + b"(" + FLOATS + b"K\0" + FLAT + b"(K\x01ttR.")
    assert found == Tensor(Storage("<f4", "a", 2), 0, (2,), (1,))


ENDLESS = 300_000
DEEP = 100_000


@pytest.mark.parametrize(
    ("start", "repeated", "end"),
    [
        pytest.param(b"N", b"\x94", b".", id="memo"),
        pytest.param(b"", b"N", b".", id="stack"),
        pytest.param(b"", b"(", b".", id="marks"),
        pytest.param(b"]", b"Na", b".", id="a list"),
        pytest.param(b"", b"\x80\x02", b".", id="nothing"),
        pytest.param(b"(" * 1000, b"(t", b".", id="tuples"),
    ],
)
def test_a_pickle_that_does_not_end(start: bytes, repeated: bytes, end: bytes) -> None:
    assert refused(start + repeated * ENDLESS + end) == "a pickle with too many instructions"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"}" + b")" + b"\x85" * DEEP + b"Ns.", id="a key"),
        pytest.param(b"}(" + b")" + b"\x85" * DEEP + b"Nu.", id="one of many keys"),
        pytest.param(b")" + b"\x85" * DEEP + b"N\x93.", id="the name of a module"),
        pytest.param(b"N" + b")" + b"\x85" * DEEP + b"\x93.", id="a name"),
        pytest.param(b")" + b"\x85" * DEEP + b"Q.", id="a block"),
        pytest.param(b"ccollections\nOrderedDict\n)" + b"\x85" * DEEP + b"R.", id="an argument"),
        pytest.param(b"}" + b")" + b"q\0h\0\x86" * 60 + b"Ns.", id="a key that doubles"),
        pytest.param(b")" + b"q\0h\0\x86" * 60 + b"N\x93.", id="a name that doubles"),
        pytest.param(b"}]q\0h\0aNs.", id="a key that contains itself"),
    ],
)
def test_nesting_in_the_wrong_place_is_refused(data: bytes) -> None:
    refused(data)


def test_deep_nesting_in_a_process_of_its_own() -> None:
    """A process that ends by a signal would end the tests."""
    code = (
        "import io; from crnr_cli.models.pickled import read_pickle\n"
        f"value = read_pickle(io.BytesIO(b')' + b'\\x85' * {DEEP} + b'.'))\n"
        f"lists = read_pickle(io.BytesIO(b']' * {DEEP} + b'a' * {DEEP - 1} + b'.'))\n"
        "del value, lists\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


SOUND = pickled(
    OrderedDict(
        a=whole("0", np.ones((2, 3), np.float32)),
        b=Parameter(whole("1", np.array(2**40))),
        c=[1, -5, 70_000, 2**70, None, True, ("x", "ä" * 200)],
    )
)
SOUND_4 = pickled({"a": whole("0", np.ones((2, 3), np.float32)), "c": ["x" * 300, (1, 2)]}, 4)


@pytest.mark.parametrize("whole_pickle", [SOUND, SOUND_4], ids=["protocol 2", "protocol 4"])
def test_truncated_at_every_byte(whole_pickle: bytes) -> None:
    read(whole_pickle)
    for length in range(len(whole_pickle)):
        with pytest.raises(ValueError, match="pickle"):
            read(whole_pickle[:length])


@given(
    which=st.sampled_from([SOUND, SOUND_4]),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_changed_bytes_are_refused_or_read(which: bytes, flips: list[tuple[int, int]]) -> None:
    changed = bytearray(which)
    for place, mask in flips:
        changed[place % len(changed)] ^= mask
    with contextlib.suppress(ValueError):
        assert not callable(read(bytes(changed)))


@given(st.lists(st.sampled_from(sorted(b"(N\x88J\0K\x01M}]t)\x85\x86\x87q\x94hRQbsuae.ct")), max_size=40))
@example([])
def test_any_program_is_refused_or_read(codes: list[int]) -> None:
    with contextlib.suppress(ValueError):
        assert not callable(read(bytes(codes)))
