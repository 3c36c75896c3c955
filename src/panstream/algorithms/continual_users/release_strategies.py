"""Strategies to publish a number of ones at every tick: the budget each leaves for noise, and the one that errs least.

*paid*: n releases, each charged (joint-loss.md). *event*: a tree over the changes, which protects one event
(continual-users.md, Theorem A). *user*: the same tree, with the noise that protects all rows of a user (Theorem B).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.tree_shape import MAX_LEVELS, TreeShape, epoch_of
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
TUNED_TICKS = 1024  # ticks for which a stream without horizon is tuned, and for which its errors are reported
_MAX_USER_HORIZON = 1 << 20  # ticks; Theorem B adds up the loss tick by tick, and the error there exceeds any count
_MAX_TREE_HEIGHT = 8  # levels that are tried
_TOLERANCE = 1e-4  # of the searches for epsilon_state and for the rate of the start


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyInputs:
    """What is published and what is protected: everything that the loss and the error of a strategy depend on."""

    epsilon: float
    cells: int
    density: float  # expected share of present users, for which the split is tuned
    horizon: int | None
    unit: Protected
    window: int | None = None  # ticks
    rows: int | None = None  # of one user; None if there may be any number
    deletions: bool = False

    def closings(self, levels: int) -> tuple[int, ...]:
        """Return at how many ticks exactly 1, 2, ... levels close, among those that one user's rows can affect."""
        assert self.horizon is not None
        return _closings(self.horizon, levels, self.window if self.unit == "user-window" else None, self.rows)

    def unavailable_reason(self, method: Method) -> str | None:
        """Return why a method is impossible here whatever the noise, or None if it is possible."""
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
        if self.horizon > _MAX_USER_HORIZON:
            return f"horizon must be at most {_MAX_USER_HORIZON:,} at user level"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStrategy:
    """One strategy: its public parameters and its error.

    ``rate`` is levels·kappa for a tree and kappa for a paid release. ``start`` is the rate of the noise with which the
    number of ones before the first row is released, 0 if it is not released.
    """

    method: Method
    epsilon_state: float
    levels: int
    rate: float
    start: float
    variance: float = math.nan  # of the number of users among the cells, averaged over ticks, at the tuned density

    def shape(self, horizon: int | None) -> TreeShape | None:
        """Return the tree's shape, or None for a paid release and where every epoch has a tree of its own."""
        return None if horizon is None or self.method == "paid" else TreeShape.best(horizon, False, self.levels)

    def noise(self, horizon: int | None, ticks: int | None = None) -> float:
        """Return the variance of the published number of ones after ``ticks`` ticks, or on average over all."""
        if self.method == "paid":
            return laplace_variance(self.rate)
        shape = self.shape(horizon)
        if shape is None:
            return _unbounded_noise(self.rate, ticks or TUNED_TICKS)
        draws = shape.noise(horizon or 1).mean if ticks is None else shape.noise(ticks).last
        return draws * laplace_variance(self.rate / self.levels)

    def bits_spread(self, cells: int, touched: float, share: float) -> float:
        """Return the variance of the bits in (ones now) - share·(ones at the start), if a part ``touched`` was redrawn.

        The noise of an untouched bit cancels as far as the start is subtracted: m·p0·p1·((1-share)² + 2·share·touched).
        """
        p1 = present_probability(self.epsilon_state)
        return cells * p1 * (1.0 - p1) * ((1.0 - share) ** 2 + 2.0 * share * touched)

    def best_share(self, cells: int, touched: float) -> float:
        """Return the share of the noisy start whose subtraction leaves the smallest variance."""
        if not self.start:
            return 0.0 if self.method == "paid" else 1.0
        p1 = present_probability(self.epsilon_state)
        bits = cells * p1 * (1.0 - p1)
        first = laplace_variance(self.start)
        if not bits + first > 0.0:
            return 0.0
        return ((1.0 - touched) * bits + (0.0 if self.method == "paid" else first)) / (bits + first)

    def variance_at(self, inputs: StrategyInputs, ticks: int | None, density: float) -> float:
        """Return the variance of the number of users among the cells after ``ticks`` ticks, or on average."""
        touched = 1.0 if inputs.deletions else density
        share = self.best_share(inputs.cells, touched)
        start_weight = share if self.method == "paid" else 1.0 - share  # of the noise on the start
        first = start_weight**2 * laplace_variance(self.start) if self.start else 0.0
        spread = self.bits_spread(inputs.cells, touched, share) + first + self.noise(inputs.horizon, ticks)
        return spread / math.tanh(self.epsilon_state / 2.0) ** 2  # p1 - p0 = tanh(epsilon_state/2)


def strategy_from_parameters(
    inputs: StrategyInputs, method: Method, epsilon_state: float, levels: int, start: float
) -> ReleaseStrategy:
    """Return a strategy from its public parameters, with the whole remaining budget spent on the answers."""
    if method != "paid":
        checks.require_integer_in_range(1, MAX_LEVELS, levels=levels)
    if math.isinf(inputs.epsilon):
        return ReleaseStrategy(method=method, epsilon_state=math.inf, levels=levels, rate=math.inf, start=0.0)
    if not 0.0 < epsilon_state < inputs.epsilon:
        raise InvalidParameter(f"epsilon_state must be in (0, {inputs.epsilon}), got epsilon_state={epsilon_state}")
    rate = _rate(inputs, method, epsilon_state, levels, start, exact=True)
    if not rate > 0:
        raise InvalidParameter(
            f"epsilon_state and start must leave something of epsilon={inputs.epsilon}, got "
            f"epsilon_state={epsilon_state} and start={start}"
        )
    return ReleaseStrategy(method=method, epsilon_state=epsilon_state, levels=levels, rate=rate, start=start)


def _rate(inputs: StrategyInputs, method: Method, state: float, levels: int, start: float, *, exact: bool) -> float:
    """Return the rate that the budget leaves for the answers: a proven bound (``exact``), or fast for searches."""
    if method == "event":
        change = max_change_budget if exact else max_change_budget_approx
        return change(inputs.epsilon, state, start, deletions=inputs.deletions)
    if method != "paid":
        closings = inputs.closings(levels)
        windowed = inputs.unit == "user-window"
        return max_flicker_budget(inputs.epsilon, state, levels, closings, windowed=windowed, exact=exact)
    if start:
        if inputs.horizon != 1 or inputs.deletions:
            raise InvalidParameter("start must be 0 unless there is one answer and no deletion")
        return max_single_budget(inputs.epsilon, state, start)
    return (kappa_for if exact else kappa_for_approx)(inputs.epsilon, state, inputs.horizon or 1)


@lru_cache(maxsize=256)
def best_strategy(inputs: StrategyInputs, method: Method | None = None) -> ReleaseStrategy:
    """Return the strategy with the smallest error, of any method or of one ``method``.

    Raises:
        NotSupported: ``method`` is impossible here.
        InvalidParameter: No method is possible.
    """
    if method is not None and (reason := inputs.unavailable_reason(method)):
        raise NotSupported(reason)
    if math.isinf(inputs.epsilon):
        chosen = method or ("paid" if inputs.horizon is not None else "event")
        levels = 0 if chosen == "paid" else TreeShape.best(inputs.horizon or TUNED_TICKS, False).levels
        return strategy_from_parameters(inputs, chosen, math.inf, levels, 0.0)
    reasons = {candidate: inputs.unavailable_reason(candidate) for candidate in METHODS}
    tried = [candidate for candidate, reason in reasons.items() if reason is None] if method is None else [method]
    feasible = [strategy for candidate in tried if (strategy := _best_of(inputs, candidate)) is not None]
    if not feasible:
        raise InvalidParameter(f"unit={inputs.unit!r} is not possible: {'; '.join(filter(None, reasons.values()))}")
    return min(feasible, key=_variance)


@lru_cache(maxsize=1024)
def _best_of(inputs: StrategyInputs, method: Method) -> ReleaseStrategy | None:
    """Return the best split of a method, or None: searched in floats, then recomputed with the proven bounds."""
    if method == "paid":
        heights = [0]
    elif inputs.horizon is None:
        heights = [1]
    else:
        heights = [h for h in range(1, _MAX_TREE_HEIGHT + 1) if _fits(inputs.horizon, h)]
    tried = [_split(inputs, method, levels) for levels in heights]
    best = min((strategy for strategy in tried if strategy.variance < math.inf), key=_variance, default=None)
    if best is None:
        return None
    exact = strategy_from_parameters(inputs, method, best.epsilon_state, best.levels, best.start)
    return replace(exact, variance=exact.variance_at(inputs, None, inputs.density))


def _split(inputs: StrategyInputs, method: Method, levels: int) -> ReleaseStrategy:
    """Return the strategy with the best epsilon_state and, if the start may be released, the best rate for it."""
    at = partial(_with_start, inputs, method, levels)
    return at(minimise(lambda state: at(state).variance, 0.02 * inputs.epsilon, 0.999 * inputs.epsilon, _TOLERANCE))


def _with_start(inputs: StrategyInputs, method: Method, levels: int, state: float) -> ReleaseStrategy:
    at = partial(_approximate_strategy, inputs, method, levels, state)
    plain = at(0.0)
    single = method == "paid" and inputs.horizon == 1 and not inputs.deletions
    if not (method == "event" or single):
        return plain
    if inputs.deletions:
        return at(plain.rate)  # up to the rate of the tree, releasing the start loses nothing further
    max_kappa = kappa_for_approx(inputs.epsilon, state)
    started = at(minimise(lambda start: at(start).variance, 0.01 * max_kappa, 0.99 * max_kappa, _TOLERANCE))
    return min(plain, started, key=_variance)


def _variance(strategy: ReleaseStrategy) -> float:
    return strategy.variance


def _approximate_strategy(
    inputs: StrategyInputs, method: Method, levels: int, state: float, start: float
) -> ReleaseStrategy:
    """Return a strategy up to rounding; its variance is infinite if no budget is left for the answers."""
    rate = _rate(inputs, method, state, levels, start, exact=False)
    strategy = ReleaseStrategy(
        method=method, epsilon_state=state, levels=levels, rate=rate, start=start, variance=math.inf
    )
    return replace(strategy, variance=strategy.variance_at(inputs, None, inputs.density)) if rate > 1e-12 else strategy


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
    """Return how many ticks close exactly 1, 2, ... levels.

    Counted are all ticks, the ``rows`` ticks that close most levels, or, level by level, the worst ``window`` ticks in
    a row.
    """
    closed = _closed(horizon, levels)
    if window is not None and window < horizon:
        # For every j, the largest number of ticks in one window that close at least j levels. The differences bound
        # every window, although no single window may attain all of them.
        totals = np.array([[0, *np.cumsum(closed >= j)] for j in range(1, levels + 1)])
        max_closings = (totals[:, window:] - totals[:, :-window]).max(axis=1)
        counts = -np.diff([*max_closings, 0])
    else:
        counts = np.bincount(closed, minlength=levels + 1)[1:]
    if rows is None:
        return tuple(int(count) for count in counts)
    remaining = rows
    highest = [0] * levels
    for level in range(levels, 0, -1):
        highest[level - 1] = min(int(counts[level - 1]), remaining)
        remaining -= highest[level - 1]
    return tuple(highest)
