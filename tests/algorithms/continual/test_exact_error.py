"""Errors that counters predict, against the exact variance of their answers.

The shipped code is driven once for every draw of noise, which shows what each draw does to each answer; the variance of
an answer is the sum of the squares times the variance of one draw, and nothing of it comes from the formulas under
test.
"""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.logarithmic import LogarithmicMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI, SimpleCounterII
from panstream.testing.linear_views import linear_views
from panstream.testing.sources import ScriptedSource
from tests.algorithms.continual.linear_view import one_step, several_steps

SLOTS = 13
COUNTERS = {
    "simple one": lambda **more: SimpleCounterI(epsilon=0.8, horizon=SLOTS, **more),
    "simple two": lambda **more: SimpleCounterII(epsilon=0.8, **more),
    "event": lambda **more: EventCounter(epsilon=0.8, horizon=SLOTS, **more),
    "binary": lambda **more: BinaryMechanism(epsilon=0.8, horizon=SLOTS, **more),
    "logarithmic": lambda **more: LogarithmicMechanism(epsilon=0.8, **more),
    "hybrid": lambda **more: HybridMechanism(epsilon=0.8, **more),
    "window": lambda **more: WindowedSum(epsilon=0.8, window=5, **more),
    "exponential": lambda **more: DecayedSum(epsilon=0.8, decay="exponential", rate=0.9, **more),
    "fractions": lambda **more: BinaryMechanism(epsilon=0.8, horizon=SLOTS, resolution=0.125, **more),
    "tree": lambda **more: KaryTree(epsilon=0.8, horizon=SLOTS, **more),
    "count without end": lambda **more: ContinualCount(epsilon=0.8, **more),
    "sum": lambda **more: ContinualSum(epsilon=0.8, horizon=SLOTS, lower=0.0, upper=3.0, resolution=0.5, **more),
}
SLOT_COUNTERS = list(COUNTERS)[:9]
AMPLITUDE = 1 << 20  # decayed sums are rounded


def weights(counter, single):
    """Return what every draw does to every answer, and the decay rates of the draws."""
    world = one_step(SLOTS) if single else several_steps(SLOTS)
    value = lambda state, result: np.atleast_1d(np.asarray(result.unclipped, float))  # noqa: E731
    (view,) = linear_views(counter, world, [], looks=[None], published=value, amplitude=AMPLITUDE)
    return view.matrix, view.kappas


def exact_variances(counter, single):
    matrix, kappas = weights(counter, single)
    return (matrix**2) @ (2 * np.exp(-kappas) / (1 - np.exp(-kappas)) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True], ids=["several steps", "one step"])
@pytest.mark.parametrize("name", COUNTERS)
def test_standard_errors_are_exact_at_every_slot(name, single):
    counter = COUNTERS[name](one_step_ticks=single)
    rng = ScriptedSource({})
    state = counter.initial_state(rng)
    errors = []
    for _ in range(SLOTS):
        if single:
            errors.append(counter.tick_many(state, [0], rng).standard_error[0])
        else:
            errors.append(counter.tick(state, rng).standard_error)
    assert np.square(errors) == pytest.approx(exact_variances(counter, single), rel=1e-5)


@pytest.mark.parametrize("name", COUNTERS)
def test_columns_of_slots_say_the_same_errors_as_single_slots(name):
    counter = COUNTERS[name](one_step_ticks=True)
    rng = ScriptedSource({})
    whole = counter.tick_many(counter.initial_state(rng), [0] * SLOTS, rng)
    assert np.square(whole.standard_error) == pytest.approx(exact_variances(counter, True), rel=1e-5)


@pytest.mark.parametrize("single", [False, True], ids=["several steps", "one step"])
@pytest.mark.parametrize("name", SLOT_COUNTERS)
def test_the_draws_of_an_answer_are_counted_in_advance(name, single):
    counter = COUNTERS[name](one_step_ticks=single)
    step = counter.scale
    said = [
        sum(draws * law.variance for draws, law in counter.answer_parts(time)) * step**2 for time in range(1, SLOTS + 1)
    ]
    assert said == pytest.approx(exact_variances(counter, single), rel=1e-5)


def chernoff(row, kappas, beta):
    """Return the bound of a weighted sum, each draw counted by its squared weight, by scipy's search."""

    def bound(theta):
        moments = np.log((np.cosh(kappas) - 1) / (np.cosh(kappas) - np.cosh(theta)))
        return (row**2 @ moments + math.log(2 / beta)) / theta

    return minimize_scalar(
        bound, bounds=(1e-6, min(kappas) * (1 - 1e-9)), method="bounded", options={"xatol": 1e-10}
    ).fun


@pytest.mark.parametrize("single", [False, True], ids=["several steps", "one step"])
@pytest.mark.parametrize("name", [name for name in SLOT_COUNTERS if name != "fractions"])
def test_error_bounds_are_chernoffs_for_those_draws(name, single):
    counter = COUNTERS[name](one_step_ticks=single)
    matrix, kappas = weights(counter, single)
    for time in (1, 4, 7, SLOTS):
        used = np.abs(matrix[time - 1]) > 1e-9
        expected = chernoff(matrix[time - 1, used], kappas[used], 0.05)
        assert counter.error_bound(beta=0.05, ticks=time) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("single", [False, True], ids=["several steps", "one step"])
@pytest.mark.parametrize("name", ["simple one", "event", "binary"])
def test_without_a_slot_the_bound_is_that_of_the_worst(name, single):
    counter = COUNTERS[name](one_step_ticks=single)
    each = [counter.error_bound(beta=0.01, ticks=time) for time in range(1, SLOTS + 1)]
    assert counter.error_bound(beta=0.01) == pytest.approx(max(each))


@pytest.mark.parametrize("horizon", [1, 6, 13, 40])
def test_the_least_squares_tree_knows_its_mean_and_worst_variance(horizon):
    counter = LeastSquaresTree(epsilon=0.8, horizon=horizon)
    value = lambda state, result: np.atleast_1d(np.asarray(result.unclipped, float))  # noqa: E731
    (view,) = linear_views(counter, one_step(horizon), [], looks=[None], published=value, amplitude=AMPLITUDE)
    exact = (view.matrix**2).sum(axis=1)
    mean, worst = counter.noise(horizon)
    assert (mean, worst) == pytest.approx((exact.mean(), exact.max()), rel=1e-5)
    rng = ScriptedSource({})
    said = counter.tick_many(counter.initial_state(rng), [0] * horizon, rng)
    assert np.square(said.standard_error) == pytest.approx(exact * counter.law.variance, rel=1e-5)
    largest = view.matrix[np.argmax(exact)]
    assert counter.error_bound(beta=0.05) == pytest.approx(1 + chernoff(largest, view.kappas, 0.05), rel=1e-4)
