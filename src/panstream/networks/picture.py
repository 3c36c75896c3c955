"""A network as one self-contained SVG: boxes in layers, arrows as thick as the information they carry."""

from __future__ import annotations

from html import escape

from panstream.errors import NotSupported
from panstream.networks.information import mutual_information
from panstream.networks.layout import Layout, layered
from panstream.networks.network import BayesianNetwork

__all__ = ["to_svg"]

_ROW, _BOX, _MARGIN, _GAP = 34, 24, 18, 54
_LETTER = 7.7  # width of a letter at 13 px, on the safe side
_STYLE = """
.ground{fill:#ffffff}.box{fill:#eef3fb;stroke:#5b7db1}.root{fill:#fdf1dc;stroke:#b98a2f}
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1c2430}.size{font-size:10px;fill:#5a6675}
.arrow{fill:none;stroke:#5b6b80;stroke-opacity:.75}.head{fill:#5b6b80}
@media (prefers-color-scheme:dark){.ground{fill:#14181f}.box{fill:#1f2c40;stroke:#7fa2d8}.root{fill:#3a2f18;stroke:#d6ab55}
text{fill:#e8edf4}.size{fill:#a3afbf}.arrow{stroke:#9fb0c6}.head{fill:#9fb0c6}}
"""


def to_svg(network: BayesianNetwork, *, title: str = "Bayesian network") -> str:
    """Return the picture: arrows lead from left to right, the small number is the count of categories.

    Hovering over an arrow tells the mutual information of its two ends in bits. The colours follow the reader's light or
    dark setting.
    """
    layout = layered(network.parents)
    lefts, widths = _columns(network, layout)
    width = lefts[-1] + widths[-1] + _MARGIN
    height = layout.height * _ROW + 2 * _MARGIN
    strengths = _strengths(network)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect class="ground" width="{width:.0f}" height="{height:.0f}"/>',
    ]
    parts += [_arrow(network, layout, lefts, widths, edge, strengths.get(edge)) for edge in network.edges]
    parts += [_box(network, layout, lefts, widths, node) for node in range(len(network.domain))]
    return "\n".join([*parts, "</svg>", ""])


def _columns(network: BayesianNetwork, layout: Layout) -> tuple[list[float], list[float]]:
    """Return where each layer begins and how wide its boxes are."""
    widths = [60.0] * layout.depth
    for attribute, layer in zip(network.domain.attributes, layout.layers, strict=True):
        letters = len(_short(attribute.name)) * _LETTER + len(str(attribute.size)) * 6.5 + 28
        widths[layer] = max(widths[layer], letters)
    lefts, left = [], float(_MARGIN)
    for width in widths:
        lefts.append(left)
        left += width + _GAP
    return lefts, widths


def _short(name: str) -> str:
    return name if len(name) <= 32 else name[:31] + "…"


def _middle(height: float) -> float:
    return _MARGIN + (height + 0.5) * _ROW


def _box(network: BayesianNetwork, layout: Layout, lefts: list[float], widths: list[float], node: int) -> str:
    attribute, layer = network.domain.attributes[node], layout.layers[node]
    x, y, width = lefts[layer], _middle(layout.heights[node]), widths[layer]
    kind = "box" if network.parents[node] else "root"
    return (
        f'<g><title>{escape(attribute.name)}: {attribute.size} categories</title><rect class="{kind}" x="{x:.1f}" '
        f'y="{y - _BOX / 2:.1f}" width="{width:.1f}" height="{_BOX}" rx="6"/>'
        f'<text x="{x + 9:.1f}" y="{y + 4.5:.1f}">{escape(_short(attribute.name))}</text>'
        f'<text class="size" x="{x + width - 7:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{attribute.size}</text></g>'
    )


def _arrow(
    network: BayesianNetwork,
    layout: Layout,
    lefts: list[float],
    widths: list[float],
    edge: tuple[int, int],
    strength: float | None,
) -> str:
    parent, child = edge
    names = network.domain.names
    x, y = lefts[layout.layers[parent]] + widths[layout.layers[parent]], _middle(layout.heights[parent])
    path = [f"M{x:.1f} {y:.1f}"]
    stops = [(lefts[layer], widths[layer], _middle(height)) for layer, height in layout.routes.get(edge, ())]
    for left, width, level in [*stops, (lefts[layout.layers[child]], 0.0, _middle(layout.heights[child]))]:
        bend = (left - x) / 2
        path.append(f"C{x + bend:.1f} {y:.1f} {left - bend:.1f} {level:.1f} {left:.1f} {level:.1f}")
        if width:
            path.append(f"H{left + width:.1f}")
        x, y = left + width, level
    told = "" if strength is None else f": {strength:.3f} bits"
    thick = 1.2 if strength is None else 0.9 + 2.6 * min(strength, 1.0) ** 0.5
    return (
        f'<path class="arrow" stroke-width="{thick:.2f}" marker-end="url(#head)" d="{" ".join(path)}">'
        f"<title>{escape(names[parent])} → {escape(names[child])}{told}</title></path>"
    )


def _strengths(network: BayesianNetwork) -> dict[tuple[int, int], float]:
    """Return the mutual information of the two ends of each arrow, where it can be computed exactly."""
    found = {}
    for edge in network.edges:
        try:
            found[edge] = mutual_information(network.marginal(edge))
        except NotSupported:
            continue
    return found
