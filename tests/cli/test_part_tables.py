"""What explain prints about parts: a grid of margins that fits the screen, and the classes of the others."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len

from helpers.runner import Runner
from helpers.samples import draw_image, make_images

LONG = ("a class with a name that is longer than most terminals are wide, to see what gives way", "b_c" * 30)
NAMES = (*LONG, "cow")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    crnr = Runner(tmp_path_factory.mktemp("tables"))
    make_images(crnr.here / "gallery", NAMES, size=(48, 16))
    query = draw_image(0, 9, (48, 16))
    query.paste(draw_image(1, 9, (48, 16)).crop((24, 0, 48, 16)), (24, 0))
    query.save(crnr.here / "query.png")
    for parts in ("1x1", "2x2", "8x8", "2x24", "2x48"):
        build = ("build", "gallery", "--extractor", "pixels", "--parts", parts, "-o", f"{parts}.h5", "-q")
        assert crnr(*build).exit == 0
    return crnr


def shown(crnr: Runner, parts: str, columns: int = 80) -> tuple[list[str], list[dict]]:
    """Return the lines of the terminal, without colours, and the parts of --json."""
    result = crnr("explain", "query.png", "-g", f"{parts}.h5", columns=columns)
    assert (result.exit, result.err) == (0, "")
    record = json.loads(crnr("explain", "query.png", "-g", f"{parts}.h5", "--json").out)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in result.out.splitlines()]
    return lines, record["explanations"][0]["parts"]


def grid(lines: list[str]) -> list[list[str]]:
    """Return the lines of margins or signs."""
    return [line.split() for line in lines if re.fullmatch(r"( +([+-]?\d\.\d\d|[+-]|0))+", line)]


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("parts", ["1x1", "2x2", "8x8", "2x24", "2x48"])
def test_part_tables_fit_the_terminal(
    built: Runner, monkeypatch: pytest.MonkeyPatch, parts: str, columns: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes Rich see a terminal
    lines, _ = shown(built, parts, columns)
    assert max(map(cell_len, lines)) <= columns
    assert "\u2026" not in "".join(lines)


@pytest.mark.parametrize("parts", ["2x2", "8x8"])
def test_the_grid_has_the_shape_of_the_tiles(built: Runner, parts: str) -> None:
    lines, records = shown(built, parts, 60)
    rows, columns = map(int, parts.split("x"))
    figures = [f"{record['margin']:+.2f}" for record in records]
    assert grid(lines) == [figures[i * columns : (i + 1) * columns] for i in range(rows)]


def test_signs_take_the_place_of_figures_and_then_nothing_does(built: Runner) -> None:
    lines, records = shown(built, "2x24", 60)
    signs = ["+" if record["margin"] > 0 else "-" if record["margin"] < 0 else "0" for record in records]
    assert grid(lines) == [signs[i * 24 : (i + 1) * 24] for i in range(2)]
    assert grid(shown(built, "2x48", 60)[0]) == []
    assert len(grid(shown(built, "2x48", 96)[0])) == 2


def test_parts_are_counted_and_the_classes_of_the_others_listed(built: Runner) -> None:
    lines, records = shown(built, "8x8")
    against = [record for record in records if record["margin"] < 0]
    supporting = sum(record["margin"] > 0 for record in records)
    label = lines[0].removeprefix("query.png: ").partition(" by crnr")[0]
    assert f"{supporting} of 64 tiles support {label}, {len(against)} contradict it:" in lines
    start = next(i for i, line in enumerate(lines) if line.startswith(" others support"))
    listed = [line.strip() for line in lines[start + 2 : start + 2 + len({r["label"] for r in against})]]
    for line in listed:
        found = re.fullmatch(r"(.+?) +(\d+) +(-\d\.\d\d) +row (\d), column (\d)", line)
        assert found
        of_class = [record for record in against if record["label"] == found[1]]
        strongest = min(of_class, key=lambda record: record["margin"])
        assert int(found[2]) == len(of_class)
        assert found[3] == f"{strongest['margin']:+.2f}"
        assert (int(found[4]), int(found[5])) == (strongest["row"], strongest["column"])
    counts = [int(re.split(" {2,}", line)[1]) for line in listed]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == len(against)


def test_a_single_part_supports_the_label(built: Runner) -> None:
    lines, _ = shown(built, "1x1")
    assert any(re.fullmatch("1 of 1 tile supports .+, 0 contradict it:", line) for line in lines)
    assert not any("others support" in line for line in lines)


def test_part_table_lists_the_classes_with_most_parts(crnr: Runner) -> None:
    """The first row of tiles supports the first class, every other tile another class."""
    names = [f"class {i:02}" for i in range(12)]
    for name in names:
        (crnr.here / "g" / name).mkdir(parents=True)
    samples = np.random.default_rng(0).integers(0, 256, (12, 2, 24, 16), dtype=np.uint8)
    for name, pair in zip(names, samples, strict=True):
        for i, pixels in enumerate(pair):
            Image.fromarray(pixels).save(crnr.here / "g" / name / f"{i}.png")
    query = samples[0, 0].copy()
    for tile in range(4, 12):
        place = np.s_[tile // 4 * 8 : tile // 4 * 8 + 8, tile % 4 * 4 : tile % 4 * 4 + 4]
        query[place] = samples[tile, 0][place]
    Image.fromarray(query).save(crnr.here / "query.png")
    assert crnr("build", "g", "--extractor", "pixels", "--parts", "3x4", "-o", "g.h5", "-q").exit == 0
    result = crnr("explain", "query.png", "-g", "g.h5")
    assert (result.exit, result.err) == (0, "")
    assert "\n4 of 12 tiles support class 00, 8 contradict it:\n" in result.out
    table = result.out.partition("others support")[2].partition("largest")[0]
    assert sum(f" {name} " in table for name in names[4:]) == 6
    assert "\n2 more classes have 2 tiles\n" in re.sub(" +\n", "\n", table)
