"""Heavy-hitter counts: exact means, shares of a public total, collisions, the sqrt(k) limit."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from panstream.errors import InvalidParameter
from panstream.turnstile.heavy import HeavyHitterCount, _reading_variance
from turnstile.helpers import assert_covers, assert_unbiased, churn, exact_counts, runs

N = 200


def weight_of(net: Any, light: int, heavy: int) -> Any:
    """What a user counts for: the documented function of the net weight."""
    width = heavy - light
    return np.where(net >= 0, np.clip((net - light) / width, 0, 1), np.minimum(-net, width) / width)


@pytest.mark.parametrize(("threshold", "steps", "largest"), [(2, 2, 5), (6, 2, 15), (5, 2, 12), (6, 3, 12), (4, 1, 20)])
def test_exact_mean_for_every_net_weight(threshold: int, steps: int, largest: int) -> None:
    """steps·w + (P-w)(1 - f(a)) as rationals, f the documented function, for every |a| up to the largest."""
    counter = HeavyHitterCount(universe=1, epsilon=1.2, threshold=threshold, steps=steps, largest=largest)
    assert counter.heavy in range(threshold - steps + 1, threshold + 1)
    assert counter.law.start is not None
    plus = counter.law.start.plus.probability
    other = Fraction(1, 2) - plus / (counter.prime - 1)
    for net in range(-largest, largest + 1):
        counted = Fraction(float(weight_of(np.array(net), counter.light, counter.heavy))).limit_denominator(1000)
        assert exact_counts(counter, net) == [steps * other + (plus - other) * (1 - counted)]


@pytest.mark.parametrize("steps", [2, 4])
def test_unbiased_on_streams_with_deletes(steps: int) -> None:
    rng = np.random.default_rng(9)
    net = rng.geometric(0.003, 4000) * (rng.random(4000) < 0.6)
    counter = HeavyHitterCount(universe=4000, epsilon=1.0, threshold=500, steps=steps, largest=5000)
    values, errors, estimates = runs(counter, *churn(net, rng), repeat=N)
    truth = float(weight_of(net, counter.light, counter.heavy).sum())
    assert_unbiased(values, truth)
    assert_covers(estimates, truth)
    assert values.std() == pytest.approx(errors.mean(), rel=0.2)
    assert values.std() < errors.mean() * 1.1
    rule_of_thumb = math.sqrt(steps * 4000) / math.tanh(counter.law.epsilon_state / 2)
    assert errors.mean() == pytest.approx(rule_of_thumb, rel=0.15)


@pytest.mark.parametrize(("prime", "steps"), [(7, 2), (31, 2), (43, 3), (127, 2)])
def test_reading_variance_by_brute_force(prime: int, steps: int) -> None:
    plus = 0.7
    squares = {r * r % prime for r in range(1, prime)}
    law = [2 * plus / (prime - 1) if u in squares else 2 * (1 - plus) / (prime + 1) for u in range(prime)]
    worst = 0.0
    readings = [[sum((u + k - j) % prime in squares for j in range(steps)) for u in range(prime)] for k in range(prime)]
    for shift in range(prime):
        for mix in np.linspace(0, 1, 11):
            first, second = readings[shift], readings[(shift + 1) % prime]
            points = [(p * (1 - mix), r) for p, r in zip(law, first, strict=True)]
            points += [(p * mix, r) for p, r in zip(law, second, strict=True)]
            mean = sum(p * r for p, r in points)
            worst = max(worst, sum(p * (r - mean) ** 2 for p, r in points))
    assert worst - 1e-12 <= _reading_variance(prime, plus, steps) < worst + 0.01
    assert _reading_variance(100_003, plus, steps) == pytest.approx(steps / 4, rel=0.2)


def test_without_noise_it_is_exact() -> None:
    counter = HeavyHitterCount(universe=6, epsilon=math.inf, threshold=10, largest=40)
    monitor = counter.start()
    net = np.array([40, 10, 9, 5, 0, -40])
    monitor.update(range(6), weight=net)
    assert monitor.release().value == pytest.approx(weight_of(net, 5, 10).sum())


def test_share_of_a_public_total() -> None:
    counter = HeavyHitterCount.of_share(k=20, total_weight=1_000_003, buckets=4096, epsilon=2.0)
    assert counter.threshold == 50_001
    assert (counter.adjacency, counter.claim().adjacency) == ("replace", "replace")
    assert counter.claim().epsilon == pytest.approx(2.0)
    assert "the total weight" in counter.claim().public
    assert counter.prime < 64  # the total bounds every load, so the field is small
    with pytest.raises(InvalidParameter, match="k must be"):
        HeavyHitterCount.of_share(k=0, total_weight=10, buckets=4, epsilon=1.0)


def test_collision_bias_is_a_bound() -> None:
    """Lemma 4: over random keys the mean error in buckets is at most F1²/(2·h·L·light), up or down."""
    rng = np.random.default_rng(6)
    for light in (True, False):
        net = np.full(400, 40) if light else rng.permutation(np.r_[np.full(60, 200), np.full(300, 10)])
        counter = HeavyHitterCount(
            buckets=2000, epsilon=math.inf, threshold=100, largest=10_000, total_weight=int(net.sum())
        )
        truth = float(weight_of(net, counter.light, counter.heavy).sum())
        errors = []
        for key in range(80):
            keyed = HeavyHitterCount(buckets=2000, epsilon=math.inf, threshold=100, largest=10_000, key=key)
            monitor = keyed.start()
            monitor.update(np.arange(net.size), weight=net)
            errors.append(monitor.release().unbiased - truth)
        assert abs(np.mean(errors)) <= counter.collision_bias() + 4 * np.std(errors) / math.sqrt(80)
        assert np.mean(errors) != 0
    assert keyed.collision_bias() == math.inf
    assert HeavyHitterCount(universe=5, epsilon=1.0, threshold=4).collision_bias() == 0.0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"threshold": 1}, "threshold must be"),
        ({"threshold": 10, "steps": 0}, "steps must be"),
        ({"threshold": 10, "largest": 0}, "largest must be"),
        ({"threshold": 10, "total_weight": 0}, "total_weight must be"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        HeavyHitterCount(universe=10, epsilon=1.0, **parameters)
    with pytest.raises(InvalidParameter, match="levels must be 1"):
        HeavyHitterCount(buckets=10, levels=2, epsilon=1.0, threshold=8)


def test_without_noise_only_the_sample_errs() -> None:
    """Two of five users drawn without replacement, heavy or not: exact by counting the samples."""
    whole = HeavyHitterCount(universe=5, epsilon=math.inf, threshold=4, largest=20)
    part = HeavyHitterCount(universe=5, sample=2, epsilon=math.inf, threshold=4, largest=20)
    for heavy in range(6):
        users = [1] * heavy + [0] * (5 - heavy)
        answers = [5 / 2 * (one + other) for one, other in itertools.combinations(users, 2)]
        assert part._linear().variance(heavy) == pytest.approx(np.var(answers))
        assert whole._linear().variance(heavy) == 0.0


def test_no_fewer_than_nobody_is_heavy() -> None:
    counter = HeavyHitterCount(universe=50, epsilon=1.0, threshold=4, largest=20)
    below = counter._decode((10_000,))
    assert below.unbiased < 0
    assert below.value == below.interval()[0] == 0.0
    assert counter._linear().support == (0.0, 50.0)
