"""Junction trees: exact marginals of a log-linear model whose cliques have few cells.

The graph of the attributes is made chordal by greedy elimination; the maximal cliques form a tree in which
neighbours share a separator. Two passes of messages give the marginal of every clique; from these follow the marginals
of all pairs of attributes and conditional tables of an equivalent Bayesian network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks.domain import Domain
from panstream.models.networks.network import BayesianNetwork

Table: TypeAlias = NDArray[np.float64]
Attributes: TypeAlias = tuple[int, ...]

_TINY = 1e-300


def adjacency(attributes: int, edges: Iterable[Sequence[int]]) -> NDArray[np.bool_]:
    """Return the symmetric matrix of a graph; loops and groups of one attribute add nothing."""
    graph = np.zeros((attributes, attributes), np.bool_)
    for edge in edges:
        for one in edge:
            for other in edge:
                graph[one, other] = one != other
    return graph


def summed_to(table: Table, axes: Attributes, remaining: Iterable[int]) -> Table:
    """Return the sum of a table over the axes of all attributes that do not remain."""
    keep = set(remaining)
    return np.asarray(table.sum(axis=tuple(axis for axis, attribute in enumerate(axes) if attribute not in keep)))


def aligned(table: Table, axes: Iterable[int], target: Attributes) -> Table:
    """Return a view of a table, whose axes are in the order of the target's, that broadcasts over the target's."""
    own = set(axes)
    return table[tuple(slice(None) if attribute in own else None for attribute in target)]


class _Message(NamedTuple):
    """P(attribute, separator) on its way from the attribute's clique to others; axes: the attribute, then the rest."""

    clique: int
    source: int
    rest: Attributes  # the separator without the attribute itself
    is_inside: bool  # whether the separator contains the attribute
    table: Table


class JunctionTree:
    """Maximal cliques, each after its parent, and the separators between them.

    Args:
        sizes: Number of categories of each attribute.
        edges: Groups of attributes that must lie in one clique.
    """

    def __init__(self, sizes: Sequence[int], edges: Iterable[Sequence[int]]) -> None:
        from panstream.primitives.kernels.models.elimination import eliminate

        self.sizes = tuple(sizes)
        members = np.zeros((len(sizes), len(sizes)), np.bool_)
        eliminate(adjacency(len(sizes), edges), np.log(np.array(sizes, np.float64)), members)
        sets = [frozenset(np.flatnonzero(row).tolist()) for row in members]
        maximal = [one for index, one in enumerate(sets) if not any(one < other for other in sets[:index])]
        self.parents: list[int | None] = [None]
        cliques = [maximal.pop(0)]
        while maximal:  # the spanning tree of the largest separators, which makes it a junction tree
            _, position, parent = max(
                (len(clique & above), -position, -parent)
                for position, clique in enumerate(maximal)
                for parent, above in enumerate(cliques)
            )
            cliques.append(maximal.pop(-position))
            self.parents.append(-parent)
        self.cliques: list[Attributes] = [tuple(sorted(clique)) for clique in cliques]
        self.separators: list[Attributes] = [
            () if parent is None else tuple(sorted(clique & cliques[parent]))
            for clique, parent in zip(cliques, self.parents, strict=True)
        ]

    def shape(self, attributes: Iterable[int]) -> tuple[int, ...]:
        """Return the sizes of some attributes."""
        return tuple(self.sizes[attribute] for attribute in attributes)

    def home(self, attributes: Iterable[int]) -> int:
        """Return the smallest clique that contains the attributes."""
        wanted = set(attributes)
        homes = [index for index, clique in enumerate(self.cliques) if wanted.issubset(clique)]
        return min(homes, key=lambda index: math.prod(self.shape(self.cliques[index])))

    def calibrate(self, logs: Sequence[Table]) -> tuple[list[Table], float]:
        """Return the marginal of every clique and the log of the sum, for log factors with a table per clique.

        Raises FloatingPointError if all cells underflow.
        """
        beliefs = [np.exp(table - table.max()) for table in logs]
        log_sum = float(sum(table.max() for table in logs))
        upward: list[Table] = [np.ones(())] * len(beliefs)
        for clique in range(len(beliefs) - 1, -1, -1):
            belief = beliefs[clique]
            total = float(belief.sum())
            if not (total > 0 and math.isfinite(total)):
                raise FloatingPointError("all cells of a clique underflow")
            belief /= total
            log_sum += math.log(total)
            parent = self.parents[clique]
            if parent is not None:
                separator = self.separators[clique]
                upward[clique] = summed_to(belief, self.cliques[clique], separator)
                beliefs[parent] *= aligned(upward[clique], separator, self.cliques[parent])
        for clique in range(1, len(beliefs)):
            parent = self.parents[clique]
            assert parent is not None
            separator = self.separators[clique]
            wanted = summed_to(beliefs[parent], self.cliques[parent], separator)
            ratio = wanted / np.maximum(upward[clique], _TINY)
            beliefs[clique] *= aligned(ratio, separator, self.cliques[clique])
        return beliefs, log_sum

    def pair_marginals(self, beliefs: Sequence[Table]) -> dict[tuple[int, int], Table]:
        """Return the marginals of all pairs i < j, also of those that share no clique."""
        result: dict[tuple[int, int], Table] = {}
        walk = _Walk(self, beliefs)
        for attribute in range(len(self.sizes)):
            for other, table in walk.pairs(attribute):
                if attribute < other:
                    result[attribute, other] = table
        return result

    def network(self, domain: Domain, beliefs: Sequence[Table]) -> BayesianNetwork:
        """Return the Bayesian network with the same distribution: in a clique each attribute follows the earlier."""
        parents: list[Attributes] = [()] * len(self.sizes)
        tables: list[Table] = [np.ones(())] * len(self.sizes)
        for clique, separator, belief in zip(self.cliques, self.separators, beliefs, strict=True):
            above = list(separator)
            for child in (attribute for attribute in clique if attribute not in separator):
                parents[child] = tuple(sorted(above))
                joint = summed_to(belief, clique, (*above, child))
                family = tuple(sorted((*above, child)))
                rows = np.moveaxis(joint, family.index(child), -1) + _TINY
                tables[child] = rows / rows.sum(axis=-1, keepdims=True)
                above.append(child)
        return BayesianNetwork(domain, tuple(parents), tuple(tables))


class _Walk:
    """Marginals of one attribute with all others, by messages from its clique outwards along the tree."""

    def __init__(self, tree: JunctionTree, beliefs: Sequence[Table]) -> None:
        self.tree = tree
        self.beliefs = beliefs
        self.neighbours: list[list[tuple[int, Attributes]]] = [[] for _ in tree.cliques]
        for clique, (parent, separator) in enumerate(zip(tree.parents, tree.separators, strict=True)):
            if parent is not None:
                self.neighbours[clique].append((parent, separator))
                self.neighbours[parent].append((clique, separator))
        self.marginals: dict[tuple[int, Attributes], Table] = {}

    def marginal(self, clique: int, attributes: Iterable[int]) -> Table:
        """Return the marginal of some attributes of a clique, axes in ascending order."""
        key = clique, tuple(sorted(set(attributes)))
        if key not in self.marginals:
            self.marginals[key] = summed_to(self.beliefs[clique], self.tree.cliques[clique], key[1])
        return self.marginals[key]

    def carried(
        self, message: _Message, clique: int, wanted: Attributes, remaining: Sequence[int], attribute: int
    ) -> Table:
        """Return P(attribute, remaining), from P(attribute, rest) times the clique's P(wanted | rest)."""
        given = tuple(sorted((*message.rest, attribute))) if message.is_inside else message.rest
        axes = tuple(sorted({*given, *wanted}))
        conditional = self.marginal(clique, axes) / np.maximum(
            aligned(self.marginal(clique, given), given, axes), _TINY
        )
        names = {member: chr(ord("A") + index) for index, member in enumerate((*{attribute, *message.rest, *axes},))}
        left, middle, right = (
            "".join(names[member] for member in members)
            for members in ((attribute, *message.rest), axes, (attribute, *remaining))
        )
        return np.asarray(np.einsum(f"{left},{middle}->{right}", message.table, conditional, optimize=True))

    def pairs(self, attribute: int) -> Iterator[tuple[int, Table]]:
        """Yield each other attribute with its joint table; the attribute's axis is the first."""
        home = self.tree.home((attribute,))
        for other in self.tree.cliques[home]:
            if other != attribute:
                table = self.marginal(home, (attribute, other))
                yield other, table if attribute < other else table.T
        waiting = [self._first(home, clique, separator, attribute) for clique, separator in self.neighbours[home]]
        while waiting:
            message = waiting.pop()
            inside = {*message.rest, attribute} if message.is_inside else set(message.rest)
            for other in self.tree.cliques[message.clique]:
                if other not in inside:
                    yield other, self.carried(message, message.clique, (other,), (other,), attribute)
            for clique, separator in self.neighbours[message.clique]:
                if clique != message.source:
                    rest = tuple(member for member in separator if member != attribute)
                    table = self.carried(message, message.clique, separator, rest, attribute)
                    waiting.append(_Message(clique, message.clique, rest, attribute in separator, table))

    def _first(self, home: int, clique: int, separator: Attributes, attribute: int) -> _Message:
        rest = tuple(member for member in separator if member != attribute)
        axes = tuple(sorted((*rest, attribute)))
        table = np.moveaxis(self.marginal(home, axes), axes.index(attribute), 0)
        return _Message(clique, home, rest, attribute in separator, table)
