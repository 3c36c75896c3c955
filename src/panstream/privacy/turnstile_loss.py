"""Modular counters: their loss, the variance of their readings, and the best split of the budget.

A counter in Z_p starts in the *plus* class (the (p-1)/2 non-zero squares) with weight R = e**epsilon_state per element
and otherwise with weight 1, and is then changed by the user's updates, never re-drawn. Proofs:
docs/proofs/turnstile.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from panstream.primitives import validation as checks
from panstream.privacy.budget_split import laplace_variance
from panstream.privacy.numeric_search import minimise
from panstream.privacy.rounding import remainder, round_down


def _class_probabilities(epsilon_state: float, prime: int) -> tuple[float, float]:
    """Return (P, w): the probability of the plus class for a user whose net weight is 0, and for all others.

    P = nR/(nR + n + 1) with n = (p-1)/2, and w = 1/2 - P/(p-1): the squares are a difference set, so a shift by
    any a ≠ 0 maps exactly (p-3)/4 of them to squares (turnstile.md, Lemma 1).
    """
    if math.isinf(epsilon_state):
        return 1.0, 0.0
    residues = (prime - 1) / 2
    plus = residues / (residues + (residues + 1) * math.exp(-epsilon_state))
    return plus, 0.5 - plus / (prime - 1)


def _counter_variance(epsilon_state: float, kappa: float, cells: int, prime: int, steps: int = 1) -> float:
    """Return the largest variance of the number of cells at zero, decoded from #plus + DLap(kappa).

    [m·steps·v + Var DLap]/(P-w)² with v the larger of w(1-w) and P(1-P); ``steps`` neighbouring blocks are read as if
    they were independent, which they are up to character sums of order 1/sqrt(p).
    """
    at_zero, elsewhere = _class_probabilities(epsilon_state, prime)
    spread = max(elsewhere * (1 - elsewhere), at_zero * (1 - at_zero))
    return (cells * steps * spread + laplace_variance(kappa)) / (at_zero - elsewhere) ** 2


@lru_cache(maxsize=1024)
def counter_split(
    epsilon: float, cells: int, prime: int, *, releases: int = 1, sensitivity: int = 1
) -> tuple[float, float]:
    """Return (epsilon_state, kappa) with the smallest ``_counter_variance`` at the total loss ``epsilon``.

    >>> state, kappa = counter_split(1.0, 20_000, 31)
    >>> round(state, 3), round(kappa, 3)
    (0.927, 0.073)
    """
    return _split(
        epsilon, releases * sensitivity, lambda state, kappa: _counter_variance(state, kappa, cells, prime, sensitivity)
    )


def refresh_factor(epsilon_state: float, prime: int) -> float:
    """Return 1/|N̂(k)|² of the start distribution N on the field, the same at every frequency k ≠ 0.

    Decoding multiplies the variance by this factor for every start value. |N̂(k)| = B·sqrt(p+1)/2, B the difference of
    the probabilities of a plus and a minus element (turnstile.md, Lemma 5).
    """
    at_zero, _ = _class_probabilities(epsilon_state, prime)
    difference = 2 * at_zero / (prime - 1) - 2 * (1 - at_zero) / (prime + 1)
    return 4.0 / ((prime + 1) * difference**2)


@lru_cache(maxsize=1024)
def profile_split(
    epsilon: float, cells: int, prime: int, *, releases: int = 1, announced: int = 0
) -> tuple[float, float]:
    """Return (epsilon_state, kappa) that minimise (m/p + Var DLap(kappa))/|N̂|^2(k+1), the variance of any decoded sum.

    The histogram's L1 sensitivity is 2: epsilon = (k+1)·epsilon_state + 2·n·kappa (turnstile.md, Theorems 3, 5).
    """
    copies = announced + 1
    return _split(
        epsilon,
        2 * releases,
        lambda state, kappa: (cells / prime + laplace_variance(kappa)) * refresh_factor(state, prime) ** copies,
        copies,
    )


def _split(
    epsilon: float, shares: int, variance: Callable[[float, float], float], copies: int = 1
) -> tuple[float, float]:
    checks.require_positive(epsilon=epsilon)
    if math.isinf(epsilon):
        return math.inf, math.inf

    def objective(state: float) -> float:
        return variance(state, min((epsilon - copies * state) / shares, 500.0))

    state = minimise(objective, 1e-6 * epsilon, epsilon * (1.0 - 1e-9) / copies)
    return state, round_down(remainder(epsilon, *[state] * copies) / shares)
