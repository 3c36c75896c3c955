"""The L1 norm by Cauchy sketches: a negative result, in formulas only.

Indyk's sketch has r counters, each the sum over users of (net weight)·C with C Cauchy, and the scale of the counters is
the L1 norm (Indyk 2006). With Cauchy noise they remain Cauchy. But an entry C with noise of scale g loses
2·asinh(Z·|C|/(2g)) for a weight of Z, and among U users the largest entry is about U·r: the noise that this user needs
is larger than the norm. The library has ``BlockCounter(crop=Z)`` instead, which counts the same up to Z.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from panstream.core.estimate import bisect_decreasing
from panstream.primitives import validation as checks


def cauchy_loss(shift: float, scale: float) -> float:
    """Return the largest log ratio of two Cauchy densities of the same scale, ``shift`` apart.

    >>> round(cauchy_loss(1.0, 1.0), 4)
    0.9624
    """
    checks.require_positive(scale=scale)
    return 2.0 * math.asinh(abs(shift) / (2.0 * scale))


def cauchy_scale(entries: NDArray[np.float64], epsilon: float, weight: float = 1.0) -> float:
    """Return the noise scale at which the worst user loses ``epsilon``; ``entries`` has one row per user."""
    checks.require_positive(epsilon=epsilon, weight=weight)
    sizes = np.abs(entries) * weight

    def excess(log_scale: float) -> float:
        worst: float = (2.0 * np.arcsinh(sizes / (2.0 * math.exp(log_scale)))).sum(axis=1).max()
        return math.log(worst / epsilon)

    # asinh(x) is at most x, so the sum of a user's entries over epsilon always suffices.
    enough = math.log(sizes.sum(axis=1).max() / epsilon)
    return math.exp(bisect_decreasing(excess, enough - 40.0, enough))


def l1_deviation(norm: float, scale: float, counters: int) -> float:
    """Return the standard error of the best estimate of an L1 norm, with noise at the start and at the release.

    The counters are Cauchy of scale norm + 2·scale, whose Fisher information is 1/(2·scale²) each.
    """
    return math.sqrt(2.0 / counters) * (norm + 2.0 * scale)
