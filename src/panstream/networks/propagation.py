"""Belief propagation on a forest: exact marginals of a product of pair potentials, in two sweeps of small products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter

__all__ = ["Forest", "spanning"]

Table = NDArray[np.float64]
_LOWEST = -300.0  # exp of a smaller log potential would not survive the products


@dataclass(frozen=True, slots=True)
class Forest:
    """Which attributes are joined: ``edges`` are pairs of positions without a cycle; built by :func:`spanning`.

    ``order`` lists the attributes so that parents come first; ``parents[v]`` is (parent, edge) or ``None`` for a root.
    """

    sizes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    parents: tuple[tuple[int, int] | None, ...]

    def marginals(self, nodes: Sequence[Table], pairs: Sequence[Table]) -> tuple[list[Table], list[Table]]:
        """Return the marginals of all attributes and of all edges for log potentials of attributes and edges."""
        kernels = [np.exp(np.maximum(each - each.max(), _LOWEST)) for each in pairs]
        inward = [np.maximum(each - each.max(), _LOWEST) for each in nodes]
        messages: list[Table] = [np.zeros(0)] * len(nodes)
        for child in reversed(self.order):
            above = self.parents[child]
            if above is None:
                continue
            parent, edge = above
            inward[child] -= inward[child].max()
            message = np.log(self._facing(kernels[edge], edge, parent) @ np.exp(inward[child]))
            messages[child] = message
            inward[parent] = inward[parent] + message
        found: list[Table] = [np.zeros(0)] * len(nodes)
        joints: list[Table] = [np.zeros(0)] * len(pairs)
        outward: list[Table] = [np.zeros(0)] * len(nodes)  # log belief, up to a constant
        for child in self.order:
            above = self.parents[child]
            if above is None:
                outward[child] = inward[child]
                found[child] = _normalised(np.exp(inward[child] - inward[child].max()))
                continue
            parent, edge = above
            without = outward[parent] - messages[child]
            without = np.exp(without - without.max())
            kernel = self._facing(kernels[edge], edge, parent)
            joint = _normalised(without[:, None] * kernel * np.exp(inward[child])[None, :])
            joints[edge] = joint if self.edges[edge][0] == parent else joint.T
            found[child] = joint.sum(axis=0)
            outward[child] = inward[child] + np.log(without @ kernel)
        return found, joints

    def _facing(self, kernel: Table, edge: int, parent: int) -> Table:
        return kernel if self.edges[edge][0] == parent else kernel.T


def spanning(sizes: Sequence[int], edges: Sequence[tuple[int, int]]) -> Forest:
    """Return the forest of these edges; refuse a cycle. Every tree is rooted at its smallest position."""
    neighbours: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for number, (one, other) in enumerate(edges):
        if not (0 <= one < len(sizes) and 0 <= other < len(sizes)) or one == other:
            raise InvalidParameter(f"an edge must join two different attributes below {len(sizes)}")
        neighbours[one].append((other, number))
        neighbours[other].append((one, number))
    parents: list[tuple[int, int] | None] = [None] * len(sizes)
    order: list[int] = []
    seen: set[int] = set()
    for root in range(len(sizes)):
        waiting = [root] if root not in seen else []
        seen.add(root)
        while waiting:
            here = waiting.pop(0)
            order.append(here)
            for other, number in neighbours[here]:
                if other not in seen:
                    seen.add(other)
                    parents[other] = (here, number)
                    waiting.append(other)
    if sum(above is not None for above in parents) != len(edges):
        raise InvalidParameter("the edges must not form a cycle")
    return Forest(tuple(sizes), tuple(edges), tuple(order), tuple(parents))


def _normalised(table: Table) -> Table:
    return np.asarray(table / table.sum())
