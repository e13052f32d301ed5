"""What plots need of matplotlib; nothing else imports it."""

from __future__ import annotations

from crnr_cli.system.folders import elsewhere

# When it is imported, matplotlib obeys a file matplotlibrc in the current folder, which may be anybody's and
# may start LaTeX. The user's own settings are not used either, so that plots are the same everywhere.
with elsewhere():
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke
    from matplotlib.text import Text
matplotlib.rcdefaults()

__all__ = [
    "Axes",
    "Figure",
    "LinearSegmentedColormap",
    "Normalize",
    "PolyCollection",
    "Rectangle",
    "ScalarMappable",
    "Text",
    "to_rgba",
    "withStroke",
]
