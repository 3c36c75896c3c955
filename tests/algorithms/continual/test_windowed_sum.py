"""Sliding windows: nodes cover the window exactly once, with the stated number of draws, in memory O(W)."""

import numpy as np
import pytest

from panstream.algorithms.continual.noise_sum_tails import noise_variance
from panstream.algorithms.continual.windowed_sum import WindowedSum, _cover, _max_nodes
from panstream.errors import InvalidParameter
from panstream.primitives.noise import SeededSource
from panstream.privacy.continual_loss import segment_levels
from tests.algorithms.continual.view_matrix import ScriptedSource

WINDOWS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16]


@pytest.mark.parametrize("window", WINDOWS)
def test_nodes_cover_the_window_exactly_once(window):
    for time in range(1, 3 * window + 2):
        block, offset = divmod(time - 1, window)
        covered = []
        nodes = _cover(time, window)
        for place, start, stop in nodes:
            current = start <= offset
            covered += [(block if current else block - 1) * window + at for at in range(start, stop)]
            assert place < WindowedSum(epsilon=1.0, window=window).shape[1]
        assert sorted(covered) == list(range(max(0, time - window), time))
        assert len(nodes) <= _max_nodes(window) <= max(1, 2 * segment_levels(window))
        assert len({place for place, _, _ in nodes}) == len(nodes)


@pytest.mark.parametrize("window", [4, 16, 64, 256])
def test_powers_of_two_need_at_most_one_node_more_than_levels(window):
    assert _max_nodes(window) == segment_levels(window) + 1


@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_stated_draws_and_released_nodes_are_those_of_the_answer(window, one_step_ticks):
    algorithm = WindowedSum(epsilon=1.0, window=window, one_step_ticks=one_step_ticks)
    source = ScriptedSource({i: 7**i % 1009 - 500 for i in range(2000)})
    state = algorithm.initial_state(source)
    for time in range(1, 3 * window + 2):
        row = algorithm.tick_many(state, [1], source)
        again = algorithm.release(state, source)
        assert again.unclipped == row.unclipped[0] == sum(again.released)
        assert row.standard_error[0] ** 2 == pytest.approx(noise_variance(algorithm.answer_parts(time)))
        assert row.standard_error[0] == pytest.approx(again.standard_error)
        assert algorithm.error_bound(beta=0.1, ticks=time) <= algorithm.error_bound(beta=0.1) * (1 + 1e-9)


def test_memory_does_not_grow_with_the_stream():
    algorithm = WindowedSum(epsilon=1.0, window=100)
    monitor = algorithm.start()
    before = len(monitor.to_bytes())
    monitor.tick_many(np.zeros(5000, np.int64))
    assert len(monitor.to_bytes()) == before < 20 * 8 * 100


def test_error_stays_bounded_for_ever():
    algorithm = WindowedSum(epsilon=1.0, window=50)
    answers = algorithm.tick_many(algorithm.initial_state(SeededSource(1)), np.ones(20_000, np.int64), SeededSource(2))
    late = np.abs(answers.unclipped[50:] - 50)
    assert float((late > algorithm.error_bound(beta=0.01)).mean()) < 0.01
    assert answers.standard_error[50:].max() < 2 * answers.standard_error[:50].max()


@pytest.mark.parametrize("window", [0, -1, (1 << 26) + 1])
def test_windows_out_of_range_are_refused(window):
    with pytest.raises(InvalidParameter, match="window must be"):
        WindowedSum(epsilon=1.0, window=window)


@pytest.mark.parametrize("resolution", [None, 0.125])
def test_the_error_at_any_slot_is_that_of_the_worst(resolution):
    algorithm = WindowedSum(epsilon=1.0, window=13, lower=0.0, upper=2.0, resolution=resolution)
    worst = max(algorithm.error_bound(beta=0.1, ticks=time) for time in range(1, 40))
    assert algorithm.error_bound(beta=0.1) == pytest.approx(worst, rel=1e-9)
