"""Events: images grouped by their times or by a key, compared with a plain loop."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.images.events import group_by_gap, group_by_key, join_groups

START = datetime(2026, 7, 1, 23, 59, 30)
SHOTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "b/c", ""]),  # the folder
        st.integers(0, 9),  # the image
        st.sampled_from(["", "#0.1,0.1,0.5,0.5", "#0.5,0.5,0.5,0.5"]),
    ),
    max_size=30,
)
TIMES = st.one_of(st.none(), st.tuples(st.integers(0, 200), st.sampled_from(["", "+02:00", "-05:30"])))


def image_of(name: str) -> str:
    return name.split("#")[0]


def group_naively(names: list[str], dates: dict[str, str], gap: float) -> list[set[str]]:
    """Join events for as long as two of their images are near each other in time."""
    events = [{image} for image in dict.fromkeys(map(image_of, names))]

    def are_near(one: str, other: str) -> bool:
        if not dates[one] or not dates[other] or one.rpartition("/")[0] != other.rpartition("/")[0]:
            return False
        first, second = (datetime.fromisoformat(dates[image]) for image in (one, other))
        if (first.tzinfo is None) != (second.tzinfo is None):
            return False
        return abs((first - second).total_seconds()) <= gap

    while pair := next(
        (
            (one, other)
            for one in events
            for other in events
            if one is not other and any(are_near(a, b) for a in one for b in other)
        ),
        None,
    ):
        events.remove(pair[1])
        pair[0].update(pair[1])
    return events


@given(SHOTS, st.lists(TIMES, min_size=40, max_size=40), st.integers(0, 40))
def test_grouping_by_gap_is_that_of_a_plain_loop(
    shots: list[tuple[str, int, str]], times: list[tuple[int, str] | None], gap: int
) -> None:
    names = [f"{folder}/{image}.jpg{box}".lstrip("/") for folder, image, box in shots]
    images = sorted(set(map(image_of, names)))
    dates = {
        image: "" if time is None else (START + timedelta(seconds=time[0])).isoformat() + time[1]
        for image, time in zip(images, times, strict=False)
    }
    found = group_by_gap(names, [dates[image_of(name)] for name in names], gap).tolist()
    events = [
        {image_of(name) for name, event in zip(names, found, strict=True) if event == number}
        for number in dict.fromkeys(found)
    ]
    assert sorted(map(sorted, events)) == sorted(map(sorted, group_naively(names, dates, gap)))
    assert list(dict.fromkeys(found)) == list(range(1, len(events) + 1))  # in the order of the first inputs


def test_an_image_is_compared_with_the_one_before_in_time() -> None:
    names = ["t/c.jpg", "t/a.jpg", "t/b.jpg", "t/d.jpg"]
    dates = [f"2026-07-01T00:00:{seconds:02}" for seconds in (40, 0, 20, 59)]
    assert group_by_gap(names, dates, 20).tolist() == [1, 1, 1, 1]
    assert group_by_gap(names, dates, 19).tolist() == [1, 2, 3, 1]


def test_grouping_by_key_joins_folders_and_keeps_undescribed_images_apart() -> None:
    names = ["a/1.jpg", "b/1.jpg", "a/2.jpg", "a/2.jpg#0.1,0.1,0.2,0.2", "a/3.jpg", "b/9.jpg"]
    keys = {"a/1.jpg": "x", "b/1.jpg": "x", "b/9.jpg": "x"}
    assert group_by_key(names, keys.get).tolist() == [1, 1, 2, 2, 3, 1]
    assert group_by_key([], keys.get).tolist() == []


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_joined_groups_are_those_of_a_plain_loop(pairs: list[tuple[int, int]]) -> None:
    one, other = [list(side) for side in zip(*pairs, strict=True)] or [[], []]
    naive = list(range(len(pairs)))
    for _ in pairs:  # each round spreads the smallest number a step further
        naive = [
            min(naive[j] for j in range(len(pairs)) if one[i] == one[j] or other[i] == other[j])
            for i in range(len(pairs))
        ]
    assert join_groups(one, other).tolist() == naive
