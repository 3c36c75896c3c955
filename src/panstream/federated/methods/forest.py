"""A forest of strong edges, and the network that it stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.networks.domain import Domain
from panstream.networks.network import BayesianNetwork

__all__ = ["Edge", "forest_network", "heaviest_forest"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edge:
    """Two attributes, how much they say about each other (bits), and their joint distribution.

    ``groups`` are the groups of codes that the axes of ``joint`` stand for; ``None`` where they are the codes themselves.
    """

    one: int
    two: int
    weight: float
    joint: NDArray[np.float64]
    groups: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def ratios(self) -> NDArray[np.float64]:
        """Return joint over product of margins for every pair of codes."""
        ratio = self.joint / np.outer(self.joint.sum(axis=1), self.joint.sum(axis=0))
        return ratio if self.groups is None else ratio[np.ix_(*self.groups)]


def heaviest_forest(count: int, edges: Iterable[Edge], least: float = 0.0) -> list[Edge]:
    """Return the forest with the largest total weight among edges above ``least`` (Kruskal)."""
    tree = list(range(count))

    def find(each: int) -> int:
        while tree[each] != each:
            each = tree[each]
        return each

    chosen = []
    for edge in sorted(edges, key=lambda each: (-each.weight, each.one, each.two)):
        one, two = find(edge.one), find(edge.two)
        if edge.weight > least and one != two:
            tree[one] = two
            chosen.append(edge)
    return chosen


def forest_network(domain: Domain, margins: Sequence[NDArray[np.float64]], edges: Sequence[Edge]) -> BayesianNetwork:
    """Return the network with these margins in which every edge multiplies in its ratio; each tree is rooted at its first attribute."""
    parents: list[tuple[int, ...]] = [()] * len(domain)
    tables: list[NDArray[np.float64]] = [np.asarray(margin) for margin in margins]
    near: dict[int, list[Edge]] = {at: [] for at in range(len(domain))}
    for edge in edges:
        near[edge.one].append(edge)
        near[edge.two].append(edge)
    seen: set[int] = set()
    for root in range(len(domain)):
        waiting = [] if root in seen else [root]
        seen.add(root)
        while waiting:
            parent = waiting.pop()
            for edge in near[parent]:
                child = edge.two if edge.one == parent else edge.one
                if child in seen:
                    continue
                ratios = edge.ratios() if edge.one == parent else edge.ratios().T
                table = ratios * margins[child]
                parents[child], tables[child] = (parent,), table / table.sum(axis=1, keepdims=True)
                seen.add(child)
                waiting.append(child)
    return BayesianNetwork(domain, tuple(parents), tuple(tables))
