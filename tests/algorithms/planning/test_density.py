"""The exact planner against brute force, its inverse pairs, and the law of the shipped estimator."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.planning._noisy_count_tails import NoisyCount
from panstream.algorithms.planning.density import accuracy, epsilon_needed, failure_probability, sample_size
from panstream.errors import InvalidParameter
from panstream.privacy.budget_split import density_split
from panstream.privacy.joint_loss import present_probability

ALPHA = 1e-6
N = 200_000


@cache
def count_laws(epsilon: float, m: int) -> NDArray[np.float64]:
    """Return the law of the ones, without noise, of samples with 0, 1, ..., m present users."""
    epsilon_state, _ = density_split(epsilon, m)
    p1 = present_probability(epsilon_state)
    ones = [stats.binom.pmf(np.arange(x + 1), x, p1) for x in range(m + 1)]
    others = [stats.binom.pmf(np.arange(x + 1), x, 1 - p1) for x in range(m + 1)]
    return np.array([np.convolve(ones[x], others[m - x]) for x in range(m + 1)])


def brute_failure(epsilon: float, alpha: float, m: int, universe: int, present: int) -> float:
    """P(|estimate moved into [0, 1] - density| > alpha) by summing over every value of N."""
    epsilon_state, kappa = density_split(epsilon, m)
    p1 = present_probability(epsilon_state)
    p0 = 1 - p1
    law = stats.hypergeom.pmf(np.arange(m + 1), universe, present, m) @ count_laws(epsilon, m)
    reach = math.ceil(60 / kappa)
    noise = np.exp(-kappa * np.abs(np.arange(-reach, reach + 1)))
    law = np.convolve(law, noise / noise.sum())
    values = np.arange(-reach, m + reach + 1)
    estimates = np.clip((values / m - p0) / (p1 - p0), 0, 1)
    return float(law[np.abs(estimates - present / universe) > alpha].sum())


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(("m", "universe"), [(1, 1), (7, 7), (5, 12), (30, 80), (60, 60)])
@pytest.mark.parametrize("alpha", [0.051, 0.2003, 0.6007])
def test_failure_at_a_density_equals_brute_force(epsilon: float, m: int, universe: int, alpha: float) -> None:
    for present in {0, 1, universe // 3, universe // 2, universe}:
        exact = brute_failure(epsilon, alpha, m, universe, present)
        planned = failure_probability(epsilon, alpha, m, universe, density=present / universe)
        assert planned == pytest.approx(exact, rel=1e-9, abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "alpha", "m", "universe"),
    [
        (1.0, 0.2, 30, 30),
        (1.0, 0.2, 30, 60),
        (0.3, 0.4, 40, 50),
        (4.0, 0.1, 50, 50),
        (4.0, 0.1, 25, 80),
        (2.0, 0.3, 61, 90),
    ],
)
def test_worst_case_is_the_largest_over_all_densities(epsilon: float, alpha: float, m: int, universe: int) -> None:
    exact = max(brute_failure(epsilon, alpha, m, universe, present) for present in range(universe + 1))
    assert failure_probability(epsilon, alpha, m, universe) == pytest.approx(exact, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "beta", "m", "universe", "slack"),
    [
        (1.0, 0.1, 200, 300, 1.02),
        (2.0, 1e-4, 300, 300, 1.1),
        (3.0, 1e-3, 60, 400, 1.35),
        (6.0, 0.01, 200, 250, 1.35),
    ],
)
def test_worst_case_bounds_every_density_of_a_larger_universe(
    epsilon: float, beta: float, m: int, universe: int, slack: float
) -> None:
    alpha = accuracy(epsilon, beta, m, universe)
    planned = failure_probability(epsilon, alpha, m, universe)
    exact = max(
        failure_probability(epsilon, alpha, m, universe, present / universe) for present in range(universe // 2 + 1)
    )
    assert exact <= planned <= slack * exact


def test_the_worst_density_is_in_the_middle_if_users_are_sampled() -> None:
    middle = failure_probability(1.0, 0.01, 100_000, 1_000_000, density=0.5)
    edge = failure_probability(1.0, 0.01, 100_000, 1_000_000, density=0.02)
    assert middle > 2 * edge
    assert failure_probability(1.0, 0.01, 100_000, 1_000_000) == pytest.approx(middle, rel=0.02)


@pytest.mark.parametrize(("epsilon", "m", "universe", "density"), [(1.0, 400, 1000, 0.3), (0.5, 2000, 2000, 0.9)])
def test_failure_agrees_with_simulation(epsilon: float, m: int, universe: int, density: float) -> None:
    generator = np.random.default_rng(2024)
    epsilon_state, kappa = density_split(epsilon, m)
    p1 = present_probability(epsilon_state)
    present = round(density * universe)
    seen = generator.hypergeometric(present, universe - present, m, N) if m < universe else np.full(N, present)
    ones = generator.binomial(seen, p1) + generator.binomial(m - seen, 1 - p1)
    noise = generator.geometric(-math.expm1(-kappa), N) - generator.geometric(-math.expm1(-kappa), N)
    errors = np.abs(np.clip(((ones + noise) / m - (1 - p1)) / (2 * p1 - 1), 0, 1) - present / universe)
    for alpha in (0.03, 0.1):
        planned = failure_probability(epsilon, alpha, m, universe, density=density)
        p = stats.binomtest(int((errors > alpha).sum()), N, planned).pvalue
        assert p > ALPHA, f"alpha {alpha}: observed {(errors > alpha).mean():.5f}, planned {planned:.5f}, p = {p:.1e}"


@pytest.mark.parametrize(("epsilon", "m"), [(0.2, 1000), (1.0, 1000), (1.0, 50_000), (3.0, 777)])
def test_plans_for_the_law_that_is_shipped(epsilon: float, m: int) -> None:
    law = OptBern(universe=100_000, epsilon=epsilon, sample=m).law
    shipped = NoisyCount(present=40_000, sampled=m, universe=100_000, p0=law.p0, p1=law.p1, kappa=law.noise.kappa)
    reach = 0.05 * m * (law.p1 - law.p0)
    above = math.floor(shipped.mean + reach)
    below = math.ceil(shipped.mean - reach)
    mirrored = shipped.mirrored()
    expected = shipped.upper_tail(above).beyond(above) + mirrored.upper_tail(m - below).beyond(m - below)
    assert failure_probability(epsilon, 0.05, m, 100_000, density=0.4) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("m", "epsilon_state", "kappa"),
    [(100, 0.7215, 0.3901), (1_000, 0.8495, 0.2085), (10_000, 0.9251, 0.1031), (100_000, 0.9641, 0.0492)],
)
def test_the_split_it_plans_with(m: int, epsilon_state: float, kappa: float) -> None:
    assert density_split(1.0, m) == pytest.approx((epsilon_state, kappa), abs=6e-5)


def assert_inverse_pairs(epsilon: float, beta: float, m: int, universe: int) -> tuple[int, float]:
    """Whatever is answered suffices, and slightly less does not."""
    alpha = accuracy(epsilon, beta, m, universe)
    assert failure_probability(epsilon, alpha, m, universe) <= beta
    assert failure_probability(epsilon, alpha * (1 - 1e-6), m, universe) > beta

    users = sample_size(epsilon, alpha, beta, universe)
    assert failure_probability(epsilon, alpha, users, universe) <= beta
    assert users == 1 or failure_probability(epsilon, alpha, users - 1, universe) > beta

    needed = epsilon_needed(alpha, beta, m, universe)
    assert failure_probability(needed, alpha, m, universe) <= beta
    assert failure_probability(needed * (1 - 1e-6), alpha, m, universe) > beta
    return users, needed


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    epsilon=st.floats(0.2, 6.0),
    beta=st.sampled_from([0.1, 0.05, 1e-3, 1e-8]),
    universe=st.integers(3, 10_000),
    share=st.floats(0.02, 1.0),
)
def test_inverse_pairs(epsilon: float, beta: float, universe: int, share: float) -> None:
    m = max(1, round(share * universe))
    assume(accuracy(epsilon, beta, m, universe) < 1)
    assert_inverse_pairs(epsilon, beta, m, universe)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "beta", "m", "universe"),
    [
        (1.0, 0.05, 300, 300),
        (0.3, 0.05, 2_000, 3_000),
        (2.0, 1e-6, 500, 9_000),
        (1.0, 0.01, 100_000, 1_000_000),
    ],
)
def test_inverse_pairs_return_to_where_they_started(epsilon: float, beta: float, m: int, universe: int) -> None:
    users, needed = assert_inverse_pairs(epsilon, beta, m, universe)
    assert 0.97 * m <= users <= m
    assert 0.97 * epsilon <= needed <= epsilon * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "alpha", "beta", "universe"),
    [
        (1.0, 0.4, 0.2, 200),
        (8.0, 0.12, 0.05, 150),
        (4.0, 0.4, 1e-6, 500),
        (1.0, 0.4, 0.3, 64),
    ],
)
def test_no_smaller_sample_suffices(epsilon: float, alpha: float, beta: float, universe: int) -> None:
    users = sample_size(epsilon, alpha, beta, universe)
    assert [m for m in range(1, users) if failure_probability(epsilon, alpha, m, universe) <= beta] == []


@pytest.mark.slow
def test_more_of_anything_helps() -> None:
    sizes = [accuracy(1.0, 0.05, m, 1_000_000) for m in (100, 1_000, 10_000, 100_000, 1_000_000)]
    budgets = [accuracy(epsilon, 0.05, 10_000, 20_000) for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0)]
    doubts = [accuracy(1.0, beta, 10_000, 20_000) for beta in (1e-12, 1e-6, 1e-3, 0.05, 0.5)]
    users = [sample_size(1.0, alpha, 0.05, 1_000_000) for alpha in (0.1, 0.05, 0.02, 0.01, 0.005)]
    for falling in (sizes, budgets, doubts):
        assert falling == sorted(falling, reverse=True)
    assert users == sorted(users)


@pytest.mark.slow
def test_failure_falls_as_alpha_grows() -> None:
    values = [failure_probability(1.0, alpha, 500, 2_000) for alpha in np.linspace(0.001, 0.4, 60)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in zip(values, values[1:], strict=False))
    assert values[0] == pytest.approx(1.0, abs=0.05)


def test_large_plans_match_the_normal_law() -> None:
    m = 10_000_000
    epsilon_state, kappa = density_split(1.0, m)
    p1 = present_probability(epsilon_state)
    gap = math.tanh(epsilon_state / 2)
    sd = math.sqrt(p1 * (1 - p1) / m + 0.5 / math.sinh(kappa / 2) ** 2 / m**2) / gap
    assert failure_probability(1.0, 2 * sd, m, m) == pytest.approx(2 * stats.norm.sf(2), rel=2e-3)


def test_refuses_what_cannot_be_reached() -> None:
    with pytest.raises(InvalidParameter, match="needs more users than exist"):
        sample_size(0.1, 0.01, 0.05, 1_000_000)
    with pytest.raises(InvalidParameter, match="sampling alone"):
        epsilon_needed(0.01, 0.05, 100, 1_000_000)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0, 0.1, 10, 10), "epsilon"),
        ((math.inf, 0.1, 10, 10), "epsilon"),
        ((math.nan, 0.1, 10, 10), "epsilon"),
        ((1.0, 0.0, 10, 10), "alpha"),
        ((1.0, 1.0, 10, 10), "alpha"),
        ((1.0, 0.1, 0, 10), "m"),
        ((1.0, 0.1, 11, 10), "m"),
        ((1.0, 0.1, 1, 0), "universe"),
        ((1.0, 0.1, 1, 1, 1.5), "density"),
    ],
)
def test_bad_parameters(arguments: tuple[float, float, int, int], name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name} must be"):
        failure_probability(*arguments)


@pytest.mark.parametrize("beta", [0.0, 1.0, -1.0, math.nan])
def test_bad_beta(beta: float) -> None:
    for call in (
        lambda: sample_size(1.0, 0.1, beta, 10),
        lambda: accuracy(1.0, beta, 10, 10),
        lambda: epsilon_needed(0.1, beta, 10, 10),
    ):
        with pytest.raises(InvalidParameter, match="^beta must be"):
            call()
