"""Second moments and inner products: variances by enumeration, coverage over keys and noise, and what is refused."""

import math
from dataclasses import replace
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.planning.moments import moments_plan
from panstream.algorithms.turnstile import InnerProduct, SecondMoment
from panstream.algorithms.turnstile.signed_sketch import CounterNoise, Spread
from panstream.core.monitor import Monitor
from panstream.errors import InvalidBatch, InvalidParameter, SignalBelowNoise
from panstream.primitives.noise import DiscreteLaplace, SeededSource
from tests.statistical import ALPHA, assert_mean
from tests.zero_noise import ZeroNoiseSource

RUNS = 200
USERS = 2_000


def rows_of(net: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and weights of rows that add up to the net weights."""
    return np.repeat(np.arange(net.size), np.abs(net)), np.repeat(np.sign(net), np.abs(net))


LOADS = {
    "uniform": np.random.default_rng(1).poisson(3.0, USERS),
    "zipf": np.random.default_rng(2).multinomial(6_000, 1 / np.arange(1, USERS + 1) / sum(1 / np.arange(1, USERS + 1))),
    "two-point": np.where(np.arange(USERS) < 20, 200, 1),
    "one dominant": np.where(np.arange(USERS) < 1, 8_000, 0),
    "one dominant among light ones": np.where(np.arange(USERS) < 1, 5_000, 1),
    "two dominant": np.where(np.arange(USERS) < 2, 4_000, 0),
    "empty": np.zeros(USERS, int),
    "negative": np.random.default_rng(4).integers(-5, 6, USERS),
}
DOMINATED = ("one dominant", "one dominant among light ones", "two dominant")


@pytest.mark.parametrize("width", [1, 2, 3])
def test_variances_of_hashing_by_enumeration(width: int) -> None:
    """Every map of three ids to counters and signs: means are exact, variances those of the docstrings."""
    left = np.array([3.0, -1.0, 2.0])
    right = np.array([1.0, 4.0, -2.0])
    squares = []
    products = []
    for places in product(range(2 * width), repeat=3):
        cells = np.array(places) // 2
        signs = 1 - 2 * (np.array(places) % 2)
        a, b = (np.bincount(cells, weights=signs * each, minlength=width) for each in (left, right))
        squares.append(a @ a)
        products.append(a @ b)
    second = left @ left
    other = right @ right
    joint = left @ right
    assert np.mean(squares) == pytest.approx(second)
    assert np.var(squares) == pytest.approx(2 * (second**2 - np.sum(left**4)) / width)
    assert np.mean(products) == pytest.approx(joint)
    both = np.sum(left**2 * right**2)
    assert np.var(products) == pytest.approx((second * other + joint**2 - 2 * both) / width)


@pytest.mark.parametrize("kappa", [0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("draws", [1, 2, 3, 7])
def test_moments_of_the_noise(kappa: float, draws: int) -> None:
    reach = math.ceil(60 / kappa)
    one = stats.dlaplace.pmf(np.arange(-reach, reach + 1), kappa)
    law = one
    for _ in range(draws - 1):
        law = np.convolve(law, one)
    square = np.arange(-(law.size // 2), law.size // 2 + 1) ** 2.0
    noise = CounterNoise(DiscreteLaplace.at_most(kappa), draws)
    assert noise.variance == pytest.approx(law @ square)
    assert noise.of_square == pytest.approx(law @ square**2 - (law @ square) ** 2)
    assert noise.excess == pytest.approx(law @ square**2 / (law @ square) ** 2 - 3)


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("releases", [1, 2])
def test_intervals_cover_the_second_moment(load: str, releases: int) -> None:
    net = LOADS[load]
    truth = float(net @ net)
    ids, weights = rows_of(net)
    halves = np.array_split(np.random.default_rng(3).permutation(ids.size), releases)
    missed = 0
    errors = []
    standard = []
    widths = []
    for key in range(RUNS):
        expected = max(math.sqrt(truth), 300.0)
        sketch = SecondMoment(epsilon=1.0, expected=expected, buckets=2048, releases=releases, key=key)
        monitor = Monitor(sketch, rng=SeededSource(key))
        for half in halves:
            monitor.update(ids[half], weights[half])
            estimate = monitor.release()
        low, high = estimate.interval()
        missed += not low <= truth <= high
        errors.append(estimate.unbiased - truth)
        standard.append(errors[-1] / estimate.standard_error)
        widths.append(high - low)
    assert missed <= stats.binom.isf(ALPHA, RUNS, 0.05), f"{load}: {missed} of {RUNS} missed"
    if load == "uniform":
        assert_mean(np.array(standard), 0.0, f"{load}, {releases} releases")
        assert 0.8 < np.std(standard) < 1.2
    if load in DOMINATED:  # up to 280 times the error where collisions were charged that do not happen
        assert np.mean(widths) / 2 < 4 * np.sqrt(np.mean(np.square(errors)))


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_intervals_cover_the_inner_product(load: str) -> None:
    left = LOADS[load]
    right = LOADS[load] if load in DOMINATED else np.roll(LOADS[load], 3)
    truth = float(left @ right)
    missed = 0
    errors = []
    widths = []
    for key in range(RUNS):
        sketch = InnerProduct(epsilon=1.0, expected=max(math.sqrt(left @ left), 300.0), buckets=2048, key=key)
        monitor = Monitor(sketch, rng=SeededSource(key))
        for stream, net in (("left", left), ("right", right)):
            monitor.update(*rows_of(net), stream=stream)
        estimate = monitor.release()
        low, high = estimate.interval()
        missed += not low <= truth <= high
        errors.append(estimate.unbiased - truth)
        widths.append(high - low)
    assert missed <= stats.binom.isf(ALPHA, RUNS, 0.05), f"{load}: {missed} of {RUNS} missed"
    if load in DOMINATED:
        assert np.mean(widths) / 2 < 4 * np.sqrt(np.mean(np.square(errors)))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_collisions_of_all_but_the_largest_ids_by_enumeration(width: int) -> None:
    """Lemma 8: over every map of four ids, errors without collisions among the first two stay within its variance."""
    left = np.array([9.0, -7.0, 2.0, 1.0])
    right = np.array([8.0, 6.0, -2.0, 1.0])
    squares = []
    products = []
    apart = 0
    for places in product(range(2 * width), repeat=4):
        cells = np.array(places) // 2
        signs = 1 - 2 * (np.array(places) % 2)
        if cells[0] == cells[1]:
            continue
        apart += 1
        a, b = (np.bincount(cells, weights=signs * each, minlength=width) for each in (left, right))
        squares.append(a @ a - left @ left)
        products.append(a @ b - left @ right)
    assert apart == (2 * width) ** 4 * (width - 1) // width
    everything = left @ left
    largest = left[:2] @ left[:2]
    assert np.sum(np.square(squares)) / (2 * width) ** 4 <= 2 * (everything**2 - largest**2) / width
    others = everything * (right @ right) - largest * (right[:2] @ right[:2])
    assert np.sum(np.square(products)) / (2 * width) ** 4 <= 2 * others / width


def test_the_error_of_an_inner_product_is_that_of_norms_less_their_noise() -> None:
    """Noise adds width times its variance to a sum of squares; what is left is the norm, and never below 0."""
    sketch = InnerProduct(epsilon=1.0, expected=300.0, buckets=64)
    noise = sketch.planned
    both = 64 * sketch.planned.variance
    for left, right in ((5e4, 8e4), (5e4, 0.0)):
        sums = np.zeros((2, 64))
        sums[0, :40] = math.sqrt((left + both) / 40)
        sums[1, 20:60] = math.sqrt((right + both) / 40)
        product = min(float(sums[0] @ sums[1]), math.sqrt(left * right))
        expected = (left * right + product**2) / 64 + noise.variance * (left + right) + both * noise.variance
        assert sketch.decode(sums, noise, ()).standard_error == pytest.approx(math.sqrt(expected))
    low = sketch.decode(np.zeros((2, 64)), noise, ())
    assert low.standard_error == pytest.approx(math.sqrt(both * noise.variance))


def test_an_end_of_the_interval_is_a_truth_at_the_edge() -> None:
    sketch = SecondMoment(epsilon=1.0, expected=300.0)
    for unbiased in (0.0, 500.0, 90_000.0, 1e7):
        for level in (0.5, 0.95, 0.999):
            z = NormalDist().inv_cdf((1 + level) / 2)
            for end in sketch._interval(unbiased, sketch.planned, Spread(z, (1.0,), 0.0)):
                away = abs(unbiased - end) / math.sqrt(sketch._variance(abs(end), sketch.planned))
                assert end < 0 or away == pytest.approx(z)
    few = SecondMoment(epsilon=1000.0, expected=300.0, buckets=8)
    assert few._interval(100.0, few.planned, Spread(3.3, (1.0,), 0.0)) == (0.0, math.inf)


@pytest.mark.parametrize("kind", ["integers", "strings"])
def test_rows_that_take_away_undo_those_that_add(kind: str) -> None:
    ids: list[object] = list(range(50)) if kind == "integers" else [f"u{i}" for i in range(50)]
    sketch = SecondMoment(epsilon=1.0, expected=1000.0, max_weight=9)
    monitor = Monitor(sketch, rng=ZeroNoiseSource())
    monitor.update(ids, weight=[7] * 50)
    assert np.abs(monitor.state.counters).sum() > 0
    monitor.update(ids[::-1], weight=-7)
    assert not monitor.state.counters.any()


def test_one_id_is_one_counter_and_sums_go_on_over_releases() -> None:
    monitor = Monitor(SecondMoment(epsilon=1.0, expected=1000.0, releases=3), rng=ZeroNoiseSource())
    for round_ in range(1, 4):
        monitor.update(["ann"] * 10)
        estimate = monitor.release()
        noise = CounterNoise(monitor.algorithm.law, 2 * round_)
        assert estimate.unbiased + monitor.algorithm.width * noise.variance == pytest.approx((10 * round_) ** 2)
        assert not monitor.state.counters.any()


def test_refreshes_are_paid_in_variance() -> None:
    monitor = SecondMoment(epsilon=1.0, expected=1000.0).start()
    monitor.refresh()
    monitor.refresh()
    assert monitor.state.draws == 3
    assert monitor.claim().intrusions.announced == -1
    quiet = SecondMoment(epsilon=1.0, expected=1000.0).start().release()
    assert monitor.release().standard_error > quiet.standard_error


def test_what_drowns_is_refused() -> None:
    assert SecondMoment(epsilon=1.0, expected=490.0, contributions=10).error_bound(beta=0.05) > 0
    with pytest.raises(SignalBelowNoise, match=r"drown in noise.*one user may move it by 960"):
        SecondMoment(epsilon=1.0, expected=1700.0, contributions=960)
    with pytest.raises(SignalBelowNoise, match=r"drown in noise.*one event may move it by 400"):
        InnerProduct(epsilon=1.0, expected=490.0, max_weight=400)
    for kind in (SecondMoment, InnerProduct):
        assert kind(epsilon=math.inf, expected=490.0).claim().epsilon == math.inf


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0}, {"expected": 0.0}, {"expected": math.inf}, {"buckets": 0}, {"max_weight": 0},
        {"contributions": 0}, {"releases": 0}, {"buckets": 2.5},
    ],
)  # fmt: skip
def test_parameters_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        SecondMoment(**{"epsilon": 1.0, "expected": 490.0, **wrong})  # type: ignore[arg-type]


def test_a_stream_must_be_named() -> None:
    monitor = InnerProduct(epsilon=1.0, expected=490.0).start()
    with pytest.raises(InvalidBatch, match="stream must be left or right"):
        monitor.update([1], stream="middle")


def test_claims_name_what_is_protected() -> None:
    event = SecondMoment(epsilon=1.0, expected=490.0)
    user = replace(event, contributions=4)
    assert (event.claim().unit, event.claim().event_epsilon) == ("event", None)
    assert (user.claim().unit, user.claim().event_epsilon) == ("user", 0.25)
    assert user.law.kappa == pytest.approx(event.law.kappa / 4)


def test_the_chosen_number_of_counters_is_almost_best() -> None:
    for kind in (SecondMoment, InnerProduct):
        chosen = kind(epsilon=1.0, expected=490.0)
        tried = [kind(epsilon=1.0, expected=490.0, buckets=1 << power).error_bound(beta=0.05) for power in range(8, 20)]
        assert chosen.error_bound(beta=0.05) <= 1.05 * min(tried)


def test_the_plan_shows_where_moments_drown() -> None:
    plan = moments_plan(epsilon=1.0, expected=490.0)
    assert [row.error is None for row in plan.rows] == [False, False, False, False, True] * 2
    assert plan.rows[0].error == pytest.approx(0.0240, abs=5e-4)
    assert "refused: drowns in noise" in plan.table()
    with pytest.raises(InvalidParameter, match="epsilon"):
        moments_plan(epsilon=-1.0, expected=490.0)


def test_the_last_of_several_answers_is_planned_with_the_noise_of_all() -> None:
    moment = SecondMoment(epsilon=1.0, expected=1e4, releases=3)
    assert moment.planned == CounterNoise(moment.law, 6)


def test_one_row_of_a_user_is_an_event() -> None:
    one, event = (SecondMoment(epsilon=1.0, expected=1e4, contributions=rows) for rows in (1, None))
    assert one.law == event.law
