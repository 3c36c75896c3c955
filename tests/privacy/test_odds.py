"""Odds change by more than the stated factor with at most the stated chance, whatever the mechanism is."""

import math

import pytest

from panstream.privacy.odds import odds_bound


def gaussian(center: int, variance: float) -> dict[int, float]:
    reach = math.ceil(20 * math.sqrt(variance))
    weights = {y: math.exp(-((y - center) ** 2) / (2 * variance)) for y in range(-reach, reach + 1)}
    total = sum(weights.values())
    return {y: weight / total for y, weight in weights.items()}


def delta_of(p: dict[int, float], q: dict[int, float], epsilon: float) -> float:
    """Return the smallest delta of a pair of distributions, the exact hockey-stick divergence."""
    return sum(max(0.0, p[y] - math.exp(epsilon) * q[y]) for y in p)


@pytest.mark.parametrize("variance", [2.0, 9.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
def test_more_is_lost_with_at_most_the_stated_chance(variance: float, epsilon: float) -> None:
    p = gaussian(0, variance)
    q = gaussian(1, variance)
    delta = delta_of(p, q, epsilon)
    loss, chance = odds_bound(epsilon, delta)
    assert sum(p[y] for y in p if math.log(p[y] / q[y]) > loss) <= chance * (1 + 1e-9) + 1e-15


def test_delta_alone_is_not_that_chance() -> None:
    """The negative control: a mechanism that is (epsilon, delta)-private and exceeds epsilon with more than delta."""
    epsilon = 1.0
    more = 0.1
    rare = 1e-3  # the chance of a view that is e^(epsilon + more) times as likely in one world
    p = {0: rare, 1: 1 - rare}
    q = {0: rare * math.exp(-epsilon - more), 1: 1 - rare * math.exp(-epsilon - more)}
    delta = delta_of(p, q, epsilon)
    assert rare > 10 * delta
    assert rare == pytest.approx(odds_bound(epsilon, delta)[1])


def test_without_delta_the_bound_is_epsilon() -> None:
    assert odds_bound(3.0, 0.0) == (3.0, 0.0)
    assert odds_bound(3.0, 0.5)[1] == 1.0
