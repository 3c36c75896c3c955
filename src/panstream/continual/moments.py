"""ContinualMean and ContinualVariance on the default tree.

They keep Bernstein parts: with x in [0, 1] the item's place in its range, (1-x, x) or ((1-x)², 2x(1-x), x²). These are not
negative and add up to 1, so an item moves the whole vector by 1 and all of epsilon serves every part (Theorem 4 of
docs/proofs/continual-tree.md), where a count, a sum and a sum of squares side by side get a third each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from panstream.continual.grid import Grid, Outside, Steps
from panstream.continual.tree_base import Arrays, Tree
from panstream.errors import InvalidParameter
from panstream.estimate import Estimate
from panstream.privacy.claim import Adjacency, Unit
from panstream.privacy.continual import bernstein_sensitivity, moment_sensitivity
from panstream.randomness import DiscreteLaplace

__all__ = ["ContinualMean", "ContinualVariance", "Parts"]

_MEAN_STEPS = 1 << 20
_SQUARE_STEPS = 1 << 12


@dataclass(frozen=True, slots=True)
class Parts:
    """What one item adds to a leaf, in whole numbers: its powers up to ``degree`` on a grid of ``steps`` steps.

    Bernstein parts where events are added or removed. Where values are exchanged the number of events is public, and
    centred powers (i, or steps·y and y² with y = 2i - steps) cost less.
    """

    steps: int
    degree: int
    adjacency: Adjacency

    @property
    def replaces(self) -> bool:
        """Return whether values are exchanged, and counts public."""
        return self.adjacency == "replace"

    @property
    def width(self) -> int:
        """Return how many parts there are."""
        return self.degree if self.replaces else self.degree + 1

    @property
    def sensitivity(self) -> int:
        """Return the L1 change that one event makes to all parts together."""
        return (moment_sensitivity if self.replaces else bernstein_sensitivity)(self.steps, self.degree)

    def spread(self, rows: NDArray[np.int64], leaves: NDArray[np.int64]) -> None:
        """Write the parts of every row, without temporaries."""
        first, last = leaves[:, 0], leaves[:, -1]
        if self.replaces and self.degree == 1:
            first[:] = rows
        elif self.replaces:
            np.multiply(rows, 2, out=first)
            first -= self.steps
            np.multiply(first, first, out=last)
            first *= self.steps
        else:
            np.subtract(self.steps, rows, out=first)
            if self.degree == 2:
                np.multiply(first, rows, out=leaves[:, 1])
                leaves[:, 1] *= 2
                first *= first
            np.power(rows, self.degree, out=last)

    def evenly(self) -> NDArray[np.float64]:
        """Return the parts of an average row, for values that lie evenly over the range."""
        size = float(self.steps) ** self.degree
        if self.replaces:
            return np.array([size / 2] if self.degree == 1 else [0.0, size / 3])
        return np.full(self.width, size / self.width)

    def count(self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]) -> Arrays:
        """Return the number of events, NaN where it does not suffice, and its standard error.

        It suffices if there are at least ``degree`` events and the noisy count is twice its standard error.
        """
        if self.replaces:
            count, error = events.astype(np.float64), np.zeros(len(events))
        else:
            unit = float(self.sensitivity)
            count, error = sums.sum(axis=1) / unit, np.sqrt(self.width * variances) / unit
        return np.where((count > self.degree - 0.5) & (count >= 2.0 * error), count, np.nan), error


def _check(adjacency: Adjacency) -> None:
    if adjacency not in get_args(Adjacency):
        raise InvalidParameter(f"adjacency must be add-remove or replace, got adjacency={adjacency!r}")


def _described(
    algorithm: Tree, value: float, error: float, support: tuple[float, float], released: tuple[int, ...]
) -> Estimate:
    empty = math.isnan(value)
    return Estimate(
        value=value,
        standard_error=error,
        claim=algorithm.claim(),
        name=f"{algorithm.label} (no data)" if empty else algorithm.label,
        support=support,
        released=released,
        rule=(lambda level: support) if empty else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualMean(Tree):
    """The mean of all values so far, at every tick.

    Privacy
        Unit: one value, anywhere in time (``contributions=K``: a user of at most K values). ``adjacency="add-remove"``
        hides whether it was there, ``"replace"`` what it was, with the number of events in every slot public. One look at
        any time and all outputs lose exactly ``epsilon``; any number of announced looks with a refresh too.

    Error
        With V the variance of a :class:`ContinualCount` of the same epsilon, n values and x in [0, 1] the mean's place in
        the range: variance V·(upper-lower)²·(x² + (1-x)²)/n², or V·(upper-lower)²/n² with ``"replace"``. Rounding
        adds at most half a step.

    Parameters
        lower, upper: range of a value.
        resolution: length of a step, a 2**20th of the range by default. Sums are exact below 2**53 steps.
        outside: "clip" moves values into the range; "refuse" refuses the batch and names the row, and has no claim: one value
            would decide whether all others of its batch count.
        adjacency: "add-remove" or "replace".
        The others as in :class:`panstream.continual.tree_base.Tree`.

    Until the noisy count is twice its standard error the answer is called "mean (no data)" and is NaN.

    Example
        >>> monitor = ContinualMean(epsilon=1.0, horizon=100, lower=0.0, upper=10.0).start()
        >>> monitor.tick().name
        'mean (no data)'
        >>> monitor.update([2.0, 4.0] * 5000)
        >>> abs(monitor.tick().value - 3.0) < 0.3
        True

    Reference: "Private Aggregate Computations on Streams", 3.2, Algorithm 3, made sound.
    """

    lower: float
    upper: float
    resolution: float | None = None
    outside: Outside = "clip"
    adjacency: Adjacency = "add-remove"

    def check(self) -> None:
        """Check range, resolution and adjacency."""
        _check(self.adjacency)
        _ = self.grid

    @property
    def grid(self) -> Grid:
        """Return the grid over the range."""
        return Grid.over(self.lower, self.upper, self.resolution, _MEAN_STEPS, self.outside)

    @property
    def parts(self) -> Parts:
        """Return (steps - i, i), or i alone where the count is public."""
        return Parts(self.grid.high, 1, self.adjacency)

    @property
    def width(self) -> int:
        """Return how many numbers a leaf holds."""
        return self.parts.width

    @property
    def sensitivity(self) -> int:
        """Return how far one event moves a leaf."""
        return self.parts.sensitivity

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "mean"

    @property
    def protected(self) -> tuple[Unit, Adjacency]:
        """Return the unit of the claim and its adjacency."""
        return "user" if self.contributions is not None else "event", self.adjacency

    def read(self, values: Any) -> Steps:
        """Return values as steps from the lower bound."""
        return self.grid.read(values)

    def spread(self, rows: NDArray[np.int64], leaves: NDArray[np.int64]) -> None:
        """Write what each row adds to a leaf."""
        self.parts.spread(rows, leaves)

    def evenly(self) -> NDArray[np.float64]:
        """Return what an average row adds to a leaf."""
        return self.parts.evenly()

    def decode(self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]) -> Arrays:
        """Return the ratio of the sums with its error by the delta method."""
        count, _ = self.parts.count(sums, variances, events)
        steps, span = count * self.grid.high, self.upper - self.lower
        place = sums[:, -1] / steps
        weight = 1.0 if self.parts.replaces else place**2 + (1.0 - place) ** 2
        error = span * np.sqrt(weight * variances) / steps
        return self.lower + span * np.clip(place, 0.0, 1.0), np.where(np.isnan(count), np.inf, error)

    def describe(self, value: float, error: float, law: DiscreteLaplace, released: tuple[int, ...]) -> Estimate:
        """Return the estimate; without data its value is NaN, its error infinite, its interval the range."""
        return _described(self, value, error, (self.lower, self.upper), released)

    def error(self, *, beta: float, ticks: int | None = None, events: int | None = None) -> float:
        """Return the error of the mean of ``events`` values that is exceeded with probability at most ``beta``.

        Without ``events``, or with too few for the noise, it is the whole range.
        """
        span, unit = self.upper - self.lower, float(self.grid.high)
        if self.parts.replaces:
            moved, lost = self.steps_off(beta, ticks) / unit, 0.0
        else:
            # (1-x)·dB - x·dA in the numerator, dA + dB in the count.
            moved, lost = (self.steps_off(beta / 2, ticks, squared) / unit for squared in (1.0, 2.0))
        return min(span, span * moved / (events - lost)) if events is not None and events > lost else span


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualVariance(Tree):
    """The variance of all values so far, at every tick: of the sample (n - 1), or of the population (n) if asked.

    Privacy
        As :class:`ContinualMean`.

    Error
        With V the variance of a :class:`ContinualCount` of the same epsilon, y in [-1, 1] the values' places about the middle
        of the range and r half its length: count, sum and sum of squares of y have noise 3V, 2V and 3V (three budgets of
        epsilon/3 would have 9V each), with ``"replace"`` 0, 81V/16 and 81V/16. The answer's variance is, by the
        delta method with m and q the means of y and y² and n values, r⁴·V/n²·sum_j (q_j - q - 2m(m_j - m))² over
        (m_j, q_j) = (-1, 1), (0, -1), (1, 1). Rounding moves every value by at most half a step.

    Parameters
        As :class:`ContinualMean`; the resolution is a 2**12th of the range by default, at least a 2**20th.
        population: divide by the count instead of the count less one.

    Until the noisy count exceeds 1 and twice its standard error the answer is called "variance (no data)" and is NaN.

    Example
        >>> monitor = ContinualVariance(epsilon=1.0, horizon=100, lower=0.0, upper=10.0).start()
        >>> monitor.update([2.0, 4.0] * 5000)
        >>> 0.5 < monitor.tick().value < 1.5
        True

    Reference: "Private Aggregate Computations on Streams", 3.3, Algorithm 4, made sound.
    """

    lower: float
    upper: float
    resolution: float | None = None
    outside: Outside = "clip"
    adjacency: Adjacency = "add-remove"
    population: bool = False

    def check(self) -> None:
        """Check range, resolution and adjacency."""
        _check(self.adjacency)
        if self.grid.high > 1 << 20:
            raise InvalidParameter(f"resolution must leave at most 2**20 steps, got {self.grid.high}")

    @property
    def grid(self) -> Grid:
        """Return the grid over the range."""
        return Grid.over(self.lower, self.upper, self.resolution, _SQUARE_STEPS, self.outside)

    @property
    def parts(self) -> Parts:
        """Return ((steps-i)², 2i(steps-i), i²), or (steps·y, y²) where the count is public."""
        return Parts(self.grid.high, 2, self.adjacency)

    @property
    def width(self) -> int:
        """Return how many numbers a leaf holds."""
        return self.parts.width

    @property
    def sensitivity(self) -> int:
        """Return how far one event moves a leaf."""
        return self.parts.sensitivity

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "variance"

    @property
    def protected(self) -> tuple[Unit, Adjacency]:
        """Return the unit of the claim and its adjacency."""
        return "user" if self.contributions is not None else "event", self.adjacency

    @property
    def support(self) -> tuple[float, float]:
        """Return 0 and the variance of two values at both ends of the range."""
        return 0.0, (self.upper - self.lower) ** 2 / 2.0

    def read(self, values: Any) -> Steps:
        """Return values as steps from the lower bound."""
        return self.grid.read(values)

    def spread(self, rows: NDArray[np.int64], leaves: NDArray[np.int64]) -> None:
        """Write what each row adds to a leaf."""
        self.parts.spread(rows, leaves)

    def evenly(self) -> NDArray[np.float64]:
        """Return what an average row adds to a leaf."""
        return self.parts.evenly()

    def decode(self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]) -> Arrays:
        """Return the variance with its error by the delta method."""
        count, _ = self.parts.count(sums, variances, events)
        steps = count * float(self.grid.high) ** 2
        if self.parts.replaces:
            mean, square = sums[:, 0] / steps, sums[:, 1] / steps
            weight = 1.0 + 4.0 * mean**2
        else:
            mean = (sums[:, 2] - sums[:, 0]) / steps
            square = (sums[:, 0] - sums[:, 1] + sums[:, 2]) / steps
            stands_for = ((-1.0, 1.0), (0.0, -1.0), (1.0, 1.0))  # y and y² of a unit of each part
            weight = np.zeros(len(sums))
            for y, squared in stands_for:
                weight += (squared - square - 2.0 * mean * (y - mean)) ** 2
        unit = ((self.upper - self.lower) / 2.0) ** 2 * (1.0 if self.population else count / (count - 1.0))
        error = unit * np.sqrt(weight * variances) / steps
        return np.clip(unit * (square - mean**2), *self.support), np.where(np.isnan(count), np.inf, error)

    def describe(self, value: float, error: float, law: DiscreteLaplace, released: tuple[int, ...]) -> Estimate:
        """Return the estimate; without data its value is NaN, its error infinite, its interval all that is possible."""
        return _described(self, value, error, self.support, released)

    def error(self, *, beta: float, ticks: int | None = None, events: int | None = None) -> float:
        """Return the error of the variance of ``events`` values that is exceeded with probability at most ``beta``.

        Without ``events``, or with too few for the noise, it is the largest variance there is.
        """
        most, unit = self.support[1], float(self.grid.high) ** 2
        if self.parts.replaces:
            lost, square = 0.0, self.steps_off(beta / 2, ticks) / unit
            mean = square
        else:
            # Squared weights of the parts: 3 in the count; at most 4 in y² - q and 5 in y - m, where none exceeds 2.
            lost, square, mean = (self.steps_off(beta / 3, ticks, squared) / unit for squared in (3.0, 1.0, 1.25))
            square, mean = 2.0 * square, 2.0 * mean
        if events is None or events - lost <= 1.0:
            return most
        left = events - lost
        square, mean = square / left, mean / left
        # The factor n/(n-1) is itself off by |N - n|/((N-1)(n-1)).
        off = left / (left - 1.0) * (square + 2.0 * mean + mean**2) + lost / ((events - 1.0) * (left - 1.0))
        return min(most, ((self.upper - self.lower) / 2.0) ** 2 * off)
