"""What partial sums cost: joint losses of continual counters as closed forms, sound ones and the published ones.

One unit of data enters ``memberships`` noisy partial sums (p-sums). If every accumulator starts as noise and is
released with fresh noise, both of decay rate kappa, the joint loss of one look and all outputs is exactly
memberships·sensitivity·kappa. Proofs: docs/proofs/continual-papers.md. Every formula here is checked against the
linear program on the view matrix of the shipped code.
"""

from __future__ import annotations

import math
from fractions import Fraction

from panstream import checks
from panstream.errors import InvalidParameter
from panstream.privacy.rounding import share

__all__ = [
    "binary_levels",
    "event_counter_memberships",
    "psum_kappa",
    "psum_loss",
    "published_average_loss",
    "published_binary_loss",
    "published_hybrid_loss",
    "published_point_loss",
    "published_simple_loss",
    "published_variance_loss",
    "segment_levels",
    "window_levels",
]


def psum_loss(kappa: float, memberships: int, sensitivity: float = 1.0) -> float:
    """Return the joint loss of one look and all outputs.                              [continual-papers.md, Theorem 1]"""
    return memberships * sensitivity * kappa


def psum_kappa(epsilon: float, memberships: int, sensitivity: float = 1.0) -> Fraction | float:
    """Return the decay rate whose joint loss is ``epsilon``, exactly: the inverse of ``psum_loss``."""
    checks.positive(epsilon=epsilon)
    return share(epsilon, memberships) / Fraction(sensitivity)


def binary_levels(horizon: int) -> int:
    """Return floor(log2 T) + 1: the p-sums of the binary mechanism that hold the first item.       [Theorem 2]

    >>> [binary_levels(horizon) for horizon in (1, 2, 3, 4, 8, 1024)]
    [1, 2, 2, 3, 4, 11]
    """
    return _at_least_one(horizon, "horizon").bit_length()


def segment_levels(horizon: int) -> int:
    """Return how many segments of the event-level counter hold one time: max(1, ceil(log2 T))."""
    return max(1, (_at_least_one(horizon, "horizon") - 1).bit_length())


def event_counter_memberships(horizon: int, *, one_step_ticks: bool) -> int:
    """Return how many noises of the event-level counter one event moves at worst.                  [Theorem 4]

    The paper pays 1 + ceil(log2 T). With L = max(1, ceil(log2 T)) the exact number is L, and one more where T is a
    power of two above 1; if a tick is one step, only for T = 2, 4 and 8, since then the slot's own segment is erased by
    the time of the look and can be given back.

    >>> [event_counter_memberships(horizon, one_step_ticks=True) for horizon in (1, 2, 3, 4, 8, 16)]
    [1, 2, 2, 3, 4, 4]
    """
    levels = segment_levels(horizon)
    power = horizon > 1 and horizon & (horizon - 1) == 0
    return levels + (power and (not one_step_ticks or horizon <= 8))


def window_levels(window: int) -> int:
    """Return how many nodes of a block of ``window`` slots hold one slot; the block itself is not a node."""
    return max(1, (_at_least_one(window, "window") - 1).bit_length())


def published_simple_loss(epsilon: float, horizon: int) -> float:
    """Return T·epsilon, the loss of the outputs of the simple counting mechanism I (2.3.2)."""
    return horizon * epsilon


def published_binary_loss(epsilon: float, horizon: int) -> float:
    """Return the loss of the outputs of Algorithm 2 with eps' = eps/(N·log T): (floor(log2 T)+1)/log2 T times epsilon.

    >>> [round(published_binary_loss(1.0, horizon), 2) for horizon in (2, 8, 64)]
    [2.0, 1.33, 1.17]
    """
    _at_least_two(horizon)
    return epsilon * binary_levels(horizon) / math.log2(horizon)


def published_hybrid_loss(epsilon: float, horizon: int) -> float:
    """Return the loss of the outputs of the unbounded sum (4.1) over ``horizon`` slots: below epsilon, and towards it.

    Epoch k holds at most 2**k - 1 slots, so an item enters at most k of the k + 1 sums that its noise pays for.
    """
    shares = [
        min((1 << epoch) - 1, horizon - (1 << epoch)).bit_length() / (epoch + 1)
        for epoch in range(_at_least_one(horizon, "horizon").bit_length())
    ]
    return epsilon / 2.0 * (1.0 + max(shares))


def published_average_loss(epsilon: float, horizon: int, bound: float) -> float:
    """Return the loss of the outputs of Algorithm 3 for values in [0, bound]: the sum's noise ignores the bound.

    >>> round(published_average_loss(1.0, 1024, 100.0), 1)
    55.5
    """
    _at_least_two(horizon)
    return (1.0 + bound) * epsilon * binary_levels(horizon) / (2.0 * math.log2(horizon))


def published_variance_loss(epsilon: float, horizon: int, bound: float) -> float:
    """Return the loss of the outputs of Algorithm 4: a count, an average of the values and one of their squares.

    >>> round(published_variance_loss(1.0, 1024, 100.0))
    5557
    """
    count = published_binary_loss(epsilon, horizon)
    return (
        count
        + published_average_loss(epsilon, horizon, bound)
        + published_average_loss(epsilon, horizon, bound * bound)
    )


def published_point_loss(epsilon: float, bound: float) -> float:
    """Return N·epsilon, what Lap(1/epsilon) on each data point of [0, N] costs (5.1)."""
    return bound * epsilon


def _at_least_one(number: int, name: str) -> int:
    if number < 1:
        raise InvalidParameter(f"{name} must be at least 1, got {name}={number}")
    return number


def _at_least_two(horizon: int) -> None:
    if horizon < 2:
        raise InvalidParameter(f"horizon must be at least 2 for log T to be positive, got horizon={horizon}")
