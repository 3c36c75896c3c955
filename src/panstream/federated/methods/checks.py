"""Rules that all methods share."""

from __future__ import annotations

import math

from panstream.errors import InvalidParameter

__all__ = ["check_common", "check_gaussian", "check_split"]


def check_common(epsilon: float, degree: int) -> None:
    """Refuse an epsilon that is not positive and a degree outside 1..8."""
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise InvalidParameter(f"epsilon must be positive and finite, got epsilon={epsilon}")
    if not 1 <= degree <= 8:
        raise InvalidParameter(f"degree must be in 1..8, got degree={degree}")


def check_gaussian(epsilon: float, delta: float) -> None:
    """Refuse what Gaussian noise cannot promise."""
    check_common(epsilon, 1)
    if not 0 < delta < 1:
        raise InvalidParameter(f"delta must be in (0, 1), got delta={delta}")


def check_split(split: float) -> None:
    """Refuse a share for the structure outside (0, 1)."""
    if not 0 < split < 1:
        raise InvalidParameter(f"split must be in (0, 1), got split={split}")
