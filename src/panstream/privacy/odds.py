"""By how much the odds of a guess can change, where a claim has a delta."""

from __future__ import annotations

import math

_MORE = 0.1  # loss above epsilon, for which a chance follows from delta


def odds_bound(epsilon: float, delta: float) -> tuple[float, float]:
    """Return a loss, and the chance that the logarithm of the odds changes by more.

    A mechanism that is (epsilon, delta)-private may change odds by more than e^epsilon with a chance far above delta.
    Let E be the views whose likelihoods differ by more than e^(epsilon + t). Then P(E) <= e^epsilon Q(E) + delta <=
    e^-t P(E) + delta, so P(E) <= delta / (1 - e^-t).

    >>> odds_bound(2.0, 0.0)
    (2.0, 0.0)
    >>> loss, chance = odds_bound(2.0, 1e-6)
    >>> f"{loss:g}, {chance:.3g}"
    '2.1, 1.05e-05'
    """
    if not delta:
        return epsilon, 0.0
    return epsilon + _MORE, min(1.0, delta / -math.expm1(-_MORE))
