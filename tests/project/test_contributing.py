"""The method that CONTRIBUTING.md shows is a method."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import crnr_cli.methods as registry
from crnr_cli.methods import METHODS, Method, make_method
from helpers.method_checks import CHECKS, problem
from helpers.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
(CLASS,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
(ADDED,) = re.findall(r"^\+ {8}(\w+),$", TEXT, flags=re.MULTILINE)


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Method]:
    """The class, from the text; its module has another name than in the package, which coverage counts."""
    path = tmp_path / "centroid.py"
    path.write_text(CLASS, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("centroid", path)
    module = importlib.util.module_from_spec(spec)
    for name in ("centroid", "crnr_cli.methods.centroid"):
        monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return getattr(module, ADDED)


@pytest.fixture
def centroid(shown: type[Method], monkeypatch: pytest.MonkeyPatch) -> str:
    """Its name, in the registry."""
    monkeypatch.setitem(METHODS, shown.name, shown)
    return shown.name


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_shown_method(check: Callable[[str], None], centroid: str) -> None:
    check(centroid)


def test_shown_method_is_its_formula(centroid: str) -> None:
    samples, queries, _ = problem()
    method = make_method(centroid, {"shrink": 2.0})
    parts = np.split(samples.vectors, samples.edges[1:-1])
    means = [part.sum(axis=0) / (len(part) + 2) for part in parts]
    expected = [[np.linalg.norm(y - mean) for mean in means] for y in queries]
    np.testing.assert_allclose(method.residuals(samples, method.fit(samples), queries), expected)


def test_the_registry_with_the_shown_lines_knows_the_method(shown: type[Method]) -> None:
    source = Path(registry.__file__).read_text(encoding="utf-8")
    lines = re.findall(r"```diff\n (.*\n)\+(.*\n)```", TEXT)
    assert len(lines) == 2
    for before, added in lines:
        assert source.count(before) == 1
        source = source.replace(before, before + added)
    names = {}
    exec(source, names)
    assert names["METHODS"] == METHODS | {"centroid": shown}
