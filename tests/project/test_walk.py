"""How many files a reader visits who follows a query or a gallery through the code: no more than today."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

import pytest

from helpers.paths import ROOT


class Walk(NamedTuple):
    files: int
    changes: int  # of file


# At most. The data path is without cli/ and system/.
QUERY_DATA_PATH = Walk(35, 110)
QUERY = Walk(52, 180)
GALLERY_DATA_PATH = Walk(35, 127)
GALLERY = Walk(53, 208)


@pytest.fixture(scope="module")
def walks() -> dict[str, Walk]:
    """What benchmarks/walk.py prints, by the beginning of its lines, in their order."""
    command = [sys.executable, str(ROOT / "benchmarks" / "walk.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"^(.+): (\d+) files, (\d+) changes; ", done.stdout, re.MULTILINE)
    return {what: Walk(int(files), int(changes)) for what, files, changes in found}


def exceeded(walks: dict[str, Walk], limits: dict[str, Walk]) -> dict[str, Walk]:
    return {
        what: walks[what]
        for what, limit in limits.items()
        if any(found > most for found, most in zip(walks[what], limit, strict=True))
    }


@pytest.mark.slow
def test_the_data_path_is_short(walks: dict[str, Walk]) -> None:
    assert next(iter(walks)) == "one query, data path"
    limits = {"one query, data path": QUERY_DATA_PATH, "one gallery, data path": GALLERY_DATA_PATH}
    assert exceeded(walks, limits) == {}


@pytest.mark.slow
def test_the_whole_walk_is_short(walks: dict[str, Walk]) -> None:
    assert walks["one query, everything"] > walks["one query, data path"]
    if sys.platform == "linux":  # other systems have a few more functions in system/
        assert exceeded(walks, {"one query, everything": QUERY, "one gallery, everything": GALLERY}) == {}
