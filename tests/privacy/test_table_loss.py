"""Noise for tables and choices: inverse pairs, and the losses themselves recomputed from the laws."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.privacy import table_loss as tables
from panstream.privacy.composition import _zcdp_delta, zcdp_epsilon, zcdp_rho

LOSSES = st.floats(1e-4, 20.0)


@given(LOSSES)
def test_noise_is_the_inverse_of_loss_and_never_too_small(loss: float) -> None:
    assert tables.table_kappa(loss) * 2 == Fraction(loss)
    assert Fraction(tables.table_sigma(loss)) ** 2 * Fraction(loss) >= 1
    assert tables.table_sigma(loss) == pytest.approx(1 / math.sqrt(loss), rel=1e-15)
    assert tables.choice_rho(tables.choice_epsilon(loss)) <= loss
    assert tables.choice_rho(tables.choice_epsilon(loss)) == pytest.approx(loss)


@pytest.mark.slow
@given(st.floats(0.01, 8.0), st.floats(1e-12, 0.01))
def test_rho_for_epsilon_and_delta_is_the_largest(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert _zcdp_delta(rho, epsilon) <= delta < _zcdp_delta(rho * (1 + 1e-6), epsilon)
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-6)


def test_conversion_agrees_with_opendp() -> None:
    dp.enable_features("contrib")
    space = dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64)
    for sigma in (3.0, 10.0):
        curve = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, sigma)).map(1)
        for delta in (1e-9, 1e-5):
            assert zcdp_epsilon(1 / (2 * sigma**2), delta) == pytest.approx(curve.epsilon(delta), rel=1e-6)


def test_exponential_mechanism_loses_epsilon_squared_over_eight() -> None:
    """Worst Rényi divergence over pairs of utilities that move by one; a little less noise would cost more."""
    rng = np.random.default_rng(4)
    epsilon = 1.0
    worst = 0.0
    rate = float(tables.choice_rate(epsilon, 1))
    for _ in range(3000):
        size = int(rng.integers(2, 5))
        before = rng.normal(0, 3, size)
        after = before + rng.choice([-1.0, 0.0, 1.0], size)
        p = np.exp(rate * before)
        q = np.exp(rate * after)
        p = p / p.sum()
        q = q / q.sum()
        for alpha in (1.0001, 2.0, 8.0):
            worst = max(worst, math.log((p**alpha * q ** (1 - alpha)).sum()) / (alpha - 1) / alpha)
    assert 0.97 * tables.choice_rho(epsilon) < worst <= tables.choice_rho(epsilon)


def test_discrete_gaussian_tables_lose_what_is_said() -> None:
    """Two cells move by one in opposite directions: Rényi divergence alpha·rho, exactly, from the law itself."""
    for sigma in (0.5, 2.0, 7.0):
        k = np.arange(-400, 401)
        total = np.exp(-(k**2) / (2 * sigma**2)).sum()  # the same for both, as the shift is whole
        for alpha in (2, 3):
            exponent = -(alpha * k**2 + (1 - alpha) * (k - 1) ** 2) / (2 * sigma**2)
            one = math.log(np.exp(exponent).sum() / total)
            assert 2 * one / (alpha - 1) == pytest.approx(alpha / sigma**2, rel=1e-6)


def test_no_noise_and_bad_parameters() -> None:
    assert tables.table_kappa(math.inf) == tables.choice_rate(math.inf, 2) == math.inf
    assert tables.table_sigma(math.inf) == 0.0
    assert zcdp_rho(math.inf, 1e-9) == math.inf
    with pytest.raises(InvalidParameter, match="epsilon must be positive, got epsilon=0"):
        tables.table_kappa(0.0)
    with pytest.raises(InvalidParameter, match="rho must be positive"):
        tables.table_sigma(-1.0)
    with pytest.raises(InvalidParameter, match="records must be at least 1"):
        tables.r_sensitivity(0)
    with pytest.raises(InvalidParameter, match="delta must be in"):
        zcdp_rho(1.0, 0.0)


@pytest.mark.parametrize(("rho", "epsilon"), [(1e-3, 0.2), (0.1, 1.0), (1.0, 2.0), (5.0, 6.0), (20.0, 21.0)])
def test_delta_is_the_smallest_that_any_order_gives(rho: float, epsilon: float) -> None:
    """Canonne, Kamath, Steinke 2020, Corollary 13, over a fine grid of orders; the best one is below 2 for large
    rho.
    """
    alpha = 1.0 + np.geomspace(1e-4, 1e4, 400_001)
    log_delta = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
    assert _zcdp_delta(rho, epsilon) == pytest.approx(math.exp(min(0.0, log_delta.min())), rel=1e-6)


@pytest.mark.parametrize(("records", "binary"), [(2, True), (3, True), (4, True), (3, False), (5, False)])
def test_mutual_information_moves_as_far_as_is_said(records: int, binary: bool) -> None:
    """Every table of so many records, every record replaced by every other: the largest change is the formula."""
    shape = (2, 2) if binary else (3, 3)
    cells = shape[0] * shape[1]

    def information(counts: tuple[int, ...]) -> float:
        joint = np.array(counts, float).reshape(shape) / records
        product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
        seen = joint > 0
        return float((joint[seen] * np.log2(joint[seen] / product[seen])).sum())

    bits_of = {
        tuple(table): information(tuple(table))
        for table in (
            np.bincount(values, minlength=cells) for values in combinations_with_replacement(range(cells), records)
        )
    }
    worst = 0.0
    for table, before in bits_of.items():
        for away, to in product(range(cells), repeat=2):
            if table[away]:
                after = list(table)
                after[away] -= 1
                after[to] += 1
                worst = max(worst, abs(bits_of[tuple(after)] - before))
    assert tables.mutual_information_sensitivity(records, binary=binary) == pytest.approx(worst, rel=1e-9)


def test_one_record() -> None:
    assert tables.mutual_information_sensitivity(1, binary=True) == 0.0
    assert tables.f_sensitivity(1) == tables.r_sensitivity(1) == 1


def test_what_choices_and_sensitive_scores_cost() -> None:
    assert tables.choice_rate(1.0, 3) == Fraction(1, 6)
    assert tables.choice_rate(1.0, Fraction(1, 4)) == 2
    assert tables.choice_rho(tables.choice_epsilon(0.5)) == pytest.approx(0.5)
    with pytest.raises(InvalidParameter, match="rho must be positive"):
        tables.choice_epsilon(0.0)


@pytest.mark.parametrize("sensitivity", [0, -1])
def test_a_choice_needs_a_sensitivity(sensitivity: int) -> None:
    with pytest.raises(InvalidParameter, match="sensitivity must be positive"):
        tables.choice_rate(1.0, sensitivity)
