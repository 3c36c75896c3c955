"""Moments in many answers: sums without noise, errors and coverage over keys, and what is refused."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.continual_users import ContinualInnerProduct, ContinualSecondMoment
from panstream.algorithms.planning.moments import moments_plan
from panstream.algorithms.turnstile import InnerProduct, SecondMoment
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidParameter, SignalBelowNoise
from panstream.primitives.noise import SeededSource
from tests.statistical import ALPHA
from tests.zero_noise import ZeroNoiseSource

USERS = 500
SHAPE = {"levels": 2, "capacity": 8}


def test_answers_add_up_all_rows_so_far() -> None:
    """Without noise every answer is the sum of squares of the whole sketch, at every digit of the tree."""
    algorithm = ContinualSecondMoment(epsilon=1.0, expected=1e5, releases=30, buckets=256, **SHAPE)
    plain = Monitor(SecondMoment(epsilon=1.0, expected=1e5, releases=30, buckets=256), rng=ZeroNoiseSource())
    monitor = Monitor(algorithm, rng=ZeroNoiseSource())
    rng = np.random.default_rng(1)
    for _ in range(30):
        ids = rng.integers(0, USERS, 40)
        weights = rng.choice([-1, 1], 40)
        monitor.update(ids, weight=weights)
        plain.update(ids, weight=weights)
        estimate = monitor.release()
        other = plain.release()
        noise = 256 * algorithm.law.variance
        draws = (
            other.unbiased - estimate.unbiased
        ) / noise  # the squares are equal, the noise that is taken off is not
        assert estimate.released
        assert -60 < draws < 60
        counters = plain.state.sums.astype(float)
        total = monitor.algorithm.engine.totals(monitor.state)
        np.testing.assert_allclose(total[:-1], counters, atol=1e-9)
    with pytest.raises(BudgetExhausted, match="releases=30"):
        monitor.release()


def test_both_streams_have_counters_of_their_own() -> None:
    algorithm = ContinualInnerProduct(epsilon=math.inf, expected=1e3, releases=3, buckets=1 << 16)
    monitor = algorithm.start()
    for day in range(3):
        monitor.update(np.arange(50), stream="left")
        monitor.update(np.arange(25, 75), weight=1, stream="right")
        answer = monitor.release()
        assert answer.value == 25 * (day + 1) ** 2
        assert answer.claim.epsilon == math.inf


def test_the_tree_beats_single_releases_where_it_has_levels() -> None:
    for kind, tree in ((SecondMoment, ContinualSecondMoment), (InnerProduct, ContinualInnerProduct)):
        ratios = []
        for releases in (1, 20, 100, 365, 1000):
            plain = kind(epsilon=1.0, expected=3000.0, releases=releases).error_bound(beta=0.05)
            ratios.append(tree(epsilon=1.0, expected=3000.0, releases=releases).error_bound(beta=0.05) / plain)
        assert ratios[0] == ratios[1] == 1.0
        assert all(second < first for first, second in pairwise(ratios[1:]))
        assert ratios[3] < 0.6
        assert ratios[4] < 0.45


@pytest.mark.parametrize("load", ["uniform", "skewed", "one", "empty"])
def test_intervals_cover(load: str) -> None:
    """60 keys at two ticks; a coverage of 95% falls short of the bound with probability ALPHA."""
    rng = np.random.default_rng(5)
    ids = {
        "uniform": rng.integers(0, USERS, 12_000),
        "skewed": np.minimum(rng.zipf(1.4, 12_000), USERS),
        "one": np.full(3_000, 7),
        "empty": np.zeros(0, np.int64),
    }[load]
    runs = 60
    inside = {7: 0, 20: 0}
    for key in range(runs):
        algorithm = ContinualSecondMoment(epsilon=1.0, expected=2000.0, releases=20, key=key, buckets=512, **SHAPE)
        monitor = Monitor(algorithm, rng=SeededSource(key))
        net = np.zeros(USERS + 1)
        for tick in range(1, 21):
            part = ids[(tick - 1) * ids.size // 20 : tick * ids.size // 20]
            monitor.update(part)
            net += np.bincount(part, minlength=USERS + 1)
            low, high = monitor.release().interval()
            if tick in inside:
                inside[tick] += low <= net @ net <= high
    for count in inside.values():
        assert count >= stats.binom.ppf(ALPHA, runs, 0.95)


def test_refreshes_are_paid_in_variance() -> None:
    answers = []
    for refreshes in (0, 3):
        monitor = ContinualSecondMoment(epsilon=1.0, expected=1e4, releases=50).start()
        for _ in range(refreshes):
            monitor.refresh()
        answers.append(monitor.release().standard_error)
    assert answers[1] > answers[0]


def test_parameters_are_checked() -> None:
    with pytest.raises(SignalBelowNoise, match="drown in noise"):
        ContinualSecondMoment(epsilon=1.0, expected=100.0, releases=1000)
    for wrong, words in (
        ({"levels": 2}, "levels and capacity must be given together"),
        ({"levels": 2, "capacity": 2, "releases": 50}, "capacity must leave room for releases=50"),
        ({"levels": 99, "capacity": 2}, "levels"),
        ({"releases": 0}, "releases"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            ContinualSecondMoment(**{"epsilon": 1.0, "expected": 1e4, **wrong})  # type: ignore[arg-type]


def test_the_plan_compares_one_by_one_and_the_tree() -> None:
    plan = moments_plan(epsilon=1.0, expected=490.0, releases=365, contributions=())
    errors = {row.name: row.error for row in plan.rows}
    assert errors["SecondMoment"] == pytest.approx(0.42, abs=0.005)
    assert errors["ContinualSecondMoment"] == pytest.approx(0.23, abs=0.005)
