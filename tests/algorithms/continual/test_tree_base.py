"""What all trees share, at the edges: the smallest rates, users, and intervals in the units of the data."""

import math

import pytest

from panstream.algorithms.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.core.monitor import Monitor
from panstream.errors import InvalidParameter
from panstream.primitives.noise import SeededSource
from tests.exact_law import assert_exact_intervals
from tests.zero_noise import ZeroNoiseSource

SMALLEST = 2.0**-42  # of the rates that are drawn to within a thousandth


def test_no_loss_at_all_is_refused_by_name() -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be positive, got epsilon=0"):
        KaryTree(epsilon=0.0, horizon=4)


@pytest.mark.parametrize("contributions", [None, 1, 3])
@pytest.mark.parametrize("levels", [1, 2])
def test_the_smallest_rate_itself_is_accepted_and_nothing_below(levels: int, contributions: int | None) -> None:
    """An event is in one node of every level, and a user in as many as there are contributions."""
    smallest = SMALLEST * levels * 8 * (contributions or 1)
    tree = KaryTree(epsilon=smallest, horizon=4, levels=levels, upper=8, contributions=contributions)
    assert tree.engine.law().kappa == SMALLEST
    with pytest.raises(InvalidParameter, match="epsilon must be larger"):
        KaryTree(epsilon=math.nextafter(smallest, 0.0), horizon=4, levels=levels, upper=8, contributions=contributions)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_user_counts_as_often_as_was_declared(most: int) -> None:
    users = ["a", "b", "a", "a", "b", "a", "c"]
    tree = ContinualCount(epsilon=1.0, horizon=4, contributions=most)
    expected = sum(min(users.count(user), most) for user in set(users))
    batch = tree.batch([1] * len(users), users=users)
    assert (int(batch.total[0]), len(batch)) == (expected, expected)


@pytest.mark.parametrize(("resolution", "levels"), [(0.25, 1), (0.25, 2), (8.0, 1)])
def test_intervals_hold_the_truth_as_often_as_they_say_in_units_of_the_data(resolution: float, levels: int) -> None:
    """The first answer is one leaf, with a draw from its start and one from its end: their exact law by convolution."""
    tree = ContinualSum(epsilon=2.0, horizon=4, levels=levels, lower=0.0, upper=16.0, resolution=resolution)
    with ZeroNoiseSource() as source:
        state = tree.initial_state(source)
        tree.update(state, tree.batch([16.0]), source)
        answer = tree.tick(state, source)
    assert answer.value == 16.0
    assert_exact_intervals(answer, 2, tree.engine.law().kappa, resolution)


def test_without_noise_an_interval_is_its_value() -> None:
    monitor = Monitor(ContinualSum(epsilon=math.inf, horizon=4, lower=0.0, upper=1.0), rng=SeededSource(1))
    monitor.update([0.5])
    assert monitor.tick().interval(0.99) == (0.5, 0.5)


@pytest.mark.parametrize(
    "tree",
    [
        ContinualCount(epsilon=1.0, horizon=9),
        ContinualSum(epsilon=0.5, horizon=9, levels=2, lower=0.0, upper=16.0, resolution=0.25),
        KaryTree(epsilon=2.0, horizon=9, levels=3, upper=8),
    ],
    ids=lambda tree: type(tree).__name__,
)
def test_what_is_foreseen_is_what_a_run_without_noise_publishes(tree: KaryTree) -> None:
    with ZeroNoiseSource() as source:
        state = tree.initial_state(source)
        for ticks in range(1, 10):
            answer = tree.tick(state, source)
            planned = tree.expected_estimate(ticks)
            assert planned.value == answer.value == 0.0
            assert planned.standard_error == pytest.approx(answer.standard_error, rel=1e-12)
            assert planned.interval(0.9) == pytest.approx(answer.interval(0.9), rel=1e-12)
