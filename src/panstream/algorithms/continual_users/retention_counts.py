"""Who came back: estimates from the released numbers of windows and of pairs of windows.

A window's cells give a noisy number of ones per level, and a pair of windows a noisy number of cells that are 1 in
both. Three numbers, |A|, |B| and |A or B|, are fitted to them (`PairModel`). The curve over several cohorts adds up
overlaps whose errors are correlated: neighbours share a window, and all share the hash. Proof: retention.md in
docs/proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct.pair_fit import PairFit, PairModel, bounded_interval, upper_end
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.privacy.bitmap_loss import level_rates
from panstream.privacy.claim import Claim

Floats = NDArray[np.float64]
Windows = frozenset[int]
_OVERLAP = np.array([1.0, 1.0, -1.0])  # of |A|, |B|, |A or B|


@dataclass(frozen=True, slots=True, eq=False)
class _Cohort:
    """An overlap and its fit: windows are numbered backwards from the last one that was closed."""

    earlier: int
    later: int
    fit: PairFit

    @property
    def sets(self) -> tuple[Windows, Windows, Windows]:
        """Return the windows of the three decoded means."""
        return frozenset({self.earlier}), frozenset({self.later}), frozenset({self.earlier, self.later})


@dataclass(frozen=True, slots=True, eq=False)
class RetentionCounts:
    """The released numbers of the last windows, newest first.

    Attributes:
        model: The law of a pair.
        ones: Noisy number of ones per level of every window.
        both: For the window that a row is about, and every lag, the noisy number of cells per level that are 1 in it
            and in the window so many before it.
        windows: How many windows were closed; older rows are not used.
    """

    model: PairModel
    ones: NDArray[Any]
    both: NDArray[Any]
    windows: int
    _fits: dict[tuple[int, int], PairFit] = field(default_factory=dict, init=False, repr=False)

    @property
    def lags(self) -> int:
        """Return with how many earlier windows each was compared."""
        return int(self.both.shape[1])

    def cohorts(self, lag: int) -> int:
        """Return how many overlaps with this lag are known."""
        return max(min(len(self.both), self.windows - lag), 0)

    def fit(self, lag: int, later: int = 0) -> PairFit:
        """Return the fit of the window ``later`` windows ago and the one ``lag`` windows before it."""
        if (lag, later) not in self._fits:
            first = self.ones[later + lag]
            second = self.ones[later]
            both = self.both[later, lag - 1]
            neither = self.model.buckets - first - second + both
            patterns = np.stack([neither, second - both, first - both, both], axis=1)
            self._fits[lag, later] = self.model.fit(patterns)
        return self._fits[lag, later]

    def answer(self, what: str, claim: Claim) -> Estimate:
        """Return one of the answers by its name.

        Args:
            what: "new", the last window's users who did not come in the one before; "back k", how many users of the
                window k windows earlier came again in the last one; "rate k", the share of users who came again k
                windows later, over all cohorts.
            claim: The claim of the numbers.
        """
        kind, _, number = what.partition(" ")
        if kind == "new" and not number:
            return self.new(claim)
        if kind not in ("back", "rate") or not number.isdigit() or not 1 <= int(number) <= self.lags:
            raise InvalidParameter(f'what must be "new", "back k" or "rate k" with k in 1..{self.lags}, got {what!r}')
        return (self.returned if kind == "back" else self.rate)(int(number), claim)

    def returned(self, lag: int, claim: Claim) -> Estimate:
        """Return how many users of the window ``lag`` windows earlier came again in the last one."""
        fit = self._known(lag)
        if fit is None:
            return _nothing(claim, f"back after {lag}")
        value, error = fit.of((1.0, 1.0, -1.0))
        highest = min(upper_end(*fit.of((1.0, 0.0, 0.0))), upper_end(*fit.of((0.0, 1.0, 0.0))))
        return _bounded(value, error, highest, claim, f"back after {lag}")

    def new(self, claim: Claim) -> Estimate:
        """Return how many users of the last window did not come in the window before."""
        fit = self._known(1)
        if fit is None:
            return _nothing(claim, "not in the window before")
        value, error = fit.of((-1.0, 0.0, 1.0))
        return _bounded(value, error, upper_end(*fit.of((0.0, 1.0, 0.0))), claim, "not in the window before")

    def rate(self, lag: int, claim: Claim) -> Estimate:
        """Return which share of users came again ``lag`` windows later, over all cohorts that are known."""
        pairs = self._pairs(lag)
        total = float(sum(pair.fit.users[0] for pair in pairs))
        if not total > 0.0:
            return _nothing(claim, f"share back after {lag}")
        value = float(sum(_OVERLAP @ pair.fit.users for pair in pairs)) / total
        error = math.sqrt(max(self._pooled_variance(pairs, value), 0.25)) / total
        return _bounded(value, error, 1.0, claim, f"share back after {lag}")

    def _known(self, lag: int) -> PairFit | None:
        return self.fit(lag) if self.cohorts(lag) else None

    def _pairs(self, lag: int) -> list[_Cohort]:
        return [_Cohort(later + lag, later, self.fit(lag, later)) for later in range(self.cohorts(lag))]

    def _pooled_variance(self, pairs: Sequence[_Cohort], rate: float) -> float:
        """Return the variance of the sum of |A and B| - rate·|A| over all pairs (A, B) [retention.md, Theorem 3]."""
        weights = _OVERLAP - rate * np.array([1.0, 0.0, 0.0])
        own = sum(float(weights @ pair.fit.covariance @ weights) for pair in pairs)
        shared = [
            sum(self._covariance(one, other, weights, rate, overlaps) for one, other in combinations(pairs, 2))
            for overlaps in (_Overlaps(self, regulars=True), _Overlaps(self, regulars=False))
        ]
        return own + 2.0 * max(shared)

    def _covariance(self, one: _Cohort, other: _Cohort, weights: Floats, rate: float, overlaps: _Overlaps) -> float:
        rates = level_rates(self.model.buckets, self.model.levels)
        first, second = (np.einsum("k,knl->nl", weights, pair.fit.gains) for pair in (one, other))
        decoder = self.model.first
        spread = decoder.p0 * decoder.p1 / (decoder.p1 - decoder.p0) ** 2  # variance of a decoded bit
        shared = {one.earlier, one.later} & {other.earlier, other.later}
        chance = {windows: np.exp(-rates * overlaps.union(windows)) for windows in _all_unions(one, other)}
        total = 0.0
        for i, left in enumerate(one.sets):
            for j, right in enumerate(other.sets):
                joint = chance[left | right] - chance[left] * chance[right]
                if left & right:  # the bits of a shared window are the same coins
                    joint = joint + spread * chance[(left | right) - (left & right)]
                total += float((first[:, i] * second[:, j] * joint).sum()) / self.model.buckets
        if shared:  # and its number of ones has the same noise
            response = self.model.noise_response()
            column = {pair: 0 if pair.earlier in shared else 1 for pair in (one, other)}
            moved = (first @ response[:, column[one]]) * (second @ response[:, column[other]])
            total += float(moved.sum()) * self.model.noise[0]
        both = {pair: frozenset({pair.earlier, pair.later}) for pair in (one, other)}
        users = overlaps.common(both[one] | both[other])
        users -= rate * (overlaps.common(both[one] | {other.earlier}) + overlaps.common({one.earlier} | both[other]))
        users += rate**2 * overlaps.common(frozenset({one.earlier, other.earlier}))
        return total - users


class _Overlaps:
    """How many users came in all, or in any, of several windows: two are measured, three or four are modelled.

    With ``regulars``, users of three or four windows are as many as came in the two of them with the fewest in common:
    whoever comes back is a regular. That is the most there can be. Without, who comes in a window depends on the window
    before only, as where everybody comes with the same chance.
    """

    def __init__(self, counts: RetentionCounts, *, regulars: bool) -> None:
        self._counts = counts
        self._regulars = regulars
        self._sizes: dict[Windows, float] = {}

    def common(self, windows: Iterable[int]) -> float:
        """Return the users of all windows."""
        key = frozenset(windows)
        if key not in self._sizes:
            self._sizes[key] = self._common(sorted(key))
        return self._sizes[key]

    def _common(self, windows: list[int]) -> float:
        if len(windows) > 2:
            most = min(self.common(pair) for pair in combinations(windows, 2))
            if self._regulars:
                return most
            chain = math.prod(self.common(pair) for pair in pairwise(windows))
            between = math.prod(max(self._size(window), 1.0) for window in windows[1:-1])
            return min(chain / between, most)
        later = windows[0]
        earlier = windows[-1]
        lag = min(earlier - later, self._counts.lags)  # beyond the longest lag as after the longest lag
        if lag == 0:
            return self._size(later)
        smaller = min(self._size(later), self._size(earlier))
        recent = [index for index in range(self._counts.cohorts(lag)) if lag < earlier - later or index == later]
        measured = [self._overlap(index, lag) for index in recent]
        return min(max(float(np.mean(measured)) if measured else 0.0, 0.0), smaller)

    def _size(self, window: int) -> float:
        known = self._counts.cohorts(1)
        column, later = (1, window) if window < known else (0, known - 1)
        return max(float(self._counts.fit(1, later).users[column]), 0.0)

    def _overlap(self, later: int, lag: int) -> float:
        return float(_OVERLAP @ self._counts.fit(lag, later).users)

    def union(self, windows: Windows) -> float:
        """Return the users of any of the windows."""
        if not windows:
            return 0.0
        return sum(
            (-1.0) ** (size + 1) * self.common(some)
            for size in range(1, len(windows) + 1)
            for some in combinations(sorted(windows), size)
        )


def _all_unions(one: _Cohort, other: _Cohort) -> set[Windows]:
    unions = {left | right for left in one.sets for right in other.sets} | {*one.sets, *other.sets}
    shared = {one.earlier, one.later} & {other.earlier, other.later}
    return unions | {windows - shared for windows in unions} | {frozenset()}


def _bounded(value: float, error: float, highest: float, claim: Claim, name: str) -> Estimate:
    return Estimate.clipped(
        value,
        (0.0, highest),
        standard_error=error,
        claim=claim,
        name=name,
        interval_rule=lambda level: bounded_interval(value, error, highest, level),
    )


def _nothing(claim: Claim, name: str) -> Estimate:
    """Return the answer while there was no earlier window."""
    nothing = (math.nan, math.nan)
    return Estimate(
        value=math.nan, standard_error=math.inf, claim=claim, name=name, interval_rule=lambda level: nothing
    )
