"""Commands stop when more inputs failed than the user allows."""

from __future__ import annotations

import pytest

from crnr_cli.errors import DataError, SampleError, refuse_too_many
from crnr_cli.gallery.samples import LeftOut, Report


@pytest.mark.parametrize(("failed", "total", "allowed"), [(0, 5, 0.0), (5, 5, 1.0), (2, 8, 0.25)])
def test_as_many_as_are_allowed(failed: int, total: int, allowed: float) -> None:
    refuse_too_many(failed, total, allowed, "sample")
    refuse_too_many([f"{i}.png: empty" for i in range(failed)], total, allowed, "sample")


def test_first_failure_beyond_the_allowed_share_is_named() -> None:
    failed = [LeftOut(f"{i}.png", SampleError("empty", "the file is empty")) for i in range(4)]
    with pytest.raises(DataError) as caught:
        refuse_too_many(failed, 8, 0.25, "example")
    assert str(caught.value) == (
        "2.png: the file is empty; stopped: 4 of 8 examples have to be skipped, and at most 25.00% is allowed"
    )


@pytest.mark.parametrize(("latest", "named"), [(None, ""), ("a.png: empty", "a.png: empty; ")])
def test_only_the_number_of_failures_is_known(latest: str | None, named: str) -> None:
    with pytest.raises(DataError) as caught:
        refuse_too_many(1, 3, 0.0, "file", "; try again", fate="no answer", where=" in x.csv", latest=latest)
    assert str(caught.value) == (
        f"{named}stopped: 1 of 3 files in x.csv has no answer, "
        "and no failure is allowed (--strict); try again"
    )


def test_unrelated_files_are_not_skipped() -> None:
    left_out = [LeftOut("README", SampleError("not_image")), LeftOut("a.png", SampleError("not_image"))]
    assert Report(left_out=left_out).skipped == 1
    assert Report().skipped == 0
