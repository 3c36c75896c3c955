"""Losses of noisy sums over time: joint losses of trees and of the papers' counters as closed forms.

One unit of data enters one node on every level, or as many partial sums. Each accumulator starts as noise and is
released with fresh noise, all of decay rate kappa, so one copy at any time and all outputs lose exactly
levels·sensitivity·kappa, for any shape of the tree. Proofs: docs/proofs/continual-tree.md and continual-papers.md.
Every formula is checked against the linear program on the view matrix of the shipped code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from panstream.primitives import validation as checks
from panstream.primitives.noise.distributions import DiscreteGaussian, DiscreteLaplace
from panstream.privacy.composition import zcdp_rho
from panstream.privacy.rounding import equal_share


@lru_cache(maxsize=256)
def tree_kappa(epsilon: float, levels: int, sensitivity: int = 1, contributions: int = 1) -> Fraction | float:
    """Return the decay rate whose joint loss, levels·sensitivity·contributions·kappa, is ``epsilon``, exactly.

    For one intrusion, all outputs, and one unit of at most ``contributions`` rows (continual-tree.md, Theorem 1).

    >>> tree_kappa(0.5, levels=5, sensitivity=2)
    Fraction(1, 20)
    """
    checks.require_positive(epsilon=epsilon)
    checks.require_at_least(1, contributions=contributions)
    return equal_share(epsilon, levels * sensitivity * contributions)


def moment_sensitivity(steps: int, degree: int, *, replaces: bool) -> int:
    """Return the L1 sensitivity of moments to one item, in units of a step to the power of ``degree``.

    Added or removed: an item at step i has the Bernstein parts C(degree, j)·i**j·(steps - i)**(degree - j), which are
    not negative and add up to steps**degree (continual-tree.md, Theorem 4).

    Exchanged, the count being public: centred moments. Degree 1: the step i moves by at most ``steps``. Degree 2: with
    y = 2i - steps the pair (steps·y, y²) moves by at most 9/4·steps², where steps·|y - y'|·(1 + |y + y'|/steps) is
    largest (continual-tree.md, Theorem 5).

    >>> moment_sensitivity(1024, 2, replaces=True) == 9 * 1024**2 // 4
    True
    """
    return -(-9 * steps**2 // 4) if replaces and degree == 2 else int(steps**degree)


def binary_levels(horizon: int) -> int:
    """Return floor(log2 T) + 1: the sums of the binary mechanism that contain the first item.

    continual-papers.md, Theorem 2.

    >>> [binary_levels(horizon) for horizon in (1, 2, 3, 4, 8, 1024)]
    [1, 2, 2, 3, 4, 11]
    """
    checks.require_at_least(1, horizon=horizon)
    return horizon.bit_length()


def segment_levels(horizon: int) -> int:
    """Return max(1, ceil(log2 T)): the segments of the event-level counter that contain one tick.

    Also the nodes of a window's block that contain one slot: the block itself is not a node.
    """
    checks.require_at_least(1, horizon=horizon)
    return max(1, (horizon - 1).bit_length())


def event_counter_memberships(horizon: int, *, one_step_ticks: bool) -> int:
    """Return how many noisy sums of the event-level counter one event changes at worst.

    continual-papers.md, Theorem 4. The paper pays 1 + ceil(log2 T). With L = max(1, ceil(log2 T)) the exact number is
    L, and one more where T is a power of two above 1; if a tick is one step, only for T = 2, 4 and 8, since then the
    slot's own segment is erased before the intrusion and need not be paid for.

    >>> [event_counter_memberships(horizon, one_step_ticks=True) for horizon in (1, 2, 3, 4, 8, 16)]
    [1, 2, 2, 3, 4, 4]
    """
    levels = segment_levels(horizon)
    power = horizon > 1 and horizon & (horizon - 1) == 0
    return levels + (power and (not one_step_ticks or horizon <= 8))


def tables_laws(
    epsilon: float, delta: float, levels: int, shares: Sequence[Fraction], contributions: int = 1
) -> tuple[DiscreteLaplace | DiscreteGaussian, ...]:
    """Return the noise of the cells of each table, where one record changes one cell of every table on every level.

    With delta = 0 rates kappa = share·epsilon/(levels·K): `tree_kappa` divided by shares that sum to at most 1. Else
    discrete Gaussians with sigma² = K²·levels/(2·share·rho), rho the largest zCDP that implies (epsilon, delta)
    (continual-tree.md, Theorem 9).

    >>> tables_laws(1.0, 0.0, 2, [Fraction(1, 4), Fraction(3, 4)])[0].kappa
    0.125
    >>> [round(law.sigma, 1) for law in tables_laws(1.0, 1e-9, 1, [Fraction(1, 4), Fraction(3, 4)])]
    [11.6, 6.7]
    """
    checks.require_positive(epsilon=epsilon)
    checks.require_at_least(1, contributions=contributions)
    assert sum(shares) <= 1, "the shares of the tables must add up to at most 1"
    if math.isinf(epsilon):
        return (DiscreteLaplace(None),) * len(shares)
    if delta == 0.0:
        return tuple(
            DiscreteLaplace.at_most(Fraction(epsilon) * table_share / (levels * contributions))
            for table_share in shares
        )
    rho = zcdp_rho(epsilon, delta)
    squares = [contributions**2 * levels / (2 * Fraction(rho) * table_share) for table_share in shares]
    return tuple(DiscreteGaussian.at_least(math.nextafter(math.sqrt(square), math.inf)) for square in squares)
