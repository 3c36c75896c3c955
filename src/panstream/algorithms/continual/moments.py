"""ContinualMean and ContinualVariance on the default tree.

An event adds its Bernstein parts: with x in [0, 1] its relative position in the range, (1-x, x) or ((1-x)², 2x(1-x),
x²). These are not negative and add up to 1, so an event changes the whole vector by 1 in L1 norm and every part gets
all of epsilon (docs/proofs/continual-tree.md, Theorem 4), where separate counts, sums and sums of squares get a third
each.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import MAX_STEPS, Bounds, Grid, Outside
from panstream.algorithms.continual.noise_sum_tails import Law, half_width
from panstream.algorithms.continual.tree_base import Arrays, GridTree, TreeState
from panstream.core.estimate import Estimate, symmetric_interval
from panstream.errors import InvalidParameter, NotSupported
from panstream.privacy.claim import Adjacency
from panstream.privacy.continual_loss import moment_norm_square, moment_sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments(GridTree):
    """Base of mean and variance: an event adds polynomials of degree ``degree`` of its value to a leaf, as integers.

    These are Bernstein parts if events are added or removed. If values are replaced, the number of events is public,
    and centred powers (i, or steps·y and y² with y = 2i - steps) have a smaller sensitivity (Theorem 5).
    """

    degree: ClassVar[int]
    max_steps: ClassVar[int] = MAX_STEPS  # of the range; powers up to ``degree`` of it must fit into 64 bits
    default_steps: ClassVar[int]  # of the range without a resolution

    lower: float
    upper: float
    resolution: float | None = None
    outside: Outside = "clip"
    adjacency: Adjacency = "add-remove"

    def check(self) -> None:
        """Check range, resolution and adjacency."""
        if self.adjacency not in get_args(Adjacency):
            raise InvalidParameter(f"adjacency must be add-remove or replace, got adjacency={self.adjacency!r}")
        if self.steps > self.max_steps:
            raise InvalidParameter(f"resolution must leave at most 2**20 steps, got {self.steps}")
        if self.delta and self.resolution is None:  # stored with the state
            steps = self.gaussian_steps(self.default_steps, self.degree)
            object.__setattr__(self, "resolution", (self.upper - self.lower) / steps)

    @property
    def grid(self) -> Grid:
        """Return the grid over the range."""
        return Grid.spanning(self.lower, self.upper, self.resolution, self.default_steps, self.outside)

    @property
    def steps(self) -> int:
        """Return the number of steps of the range."""
        return self.grid.high

    @property
    def replaces(self) -> bool:
        """Return whether neighbouring streams differ in an event's value, with a public number of events."""
        return self.adjacency == "replace"

    @property
    def width(self) -> int:
        """Return the number of parts."""
        return self.degree if self.replaces else self.degree + 1

    @property
    def sensitivity(self) -> int:
        """Return by how much one event changes the parts at most, in L1 norm."""
        return moment_sensitivity(self.steps, self.degree, replaces=self.replaces)

    @property
    def norm_square(self) -> int:
        """Return the square of the L2 norm of the same."""
        return moment_norm_square(self.steps, self.degree, replaces=self.replaces)

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """Return the smallest and largest possible answer."""

    def spread(self, rows: NDArray[np.int64], leaves: NDArray[np.int64]) -> None:
        """Write the parts of every row, in place: temporary arrays would hold single rows and not be wiped."""
        first = leaves[:, 0]
        last = leaves[:, -1]
        steps = self.steps
        if self.replaces and self.degree == 1:
            first[:] = rows
        elif self.replaces:
            np.multiply(rows, 2, out=first)
            first -= steps
            np.multiply(first, first, out=last)
            first *= steps
        else:
            np.subtract(steps, rows, out=first)
            if self.degree == 2:
                np.multiply(first, rows, out=leaves[:, 1])
                leaves[:, 1] *= 2
                first *= first
            np.power(rows, self.degree, out=last)

    def uniform_totals(self) -> NDArray[np.float64]:
        """Return the mean parts of a row if values are uniform in the range."""
        size = float(self.steps) ** self.degree
        if self.replaces:
            return np.array([size / 2] if self.degree == 1 else [0.0, size / 3])
        return np.full(self.width, size / self.width)

    def count(
        self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the number of events, or NaN if it is too small for an answer.

        It is large enough from ``degree`` events on, if the noisy count is at least twice its standard error.
        """
        if self.replaces:
            count = events.astype(np.float64)
            error = np.zeros(len(events))
        else:
            unit = float(self.sensitivity)
            count = sums.sum(axis=1) / unit
            error = np.sqrt(self.width * variances) / unit
        return np.where((count > self.degree - 0.5) & (count >= 2.0 * error), count, np.nan)

    def at(self, state: TreeState, what: str) -> Estimate:
        """Return "count", "sum" or "mean" after the last tick from public numbers, without further loss.

        A variance also has "var_pop" and "var_samp".
        """
        self.require_tick(state.ticks)
        return self.from_totals(self.engine.totals(state), what, self.engine.law(state.epoch))

    def from_totals(self, total: NDArray[np.float64], what: str, law: Law) -> Estimate:
        """Return the same from the sums of all parts, their variance last; ``law`` is that of the newest draws.

        Args:
            total: The sums of all parts, and their variance.
            what: The answer to compute, such as "mean", "sum" or "count".
            law: The noise of the newest draws.
        """
        if self.replaces:
            raise NotSupported('other moments than its own need adjacency="add-remove"')
        if what == "mean":
            value, error = self.mean_of(total[np.newaxis, :-1], total[-1:])
            return self._estimate_for("mean", (self.lower, self.upper), float(value[0]), float(error[0]), ())
        weights = {"count": np.ones(self.width), "sum": self.part_values}.get(what)
        if weights is None:
            raise NotSupported(f"{type(self).__name__} has no {what}")
        return self._linear(total, what, weights, law)

    def _linear(self, total: NDArray[np.float64], what: str, weights: NDArray[np.float64], law: Law) -> Estimate:
        """Return a linear combination of the parts, whose noise has a known distribution."""
        unit = float(self.sensitivity)
        largest = float(np.abs(weights).max())
        variance = float(total[-1])
        value = float(weights @ total[:-1]) / unit
        draws = variance / law.variance * float(((weights / largest) ** 2).sum()) if law.variance else 0.0
        return Estimate.clipped(
            value,
            (0.0 if weights.min() >= 0.0 else -math.inf, 0.0 if weights.max() <= 0.0 else math.inf),
            standard_error=math.sqrt(variance * float((weights**2).sum())) / unit,
            claim=self.claim(),
            name=what,
            interval_rule=symmetric_interval(value, lambda level: half_width(level, ((draws, law),)) * largest / unit),
        )

    @property
    def part_values(self) -> NDArray[np.float64]:
        """Return what a unit of every part adds to the sum of values: a linear function's Bernstein coefficients."""
        return np.linspace(self.lower, self.upper, self.width)

    def mean_of(self, sums: NDArray[np.float64], variances: NDArray[np.float64]) -> Arrays:
        """Return the ratio of sum and count with its error by the delta method, for added or removed events."""
        size = self.count(sums, variances, np.zeros(len(sums), np.int64))[:, np.newaxis] * float(self.sensitivity)
        value = (sums / size) @ self.part_values
        spread = np.sqrt(((self.part_values - value[:, np.newaxis]) ** 2).sum(axis=1))
        error = spread * np.sqrt(variances) / size[:, 0]
        return value, np.where(np.isnan(size[:, 0]), np.inf, error)

    def bounds(self, slots: NDArray[np.int64]) -> Bounds:
        """Return the smallest and largest possible answer."""
        return self.support

    def describe(self, value: float, error: float, law: Law, released: tuple[int, ...], slots: int) -> Estimate:
        """Return the estimate; without data its value is NaN, its error infinite, its interval all of ``support``."""
        return self._estimate_for(self.label, self.support, value, error, released)

    def _estimate_for(
        self, label: str, support: tuple[float, float], value: float, error: float, released: tuple[int, ...]
    ) -> Estimate:
        empty = math.isnan(value)
        inside = min(max(value, support[0]), support[1])

        def rule(level: float) -> tuple[float, float]:
            half = NormalDist().inv_cdf((1 + level) / 2) * error
            return support if empty else (inside - half, inside + half)

        return Estimate.clipped(
            value,
            support,
            standard_error=error,
            claim=self.claim(),
            name=f"{label} (no data)" if empty else label,
            released=released,
            interval_rule=rule,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualMean(_Moments):
    """The mean of all values so far, at every tick.

    Privacy:
        Unit: one value, anywhere in time (``contributions=K``: a user of at most K values). ``adjacency="add-remove"``
        hides whether it was there, ``"replace"`` what it was, with the number of events in every slot public. One copy
        at any time and all outputs lose exactly ``epsilon``; any number of announced copies with a refresh too.
        Proof: docs/proofs/continual-tree.md, Theorem 4.

    Error:
        With V the variance of a `ContinualCount` of the same epsilon, n values and x in [0, 1] the mean's relative
        position in the range: variance V·(upper-lower)²·(x² + (1-x)²)/n², or V·(upper-lower)²/n² with ``"replace"``.
        Rounding adds at most half a step.

    Args:
        lower: Lower end of the range of a value.
        upper: Upper end of the range of a value.
        resolution: Length of a step, a 2**20th of the range by default. Sums are exact below
            2**53 steps. With a ``delta``, steps are at least a 2**20th of the noise.
        adjacency: "add-remove" or "replace".

    Until the noisy count is twice its standard error the answer is called "mean (no data)" and is NaN.

    Examples:
        >>> monitor = ContinualMean(epsilon=1.0, horizon=100, lower=0.0, upper=10.0).start()
        >>> monitor.update([2.0, 4.0] * 5000)
        >>> abs(monitor.tick().value - 3.0) < 0.3
        True

    Reference: Budaeva et al. 2013, §4.2, Algorithm 3, corrected.
    """

    theorem: ClassVar[str] = "Theorem 4"

    label: ClassVar[str] = "mean"
    degree: ClassVar[int] = 1
    default_steps: ClassVar[int] = 1 << 20

    @property
    def support(self) -> tuple[float, float]:
        """Return the range."""
        return self.lower, self.upper

    def decode(self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]) -> Arrays:
        """Return the ratio of the sums with its error by the delta method."""
        count = self.count(sums, variances, events)
        steps = count * self.steps
        span = self.upper - self.lower
        fraction = sums[:, -1] / steps
        weight = 1.0 if self.replaces else fraction**2 + (1.0 - fraction) ** 2
        error = span * np.sqrt(weight * variances) / steps
        return self.lower + span * fraction, np.where(np.isnan(count), np.inf, error)

    def error_bound(self, *, beta: float, ticks: int | None = None, events: int | None = None) -> float:
        """Return the error of the mean of ``events`` values that is exceeded with probability at most ``beta``.

        Without ``events``, or with too few for the noise, it is the whole range.

        Args:
            ticks: Number of slots; the horizon by default.
            beta: Probability of a larger error.
            events: Number of values.
        """
        span = self.upper - self.lower
        unit = float(self.steps)
        if self.replaces:
            moved = self.error_in_steps(beta, ticks) / unit
            lost = 0.0
        else:
            # (1-x)·dB - x·dA in the numerator, dA + dB in the count.
            moved, lost = (self.error_in_steps(beta / 2, ticks, squared) / unit for squared in (1.0, 2.0))
        return min(span, span * moved / (events - lost)) if events is not None and events > lost else span


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualVariance(_Moments):
    """The variance of all values so far, at every tick: of the sample (n - 1), or of the population (n) if asked.

    Privacy:
        As `ContinualMean`.
        Proof: docs/proofs/continual-tree.md, Theorem 4.

    Error:
        With V the variance of a `ContinualCount` of the same epsilon, y in [-1, 1] the values' positions relative to
        the middle of the range and r half its length: count, sum and sum of squares of y have noise 3V, 2V and 3V
        (three budgets of epsilon/3 would have 9V each), with ``"replace"`` 0, 81V/16 and 81V/16. The answer's variance
        is, by the delta method with m and q the means of y and y² and n values, r⁴·V/n²·sum_j (q_j - q - 2m(m_j - m))²
        over (m_j, q_j) = (-1, 1), (0, -1), (1, 1). Rounding moves every value by at most half a step.

    Args:
        lower: Lower end of the range of a value.
        upper: Upper end of the range of a value.
        resolution: Length of a step; a 2**12th of the range by default, at least a 2**20th. With a
            ``delta``, the square of a step is at least a 2**20th of the noise.
        adjacency: "add-remove" or "replace".
        population: Divide by the count instead of the count less one.

    Until the noisy count exceeds 1 and twice its standard error the answer is called "variance (no data)" and is NaN.

    Examples:
        >>> monitor = ContinualVariance(epsilon=1.0, horizon=100, lower=0.0, upper=10.0).start()
        >>> monitor.update([2.0, 4.0] * 5000)
        >>> 0.5 < monitor.tick().value < 1.5
        True

    Reference: Budaeva et al. 2013, §4.3, Algorithm 4, corrected.
    """

    theorem: ClassVar[str] = "Theorem 4"

    label: ClassVar[str] = "variance"
    degree: ClassVar[int] = 2
    max_steps: ClassVar[int] = 1 << 20
    default_steps: ClassVar[int] = 1 << 12

    population: bool = False

    def from_totals(self, total: NDArray[np.float64], what: str, law: Law) -> Estimate:
        """Return a variance of either kind, or another moment."""
        if what not in ("var_pop", "var_samp") or self.replaces:
            return _Moments.from_totals(self, total, what, law)
        twin = replace(self, population=what == "var_pop")
        value, error = twin.decode(total[np.newaxis, :-1], total[-1:], np.zeros(1, np.int64))
        return twin._estimate_for(twin.label, twin.support, float(value[0]), float(error[0]), ())

    @property
    def support(self) -> tuple[float, float]:
        """Return 0 and the variance of two values at both ends of the range."""
        return 0.0, (self.upper - self.lower) ** 2 / 2.0

    def decode(self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]) -> Arrays:
        """Return the variance with its error by the delta method."""
        count = self.count(sums, variances, events)
        steps = count * float(self.steps) ** 2
        if self.replaces:
            mean = sums[:, 0] / steps
            square = sums[:, 1] / steps
            weight = 1.0 + 4.0 * mean**2
        else:
            mean = (sums[:, 2] - sums[:, 0]) / steps
            square = (sums[:, 0] - sums[:, 1] + sums[:, 2]) / steps
            weight = np.zeros(len(sums))
            for y, squared in ((-1.0, 1.0), (0.0, -1.0), (1.0, 1.0)):  # what a unit of each part adds to y and to y²
                weight += (squared - square - 2.0 * mean * (y - mean)) ** 2
        unit = ((self.upper - self.lower) / 2.0) ** 2 * (1.0 if self.population else count / (count - 1.0))
        error = unit * np.sqrt(weight * variances) / steps
        return unit * (square - mean**2), np.where(np.isnan(count), np.inf, error)

    def error_bound(self, *, beta: float, ticks: int | None = None, events: int | None = None) -> float:
        """Return the error of the variance of ``events`` values that is exceeded with probability at most ``beta``.

        Without ``events``, or with too few for the noise, it is the largest possible variance.

        Args:
            ticks: Number of slots; the horizon by default.
            beta: Probability of a larger error.
            events: Number of values.
        """
        max_variance = self.support[1]
        unit = float(self.steps) ** 2
        if self.replaces:
            lost = 0.0
            square = self.error_in_steps(beta / 2, ticks) / unit
            mean = square
        else:
            # Squared weights of the parts: 3 in the count; at most 4 in y² - q and 5 in y - m, where none exceeds 2.
            lost, square, mean = (self.error_in_steps(beta / 3, ticks, squared) / unit for squared in (3.0, 1.0, 1.25))
            square = 2.0 * square
            mean = 2.0 * mean
        if events is None or events - lost <= 1.0:
            return max_variance
        min_count = events - lost
        square = square / min_count
        mean = mean / min_count
        # The factor n/(n-1) is itself off by |N - n|/((N-1)(n-1)).
        off = min_count / (min_count - 1.0) * (square + 2.0 * mean + mean**2) + lost / (
            (events - 1.0) * (min_count - 1.0)
        )
        return min(max_variance, ((self.upper - self.lower) / 2.0) ** 2 * off)
