"""Counts with correlated noise: the loss of the shipped steps is the claim, and answers are as far off as stated."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.continual import gauss_markov, gauss_markov_noise
from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.sums import ContinualCount
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidParameter, NotSupported
from panstream.primitives.kernels.algorithms.gauss_markov import constant_information
from panstream.primitives.noise import SeededSource
from panstream.privacy.composition import zcdp_epsilon, zcdp_rho
from panstream.privacy.gauss_markov_loss import (
    LEAST_ORDER,
    MOST_ORDER,
    constant_bound,
    event_loss,
    fresh_variance,
    gauss_markov_variances,
    level_exponents,
    order_of,
)
from panstream.testing.enumeration import Step, refresh
from panstream.testing.linear_views import linear_views
from tests.algorithms.continual.linear_view import neighbours, one_step, several_steps
from tests.algorithms.continual.test_gaussian_counters import zcdp

DELTA = 1e-6
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA}
RHO = zcdp_rho(1.0, DELTA)
AMPLITUDE = 1 << 24  # of scripted noise: what rounding moves is far below


def table_entry(order: int, one_step_ticks: bool) -> float:
    """Return what the table in privacy should hold."""
    exponents = level_exponents(order, one_step_ticks=one_step_ticks)
    fresh = fresh_variance(one_step_ticks=one_step_ticks)
    decays = np.array([0.0, *(1.0 - 2.0**-k for k in exponents)])
    variances = np.array([fresh, *[1.0] * len(exponents)])
    if one_step_ticks:
        return constant_information(decays, variances, 1 << order)
    return constant_information(decays, variances, (1 << order) - 1) + 1.0 / fresh


def largest(algorithm: Any, stream: list[Step], streams: Any = None, **options: Any) -> float:
    """Return the largest zCDP of one copy with all outputs, by least squares on the shipped steps."""
    views = linear_views(algorithm, stream, streams or neighbours(stream), amplitude=AMPLITUDE, **options)
    losses = []
    for view in views:  # numbers have different units: each is divided by its standard deviation
        spread = np.linalg.norm(view.matrix / view.kappas, axis=1)
        spread[spread == 0.0] = 1.0
        losses.append(zcdp(replace(view, matrix=view.matrix / spread[:, None], shifts=view.shifts / spread)))
    return max(losses)


@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize("order", [LEAST_ORDER, 7, 10, 13, pytest.param(20, marks=pytest.mark.slow)])
def test_the_table_holds_what_the_filter_computes(order: int, one_step_ticks: bool) -> None:
    exact = table_entry(order, one_step_ticks)
    assert exact <= constant_bound(order, one_step_ticks=one_step_ticks) <= exact + 1.1e-6


@pytest.mark.parametrize("ticks", [1, 2, 9, 40])
def test_the_filter_computes_the_information_about_a_constant(ticks: int) -> None:
    decays = np.array([0.0, 0.5, 0.875])
    variances = np.array([2.0, 1.0, 3.0])
    times = np.arange(1, ticks + 1)
    covariance = np.diag(np.full(ticks, variances[0]))
    for decay, variance in zip(decays[1:], variances[1:], strict=True):
        apart = np.abs(times[:, None] - times)
        first = np.minimum(times[:, None], times)
        covariance += variance * decay**apart * (1.0 - decay ** (2 * first))
    exact = np.ones(ticks) @ np.linalg.solve(covariance, np.ones(ticks))
    assert math.isclose(constant_information(decays, variances, ticks), exact, rel_tol=1e-9)


@pytest.mark.parametrize("one_step_ticks", [False, True])
def test_the_shipped_steps_lose_what_is_claimed(one_step_ticks: bool) -> None:
    algorithm = GaussMarkovCount(**BUDGET, horizon=16, one_step_ticks=one_step_ticks)
    stream = one_step(16) if one_step_ticks else several_steps(16)
    loss = largest(algorithm, stream)
    assert 0.97 * RHO < loss <= RHO
    assert algorithm.gaussian_losses()[0] == RHO


def test_half_of_the_noise_loses_four_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = GaussMarkovCount(**BUDGET, horizon=16)
    real = gauss_markov_variances

    def quarter(*args: Any, **options: Any) -> Any:
        full = real(*args, **options)
        return replace(full, count=full.count / 4, fresh=full.fresh / 4, level=full.level / 4)

    monkeypatch.setattr(gauss_markov_noise, "gauss_markov_variances", quarter)
    gauss_markov_noise.gauss_markov_noise.cache_clear()
    try:
        assert largest(algorithm, several_steps(16), looks=[4, 16, 31]) > 3.8 * RHO
    finally:
        gauss_markov_noise.gauss_markov_noise.cache_clear()


def test_the_noise_of_one_step_ticks_is_not_enough_for_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = GaussMarkovCount(**BUDGET, horizon=16)
    cheaper = GaussMarkovCount(**BUDGET, horizon=16, one_step_ticks=True).noise()
    monkeypatch.setattr(GaussMarkovCount, "noise", lambda self, epoch=0: cheaper)
    assert largest(algorithm, several_steps(16), looks=[20, 31]) > 1.5 * RHO


def test_epochs_lose_no_more_than_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauss_markov, "_EPOCHS", (4, 4, 4))
    loss = largest(GaussMarkovCount(**BUDGET), several_steps(19), looks=[None, 0, 15, 31, 34, 37])
    assert 0.9 * RHO < loss <= RHO


def test_any_number_of_announced_copies_is_covered() -> None:
    algorithm = GaussMarkovCount(**BUDGET, horizon=16)
    stream = several_steps(8)
    stream[9:9] = [refresh()]
    stream[5:5] = [refresh()]
    assert 0.5 * RHO < largest(algorithm, stream, looks=[None, *range(10, len(stream) + 1)]) <= RHO
    copied = [*stream[:5], Step("copied", ()), *stream[6:]]
    assert largest(algorithm, copied, looks=[8]) == math.inf


def test_a_user_of_several_events_loses_no_more() -> None:
    algorithm = GaussMarkovCount(**BUDGET, horizon=4, contributions=3)
    stream = several_steps(4)
    updates = [index for index, step in enumerate(stream) if step.verb == "update"]
    spread = []
    for index in updates:
        changed = list(stream)
        changed[index] = Step("update", (("values", (1, 1, 1)),))
        spread.append(changed)
    assert 0.5 * RHO < largest(algorithm, stream, spread) <= RHO
    one = event_loss(1.0, DELTA, 4, 3, one_step_ticks=False)
    assert 0.5 * RHO / 9 < largest(algorithm, stream) <= one
    event = algorithm.claim().event_epsilon
    assert event is not None
    assert math.isclose(event, zcdp_epsilon(one, DELTA))


def test_answers_are_as_far_off_as_stated() -> None:
    # 400 runs: the mean of squares is within 5 standard deviations, 5·sqrt(2/400).
    algorithm = GaussMarkovCount(**BUDGET, horizon=64)
    rng = SeededSource(5)
    scores = []
    for _ in range(400):
        monitor = Monitor(algorithm, rng=rng)
        monitor.update(7)
        found = monitor.tick_many(np.ones(64, np.int64))
        scores.append((found.unclipped - 7 - np.arange(1, 65)) / found.standard_error)
    squares = np.mean(np.square(scores), axis=0)
    assert abs(squares[[0, 20, 63]] - 1.0).max() < 5.0 * math.sqrt(2.0 / 400)
    assert abs(np.mean(scores, axis=0)[[0, 20, 63]]).max() < 5.0 / math.sqrt(400)


def test_answers_after_a_refresh_and_an_epoch_are_as_far_off_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauss_markov, "_EPOCHS", (4, 4, 4))
    rng = SeededSource(6)
    scores = []
    for _ in range(400):
        monitor = Monitor(GaussMarkovCount(**BUDGET), rng=rng)
        monitor.tick_many([1] * 10)
        monitor.refresh(rows_since_copy=False)
        estimate = monitor.tick_many([1] * 20)
        scores.append((estimate.unclipped[[0, -1]] - [11, 30]) / estimate.standard_error[[0, -1]])
    assert abs(np.mean(np.square(scores), axis=0) - 1.0).max() < 5.0 * math.sqrt(2.0 / 400)


def test_single_ticks_and_many_give_one_law() -> None:
    answers = []
    for single in (False, True):
        monitor = Monitor(GaussMarkovCount(epsilon=math.inf, delta=DELTA, horizon=40))
        monitor.update([1, 1, -1])
        values = [monitor.tick().value for _ in range(3)] if single else monitor.tick_many([0, 0, 0]).value.tolist()
        answers.append(values)
        assert monitor.release().value == values[-1]
    assert answers[0] == answers[1] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("order", [10, 14, 20])
def test_the_error_is_half_of_that_of_a_tree(order: int) -> None:
    horizon = 1 << order
    tree = ContinualCount(**BUDGET, horizon=horizon)
    correlated = GaussMarkovCount(**BUDGET, horizon=horizon)
    mean = tree.engine.shape(0).noise(horizon).mean * tree.engine.law().variance
    assert correlated.variance_at(horizon) < 0.58 * mean


def test_without_a_horizon_the_mean_error_is_at_most_half_as_much_again() -> None:
    endless = GaussMarkovCount(**BUDGET)
    for order in range(10, 22):
        total = 0.0
        reached = 0
        for end in (1 << 10, (1 << 10) + (1 << 15), (1 << 10) + (1 << 15) + (1 << 20), 1 << 22):
            stop = min(end, 1 << order)
            total += max(0, stop - reached) * endless.variance_at(stop)
            reached = max(reached, stop)
        bounded = GaussMarkovCount(**BUDGET, horizon=1 << order).variance_at(1)
        assert total / (1 << order) <= 1.5 * bounded


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="delta must be above 0"):
        GaussMarkovCount(epsilon=1.0, delta=0.0)
    with pytest.raises(InvalidParameter, match="horizon must be at most 2\\*\\*24"):
        GaussMarkovCount(**BUDGET, horizon=(1 << 24) + 1)
    with pytest.raises(InvalidParameter, match="epsilon must be larger"):
        GaussMarkovCount(epsilon=1e-4, delta=DELTA, horizon=100)
    with pytest.raises(InvalidParameter, match="epsilon must be smaller"):
        GaussMarkovCount(epsilon=1e7, delta=DELTA, horizon=100)
    with pytest.raises(NotSupported, match="one_step_ticks"):
        GaussMarkovCount(**BUDGET, horizon=5, one_step_ticks=True).start().tick()
    monitor = GaussMarkovCount(**BUDGET, horizon=2).start()
    with pytest.raises(BudgetExhausted):
        monitor.tick_many([1, 1, 1])
    assert order_of(1 << 24) == MOST_ORDER
