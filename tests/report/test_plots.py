"""The plot of tune: what it shows, read from the figure itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from crnr_cli.report import plots
from helpers.runner import Runner
from helpers.samples import make_features


def test_no_accuracy_above_100_percent_is_on_the_axis() -> None:
    figure = plots.draw_sensitivity(
        [0, 0.1], {"a": [0.9, 1.0], "b": [None, None]}, {"chosen": (0.1, 1.0)}, "title"
    )
    low, high = figure.axes[0].get_ylim()
    assert high == 100
    assert 0 <= low < 90


def test_the_plot_has_the_chosen_setting_and_other_powers_and_steps(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure))
    make_features(crnr.here / "g.npz", per_class=8)
    outcome = crnr("tune", "g.npz", "--plot", Path("p.png"), "-q", "--folds", 2, "--json")
    assert (outcome.exit, outcome.err) == (0, "")
    lines = {line.get_label(): line.get_xydata() for line in drawn[0].axes[0].lines}
    assert any("power 0.5" in name for name in lines)
    assert len({name.split()[0] for name in lines if "iterations" in name}) > 1
    record = json.loads(outcome.out)
    lams = [0.0, 0.001, 0.01, 0.1, 0.3, 1.0, 3.0]  # drawn at equal distances
    for name, trial in (("default", record["paper"]), ("chosen", record["chosen"])):
        (point,) = lines[f"{name}, at mu {trial['mu']:g}"].tolist()
        assert point == pytest.approx([lams.index(trial["lam"]), 100 * trial["accuracy"]])
        best = max(each["accuracy"] for each in record["trials"] if each["lam"] == trial["lam"])
        assert max(y for line in lines.values() for x, y in line.tolist() if x == point[0]) == pytest.approx(
            100 * best
        )


@pytest.mark.parametrize(
    "longest", ["5 iterations", "20 iterations, gradients, cell 12, features to the power 0.5"]
)
def test_the_legend_of_tune_is_within_the_figure(longest: str) -> None:
    lines = {f"{longest}{' ' * i}": [0.5, 0.6] for i in range(6)}
    figure = plots.draw_sensitivity((0.0, 1.0), lines, {"default, at mu 0.1": (0.0, 0.5)}, "title")
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
