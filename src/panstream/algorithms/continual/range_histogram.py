"""RangeHistogram: minimum, maximum and quantiles of all values so far, at every tick."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import Grid, Outside
from panstream.algorithms.continual.noise_sum_tails import Law
from panstream.algorithms.continual.tree_base import Arrays, GridTree, TreeState
from panstream.algorithms.continual.tree_shape import node_draws
from panstream.core.estimate import Estimate, format_number
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.kernels.algorithms.noisy_tree import count_cells

_MAX_NODES = 1 << 17
_EXTREME_LEVEL = 0.95  # of what is stated about a minimum or maximum
_ONE_SIGMA = 0.6827  # coverage of an interval of one standard deviation to either side


@dataclass(frozen=True, slots=True)
class _ExtremeBound:
    """Some value lies beyond ``edge``, and at most ``at_most_beyond`` values beyond ``next_edge``, one cell further."""

    edge: int
    next_edge: int
    at_most_beyond: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeHistogram(GridTree):
    """A quantile of all values so far at every tick, and any other one from the same released numbers.

    The range is divided into branching**depth cells. Every cell and every coarser node of the same tree over the range
    is a counter of the tree over time. A release makes the counts consistent (each node the sum of its children) by
    least squares and computes quantiles from the cumulative sums of the cells.

    Privacy:
        Unit: one value added or removed, anywhere in time (``contributions=K``: a user of at most K values). A value is
        in ``depth`` nodes of the range, so the noise is ``depth`` times that of a count; one copy at any time and all
        outputs lose exactly ``epsilon``; any number of announced copies with a refresh too.
        Proof: docs/proofs/continual-tree.md, Theorem 4.

    Error:
        With V the variance of a `ContinualCount` of the same epsilon, the number of values below a cell edge has
        variance depth²·V·f, f as below. Put s_1 = 1, 1/s_i = 1 + 1/(k·s_(i-1)), d_i the digits of the edge and a_i the
        part of the node on level i that lies below it, a_i = (d_i + a_(i-1))/k: f = s_D·(d_D + a_(D-1)²) +
        sum over i < D of s_i·(d_i(1 - d_i/k) + a_(i-1)²(1 - 1/k) - 2·a_(i-1)·d_i/k), with k = branching and D = depth.
        ``error_bound`` bounds the rank error at all edges at once, in values; the answer itself is then within that
        many values of the true quantile, and one cell.

    Args:
        lower: Lower end of the range of a value.
        upper: Upper end of the range of a value.
        quantile: Which one ``tick`` answers with. 0 and 1, minimum and maximum, are answered in
            ranks, since no private answer can find a single value: the outermost edge beyond
            which there is a value (``value``), and how many at most lie beyond the next one
            (``at_most_beyond``), both with 95% together. There is no standard error; the interval
            reaches to the end of the range.
        branching: Children of a node of the tree over the range; 16 with a depth of 2 make 256
            cells.
        depth: Depth of the tree over the range.
        outside: "clip" moves values into the range; "refuse" refuses the batch and names the
            row, and has no claim: one value would decide whether all others of its batch count.

    Examples:
        >>> monitor = RangeHistogram(epsilon=1.0, horizon=24, lower=0.0, upper=256.0).start()
        >>> monitor.update(list(range(200)) * 100)
        >>> abs(monitor.tick().value - 100) < 10
        True
        >>> median, highest = (monitor.algorithm.at(monitor.state, q) for q in (0.5, 1.0))
        >>> median.value < highest.value
        True

    Reference: Budaeva et al. 2013, §6.1 names minimum and maximum as open; consistency after Hay, Rastogi,
    Miklau, Suciu 2010.
    """

    theorem: ClassVar[str] = "Theorem 4"

    lower: float
    upper: float
    quantile: float = 0.5
    branching: int = 16
    depth: int = 2
    outside: Outside = "clip"

    def check(self) -> None:
        """Check quantile, cells and range."""
        checks.require_fraction(quantile=self.quantile)
        if not (self.branching >= 2 and self.depth >= 1 and self.width <= _MAX_NODES):
            raise InvalidParameter(
                f"branching must be at least 2, depth at least 1 and all nodes at most {_MAX_NODES}, "
                f"got branching={self.branching} and depth={self.depth}"
            )
        GridTree.check(self)

    @property
    def cells(self) -> int:
        """Return the number of finest cells."""
        return int(self.branching**self.depth)

    @property
    def grid(self) -> Grid:
        """Return the cells of the range."""
        return Grid.cells(self.lower, self.upper, self.cells, self.outside)

    @property
    def width(self) -> int:
        """Return the number of nodes over the range."""
        return sum(int(self.branching**level) for level in range(1, self.depth + 1))

    @property
    def sensitivity(self) -> int:
        """Return the number of nodes to which one value adds 1: one on every level."""
        return self.depth

    @property
    def norm_square(self) -> int:
        """Return the same: every node moves by 1."""
        return self.depth

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return _name(self.quantile)

    def spread(self, rows: NDArray[np.int64], leaves: NDArray[np.int64]) -> None:
        """Write a 1 for every node that contains the row's value."""
        leaves.fill(0)
        for row in range(rows.size):
            count_cells(rows[row : row + 1], self.branching, self.depth, leaves[row])

    def add_up(self, rows: NDArray[np.int64], total: NDArray[np.int64]) -> None:
        """Count all rows at once."""
        count_cells(rows, self.branching, self.depth, total)

    def decode(self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]) -> Arrays:
        """Return the quantile after every slot, with half the width of its 68% interval as error (NaN for extremes)."""
        readings = [self._read_off(below, self.quantile, v) for below, v in zip(sums, variances, strict=True)]
        return np.array([value for value, _ in readings]), np.array([error for _, error in readings])

    def _answer(self, state: TreeState, released: tuple[int, ...]) -> Estimate:
        return replace(self.at(state, self.quantile), released=released)

    def at(self, state: TreeState, quantile: float) -> Estimate:
        """Return any quantile after the last tick, from public numbers, without further loss.

        Args:
            state: The state.
            quantile: The quantile, between 0 and 1.
        """
        checks.require_fraction(quantile=quantile)
        return self.from_totals(self.engine.totals(state), quantile, self.engine.law(state.epoch))

    def expected_estimate(self, ticks: int, rows: float = 0.0) -> Estimate:
        """Return the answer after ``ticks`` slots if ``rows`` values were uniform in the range and all draws were 0."""
        return self.from_totals(self.expected_totals(ticks, rows), self.quantile, self.engine.law())

    def uniform_totals(self) -> NDArray[np.float64]:
        """Return the probability of every node if values are uniform in the range."""
        sizes = [[1 / self.branching**level] * self.branching**level for level in range(1, self.depth + 1)]
        return np.concatenate(sizes)

    def from_totals(self, total: NDArray[np.float64], quantile: float, law: Law) -> Estimate:
        """Return a quantile from the counts of all nodes, with their variance last.

        Args:
            total: The counts of all nodes, and their variance.
            quantile: The quantile, between 0 and 1.
            law: The noise of the newest draws.
        """
        value, error = self._read_off(total[:-1], quantile, total[-1])
        is_finite = math.isfinite(value)
        extreme = (
            self._extreme(total[:-1], quantile == 1.0, total[-1], _EXTREME_LEVEL)
            if quantile in (0.0, 1.0) and is_finite
            else None
        )

        def rule(level: float) -> tuple[float, float]:
            return self._interval(total[:-1], quantile, total[-1], level) if is_finite else (self.lower, self.upper)

        return Estimate(
            value=value,
            standard_error=error,
            claim=self.claim(),
            name=_name(quantile) if is_finite else f"{_name(quantile)} (no data)",
            support=(self.lower, self.upper),
            at_most_beyond=None if extreme is None else extreme.at_most_beyond,
            text="" if extreme is None else self._describe_extreme(extreme, quantile == 1.0, total[:-1]),
            interval_rule=rule,
        )

    def _describe_extreme(self, extreme: _ExtremeBound, highest: bool, nodes: NDArray[np.float64]) -> str:
        """Return a sentence about a minimum or maximum."""
        step = (self.upper - self.lower) / self.cells
        edge, next_edge = (self.lower + step * index for index in (extreme.edge, extreme.next_edge))
        words = f"{'at least' if highest else 'at most'} {_rounded(edge, up=not highest)}"
        if 0 < extreme.next_edge < self.cells:
            everyone = format_number(float(f"{self._below(nodes)[-1]:.2g}"))
            end = f"{'above' if highest else 'below'} {_rounded(next_edge, up=highest)}"
            words += f"; at most {extreme.at_most_beyond:,} of about {everyone} values lie {end}"
        return f"{words} (95%)"

    def counts(self, state: TreeState) -> NDArray[np.float64]:
        """Return the consistent counts of all cells after the last tick, from numbers that are public already.

        Args:
            state: The state.
        """
        return _consistent_cells(self.engine.totals(state)[:-1], self.branching, self.depth)

    def error_bound(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the rank error at all cell edges at once that is exceeded with probability at most ``beta``.

        It is a number of values: at most that many lie between an answer and the true quantile. No weight of a draw in
        the count below an edge exceeds 1, so Chernoff's bound holds with f times the draws of a node; ``beta`` is
        divided by the number of edges (union bound).

        Args:
            ticks: Number of slots; the horizon by default.
            beta: Probability of a larger error.
        """
        worst = float(_edge_variances(self.branching, self.depth)[0].max())
        return self.error_in_steps(beta / self.cells, ticks, worst)

    def _read_off(self, nodes: NDArray[np.float64], quantile: float, variance: float) -> tuple[float, float]:
        """Return the quantile and its error; NaN and inf if the count is below twice its standard error."""
        below = self._below(nodes)
        total = _edge_variances(self.branching, self.depth)[2]
        if below[-1] < max(0.5, 2.0 * math.sqrt(total * variance)):
            return math.nan, math.inf
        step = (self.upper - self.lower) / self.cells
        if quantile in (0.0, 1.0):
            return self.lower + step * self._extreme(nodes, quantile == 1.0, variance, _EXTREME_LEVEL).edge, math.nan
        excess = below - quantile * below[-1]
        first, last = _quantile_crossings(excess, np.zeros(excess.size))
        single = first == last + 1 and excess[first] > excess[last]
        position = last - excess[last] / (excess[first] - excess[last]) if single else (first + last) / 2.0
        low, high = self._interval(nodes, quantile, variance, _ONE_SIGMA)
        return float(self.lower + step * position), (high - low) / 2.0

    def _below(self, nodes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the count below every edge."""
        return np.concatenate([[0.0], np.cumsum(_consistent_cells(nodes, self.branching, self.depth))])

    def _extreme(self, nodes: NDArray[np.float64], highest: bool, variance: float, level: float) -> _ExtremeBound:
        """Return the outermost edge beyond which there is a value, and how many lie beyond the next one.

        Both hold unless some edge's count is off by more than its reach, which has a probability of at most
        1 - ``level`` by the union bound over all inner edges and both sides.
        """
        below = self._below(nodes)
        spread, weight, total = _edge_variances(self.branching, self.depth)
        beyond, noise = (below[-1] - below, spread - 2.0 * weight + total) if highest else (below, spread)
        z = NormalDist().inv_cdf(1.0 - (1.0 - level) / (2.0 * max(self.cells - 1, 1)))
        reach = z * np.sqrt(np.maximum(noise, 0.0) * variance)
        inner = np.arange(1, self.cells)
        seen = inner[(beyond - reach)[inner] > 0.5]  # counts are integers; without noise 0 is met only up to rounding
        end, outward = (0, 1) if highest else (self.cells, -1)
        edge = int(seen[-1 if highest else 0]) if seen.size else end
        next_edge = edge + outward
        max_beyond = math.floor(beyond[next_edge] + reach[next_edge] + 1e-6) if 0 < next_edge < self.cells else 0
        return _ExtremeBound(edge, next_edge, max(max_beyond, 0))

    def _interval(
        self, nodes: NDArray[np.float64], quantile: float, variance: float, level: float
    ) -> tuple[float, float]:
        """Return the outermost edges at which the count may cross the quantile, given its noise.

        Nothing bounds how far the true minimum lies below the counts that exceed the noise, nor the maximum above.
        """
        below = self._below(nodes)
        step = (self.upper - self.lower) / self.cells
        if quantile in (0.0, 1.0):
            edge = self.lower + step * self._extreme(nodes, quantile == 1.0, variance, level).edge
            return (self.lower, edge) if quantile == 0.0 else (edge, self.upper)
        spread, weight, total = _edge_variances(self.branching, self.depth)
        noise = np.maximum(spread - 2.0 * quantile * weight + quantile**2 * total, 0.0)
        reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * np.sqrt(noise * variance)
        first, last = _quantile_crossings(below - quantile * below[-1], reach)
        return self.lower + step * max(first - 1, 0), self.lower + step * min(last + 1, self.cells)


def _quantile_crossings(excess: NDArray[np.float64], reach: NDArray[np.float64]) -> tuple[int, int]:
    """Return the first edge that may have reached the quantile and the last that may not have passed it."""
    return int(np.argmax(excess >= -reach)), int(excess.size - 1 - np.argmax(excess[::-1] <= reach[::-1]))


def _rounded(number: float, *, up: bool) -> str:
    """Return a number with four digits, rounded up or down so that a bound stays a bound."""
    unit = 1.0 if abs(number) >= 1000 else 10.0 ** (math.floor(math.log10(abs(number))) - 3) if number else 1.0
    steps = number / unit
    near = round(steps)
    integer_steps = near if math.isclose(steps, near, rel_tol=1e-12) else math.ceil(steps) if up else math.floor(steps)
    return format_number(integer_steps * unit)


def _name(quantile: float) -> str:
    return {0.0: "minimum", 0.5: "median", 1.0: "maximum"}.get(quantile, f"quantile {quantile:g}")


def _consistent_cells(nodes: NDArray[np.float64], branching: int, depth: int) -> NDArray[np.float64]:
    """Return the least-squares counts of the cells, for equally noisy nodes with the coarsest first.

    Up the tree, a node's own count is averaged with its children's sum; down again, the difference between a parent and
    the sum of its children is divided equally among them (Hay, Rastogi, Miklau, Suciu 2010, Theorem 3).
    """
    levels = []
    first = 0
    for level in range(1, depth + 1):
        levels.append(nodes[first : first + branching**level])
        first += branching**level
    up = [levels[-1]]
    draws = 1.0
    for level_counts in reversed(levels[:-1]):
        below = up[0].reshape(-1, branching).sum(axis=1)
        trust = branching * draws / (branching * draws + 1.0)
        up.insert(0, below + trust * (level_counts - below))
        draws = trust
    consistent = up[0]
    for finer in up[1:]:
        children = finer.reshape(-1, branching)
        children = children + ((consistent - children.sum(axis=1)) / branching)[:, np.newaxis]
        consistent = children.reshape(-1)
    return consistent


@lru_cache(maxsize=64)
def _edge_variances(branching: int, depth: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return for every cell edge the variance of the count below it, its covariance with the total, and the total's.

    In units of one node's variance; the formula is in the docstring of RangeHistogram.
    """
    k = float(branching)
    draws = node_draws((branching,) * depth)
    edges = np.arange(branching**depth + 1)
    part = np.zeros(edges.size)
    spread = np.zeros(edges.size)
    remaining = edges
    for level in range(depth - 1):
        digit = remaining % branching
        remaining = remaining // branching
        spread += draws[level] * (digit * (1.0 - digit / k) + part**2 * (1.0 - 1.0 / k) - 2.0 * part * digit / k)
        part = (digit + part) / k
    spread += draws[-1] * (remaining + part**2)
    covariance = draws[-1] * (remaining + part)
    for array in (spread, covariance):
        array.flags.writeable = False
    return spread, covariance, draws[-1] * k
