"""Optimal budgets: the shares of epsilon for the stored bits and for the releases."""

from __future__ import annotations

import math
from functools import lru_cache

from panstream.primitives import validation as checks
from panstream.privacy.joint_loss import kappa_for, kappa_for_approx, present_probability
from panstream.privacy.numeric_search import minimise


def laplace_variance(kappa: float) -> float:
    """Return the variance of discrete Laplace noise with decay rate ``kappa``."""
    return 0.5 / math.sinh(kappa / 2) ** 2 if kappa < 700 else 2.0 * math.exp(-kappa)


@lru_cache(maxsize=1024)
def density_split(epsilon: float, cells: int, releases: int = 1, announced: int = 0) -> tuple[float, float]:
    """Return (epsilon_state, kappa) with the smallest mean squared error for ``cells`` stored bits.

    kappa is rounded down. MSE of one release = [p1(1-p1)/m + Var DLap(kappa)/m²]/(p1-p0)², the same at every density
    (ALGORITHMS: optimal split). k ``announced`` intrusions take epsilon_state each before the rest is shared; the error
    then grows like (1 + R/(R-1)²)**(k+1), and that is minimised instead.

    >>> state, kappa = density_split(1.0, 1000)
    >>> round(state, 4), round(kappa, 4)
    (0.8495, 0.2085)
    """
    checks.require_positive(epsilon=epsilon)
    if math.isinf(epsilon):
        return math.inf, math.inf

    def mse(epsilon_state: float) -> float:
        p1 = present_probability(epsilon_state)
        gap = math.tanh(epsilon_state / 2.0)
        noise = laplace_variance(kappa_for_approx(epsilon, epsilon_state, releases, announced))
        bits = (1.0 + p1 * (1.0 - p1) / gap**2) ** (announced + 1) - 1.0
        # Every frozen pattern has its own release noise, weighted by the product of its decoders (joint-loss.md).
        spread = ((p1 * p1 + (1.0 - p1) ** 2) / gap**2) ** announced / gap**2
        return bits / cells + noise * spread / cells**2

    top = epsilon / (announced + 1)
    state = minimise(mse, 1e-9 * top, top * (1.0 - 1e-12))
    return state, kappa_for(epsilon, state, releases, announced)
