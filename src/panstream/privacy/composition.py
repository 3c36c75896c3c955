"""Adding up losses. The number of times something happens is multiplied in exactly one place: ``repeated``."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from panstream.errors import InvalidParameter
from panstream.privacy.claim import Claim

__all__ = ["gaussian_rho", "group", "parallel", "repeated", "sequential", "zcdp_delta", "zcdp_epsilon", "zcdp_rho"]


def sequential(claims: Sequence[Claim]) -> Claim:
    """Compose claims about the same unit: losses add up."""
    first = _same_kind(claims)
    parts: dict[str, float] = {}
    for claim in claims:
        for name, loss in (claim.parts or {"total": claim.epsilon}).items():
            parts[name] = parts.get(name, 0.0) + loss
    return replace(
        first,
        epsilon=math.fsum(claim.epsilon for claim in claims),
        delta=min(math.fsum(claim.delta for claim in claims), 1 - 2**-53),
        parts=parts,
        releases=_total_releases(claims),
        public=_union(claims),
    )


def parallel(claims: Sequence[Claim]) -> Claim:
    """Compose claims about disjoint parts of the data, where one unit falls into one part: the largest loss counts."""
    first = _same_kind(claims)
    worst = max(claims, key=lambda claim: claim.epsilon)
    return replace(
        first,
        epsilon=worst.epsilon,
        delta=max(claim.delta for claim in claims),
        parts=worst.parts,
        releases=_total_releases(claims),
        public=_union(claims),
    )


def repeated(claim: Claim, times: int) -> Claim:
    """Compose a claim with itself: every loss is multiplied by ``times``."""
    if times < 1:
        raise InvalidParameter(f"times must be at least 1, got times={times}")
    return replace(
        claim,
        epsilon=claim.epsilon * times,
        delta=min(claim.delta * times, 1 - 2**-53),
        parts={name: loss * times for name, loss in claim.parts.items()},
        releases=max(claim.releases * times, -1),  # any number of them remains any number
    )


def group(claim: Claim, size: int) -> Claim:
    """Return the claim for groups of ``size`` units: epsilon·size, delta·(e**(size·eps)-1)/(e**eps-1)."""
    if size < 1:
        raise InvalidParameter(f"size must be at least 1, got size={size}")
    growth = size * claim.epsilon
    if claim.delta == 0.0:
        delta = 0.0
    elif claim.epsilon == 0.0:
        delta = claim.delta * size
    elif growth > 700.0:
        delta = 1.0
    else:
        delta = claim.delta * math.expm1(growth) / math.expm1(claim.epsilon)
    return replace(
        claim,
        epsilon=growth,
        delta=min(delta, 1 - 2**-53),
        parts={name: loss * size for name, loss in claim.parts.items()},
    )


def gaussian_rho(sensitivity: float, sigma: float) -> float:
    """Return the zCDP loss of (discrete) Gaussian noise: sensitivity²/(2·sigma²) for L2 sensitivity."""
    if not sigma > 0:
        raise InvalidParameter(f"sigma must be positive, got sigma={sigma}")
    return sensitivity**2 / (2.0 * sigma**2)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the delta that rho-zCDP gives at ``epsilon`` (Canonne, Kamath, Steinke 2020, Corollary 13)."""
    if rho == 0.0:
        return 0.0

    def log_delta(alpha: float) -> float:
        return (alpha - 1.0) * (alpha * rho - epsilon) + alpha * math.log1p(-1.0 / alpha) - math.log(alpha - 1.0)

    # d/dalpha log_delta is increasing in alpha, so bisection on it finds the minimum.
    low, high = 1.0 + 1e-12, max(2.0, (epsilon + 1.0) / (2.0 * rho) + 2.0)
    for _ in range(200):
        middle = (low + high) / 2.0
        slope = (2.0 * middle - 1.0) * rho - epsilon + math.log1p(-1.0 / middle)
        low, high = (middle, high) if slope < 0.0 else (low, middle)
    return min(math.exp(min(log_delta(high), 0.0)), 1.0)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon at which rho-zCDP gives ``delta``."""
    if not 0.0 < delta < 1.0:
        raise InvalidParameter(f"delta must be in (0, 1), got delta={delta}")
    if rho == 0.0:
        return 0.0
    low, high = 0.0, rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))  # Bun, Steinke 2016, Proposition 1.3
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (low, middle) if zcdp_delta(rho, middle) <= delta else (middle, high)
    return high


@functools.lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP gives (``epsilon``, ``delta``): the inverse of :func:`zcdp_epsilon`.

    >>> rho = zcdp_rho(1.0, 1e-9)
    >>> round(rho, 6), zcdp_delta(rho, 1.0) <= 1e-9
    (0.014973, True)
    """
    if not epsilon > 0:
        raise InvalidParameter(f"epsilon must be positive, got epsilon={epsilon}")
    if not 0.0 < delta < 1.0:
        raise InvalidParameter(f"delta must be in (0, 1), got delta={delta}")
    if math.isinf(epsilon):
        return math.inf
    low, high = 0.0, epsilon
    while zcdp_delta(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if zcdp_delta(middle, epsilon) <= delta else (low, middle)
    return low


def _same_kind(claims: Sequence[Claim]) -> Claim:
    if not claims:
        raise InvalidParameter("claims must not be empty")
    kinds = {(claim.unit, claim.adjacency) for claim in claims}
    if len(kinds) > 1:
        named = ", ".join(sorted(f"{unit} ({adjacency})" for unit, adjacency in kinds))
        raise InvalidParameter(f"claims about different units cannot be added up, got {named}")
    return claims[0]


def _total_releases(claims: Sequence[Claim]) -> int:
    return -1 if any(claim.releases < 0 for claim in claims) else sum(claim.releases for claim in claims)


def _union(claims: Sequence[Claim]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fact for claim in claims for fact in claim.public))
