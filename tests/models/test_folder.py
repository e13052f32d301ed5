"""The folder of models: where platformdirs has it, what is found there, and commands for a shell."""

from __future__ import annotations

import os
import shlex
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from platformdirs import windows
from platformdirs.api import PlatformDirsABC
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from crnr_cli.errors import DataError
from crnr_cli.models import catalog
from crnr_cli.models.catalog import (
    MODELS,
    command_for,
    find_local_copy,
    find_model,
    model_path,
    models_folder,
    other_models,
)
from helpers.each import check_each
from helpers.runner import powerless

SYSTEMS: dict[str, type[PlatformDirsABC]] = {
    "linux": Unix,
    "freebsd14": Unix,
    "darwin": MacOS,
    "win32": Windows,
}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models, next to the current folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("CRNR_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_folder_is_where_platformdirs_has_it(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "sys", SimpleNamespace(platform=system))
    monkeypatch.setattr(windows, "get_win_folder", windows.get_win_folder_from_env_vars)
    monkeypatch.delenv("CRNR_MODELS", raising=False)

    def check(case: tuple[str, str | None]) -> None:
        home, cache = case
        monkeypatch.setenv("HOME", home)
        monkeypatch.setenv("LOCALAPPDATA", f"{home.rstrip('/')}/AppData/Local")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        if cache is not None:
            monkeypatch.setenv("XDG_CACHE_HOME", cache)
        assert models_folder() == SYSTEMS[system]("crnr", appauthor=False).user_cache_path / "models"

    check_each(product(["/home/somebody", "/"], [None, "", "cache", " ", "/var/tmp/a cache"]), check)


def test_windows_without_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "sys", SimpleNamespace(platform="win32"))
    for name in ("CRNR_MODELS", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert models_folder() == Path("/home/somebody/AppData/Local/crnr/Cache/models")


def test_a_folder_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for chosen, expected in (("/a/b", "/a/b"), ("~/networks", "/home/somebody/networks"), ("b", "b")):
        monkeypatch.setenv("CRNR_MODELS", chosen)
        assert models_folder() == Path(expected)
    monkeypatch.setenv("CRNR_MODELS", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert models_folder() == Path("/c/crnr/models")


def test_models_folder_without_a_home_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CRNR_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_home(path: object = None) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(DataError) as caught:
        models_folder()
    assert str(caught.value) == "there is no home folder for models; choose a folder with CRNR_MODELS"
    monkeypatch.setenv("CRNR_MODELS", "~nobody of this name/models")
    with pytest.raises(DataError) as caught:
        models_folder()
    assert str(caught.value) == (
        "CRNR_MODELS: there is no home folder for ~nobody of this name/models; give another path"
    )


def test_a_path_wins_over_a_name(models: Path) -> None:
    (models / "efficientnet-lite0.onnx").write_bytes(b"known")
    (models / "mine.onnx").write_bytes(b"own")
    assert find_model(Path("efficientnet-lite0")) == models / "efficientnet-lite0.onnx"
    assert find_model(Path("mine")) == models / "mine.onnx"
    for name in ("efficientnet-lite0", "mine"):
        Path(name).write_bytes(b"a file without an ending")
        assert find_model(Path(name)) == Path(name)
        Path(name).unlink()
        Path(name).mkdir()  # a folder is no model
        assert find_model(Path(name)).parent == models
        assert find_model(Path(f"./{name}x/y")) == Path(f"{name}x/y")  # a path is never a name


def test_a_file_with_an_ending_is_a_path(models: Path) -> None:
    (models / "mine.onnx").write_bytes(b"own")
    assert find_model(Path("mine.onnx")) == Path("mine.onnx")
    assert find_model(Path("mine.ort")) == Path("mine.ort")


def test_find_model_refuses_unknown_names(models: Path) -> None:
    for name in ("resnet51", "mine", "", "..", "CON", "a\nb"):
        with pytest.raises(DataError) as caught:
            find_model(Path(name))
        message = str(caught.value)
        assert message.startswith(f"{Path(name)}: no such file, and no known network; give gradients")
        assert "`crnr model list`" in message


def test_a_known_model_that_is_not_here(models: Path) -> None:
    for name, model in MODELS.items():
        with pytest.raises(DataError) as caught:
            find_model(Path(name))
        command = f": {command_for(model)}" if model.command else f"`crnr model get {name}`"
        assert str(caught.value).startswith(f"{name}: not installed; get it with")
        assert command in str(caught.value)


def test_a_model_is_found_at_its_place(models: Path) -> None:
    for name, model in MODELS.items():
        model_path(model).parent.mkdir(parents=True, exist_ok=True)
        model_path(model).write_bytes(b"a model")
        assert find_model(Path(name)) == model_path(model)
    assert other_models() == []


def test_models_of_ones_own(models: Path) -> None:
    for name in ("mine.onnx", "quick.ort", "notes.txt", "mine.onnx.data", "resnet50.onnx"):
        (models / name).write_bytes(b"a file")
    (models / "folder.onnx").mkdir()
    (models / "nowhere.onnx").symlink_to("none")
    assert other_models() == [models / "mine.onnx", models / "quick.ort"]
    assert find_model(Path("quick")) == models / "quick.ort"


def test_other_models_ignores_a_missing_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRNR_MODELS", str(models / "none"))
    assert other_models() == []
    (models / "none").write_bytes(b"a file")
    assert other_models() == []


def test_find_model_reports_an_unreadable_folder(models: Path) -> None:
    (models / "mine.onnx").write_bytes(b"a file")
    models.chmod(0o300)
    try:
        with powerless(), pytest.raises(DataError) as caught:
            find_model(Path("mine"))
    finally:
        models.chmod(0o700)
    assert str(caught.value) == (
        f"{models}: cannot read this folder of networks (Permission denied); "
        "choose another one with CRNR_MODELS"
    )


NAMES = [
    "plain",
    "with a space",
    "it's",
    'a "quoted" one',
    "$HOME",
    "`id`",
    "a\\b",
    "{folder}",
    "é;rm",
    "a&&b",
]


@pytest.mark.parametrize("name", NAMES)
def test_commands_are_understood_by_a_shell(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / name
    monkeypatch.setenv("CRNR_MODELS", str(place))
    for model in MODELS.values():
        words = shlex.split(command_for(model))
        if model.command is None:
            assert words == ["crnr", "model", "get", model.name]
        else:
            assert words[:4] == ["mkdir", "-p", str(place), "&&"]
            assert words[4:6] == ["python", "-c"]
            assert words[7:] == [str(model_path(model))]
            compile(words[6], "command", "exec")


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_runs_the_command_with_the_right_places(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that writes down what it is given takes the place of Python with torchvision."""
    from helpers.runner import Runner

    monkeypatch.setenv("CRNR_MODELS", str(tmp_path / name))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python").write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\n')
    (programs / "python").chmod(0o755)
    for model in MODELS.values():
        if model.command:
            script = f"export PATH={shlex.quote(str(programs))}:$PATH\n{command_for(model)}"
            outcome = Runner(tmp_path).bash(script)
            assert (outcome.exit, outcome.err) == (0, "")
            assert outcome.out.splitlines()[-1] == str(model_path(model))
    assert (tmp_path / name).is_dir()


def test_a_path_on_another_machine(models: Path) -> None:
    found = find_local_copy(Path("/home/other/.cache/crnr/models/efficientnet-lite0.onnx"))
    assert found == (models / "efficientnet-lite0.onnx", "crnr model get efficientnet-lite0")
    found = find_local_copy(Path("/somewhere/dinov2-small/onnx/model.onnx"))
    assert found == (models / "dinov2-small/onnx/model.onnx", "crnr model get dinov2-small")
    for other in ("mine.onnx", "efficientnet-lite0", "/x/model.onnx", "/x/onnx/model.onnx", ""):
        assert find_local_copy(Path(other)) is None


def test_catalogue_has_one_source_per_model() -> None:
    """Every model has exactly one source, and its name is its file's."""
    for name, model in MODELS.items():
        assert model.name == name
        assert [model.weights, model.repository, model.command].count(None) == 2
        assert model.repository is None or model.file == f"{name}/{model.repository.file}"
        assert model.repository is None or model.repository.name in model.origin
        assert Path(model.file).parts[0].removesuffix(".onnx") == name
        assert not os.path.isabs(model.file)  # noqa: PTH117
        assert model.licence
