"""Modular counters: what they lose, how well they can be read, and the best split of the budget.

A counter in Z_p starts in the *plus* class (the (p-1)/2 non-zero squares) with weight R = e**epsilon_state per element
and elsewhere with weight 1, and is then moved by the user's updates, never re-drawn. Proofs: docs/proofs/turnstile.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from panstream import checks
from panstream.privacy.claim import Adjacency
from panstream.privacy.joint import modular_loss
from panstream.privacy.rounding import down, rest
from panstream.privacy.split import laplace_variance, minimise

__all__ = [
    "calibrated_loss",
    "class_probabilities",
    "class_ratio",
    "counter_loss",
    "counter_split",
    "counter_variance",
    "profile_gain",
    "profile_split",
    "published_cropped_loss",
    "published_heavy_loss",
]


def class_probabilities(epsilon_state: float, prime: int) -> tuple[float, float]:
    """Return (P, w): the chance of the plus class for a user whose net weight is 0, and for everyone else.

    P = nR/(nR + n + 1) with n = (p-1)/2, and w = 1/2 - P/(p-1): the squares are a difference set, so a shift by
    any a ≠ 0 takes exactly (p-3)/4 of them to squares.                                        [turnstile.md, Lemma 1]
    """
    if math.isinf(epsilon_state):
        return 1.0, 0.0
    residues = (prime - 1) / 2
    plus = residues / (residues + (residues + 1) * math.exp(-epsilon_state))
    return plus, 0.5 - plus / (prime - 1)


def class_ratio(plus: Fraction, prime: int) -> Fraction:
    """Return the exact ratio of the chances of a plus and a minus element, if the class is plus with chance ``plus``."""
    residues = (prime - 1) // 2
    return (plus / residues) / ((1 - plus) / (residues + 1))


def counter_loss(
    epsilon_state: float,
    kappa: float,
    *,
    releases: int = 1,
    sensitivity: int = 1,
    adjacency: Adjacency = "add-remove",
) -> float:
    """Return the joint loss of one look and n releases of an integer that one counter moves by ``sensitivity``.

    epsilon_state + n·sensitivity·kappa, and twice that where one user takes another's place  [turnstile.md, Theorem 2]
    """
    return modular_loss(epsilon_state, kappa, releases, sensitivity) * (2 if adjacency == "replace" else 1)


def counter_variance(epsilon_state: float, kappa: float, cells: int, prime: int, steps: int = 1) -> float:
    """Return the largest variance of the number of cells at zero, decoded from #plus + DLap(kappa).

    [m·steps·v + Var DLap]/(P-w)² with v the larger of w(1-w) and P(1-P); ``steps`` neighbouring blocks are read as if
    they were independent, which they are up to character sums of order 1/sqrt(p).
    """
    at_zero, elsewhere = class_probabilities(epsilon_state, prime)
    spread = max(elsewhere * (1 - elsewhere), at_zero * (1 - at_zero))
    return (cells * steps * spread + laplace_variance(kappa)) / (at_zero - elsewhere) ** 2


@lru_cache(maxsize=1024)
def counter_split(
    epsilon: float, cells: int, prime: int, *, releases: int = 1, sensitivity: int = 1
) -> tuple[float, float]:
    """Return (epsilon_state, kappa) with the smallest ``counter_variance`` at the total loss ``epsilon``.

    >>> state, kappa = counter_split(1.0, 20_000, 31)
    >>> round(state, 3), round(kappa, 3)
    (0.927, 0.073)
    """
    return _split(
        epsilon, releases * sensitivity, lambda state, kappa: counter_variance(state, kappa, cells, prime, sensitivity)
    )


def profile_gain(epsilon_state: float, prime: int) -> float:
    """Return 1/|N̂(k)|², the same at every frequency k ≠ 0, of the start law N of the profile sketch.

    |N̂(k)| = B·sqrt(p+1)/2, B the difference of a plus and a minus element's chance           [turnstile.md, Lemma 5]
    """
    at_zero, _ = class_probabilities(epsilon_state, prime)
    difference = 2 * at_zero / (prime - 1) - 2 * (1 - at_zero) / (prime + 1)
    return 4.0 / ((prime + 1) * difference**2)


@lru_cache(maxsize=1024)
def profile_split(epsilon: float, cells: int, prime: int, *, releases: int = 1) -> tuple[float, float]:
    """Return (epsilon_state, kappa) that minimise (m/p + Var DLap(kappa))/|N̂|², the variance of any decoded sum.

    The histogram's L1 sensitivity is 2: epsilon = epsilon_state + 2·n·kappa                   [turnstile.md, Theorem 3]
    """
    return _split(
        epsilon,
        2 * releases,
        lambda state, kappa: (cells / prime + laplace_variance(kappa)) * profile_gain(state, prime),
    )


def _split(epsilon: float, shares: int, variance: Callable[[float, float], float]) -> tuple[float, float]:
    checks.positive(epsilon=epsilon)
    if math.isinf(epsilon):
        return math.inf, math.inf

    def objective(state: float) -> float:
        return variance(state, min((epsilon - state) / shares, 500.0))

    state = minimise(objective, 1e-6 * epsilon, epsilon * (1.0 - 1e-9))
    return state, down(rest(epsilon, state) / shares)


def published_cropped_loss(epsilon: float, adjacency: Adjacency = "add-remove") -> float:
    """Return the true loss of Mir et al., Algorithm 2, over the real numbers: 2·epsilon, or 4·epsilon for replace.

    The state loses epsilon (a density of two values, ratio e**epsilon) and the sum, which one user moves by up to 2·crop, is
    published with Lap(2·crop/epsilon). The paper states 2·epsilon for its own adjacency, which is replace.
    """
    return 2 * epsilon * (2 if adjacency == "replace" else 1)


def published_heavy_loss(epsilon: float, adjacency: Adjacency = "add-remove") -> float:
    """Return the true loss of Mir et al., Algorithm 3: two runs of Algorithm 2 over the same stream."""
    return 2 * published_cropped_loss(epsilon, adjacency)


def calibrated_loss(rate: float, step: float, adjacency: Adjacency = "add-remove") -> float:
    """Return the joint loss of a sketch that starts and is published with noise of weight exp(-rate·d).

    rate·step for the state and as much for the output, where ``step`` is the largest change of the quality d that one user
    can make; twice that for replace (Mir et al., section 3.1, over Z_q).
    """
    return 2 * rate * step * (2 if adjacency == "replace" else 1)
