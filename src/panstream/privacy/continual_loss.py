"""Losses of noisy sums over time: joint losses of trees and of the papers' counters as closed forms.

One unit of data enters one node on every level, or as many partial sums. Each accumulator starts as noise and is
released with fresh noise, all of decay rate kappa, so one copy at any time and all outputs lose exactly
levels·sensitivity·kappa, for any shape of the tree. With discrete Gaussian noise of one sigma they lose
levels·norm²/(2·sigma²) of zCDP. Proofs: docs/proofs/continual-tree.md and continual-papers.md.
Every formula is checked against the linear program on the view matrix of the shipped code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from panstream.primitives import validation as checks
from panstream.primitives.noise.distributions import RATE_BITS, DiscreteGaussian, DiscreteLaplace
from panstream.privacy.composition import zcdp_rho
from panstream.privacy.rounding import equal_share, round_up

LEAST_ORDER = 1.001  # of Rényi divergences that totals are computed from


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


def tree_law(
    epsilon: float, delta: float, levels: int, sensitivity: int, norm_square: int, contributions: int = 1
) -> DiscreteLaplace | DiscreteGaussian:
    """Return the noise of a tree's accumulators: of the rate `tree_kappa`, or Gaussian if there is a delta.

    A Gaussian has sigma² = levels·norm_square·contributions²/(2·rho), with rho the largest zCDP that implies
    (epsilon, delta) (continual-tree.md, Theorem 10).

    Args:
        epsilon: Loss of one copy and all outputs.
        delta: 0 for discrete Laplace noise.
        levels: Nodes that contain one row.
        sensitivity: L1 norm of what one row adds to a node.
        norm_square: Square of its L2 norm.
        contributions: Rows of one unit.

    >>> round(tree_law(1.0, 1e-6, 2, 1, 1, contributions=3).sigma, 3)
    19.223
    """
    if not delta:
        return DiscreteLaplace.at_most(tree_kappa(epsilon, levels, sensitivity, contributions))
    checks.require_at_least(1, contributions=contributions)
    if math.isinf(epsilon):
        return DiscreteGaussian(None)
    return _gaussian(Fraction(levels * norm_square * contributions**2), zcdp_rho(epsilon, delta))


def tree_sigma(epsilon: float, delta: float, levels: int, contributions: int = 1) -> float:
    """Return the sigma that `tree_law` has for rows of length 1."""
    rho = zcdp_rho(epsilon, delta)
    return 0.0 if math.isinf(rho) else contributions * math.sqrt(levels / (2.0 * rho))


def _gaussian(square: Fraction | int, rho: float) -> DiscreteGaussian:
    """Return the Gaussian of which moves by ``square`` in squared length lose ``rho``."""
    return DiscreteGaussian.at_least(math.nextafter(math.sqrt(square / (2 * Fraction(rho))), math.inf))


def gaussian_losses(moves: Sequence[tuple[DiscreteGaussian, int]], cells: int, single: int = 0) -> tuple[float, float]:
    """Return what a copy with all outputs loses, as zCDP, and what the outputs alone lose.

    Every cell starts and is released with noise of one sigma, so an output has twice its variance. The sum of two
    discrete Gaussians is one up to a factor that depends on its parity (person-period.md, Theorem 4).

    Args:
        moves: The noise of cells, and by how much one unit moves them: the square of its L2 norm.
        cells: How many cells one unit can move.
        single: Squared length of the moves of cells that have no start noise, of the first kind of noise.
    """
    if any(law.numerator is None for law, _ in moves):
        return math.inf, math.inf
    rates = [Fraction(law.numerator or 0, 1 << RATE_BITS) for law, _ in moves]  # 1/(2·sigma²), exactly
    joint = sum((rate * square for rate, (_, square) in zip(rates, moves, strict=True)), Fraction(0))
    alone = (joint + rates[0] * single) / 2
    slack = cells * max(_parity(law) for law, _ in moves)
    if alone + slack >= joint:
        return round_up(joint), round_up(joint)
    return round_up(joint + slack), round_up(alone + slack)


def _parity(law: DiscreteGaussian) -> float:
    """Return how much zCDP one output can lose more than that of a Gaussian with twice the variance.

    The factors of even and odd sums differ by at most exp(5q), q = exp(-pi²·sigma²), which adds
    alpha/(alpha - 1)·5q to the Rényi divergence of order alpha: alpha·5q·1000 for the orders from 1.001 on.
    """
    q = math.exp(-(math.pi**2) * law.sigma**2)
    return 5.0 * q / (LEAST_ORDER - 1.0) if q < 0.01 else math.inf


def moment_norm_square(steps: int, degree: int, *, replaces: bool) -> int:
    """Return the square of the L2 sensitivity of moments to one item, in units of a step to the power of ``degree``.

    Bernstein parts are not negative and add up to steps**degree, so the L2 norm is at most that, and is at the ends of
    the range. Exchanged, degree 2: with d = y - y' and s = y + y' the square of the pair's change is
    d²·(steps² + s²), largest at s = 0 and d = 2·steps (continual-tree.md, Theorem 10).

    >>> moment_norm_square(8, 2, replaces=False), moment_norm_square(8, 2, replaces=True)
    (4096, 16384)
    """
    return (4 if replaces and degree == 2 else 1) * int(steps ** (2 * degree))


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
    return tuple(_gaussian(contributions**2 * levels / table_share, rho) for table_share in shares)
