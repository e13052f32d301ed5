"""How many cores are used, and what is done side by side on them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.system import cores
from helpers.latch import Latch
from helpers.patches import count_batches_at_once, set_free_bytes
from helpers.runner import Runner


def test_available_cores_follow_the_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for quota, expected in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)):
        monkeypatch.setattr(Path, "read_text", lambda path, encoding, quota=quota: quota)
        assert cores.available_cores() == expected


@pytest.mark.parametrize(
    ("variable", "jobs", "side_by_side", "threads"),
    [
        pytest.param(None, None, False, 8, id="all cores for one product"),
        pytest.param(None, 3, False, 3, id="--jobs for one product"),
        pytest.param(None, 3, True, 1, id="one core per batch"),
        pytest.param("4", None, True, 1, id="a variable, which could change the last bits"),
        pytest.param("4", 3, True, 1, id="--jobs over the variable"),
        pytest.param("4", None, False, 8, id="a variable, with all cores for one product"),
    ],
)
def test_libraries_use_the_requested_threads(
    variable: str | None, jobs: int | None, side_by_side: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: 8)
    for name in cores._THREAD_VARIABLES:
        monkeypatch.setenv(name, variable or "")  # set in any case, so that it is restored afterwards
        if variable is None:
            monkeypatch.delenv(name)
    cores.use_cores(jobs, side_by_side=side_by_side)
    assert cores.threads_per_product() == threads


@pytest.mark.parametrize(("variable", "threads"), [("3", 3), ("many", 8), ("0", 8), ("", 8)])
def test_a_library_keeps_the_threads_of_its_user(
    variable: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: 8)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", variable)
    assert cores.threads_per_product() == threads
    assert cores.pieces_at_once(9) == 9 // threads


def test_run_side_by_side_keeps_order_and_the_limit_of_threads() -> None:
    at_work, most, lock = 0, 0, threading.Lock()
    all_at_work, last_is_done = Latch(3), Latch()

    def work(item: int) -> int:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        all_at_work.count_down()
        all_at_work.wait()
        if item == 0:  # its result is the first, though it is done after the third
            last_is_done.wait()
        with lock:
            at_work -= 1
        if item == 2:
            last_is_done.count_down()
        return item * item

    assert list(cores.run_side_by_side(work, range(20), 3)) == [item * item for item in range(20)]
    assert most == 3


def test_work_side_by_side_takes_items_only_as_results_are_taken() -> None:
    taken: list[int] = []
    results = cores.run_side_by_side(abs, (taken.append(item) or item for item in range(100)), 2, ahead=3)
    next(results)
    results.close()
    assert taken == [0, 1, 2, 3, 4]


def test_run_side_by_side_raises_the_error_of_its_item() -> None:
    results = cores.run_side_by_side(lambda item: 1 // item, [1, 0, 1], 2)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_the_answers_are_the_same_bytes_on_any_number_of_cores(
    crnr: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 50)
    np.savez("gallery.npz", features=rng.standard_normal((300, 40)) + labels[:, None], labels=labels)
    np.savez("queries.npz", features=rng.standard_normal((700, 40)))
    assert crnr("build", "gallery.npz", "-q").exit == 0
    used = count_batches_at_once(monkeypatch.setattr)
    written = set()
    for jobs in (1, 2, 5):
        assert crnr("classify", "queries.npz", "-o", "out.csv", "-q", "--jobs", jobs).exit == 0
        written.add((tmp_path / "out.csv").read_bytes())
    assert used == [1, 2, 5]
    assert len(written) == 1


def test_fewer_batches_at_once_where_memory_is_short(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch, images: Path
) -> None:
    assert crnr("build", "gallery", "-q").exit == 0
    used = count_batches_at_once(monkeypatch.setattr)
    a_batch = 5 * 256 * 9 * 4  # arrays of 256 queries and 9 samples in float32
    plenty = 2**30  # the other checks find no fault with it
    for free, expected in ((None, 5), (plenty, 5), (100 * a_batch, 5), (5 * a_batch, 2)):
        set_free_bytes(free, monkeypatch.setattr)
        assert crnr("classify", "queries", "-o", "out.csv", "-q", "--jobs", 5).exit == 0
        assert used.pop() == expected


def test_work_is_watched_until_it_ends() -> None:
    go, seen = threading.Event(), []
    for turn in cores.run_with_ticks(lambda: go.wait(60) or None, every=0.001):
        seen.append(turn)
        assert cores.is_working()
        if turn == 3:
            go.set()
    assert seen[:4] == [0, 1, 2, 3]
    assert seen == sorted(set(seen))


def test_an_error_in_watched_work_is_raised() -> None:
    def fail() -> None:
        raise LookupError("of the work")

    with pytest.raises(LookupError, match="of the work"):
        list(cores.run_with_ticks(fail))
