"""Closed forms of modular counters against residues counted one by one, Fourier transforms by numpy and searches by
scipy.
"""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from panstream.algorithms.turnstile._residues import ResidueLaw
from panstream.errors import InvalidParameter
from panstream.privacy.turnstile_loss import (
    _class_probabilities,
    _counter_variance,
    counter_split,
    profile_split,
    refresh_factor,
)

PRIMES = [3, 7, 11, 19, 31, 43]


def start_law(epsilon_state, prime):
    """Return the chance of every residue at the start, and which of them are plus."""
    plus = np.zeros(prime, bool)
    plus[[x * x % prime for x in range(1, prime)]] = True
    law = np.where(plus, math.exp(epsilon_state), 1.0)
    return law / law.sum(), plus


def laplace(kappa):
    """Return the variance of discrete Laplace noise, summed up."""
    k = np.arange(1, int(60 / kappa) + 2)
    weight = np.exp(-kappa * k)
    return 2 * (k**2 * weight).sum() / (1 + 2 * weight.sum())


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("state", [0.1, 0.9, 3.0])
def test_class_probabilities_are_those_of_all_residues(prime, state):
    law, plus = start_law(state, prime)
    at_zero, elsewhere = _class_probabilities(state, prime)
    assert at_zero == pytest.approx(law[plus].sum(), rel=1e-12)
    for moved in range(1, prime):
        assert elsewhere == pytest.approx(np.roll(law, moved)[plus].sum(), rel=1e-12)
    assert float(ResidueLaw.at_most(prime, state).ratio) == pytest.approx(math.exp(state), rel=1e-12)


def test_without_noise_a_class_is_sure():
    assert _class_probabilities(math.inf, 7) == (1.0, 0.0)


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize(
    ("state", "kappa", "cells", "steps"), [(0.9, 0.1, 500, 1), (0.3, 0.7, 20, 3), (2.0, 2.0, 7, 2)]
)
def test_variance_is_that_of_the_decoded_count(prime, state, kappa, cells, steps):
    law, plus = start_law(state, prime)
    chances = np.array([np.roll(law, moved)[plus].sum() for moved in range(prime)])
    spread = (chances * (1 - chances)).max()
    expected = (cells * steps * spread + laplace(kappa)) / (chances[0] - chances[1]) ** 2
    assert _counter_variance(state, kappa, cells, prime, steps) == pytest.approx(expected, rel=1e-9)


def best(epsilon, shares, variance):
    """Return the best split by scipy's search from many brackets."""

    def objective(share):
        return variance(epsilon * share, epsilon * (1 - share) / shares)

    grid = np.linspace(0.001, 0.999, 400)
    centre = grid[int(np.argmin([objective(share) for share in grid]))]
    return epsilon * minimize_scalar(objective, bounds=(centre - 0.004, centre + 0.004), method="bounded").x


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize(
    ("cells", "prime", "releases", "sensitivity"), [(400, 31, 1, 1), (5000, 11, 3, 1), (5000, 19, 2, 4)]
)
def test_the_split_is_the_best_one_and_uses_the_budget_up(epsilon, cells, prime, releases, sensitivity):
    state, kappa = counter_split(epsilon, cells, prime, releases=releases, sensitivity=sensitivity)
    assert state + releases * sensitivity * kappa == pytest.approx(epsilon, rel=1e-12)
    expected = best(epsilon, releases * sensitivity, lambda s, k: _counter_variance(s, k, cells, prime, sensitivity))
    assert state == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("state", [0.2, 1.5])
def test_the_profile_is_read_at_every_frequency_alike(prime, state):
    law, _ = start_law(state, prime)
    gains = 1 / np.abs(np.fft.fft(law)[1:]) ** 2
    assert gains == pytest.approx(np.full(prime - 1, refresh_factor(state, prime)), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize(("cells", "prime", "releases"), [(400, 31, 1), (50_000, 1019, 2)])
def test_the_split_of_a_profile_is_the_best_one(epsilon, cells, prime, releases):
    state, kappa = profile_split(epsilon, cells, prime, releases=releases)
    assert state + 2 * releases * kappa == pytest.approx(epsilon, rel=1e-12)
    expected = best(
        epsilon,
        2 * releases,
        lambda s, k: (cells / prime + laplace(k)) / np.abs(np.fft.fft(start_law(s, prime)[0])[1]) ** 2,
    )
    assert state == pytest.approx(expected, rel=2e-3)


def test_no_noise_and_no_budget():
    assert counter_split(math.inf, 10, 7) == profile_split(math.inf, 10, 7) == (math.inf, math.inf)
    for epsilon in (0.0, -1.0):
        with pytest.raises(InvalidParameter, match="epsilon must be positive"):
            counter_split(epsilon, 10, 7)


def test_one_release_of_one_unit_unless_more_is_said() -> None:
    assert counter_split(1.0, 100, 7) == counter_split(1.0, 100, 7, releases=1, sensitivity=1)
    assert profile_split(1.0, 100, 7) == profile_split(1.0, 100, 7, releases=1)


def test_one_step_unless_more_is_said() -> None:
    assert (
        _counter_variance(0.5, 0.2, 100, 7)
        == _counter_variance(0.5, 0.2, 100, 7, 1)
        < _counter_variance(0.5, 0.2, 100, 7, 2)
    )
