"""What all counters of the papers share: exact answers without noise, refusals, bytes, honest errors and intervals."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter, NotSupported
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.logarithmic import LogarithmicMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI, SimpleCounterII
from panstream.primitives.noise import SeededSource
from panstream.testing.enumeration import snapshot
from tests.statistical import assert_mean, assert_rate


def running(x):
    return np.cumsum(x)


def up_to_power_of_two(x):
    time = np.arange(1, x.size + 1)
    return np.cumsum(x)[2 ** np.floor(np.log2(time)).astype(int) - 1]


def last_five(x):
    return np.array([x[max(0, t - 5) : t].sum() for t in range(1, x.size + 1)])


def decayed(weights):
    return lambda x: np.array([(weights(np.arange(t)) * x[:t][::-1]).sum() for t in range(1, x.size + 1)])


TRUTH = {
    "simple one": (SimpleCounterI, {"horizon": 200}, running),
    "simple two": (SimpleCounterII, {}, running),
    "event": (EventCounter, {"horizon": 200}, running),
    "binary": (BinaryMechanism, {"horizon": 200}, running),
    "logarithmic": (LogarithmicMechanism, {}, up_to_power_of_two),
    "hybrid binary": (HybridMechanism, {}, running),
    "hybrid event": (HybridMechanism, {"bounded": "EventCounter"}, running),
    "hybrid simple": (HybridMechanism, {"bounded": "SimpleCounterI"}, running),
    "window": (WindowedSum, {"window": 5}, last_five),
    "exponential": (DecayedSum, {"decay": "exponential", "rate": 0.9}, decayed(lambda a: 0.9**a)),
    "polynomial": (DecayedSum, {"decay": "polynomial", "rate": 1.5}, decayed(lambda a: (1.0 + a) ** -1.5)),
}
NAMES = list(TRUTH)
BOUNDED = ["simple one", "event", "binary"]


def build(name, **more):
    kind, parameters, _ = TRUTH[name]
    return kind(**{"epsilon": 1.0, **parameters, **more})


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_without_noise_every_path_gives_the_exact_answers(name, data):
    """Events in several updates, ticks one by one, arrays of slots, in any mixture."""
    truth = TRUTH[name][2]
    slots = data.draw(st.lists(st.lists(st.integers(-3, 4), max_size=3), min_size=1, max_size=40))
    totals = np.array([sum(events) for events in slots])
    monitor = build(name, epsilon=math.inf, lower=-3, upper=4, max_events=3).start()
    answers = []
    at = 0
    while at < len(slots):
        size = data.draw(st.integers(0, len(slots) - at))
        if size == 0:
            for event in slots[at]:
                monitor.update([event])
            answers.append(monitor.tick().unclipped)
            at += 1
        else:
            answers += monitor.tick_many(totals[at : at + size]).unclipped.tolist()
            at += size
    assert np.allclose(answers, truth(totals), rtol=1e-9, atol=1e-9)
    assert monitor.release().unclipped == answers[-1]


@pytest.mark.slow
@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_an_array_of_slots_draws_the_same_law_as_slot_by_slot(name, one_step_ticks):
    """Same mean and variance of the answers, and the standard error says so."""
    algorithm = build(name, epsilon=2.0, one_step_ticks=one_step_ticks)
    rng = SeededSource(8)
    runs = 1000
    whole = np.empty((runs, 6))
    single = np.empty(runs)
    for i in range(runs):
        whole[i] = algorithm.tick_many(algorithm.initial_state(rng), [1, 0, 1, 1, 0, 1], rng).unclipped
    last = None
    for i in range(runs // 4):
        state = algorithm.initial_state(rng)
        for value in (1, 0, 1, 1, 0, 1):
            last = algorithm.tick_many(state, [value], rng)
        single[i] = last.unclipped[-1]
    truth = TRUTH[name][2](np.array([1, 0, 1, 1, 0, 1]))
    errors = algorithm.tick_many(algorithm.initial_state(rng), [1, 0, 1, 1, 0, 1], rng).standard_error
    assert last.standard_error[-1] == pytest.approx(errors[-1])
    for at in range(6):
        assert_mean(whole[:, at], truth[at], f"{name} after {at + 1} slots")
        # Laplace sums have kurtosis at most 6, so the squared error has standard deviation below 2.3 variances.
        squared = (whole[:, at] - truth[at]) ** 2
        assert_mean(squared, errors[at] ** 2, f"variance of {name} after {at + 1} slots", sd=2.3 * errors[at] ** 2)
    assert_mean((single[: runs // 4] - truth[-1]) ** 2, errors[-1] ** 2, f"{name} slot by slot", 2.3 * errors[-1] ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_promised_error_and_the_interval_hold(name):
    algorithm = build(name, epsilon=1.0, horizon=24)
    rng = SeededSource(13)
    runs = 300
    beta = 0.1
    truth = TRUTH[name][2](np.ones(23))[-1]
    bound = algorithm.error_bound(beta=beta)
    late = 0
    covered = 0
    at_time = algorithm.error_bound(beta=beta, ticks=23)
    assert at_time <= bound * (1 + 1e-9)
    for _ in range(runs):
        monitor = Monitor(algorithm, rng=rng)
        monitor.tick_many(np.ones(22, np.int64))
        monitor.update([1])
        estimate = monitor.tick()
        late += abs(estimate.unclipped - truth) > at_time
        low, high = estimate.interval(0.9)
        covered += low <= truth <= high
    assert late <= beta * runs
    # Integer noise and unequal draws make intervals a little wide, never too narrow.
    if covered < 0.9 * runs:
        assert_rate(covered, runs, 0.9, f"coverage of {name}")
    assert covered < 0.97 * runs


@pytest.mark.parametrize("name", NAMES)
def test_a_longer_stream_is_refused_before_anything_changes(name):
    monitor = build(name, horizon=5).start()
    monitor.tick_many([1, 0, 1, 1])
    before = snapshot(copy.deepcopy(monitor.state))
    with pytest.raises(BudgetExhausted, match="horizon=5 allows 1 more ticks, got 2"):
        monitor.tick_many([1, 1])
    assert snapshot(monitor.state) == before
    monitor.tick()
    before = snapshot(copy.deepcopy(monitor.state))
    for call in (monitor.tick, lambda: monitor.tick_many([0]), lambda: monitor.update([1])):
        with pytest.raises(BudgetExhausted):
            call()
    assert snapshot(monitor.state) == before
    assert len(monitor.tick_many([])) == 0


@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_counters_need_a_horizon(name):
    with pytest.raises(InvalidParameter, match="horizon must be given"):
        build(name, horizon=None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive, got epsilon=0.0"),
        ({"epsilon": math.nan}, "epsilon must be positive"),
        ({"horizon": 0}, "horizon must be in"),
        ({"lower": 2, "upper": 1}, "lower must not exceed upper"),
        ({"lower": 0, "upper": 0}, "must be a range"),
        ({"upper": 0.5}, "must be integers unless there is a resolution"),
        ({"upper": math.inf}, "lower must not exceed upper"),
        ({"upper": 1 << 41}, "must be a range"),
        ({"resolution": 2.0**-41}, "at most 2..40 steps"),
        ({"resolution": 0.0}, "resolution must be positive"),
        ({"unit": "user"}, "unit must be 'event' or 'slot'"),
        ({"unit": "slot"}, "needs one_step_ticks=True"),
        ({"outside": "ignore"}, "outside must be"),
        ({"max_events": 0}, "max_events must be in"),
    ],
)
def test_bad_parameters_are_named(more, message):
    with pytest.raises(InvalidParameter, match=message):
        build("binary", **more)


@pytest.mark.parametrize("name", NAMES)
def test_one_step_slots_refuse_updates(name):
    monitor = build(name, one_step_ticks=True).start()
    with pytest.raises(NotSupported, match="call ticks"):
        monitor.update([1])
    assert len(monitor.tick_many([1, 0])) == 2
    assert monitor.tick().value is not None  # an empty slot


def test_values_are_refused_by_row_or_clipped():
    refusing = build("binary", upper=3, outside="refuse").start()
    with pytest.raises(InvalidBatch) as caught:
        refusing.tick_many([1, 3, 4, 0])
    assert caught.value.row == 2
    clipping = build("binary", epsilon=math.inf, upper=3).start()
    assert clipping.tick_many([1, 9, -5]).value.tolist() == [1, 4, 4]
    for bad in ([None], [math.nan], ["1"], [True], [1 << 70]):
        with pytest.raises(InvalidBatch):
            clipping.tick_many(bad)


def test_fixed_point_numbers():
    exact = build("binary", epsilon=math.inf, lower=-1.5, upper=2.5, resolution=0.125, outside="refuse").start()
    assert exact.tick_many([0.125, 2.5, -1.5, 0.06]).value.tolist() == [0.125, 2.625, 1.125, 1.125]
    assert exact.tick_many([0.07]).value.tolist() == [1.25]  # rounded to eighths
    with pytest.raises(InvalidBatch) as caught:
        exact.tick_many([0.0, 2.6])
    assert caught.value.row == 1
    with pytest.raises(InvalidBatch, match="row 1"):
        exact.tick_many([0.0, math.nan])
    clipping = build("binary", epsilon=math.inf, upper=1.0, resolution=2**-8, outside="clip").start()
    assert clipping.tick_many([7.0, -3.0, 0.5]).value.tolist() == [1.0, 1.0, 1.5]
    with pytest.raises(InvalidBatch, match="row 0"):
        clipping.tick_many([math.inf])
    assert build("binary", upper=2.5, resolution=0.125).sensitivity == 20
    noisy = build("binary", upper=1.0, resolution=2**-10)
    whole = build("binary")
    assert noisy.start().tick_many([1.0] * 7).standard_error[6] == pytest.approx(
        whole.start().tick_many([1] * 7).standard_error[6], rel=1e-2
    )


@pytest.mark.parametrize("name", NAMES)
def test_bytes_continue_in_the_middle_of_a_slot(name):
    rng = SeededSource(2)
    monitor = Monitor(build(name), rng=rng)
    monitor.tick_many([1] * 11)
    monitor.update([1])
    data = monitor.to_bytes()
    again = Monitor.from_bytes(data, rng=SeededSource(3))
    twin = Monitor.from_bytes(data, rng=SeededSource(3))
    assert again.tick() == twin.tick()
    assert again.state.time == 12
    assert again.release().released == again.last_release.released


@pytest.mark.parametrize("name", NAMES)
def test_a_refresh_leaves_the_answer_and_widens_later_ones(name):
    quiet, seen = (Monitor(build(name, epsilon=3.0), rng=SeededSource(6)) for _ in range(2))
    for monitor in (quiet, seen):
        monitor.tick_many([1, 1, 1, 1, 1])
    before = seen.release()
    seen.refresh()
    assert seen.release() == before
    wider = [m.tick_many([1, 1, 1]).standard_error for m in (quiet, seen)]
    assert (wider[1] >= wider[0]).all()
    assert (wider[1] > wider[0] * 1.01).any()
    noiseless = Monitor(build(name, epsilon=math.inf))
    noiseless.tick_many([1, 1, 1])
    noiseless.refresh()
    assert noiseless.tick_many([1]).value[0] == pytest.approx(TRUTH[name][2](np.ones(4))[3])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_released_before_the_first_tick(name):
    with pytest.raises(NotSupported, match=r"call tick\(\) first"):
        build(name).start().release()


def test_numbers_beyond_all_bounds_are_refused_or_clipped():
    shared = {"epsilon": math.inf, "upper": 1.0, "resolution": 2.0**-40}
    with pytest.raises(InvalidBatch, match="row 1: values must be between 0.0 and 1.0"):
        build("binary", **shared, outside="refuse").start().tick_many([0.0, 1e308, -1.0])
    assert build("binary", **shared, outside="clip").start().tick_many([1e308, -1e308]).value.tolist() == [1.0, 1.0]


def test_unit_and_adjacency_are_stated():
    event = build("binary", upper=9)
    slot = build("binary", upper=9, unit="slot", one_step_ticks=True)
    assert (event.claim().unit, event.claim().adjacency) == ("event", "add-remove")
    assert (slot.claim().unit, slot.claim().adjacency) == ("slot", "replace")
    assert event.claim().intrusions.announced == -1
    assert event.claim().horizon == 200
    counts = build("binary", max_events=9)
    assert counts.sensitivity == 1  # nine events a slot, but one of them is protected
    assert len(counts.start().tick_many([9, 0, 5])) == 3
    exact = build("binary", epsilon=math.inf, max_events=9).start()
    assert exact.tick_many([10]).value.tolist() == [9]


@pytest.mark.parametrize("name", NAMES)
def test_refusing_a_batch_for_one_value_has_no_claim(name):
    """One value would decide whether a thousand others count: no loss bounds that."""
    assert build(name).claim().is_private
    claim = build(name, outside="refuse").claim()
    assert claim.epsilon == math.inf
    assert "one value decide" in claim.note
    assert build(name, outside="refuse").start().tick_many([1]).claim.epsilon == math.inf
