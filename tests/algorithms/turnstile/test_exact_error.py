"""What turnstile counters say about their errors, against the exact law of what they release."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.turnstile._linear_estimate import LinearEstimator
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.profile_sketch import DISTINCT, ProfileSketch
from tests.exact_law import ReleaseLaw, bits, sampled

USERS = 120


def legendre(counter: LegendreCounter, distinct: int) -> ReleaseLaw:
    law = counter.law
    cells = counter.cells
    ones = sampled(USERS, distinct, cells, lambda k: bits({law.elsewhere: k, law.at_zero: cells - k}))
    return ReleaseLaw.of(ones, law.noise.kappa, lambda r: counter._decode((r,)), distinct)


@pytest.mark.slow
@pytest.mark.parametrize("sample", [None, 70])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_distinct_counts(epsilon: float, sample: int | None) -> None:
    counter = LegendreCounter(universe=USERS, sample=sample, epsilon=epsilon, prime=11)
    for distinct in (0, 1, 40, 60, 119, 120):
        law = legendre(counter, distinct)
        assert law.bias() == pytest.approx(0, abs=1e-4)
        assert law.said_at_truth() == pytest.approx(law.deviation(), rel=0.015)
        assert 0.945 < law.coverage(0.95) < 0.985
    for beta in (0.3, 0.05, 0.01):
        chances = [legendre(counter, distinct).beyond(counter.error_bound(beta=beta)) for distinct in (0, 60, 120)]
        assert beta * 0.6 < max(chances) < beta * 1.03


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_cropped_sums(epsilon: float) -> None:
    """All users have the same load, so that the bits have the variance that the formula takes for the worst."""
    counter = BlockCounter(universe=USERS, epsilon=epsilon, crop=4, largest=40)
    law = counter.law
    assert law.start is not None
    laws = []
    for load in range(5):
        chance = law.elsewhere + (law.at_zero - law.elsewhere) * (1 - load / 4)
        found = ReleaseLaw.of(
            bits({chance: USERS}), law.noise.kappa, lambda r: counter._decode((r,)), float(USERS * load)
        )
        assert found.bias() == pytest.approx(0, abs=1e-3)
        assert found.said_at_truth() == pytest.approx(found.deviation(), rel=0.015)
        assert 0.945 < found.coverage(0.95) < 0.985
        laws.append(found)
    for beta in (0.3, 0.05, 0.01):
        assert beta * 0.6 < max(law.beyond(counter.error_bound(beta=beta)) for law in laws) < beta * 1.03


def readings(prime: int, plus: float, steps: int) -> dict[int, np.ndarray[Any, Any]]:
    """Return for every net number of blocks the law of the number of squares among ``steps`` neighbours, one by one."""
    squares = {x * x % prime for x in range(1, prime)}
    chance = {c: 2 * plus / (prime - 1) if c in squares else 2 * (1 - plus) / (prime + 1) for c in range(prime)}
    laws = {}
    for moved in range(prime):
        found: Counter[int] = Counter()
        for start, weight in chance.items():
            found[sum((start + moved - step) % prime in squares for step in range(steps))] += weight  # type: ignore[assignment]
        laws[moved] = np.array([found[k] for k in range(steps + 1)])
    return laws


@pytest.mark.parametrize(("steps", "threshold"), [(1, 5), (2, 10), (3, 12)])
def test_heavy_hitters(steps: int, threshold: int) -> None:
    """The variance said is the largest over all loads: exact for the worst of them, and never below."""
    counter = HeavyHitterCount(
        universe=USERS, epsilon=1.0, threshold=threshold, steps=steps, largest=10 * threshold, min_net_weight=0
    )
    law = counter.law
    assert law.start is not None
    found = readings(counter.prime, law.at_zero, steps)
    k = np.arange(steps + 1)
    variances = [float(one @ k**2 - (one @ k) ** 2) for one in found.values()]
    said = counter._linear().variance(0.0)
    scale = 1 / law.gap
    assert said >= USERS * max(variances) * scale**2 * (1 - 1e-9)
    assert said <= USERS * max(variances) * scale**2 * 1.35
    assert counter.readings == steps
    count = round(USERS * steps * law.elsewhere + USERS * law.gap)
    upper = counter._unbiased(count, steps)
    middle = counter._linear().estimate(upper, claim=counter.claim(), name="upper", released=(count,))
    assert middle.unbiased == pytest.approx(0, abs=scale)
    noise = 2 / (law.noise.kappa / scale) ** 2
    assert middle.standard_error == pytest.approx(math.sqrt(said + noise), rel=1e-6)


@pytest.mark.parametrize(("steps", "threshold"), [(1, 5), (2, 10), (3, 12)])
def test_the_lower_end_of_a_bracket_of_heavy_hitters(steps: int, threshold: int) -> None:
    """It is read from one block more, with a further draw of noise."""
    counter = HeavyHitterCount(universe=USERS, epsilon=1.0, threshold=threshold, steps=steps, largest=10 * threshold)
    law = counter.law
    blocks = counter.readings + 1
    assert counter.bracketed and law.start is not None
    k = np.arange(blocks + 1)
    variances = [float(one @ k**2 - (one @ k) ** 2) for one in readings(counter.prime, law.at_zero, blocks).values()]
    said = counter._linear(both=True).variance(0.0) * law.gap**2 - law.noise.variance
    assert USERS * max(variances) * (1 - 1e-9) <= said <= USERS * max(variances) * 1.35


def test_profiles_are_decoded_without_bias_and_their_worst_spread_is_said() -> None:
    sketch = ProfileSketch(universe=USERS, epsilon=2.0, largest=9)
    law = sketch.law
    assert law.start is not None
    squares = {x * x % 19 for x in range(1, 19)}
    start = np.array([2 * law.at_zero / 18 if c in squares else 2 * (1 - law.at_zero) / 20 for c in range(19)])
    decoder, spread = sketch.decoder(DISTINCT)
    wanted = DISTINCT.at(sketch.weights)
    for net in range(19):
        moved = np.roll(start, net)  # the law of the counter of a user with this net weight
        assert moved @ decoder == pytest.approx(wanted[net], abs=1e-9)
        assert moved @ decoder**2 - wanted[net] ** 2 == pytest.approx(spread[net], abs=1e-9)
    estimate = sketch._decode((0,) * 19)
    expected = USERS * spread.max() + law.noise.variance * (decoder**2).sum()
    assert estimate.standard_error == pytest.approx(math.sqrt(expected), rel=1e-9)
    assert sketch.error_bound(beta=0.32) == pytest.approx(math.sqrt(expected), rel=0.02)


def test_a_sampled_profile_adds_what_the_sample_leaves_open() -> None:
    """The mean over m of U users drawn without replacement has variance s²·(U-m)/(U-1)/m, at most a(1-a) for values
    in 0..1.
    """
    users = 90
    cells = 40
    sketch = ProfileSketch(universe=users, sample=cells, epsilon=6.0, largest=9)
    decoder, spread = sketch.decoder(DISTINCT)
    for wanted in (0, 45, 90):
        linear = sketch._linear(DISTINCT)
        noise = (cells * spread.max() + sketch.law.noise.variance * (decoder**2).sum()) * (users / cells) ** 2
        share = wanted / users
        left_open = users**2 * share * (1 - share) * (users - cells) / (users - 1) / cells
        assert linear.variance(float(wanted)) == pytest.approx(noise + left_open, rel=1e-9)
    assert linear.support == (0.0, 90.0)


@pytest.mark.parametrize("kappa", [math.inf, 0.5])
def test_a_linear_law_says_its_own_quantiles(kappa: float) -> None:
    """Against a simulation of the law that is written above the class: 4·10**5 draws, five standard errors."""
    rng = np.random.default_rng(1)
    draws = rng.normal(0, 3.0, 400_000) + (0 if math.isinf(kappa) else rng.laplace(0, 1 / kappa, 400_000))
    linear = LinearEstimator(support=(0.0, 100.0), variance=lambda _: 9.0, kappa=kappa, step=1.0)
    for tail in (0.2, 0.025):
        beyond = np.mean(draws > linear.reach(50.0, tail) - 0.5)
        assert beyond == pytest.approx(tail, abs=5 * math.sqrt(tail / 400_000))
        assert linear.error(2 * tail) == pytest.approx(linear.reach(0.0, tail), rel=1e-9)
    low, high = linear.interval(50.0, 0.95)
    assert (50 - low, high - 50) == pytest.approx((linear.reach(50.0, 0.025),) * 2, rel=1e-6)
    assert linear.interval(-3.0, 0.95)[0] == 0.0
    assert linear.interval(103.0, 0.95)[1] == 100.0


def test_levels_of_an_open_universe_add_up_their_noise() -> None:
    """The sum read from some levels on is a weighted sum of independent counts; their exact variance at a known
    fill.
    """
    counter = BlockCounter(buckets=64, levels=3, epsilon=2.0, crop=4, largest=40)
    law = counter.law
    assert law.start is not None
    shares = np.array([0.5, 0.25, 0.25])
    for first in (0, 1, 2):
        weights = np.where(np.arange(3) >= first, shares**2, 0.0)
        weights /= weights.sum()
        for total in (0.0, 100.0):
            fill = total * shares / (64 * 4)
            chance = law.elsewhere + law.gap * (1 - fill)
            counts = 64 * chance * (1 - chance) + law.noise.variance
            exact = ((weights / shares) ** 2 * (4 / law.gap) ** 2 * counts).sum()
            thinned = 4 * total * ((weights**2 / shares).sum() - 1)  # a user of load 4 is in a level or not
            assert counter._level_law(first).variance(total) == pytest.approx(exact + thinned, rel=1e-9)
    assert counter._level_law(0).support[0] == 0.0
    assert counter._level_law(0).step == pytest.approx(4 / law.gap)


@pytest.mark.parametrize("kind", [LegendreCounter, BlockCounter])
def test_every_level_is_read_alone_so_the_budget_is_split_for_one(kind: Any) -> None:
    more = {"crop": 4} if kind is BlockCounter else {}
    one, four = (kind(buckets=512, levels=levels, epsilon=1.0, **more).law for levels in (1, 4))
    assert (one.epsilon_state, one.kappa) == (four.epsilon_state, four.kappa)
