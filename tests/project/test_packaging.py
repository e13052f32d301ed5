"""What is published: a source archive, and a wheel made from it that runs alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import crnr_cli
from helpers.paths import ROOT, SAMPLE_DATA


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, and the wheel built from it: files that the archive lacks are missing there too."""
    for tool in ("build", "hatchling"):
        pytest.importorskip(tool, reason=f"{tool} is not installed")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def files_below(*folders: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__", ".mypy_cache"} & set(path.parts)
    }


@pytest.mark.slow
def test_the_wheel_has_all_of_the_package_its_man_pages_and_completions_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    data = f"crnr_cli-{crnr_cli.__version__}.data/data/"
    made = {name for name in files_below("docs/share") if not name.endswith(".py")}
    shared = {name.removeprefix("docs/") for name in made}
    assert {name for name in names if not name.startswith(data)} == files_below("crnr_cli")
    assert {name.removeprefix(data) for name in names if name.startswith(data)} == shared
    assert {"share/man/man1/crnr.1", "share/bash-completion/completions/crnr"} < shared
    assert "crnr_cli/py.typed" in names


@pytest.mark.slow
def test_the_source_archive_has_all_test_files_and_nothing_generated(dist: Path) -> None:
    (found,) = dist.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    folders = ("crnr_cli", "tests", "sample_data", "docs", "benchmarks", ".ci", ".github/workflows")
    single = {name for name in names if not name.startswith(tuple(f"{folder}/" for folder in folders))}
    assert names - single == files_below(*folders)
    assert single == {
        *(".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md"),
        *("LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "pyproject.toml"),
    }


@pytest.mark.slow
def test_the_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    environment = {**os.environ, "PYTHONPATH": str(place)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert Path(run("-c", "import crnr_cli; print(crnr_cli.__file__)").strip()).is_relative_to(place)
    assert run("-m", "crnr_cli", "--version") == f"crnr {crnr_cli.__version__}\n"
    run("-m", "crnr_cli", "build", str(SAMPLE_DATA / "gallery"))
    run("-m", "crnr_cli", "classify", str(SAMPLE_DATA / "queries"), "-o", "out.csv")
    run("-m", "crnr_cli", "evaluate", "out.csv", "--min-accuracy", "0.5")


@pytest.mark.slow
def test_the_page_on_pypi_is_the_readme(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"crnr_cli-{crnr_cli.__version__}.dist-info/METADATA").decode()
    assert "Description-Content-Type: text/markdown" in text
    assert text.partition("\n\n")[2] == (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version, date = re.findall(r'^(?:version|date-released): "?([\d.-]+)"?$', text, re.MULTILINE)
    assert version == crnr_cli.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{version}] - {date}\n" in changes


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_versions_of_python_that_are_named_are_those_that_are_tested() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [name.removeprefix(prefix) for name in PROJECT["classifiers"] if name.startswith(prefix)]
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"^      matrix:\n(?:        .*\n)+", workflow, re.MULTILINE)
    assert set(named) == set(re.findall(r'"3\.(\d+)"', matrix))
    assert PROJECT["requires-python"] == f">=3.{min(map(int, named))}"


def test_the_extra_all_has_every_extra_for_users() -> None:
    (everything,) = PROJECT["optional-dependencies"]["all"]
    named = set(everything.removeprefix("crnr-cli[").removesuffix("]").split(","))
    assert named == PROJECT["optional-dependencies"].keys() - {"all", "docs", "lint", "test"}


def test_pre_commit_has_the_linter_of_the_extra() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pins = set(re.findall(r"[\w-]+==[\d.]+", text))
    assert pins
    assert pins < set(PROJECT["optional-dependencies"]["lint"])


HOME = {"GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "somebody/crnr"}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The files that a release check reads, with version 1.2.3 everywhere."""
    texts = {
        "crnr_cli/__init__.py": '"""crnr"""\n\n__version__ = "1.2.3"\n',
        "CITATION.cff": 'cff-version: 1.2.0\nversion: 1.2.3\ndate-released: "2026-11-30"\n',
        "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-30\n",
        "pyproject.toml": '[project.urls]\nRepository = "https://git.example/somebody/crnr"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "check_release.py", tmp_path / ".ci")
    return tmp_path


def check_release(folder: Path, tag: str) -> tuple[int, str]:
    command = [sys.executable, str(folder / ".ci" / "check_release.py"), tag]
    done = subprocess.run(command, env=os.environ | HOME, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_tag_that_is_the_version_can_be_released(release: Path) -> None:
    assert check_release(release, "v1.2.3") == (0, "")


def test_another_tag_cannot(release: Path) -> None:
    said = "the tag is v1.2.4, but the version of the package is 1.2.3\n"
    assert check_release(release, "v1.2.4") == (1, said)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("CITATION.cff", "1.2.3", "1.2.2", "CITATION.cff has the version 1.2.2, not 1.2.3"),
        (
            "CITATION.cff",
            "11-30",
            "11-29",
            "CITATION.cff has the date 2026-11-29, but CHANGELOG.md has 2026-11-30",
        ),
        ("CHANGELOG.md", " - 2026-11-30", "", "CHANGELOG.md has no section `## [1.2.3] - YYYY-MM-DD`"),
        (
            "pyproject.toml",
            "somebody",
            "another",
            "pyproject.toml: Repository in [project.urls] is https://git.example/another/crnr, but this is "
            "https://git.example/somebody/crnr",
        ),
    ],
)
def test_neither_can_a_version_that_is_not_everywhere(
    release: Path, name: str, old: str, new: str, said: str
) -> None:
    path = release / name
    path.write_text(path.read_text().replace(old, new))
    assert check_release(release, "v1.2.3") == (1, f"{said}\n")
