"""A Dask cluster: its workers do pieces of work, and the results are returned in order."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from crnr_cli import __version__
from crnr_cli.errors import CrnrError, DataError, UsageError, first_line
from crnr_cli.system.child import safe_path
from crnr_cli.system.cores import Item, Result, Shared
from crnr_cli.system.extras import require_packages

TASKS_PER_THREAD = 4  # queued or running: enough to keep all threads busy, few enough to limit the memory
SECONDS_TO_CONNECT = 20
_LOSSES = 5  # of scattered data, after which the cluster counts as broken
# Of a scheduler: a protocol, which may be left out, a host and a port.
_ADDRESS = re.compile(r"(\w+://)?[^/\s]+:\d+/?")
_INSTALL = "install crnr-cli on every machine of the cluster, with the extra dask and the extras used here"


class Cluster:
    """Runs tasks on the workers of a cluster; if a worker dies, another one does its work."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def dashboard(self) -> str:
        """The address of the cluster's dashboard."""
        return str(self._client.dashboard_link or "")

    @property
    def n_workers(self) -> int:
        return len(self._client.nthreads())

    @property
    def n_threads(self) -> int:
        threads: int = sum(self._client.nthreads().values())
        return max(1, threads)

    def spread(
        self, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        """Yield each item with its result; `shared` is sent to every worker once, before the first item."""

        def scatter() -> Any:
            with _explained():
                (everywhere,) = self._client.scatter([shared], broadcast=True, hash=False)
            return everywhere

        yield from self.in_order(work, scatter(), items, scatter)

    def in_order(
        self,
        work: Callable[[Shared, Item], Result],
        shared: Any,
        items: Iterable[Item],
        scattered: Callable[[], Any] | None = None,
    ) -> Iterator[tuple[Item, Result]]:
        """Yield each item with its result. `shared` is sent with every item, unless it was scattered.

        Dask drops spare copies of scattered data. If the last copy was on a worker that died, the tasks that
        need it are cancelled; then it is `scattered` again, and they are restarted.
        """
        from distributed.client import FutureCancelledError

        remaining = iter(items)
        losses = 0
        waiting: deque[tuple[Item, Any]] = deque()
        limit = TASKS_PER_THREAD * self.n_threads
        try:
            while True:
                for item in islice(remaining, limit - len(waiting)):
                    task = self._client.submit(_run, __version__, work, shared, item, pure=False)
                    waiting.append((item, task))
                if not waiting:
                    return
                item, task = waiting[0]
                try:
                    with _explained():
                        result: Result = task.result()
                except DataError as e:
                    is_lost = isinstance(e.__cause__, FutureCancelledError)
                    losses += 1
                    if not is_lost or not scattered or losses > _LOSSES or self._client.status != "running":
                        raise
                    shared = scattered()
                    for place, (lost, _) in enumerate(waiting):
                        again = self._client.submit(_run, __version__, work, shared, lost, pure=False)
                        waiting[place] = (lost, again)
                    continue
                waiting.popleft()
                yield item, result
        finally:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._client.cancel([task for _, task in waiting])


@contextlib.contextmanager
def connected(where: str) -> Iterator[Cluster]:
    """Yield the cluster with this scheduler address, or N local processes for `local:N`."""
    require_packages("dask", "--dask", "distributed")
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are raised as exceptions
    with contextlib.ExitStack() as stack:
        address: Any = where
        if where.startswith("local:"):
            count = where.removeprefix("local:")
            if not count.isdecimal() or int(count) < 1:
                raise UsageError(f"--dask {where}: write local:N for N processes, such as local:4")
            stack.enter_context(safe_path())  # also for workers that replace dead ones
            address = stack.enter_context(
                LocalCluster(
                    n_workers=int(count),
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
            )
        elif not _ADDRESS.fullmatch(where):
            raise UsageError(f"--dask {where}: not an address; write tcp://HOST:PORT or local:N")
        try:
            client = stack.enter_context(Client(address, timeout=SECONDS_TO_CONNECT))
            client.wait_for_workers(1, timeout=SECONDS_TO_CONNECT)
        except (OSError, ValueError) as e:
            raise DataError(
                f"--dask {where}: no scheduler with workers replies at this address; start it with "
                "`dask scheduler` and `dask worker`, or use --dask local:N"
            ) from e
        _refuse_other_versions(client)
        yield Cluster(client)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn the exceptions of Dask into errors that name the remedy."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    try:
        yield
    except KilledWorker as e:
        raise DataError(
            "several workers died doing the same task; see their logs; often they have too little memory"
        ) from e
    except (FutureCancelledError, OSError) as e:
        raise DataError(
            f"the connection to the cluster was lost ({first_line(e)}); start the cluster and crnr again; "
            "classify continues with --resume, extract continues without it"
        ) from e
    except ImportError as e:
        raise DataError(f"a worker lacks a package ({first_line(e)}); {_INSTALL}") from e


def _refuse_other_versions(client: Any) -> None:
    """Refuse machines without crnr, or with another version.

    A worker dies without a message if it receives objects that it cannot load.
    """

    def version() -> str:  # a local function is sent as code, so a worker without crnr can run it
        from crnr_cli import __version__

        return __version__

    machines = {f"worker {where}": found for where, found in client.run(version, on_error="return").items()}
    try:
        machines["the scheduler"] = client.run_on_scheduler(version)
    except ImportError as e:
        machines["the scheduler"] = e
    for machine, found in machines.items():
        if isinstance(found, ImportError):
            raise DataError(f"{machine}: has no crnr ({found}); {_INSTALL}")
        if isinstance(found, str):  # otherwise the worker is gone, and others do its work
            _refuse_other_version(machine, found, __version__)


def _refuse_other_version(machine: str, found: str, started: str) -> None:
    if found != started:
        raise DataError(
            f"{machine}: has crnr {found}, but this is {started}; install the same version everywhere"
        )


def _run(version: str, work: Callable[[Shared, Item], Result], shared: Shared, item: Item) -> Result:
    """Do a piece of work. This runs on a worker, and errors name the worker."""
    from distributed import get_worker

    machine = f"worker {get_worker().address}"
    _refuse_other_version(machine, __version__, version)  # it may have joined after the check
    if sys.getfilesystemencoding() != "utf-8":
        raise DataError(
            f"{machine}: the locale is not UTF-8, so files may not be found; start it with PYTHONUTF8=1"
        )
    try:
        return work(shared, item)
    except UsageError:  # wrong on every machine
        raise
    except CrnrError as e:
        raise DataError(f"{machine}: {e}") from e
