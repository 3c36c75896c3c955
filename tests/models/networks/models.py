"""Small random networks and their joint distribution by plain multiplication."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks import BayesianNetwork, Domain


def random_network(seed: int, sizes: tuple[int, ...], degree: int, zeros: bool = False) -> BayesianNetwork:
    """Return a network with arrows in a random order and random tables."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(sizes))
    parents: list[tuple[int, ...]] = [()] * len(sizes)
    for at, node in enumerate(order):
        count = min(at, int(rng.integers(0, degree + 1)))
        parents[node] = tuple(int(each) for each in rng.choice(order[:at], count, replace=False)) if count else ()
    domain = Domain({f"a{at}": [f"v{code}" for code in range(size)] for at, size in enumerate(sizes)})
    tables = []
    for node, family in enumerate(parents):
        table = rng.gamma(0.7, size=(*(sizes[each] for each in family), sizes[node])) + 1e-6
        if zeros:
            table[..., 0] = 0.0 if sizes[node] > 2 else table[..., 0]
        tables.append(table / table.sum(axis=-1, keepdims=True))
    return BayesianNetwork(domain, tuple(parents), tuple(tables))


def joint(network: BayesianNetwork) -> NDArray[np.float64]:
    """Return the probability of every record, one at a time."""
    sizes = network.domain.sizes
    table = np.ones(sizes)
    for record in itertools.product(*map(range, sizes)):
        for node, family in enumerate(network.parents):
            table[record] *= network.tables[node][tuple(record[each] for each in (*family, node))]
    return table


def bits(table: NDArray[np.float64]) -> float:
    """Return the entropy of a distribution."""
    positive = table[table > 0]
    return float(-(positive * np.log2(positive)).sum())
