"""The binary mechanism: its loop against the transform it implements, its levels, its error at every time."""

import math

import numpy as np
import pytest

from panstream.algorithms.continual.noise_sum_tails import noise_variance
from panstream.algorithms.continual.partial_sum_counter import IDLE, SlotBatch
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.intrusion_transform import PartialSums
from panstream.primitives.noise import SeededSource
from panstream.privacy.continual_loss import binary_levels
from tests.algorithms.continual.view_matrix import ScriptedSource, count_memberships


@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 8, 37, 64])
@pytest.mark.parametrize("one_step_ticks", [False, True])
def test_the_loop_does_what_the_transform_does(horizon, one_step_ticks):
    """Without noise all accumulators, released sums and counts of draws agree after every slot."""
    algorithm = BinaryMechanism(epsilon=1.0, horizon=horizon, one_step_ticks=one_step_ticks)
    values = np.random.default_rng(horizon).integers(-5, 6, horizon)
    fast_state = algorithm.initial_state(ScriptedSource({}))
    slow_state = algorithm.empty_state()
    slow_state.open_draws[:] = IDLE
    PartialSums.initialize(algorithm, slow_state, ScriptedSource({}))
    for at in range(0, horizon, 3):
        piece = values[at : at + 3]
        got = algorithm.advance(fast_state, piece, ScriptedSource({}))
        answers, draws = np.empty((2, piece.size))
        algorithm.transform(slow_state, slow_state.time, SlotBatch(piece, answers, draws), ScriptedSource({}))
        slow_state.time += piece.size
        assert np.array_equal(got[0], answers)
        assert np.allclose(got[1], draws * algorithm.law.variance)
        for name in ("open", "closed", "open_draws", "closed_draws", "time"):
            fast = getattr(fast_state, name)
            twin = getattr(slow_state, name)
            used = [i for i in range(algorithm.memberships) if slow_state.time >> i & 1]
            if name in ("closed", "closed_draws"):
                fast = fast[used]
                twin = twin[used]
            assert np.array_equal(fast, twin), name


@pytest.mark.parametrize("horizon", range(1, 40))
def test_levels_are_what_walking_through_the_plan_finds(horizon):
    algorithm = BinaryMechanism(epsilon=1.0, horizon=horizon)
    assert (
        count_memberships(algorithm, horizon) == algorithm.memberships == binary_levels(horizon) == horizon.bit_length()
    )


@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize("horizon", [1, 2, 6, 13, 31, 46, 100])
def test_the_stated_draws_are_those_of_the_answer(horizon, one_step_ticks):
    algorithm = BinaryMechanism(epsilon=1.0, horizon=horizon, one_step_ticks=one_step_ticks)
    errors = algorithm.start().tick_many(np.zeros(horizon, np.int64)).standard_error
    stated = [math.sqrt(noise_variance(algorithm.answer_parts(time))) for time in range(1, horizon + 1)]
    assert np.allclose(errors, stated)
    worst = max(algorithm.error_bound(beta=0.05, ticks=time) for time in range(1, horizon + 1))
    assert algorithm.error_bound(beta=0.05) == pytest.approx(worst)


@pytest.mark.parametrize(("horizon", "figure"), [(1 << 10, 2420), (1 << 14, 6300), (1 << 16, 9248)])
def test_mean_squared_error_as_derived(horizon, figure):
    """Mean over t of the variance, times epsilon squared: 2·L²·(mean number of digits 1)·2, the design's figures."""
    algorithm = BinaryMechanism(epsilon=0.01, horizon=horizon)
    errors = algorithm.tick_many(algorithm.initial_state(SeededSource(1)), np.zeros(horizon, np.int64), SeededSource(2))
    assert float((errors.standard_error**2).mean()) * 0.01**2 == pytest.approx(figure, rel=0.01)
    drawn = float((errors.unclipped**2).mean()) * 0.01**2
    assert 0.2 * figure < drawn < 4 * figure


def test_long_streams_may_be_given_in_any_pieces():
    algorithm = BinaryMechanism(epsilon=math.inf, horizon=100_000)
    values = np.random.default_rng(4).integers(0, 2, 100_000)
    monitor = algorithm.start()
    pieces = np.split(values, [1, 3, 16_384, 16_385, 40_000, 99_999])
    answers = np.concatenate([monitor.tick_many(piece).unclipped for piece in pieces])
    assert np.array_equal(answers, np.cumsum(values))
