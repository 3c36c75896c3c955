"""Loss of a tree over the changes of a number of set bits, which arrivals re-draw, counted at every tick.

An open node stores -S + a draw, S the number of set bits when it opened, and is released as the change plus two draws.
One event changes an interval of a bit's history, a user all of it. Proofs: docs/proofs/continual-users.md; the formulas
are checked against an enumeration of the shipped code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from panstream.errors import InvalidParameter
from panstream.privacy.joint_loss import kappa_for_approx, log_mixture, max_mixture_exponent, present_probability
from panstream.privacy.numeric_search import bisect, root
from panstream.privacy.rounding import round_down

_MARGIN = 1e-9  # share of epsilon: far above the floating-point error of the formula of Theorem B
_ROUNDS = 60


def max_change_budget(epsilon: float, epsilon_state: float, start: float = 0.0, *, deletions: bool = False) -> float:
    """Return the largest ``tree`` with which one event loses at most ``epsilon``, rounded down (Theorem A).

    ``tree`` is levels·kappa and ``start`` the rate of the noise with which the start is released, 0 if it is not.

    With deletions a start of the same rate as the whole tree is free.
    """
    if math.isinf(epsilon):
        return math.inf
    remaining = Fraction(epsilon) - Fraction(epsilon_state)
    if not remaining > 0:
        raise InvalidParameter(f"epsilon_state must be below epsilon={epsilon}, got {epsilon_state}")
    headroom = max_mixture_exponent(remaining, epsilon_state)
    if deletions:
        tree = min(headroom / 2, headroom - Fraction(start))
    else:
        tree = min(headroom - Fraction(start), max_mixture_exponent(Fraction(epsilon), epsilon_state) / 2)
    if not tree > 0:
        raise InvalidParameter(f"start must leave something of epsilon={epsilon}, got start={start}")
    return round_down(tree)


def max_change_budget_approx(epsilon: float, epsilon_state: float, start: float, *, deletions: bool = False) -> float:
    """Return ``max_change_budget`` up to rounding errors of either sign, and 0 if there is none: fast, for searches."""
    headroom = kappa_for_approx(epsilon, epsilon_state)
    if deletions:
        return max(min(headroom / 2.0, headroom - start), 0.0)
    return max(min(headroom - start, kappa_for_approx(epsilon + epsilon_state, epsilon_state) / 2.0), 0.0)


def max_single_budget(epsilon: float, epsilon_state: float, start: float) -> float:
    """Return the largest kappa with which a user loses at most ``epsilon``, less a margin; 0 if there is none.

    The start is released, then one answer, and no row is applied after it (Theorem C).
    """
    remaining = epsilon * (1.0 - _MARGIN) - epsilon_state
    early = remaining + log_mixture(-epsilon_state, -start)
    late = remaining - log_mixture(epsilon_state, start)
    if not (early > 0.0 and late > 0.0):
        return 0.0
    return min(_unmixed(epsilon_state, early), _unmixed(-epsilon_state, late))


def _unmixed(epsilon_state: float, loss: float) -> float:
    return math.log1p(math.expm1(loss) / present_probability(epsilon_state))


def _flicker_loss(
    epsilon_state: float, kappa: float, levels: int, closings: Sequence[int], *, windowed: bool = False
) -> float:
    """Return a bound for the loss of any rows of one user; infinite where 2·levels·kappa exceeds ``epsilon_state``.

    ``closings`` has the number of ticks at which exactly 1, 2, ..., levels levels close: all of them, the K highest for
    a user of K rows, or those of the worst window (Theorem B).

    eps_s + h·kappa·(4p1 - p0) + g(h·kappa) + sum g(2·kappa·L) + ln cosh kappa·[3h + 2r/(1+r)²·sum L],
    g(x) = ln(p0·e**(p1·x) + p1·e**(-p0·x)), r = R·e**(-2h·kappa). Where only the rows within a window may differ, the
    intervals across its edges cost 2g(2h·kappa) instead of g(h·kappa), and h more nodes count.
    """
    tree = levels * kappa
    if 2.0 * tree > epsilon_state:
        return math.inf
    p1 = present_probability(epsilon_state)
    odds = math.exp(epsilon_state - 2.0 * tree)
    differ = 2.0 * odds / (1.0 + odds) ** 2
    nodes = math.fsum(level * many for level, many in enumerate(closings, 1)) + windowed * levels
    ends = 2.0 * _spread(2.0 * tree, p1) if windowed else _spread(tree, p1)
    intervals = math.fsum(many * _spread(2.0 * kappa * level, p1) for level, many in enumerate(closings, 1))
    node_terms = math.log(math.cosh(kappa)) * (3 * levels + differ * nodes)
    return epsilon_state + tree * (5.0 * p1 - 1.0) + ends + intervals + node_terms


def _spread(x: float, p1: float) -> float:
    """Return g(x), the excess of ln E e**(x·bit) over x·E bit, for the worse of both coins and signs."""
    return (p1 - 1.0) * x + math.log1p((1.0 - p1) * math.expm1(x))


def max_flicker_budget(
    epsilon: float,
    epsilon_state: float,
    levels: int,
    closings: Sequence[int],
    *,
    windowed: bool = False,
    exact: bool = True,
) -> float:
    """Return the largest ``tree`` = levels·kappa with which one user loses at most ``epsilon``.

    By bisection; for searches, which need it often and only nearly (not ``exact``), in fewer steps.
    """
    if math.isinf(epsilon):
        return math.inf
    max_loss = epsilon * (1.0 - _MARGIN)
    high = epsilon_state / 2.0

    def excess(tree: float) -> float:
        return _flicker_loss(epsilon_state, tree / levels, levels, closings, windowed=windowed) - max_loss

    def fits(tree: float) -> bool:
        return excess(tree) <= 0.0

    if not exact and fits(0.0) and 0.0 < excess(high * (1.0 - _MARGIN)) < math.inf:
        return root(excess, 0.0, high * (1.0 - _MARGIN))
    return high * (1.0 - _MARGIN) if fits(high) else bisect(fits, 0.0, high, _ROUNDS)[0]
