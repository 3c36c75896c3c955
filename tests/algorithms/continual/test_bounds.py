"""Answers lie within what is possible by public bounds; their intervals cover the truth after they are cut."""

import math
from typing import Any

import numpy as np
import pytest

from panstream import ContinualCount, ContinualMean, ContinualSum, DecayedSum, Monitor, WindowedSum
from panstream.algorithms.continual.sums import KaryTree
from panstream.errors import InvalidBatch
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.consistency import ConsistentCount
from panstream.primitives.noise import SeededSource
from tests.statistical import assert_mean

RUNS = 300
FEWEST = 265  # of 300: a true coverage of 95% falls below it once in 40,000 tests
WINDOW: dict[str, Any] = {"epsilon": 1.0, "window": 24, "one_step_ticks": True}
# Algorithm, slots, value of every slot, truth, least and largest possible answer.
CASES = {
    "window, empty": (WindowedSum(**WINDOW), 30, 0, 0.0, 0.0, 24.0),
    "window, full": (WindowedSum(**WINDOW), 30, 1, 24.0, 0.0, 24.0),
    "window, half a day": (WindowedSum(**WINDOW), 12, 1, 12.0, 0.0, 12.0),
    "window of many events": (WindowedSum(**WINDOW, max_events=3), 24, 3, 72.0, 0.0, 72.0),
    "window of departures": (WindowedSum(**WINDOW, lower=-1, upper=0), 24, -1, -24.0, -24.0, 0.0),
    "decayed": (
        DecayedSum(epsilon=1.0, decay="exponential", rate=0.5, one_step_ticks=True), 30, 1, 2.0, 0.0, 2.000003,
    ),
    "sum of slots": (
        ContinualSum(epsilon=1.0, horizon=64, lower=0.0, upper=4.0, unit="slot", one_step_ticks=True), 16, 4.0, 64.0,
        0.0, 64.0,
    ),
    "tree, empty": (KaryTree(epsilon=1.0, horizon=64), 16, 0, 0.0, 0.0, np.inf),
    "tree of either sign": (KaryTree(epsilon=1.0, horizon=64, lower=-1), 16, 0, 0.0, -np.inf, np.inf),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_answers_and_intervals_are_possible_and_cover(case: str) -> None:
    algorithm, slots, value, truth, least, largest = CASES[case]
    rng = SeededSource(31)
    covered = 0
    columns = 0
    unclipped = []
    for _ in range(RUNS):
        monitor = Monitor(algorithm, rng=rng)
        answers = monitor.tick_many([value] * slots)
        last = monitor.release()
        for low, high in (last.interval(), last.interval(0.5), [float(end[-1]) for end in answers.interval()]):
            assert least <= low < high <= largest
        assert least <= last.value <= largest
        assert answers.value[-1] == pytest.approx(last.value)
        low, high = last.interval()
        covered += low - 1e-9 <= truth <= high + 1e-9
        low, high = (float(end[-1]) for end in answers.interval())
        columns += low - 1e-9 <= truth <= high + 1e-9
        unclipped.append(last.unclipped)
    assert covered >= FEWEST
    assert columns >= FEWEST
    assert_mean(np.array(unclipped), truth, "unclipped answers")


def test_rows_of_a_slot_have_no_upper_bound() -> None:
    monitor = WindowedSum(epsilon=1.0, window=24).start()
    monitor.update([1] * 1000)
    assert monitor.tick().support == (0.0, np.inf)


def test_totals_have_the_sign_that_values_have() -> None:
    monitor = KaryTree(epsilon=1.0, horizon=4).start()
    with pytest.raises(InvalidBatch):
        monitor.tick_many([1, -1])
    assert len(monitor.tick_many([1000])) == 1


def test_a_consistent_count_lies_in_its_own_interval() -> None:
    rng = SeededSource(32)
    outside = 0
    for _ in range(40):
        monitor = Monitor(BinaryMechanism(epsilon=1.0, horizon=64), rng=rng)
        counts = ConsistentCount(max_increase=1)
        for _ in range(64):
            noisy = monitor.tick()
            estimate = counts.follow(noisy)
            low, high = estimate.interval()
            assert low <= estimate.value <= high
            assert low <= noisy.interval()[0] <= noisy.interval()[1] <= high
            outside += estimate.value > noisy.interval()[1]
    assert outside  # else this test shows nothing


@pytest.mark.parametrize(
    "algorithm",
    [
        WindowedSum(epsilon=1.0, window=24),
        DecayedSum(epsilon=1.0, decay="exponential", rate=0.9),
        ContinualSum(epsilon=1.0, lower=0.0, upper=1.0),
        ContinualMean(epsilon=1.0, lower=0.0, upper=1.0),
        KaryTree(epsilon=1.0, horizon=9),
        BinaryMechanism(epsilon=1.0, horizon=9),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_a_number_that_is_no_list_is_refused_whatever_it_is(algorithm: Any) -> None:
    """``update(1000)`` was one value, clipped to 1. The refusal depends on the form of the call, not on the number."""
    messages = set()
    for number in (1000, 1, 0, 0.5, np.int64(1000), np.float64(0.5), True):
        monitor = algorithm.start()
        for call in (monitor.update, monitor.tick_many):
            if call == monitor.tick_many and isinstance(algorithm, KaryTree):
                continue  # totals of any size
            with pytest.raises(InvalidBatch, match="got a single number") as refused:
                call(number)
            messages.add(str(refused.value))
    assert len(messages) == 1
    count = ContinualCount(epsilon=math.inf).start()
    count.update(1000)
    assert count.tick().value == 1000


def test_the_name_of_an_answer_says_what_slots_are_clipped_to() -> None:
    window = WindowedSum(epsilon=1.0, window=24).start()
    assert window.tick_many([1000] * 48).name == "sum over the last 24 slots, slots clipped to 0..1 (max_events=1)"
    assert window.tick().name == "sum over the last 24 slots"
    several = WindowedSum(epsilon=1.0, window=24, upper=2.5, resolution=0.5, max_events=4, one_step_ticks=True).start()
    assert several.tick_many([3.0]).name.endswith("slots clipped to 0..10 (max_events=4)")
    assert several.release().name.endswith("slots clipped to 0..10 (max_events=4)")
    total = ContinualSum(epsilon=1.0, lower=-1.0, upper=1.5).start()
    assert total.tick_many([1000.0])[0].name == "sum, slots clipped to -1..1.5"
    assert KaryTree(epsilon=1.0, horizon=9).start().tick_many([1000]).name == "sum"
