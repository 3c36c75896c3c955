"""The comparisons as bars, for light and dark pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

INK = {"light": "#24292f", "dark": "#d7dde4"}
OURS = "#0f9d8a"
THEIRS = "#c8553d"
LABELS = {
    "speed": "times as fast as the peer (one thread each; right of the line: we are faster)",
    "accuracy": "peer's mean squared error over ours (right of the line: ours is smaller)",
    "intruder": "members, of 10,000, of whom one copy of the state makes an intruder 99% sure",
}


def draw(parts: dict[str, Any], folder: Path) -> None:
    """Write one picture a comparison and theme."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "panstream", "font.family": "sans-serif", "svg.fonttype": "none"}
    for part, label in LABELS.items():
        if part in parts:
            for theme in INK:
                _picture(part, label, parts[part]["rows"], theme, folder / f"bench-{part}-{theme}.svg")


def _picture(part: str, label: str, rows: list[dict[str, Any]], theme: str, path: Path) -> None:
    import matplotlib.pyplot as plt

    ink = INK[theme]
    if part == "intruder":
        bars = [(row["peer"], float(row["theirs"].replace(",", "")), THEIRS, row["theirs"]) for row in rows]
        bars.append(("panstream, epsilon 1", float(rows[0]["ours"].replace(",", "")), OURS, rows[0]["ours"]))
    else:
        bars = [
            (
                f"{row['name']}\n{row['peer']}",
                row["ratio"],
                OURS if row["ratio"] >= 1 else THEIRS,
                f"{row['ratio']:.3g} ×",
            )
            for row in rows
            if "exponent" not in row["name"]
        ]
    figure, axes = plt.subplots(figsize=(8.5, 0.8 + 0.46 * len(bars)), layout="constrained")
    places = range(len(bars))[::-1]
    start = 1.0 if part != "intruder" else 0.0
    axes.barh(
        places,
        [value - start for _, value, _, _ in bars],
        left=start,
        color=[colour for _, _, colour, _ in bars],
        height=0.6,
    )
    for place, (_, value, _, text) in zip(places, bars, strict=True):
        axes.annotate(
            text,
            (max(value, start), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=ink,
            fontsize=8,
        )
    axes.set_yticks(list(places), [name for name, _, _, _ in bars], fontsize=7.5, color=ink)
    axes.set_xlabel(label, color=ink, fontsize=8.5)
    if part == "intruder":
        axes.set_xlim(0, 11_500)
    else:
        axes.set_xscale("log")
        axes.axvline(1, color=ink, linewidth=0.8)
        axes.margins(x=0.12)
    axes.tick_params(colors=ink, labelsize=7.5)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(ink)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)
