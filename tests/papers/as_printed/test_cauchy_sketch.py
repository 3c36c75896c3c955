"""The L1 norm by Cauchy sketches: the loss by maximising the density ratio, and how far it drowns."""

import numpy as np
import pytest
from scipy import optimize, stats

from panstream.papers.as_printed.cauchy_sketch import cauchy_loss, cauchy_scale, l1_deviation

USERS = 20_000
ROWS = 60_000


@pytest.mark.parametrize("shift", [0.01, 0.5, 3.0, 400.0])
def test_the_loss_is_the_largest_density_ratio(shift: float) -> None:
    def ratio(x: float) -> float:
        return float(stats.cauchy.logpdf(x, scale=2.0) - stats.cauchy.logpdf(x, loc=shift, scale=2.0))

    best = optimize.minimize_scalar(lambda x: -ratio(x), bounds=(-shift - 10, 0.0), method="bounded")
    assert cauchy_loss(shift, 2.0) == pytest.approx(-best.fun, rel=1e-6)


def test_the_worst_user_loses_what_was_asked_for() -> None:
    entries = np.random.default_rng(1).standard_cauchy((200, 5))
    scale = cauchy_scale(entries, 0.7, weight=3.0)
    losses = [sum(cauchy_loss(3.0 * entry, scale) for entry in row) for row in entries]
    assert max(losses) == pytest.approx(0.7, rel=1e-6)


def test_the_information_of_a_cauchy_scale() -> None:
    """The variance of the score of the scale is 1/(2·scale²), by quadrature."""
    x = stats.cauchy.ppf((np.arange(200_000) + 0.5) / 200_000)
    assert np.mean(((x**2 - 1) / (x**2 + 1)) ** 2) == pytest.approx(0.5, rel=1e-4)
    assert l1_deviation(100.0, 0.0, 200) == pytest.approx(10.0)


def test_the_norm_drowns() -> None:
    """With 100 counters at event level and epsilon 1, the error is above the norm in each of two sketches."""
    for seed in range(2):
        entries = np.random.default_rng(seed).standard_cauchy((USERS, 100))
        assert l1_deviation(ROWS, cauchy_scale(entries, 1.0), 100) > ROWS
