"""Divide one budget between questions: which of its windows each takes, and how much each may lose.

A question is described by tables, one for every window that it may take: what it loses and how large its error is at
growing epsilons. Pure losses add up, and so do losses of zCDP, so a division costs

    sum of pure losses + zcdp_epsilon(sum of rho, delta),

which is an estimate of the account, not the account itself: whoever uses a division computes that from the plans.

*Price*: the smallest loss at which a question is useful, that is, at which its relative error is at most 1. Where the
error falls like 1/loss, the weighted errors add up to least if losses are proportional to sqrt(weight · price); where
it falls like 1/sqrt(rho), if each rho is proportional to (weight² · price)^(1/3); none below its price. `divide` finds
the same from the tables, whatever their shape: at a common marginal price of loss every question takes the entry that
is best for it alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.privacy.composition import zcdp_epsilon

Floats = NDArray[np.float64]
_STEPS_OF_PRICE = 60  # halvings of the logarithm of the marginal price of loss
_SLOPES = 24  # divisions between pure losses and zCDP that are compared
_LARGEST_PRICE = 1e12
_CURVE = 129  # points at which the epsilon of a rho is computed; in between it is interpolated
_TOLERANCE = 1e-3  # of interpolation


@dataclass(frozen=True, slots=True, eq=False)
class LossTable:
    """What a question loses in one window, and its error, at growing epsilons; all arrays are of one length.

    Attributes:
        pure: What its losses add to the sum of pure losses.
        rho: What they add to the sum of zCDP.
        errors: Error relative to the largest useful one, not increasing; infinite where there is no answer.
        required: Whether errors above 1 are useless; else any are accepted.
    """

    pure: Floats
    rho: Floats
    errors: Floats
    required: bool = True

    @property
    def first(self) -> int | None:
        """Return the index of the smallest acceptable epsilon; None if there is none."""
        useful = np.flatnonzero(self.errors <= 1.0 if self.required else np.isfinite(self.errors))
        return int(useful[0]) if useful.size else None


@dataclass(frozen=True, slots=True)
class Account:
    """What losses cost together.

    Attributes:
        limit: The budget.
        delta: Its delta; 0 if all losses are pure.
        pure: Pure losses that are fixed.
        rho: Losses of zCDP that are fixed.
    """

    limit: float
    delta: float = 0.0
    pure: float = 0.0
    rho: float = 0.0

    def total(self, pure: float, rho: float) -> float:
        """Return what these losses cost together with the fixed ones."""
        return self.epsilon(pure + self.pure, rho + self.rho)

    def epsilon(self, pure: float, rho: float) -> float:
        """Return what a sum of pure losses and a sum of zCDP cost."""
        if rho == 0.0:
            return pure
        return pure + (zcdp_epsilon(rho, self.delta) if self.delta and math.isfinite(rho) else math.inf)

    def price(self, table: LossTable) -> float:
        """Return the epsilon of the smallest acceptable loss of one question alone; infinite if there is none."""
        first = table.first
        return math.inf if first is None else self.epsilon(float(table.pure[first]), float(table.rho[first]))


@dataclass(frozen=True, slots=True)
class Rejected:
    """A window that a question cannot take.

    Attributes:
        window: Its index among the windows of the question.
        price: Epsilon from which the question would be useful in it, if nothing else were asked.
    """

    window: int
    price: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The window of one question.

    Attributes:
        window: Its index; None if the question is dropped.
        rejected: The windows before it.
    """

    window: int | None
    rejected: tuple[Rejected, ...] = ()


def choose_windows(
    tables: Sequence[Sequence[Callable[[], LossTable]]], weights: Sequence[float], account: Account
) -> list[Choice]:
    """Choose the window of each question, the first ones as far as all prices together are within the budget.

    While they are not, the question that costs most per weight takes its next window; once all are in their last ones,
    it is dropped. Afterwards every question, the cheapest first, takes an earlier window if there is enough left.

    Args:
        tables: Functions that return the tables of each question, by window, which are called as they are needed.
        weights: Importance of the questions.
        account: The budget.
    """
    known: dict[tuple[int, int], tuple[float, float, float]] = {}

    def price(question: int, window: int) -> tuple[float, float, float]:
        """Return pure loss, rho, and the epsilon of both."""
        if (question, window) not in known:
            table = tables[question][window]()
            first = table.first
            known[question, window] = (
                (math.inf, 0.0, math.inf)
                if first is None
                else (float(table.pure[first]), float(table.rho[first]), account.price(table))
            )
        return known[question, window]

    def cost(windows: Sequence[int]) -> float:
        prices = [price(question, window) for question, window in enumerate(windows) if window < len(tables[question])]
        return account.total(math.fsum(pure for pure, _, _ in prices), math.fsum(rho for _, rho, _ in prices))

    def per_weight(question: int) -> float:
        return price(question, windows[question])[2] / weights[question]

    windows = [0] * len(tables)
    for question, candidates in enumerate(tables):
        while windows[question] < len(candidates) and price(question, windows[question])[2] > account.limit:
            windows[question] += 1
    while cost(windows) > account.limit:
        in_use = [question for question, window in enumerate(windows) if window < len(tables[question])]
        movable = [question for question in in_use if windows[question] + 1 < len(tables[question])]
        if not in_use:
            break
        windows[max(movable or in_use, key=per_weight)] += 1
    for question in sorted(range(len(tables)), key=lambda question: (_min_price(known, question), question)):
        for window in range(windows[question]):
            earlier = [*windows[:question], window, *windows[question + 1 :]]
            if cost(earlier) <= account.limit:
                windows = earlier
                break
    return [
        Choice(
            window if window < len(tables[question]) else None,
            tuple(Rejected(earlier, price(question, earlier)[2]) for earlier in range(window)),
        )
        for question, window in enumerate(windows)
    ]


def _min_price(prices: dict[tuple[int, int], tuple[float, float, float]], question: int) -> float:
    return min((price for (other, _), (_, _, price) in prices.items() if other == question), default=math.inf)


def divide(tables: Sequence[LossTable], weights: Sequence[float], account: Account) -> list[int]:
    """Return the entry of each table at which the weighted errors add up to least within the budget.

    Args:
        tables: One for every question, with the same number of entries.
        weights: Importance of the questions.
        account: The budget.

    Raises:
        InvalidParameter: The smallest acceptable losses already exceed the budget.
    """
    if not tables:
        return []
    pure = np.stack([table.pure for table in tables])
    rho = np.stack([table.rho for table in tables])
    errors = np.stack([_acceptable(table) for table in tables]) * np.asarray(weights)[:, np.newaxis]
    rows = np.arange(len(tables))
    smallest = np.argmax(np.isfinite(errors), axis=1)
    least_rho = account.rho + float(rho[rows, smallest].sum())
    epsilon_of = _epsilon_curve(least_rho, account.rho + float(rho[:, -1].sum()), account)

    def cost(entries: NDArray[np.int64]) -> float:
        return (
            account.pure + float(pure[rows, entries].sum()) + epsilon_of(account.rho + float(rho[rows, entries].sum()))
        )

    if not np.isfinite(errors[rows, smallest]).all() or cost(smallest) > account.limit * (1.0 + _TOLERANCE):
        raise InvalidParameter("the smallest acceptable losses exceed the budget")
    best = smallest
    for slope in _slopes(least_rho, account, epsilon_of) if rho.any() else [0.0]:
        entries = _best_at(errors, pure + slope * rho, lambda entries: cost(entries) <= account.limit)
        if entries is not None and errors[rows, entries].sum() < errors[rows, best].sum():
            best = entries
    return [int(entry) for entry in best]


def _best_at(errors: Floats, losses: Floats, fits: Callable[[NDArray[np.int64]], bool]) -> NDArray[np.int64] | None:
    """Return the entries at the smallest marginal price of loss at which they fit, by bisection; None if none do."""
    best = None
    low = -math.log(_LARGEST_PRICE)
    high = math.log(_LARGEST_PRICE)
    for _ in range(_STEPS_OF_PRICE):
        middle = (low + high) / 2
        entries = np.argmin(errors + math.exp(middle) * losses, axis=1)
        if fits(entries):
            best = entries
            high = middle
        else:
            low = middle
    return best


def _acceptable(table: LossTable) -> Floats:
    """Return the errors, infinite where they are not acceptable."""
    return np.where(table.errors <= 1.0, table.errors, np.inf) if table.required else table.errors


def _epsilon_curve(least: float, most: float, account: Account) -> Callable[[float], float]:
    """Return a function that interpolates the epsilon of a rho, up to where that alone exceeds the budget."""
    if most == 0.0 or not account.delta:
        return lambda rho: account.epsilon(0.0, rho)
    top = min(most, account.limit) * (1.0 + 1e-9)  # rho-zCDP costs more than epsilon = rho
    points = np.geomspace(max(least, top * 1e-9) * (1.0 - 1e-9), top, _CURVE)
    values = np.array([account.epsilon(0.0, float(point)) for point in points])
    log_points = np.log(points)
    log_values = np.log(values)

    def epsilon_of(rho: float) -> float:
        if rho <= 0.0:
            return 0.0
        return math.exp(float(np.interp(math.log(rho), log_points, log_values))) if rho <= top else math.inf

    return epsilon_of


def _slopes(least: float, account: Account, epsilon_of: Callable[[float], float]) -> list[float]:
    """Return derivatives of the epsilon of a rho, at values of rho between the least one and the whole budget's."""
    low = max(least, account.limit * 1e-9)
    high = account.limit
    points = np.geomspace(low, max(high, low * 1.01), _SLOPES).tolist()
    slopes = [(epsilon_of(point * 1.001) - epsilon_of(point)) / (point * 0.001) for point in points]
    return [slope for slope in slopes if math.isfinite(slope)]
