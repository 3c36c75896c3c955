"""The ways to publish a number of ones at every tick, what each leaves for noise, and which has the smallest error.

*paid*: a release like any other, n times (joint-loss.md). *event*: a tree over the changes, where one event is
protected (continual-users.md, Theorem A). *user*: the same tree, where all rows of a user are (Theorem B).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.tree_shape import MOST_LEVELS, TreeShape, epoch_of
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.kernels.algorithms.noisy_tree import closed_levels
from panstream.privacy.budget_split import laplace_variance
from panstream.privacy.change_tree_loss import (
    max_change_budget,
    max_change_budget_approx,
    max_flicker_budget,
    max_single_budget,
)
from panstream.privacy.joint_loss import kappa_for, kappa_for_approx, present_probability
from panstream.privacy.numeric_search import minimise

Method = Literal["paid", "event", "user"]
Protected = Literal["event", "user-window", "user"]
METHODS: tuple[Method, ...] = ("paid", "event", "user")
_LONGEST = 1 << 20  # ticks that Theorem B adds up; its error there is far above any count
_MOST_LEVELS = 8
_FAR = 1024  # ticks for which a stream without horizon is tuned
_FINE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyInputs:
    """What is to be published, and what is protected: all that a way's price depends on."""

    epsilon: float
    cells: int
    density: float  # that the split is tuned for
    horizon: int | None
    unit: Protected
    window: int | None = None  # ticks
    rows: int | None = None  # of one user; None if there may be any number
    deletions: bool = False
    starts: bool = True  # whether the start may be released

    def closings(self, levels: int) -> tuple[int, ...]:
        """Return at how many ticks exactly 1, 2, ... levels close, of the ticks that rows of one user can reach."""
        assert self.horizon is not None
        return _closings(self.horizon, levels, self.window if self.unit == "user-window" else None, self.rows)

    def unavailable_reason(self, method: Method) -> str | None:
        """Return why a method cannot answer a question at any price, or None."""
        if method == "paid":
            return None if self.horizon is not None else "every release is paid for, so horizon must be given"
        if method == "event":
            return None if self.unit == "event" else "a tree over changes at event level does not protect a user"
        if self.deletions:
            return (
                "with deletions a user can move the mean of her bit at every tick, so a tree over changes loses more "
                "than releases that are paid for one by one"
            )
        if self.horizon is None:
            return "a user who comes at every tick loses a little at each, so horizon must be given"
        return None if self.horizon <= _LONGEST else f"horizon must be at most {_LONGEST:,} at user level"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStrategy:
    """One way: the public numbers that it is made of, and its error.

    ``rate`` is levels·kappa of a tree, kappa of a paid release; ``start`` the rate with which the start is released, 0
    where it is not.
    """

    method: Method
    epsilon_state: float
    levels: int
    rate: float
    start: float
    variance: float = math.nan  # of the number of users among the cells, at the question's density, on average

    def shape(self, horizon: int | None) -> TreeShape | None:
        """Return the tree; without a horizon every epoch has its own."""
        return None if horizon is None or self.method == "paid" else TreeShape.best(horizon, False, self.levels)

    def noise(self, horizon: int | None, ticks: int | None = None) -> float:
        """Return the variance of what is published, in ones, after ``ticks`` ticks, or on average."""
        if self.method == "paid":
            return laplace_variance(self.rate)
        shape = self.shape(horizon)
        if shape is None:
            return _unbounded_noise(self.rate, ticks or _FAR)
        draws = shape.noise(horizon or 1).mean if ticks is None else shape.noise(ticks).last
        return draws * laplace_variance(self.rate / self.levels)

    def bits_spread(self, cells: int, touched: float, share: float) -> float:
        """Return the variance of the bits in top - share·base, in ones, where a part ``touched`` was drawn again.

        The noise of an untouched bit cancels as far as the start is subtracted: m·p0·p1·((1-share)² + 2·share·touched).
        """
        p1 = present_probability(self.epsilon_state)
        return cells * p1 * (1.0 - p1) * ((1.0 - share) ** 2 + 2.0 * share * touched)

    def best_share(self, cells: int, touched: float) -> float:
        """Return how much of the noisy start is best subtracted."""
        if not self.start:
            return 0.0 if self.method == "paid" else 1.0
        p1 = present_probability(self.epsilon_state)
        bits = cells * p1 * (1.0 - p1)
        first = laplace_variance(self.start)
        if not bits + first > 0.0:
            return 0.0
        return ((1.0 - touched) * bits + (0.0 if self.method == "paid" else first)) / (bits + first)

    def variance_at(self, question: StrategyInputs, ticks: int | None, density: float) -> float:
        """Return the variance of the number of users among the cells, after ``ticks`` ticks or on average."""
        touched = 1.0 if question.deletions else density
        share = self.best_share(question.cells, touched)
        start_weight = share if self.method == "paid" else 1.0 - share  # of the noise on the start
        first = start_weight**2 * laplace_variance(self.start) if self.start else 0.0
        spread = self.bits_spread(question.cells, touched, share) + first + self.noise(question.horizon, ticks)
        return spread / math.tanh(self.epsilon_state / 2.0) ** 2


def strategy_from_parameters(
    question: StrategyInputs, method: Method, epsilon_state: float, levels: int, start: float
) -> ReleaseStrategy:
    """Return a way from its public numbers, with as much for the answers as its claim leaves."""
    if method != "paid":
        checks.require_integer_in_range(1, MOST_LEVELS, levels=levels)
    if math.isinf(question.epsilon):
        return ReleaseStrategy(method=method, epsilon_state=math.inf, levels=levels, rate=math.inf, start=0.0)
    if not 0.0 < epsilon_state < question.epsilon:
        raise InvalidParameter(f"epsilon_state must be in (0, {question.epsilon}), got epsilon_state={epsilon_state}")
    rate = _rate(question, method, epsilon_state, levels, start, exact=True)
    if not rate > 0:
        raise InvalidParameter(
            f"epsilon_state and start must leave something of epsilon={question.epsilon}, got "
            f"epsilon_state={epsilon_state} and start={start}"
        )
    return ReleaseStrategy(method=method, epsilon_state=epsilon_state, levels=levels, rate=rate, start=start)


def _rate(question: StrategyInputs, method: Method, state: float, levels: int, start: float, *, exact: bool) -> float:
    """Return what a way leaves for the answers: exactly, or to within rounding."""
    if method == "event":
        change = max_change_budget if exact else max_change_budget_approx
        return change(question.epsilon, state, start, deletions=question.deletions)
    if method != "paid":
        closings = question.closings(levels)
        windowed = question.unit == "user-window"
        return max_flicker_budget(question.epsilon, state, levels, closings, windowed=windowed)
    if start:
        if question.horizon != 1 or question.deletions:
            raise InvalidParameter("start must be 0 unless there is one answer and no deletion")
        return max_single_budget(question.epsilon, state, start)
    return (kappa_for if exact else kappa_for_approx)(question.epsilon, state, question.horizon or 1)


@lru_cache(maxsize=256)
def best_strategy(question: StrategyInputs, method: Method | None = None) -> ReleaseStrategy:
    """Return the way with the smallest error, or the best of one ``method``; raise if there is none."""
    if method is not None and (reason := question.unavailable_reason(method)):
        raise NotSupported(reason)
    if math.isinf(question.epsilon):
        chosen = method or ("paid" if question.horizon is not None else "event")
        levels = 0 if chosen == "paid" else TreeShape.best(question.horizon or _FAR, False).levels
        return strategy_from_parameters(question, chosen, math.inf, levels, 0.0)
    tried = (
        [candidate for candidate in METHODS if question.unavailable_reason(candidate) is None]
        if method is None
        else [method]
    )
    attempts = [_best_of(question, candidate) for candidate in tried]
    feasible = [way for way in attempts if way is not None]
    if not feasible:
        reasons = "; ".join(
            reason for candidate in METHODS if (reason := question.unavailable_reason(candidate)) is not None
        )
        raise InvalidParameter(f"unit={question.unit!r} is not possible: {reasons}")
    return min(feasible, key=lambda way: way.variance)


@lru_cache(maxsize=1024)
def _best_of(question: StrategyInputs, method: Method) -> ReleaseStrategy | None:
    """Return the best split of a method: searched with floats, settled exactly."""
    if method == "paid":
        heights = [0]
    elif question.horizon is None:
        heights = [1]
    else:
        heights = [h for h in range(1, _MOST_LEVELS + 1) if _fits(question.horizon, h)]
    tried = [_split(question, method, levels) for levels in heights]
    best = min((way for way in tried if way.variance < math.inf), key=lambda way: way.variance, default=None)
    if best is None:
        return None
    exact = strategy_from_parameters(question, method, best.epsilon_state, best.levels, best.start)
    return replace(exact, variance=exact.variance_at(question, None, question.density))


def _split(question: StrategyInputs, method: Method, levels: int) -> ReleaseStrategy:
    """Return the best epsilon_state and, where the start may be released, the best rate for it."""
    top = question.epsilon

    def at(state: float) -> ReleaseStrategy:
        return _with_start(question, method, state, levels)

    state = minimise(lambda state: at(state).variance, 0.02 * top, 0.999 * top, _FINE)
    return at(state)


def _with_start(question: StrategyInputs, method: Method, state: float, levels: int) -> ReleaseStrategy:
    plain = _approximate_strategy(question, method, state, levels, 0.0)
    single = method == "paid" and question.horizon == 1 and not question.deletions
    if not question.starts or not (method == "event" or single):
        return plain
    if question.deletions:
        return _approximate_strategy(
            question, method, state, levels, plain.rate
        )  # as large as the tree's, the start's rate is free
    max_kappa = kappa_for_approx(question.epsilon, state)

    def at(start: float) -> ReleaseStrategy:
        return _approximate_strategy(question, method, state, levels, start)

    started = at(minimise(lambda start: at(start).variance, 0.01 * max_kappa, 0.99 * max_kappa, _FINE))
    return min(plain, started, key=lambda way: way.variance)


def _approximate_strategy(
    question: StrategyInputs, method: Method, state: float, levels: int, start: float
) -> ReleaseStrategy:
    """Return a way to within rounding, of infinite variance where nothing is left for the answers."""
    rate = _rate(question, method, state, levels, start, exact=False)
    way = ReleaseStrategy(method=method, epsilon_state=state, levels=levels, rate=rate, start=start, variance=math.inf)
    return replace(way, variance=way.variance_at(question, None, question.density)) if rate > 1e-12 else way


def _fits(horizon: int, levels: int) -> bool:
    try:
        TreeShape.best(horizon, False, levels)
    except InvalidParameter:
        return False
    return True


def _unbounded_noise(rate: float, ticks: int) -> float:
    epoch, slots = epoch_of(ticks, False)
    variance = 0.0
    for epoch_number in range(epoch + 1):
        shape = TreeShape.of_epoch(epoch_number, False)
        draws = shape.noise(slots if epoch_number == epoch else None).last
        variance += draws * laplace_variance(rate / shape.rows)
    return variance


@lru_cache(maxsize=64)
def _closed(horizon: int, levels: int) -> NDArray[np.int64]:
    shape = TreeShape.best(horizon, False, levels)
    closed = np.empty(horizon, np.int64)
    closed_levels(shape.weights, shape.capacity, closed)
    return closed


@lru_cache(maxsize=256)
def _closings(horizon: int, levels: int, window: int | None, rows: int | None) -> tuple[int, ...]:
    """Return how many of the ticks close exactly 1, 2, ... levels: of all, of the ``rows`` highest, or of the worst
    window, level by level.
    """
    closed = _closed(horizon, levels)
    if window is not None and window < horizon:
        # The most of each height "at least j" that a window holds: their differences bound every window.
        totals = np.array([[0, *np.cumsum(closed >= j)] for j in range(1, levels + 1)])
        max_closings = (totals[:, window:] - totals[:, :-window]).max(axis=1)
        counts = -np.diff([*max_closings, 0])
    else:
        counts = np.bincount(closed, minlength=levels + 1)[1:]
    if rows is None:
        return tuple(int(many) for many in counts)
    remaining = rows
    highest = [0] * levels
    for level in range(levels, 0, -1):
        highest[level - 1] = min(int(counts[level - 1]), remaining)
        remaining -= highest[level - 1]
    return tuple(highest)
