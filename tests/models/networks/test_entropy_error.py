"""Bias and error of noisy entropies: exact moments by enumeration, totals by simulation with the product's own
noise.
"""

import itertools
import math

import numpy as np
import pytest

from panstream.errors import InvalidParameter
from panstream.models.networks import noisy_entropy_bias, noisy_entropy_error, seven_attributes
from panstream.models.networks.information import _checked, _pair_moments
from panstream.primitives.noise import DiscreteLaplace, SeededSource
from tests.statistical import assert_mean

P = np.array([0.5, 0.3, 0.2])


def enumerated(n: int, kappa: float, holders: int) -> tuple[np.ndarray, ...]:  # type: ignore[type-arg]
    """Return E[δ_i δ_j²], E[δ_i² δ_j²], E[δ_i δ_j³] by summing over all samples and (truncated) noises of two cells."""
    reach = 60
    one = np.exp(-kappa * np.abs(np.arange(-reach, reach + 1)))
    law = one / one.sum()
    for _ in range(holders - 1):
        law = np.convolve(law, one / one.sum())
    values = np.arange(law.size) - law.size // 2
    raw = [float((law * values**k).sum()) for k in range(5)]
    shape = (P.size, P.size)
    result = [np.zeros(shape) for _ in range(3)]
    for sampled in itertools.product(range(P.size), repeat=n):
        x = np.bincount(sampled, minlength=P.size) - n * P
        weight = math.prod(P[each] for each in sampled)
        moments = [
            [sum(math.comb(k, r) * x[i] ** (k - r) * raw[r] for r in range(k + 1)) for k in range(5)] for i in range(3)
        ]
        for i, j in itertools.product(range(3), repeat=2):
            for at, (a, b) in enumerate([(1, 2), (2, 2), (1, 3)]):
                value = moments[i][a + b] if i == j else moments[i][a] * moments[j][b]
                result[at][i, j] += weight * value
    return result[0] / n**3, result[1] / n**4, result[2] / n**4


@pytest.mark.parametrize(("n", "scale", "holders"), [(1, 0.5, 1), (4, 0.8, 1), (5, 1.0, 3)])
def test_moments_by_enumeration(n: int, scale: float, holders: int) -> None:
    expected = enumerated(n, 1 / scale, holders)
    p, records, variance, fourth = _checked(P, n, holders, scale)
    moments = _pair_moments(p, records, variance, fourth)
    for ours, theirs in zip(moments, expected, strict=True):
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("n", "scale", "holders"), [(1, 0.5, 1), (4, 0.8, 1), (5, 1.0, 3)])
def test_terms_of_higher_order_are_taylors_of_the_enumerated_moments(n: int, scale: float, holders: int) -> None:
    """-(p+d)·ln(p+d) has the derivatives 1/p² and -2/p³, over 3! and 4!; its square loses (1 + ln p)·d·d²/p and so
    on.
    """
    one_two, two_two, one_three = enumerated(n, 1 / scale, holders)
    bias = noisy_entropy_bias(P, records=n, holders=holders, scale=scale)
    expected = sum(one_two[i, i] / P[i] ** 2 / 6 - two_two[i, i] / P[i] ** 3 / 12 for i in range(3))
    assert bias.higher == pytest.approx(expected / math.log(2), rel=1e-9)
    slope = 1 + np.log(P)
    error = noisy_entropy_error(P, records=n, holders=holders, scale=scale)
    expected = sum(
        slope[i] * one_two[i, j] / P[j]
        + two_two[i, j] / (4 * P[i] * P[j])
        - slope[i] * one_three[i, j] / (3 * P[j] ** 2)
        for i, j in itertools.product(range(3), repeat=2)
    )
    assert error.higher == pytest.approx(expected / math.log(2) ** 2, rel=1e-9)


def test_variance_is_that_of_the_law_that_is_drawn() -> None:
    for scale in (0.5, 3.0, 40.0):
        assert _checked(P, 10, 7, scale)[2] == pytest.approx(7 * DiscreteLaplace.at_most(1 / scale).variance, rel=1e-9)
    assert _checked(P, 10, 1, 1000.0)[2] == pytest.approx(2e6, rel=1e-5)  # 2b², as in the thesis
    assert _checked(P, 10, 1, 1000.0)[3] == pytest.approx(12e12, rel=1e-5)


def test_misprints_of_the_thesis() -> None:
    """Lemma 3.3 prints 240(M³ + 2M) b⁶ for the sixth moment, and a positive covariance for two cells of a
    multinomial.
    """
    single = [math.factorial(k) if k % 2 == 0 else 0 for k in range(7)]  # moments of a Laplace variable of scale 1
    moments = [1, *[0] * 6]
    for holders in range(1, 8):
        moments = [sum(math.comb(k, r) * moments[r] * single[k - r] for r in range(k + 1)) for k in range(7)]
        assert moments[4] == 12 * (holders**2 + holders)
        assert moments[6] == 120 * holders**3 + 360 * holders**2 + 240 * holders
        assert (moments[6] == 240 * (holders**3 + 2 * holders)) == (holders <= 2)
    cells = list(itertools.product(range(3), repeat=2))
    products = [((a == 0) + (b == 0) - 2 * P[0]) * ((a == 1) + (b == 1) - 2 * P[1]) for a, b in cells]
    covariance = sum(P[a] * P[b] * each for (a, b), each in zip(cells, products, strict=True)) / 2**2
    assert covariance == pytest.approx(-P[0] * P[1] / 2)


def test_leading_terms_are_the_theorems() -> None:
    n = 40_000
    m = 3
    b = 30.0
    bias = noisy_entropy_bias(P, records=n, holders=m, scale=b)
    assert bias.sampling == pytest.approx(-(P.size - 1) / (2 * n) / math.log(2))
    assert bias.noise == pytest.approx(-m * b**2 / n**2 * (1 / P).sum() / math.log(2), rel=1e-3)
    error = noisy_entropy_error(P, records=n, holders=m, scale=b)
    entropy = -(P * np.log(P)).sum()
    assert error.sampling == pytest.approx(((P * np.log(P) ** 2).sum() - entropy**2) / n / math.log(2) ** 2)
    assert error.noise == pytest.approx(2 * m * b**2 / n**2 * ((1 + np.log(P)) ** 2).sum() / math.log(2) ** 2, rel=1e-3)
    assert error.total == pytest.approx(error.sampling + error.noise + error.higher)


@pytest.mark.parametrize(("records", "holders", "scale"), [(40_000, 1, 0.0), (40_000, 3, 20.0), (20_000, 4, 8.0)])
def test_simulation_agrees(records: int, holders: int, scale: float) -> None:
    """A wrong term of the noise would be seen: the bias it adds is many standard errors."""
    p = seven_attributes().marginal((0, 1, 6)).ravel()
    runs = 40_000
    counts = np.random.default_rng(5).multinomial(records, p, runs)
    if scale:
        with SeededSource(6) as rng:
            for _ in range(holders):
                rng.add_discrete_laplace(counts.reshape(-1), DiscreteLaplace.at_most(1 / scale))
    shares = np.maximum(counts / records, 0)
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    gaps = -(shares * logs).sum(axis=1) + float((p * np.log2(p)).sum())
    if scale:  # the first-order term has mean 0 and hides the bias: take it out
        gaps_without = gaps + ((counts / records - p) * (np.log2(p) + 1 / math.log(2))).sum(axis=1)
        bias = noisy_entropy_bias(p, records=records, holders=holders, scale=scale)
        assert_mean(gaps_without, bias.total, "bias")
        assert abs(bias.noise) > 20 * gaps_without.std() / math.sqrt(runs)
    error = noisy_entropy_error(p, records=records, holders=holders, scale=scale)
    assert_mean(gaps**2, error.total, "mean squared error")


@pytest.mark.parametrize(
    "changes",
    [
        {"records": 0},
        {"holders": 0},
        {"scale": -1.0},
        {"scale": math.inf},
        {"probabilities": [0.5, 0.6]},
        {"probabilities": [1.0, 0.0]},
    ],
    ids=str,
)
def test_parameters_are_checked(changes: dict[str, object]) -> None:
    given: dict[str, object] = {"probabilities": P, "records": 10, "holders": 1, "scale": 1.0, **changes}
    with pytest.raises(InvalidParameter):
        noisy_entropy_bias(given.pop("probabilities"), **given)  # type: ignore[arg-type]
