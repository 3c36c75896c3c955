"""A network as one self-contained SVG: boxes in layers, arrows as thick as the information they carry."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from panstream.errors import NotSupported
from panstream.models.networks.information import mutual_information
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork, topological_order

_ROW = 34
_BOX = 24
_MARGIN = 18
_GAP = 54
_LETTER = 7.7  # width of a letter at 13 px, on the safe side
_STYLE = """
.ground{fill:#ffffff}.box{fill:#eef3fb;stroke:#5b7db1}.root{fill:#fdf1dc;stroke:#b98a2f}
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1c2430}.size{font-size:10px;fill:#5a6675}
.arrow{fill:none;stroke:#5b6b80;stroke-opacity:.75}.head{fill:#5b6b80}
@media (prefers-color-scheme:dark){.ground{fill:#14181f}.box{fill:#1f2c40;stroke:#7fa2d8}
.root{fill:#3a2f18;stroke:#d6ab55}
text{fill:#e8edf4}.size{fill:#a3afbf}.arrow{stroke:#9fb0c6}.head{fill:#9fb0c6}}
"""


def to_svg(network: BayesianNetwork | Mixture, *, title: str = "Bayesian network") -> str:
    """Return an SVG document: arrows lead from left to right, the small number is the count of categories.

    The tooltip of an arrow has the mutual information of its two ends in bits. The colours follow the reader's light or
    dark setting. Of a mixture the strongest dependences are shown, as a tree.

    Args:
        network: The model to draw.
        title: Title of the picture.
    """
    if isinstance(network, Mixture):
        network = network.nearest_tree()
    layout = _layered(network.parents)
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


def _columns(network: BayesianNetwork, layout: _Layout) -> tuple[list[float], list[float]]:
    """Return the left edge of each layer and the width of its boxes, in pixels."""
    widths = [60.0] * layout.depth
    for attribute, layer in zip(network.domain.attributes, layout.layers, strict=True):
        letters = len(_short(attribute.name)) * _LETTER + len(str(attribute.size)) * 6.5 + 28
        widths[layer] = max(widths[layer], letters)
    lefts = []
    left = float(_MARGIN)
    for width in widths:
        lefts.append(left)
        left += width + _GAP
    return lefts, widths


def _short(name: str) -> str:
    return name if len(name) <= 32 else name[:31] + "…"


def _middle(height: float) -> float:
    return _MARGIN + (height + 0.5) * _ROW


def _box(network: BayesianNetwork, layout: _Layout, lefts: list[float], widths: list[float], node: int) -> str:
    attribute = network.domain.attributes[node]
    layer = layout.layers[node]
    x = lefts[layer]
    y = _middle(layout.heights[node])
    width = widths[layer]
    kind = "box" if network.parents[node] else "root"
    return (
        f'<g><title>{escape(attribute.name)}: {attribute.size} categories</title><rect class="{kind}" x="{x:.1f}" '
        f'y="{y - _BOX / 2:.1f}" width="{width:.1f}" height="{_BOX}" rx="6"/>'
        f'<text x="{x + 9:.1f}" y="{y + 4.5:.1f}">{escape(_short(attribute.name))}</text>'
        f'<text class="size" x="{x + width - 7:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{attribute.size}</text></g>'
    )


def _arrow(
    network: BayesianNetwork,
    layout: _Layout,
    lefts: list[float],
    widths: list[float],
    edge: tuple[int, int],
    strength: float | None,
) -> str:
    parent, child = edge
    names = network.domain.names
    x = lefts[layout.layers[parent]] + widths[layout.layers[parent]]
    y = _middle(layout.heights[parent])
    path = [f"M{x:.1f} {y:.1f}"]
    stops = [(lefts[layer], widths[layer], _middle(height)) for layer, height in layout.routes.get(edge, ())]
    for left, width, level in [*stops, (lefts[layout.layers[child]], 0.0, _middle(layout.heights[child]))]:
        bend = (left - x) / 2
        path.append(f"C{x + bend:.1f} {y:.1f} {left - bend:.1f} {level:.1f} {left:.1f} {level:.1f}")
        if width:
            path.append(f"H{left + width:.1f}")
        x = left + width
        y = level
    strength_text = "" if strength is None else f": {strength:.3f} bits"
    thick = 1.2 if strength is None else 0.9 + 2.6 * min(strength, 1.0) ** 0.5
    return (
        f'<path class="arrow" stroke-width="{thick:.2f}" marker-end="url(#head)" d="{" ".join(path)}">'
        f"<title>{escape(names[parent])} → {escape(names[child])}{strength_text}</title></path>"
    )


def _strengths(network: BayesianNetwork) -> dict[tuple[int, int], float]:
    """Return the mutual information of the two ends of each arrow, where it can be computed exactly."""
    strengths = {}
    for edge in network.edges:
        try:
            strengths[edge] = mutual_information(network.marginal(edge))
        except NotSupported:
            continue
    return strengths


_SWEEPS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Layer and height of every node (in units of one row), and the (layer, height) stops of arrows over layers."""

    layers: tuple[int, ...]
    heights: tuple[float, ...]
    routes: dict[tuple[int, int], tuple[tuple[int, float], ...]]
    depth: int
    height: float


def _layered(parents: Sequence[Sequence[int]]) -> _Layout:
    """Return a layered layout (Sugiyama et al. 1981) of an acyclic graph given by each node's parents.

    Arrows that skip layers get a dummy node in each layer between, so that they take part in the ordering.
    """
    count = len(parents)
    layers = _layers(parents)
    columns: list[list[int]] = [[] for _ in range(max(layers) + 1)]
    up: list[list[int]] = [[] for _ in range(count)]  # neighbours one column to the left
    down: list[list[int]] = [[] for _ in range(count)]
    chains: dict[tuple[int, int], list[int]] = {}
    node_layers = list(layers)
    for node in range(count):
        columns[layers[node]].append(node)
    for child in range(count):
        for parent in parents[child]:
            chain = [parent]
            for layer in range(layers[parent] + 1, layers[child]):
                node_layers.append(layer)
                up.append([])
                down.append([])
                columns[layer].append(len(node_layers) - 1)
                chain.append(len(node_layers) - 1)
            chain.append(child)
            for left, right in itertools.pairwise(chain):
                down[left].append(right)
                up[right].append(left)
            chains[parent, child] = chain
    _reduce_crossings(columns, up, down)
    heights = _heights(columns, up, down, len(node_layers), count)
    routes = {
        edge: tuple((node_layers[node], heights[node]) for node in chain[1:-1])
        for edge, chain in chains.items()
        if len(chain) > 2
    }
    return _Layout(
        layers=tuple(layers), heights=tuple(heights[:count]), routes=routes, depth=len(columns), height=max(heights) + 1
    )


def _layers(parents: Sequence[Sequence[int]]) -> list[int]:
    """Return the length of each node's longest path from a root; isolated nodes are in the first layer."""
    layers = [0] * len(parents)
    for node in topological_order(parents):
        layers[node] = max((layers[parent] + 1 for parent in parents[node]), default=0)
    return layers


def _reduce_crossings(columns: list[list[int]], up: list[list[int]], down: list[list[int]]) -> None:
    """Sort each column by the mean position of its neighbours, in sweeps both ways; the order with fewest crossings
    remains.
    """
    best = [list(column) for column in columns]
    fewest = _crossings(columns, down)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for column in columns[1:] if forward else reversed(columns[:-1]):
            _sort(column, columns, up if forward else down)
        crossings = _crossings(columns, down)
        if crossings < fewest:
            best = [list(column) for column in columns]
            fewest = crossings
    columns[:] = best


def _sort(column: list[int], columns: list[list[int]], neighbours: list[list[int]]) -> None:
    rank = {node: index / max(len(layer) - 1, 1) for layer in columns for index, node in enumerate(layer)}
    keys = {
        node: sum(rank[neighbour] for neighbour in neighbours[node]) / len(neighbours[node])
        if neighbours[node]
        else rank[node]
        for node in column
    }
    column.sort(key=lambda node: keys[node])


def _crossings(columns: list[list[int]], down: list[list[int]]) -> int:
    total = 0
    for left, right in itertools.pairwise(columns):
        rank = {node: index for index, node in enumerate(right)}
        ends = [rank[child] for node in left for child in sorted(down[node], key=lambda child: rank[child])]
        total += sum(a > b for index, a in enumerate(ends) for b in ends[index + 1 :])
    return total


def _heights(
    columns: list[list[int]], up: list[list[int]], down: list[list[int]], total: int, count: int
) -> list[float]:
    """Return heights near the mean of each node's neighbours that respect the order and a minimum distance."""
    heights = [0.0] * total
    widest = max(len(column) for column in columns)
    for column in columns:
        for index, node in enumerate(column):
            heights[node] = index + (widest - len(column)) / 2
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wanted = [
                sum(heights[neighbour] for neighbour in (*up[node], *down[node])) / (len(up[node]) + len(down[node]))
                if up[node] or down[node]
                else heights[node]
                for node in column
            ]
            gaps = [
                1.0 if node < count and following < count else 0.6 for node, following in itertools.pairwise(column)
            ]
            for node, height in zip(column, _spread_heights(wanted, gaps), strict=True):
                heights[node] = height
    lowest = min(heights)
    return [height - lowest for height in heights]


def _spread_heights(wanted: list[float], gaps: list[float]) -> list[float]:
    """Return the nearest heights to ``wanted`` that rise by at least the gaps (pool adjacent violators)."""
    shifts = [0.0]
    for gap in gaps:
        shifts.append(shifts[-1] + gap)
    blocks: list[tuple[float, int]] = []  # mean and size
    for value, shift in zip(wanted, shifts, strict=True):
        mean = value - shift
        size = 1
        while blocks and blocks[-1][0] > mean:
            previous_mean, number = blocks.pop()
            mean = (mean * size + previous_mean * number) / (size + number)
            size = size + number
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [mean + shift for mean, shift in zip(flat, shifts, strict=True)]
