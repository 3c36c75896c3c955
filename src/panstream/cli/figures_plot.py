"""Drawing the papers' figures from their data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panstream.errors import MissingExtra
from panstream.papers.figures import FigurePlan, Panel, Row

__all__ = ["check_plots", "draw"]

# Okabe and Ito's colours, which stay apart for colour-blind readers.
_COLOURS = {
    "Dwork": "#D55E00",
    "OptBern": "#0072B2",
    "PPDS": "#009E73",
    "Laplace": "#CC79A7",
    "quantised Laplace": "#56B4E9",
    "truncated Gaussian": "#E69F00",
    "truncated Laplace": "#8A6D3B",
    "sound fixed-level PPDS: ids": "#009E73",
    "panstream": "#000000",
    "Roth": "#7F7F7F",
    "not seen": "#0072B2",
    "seen": "#D55E00",
    "ratio": "#0072B2",
}
_REFERENCE = ("allowed", "allocated", "claimed")
_MARKERS = {
    "Dwork": "s",
    "OptBern": "o",
    "PPDS": "^",
    "sound fixed-level PPDS: ids": "^",
    "Laplace": "D",
    "quantised Laplace": "v",
    "truncated Gaussian": "P",
}


def check_plots() -> None:
    """Raise MissingExtra where matplotlib is absent."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("drawing figures", "plots") from None


def draw(plan: FigurePlan, rows: Sequence[Row], paths: Sequence[Path]) -> None:
    """Draw a figure's panels with one legend below and save it to every path, by its ending."""
    check_plots()
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(len(plan.panels), 2 if len(plan.panels) != 3 else 3)
    lines = -(-len(plan.panels) // columns)
    series = list(dict.fromkeys(row.series for row in rows))
    width = {1: 6.6, 2: 9.6, 3: 12.6}[columns]
    entries = 2 if columns == 1 else 3
    height = 3.5 * lines + 0.22 * -(-len(series) // entries) + 0.5
    with matplotlib.rc_context({"svg.hashsalt": "panstream", "svg.fonttype": "none", "font.size": 9}):
        picture = Figure(figsize=(width, height), layout="constrained")
        picture.suptitle(f"{plan.title} · {plan.source}", fontsize=11)
        axes = picture.subplots(lines, columns, squeeze=False).ravel()
        handles: dict[str, Any] = {}
        for axis, panel in zip(axes, plan.panels, strict=False):
            handles.update(_panel(axis, panel, [row for row in rows if row.panel == panel.key]))
        picture.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=entries, frameon=False, fontsize=8.5
        )
        for path in paths:
            stamp = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            picture.savefig(path, dpi=130, metadata=stamp)
            picture.set_layout_engine("none")  # what fits one picture fits the next


def _panel(axis: Any, panel: Panel, rows: Sequence[Row]) -> dict[str, Any]:
    handles = {}
    for name in dict.fromkeys(row.series for row in rows):
        chosen = sorted((row for row in rows if row.series == name), key=lambda row: row.x)
        x, y = [row.x for row in chosen], [row.y for row in chosen]
        style = _style(name, measured=any(row.repetitions for row in chosen))
        (handles[name],) = axis.plot(x, y, **style)
        if all(math.isfinite(row.low) for row in chosen):
            low = [max(row.low, row.y / 20) if panel.y_log else row.low for row in chosen]
            axis.fill_between(x, low, [row.high for row in chosen], color=style["color"], alpha=0.12, linewidth=0)
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    if panel.x_log:
        axis.set_xscale("log")
    if panel.y_log:
        axis.set_yscale("log")
    axis.minorticks_off()  # a third of the drawing time
    axis.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    axis.set_axisbelow(True)
    return handles


def _style(name: str, *, measured: bool) -> dict[str, Any]:
    """Return a colour by the estimator, and a line by what is shown of it."""
    if name.startswith(_REFERENCE):
        return {"color": "#CCCCCC", "linewidth": 5, "zorder": 1}
    base = next((known for known in sorted(_COLOURS, key=len, reverse=True) if name.startswith(known)), "Roth")
    style: dict[str, Any] = {"color": _COLOURS[base], "linewidth": 1.5}
    if name.endswith("(theory)"):
        return {**style, "linestyle": (0, (1, 1.5)), "linewidth": 2.2, "alpha": 0.8}
    if name.endswith(", R(0)") or "128" in name:
        style["linestyle"] = "-."
    if name.endswith("2ε"):
        style["linestyle"] = "--"
    if measured:
        style |= {"marker": _MARKERS.get(base, "x" if "2ε" in name else "*"), "markersize": 5}
    return style
