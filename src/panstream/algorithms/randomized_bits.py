"""Bits that are noise from the start: state, coins, claim and refresh, the same for densities and for distinct counts.

After an announced intrusion bits are *frozen*: what the intruder saw becomes a public constant and a new array starts
at its noise. Re-flipping the seen bits in place could not be decoded, leaving them would have no finite loss. That the
intruder saw these very bits takes a stream that stood still since the copy: otherwise the frozen array would be a
second look at the phase (docs/proofs/joint-loss.md, Theorem 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from panstream.core.shardable import Shardable
from panstream.errors import NotSupported
from panstream.primitives.codec import FieldLayout, noised, public, published
from panstream.primitives.noise import Coin, DiscreteLaplace, NoiseSource, symmetric_coins
from panstream.primitives.packed_bits import draw_packed_bits
from panstream.privacy.bitmap_loss import Decoder
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.rounding import state_and_output

MAX_PHASES = 7


@dataclass(slots=True)
class BitState:
    """What the machine holds between two steps, and all an intruder can copy."""

    bits: NDArray[np.uint8] = noised()  # packed
    frozen: NDArray[np.uint8] = published()  # seen in announced intrusions, one packed row each
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinPair:
    """The two coins of a stored bit and the release noise.

    ``turns`` is 1 where an arrival draws its bit afresh and 2 where it toggles it.
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
        """Return the chance of a 1 where nobody appeared."""
        return float(self.absent)

    @property
    def p1(self) -> float:
        """Return the chance of a 1 where somebody appeared."""
        return float(self.present)

    @property
    def decoder(self) -> Decoder:
        """Return what a bit of a symmetric pair counts as."""
        return Decoder.redrawn(self.p1) if self.turns == 1 else Decoder.toggled(self.p1)


def bit_claim(epsilon: float, epsilon_state: float, announced: int, releases: int, public: str) -> Claim:
    """Return the exact joint loss of the looks that are covered and all releases, in either order."""
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


class RandomizedBits(Shardable[BitState], Protocol):
    """Cells of one bit, packed: a toss of ``law.absent`` at the start, and of ``law.present`` after every touch."""

    state_type: ClassVar[type[Any]] = BitState
    freezes: ClassVar[bool] = True

    @property
    def law(self) -> CoinPair:
        """Return the two coins and what they cost."""
        ...

    @property
    def releases(self) -> int:
        """Return how many estimates are paid for."""
        ...

    def phases(self) -> int:
        """Return how many announced intrusions are paid for."""
        return int(getattr(self, "announced", 0))

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return one bit per cell, the frozen arrays of announced intrusions, and the release count."""
        return {
            "bits": FieldLayout("packed", (self.cells,)),
            "frozen": FieldLayout("packed", (None, self.cells)),
            "released": FieldLayout("int", at_least=0, below=self.releases + 1),
        }

    def initial_cells(self, count: int, rng: NoiseSource) -> BitState:
        """Return cells that nobody has touched."""
        bits = draw_packed_bits(self.law.absent, count, rng)
        fresh: BitState = self.state_type(bits=bits, frozen=np.empty((0, bits.size), np.uint8), released=0)
        return fresh

    def apply_marked(self, state: BitState, marks: NDArray[np.uint8], rng: NoiseSource) -> None:
        """Draw every marked cell afresh, once: of several draws in a step only the last would survive."""
        from panstream.primitives.kernels.algorithms.packed_bits import draw_marked

        draw_marked(state.bits, marks, rng.bernoulli(self.law.present, marks.size))

    def refresh(self, state: BitState, rng: NoiseSource) -> None:
        """Freeze the cells that were seen and start afresh; at most as often as the claim has paid for."""
        if len(state.frozen) >= self.phases():
            raise NotSupported(
                f"this algorithm was built with announced={self.phases()}; each announced intrusion costs "
                f"epsilon_state={self.law.epsilon_state:.4g} and must be declared before the start"
            )
        self.refresh_shard(state, self.cells, rng)

    def refresh_shard(self, state: BitState, count: int, rng: NoiseSource) -> None:
        """Freeze what was seen of ``count`` cells, and start them afresh."""
        if len(state.frozen) >= MAX_PHASES:
            raise NotSupported(f"a state can be refreshed at most {MAX_PHASES} times")
        state.frozen = np.concatenate([state.frozen, state.bits[np.newaxis]])
        draw_packed_bits(self.law.absent, count, rng, state.bits)
