"""What trees of noisy sums cost: joint losses of the tree counters as closed forms.

One unit of data enters one node on every level. Each node's accumulator starts as noise and is released with fresh
noise, all of decay rate kappa, so one look at any time and all outputs lose levels·sensitivity·kappa, whatever the
tree looks like. Proofs: docs/proofs/continual-tree.md. Every formula is checked against the linear program on the
view matrix of the shipped code.
"""

from __future__ import annotations

from fractions import Fraction

from panstream import checks
from panstream.privacy.rounding import share

__all__ = ["bernstein_sensitivity", "moment_sensitivity", "tree_kappa", "tree_loss"]


def tree_loss(kappa: float, levels: int, sensitivity: int = 1, contributions: int = 1) -> float:
    """Return the joint loss of one look and all outputs, for one unit of at most ``contributions`` rows.

    levels·sensitivity·contributions·kappa                                            [continual-tree.md, Theorem 1]

    >>> tree_loss(0.05, levels=5, sensitivity=2)
    0.5
    """
    return levels * sensitivity * contributions * kappa


def tree_kappa(epsilon: float, levels: int, sensitivity: int = 1, contributions: int = 1) -> Fraction | float:
    """Return the decay rate whose joint loss is ``epsilon``, exactly: the inverse of ``tree_loss``."""
    checks.positive(epsilon=epsilon)
    checks.at_least(1, contributions=contributions)
    return share(epsilon, levels * sensitivity * contributions)


def bernstein_sensitivity(steps: int, degree: int) -> int:
    """Return steps**degree, the L1 norm of one item's Bernstein parts, when items are added or removed.

    An item at step i of ``steps`` has the parts C(degree, j)·i**j·(steps - i)**(degree - j), which are not negative
    and add up to (i + steps - i)**degree.                                            [continual-tree.md, Theorem 4]
    """
    return int(steps**degree)


def moment_sensitivity(steps: int, degree: int) -> int:
    """Return how far one item's centred moments move in L1 when its value is exchanged and the count is public.

    Degree 1: the step i moves by at most ``steps``. Degree 2: with y = 2i - steps the pair (steps·y, y²) moves by at
    most 9/4·steps², where steps·|y - y'|·(1 + |y + y'|/steps) is largest.            [continual-tree.md, Theorem 5]

    >>> moment_sensitivity(1024, 2) == 9 * 1024**2 // 4
    True
    """
    return steps if degree == 1 else -(-9 * steps**2 // 4)
