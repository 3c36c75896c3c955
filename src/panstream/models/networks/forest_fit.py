"""Fit a forest network to noisy tables of one and two attributes, by mirror descent with belief propagation.

On a forest every set of locally consistent marginals belongs to a distribution, so all noisy tables are fitted
together: a one-way table improves the margins of all edges at its attribute. Only noisy tables are read, never records,
so this is post-processing and works on sums over several holders as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks.domain import Domain
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.noisy_tables import NoisyTable, posterior_mean_counts, smooth
from panstream.primitives import validation as checks

_TINY = 1e-12
MOSTLY_NOISE = 0.25
"""Mean total variation distance by which noise moves one-way tables, above which a model is called mostly noise."""
# The same distance, above which a posterior mean is nearer than a projection (equally near at 1 on Adult).
_NOISE_DOMINATED_TV = 1.0
_LARGE_NOISE = 0.2  # noise standard deviation over the average cell, above which the tails of Laplace noise matter


class _Measurement(NamedTuple):
    """Noisy probabilities, the noise's standard deviation, and the gap at which its log-likelihood becomes linear."""

    values: Table
    sd: float
    bend: float
    freedom: int
    maps: tuple[Table, Table] | None = None

    def misfit(self, fitted: Table, scale: float) -> tuple[float, Table]:
        """Return the negative log-likelihood of ``fitted`` and its gradient, both times ``scale``."""
        if math.isinf(self.sd):
            return 0.0, np.zeros_like(fitted)
        if self.maps is None:
            return self._misfit(fitted, scale)
        rows, columns = self.maps
        value, slope = self._misfit(rows @ fitted @ columns.T, scale)
        return value, rows.T @ slope @ columns

    def _misfit(self, fitted: Table, scale: float) -> tuple[float, Table]:
        gap = fitted - self.values
        weight = scale / self.sd**2
        if math.isinf(self.bend):
            return 0.5 * weight * float((gap * gap).sum()), weight * gap
        root = np.sqrt(1.0 + (gap / self.bend) ** 2)
        weight = scale / self.bend**2
        return weight * self.bend**2 * float((root - 1.0).sum()), weight * gap / root


_Merged: TypeAlias = dict[tuple[int, ...], _Measurement]


def fit_forest(
    domain: Domain,
    records: int,
    tables: Sequence[NoisyTable],
    *,
    shrinkage: float = 1.0,
    smoothing: float = 0.02,
    iterations: int = 250,
) -> BayesianNetwork:
    """Return the network whose edges are the two-way tables and whose marginals are closest to all tables.

    Minimises Σ ‖n·μ - counts‖²/(2·sigma²) + shrinkage·Σ (r-1)(c-1)·I(edge), the second sum over edges with r times c
    cells (groups, where the table has views) and I in nats: an edge whose dependence is below the noise shrinks to
    independence. For strong Laplace noise of scale b the square is replaced by sqrt(x² + b²)/b - 1, nearly that noise's
    log-likelihood. Each conditional row is then mixed with ``smoothing`` noise standard deviations' worth of the
    child's own distribution, so no probability is 0.

    Tables are first smoothed along declared bins (`panstream.models.networks.noisy_tables`). ``records`` is the public
    number of records. Tables of the same attributes are averaged with weights 1/sigma². Without edges, and where noise
    alone moves tables by a total variation distance above 1, they are replaced by their posterior means, which are
    nearer to the truth than the projections: of fifty rows of Adult at epsilon 1, .66 instead of .74 (uniform: .68).

    Args:
        domain: The attributes.
        records: Number of records, which is public.
        tables: Noisy tables of single attributes and of pairs; the pairs are the edges.
        shrinkage: Weight of the penalty for dependence.
        smoothing: How many standard deviations of noise are mixed into each conditional row.
        iterations: Number of steps of the minimisation.
    """
    checks.require_at_least(1, records=records)
    merged = _merged(domain, records, tables)
    edges = tuple(key for key in merged if len(key) == 2)
    forest = forest_from_edges(domain.sizes, [(one, other) for one, other in edges])
    if not edges and merged and _mean_noise_shift(merged) > _NOISE_DOMINATED_TV:
        margins = {
            attribute: posterior_mean_counts(measured.values, measured.sd) for (attribute,), measured in merged.items()
        }
        nodes = [margins.get(attribute, np.full(size, 1.0 / size)) for attribute, size in enumerate(domain.sizes)]
        return _network(domain, forest, merged, nodes, [], smoothing)
    nodes, pairs = _descend(forest, merged, shrinkage, iterations)
    return _network(domain, forest, merged, nodes, pairs, smoothing)


def _mean_noise_shift(merged: _Merged) -> float:
    """Return the mean total variation distance by which noise moves the tables."""
    shifts = [measured.values.size * measured.sd / math.sqrt(2 * math.pi) for measured in merged.values()]
    return math.fsum(shifts) / len(shifts)


def _merged(domain: Domain, records: int, tables: Sequence[NoisyTable]) -> _Merged:
    """Return the measurements by sorted attributes, those of the same attributes averaged."""
    merged: _Merged = {}
    for table in tables:
        key = tuple(sorted(table.attributes))
        if len(key) not in (1, 2) or len(set(key)) != len(key):
            raise InvalidParameter(f"a table must be of one or two attributes, got {table.attributes}")
        values = np.asarray(table.counts, np.float64) / records
        values = values if key == table.attributes else values.T
        counts = tuple(domain.sizes[attribute] for attribute in key)
        shape = tuple(domain.sizes[attribute] for attribute in key)
        maps = None
        if table.views is not None:
            views = table.views if key == table.attributes else table.views[::-1]
            counts = tuple(view.count for view in views)
            shape = tuple(view.cells for view in views)
            maps = (views[0].matrix.astype(np.float64), views[1].matrix.astype(np.float64))
        if values.shape != shape:
            raise InvalidParameter(f"the table of attributes {table.attributes} does not have the domain's shape")
        sd = max(table.sigma, 0.5) / records  # exact counts are no better than to half a record
        # If the noise is small compared with an average cell, the square fits as well and is minimised faster.
        bend = sd / math.sqrt(2.0) if table.laplace and sd * values.size > _LARGE_NOISE else math.inf
        if key in merged:
            other, spread, bent, _, seen = merged[key]
            if maps is not None or seen is not None:
                raise InvalidParameter("a view of a table cannot be averaged with another table of the same attributes")
            weight = spread**2 / (spread**2 + sd**2)
            values = weight * values + (1 - weight) * other
            sd = sd * spread / math.hypot(sd, spread)
            bend = sd / math.sqrt(2.0) if math.isfinite(min(bend, bent)) else math.inf
        merged[key] = _Measurement(values, sd, bend, math.prod(count - 1 for count in counts), maps)
    for key, (values, sd, bend, freedom, maps) in merged.items():
        curves, remaining_sd = smooth(domain, key, values, sd)
        merged[key] = _Measurement(curves, remaining_sd, bend * remaining_sd / sd, freedom, maps)
    return merged


def _descend(forest: Forest, merged: _Merged, shrinkage: float, iterations: int) -> tuple[list[Table], list[Table]]:
    """Run mirror descent on log potentials with a step that grows while the objective falls."""
    blank = [_Measurement(np.full(size, 1.0 / size), math.inf, math.inf, 0) for size in forest.sizes]
    ones = [merged.get((attribute,), blank[attribute]) for attribute in range(len(forest.sizes))]
    twos = [merged[edge] for edge in forest.edges]
    finest = min([measured.sd for measured in (*ones, *twos)], default=1.0)
    scale = finest**2 if math.isfinite(finest) else 1.0
    prices = [shrinkage * scale * measured.freedom for measured in twos]

    def evaluate(nodes: list[Table], pairs: list[Table]) -> tuple[float, list[Table], list[Table]]:
        total = 0.0
        slopes = []
        steeps = []
        for got, want in zip(nodes, ones, strict=True):
            value, slope = want.misfit(got, scale)
            total += value
            slopes.append(slope)
        for edge, got, want, price in zip(forest.edges, pairs, twos, prices, strict=True):
            value, slope = want.misfit(got, scale)
            tie = np.log(np.maximum(got, _TINY) / np.maximum(np.outer(nodes[edge[0]], nodes[edge[1]]), _TINY))
            total += value + price * float((got * tie).sum())
            steeps.append(slope + price * tie)
        return total, slopes, steeps

    singles = [_start(measured.values, measured.sd) for measured in ones]
    doubles = [np.zeros([forest.sizes[attribute] for attribute in edge]) for edge in forest.edges]
    nodes, pairs = forest.marginals(singles, doubles)
    best, slopes, steeps = evaluate(nodes, pairs)
    steepest = max(float(np.abs(slope).max()) for slope in (*slopes, *steeps))
    # The first step moves no log potential by more than 1
    step = 1.0 / max(steepest, 1e-12)
    calm = 0
    for _ in range(iterations):
        while step > 1e-12:
            next_singles = [potential - step * slope for potential, slope in zip(singles, slopes, strict=True)]
            next_doubles = [potential - step * steep for potential, steep in zip(doubles, steeps, strict=True)]
            nodes, pairs = forest.marginals(next_singles, next_doubles)
            value, next_slopes, next_steeps = evaluate(nodes, pairs)
            if value <= best:
                break
            step /= 2.0
        else:
            break
        calm = calm + 1 if best - value < 1e-6 * best else 0
        singles = next_singles
        doubles = next_doubles
        slopes = next_slopes
        steeps = next_steeps
        best = value
        if calm >= 5:
            break
        step *= 1.5
    return forest.marginals(singles, doubles)


def _start(probabilities: Table, sd: float) -> Table:
    """Return the log of the posterior mean of a table, as initial potentials; 0 where nothing was measured."""
    if math.isinf(sd):
        return np.zeros_like(probabilities)
    return np.log(np.maximum(posterior_mean_counts(probabilities, sd), _TINY))


def _network(
    domain: Domain, forest: Forest, merged: _Merged, nodes: list[Table], pairs: list[Table], smoothing: float
) -> BayesianNetwork:
    margins = [(node + _TINY) / (node + _TINY).sum() for node in nodes]
    parents: list[tuple[int, ...]] = []
    tables: list[Table] = []
    for attribute, above in enumerate(forest.parents):
        if above is None:
            parents.append(())
            tables.append(margins[attribute])
            continue
        parent, edge = above
        joint = pairs[edge] if forest.edges[edge][0] == parent else pairs[edge].T
        weights = (
            joint + (smoothing * merged[forest.edges[edge]].sd * domain.sizes[attribute] + _TINY) * margins[attribute]
        )
        parents.append((parent,))
        tables.append(weights / weights.sum(axis=1, keepdims=True))
    return BayesianNetwork(domain, tuple(parents), tuple(tables))


Table = NDArray[np.float64]
_LOWEST = -300.0  # log potentials: two factors of exp(-300) still multiply to a normal double


@dataclass(frozen=True, slots=True)
class Forest:
    """Edges between attributes, without a cycle; built by `forest_from_edges`.

    ``order`` lists the attributes so that parents come first; ``parents[v]`` is (parent, edge) or ``None`` for a root.
    """

    sizes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    parents: tuple[tuple[int, int] | None, ...]

    def marginals(self, nodes: Sequence[Table], pairs: Sequence[Table]) -> tuple[list[Table], list[Table]]:
        """Return the marginals of all attributes and edges for their log potentials, by two-pass belief propagation."""
        kernels = [np.exp(np.maximum(potential - potential.max(), _LOWEST)) for potential in pairs]
        inward = [np.maximum(potential - potential.max(), _LOWEST) for potential in nodes]
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
        node_marginals: list[Table] = [np.zeros(0)] * len(nodes)
        joints: list[Table] = [np.zeros(0)] * len(pairs)
        outward: list[Table] = [np.zeros(0)] * len(nodes)  # log belief, up to a constant
        for child in self.order:
            above = self.parents[child]
            if above is None:
                outward[child] = inward[child]
                node_marginals[child] = _normalised(np.exp(inward[child] - inward[child].max()))
                continue
            parent, edge = above
            without = outward[parent] - messages[child]
            without = np.exp(without - without.max())
            kernel = self._facing(kernels[edge], edge, parent)
            joint = _normalised(without[:, None] * kernel * np.exp(inward[child])[None, :])
            joints[edge] = joint if self.edges[edge][0] == parent else joint.T
            node_marginals[child] = joint.sum(axis=0)
            outward[child] = inward[child] + np.log(without @ kernel)
        return node_marginals, joints

    def _facing(self, kernel: Table, edge: int, parent: int) -> Table:
        return kernel if self.edges[edge][0] == parent else kernel.T


def forest_from_edges(sizes: Sequence[int], edges: Sequence[tuple[int, int]]) -> Forest:
    """Return the forest of these edges, trees rooted at their smallest position; raise InvalidParameter on a cycle."""
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
            attribute = waiting.pop(0)
            order.append(attribute)
            for other, number in neighbours[attribute]:
                if other not in seen:
                    seen.add(other)
                    parents[other] = (attribute, number)
                    waiting.append(other)
    if sum(above is not None for above in parents) != len(edges):
        raise InvalidParameter("the edges must not form a cycle")
    return Forest(tuple(sizes), tuple(edges), tuple(order), tuple(parents))


def _normalised(table: Table) -> Table:
    return np.asarray(table / table.sum())
