"""One test per fault, which checks exit code, stdout, stderr, statuses and files.

docs/reference/errors.md is generated from these tests: each compares its section of that page with the output
of crnr, and `pytest tests/faults --update-docs` writes the page again. `@pytest.mark.fault(number, title)`
gives the section of a test; its docstring is the text below the title.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from helpers.faults import Case, make_queries, write_section, written_sections
from helpers.runner import Runner
from helpers.samples import make_features, make_images
from helpers.templates import Templates


@pytest.fixture
def case(crnr: Runner) -> Case:
    """crnr in an empty folder; its output is recorded for the page."""
    return Case(crnr.here)


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    Case(crnr.here).build()


@pytest.fixture
def queries(case: Case, templates: Templates) -> Path:
    """The folder queries with one good image, next to gallery.h5 of three classes."""
    templates.copy(build_gallery, case.here)
    return make_queries()


@pytest.fixture
def features_gallery(case: Case) -> None:
    """gallery.h5 of the 15 samples in gallery.npz."""
    make_features(case.here / "gallery.npz")
    case.build("gallery.npz")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """After a test of a fault has passed, compare its section of the page, or write it."""
    result = yield
    marker = pyfuncitem.get_closest_marker("fault")
    if marker is not None:
        number, title = marker.args
        section = pyfuncitem.funcargs["case"].section(number, title, pyfuncitem.function.__doc__ or "")
        if pyfuncitem.config.getoption("--update-docs"):
            write_section(number, section)
        assert written_sections().get(number) == section, (
            "docs/reference/errors.md is out of date; run this test with --update-docs"
        )
    return result
