"""Pictures of results, by matplotlib. Figures are made without its global state, so that nothing is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from crnr_cli.errors import UsageError
from crnr_cli.files import check_output, replacing

FORMATS = ("png", "svg", "pdf")
# Told apart by most colour-blind readers, and in grey (Okabe and Ito).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")


def check_picture(path: Path) -> None:
    """Refuse, before any work, a picture that could not be written."""
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        raise UsageError(f"{path}: a picture's name must end in .{', .'.join(FORMATS)}")
    check_output(path)


def save(figure: Figure, path: Path) -> None:
    with replacing(path) as part:
        figure.savefig(part, format=path.suffix.lower().removeprefix("."), dpi=150)


def sensitivity(
    lams: Sequence[float],
    accuracies: Mapping[str, Sequence[float | None]],
    marked: Mapping[str, tuple[float, float]],
    title: str,
) -> Figure:
    """Accuracy over lam, a line for each name; `marked` points are (lam, accuracy)."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    place = {lam: i for i, lam in enumerate(lams)}  # even steps: lam = 0 has no place on a log axis
    for (name, values), color in zip(accuracies.items(), COLORS, strict=False):
        known = [
            (place[lam], 100 * value) for lam, value in zip(lams, values, strict=True) if value is not None
        ]
        axes.plot(
            [x for x, _ in known], [y for _, y in known], marker="o", markersize=4, color=color, label=name
        )
    for (name, (lam, accuracy)), marker in zip(marked.items(), "sD", strict=False):
        axes.plot(
            place[lam], 100 * accuracy, marker, markersize=11, mfc="none", mew=2, color="#222222", label=name
        )
    axes.set_xticks(range(len(lams)), [f"{lam:g}" for lam in lams])
    axes.set_xlabel("lam, the weight of the class residuals")
    axes.set_ylabel("cross-validated accuracy, %")
    axes.set_title(title, fontsize=11)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    return figure
