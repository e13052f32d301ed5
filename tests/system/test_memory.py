"""How much memory is free: by the machine, its cgroups, and the limits of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crnr_cli.system.memory import free_bytes

GB = 10**9
V1_UNLIMITED = 9223372036854771712


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def machine(root: Path, free: int, cgroup: str = "") -> None:
    (root / "proc/self").mkdir(parents=True)
    text = f"MemTotal: 99999999 kB\nMemAvailable: {free // 1024} kB\n"
    (root / "proc/meminfo").write_text(text)
    if cgroup:
        (root / "proc/self/cgroup").write_text(cgroup)


def group(folder: Path, limit: object, used: int, cache: int | None = 0) -> None:
    """Make a cgroup of version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    if cache is not None:
        (folder / "memory.stat").write_text(f"anon 12\ninactive_file {cache}\nactive_file 34\n")


def group_v1(folder: Path, limit: int, used: int, cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"inactive_file 1\ntotal_inactive_file {cache}\n")


def test_a_machine_without_cgroups(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None
    machine(tmp_path, 8 * GB)
    assert free_bytes(tmp_path) == 8 * GB // 1024 * 1024


def test_free_bytes_follow_nested_cgroups(tmp_path: Path) -> None:
    """As with Slurm and systemd: the limit may be on any level."""
    machine(tmp_path, 64 * GB, "0::/system.slice/slurmd/job_7/step_0\n")
    place = tmp_path / "sys/fs/cgroup"
    group(place / "system.slice/slurmd/job_7/step_0", "max", 1 * GB)
    group(place / "system.slice/slurmd/job_7", 4 * GB, 1 * GB)
    group(place / "system.slice", 16 * GB, 2 * GB)
    assert free_bytes(tmp_path) == 3 * GB
    group(place / "system.slice", 16 * GB, 15 * GB)
    assert free_bytes(tmp_path) == 1 * GB
    group(place / "system.slice/slurmd/job_7/step_0", 2 * GB, 3 * GB)
    assert free_bytes(tmp_path) == 0


def test_a_container_sees_its_own_cgroup_as_the_root(tmp_path: Path) -> None:
    machine(tmp_path, 64 * GB, "0::/\n")
    group(tmp_path / "sys/fs/cgroup", 4 * GB, 1 * GB)
    assert free_bytes(tmp_path) == 3 * GB


def test_page_cache_is_not_in_use(tmp_path: Path) -> None:
    """A container that has read many files is not full."""
    machine(tmp_path, 64 * GB, "0::/a\n")
    group(tmp_path / "sys/fs/cgroup/a", 4 * GB, 3 * GB, cache=2 * GB)
    assert free_bytes(tmp_path) == 3 * GB
    (tmp_path / "sys/fs/cgroup/a/memory.stat").unlink()
    assert free_bytes(tmp_path) == 1 * GB


def test_version_1_and_both_versions_at_once(tmp_path: Path) -> None:
    machine(tmp_path, 64 * GB, "9:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/abc\n1:name=systemd:/a:b\n0::/y\n")
    memory = tmp_path / "sys/fs/cgroup/memory"
    group_v1(memory / "docker/abc", 5 * GB, 3 * GB, cache=1 * GB)
    group_v1(memory, V1_UNLIMITED, 30 * GB, cache=0)
    assert free_bytes(tmp_path) == 3 * GB
    group(tmp_path / "sys/fs/cgroup/unified/y", 1 * GB, 0)
    assert free_bytes(tmp_path) == 1 * GB


def test_a_container_of_version_1_has_the_path_of_its_host(tmp_path: Path) -> None:
    machine(tmp_path, 64 * GB, "4:memory:/docker/abc\n")
    group_v1(tmp_path / "sys/fs/cgroup/memory", 2 * GB, 1 * GB, cache=0)
    assert free_bytes(tmp_path) == 1 * GB


@pytest.mark.parametrize("text", ["", "nonsense", "0::/../..", "4:memory:/\n\n", "\0"])
def test_an_unknown_form_is_no_limit(tmp_path: Path, text: str) -> None:
    machine(tmp_path, 8 * GB, text)
    group(tmp_path / "sys/fs/cgroup/a", "nonsense", 0)
    assert free_bytes(tmp_path) == 8 * GB // 1024 * 1024


def test_the_address_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    machine(tmp_path, 8 * GB)
    (tmp_path / "proc/self/statm").write_text("1000 500 100 1 0 200 0\n")
    monkeypatch.setattr(resource, "getrlimit", lambda which: {resource.RLIMIT_AS: (2 * GB, 4 * GB)}[which])
    assert free_bytes(tmp_path) == 2 * GB - 1000 * os.sysconf("SC_PAGE_SIZE")


def test_free_bytes_follow_ulimit_on_this_machine() -> None:
    """With `ulimit -v`, less is free than without, on the machine as it is."""
    resource = pytest.importorskip("resource")
    code = "from crnr_cli.system.memory import free_bytes; print(free_bytes())"
    command = [sys.executable, "-c", code]
    limit = 2**30
    limited = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert 0 < int(limited.stdout) < limit
