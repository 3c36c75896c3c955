"""The event-level counter against a literal twin of Algorithm 1, and the exact number of draws that an event moves."""

import numpy as np
import pytest

from panstream.papers.counters.event_counter import EventCounter
from panstream.privacy.continual_loss import event_counter_memberships, segment_levels
from tests.algorithms.continual.view_matrix import ScriptedSource, slots_in_one_step, slots_of_steps, views


def algorithm_one(values, levels, count, noise_of):
    """Steps 1 to 4 of Algorithm 1 for x_0 .. x_(T-1), with segments named by (length, start)."""
    outputs = []
    running = {}
    for t, x in enumerate(values):
        count += x
        for i in range(1, levels + 1):
            length = 2 ** (levels - i)
            if t % length == 0:
                running[length, t] = noise_of(length, t)
        outputs.append(count + sum(running.values()))
        running = {(length, start): n for (length, start), n in running.items() if start + length - 1 != t}
    return outputs


@pytest.mark.parametrize("horizon", [2, 3, 5, 8, 16, 21])
def test_outputs_are_those_of_algorithm_one(horizon):
    algorithm = EventCounter(epsilon=1.0, horizon=horizon)
    values = np.random.default_rng(horizon).integers(0, 2, horizon)
    script = {i: 1000 * i * i + 1 for i in range(400)}
    rng = ScriptedSource(script)
    state = algorithm.initial_state(rng)
    answers = algorithm.tick_many(state, values, rng).value
    drawn = iter([1000 * i * i + 1 for i in range(1, 400)])
    noises = {}
    levels = segment_levels(horizon)
    for t in range(horizon):  # the loop draws the segments that begin at t from short to long
        for length in [2**i for i in range(levels) if t % 2**i == 0]:
            noises[length, t] = next(drawn)
    assert answers.tolist() == algorithm_one(values, levels, script[0], lambda length, t: noises[length, t])


@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize(
    "horizon", [*range(1, 6), 8, 9, *(pytest.param(t, marks=pytest.mark.slow) for t in (7, 16, 17))]
)
def test_an_event_moves_exactly_so_many_draws(horizon, one_step_ticks):
    """The paper's 1 + ceil(log2 T) is one too many except where T is a power of two (2, 4, 8 if ticks are one step)."""
    algorithm = EventCounter(epsilon=1.0, horizon=horizon, one_step_ticks=one_step_ticks)
    steps = slots_in_one_step(horizon) if one_step_ticks else slots_of_steps(horizon, 1)
    found = views(algorithm, steps)
    # The cases that decide: looks around the event at the start, the middle and the end, and none at all.
    ends = [0, 1, 2, 3, len(steps) // 2, len(steps) - 2, len(steps) - 1, len(steps)]
    looks = [None, *range(len(steps) + 1)] if horizon < 10 else [None, *ends]
    moved = found.loss([look for look in looks if look is None or look >= 0]) / algorithm.law.kappa
    assert moved == pytest.approx(event_counter_memberships(horizon, one_step_ticks=one_step_ticks), abs=1e-5)
    assert moved <= 1 + segment_levels(horizon)


def test_noise_of_ended_segments_is_erased():
    algorithm = EventCounter(epsilon=0.01, horizon=8)
    monitor = algorithm.start()
    monitor.tick_many([0] * 4)
    assert monitor.state.kept.tolist() == [0, 0, 0]  # all segments that hold times 0..3 have ended
    assert (monitor.state.kept_draws == -1).all()
    monitor.tick_many([0])
    assert (monitor.state.kept[1:] != 0).any()
    assert monitor.state.kept_draws.tolist() == [-1, 1, 1]
