"""Pictures of a report about a synthetic table, as SVG that takes its colours from the style sheet of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.escaping import html_text

MANY = 16
"""Maps of more columns have smaller squares and may be wider than a screen."""

_MAX_BARS = 15
_LABEL = 18  # letters
_BAR = 22  # height of a pair of bars


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """One attribute: its labels, its shares in the reference and in the model or rows, and their distance."""

    name: str
    labels: Sequence[str]
    reference: NDArray[np.float64]
    synthetic: NDArray[np.float64]
    distance: float
    ordered: bool = False  # the labels have an order of their own, as bins have


def bars(panel: Marginal) -> str:
    """Return one attribute's bars, in order or most frequent first; the rest is summed up in one bar.

    Args:
        panel: The attribute.
    """
    order = np.arange(panel.reference.size) if panel.ordered else np.argsort(-panel.reference, kind="stable")
    shown = order[:_MAX_BARS] if order.size > _MAX_BARS + 1 else order
    rows = [
        (panel.labels[index], float(panel.reference[index]), float(panel.synthetic[index])) for index in shown.tolist()
    ]
    if shown.size < order.size:
        rest = order[shown.size :]
        rows.append((f"{rest.size} others", float(panel.reference[rest].sum()), float(panel.synthetic[rest].sum())))
    largest = max(max(reference, synthetic) for _, reference, synthetic in rows) or 1.0
    lines = [
        f'<svg viewBox="0 0 400 {30 + _BAR * len(rows)}" role="img" aria-label="{html_text(panel.name)}">'
        f'<text x="0" y="14" class="name">{html_text(panel.name)}</text>'
        f'<text x="400" y="14" class="soft end">distance {panel.distance:.4f}</text>'
    ]
    for number, (label, reference, synthetic) in enumerate(rows):
        top = 24 + _BAR * number
        for offset, share, kind in ((0, reference, "reference"), (8, synthetic, "synthetic")):
            width = max(205.0 * share / largest, 0.0)
            lines.append(f'<rect x="142" y="{top + offset}" width="{width:.1f}" height="7" class="{kind}"/>')
        lines.append(f'<text x="136" y="{top + 11}" class="end">{html_text(_short(label))}</text>')
        lines.append(f'<text x="400" y="{top + 11}" class="soft end">{100 * synthetic:.1f} %</text>')
    return "".join(lines) + "</svg>"


def heat_map(names: Sequence[str], values: NDArray[np.float64], title: str) -> str:
    """Return a triangle of squares, darker for larger values; pairs without a value stay empty.

    Args:
        names: The attributes.
        values: Values of the pairs in the lower triangle, NaN where there is none.
        title: What the values are.
    """
    cell = 22 if len(names) <= MANY else 14
    left = 150
    width = left + cell * len(names) + 8  # the last number is wider than its square
    height = cell * len(names) + 6
    largest = float(np.nanmax(values, initial=0.0)) or 1.0
    lines = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{html_text(title)}">'
    ]
    for row, name in enumerate(names):
        top = cell * row
        lines.append(f'<text x="{left - 6}" y="{top + cell - 6}" class="end">{html_text(_short(name))}</text>')
        for column in range(row):
            value = float(values[row, column])
            pair = f"{html_text(name)}, {html_text(names[column])}: "
            shade = 'class="empty"' if np.isnan(value) else f'class="heat" fill-opacity="{value / largest:.3f}"'
            figure = "not measured" if np.isnan(value) else f"{value:.4f}"
            lines.append(
                f'<rect x="{left + cell * column}" y="{top + 1}" width="{cell - 2}" height="{cell - 2}" {shade}>'
                f"<title>{pair}{figure}</title></rect>"
            )
        lines.append(f'<text x="{left + cell * row + 2}" y="{top + cell - 6}" class="soft">{row + 1}</text>')
    return "".join(lines) + "</svg>"


def shares(parts: Sequence[tuple[str, float]]) -> str:
    """Return shares of a whole as one bar in shades, with a label under the wider ones.

    Args:
        parts: Names and shares, which add up to 1 at most.
    """
    lines = ['<svg viewBox="0 0 720 26" role="img" aria-label="shares of the budget" preserveAspectRatio="none">']
    lines.append('<rect x="0" y="0" width="720" height="26" class="empty"/>')
    start = 0.0
    for number, (name, share) in enumerate(parts):
        lines.append(
            f'<rect x="{720 * start:.1f}" y="0" width="{max(720 * share - 1, 0.5):.1f}" height="26" '
            f'class="heat" fill-opacity="{1 - 0.7 * number / max(len(parts), 1):.2f}">'
            f"<title>{html_text(name)}: {100 * share:.1f} %</title></rect>"
        )
        start += share
    return "".join(lines) + "</svg>"


def _short(label: str) -> str:
    return label if len(label) <= _LABEL else label[: _LABEL - 1] + "…"
