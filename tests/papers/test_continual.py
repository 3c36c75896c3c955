"""The literal forms of Budaeva et al. 2013: their true losses, found by the same linear program."""

import math

import numpy as np
import pytest

from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter, NotSupported
from panstream.papers.as_printed.counters import (
    PublishedAverage,
    PublishedBinary,
    PublishedHybrid,
    PublishedInitialNoise,
    PublishedPointNoise,
    PublishedSimpleCounterI,
    PublishedVariance,
    _ClearState,
)
from panstream.primitives.codec import field_role
from panstream.primitives.noise import SeededSource
from tests.algorithms.continual.view_matrix import slots_in_one_step, slots_of_steps, tick, update, views
from tests.zero_noise import ZeroNoiseSource

EPSILON = 0.6
COUNTERS = [PublishedBinary, PublishedInitialNoise, PublishedHybrid, PublishedSimpleCounterI, PublishedPointNoise]
ALL = [*COUNTERS, PublishedAverage, PublishedVariance]
AFTER_TICKS = slots_of_steps(8, 1)


def closed_slots(steps):
    """Looks that come right after a tick, when nothing is pending."""
    return [0, *(at + 1 for at, step in enumerate(steps) if step == tick())]


@pytest.mark.parametrize("bound", [1, 4])
@pytest.mark.parametrize("kind", ALL)
def test_outputs_lose_exactly_what_the_claim_says(kind, bound):
    algorithm = kind(epsilon=EPSILON, horizon=8, bound=bound)
    found = views(algorithm, AFTER_TICKS, event=bound)
    assert found.loss([None]) == pytest.approx(algorithm.output_loss, rel=1e-6)
    assert algorithm.claim().parts["output"] == algorithm.output_loss


@pytest.mark.parametrize("kind", ALL)
def test_one_look_at_closed_slots_shows_the_claimed_joint_loss(kind):
    algorithm = kind(epsilon=EPSILON, horizon=8, bound=2)
    found = views(algorithm, AFTER_TICKS, event=2)
    assert found.loss(closed_slots(AFTER_TICKS)) == pytest.approx(algorithm.claim().epsilon, rel=1e-6)


@pytest.mark.parametrize("kind", ALL)
def test_a_look_at_an_open_slot_shows_it_in_the_clear(kind):
    algorithm = kind(epsilon=EPSILON, horizon=4)
    steps = [update(0), tick(), update(0), tick()]
    assert views(algorithm, steps).loss([3]) == math.inf


@pytest.mark.parametrize(("horizon", "factor"), [(2, 2.0), (8, 4 / 3), (64, 7 / 6)])
def test_too_few_levels(horizon, factor):
    """eps/(N·log T): found by the linear program for 2 and 8, and by counting sums for 64."""
    assert PublishedBinary(epsilon=EPSILON, horizon=horizon).output_loss == pytest.approx(EPSILON * factor)
    if horizon <= 8:
        algorithm = PublishedBinary(epsilon=EPSILON, horizon=horizon, bound=3)
        assert views(algorithm, slots_in_one_step(horizon), event=3).loss([None]) == pytest.approx(EPSILON * factor)


def test_average_and_variance_on_a_real_range():
    """On 0..100 over 1,024 slots the published average loses 55.6·epsilon and the variance 5557·epsilon."""
    assert PublishedAverage(epsilon=1.0, horizon=1024, bound=100).output_loss == pytest.approx(55.55)
    assert PublishedVariance(epsilon=1.0, horizon=1024, bound=100).output_loss == pytest.approx(5557.2)
    assert PublishedPointNoise(epsilon=0.1, horizon=1024, bound=100).claim().epsilon == pytest.approx(10.0)


@pytest.mark.parametrize("kind", [PublishedBinary, PublishedInitialNoise, PublishedHybrid, PublishedSimpleCounterI])
def test_counts_are_exact_without_noise(kind):
    algorithm = kind(epsilon=1.0, horizon=100, bound=5)
    values = np.random.default_rng(0).integers(0, 6, 100)
    rng = ZeroNoiseSource()
    assert np.array_equal(algorithm.tick_many(algorithm.initial_state(rng), values, rng).value, np.cumsum(values))


def test_average_and_variance_are_exact_without_noise():
    values = np.random.default_rng(1).integers(1, 50, 64)
    rng = ZeroNoiseSource()
    average = PublishedAverage(epsilon=1.0, horizon=64, bound=50)
    variance = PublishedVariance(epsilon=1.0, horizon=64, bound=50)
    assert average.tick_many(average.initial_state(rng), values, rng).value[-1] == pytest.approx(values.mean())
    assert variance.tick_many(variance.initial_state(rng), values, rng).value[-1] == pytest.approx(values.var(ddof=1))
    assert math.isnan(
        average.tick_many(average.initial_state(rng), [0], rng).value[0]
    )  # nothing guards an empty stream
    assert math.isnan(variance.tick_many(variance.initial_state(rng), [3], rng).value[0])


def test_a_value_of_zero_counts_as_no_data():
    average = PublishedAverage(epsilon=1.0, horizon=64, bound=50)
    rng = ZeroNoiseSource()
    assert average.tick_many(average.initial_state(rng), [10, 0, 0, 0], rng).value[-1] == 10  # the mean is 2.5


def test_the_spread_is_that_of_the_published_noise():
    algorithm = PublishedSimpleCounterI(epsilon=0.2, horizon=2)
    rng = SeededSource(4)
    outputs = np.array([algorithm.tick_many(algorithm.initial_state(rng), [1], rng).value[0] for _ in range(3000)])
    assert outputs.mean() == pytest.approx(1, abs=0.8)
    assert outputs.std() == pytest.approx(math.sqrt(2) / 0.2, rel=0.12)


@pytest.mark.parametrize("kind", ALL)
def test_shared_rules(kind):
    algorithm = kind(epsilon=EPSILON, horizon=4, bound=2)
    monitor = Monitor(algorithm)
    monitor.update([1])
    assert monitor.tick().claim.epsilon == algorithm.claim().epsilon
    assert "published as 0.6-pan-private" in algorithm.claim().note
    for bad in ([3], [-1], [None], [1.5]):
        with pytest.raises(InvalidBatch):
            monitor.update(bad)
    monitor.tick_many([1, 2])
    with pytest.raises(BudgetExhausted):
        monitor.tick_many([1, 1])
    monitor.tick()
    with pytest.raises(BudgetExhausted):
        monitor.tick()
    for refused in (monitor.refresh, monitor.release, lambda: algorithm.error_bound(beta=0.1)):
        with pytest.raises(NotSupported):
            refused()
    for name in _ClearState.__dataclass_fields__.values():
        assert field_role(name) is None  # so that the conformance suite would refuse it
    for more in ({"epsilon": 0.0}, {"horizon": 1}, {"bound": 0}):
        with pytest.raises(InvalidParameter):
            kind(**{"epsilon": 1.0, "horizon": 4, "bound": 2, **more})
    assert set(algorithm.layout()) == set(_ClearState.__dataclass_fields__)
