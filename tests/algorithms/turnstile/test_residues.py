"""The start law: difference sets, exact class weights, primes."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.turnstile._residues import MERSENNE, ResidueLaw, _is_prime, check_prime, prime_at_least
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.errors import InvalidParameter
from panstream.primitives.noise.distributions import exp_fraction
from panstream.privacy.turnstile_loss import (
    _class_probabilities,
    _counter_variance,
    counter_split,
    profile_split,
)
from panstream.testing.sources import outcomes

SMALL_PRIMES = [3, 7, 11, 19, 23, 31, 43]


def test_primes_against_a_sieve() -> None:
    limit = 5000
    sieve = [n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(limit)]
    assert [_is_prime(n) for n in range(limit)] == sieve
    for lower in range(1, 2000, 37):
        found = prime_at_least(lower)
        assert found == next(n for n in range(max(lower, 3), limit) if sieve[n] and n % 4 == 3)
    assert _is_prime(MERSENNE) and MERSENNE % 4 == 3
    assert not _is_prime(3215031751) and not _is_prime((1 << 61) + 1)  # a strong pseudoprime to 2, 3, 5, 7


@pytest.mark.parametrize("prime", [4, 5, 9, 13, 21, 1, -7, 1 << 62])
def test_unfit_primes_are_refused(prime: int) -> None:
    with pytest.raises(InvalidParameter, match="prime must be"):
        check_prime(prime)


@pytest.mark.parametrize("prime", SMALL_PRIMES)
def test_squares_are_a_difference_set(prime: int) -> None:
    """Lemma 1: a shift by any a ≠ 0 takes exactly (p-3)/4 squares to squares."""
    squares = {r * r % prime for r in range(1, prime)}
    for shift in range(1, prime):
        assert len(squares & {(s + shift) % prime for s in squares}) == (prime - 3) // 4


@given(st.sampled_from([*SMALL_PRIMES, 1019, MERSENNE]), st.floats(1e-6, 30.0))
@settings(deadline=None)
def test_class_weight_is_rounded_to_the_safe_side(prime: int, epsilon: float) -> None:
    law = ResidueLaw.at_most(prime, epsilon)
    allowed = exp_fraction(Fraction(epsilon))
    assert 1 <= law.ratio <= allowed
    residues = (prime - 1) // 2
    exact = residues * allowed / (residues * allowed + residues + 1)
    assert 0 <= exact - law.plus.probability < Fraction(1, 1 << 63)
    assert _class_probabilities(epsilon, prime)[0] == pytest.approx(float(exact), rel=1e-12)
    assert (law.at_zero, law.elsewhere) == pytest.approx(_class_probabilities(epsilon, prime), rel=1e-12)


@pytest.mark.parametrize("prime", SMALL_PRIMES)
def test_drawn_start_is_the_law(prime: int) -> None:
    """Every element of the field comes up once in the tree of draws, with the weight of its class."""
    counter = LegendreCounter(universe=1, epsilon=1.0, prime=prime)
    start = counter.law.start
    assert start is not None
    drawn = {int(state.counters[0]): chance for chance, state in outcomes(counter.initial_state)}
    squares = {r * r % prime for r in range(1, prime)}
    plus = start.plus.probability
    half = (prime - 1) // 2
    assert drawn == {v: plus / half if v in squares else (1 - plus) / (half + 1) for v in range(prime)}


def test_chance_elsewhere_is_exact() -> None:
    """w = 1/2 - P/(p-1) whatever the shift, as rationals."""
    for prime in SMALL_PRIMES:
        law = ResidueLaw.at_most(prime, 1.3)
        plus = law.plus.probability
        half = (prime - 1) // 2
        squares = {r * r % prime for r in range(1, prime)}
        for shift in range(1, prime):
            chance = sum(
                (plus / half if u in squares else (1 - plus) / (half + 1))
                for u in range(prime)
                if (u + shift) % prime in squares
            )
            assert chance == Fraction(1, 2) - plus / (prime - 1)


@pytest.mark.parametrize(("releases", "sensitivity"), [(1, 1), (4, 1), (2, 3)])
def test_split_spends_everything_and_is_the_best(releases: int, sensitivity: int) -> None:
    state, kappa = counter_split(1.0, 5000, 31, releases=releases, sensitivity=sensitivity)
    assert state + releases * sensitivity * kappa == pytest.approx(1.0, rel=1e-14)
    best = _counter_variance(state, kappa, 5000, 31, sensitivity)
    for share in (0.2, 0.5, 0.9, 0.99):
        other = _counter_variance(share, (1 - share) / releases / sensitivity, 5000, 31, sensitivity)
        assert best <= other * (1 + 1e-9)


def test_split_of_the_profile_and_of_no_noise() -> None:
    state, kappa = profile_split(1.0, 20_000, 1019)
    assert state + 2 * kappa == pytest.approx(1.0)
    assert counter_split(math.inf, 10, 7) == profile_split(math.inf, 10, 7) == (math.inf, math.inf)
    with pytest.raises(InvalidParameter, match="epsilon must be positive"):
        counter_split(0.0, 10, 7)


def test_an_epsilon_too_small_to_be_drawn_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="too small to be drawn exactly"):
        ResidueLaw.at_most(7, 1e-30)
