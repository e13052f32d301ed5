"""Which samples go to the gallery: shares, copies, and that nothing else matters."""

from __future__ import annotations

import unicodedata
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.jobs.split import Portion, divide_samples

Names = list[tuple[str, str]]

labelled = st.lists(
    st.tuples(st.sampled_from(["ant", "bee", "cow"]), st.integers(0, 40).map(lambda i: f"{i}.png")),
    min_size=1,
    max_size=60,
    unique=True,
)
portions = st.one_of(
    st.floats(0.01, 0.99).map(lambda share: Portion(share)),
    st.integers(1, 12).map(lambda count: Portion(per_class=count)),
)


def counts(names: Names, chosen: list[bool]) -> Counter[str]:
    return Counter(label for (label, _), is_chosen in zip(names, chosen, strict=True) if is_chosen)


@given(labelled, portions, st.integers(0, 2**63))
def test_every_class_gets_its_portion(names: Names, portion: Portion, seed: int) -> None:
    chosen = divide_samples(names, names, portion, seed)
    for label, count in Counter(label for label, _ in names).items():
        if portion.per_class is None:
            # Rounded to the nearest number, a half upwards.
            wanted = next(k for k in range(count + 1) if portion.share * count < k + 0.5)
        else:
            wanted = portion.per_class
        least, most = (1, count - 1) if count > 1 else (1, 1)
        assert counts(names, chosen)[label] == min(max(wanted, least), most)


@given(labelled, portions, st.integers(0, 9), st.randoms(use_true_random=False))
def test_the_order_of_the_listing_does_not_matter(
    names: Names, portion: Portion, seed: int, random: Random
) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    one = dict(zip(names, divide_samples(names, names, portion, seed), strict=True))
    other = dict(zip(shuffled, divide_samples(shuffled, shuffled, portion, seed), strict=True))
    assert one == other


@given(labelled, portions, st.integers(0, 9), st.data())
def test_groups_stay_together_and_every_class_is_in_the_gallery(
    names: Names, portion: Portion, seed: int, data: st.DataObject
) -> None:
    size = len(names)
    groups = data.draw(st.lists(st.integers(0, size), min_size=size, max_size=size))
    chosen = divide_samples(names, groups, portion, seed)
    sides: dict[int, set[bool]] = {}
    for group, side in zip(groups, chosen, strict=True):
        sides.setdefault(group, set()).add(side)
    assert all(len(found) == 1 for found in sides.values())
    assert counts(names, chosen).keys() == {label for label, _ in names}


def test_copies_take_the_place_of_others() -> None:
    """As many samples go to the gallery as without copies, if there are single ones to fill it."""
    names = [("ant", f"{i}.png") for i in range(40)]
    groups = [i // 4 if i < 16 else i for i in range(40)]  # four images, four times each
    for seed in range(30):
        assert sum(divide_samples(names, groups, Portion(0.5), seed)) == 20


def test_the_choice_is_fixed() -> None:
    """On every machine, and in every version: a split that was published can be made again."""
    names = [("ant", f"{i}.png") for i in range(12)] + [("bée", "a b/ü.png"), ("bée", "x.png")]
    chosen = divide_samples(names, names, Portion(0.5), 7)
    expected = ["0.png", "4.png", "5.png", "7.png", "8.png", "11.png", "a b/ü.png"]
    assert [name for (_, name), is_chosen in zip(names, chosen, strict=True) if is_chosen] == expected
    decomposed = [
        (unicodedata.normalize("NFD", label), unicodedata.normalize("NFD", name)) for label, name in names
    ]
    assert divide_samples(decomposed, decomposed, Portion(0.5), 7) == chosen


def test_every_sample_is_as_likely_as_any_other() -> None:
    names = [("ant", f"{i}.png") for i in range(10)]
    times = Counter(
        name
        for seed in range(2000)
        for (_, name), is_chosen in zip(names, divide_samples(names, names, Portion(0.3), seed), strict=True)
        if is_chosen
    )
    # 600 is expected, with a standard deviation of 20.5; the seeds are fixed.
    assert sum(times.values()) == 6000
    assert all(500 < times[name] < 700 for _, name in names)


@pytest.mark.parametrize("seed", [0, 1])
def test_another_seed_is_another_choice(seed: int) -> None:
    names = [("ant", f"{i}.png") for i in range(100)]
    assert divide_samples(names, names, Portion(0.5), seed) != divide_samples(
        names, names, Portion(0.5), seed + 1
    )
