"""Where the nodes of a network stand in its picture: layers from left to right, few crossings, long arrows routed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from panstream.networks.network import topological_order

__all__ = ["Layout", "layered"]

_SWEEPS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Layer and height of every node (height in units of one node), and the heights a long arrow passes through."""

    layers: tuple[int, ...]
    heights: tuple[float, ...]
    routes: dict[tuple[int, int], tuple[tuple[int, float], ...]]
    depth: int
    height: float


def layered(parents: Sequence[Sequence[int]]) -> Layout:
    """Return the layout of a graph without cycles given by each node's parents."""
    count = len(parents)
    layers = _layers(parents)
    columns: list[list[int]] = [[] for _ in range(max(layers) + 1)]
    up: list[list[int]] = [[] for _ in range(count)]  # neighbours one column to the left
    down: list[list[int]] = [[] for _ in range(count)]
    chains: dict[tuple[int, int], list[int]] = {}
    place = list(layers)
    for node in range(count):
        columns[layers[node]].append(node)
    for child in range(count):
        for parent in parents[child]:
            chain = [parent]
            for layer in range(layers[parent] + 1, layers[child]):
                place.append(layer)
                up.append([])
                down.append([])
                columns[layer].append(len(place) - 1)
                chain.append(len(place) - 1)
            chain.append(child)
            for left, right in itertools.pairwise(chain):
                down[left].append(right)
                up[right].append(left)
            chains[parent, child] = chain
    _untangle(columns, up, down)
    heights = _heights(columns, up, down, len(place), count)
    routes = {
        edge: tuple((place[node], heights[node]) for node in chain[1:-1])
        for edge, chain in chains.items()
        if len(chain) > 2
    }
    return Layout(
        layers=tuple(layers),
        heights=tuple(heights[:count]),
        routes=routes,
        depth=len(columns),
        height=max(heights) + 1,
    )


def _layers(parents: Sequence[Sequence[int]]) -> list[int]:
    """Return each node's longest way from a root; nodes without any arrow stand in the first layer."""
    layers = [0] * len(parents)
    for node in topological_order(parents):
        layers[node] = max((layers[each] + 1 for each in parents[node]), default=0)
    return layers


def _untangle(columns: list[list[int]], up: list[list[int]], down: list[list[int]]) -> None:
    """Order each column by the mean place of its neighbours, left to right and back, and keep the best order seen."""
    best, fewest = [list(column) for column in columns], _crossings(columns, down)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for column in columns[1:] if forward else reversed(columns[:-1]):
            _sort(column, columns, up if forward else down)
        crossings = _crossings(columns, down)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    columns[:] = best


def _sort(column: list[int], columns: list[list[int]], neighbours: list[list[int]]) -> None:
    rank = {node: at / max(len(each) - 1, 1) for each in columns for at, node in enumerate(each)}
    keys = {
        node: sum(rank[each] for each in neighbours[node]) / len(neighbours[node]) if neighbours[node] else rank[node]
        for node in column
    }
    column.sort(key=lambda node: keys[node])


def _crossings(columns: list[list[int]], down: list[list[int]]) -> int:
    total = 0
    for left, right in itertools.pairwise(columns):
        rank = {node: at for at, node in enumerate(right)}
        ends = [rank[each] for node in left for each in sorted(down[node], key=lambda each: rank[each])]
        total += sum(a > b for at, a in enumerate(ends) for b in ends[at + 1 :])
    return total


def _heights(
    columns: list[list[int]], up: list[list[int]], down: list[list[int]], total: int, count: int
) -> list[float]:
    """Return heights that keep the order and a distance, each node pulled towards the middle of its neighbours."""
    heights = [0.0] * total
    widest = max(len(column) for column in columns)
    for column in columns:
        for at, node in enumerate(column):
            heights[node] = at + (widest - len(column)) / 2
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wanted = [
                sum(heights[each] for each in (*up[node], *down[node])) / (len(up[node]) + len(down[node]))
                if up[node] or down[node]
                else heights[node]
                for node in column
            ]
            gaps = [
                1.0 if node < count and following < count else 0.6 for node, following in itertools.pairwise(column)
            ]
            for node, height in zip(column, _apart(wanted, gaps), strict=True):
                heights[node] = height
    lowest = min(heights)
    return [height - lowest for height in heights]


def _apart(wanted: list[float], gaps: list[float]) -> list[float]:
    """Return the nearest heights to ``wanted`` that rise by at least the gaps (pool adjacent violators)."""
    shifts = [0.0]
    for gap in gaps:
        shifts.append(shifts[-1] + gap)
    blocks: list[tuple[float, int]] = []  # mean and size
    for value, shift in zip(wanted, shifts, strict=True):
        mean, size = value - shift, 1
        while blocks and blocks[-1][0] > mean:
            before, number = blocks.pop()
            mean, size = (mean * size + before * number) / (size + number), size + number
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [mean + shift for mean, shift in zip(flat, shifts, strict=True)]
