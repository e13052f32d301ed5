"""What many tests need: the sample data, a runner of commands, and small galleries made on the spot."""

from __future__ import annotations

import os
import signal
import sys

# Small problems on many test processes: threads of BLAS would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.pop("CRNR_GALLERY", None)  # the user's own
os.environ.pop("PYTHONUNBUFFERED", None)  # few users have it, and it changes what a stream is
os.environ["HF_HUB_OFFLINE"] = "1"  # no test opens a connection to the internet
os.environ["CRNR_MODELS"] = "models of a test"  # below the folder of the test, and not the user's own

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scipy.linalg  # noqa: F401 - now, as a test that changes the environment would give it other threads
from hypothesis import settings

pytest.register_assert_rewrite("helpers")

from crnr_cli.system import spares
from helpers.patches import remove_scikit_learn
from helpers.runner import Runner
from helpers.templates import Templates, build_cats_dogs_owls, make_cats_dogs_owls

# A shell that runs us in the background has SIGINT ignored, in us and in all that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The time of an example on a busy machine is no property of the code. In CI, the examples are the same every
# time, so that a failure is due to the change that is tested; everywhere else, new ones are tried.
settings.register_profile("crnr", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("crnr")


@pytest.fixture(scope="session", autouse=True)
def _decoders_are_kept() -> Iterator[None]:
    """Between the commands of a test: to start one takes longer than most commands do."""
    with spares.kept():
        yield


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Folders that are made once and copied."""
    return Templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def crnr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """crnr in an empty folder, which is also the current one."""
    monkeypatch.chdir(tmp_path)
    return Runner(tmp_path)


@pytest.fixture
def images(tmp_path: Path, templates: Templates) -> Path:
    """gallery/{cat,dog,owl}/{0,1,2}.png, and near copies of them as queries/."""
    templates.copy(make_cats_dogs_owls, tmp_path)
    return tmp_path


@pytest.fixture
def built_images(crnr: Runner, templates: Templates) -> Path:
    """The folder of `images`, with gallery.h5 in it, as the current folder."""
    templates.copy(build_cats_dogs_owls, crnr.here)
    return crnr.here


@pytest.fixture
def no_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if scikit-learn were not installed."""
    remove_scikit_learn(monkeypatch.setattr)


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[Any]:
    """Two processes on this machine; one that dies is replaced."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    ) as running:
        yield running


@pytest.fixture
def address(running_cluster: Any) -> str:
    """Of a cluster with both workers, whatever the test before did to them."""
    with running_cluster.get_client() as client:
        client.wait_for_workers(2, timeout=120)
    return str(running_cluster.scheduler_address)


if sys.platform != "win32":  # which has no such limits
    import resource

    LIMITS = {limit: resource.getrlimit(limit) for limit in (resource.RLIMIT_CPU, resource.RLIMIT_AS)}

    def pytest_runtest_teardown() -> None:
        """Undo limits that a test set in this process by calling a child's code directly."""
        for limit, before in LIMITS.items():
            resource.setrlimit(limit, before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="Fail every I/O call, not some.")
    parser.addoption(
        "--mutations", type=int, default=2400, metavar="N", help="How many damaged files to open, in all."
    )
    parser.addoption(
        "--steps", type=int, default=80, metavar="N", help="How many changes of galleries to try, in all."
    )
    parser.addoption(
        "--update-docs", action="store_true", help="Write what crnr prints into pages that show it."
    )


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full"))
