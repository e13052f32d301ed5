"""The remedy for a missing package names a command that works where crnr is installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import ClassVar

import pytest

from crnr_cli.system import extras
from crnr_cli.system.extras import command_for_extra, describe_missing
from helpers.runner import quoted


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Return a function that makes an environment in which crnr was installed in some way."""

    def make(origin: object = None, *, pip: str = "first", marker: str = "") -> None:
        class Installed:
            requires: ClassVar = ["jinja2>=3; extra == 'report'", "pyarrow; extra == 'parquet'"]

            def read_text(self, name: str) -> str | None:
                assert name == "direct_url.json"
                return None if origin is None else json.dumps(origin)

        def find_distribution(name: str) -> object:
            if name in ("crnr-cli", "pyarrow"):
                return Installed()
            raise PackageNotFoundError(name)

        monkeypatch.setattr("importlib.metadata.distribution", find_distribution)
        programs = tmp_path / "env" / "bin"
        monkeypatch.setattr(extras.sys, "prefix", str(tmp_path / "env"))
        monkeypatch.setattr(extras.sys, "executable", str(programs / "python"))
        monkeypatch.setattr(extras, "find_spec", lambda name: None if pip == "none" else object())
        first = programs / "pip" if pip == "first" else Path("/usr/bin/pip")
        monkeypatch.setattr(extras.shutil, "which", lambda name: str(first))
        programs.mkdir(parents=True)
        if marker:
            (tmp_path / "env" / marker).touch()

    return make


def test_extra_of_a_package_from_an_index(environment: Callable[..., None]) -> None:
    environment()
    assert describe_missing("report", "--html", "jinja2") == (
        f"--html needs jinja2; install with: pip install {quoted('crnr-cli[report]')}"
    )


def test_extra_where_another_pip_is_first(environment: Callable[..., None], tmp_path: Path) -> None:
    environment(pip="other")
    python = tmp_path / "env" / "bin" / "python"
    assert command_for_extra("report") == f"{python} -m pip install {quoted('crnr-cli[report]')}"


def test_extra_where_there_is_no_pip(environment: Callable[..., None], tmp_path: Path) -> None:
    environment(pip="none")
    python = tmp_path / "env" / "bin" / "python"
    assert command_for_extra("report") == f"uv pip install --python {python} {quoted('crnr-cli[report]')}"


def test_extra_of_a_checkout(
    environment: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    environment(origin)
    monkeypatch.chdir("/")
    assert command_for_extra("report") == f"pip install -e {quoted(f'{tmp_path}[report]')}"
    monkeypatch.chdir(tmp_path)
    assert command_for_extra("report") == f"pip install -e {quoted('.[report]')}"


def test_extra_of_a_folder_that_is_gone(environment: Callable[..., None], tmp_path: Path) -> None:
    environment({"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    assert command_for_extra("report") == f"pip install {quoted('crnr-cli[report]')}"


def test_extra_of_a_repository(environment: Callable[..., None]) -> None:
    environment({"url": "https://example.org/crnr.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b2c"}})
    assert command_for_extra("report") == (
        f"pip install {quoted('crnr-cli[report] @ git+https://example.org/crnr.git@0a1b2c')}"
    )


@pytest.mark.parametrize(
    ("marker", "tool"),
    [("pipx_metadata.json", "pipx install --force"), ("uv-receipt.toml", "uv tool install --force")],
)
def test_extra_of_a_tool_keeps_the_other_extras(
    environment: Callable[..., None], marker: str, tool: str
) -> None:
    environment(marker=marker)
    assert command_for_extra("report") == f"{tool} {quoted('crnr-cli[parquet,report]')}"


@pytest.mark.parametrize("broken", [[], {"url": 1}, {"url": "file:///x", "dir_info": 3}])
def test_extra_with_unexpected_metadata(environment: Callable[..., None], broken: object) -> None:
    environment(broken)
    assert command_for_extra("report") == f"pip install {quoted('crnr-cli[report]')}"
