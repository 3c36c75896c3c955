"""Bits that are noise from the start: state, coins, claim and refresh, the same for densities and for distinct counts.

After an announced intrusion bits are *frozen*: the array that was copied becomes a public constant and a new array is
drawn. Flipping the copied bits again in place could not be decoded, and leaving them would have no finite loss. No row
may arrive between the copy and the refresh: otherwise the frozen array differs from the copy and is a second copy of
the phase (docs/proofs/joint-loss.md, Theorem 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from panstream.core.estimate import bisect_decreasing
from panstream.core.shardable import Shardable
from panstream.errors import NotSupported
from panstream.primitives.codec import FieldLayout, noised, public, published
from panstream.primitives.noise import Coin, DiscreteLaplace, NoiseSource, symmetric_coins
from panstream.primitives.packed_bits import draw_packed_bits
from panstream.privacy.bitmap_loss import Decoder
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.person_loss import WindowLoss
from panstream.privacy.rounding import state_and_output

MAX_PHASES = 7  # announced intrusions; a release publishes 2**phases numbers, one for each pattern of frozen bits


@dataclass(slots=True)
class BitState:
    """What the machine holds between two steps, and all an intruder can copy."""

    bits: NDArray[np.uint8] = noised()  # packed
    frozen: NDArray[np.uint8] = published()  # copied in announced intrusions, one packed row each
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinPair:
    """The two coins of a stored bit and the release noise.

    ``turns`` is 1 where an arrival redraws its bit and 2 where it toggles it.
    """

    absent: Coin
    present: Coin
    noise: DiscreteLaplace
    epsilon_state: float
    turns: int = 1

    @classmethod
    @lru_cache(maxsize=256)
    def symmetric(cls, epsilon_state: float, kappa: float, turns: int = 1) -> CoinPair:
        """Return the symmetric pair of coins and the release noise for a split of the budget."""
        absent, present = symmetric_coins(epsilon_state)
        noise = DiscreteLaplace.at_most(kappa)
        return cls(absent=absent, present=present, noise=noise, epsilon_state=epsilon_state, turns=turns)

    @property
    def p0(self) -> float:
        """Return the probability of a 1 in a cell that no row touched."""
        return float(self.absent)

    @property
    def p1(self) -> float:
        """Return the probability of a 1 in a cell that a row touched."""
        return float(self.present)

    @property
    def decoder(self) -> Decoder:
        """Return the weights that make the bits of a symmetric pair an unbiased count of untouched cells."""
        return Decoder.redrawn(self.p1) if self.turns == 1 else Decoder.toggled(self.p1)


def bit_claim(epsilon: float, epsilon_state: float, announced: int, releases: int, public: str) -> Claim:
    """Return the claim of the exact joint loss of all covered copies and all releases, in either order."""
    return Claim(
        epsilon=epsilon,
        unit="user",
        parts=state_and_output(epsilon, *[epsilon_state] * (announced + 1)),
        intrusions=Intrusions(unannounced=1, announced=announced, freezes=announced > 0),
        inputs="adaptive",
        releases=releases,
        public=(public,),
        note="" if math.isfinite(epsilon) else "no noise: for tests only",
    )


def score_interval(
    density: float, reach_above: Callable[[float], float], reach_below: Callable[[float], float]
) -> tuple[float, float]:
    """Return the true densities that the estimate ``density`` does not reject.

    Args:
        density: The estimate, which may lie outside [0, 1].
        reach_above: How far above a true density an estimate may lie.
        reach_below: How far below it.
    """
    inside = min(max(density, 0.0), 1.0)
    upper = bisect_decreasing(lambda truth: reach_below(truth) - (truth - density), inside, 1.0, 1e-7)
    gap = bisect_decreasing(lambda gap: reach_above(inside - gap) - (density - inside + gap), 0.0, inside, 1e-7)
    return inside - gap, upper


class RandomizedBits(Shardable[BitState], Protocol):
    """Packed cells of one bit: a toss of ``law.absent`` at the start, and of ``law.present`` after every touch."""

    state_type: ClassVar[type[Any]] = BitState
    freezes: ClassVar[bool] = True

    @property
    def law(self) -> CoinPair:
        """Return the two coins, their loss, and the release noise."""
        ...

    @property
    def releases(self) -> int:
        """Return how many estimates the claim covers."""
        ...

    def phases(self) -> int:
        """Return how many announced intrusions the claim covers."""
        return int(getattr(self, "announced", 0))

    def window_loss(self) -> WindowLoss:
        """Return the loss with and without a copy where a user has one bit that every arrival draws again.

        Bits that toggle, deletions and announced copies have no proof of a smaller loss: there all losses are the
        joint one.
        """
        claim = self.claim()
        if claim.unit != "user" or not self.is_idempotent or self.phases():
            return WindowLoss.of_claim(claim)
        law = self.law
        return WindowLoss.of_bits(claim.epsilon, law.p0, law.p1, law.noise.kappa, self.releases)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return one bit per cell, the frozen arrays of announced intrusions, and the release count."""
        return {
            "bits": FieldLayout("packed", (self.cells,)),
            "frozen": FieldLayout("packed", (None, self.cells)),
            "released": FieldLayout("int", at_least=0, below=self.releases + 1),
        }

    def initial_cells(self, count: int, rng: NoiseSource) -> BitState:
        """Return cells drawn as if no row had touched them."""
        bits = draw_packed_bits(self.law.absent, count, rng)
        fresh: BitState = self.state_type(bits=bits, frozen=np.empty((0, bits.size), np.uint8), released=0)
        return fresh

    def apply_marked(self, state: BitState, marks: NDArray[np.uint8], rng: NoiseSource) -> None:
        """Redraw every marked cell, once: of several draws in one step only the last would remain."""
        # One coin per cell, marked or not, so that the draws do not depend on the rows.
        from panstream.primitives.kernels.algorithms.packed_bits import draw_marked

        draw_marked(state.bits, marks, rng.bernoulli(self.law.present, marks.size))

    def refresh(self, state: BitState, rng: NoiseSource) -> None:
        """Freeze the cells that were copied and draw new ones; at most as often as the claim covers."""
        if len(state.frozen) >= self.phases():
            raise NotSupported(
                f"this algorithm was built with announced={self.phases()}; each announced intrusion costs "
                f"epsilon_state={self.law.epsilon_state:.4g} and must be declared before the start"
            )
        self.refresh_shard(state, self.cells, rng)

    def refresh_shard(self, state: BitState, count: int, rng: NoiseSource) -> None:
        """Freeze what was copied of ``count`` cells, and draw them again."""
        if len(state.frozen) >= MAX_PHASES:
            raise NotSupported(f"a state can be refreshed at most {MAX_PHASES} times")
        state.frozen = np.concatenate([state.frozen, state.bits[np.newaxis]])
        draw_packed_bits(self.law.absent, count, rng, state.bits)
