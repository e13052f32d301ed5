"""The table of presets in docs/reference/networks.md has the values that are used."""

from __future__ import annotations

from fractions import Fraction

import pytest

from crnr_cli.models.presets import PRESETS
from helpers.paths import TESTS

LINES = (TESTS.parent / "docs" / "reference" / "networks.md").read_text().splitlines()
ROWS = {
    cells[0].strip("`"): cells[1:]
    for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in LINES)
    if len(cells) == 7 and cells[0].startswith("`")
}


def test_the_table_lists_all_presets() -> None:
    assert list(ROWS) == list(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_the_values_of_the_table_are_used(name: str) -> None:
    size, crop, filter, mean, std, output = ROWS[name]
    preset = PRESETS[name]
    assert (size, filter) == ("" if preset.size is None else str(preset.size), preset.filter)
    assert float(Fraction(crop)) == pytest.approx(preset.crop)
    for text, values in ((mean, preset.mean), (std, preset.std)):
        assert tuple(map(float, text.split(","))) == pytest.approx(values, abs=5e-4)
    assert output.endswith(", cls") == preset.has_class_token
    if output:
        assert output.split("`")[1] == preset.outputs[0]
