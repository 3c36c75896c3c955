"""The transform on a mechanism that the library does not ship, and forms of it that do not keep their promise."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from panstream.core.registry import register
from panstream.errors import InvalidParameter
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.intrusion_transform import AccumulatorClosing, AccumulatorOpening, PartialSums
from panstream.papers.counters.logarithmic import LogarithmicMechanism
from panstream.papers.counters.simple_counters import SimpleCounterII
from tests.algorithms.continual.view_matrix import (
    ScriptedSource,
    count_memberships,
    slots_in_one_step,
    slots_of_steps,
    views,
)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevelCounter(PartialSums):
    """All that it takes to make a mechanism of one's own pan-private: here that of Chan, Shi and Song with two levels,
    every slot and every block of slots.
    """

    needs_horizon = True
    memberships = 2
    shape = (2, 2, 0)

    @property
    def block(self):
        return max(1, math.isqrt(self.horizon))

    def opens(self, slot):
        yield AccumulatorOpening(0, 1)
        if (slot - 1) % self.block == 0:
            yield AccumulatorOpening(1, self.block)

    def closes(self, slot):
        if slot % self.block == 0:  # the block's sum replaces its slots
            yield AccumulatorClosing(0, 0)
            yield AccumulatorClosing(1, 1, adds=True)
        else:
            yield AccumulatorClosing(0, 0, adds=slot % self.block != 1)

    def answer_indices(self, slot):
        return (1,) if slot % self.block == 0 else (0, 1)

    def answer_parts(self, time):
        return ((2 * (time // self.block + time % self.block), self.law),)


EPSILON = 1.3


@pytest.mark.parametrize("updates", [0, 1, 2])
def test_a_foreign_mechanism_loses_exactly_its_claim(updates):
    algorithm = TwoLevelCounter(epsilon=EPSILON, horizon=9, one_step_ticks=updates == 0)
    steps = slots_in_one_step(9) if updates == 0 else slots_of_steps(5, updates)
    assert views(algorithm, steps).loss() == pytest.approx(EPSILON, abs=1e-7)


def test_a_foreign_mechanism_counts():
    values = np.random.default_rng(0).integers(0, 2, 100)
    exact = TwoLevelCounter(epsilon=math.inf, horizon=100).start()
    assert np.array_equal(exact.tick_many(values).value, np.cumsum(values))
    noisy = TwoLevelCounter(epsilon=1.0, horizon=100)
    monitor = noisy.start()
    errors = monitor.tick_many(values).standard_error
    # A block of sqrt(T) sums: at most 9 slots and 10 blocks, against 2T draws of the simple counter II.
    assert errors.max() ** 2 <= noisy.law.variance * 2 * 19
    monitor.refresh()


def test_a_foreign_mechanism_may_be_made_unbounded():
    algorithm = HybridMechanism(epsilon=EPSILON, bounded="TwoLevelCounter")
    assert views(algorithm, slots_of_steps(7, 1)).loss() == pytest.approx(EPSILON, abs=1e-7)
    values = np.random.default_rng(3).integers(0, 2, 300)
    exact = HybridMechanism(epsilon=math.inf, bounded="TwoLevelCounter").start()
    assert np.array_equal(exact.tick_many(values).value, np.cumsum(values))


@pytest.mark.parametrize("bounded", ["LogarithmicMechanism", "OptBern", "NoSuchThing", "SimpleCounterII"])
def test_only_counters_with_a_horizon_can_be_made_unbounded(bounded):
    with pytest.raises(InvalidParameter, match="bounded must be"):
        HybridMechanism(epsilon=1.0, bounded=bounded)


@pytest.mark.parametrize(
    ("kind", "slots", "memberships"), [(TwoLevelCounter, 16, 2), (BinaryMechanism, 16, 5), (SimpleCounterII, 9, 1)]
)
def test_memberships_by_walking(kind, slots, memberships):
    algorithm = kind(epsilon=1.0, horizon=slots)
    assert count_memberships(algorithm, slots) == algorithm.memberships == memberships


@pytest.mark.parametrize("slots", [1, 2, 7, 8, 33])
def test_doubling_sums_hold_a_slot_once(slots):
    assert count_memberships(LogarithmicMechanism(epsilon=1.0), slots) == 1


class WithoutStartNoise:
    """The sums in memory are clear until they are released."""

    def _open(self, state, slot, rng):
        for opening in self.opens(slot):
            state.open[opening.accumulator] = 0
            state.open_draws[opening.accumulator] = 0


class WithoutReleaseNoise:
    """Noise at the start only: a release minus the state that was seen shows what came in between."""

    def _close(self, state, closing, rng):
        at = closing.accumulator
        place = closing.slot
        state.closed[place] = state.open[at] + (state.closed[place] if closing.adds else 0)
        state.open[at] = 0
        state.open_draws[at] = -1


class OneNoiseForAll:
    """All accumulators that open together start with the same draw."""

    def _open(self, state, slot, rng):
        openings = list(self.opens(slot))
        shared = np.zeros(1, np.int64)
        if openings:
            rng.add_discrete_laplace(shared, self.law)
        for opening in openings:
            state.open[opening.accumulator] = shared[0]
            state.open_draws[opening.accumulator] = 1


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize(
    ("broken", "loss"),
    [(WithoutStartNoise, math.inf), (WithoutReleaseNoise, math.inf), (OneNoiseForAll, EPSILON * 4 / 3)],
)
def test_broken_transforms_are_caught(broken, loss, updates):
    class Broken(broken, BinaryMechanism):
        def close(self, state, slots, rng):
            self.transform(state, state.time, slots, rng)

    algorithm = Broken(epsilon=EPSILON, horizon=5)
    found = views(algorithm, slots_of_steps(5, updates))
    assert found.loss([None]) <= EPSILON + 1e-7  # the outputs alone are fine
    assert found.loss() == pytest.approx(loss)


def test_slots_of_several_steps_need_noise_in_the_leaf():
    """What is sound if a tick is one step is not if an intruder can look between an update and the tick."""

    class Careless(BinaryMechanism):
        def batch(self, values):
            return self.grid.read(values)

    careless = Careless(epsilon=EPSILON, horizon=4, one_step_ticks=True)
    assert views(careless, slots_in_one_step(4)).loss() == pytest.approx(EPSILON, abs=1e-7)
    assert views(careless, slots_of_steps(4, 1)).loss() == math.inf


@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_answers_hold_the_draws_that_their_errors_say_and_no_others(one_step_ticks):
    """The weight of every draw in every answer is read off the shipped code, one draw at a time."""
    algorithm = TwoLevelCounter(epsilon=EPSILON, horizon=16, one_step_ticks=one_step_ticks)
    with ScriptedSource({}) as rng:
        said = algorithm.tick_many(algorithm.initial_state(rng), [0] * 11, rng).standard_error
    weights = np.zeros((11, len(rng.kappas)))
    for draw in range(len(rng.kappas)):
        with ScriptedSource({draw: 1}) as rng:
            weights[:, draw] = algorithm.tick_many(algorithm.initial_state(rng), [0] * 11, rng).unclipped
    blocks, slots = np.divmod(np.arange(1, 12), 4)
    held = 2 * blocks + (slots if one_step_ticks else 2 * slots)  # one draw at the start of a sum and one at its end
    assert (weights != 0).sum(axis=1).tolist() == held.tolist()
    assert said**2 == pytest.approx((weights**2).sum(axis=1) * algorithm.law.variance)
