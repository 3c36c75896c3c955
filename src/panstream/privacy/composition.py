"""Composition of claims. Losses are multiplied by a number of repetitions only in ``compose_repeated``.

A composed claim has the weakest of each property: the fewest intrusions, the locations that all claims cover, the
shortest horizon. Combinations without a theorem are rejected.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.privacy.claim import Claim, Intrusions, count_of
from panstream.privacy.numeric_search import bisect
from panstream.privacy.rounding import round_down, sum_rounded_up, times_rounded_up

_MAX_DELTA = 1 - 2**-53
_MARGIN = 1e-12  # for conversions between rho and (epsilon, delta): far above their floating-point error


def compose_sequential(claims: Sequence[Claim]) -> Claim:
    """Compose claims about the same unit: losses add up, all else is the weakest of the claims.

    Args:
        claims: Claims about the same unit.
    """
    return _composed(
        claims,
        epsilon=sum_rounded_up(claim.epsilon for claim in claims),
        delta=sum_rounded_up(claim.delta for claim in claims),
        parts=_parts(claims),
        event_epsilon=sum_rounded_up(_event_epsilon(claim) for claim in claims),
    )


def compose_parallel(claims: Sequence[Claim]) -> Claim:
    """Compose claims about disjoint parts of the data, where a unit's part is fixed: the largest loss counts.

    Add-remove only: a unit that is replaced may leave one part and enter another, which changes both. For parts that
    are the tables of different holders see `compose_per_holder`.

    Args:
        claims: Claims about the parts.
    """
    if any(claim.adjacency == "replace" for claim in claims):
        raise InvalidParameter(
            "parallel composition does not hold for replace-one claims: a unit may change from one part to another; "
            "use per_holder where the records of every holder are protected separately"
        )
    return _largest(claims)


def compose_per_holder(claims: Sequence[Claim]) -> Claim:
    """Compose replace-one claims of several holders about their own tables: the largest loss counts.

    A record is replaced by another of the same holder, and the number of each holder's records is public.

    Args:
        claims: One claim per holder.
    """
    if any(claim.adjacency != "replace" for claim in claims):
        raise InvalidParameter("per_holder is about replace-one claims; for add-remove claims use parallel")
    largest = _largest(claims)
    return replace(largest, note=_joined([largest.note, "every holder's records are protected separately"]))


def compose_repeated(claim: Claim, times: int) -> Claim:
    """Compose a claim with itself: every loss is multiplied by ``times``.

    Args:
        claim: The claim.
        times: How often it holds.
    """
    checks.require_at_least(1, times=times)
    return replace(
        claim,
        epsilon=times_rounded_up(claim.epsilon, times),
        delta=min(times_rounded_up(claim.delta, times), _MAX_DELTA),
        parts={name: times_rounded_up(loss, times) for name, loss in claim.parts.items()},
        event_epsilon=None if claim.event_epsilon is None else times_rounded_up(claim.event_epsilon, times),
        releases=max(claim.releases * times, -1),  # -1, any number, stays -1
    )


def group_privacy(claim: Claim, size: int) -> Claim:
    """Return the claim for groups of ``size`` units: epsilon·size, delta·(e**(size·eps)-1)/(e**eps-1).

    Args:
        claim: The claim about one unit.
        size: Number of units in a group.
    """
    checks.require_at_least(1, size=size)
    return replace(
        claim,
        epsilon=times_rounded_up(claim.epsilon, size),
        delta=group_delta(claim.epsilon, claim.delta, size),
        parts={name: times_rounded_up(loss, size) for name, loss in claim.parts.items()},
        event_epsilon=None,
    )


def group_delta(epsilon: float, delta: float, size: int) -> float:
    """Return the delta of groups of ``size`` units, delta·(e**(size·eps)-1)/(e**eps-1), below 1."""
    growth = size * epsilon
    if delta == 0.0 or size == 1:
        return delta
    if epsilon == 0.0:
        grown = delta * size
    elif growth > 700.0:
        grown = 1.0
    else:
        grown = delta * math.expm1(growth) / math.expm1(epsilon) * (1.0 + _MARGIN)
    return min(grown, _MAX_DELTA)


def _zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the delta that rho-zCDP gives at ``epsilon`` (Canonne, Kamath, Steinke 2020, Corollary 13)."""
    if rho == 0.0:
        return 0.0

    def log_delta(alpha: float) -> float:
        return (alpha - 1.0) * (alpha * rho - epsilon) + alpha * math.log1p(-1.0 / alpha) - math.log(alpha - 1.0)

    def falls(alpha: float) -> bool:
        return (2.0 * alpha - 1.0) * rho - epsilon + math.log1p(-1.0 / alpha) < 0.0

    # d/dalpha log_delta is increasing in alpha, so bisection on it finds the minimum.
    _, best = bisect(falls, 1.0 + 1e-12, max(2.0, (epsilon + 1.0) / (2.0 * rho) + 2.0))
    return min(math.exp(min(log_delta(best), 0.0)), 1.0)


@functools.lru_cache(maxsize=256)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon at which rho-zCDP gives ``delta``."""
    checks.require_probability(delta=delta)
    if rho == 0.0:
        return 0.0
    upper = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))  # Bun, Steinke 2016, Proposition 1.3
    return bisect(lambda epsilon: _zcdp_delta(rho, epsilon) > delta, 0.0, upper)[1] * (1.0 + _MARGIN)


@functools.lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP gives (``epsilon``, ``delta``): the inverse of `zcdp_epsilon`.

    >>> rho = zcdp_rho(1.0, 1e-9)
    >>> round(rho, 6), _zcdp_delta(rho, 1.0) <= 1e-9
    (0.014973, True)
    """
    checks.require_positive(epsilon=epsilon)
    checks.require_probability(delta=delta)
    if math.isinf(epsilon):
        return math.inf
    low = 0.0
    high = epsilon
    while _zcdp_delta(high, epsilon) <= delta:
        low = high
        high = 2.0 * high
    return bisect(lambda rho: _zcdp_delta(rho, epsilon) <= delta, low, high)[0] * (1.0 - _MARGIN)


def per_record_epsilon(epsilon: float, delta: float, contributions: int) -> float:
    """Return the epsilon of one record with which all of ``contributions`` records lose (``epsilon``, ``delta``).

    Pure losses add up over the records of a person; zCDP grows with the square of their number. The delta is the same
    for one record and for all.

    >>> per_record_epsilon(1.0, 0.0, 4), round(per_record_epsilon(1.0, 1e-9, 4), 3)
    (0.25, 0.237)
    """
    checks.require_at_least(1, contributions=contributions)
    if contributions == 1 or math.isinf(epsilon):
        return epsilon
    if delta == 0.0:
        return round_down(Fraction(epsilon) / contributions)
    allowed = zcdp_rho(epsilon, delta) / contributions**2
    return bisect(lambda part: zcdp_rho(part, delta) <= allowed, 1e-12 * epsilon, epsilon)[0] * (1.0 - _MARGIN)


def claim_of_person(claim: Claim, epsilon: float, contributions: int | None) -> Claim:
    """Return the claim about a person of at most ``contributions`` records, from that about one record.

    Args:
        claim: What one record loses, at ``per_record_epsilon``.
        epsilon: What the person loses.
        contributions: Records of one person at most; None leaves the claim as it is.
    """
    if contributions is None:
        return claim
    note = f"two tables differ in at most {count_of(contributions, 'record')} of one person"
    note = f"{claim.note}; {note}" if claim.note else note
    return replace(claim, epsilon=max(epsilon, claim.epsilon), unit="user", note=note, event_epsilon=claim.epsilon)


def zcdp_tail(rho: float, loss: float) -> float:
    """Return an upper bound on the probability that the log-odds change by more than ``loss``, up or down.

    Markov's inequality for exp((alpha - 1)·loss) at alpha = (loss + rho)/(2·rho), in both directions, for adaptive
    inputs wherever rho is.

    >>> 7e-5 < zcdp_tail(0.0244, 1.0) < 9e-5
    True
    """
    if rho == 0.0 or math.isinf(loss):
        return 0.0
    if loss <= rho:
        return 1.0
    return min((1.0 + math.exp(-loss)) * math.exp(-((loss - rho) ** 2) / (4.0 * rho)) * (1.0 + _MARGIN), 1.0)


def gaussian_tail(rho: float, loss: float, overshoot: float) -> float:
    """Return `zcdp_tail`, or less if that follows from the noise being discrete Gaussian.

    The log-odds are then at most a Brownian motion with drift 1/2 at a time up to 2·rho, and ``overshoot`` more, for
    adaptive inputs; the first passage of the rest of ``loss`` bounds the probability (continual-tree.md, Theorem 11).

    Args:
        rho: The zCDP of all that is seen.
        loss: The change of the log-odds.
        overshoot: The largest sum of |shift|/sigma² over all numbers that are seen; inf where sigma is below 1.

    >>> zcdp_tail(0.0244, 1.0) > 2 * gaussian_tail(0.0244, 1.0, 0.0488)
    True
    """
    chernoff = zcdp_tail(rho, loss)
    rest = loss - overshoot
    if chernoff in (0.0, 1.0) or rest <= rho:
        return chernoff
    spread = math.sqrt(2.0 * rho)
    passage = _normal_tail((rest - rho) / spread) + math.exp(rest) * _normal_tail((rest + rho) / spread)
    return min(chernoff, (1.0 + math.exp(-loss)) * passage * (1.0 + _MARGIN))


def _normal_tail(score: float) -> float:
    return 0.5 * math.erfc(score / math.sqrt(2.0))


def _largest(claims: Sequence[Claim]) -> Claim:
    worst = max(claims, key=lambda claim: claim.epsilon, default=None)
    return _composed(
        claims,
        epsilon=0.0 if worst is None else worst.epsilon,
        delta=max((claim.delta for claim in claims), default=0.0),
        parts={} if worst is None else worst.parts,
        event_epsilon=max((_event_epsilon(claim) for claim in claims), default=0.0),
    )


def _composed(
    claims: Sequence[Claim], *, epsilon: float, delta: float, parts: Mapping[str, float], event_epsilon: float
) -> Claim:
    """Return one claim with the given losses that is otherwise no stronger than each of ``claims``."""
    if not claims:
        raise InvalidParameter("claims must not be empty")
    kinds = {(claim.unit, claim.adjacency, claim.window) for claim in claims}
    if len(kinds) > 1:
        named = ", ".join(sorted({f"{claim.protects} ({claim.adjacency})" for claim in claims}))
        raise InvalidParameter(f"claims about different units cannot be added up, got {named}")
    first = claims[0]
    locations = tuple(location for location in first.locations if all(location in claim.locations for claim in claims))
    intrusions = (
        Intrusions(unannounced=0) if not locations else _common_intrusions([claim.intrusions for claim in claims])
    )
    horizons = [claim.horizon for claim in claims if claim.horizon is not None]
    return Claim(
        epsilon=epsilon,
        delta=min(delta, _MAX_DELTA),
        unit=first.unit,
        adjacency=first.adjacency,
        window=first.window,
        parts=parts,
        intrusions=intrusions,
        inputs="adaptive" if all(claim.inputs == "adaptive" for claim in claims) else "fixed",
        locations=locations,
        releases=-1 if any(claim.releases < 0 for claim in claims) else sum(claim.releases for claim in claims),
        horizon=min(horizons, default=None),
        public=tuple(dict.fromkeys(fact for claim in claims for fact in claim.public)),
        note=_joined(claim.note for claim in claims),
        event_epsilon=event_epsilon if event_epsilon < epsilon else None,
        assumption=_joined(claim.assumption for claim in claims),
    )


def _common_intrusions(intrusions: Sequence[Intrusions]) -> Intrusions:
    """Return the intrusions that every claim covers."""
    # Negative numbers cover any number of intrusions.
    announced = min((intrusion.announced for intrusion in intrusions if intrusion.announced >= 0), default=-1)
    unannounced = (intrusion.unannounced for intrusion in intrusions if intrusion.unannounced >= 0)
    # A claim with any number of announced intrusions, or one unannounced in every phase, covers one in the last phase.
    return Intrusions(
        unannounced=min(unannounced, default=-1),
        announced=announced,
        per_phase=all(intrusion.per_phase for intrusion in intrusions),
        machines=min(intrusion.machines for intrusion in intrusions),
        freezes=announced != 0 and any(intrusion.freezes for intrusion in intrusions),
    )


def _parts(claims: Sequence[Claim]) -> dict[str, float]:
    losses_by_part: dict[str, list[float]] = {}
    for claim in claims:
        for name, loss in (claim.parts or {"total": claim.epsilon}).items():
            losses_by_part.setdefault(name, []).append(loss)
    return {name: sum_rounded_up(losses) for name, losses in losses_by_part.items()}


def _event_epsilon(claim: Claim) -> float:
    return claim.epsilon if claim.event_epsilon is None else claim.event_epsilon


def _joined(notes: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(note for note in notes if note))
