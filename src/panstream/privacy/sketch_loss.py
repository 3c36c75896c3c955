"""Bits that are published when their window closes: the best coins, and the exact loss of a copy with what is shown.

A cell starts as a coin of probability p0 and every arrival draws it again from p1. At the close fresh coins flip it: a
0 is published as 1 with probability ``raised``, a 1 with probability ``retained``. Proof: docs/proofs/sketches.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.noise.distributions import Coin
from panstream.privacy.rounding import log_up

_SHRINK = 1e-9  # the coins aim at this much less than epsilon, so that rounding them cannot exceed it
_POINTS = 41
_ROUNDS = 40
MAX_EPSILON = 8.0  # from which on a published sketch hides hardly anything


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchCoins:
    """The coins of a cell while its window is open, and of the flips when it closes."""

    absent: Coin
    present: Coin
    raised: Coin
    retained: Coin

    @property
    def published(self) -> tuple[Fraction, Fraction]:
        """Return the probabilities that a 1 is published for an untouched cell and for a touched one."""
        low = self.raised.probability
        gain = self.retained.probability - low
        return low + self.absent.probability * gain, low + self.present.probability * gain

    @property
    def published_loss(self) -> float:
        """Return the loss of what is published alone, rounded up."""
        pi0, pi1 = self.published
        return _log_largest([_ratio(pi0, pi1), _ratio(1 - pi0, 1 - pi1)])

    @property
    def joint_loss(self) -> float:
        """Return the loss of one copy at any time before the close together with what is published, rounded up."""
        p0 = self.absent.probability
        p1 = self.present.probability
        return _log_largest([_times(_ratio(1 - p0, 1 - p1), self._after(0)), _times(_ratio(p0, p1), self._after(1))])

    @property
    def unused_loss(self) -> float:
        """Return the same for a copy made before any row of the user was applied, rounded up."""
        return _log_largest([self._after(0), self._after(1)])

    def _after(self, bit: int) -> Fraction | None:
        """Return by how much rows after a copy that showed ``bit`` change the chance of what is published."""
        untouched = self.retained.probability if bit else self.raised.probability
        _, touched = self.published
        ratios = [_ratio(touched, untouched), _ratio(1 - touched, 1 - untouched)]
        return None if None in ratios else max(ratio for ratio in ratios if ratio is not None)


def _ratio(first: Fraction, second: Fraction) -> Fraction | None:
    """Return the larger of two probabilities divided by the smaller; None if only one is 0."""
    if first == second:
        return Fraction(1)
    low, high = sorted((first, second))
    return high / low if low else None


def _times(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    return None if first is None or second is None else first * second


def _log_largest(ratios: list[Fraction | None]) -> float:
    """Return the logarithm of the largest ratio, rounded up; None stands for infinity."""
    return math.inf if None in ratios else log_up(max(ratio for ratio in ratios if ratio is not None))


@lru_cache(maxsize=64)
def sketch_coins(epsilon: float) -> SketchCoins:
    """Return the coins with which one copy loses the least, where the published bits alone lose ``epsilon``.

    What is published is a symmetric randomised response, of which every bit with that loss is a post-processing
    (Kairouz, Oh, Viswanath 2015), so no other coins allow better answers.

    >>> round(sketch_coins(1.0).joint_loss, 3)
    2.747
    """
    checks.require_positive(epsilon=epsilon)
    if math.isinf(epsilon):
        never = Coin(0)
        return SketchCoins(absent=never, present=never.complement, raised=never, retained=never.complement)
    if epsilon > MAX_EPSILON:
        raise InvalidParameter(f"epsilon must be at most {MAX_EPSILON:g}, got epsilon={epsilon:g}")
    pi1 = 1.0 / (1.0 + math.exp(-epsilon * (1.0 - _SHRINK)))
    p0, p1 = _best_state_coins(pi1)
    gain = (2.0 * pi1 - 1.0) / (p1 - p0)
    raised = 1.0 - pi1 - p0 * gain
    return SketchCoins(
        absent=Coin.at_most(p0),
        present=Coin.at_most(p1),
        raised=Coin.at_most(raised),
        retained=Coin.at_most(raised + gain),
    )


def _best_state_coins(pi1: float) -> tuple[float, float]:
    """Return (p0, p1) with the least joint loss, by grids around the best point that shrink."""
    centre = np.array([math.log((1 - pi1) / pi1) - 1.0, math.log(pi1 / (1 - pi1)) + 1.0])  # logits
    reach = 6.0
    for _ in range(_ROUNDS):
        offsets = reach * np.linspace(-1.0, 1.0, _POINTS)
        low, high = np.meshgrid(centre[0] + offsets, centre[1] + offsets, indexing="ij")
        best = int(np.argmin(_joint_loss(low, high, pi1)))
        centre = np.array([low.ravel()[best], high.ravel()[best]])
        reach *= 0.6
    return float(1 / (1 + math.exp(-centre[0]))), float(1 / (1 + math.exp(-centre[1])))


def _joint_loss(low: NDArray[np.float64], high: NDArray[np.float64], pi1: float) -> NDArray[np.float64]:
    p0 = 1 / (1 + np.exp(-low))
    p1 = 1 / (1 + np.exp(-high))
    with np.errstate(all="ignore"):
        gain = (2 * pi1 - 1) / (p1 - p0)
        raised = 1 - pi1 - p0 * gain
        loss = np.zeros_like(p0)
        for copied, untouched in ((np.log((1 - p0) / (1 - p1)), raised), (np.log(p1 / p0), raised + gain)):
            later = np.maximum(np.abs(np.log(pi1 / untouched)), np.abs(np.log((1 - pi1) / (1 - untouched))))
            loss = np.maximum(loss, copied + later)
    valid = (p1 > p0) & (raised > 0) & (raised + gain < 1) & np.isfinite(loss)
    return np.where(valid, loss, np.inf)
