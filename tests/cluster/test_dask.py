"""Tune and compare on a real cluster of two processes on this machine, and what clusters can lack."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed.client import FutureCancelledError

from crnr_cli.cluster import dask as cluster_module
from crnr_cli.cluster.dask import connected
from crnr_cli.cluster.work import OnCluster
from crnr_cli.errors import DataError
from crnr_cli.gallery.samples import Reading
from crnr_cli.jobs.compare import CompareOptions, CompareReport, compare
from crnr_cli.jobs.tune import TuneOptions, TuneReport, tune
from crnr_cli.methods import METHODS
from crnr_cli.recipe.recipe import make_steps
from helpers.cluster import CLUSTER, count_calls, killer
from helpers.runner import Runner

pytestmark = CLUSTER


@pytest.fixture
def features(crnr: Runner) -> str:
    """Classes that overlap, so that settings and methods differ."""
    random = np.random.default_rng(0)
    labels = np.arange(120) % 6
    values = random.normal(size=(6, 15))[labels] + 1.2 * random.normal(size=(120, 15))
    np.savez("features.npz", features=values, labels=labels)
    return "features.npz"


def trials(report: TuneReport) -> list[tuple[dict[str, Any], list[bool]]]:
    """In their order: every setting, and on which samples it was right."""
    return [(trial.setting.parameters(), trial.right.tolist()) for trial in report.trials]


def test_tune_finds_the_same_though_a_worker_is_killed(address: str, features: str) -> None:
    options = TuneOptions(steps={"pca": (None, 5)}, methods=("nrc", "nn"))
    alone = tune([features], options)
    with connected(address) as cluster:
        killed, kill_one = killer(cluster, "tuning")
        spread = tune([features], options, progress=kill_one, workers=OnCluster(cluster))
    assert killed
    assert trials(spread) == trials(alone)
    assert spread.chosen.setting == alone.chosen.setting
    assert (spread.folds, spread.untried) == (5, 0)


def test_a_cluster_that_is_lost_is_reported(features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_LOSSES", 0)  # else the work goes on with the worker's successor
    with connected("local:1") as cluster:
        (worker,) = cluster._client.run(os.getpid).values()

        def kill(step: str, done: int, total: int) -> None:
            if step == "tuning":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

        with pytest.raises(DataError, match=r"cluster was lost \(.*\); start the cluster and crnr again"):
            tune([features], TuneOptions(), progress=kill, workers=OnCluster(cluster))


def results(report: CompareReport) -> list[tuple[Any, ...]]:
    """Return all but the times."""
    return [
        (replace(result, build_seconds=0.0, query_ms=0.0, scores=None), result.scores.correct)  # type: ignore
        for result in report.results
    ]


@pytest.mark.parametrize("pca", [None, 6])
def test_compare_finds_the_same_though_a_worker_is_killed(
    address: str, features: str, pca: int | None
) -> None:
    options = CompareOptions(Reading(steps=make_steps({"pca": pca})), draws=6)
    alone = compare([features], options)
    with connected(address) as cluster:
        killed, kill_one = killer(cluster, "comparing")
        spread = compare([features], options, kill_one, OnCluster(cluster))
    assert killed
    assert {result.method.name for result in spread.results} == set(METHODS)
    assert results(spread) == results(alone)
    for name in ("n_gallery", "n_tested", "dimension", "n_classes", "notes"):
        assert getattr(spread, name) == getattr(alone, name)
    assert all(result.build_seconds > 0 and result.query_ms > 0 for result in spread.results)


def test_shared_data_is_not_sent_with_every_item(address: str) -> None:
    """Data that work keeps there serve the next item on the same worker.

    Dask may drop a copy that it holds to be spare and send it again, so it need not be just once per worker.
    """
    with connected(address) as cluster:
        found = list(cluster.spread(count_calls, {"calls": 0}, range(40)))
    assert [item for item, _ in found] == list(range(40))
    restarts = [number for _, (_, number) in found].count(1)
    assert 1 <= restarts <= 4


def test_tune_budget_stops_further_tasks(address: str, crnr: Runner, features: str) -> None:
    """The default setting, and no more."""
    found = crnr("tune", features, "--budget", "0", "--dask", address, "--json", "-q")
    alone = crnr("tune", features, "--budget", "0", "--json", "-q")
    assert (found.exit, found.err, alone.exit) == (0, "", 0)
    mine, theirs = json.loads(found.out), json.loads(alone.out)
    assert (mine["trials"], mine["untried"]) == (theirs["trials"], theirs["untried"])
    assert mine["untried"] == (3 * 28 - 1) * 6  # three powers


def test_compare_by_command(address: str, crnr: Runner, features: str) -> None:
    command = ("compare", features, "--test", features, "--methods", "nn,crc,svm", "--json")
    alone, spread = crnr(*command), crnr(*command, "--dask", address)
    assert (alone.exit, spread.exit) == (0, 0)
    assert spread.err.startswith("2 workers; dashboard: ")
    mine, theirs = json.loads(spread.out), json.loads(alone.out)
    for record in (*mine["methods"], *theirs["methods"]):
        del record["build_seconds"], record["query_ms"]
    assert mine == theirs


def test_options_that_are_wrong_on_any_machine(address: str, crnr: Runner, features: str) -> None:
    alone = crnr("compare", features, "--pca", "99")
    spread = crnr("compare", features, "--pca", "99", "--dask", address, "--quiet")
    assert (spread.exit, spread.out, spread.err) == (2, "", alone.err)
    assert "--pca 99: " in alone.err


def test_no_cluster_there(crnr: Runner, features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "SECONDS_TO_CONNECT", 1)
    Path("images").mkdir()
    for command in ("build", "extract", "classify", "tune", "compare"):
        given = {"build": ["images"], "extract": ["images", "-o", "f.h5"]}.get(command, [features])
        refused = crnr(command, *given, "--dask", "tcp://127.0.0.1:1")
        assert (refused.exit, refused.out) == (1, "")
        assert refused.err.startswith(
            "error: --dask tcp://127.0.0.1:1: no scheduler with workers replies at this address"
        )
        refused = crnr(command, *given, "--dask", "local:x")
        assert (refused.exit, refused.out) == (2, "")
        assert refused.err == "error: --dask local:x: write local:N for N processes, such as local:4\n"


def test_another_version_is_reported(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = cluster_module.__version__
    expected = rf"worker tcp://127.0.0.1:\d+: has crnr {ours}, but this is 0.0.1; install the same version"
    with connected(address) as cluster:
        monkeypatch.setattr(cluster_module, "__version__", "0.0.1")
        with pytest.raises(DataError, match=expected):  # as of a worker that came later
            list(cluster.spread(count_calls, {"calls": 0}, [1]))
    with pytest.raises(DataError, match=expected), connected(address):
        pass


@contextmanager
def without_crnr(part: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a scheduler or a worker of Dask in a Python that cannot import crnr."""
    code = f"import sys; sys.modules['crnr_cli'] = None; from distributed.cli.{part} import main; main()"
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_worker_without_crnr_is_reported() -> None:
    from distributed import LocalCluster

    with (
        LocalCluster(
            n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
        ) as empty,
        without_crnr("dask_worker", empty.scheduler_address, "--no-nanny"),
        pytest.raises(
            DataError, match=r"worker tcp://127.0.0.1:\d+: has no crnr \(.*\); install crnr-cli on"
        ),
        connected(empty.scheduler_address),
    ):
        pass


def test_a_scheduler_without_crnr_is_reported() -> None:
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny"]
    with without_crnr("dask_scheduler", "--port", "0", "--no-dashboard") as scheduler:
        assert scheduler.stderr is not None
        address = next(line.split()[-1] for line in scheduler.stderr if b"Scheduler at:" in line).decode()
        with subprocess.Popen([*worker, address], stderr=subprocess.DEVNULL) as process:
            try:
                with pytest.raises(DataError, match="the scheduler: has no crnr"), connected(address):
                    pass
            finally:
                process.kill()


class Forgetful:
    """A client of a cluster that loses scattered data `losses` times, after some results."""

    status = "running"

    def __init__(self, results: int, losses: int) -> None:
        self.results, self.losses, self.copies = results, losses, 0

    def nthreads(self) -> dict[str, int]:
        return {"worker": 1}

    def scatter(self, values: list[Any], **options: object) -> list[tuple[int, Any]]:
        self.copies += 1
        return [(self.copies, values[0])]

    def submit(self, run: Any, version: str, work: Any, shared: Any, item: int, **options: object) -> Any:
        def result() -> Any:
            if shared[0] <= self.losses and item >= self.results * shared[0]:
                raise FutureCancelledError(f"task-{item}", "already forgotten")
            return work(shared[1], item)

        return SimpleNamespace(result=result)

    def cancel(self, tasks: list[Any]) -> None:
        pass


def add(shared: int, item: int) -> int:
    return shared + item


@pytest.mark.parametrize("losses", [0, 1, 3])
def test_shared_data_lost_with_a_worker_is_sent_again(losses: int) -> None:
    client = Forgetful(results=3, losses=losses)
    found = list(cluster_module.Cluster(client).spread(add, 100, range(20)))
    assert found == [(item, 100 + item) for item in range(20)]
    assert client.copies == 1 + losses


def test_a_cluster_that_loses_everything_is_given_up() -> None:
    client = Forgetful(results=0, losses=1000)
    with pytest.raises(DataError, match="the connection to the cluster was lost"):
        list(cluster_module.Cluster(client).spread(add, 100, range(20)))
    assert client.copies < 10
