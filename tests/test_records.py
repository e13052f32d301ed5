"""Dataclasses that share their methods: they do what those of Python do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli import records

DECORATORS = {"crnr": records.dataclass, "python": dataclasses.dataclass}
OPTIONS = [
    {},
    {"frozen": True},
    {"frozen": True, "kw_only": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"frozen": True, "slots": True},
]


def make(dataclass: Callable[..., Any], options: dict[str, bool]) -> tuple[type, type]:
    """Return a class with every kind of field, and a class that inherits from it."""

    @dataclass(**options)
    class Base:
        kind: ClassVar[str] = "base"
        first: object
        second: object = 2
        unseen: object = dataclasses.field(default=3, repr=False, compare=False)
        many: list[object] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            if self.first == "wrong":
                raise ValueError("wrong")

    @dataclass(**options)
    class Derived(Base):
        kind: ClassVar[str] = "derived"
        last: object = None

    return Base, Derived


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@given(
    values=st.lists(
        st.fixed_dictionaries(
            {"first": st.integers(0, 2)},
            optional={
                "second": st.integers(1, 2),
                "unseen": st.integers(3, 4),
                "many": st.lists(st.booleans(), max_size=1),
            },
        ),
        min_size=2,
        max_size=5,
    )
)
def test_instances_are_shown_compared_and_hashed_as_in_python(
    options: dict[str, bool], values: list[dict[str, object]]
) -> None:
    made = {}
    for name, dataclass in DECORATORS.items():
        classes = make(dataclass, options)
        made[name] = [kind(**one) for kind in classes for one in values]
    ours, theirs = made["crnr"], made["python"]
    assert [repr(one) for one in ours] == [repr(one) for one in theirs]
    assert [[a == b for b in ours] for a in ours] == [[a == b for b in theirs] for a in theirs]
    assert [dataclasses.asdict(one) for one in ours] == [dataclasses.asdict(one) for one in theirs]
    if options.get("eq", True):
        assert [_try_hash(one) for one in ours] == [_try_hash(one) for one in theirs]
    for one in ours:
        changed = dataclasses.replace(one, first=7)
        assert (changed.first, changed.second) == (7, one.second)


def _try_hash(one: object) -> object:
    try:
        return hash(one)
    except TypeError as e:
        return str(e)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_classes_have_the_same_signature_and_fields(options: dict[str, bool]) -> None:
    for ours, theirs in zip(*(make(dataclass, options) for dataclass in DECORATORS.values()), strict=True):
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
        assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
        assert ours.__match_args__ == theirs.__match_args__
        assert ours.kind == theirs.kind


@pytest.mark.parametrize("dataclass", DECORATORS.values(), ids=DECORATORS)
def test_a_frozen_instance_cannot_be_changed(dataclass: Callable[..., Any]) -> None:
    for kind in make(dataclass, {"frozen": True}):
        one = kind(1)
        for name in ("first", "many", "anything"):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(one, name, 5)
            with pytest.raises(dataclasses.FrozenInstanceError):
                delattr(one, name)
        assert (one.first, one.second) == (1, 2)
        with pytest.raises(ValueError, match="wrong"):
            kind("wrong")


@pytest.mark.parametrize("dataclass", DECORATORS.values(), ids=DECORATORS)
def test_an_instance_can_be_changed_if_its_class_is_not_frozen(dataclass: Callable[..., Any]) -> None:
    one = make(dataclass, {})[0](1)
    one.first, one.more = 5, 6
    del one.second
    assert vars(one) == {"first": 5, "unseen": 3, "many": [], "more": 6}


@pytest.mark.parametrize("dataclass", DECORATORS.values(), ids=DECORATORS)
def test_methods_of_the_class_itself_stay(dataclass: Callable[..., Any]) -> None:
    @dataclass(frozen=True)
    class Own:
        value: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 4

        @cached_property
        def double(self) -> int:
            return 2 * self.value

    assert repr(Own(1)) == "own"
    assert Own(1) == Own(2)
    assert hash(Own(1)) == 4
    assert Own(3).double == 6


@pytest.mark.parametrize("dataclass", DECORATORS.values(), ids=DECORATORS)
def test_an_instance_that_contains_itself_is_shown(dataclass: Callable[..., Any]) -> None:
    one = make(dataclass, {})[0](1)
    one.first = one
    assert "first=..., second=2" in repr(one)


@records.dataclass(frozen=True)
class Sent:
    """Pickle finds a class by its name in a module."""

    value: int
    more: tuple[int, ...] = ()


def test_instances_are_copied_and_sent_to_other_processes() -> None:
    one = Sent(1, (2, 3))
    for same in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert same == one
        with pytest.raises(dataclasses.FrozenInstanceError):
            same.value = 5


def test_every_dataclass_of_the_package_shares_its_methods() -> None:
    """A class of Python's decorator and one of ours cannot inherit from each other if they are frozen."""
    package = Path(records.__file__).parent
    files = [path for path in package.rglob("*.py") if path != Path(records.__file__)]
    found = [
        path for path in files if re.search(r"dataclasses import .*\bdataclass\b", path.read_text("utf-8"))
    ]
    assert len(files) > 100
    assert found == []
