"""Rules that all methods share."""

from __future__ import annotations

import math

from panstream import checks
from panstream.errors import InvalidParameter

__all__ = ["check_common", "check_gaussian", "check_split"]


def check_common(epsilon: float, degree: int) -> None:
    """Refuse an epsilon that is not positive and a degree outside 1..8."""
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise InvalidParameter(f"epsilon must be positive and finite, got epsilon={epsilon}")
    checks.within(1, 8, degree=degree)


def check_gaussian(epsilon: float, delta: float) -> None:
    """Refuse what Gaussian noise cannot promise."""
    check_common(epsilon, 1)
    checks.probability(delta=delta)


def check_split(split: float) -> None:
    """Refuse a share for the structure outside (0, 1)."""
    checks.probability(split=split)
