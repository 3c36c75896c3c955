"""Set bits as secret shares, counted at every tick with the noise of a least-squares tree, which is shared as well."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from panstream.algorithms.secret_shared.ring import COUNTS, SUMS, Bits, Numbers, Ring, SeedExpander
from panstream.algorithms.secret_shared.running_sums import NoisyRunningSums
from panstream.algorithms.secret_shared.share_rules import Dealt, OverwrittenBits, PendingReveal
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import DiscreteLaplace, NoiseSource

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyBitCounts:
    """Bits that rows overwrite, whose number in each of ``rows`` rows is answered at every tick with a tree's noise.

    A share is that of the noises, then that of the bits. Bits become numbers modulo ``ring`` as in `OverwrittenBits`,
    noises are held in fine fractions as in `NoisyRunningSums`. Each machine rounds its share of an answer's noise to
    whole numbers: an integer more in the noise is an integer more in the answer, and the two roundings add a variance
    of at most 1/6.
    """

    cells: int
    rows: int = 1
    radices: tuple[int, ...]
    noise: DiscreteLaplace
    releases: int
    ring: Ring = COUNTS
    bits: OverwrittenBits = field(init=False, repr=False, compare=False)
    tree: NoisyRunningSums = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "radices", tuple(self.radices))
        plain = OverwrittenBits(
            cells=self.cells, rows=self.rows, noise=DiscreteLaplace(None), releases=self.releases, ring=self.ring
        )
        tree = NoisyRunningSums(
            width=self.rows,
            radices=self.radices,
            noise=self.noise,
            releases=self.releases,
            ring=SUMS if self.ring == COUNTS else replace(self.ring, wide=True),
            totals=False,
        )
        object.__setattr__(self, "bits", plain)
        object.__setattr__(self, "tree", tree)

    @property
    def size(self) -> int:
        """Return the bytes of a share: noises, and packed cells."""
        return self.tree.size + self.bits.size

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild the rule."""
        return {**self.bits.parameters(), "radices": list(self.radices), "noise": self.noise.numerator}

    def start(self, rng: NoiseSource) -> Bits:
        """Return a share of zeros with this machine's draws for the first nodes."""
        share = np.zeros(self.size, np.uint8)
        noises = self.tree.start(rng)
        share[: noises.size] = noises
        wipe(noises)
        return share

    def rerandomize(self, share: Bits, common: SeedExpander, *, first: bool) -> None:
        """Re-randomise the noises and the bits."""
        self.tree.rerandomize(share[: self.tree.size], common, first=first)
        self.bits.rerandomize(share[self.tree.size :], common, first=first)

    def empty_update(self) -> Dealt:
        """Return the change of a step without rows."""
        return self.bits.empty_update()

    def deal(self, change: Dealt, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal the change of the bits."""
        return self.bits.deal(change, first, second)

    def dealt(self, data: Bits) -> Dealt:
        """Return the second machine's shares from the bytes that it received."""
        return self.bits.dealt(data)

    def dealt_size(self, *, answers: bool) -> int:
        """Return how many bytes the second machine is dealt."""
        return self.bits.dealt_size(answers=answers)

    def begin_update(self, expander: SeedExpander, dealt: Dealt | None) -> Dealt:
        """Return what a machine holds during an update of the bits."""
        return self.bits.begin_update(expander, dealt)

    def outgoing_message(self, share: Bits, held: Dealt) -> Bits:
        """Return the masked bits."""
        return self.bits.outgoing_message(share[self.tree.size :], held)

    def finish_update(self, share: Bits, sent: Bits, received: Bits, held: Dealt) -> None:
        """Overwrite bits in place."""
        self.bits.finish_update(share[self.tree.size :], sent, received, held)

    def deal_answer(self, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal a random bit for every cell, as bits and as integers."""
        return self.bits.deal_answer(first, second)

    def dealt_answer(self, data: Bits) -> Dealt:
        """Return the second machine's shares of the random bits."""
        return self.bits.dealt_answer(data)

    def hold_answer(
        self, expander: SeedExpander, dealt: Dealt | None, released: int, rng: NoiseSource
    ) -> PendingReveal:
        """Return the random bits, and draw the noise of the nodes that open when this slot closes."""
        masks = self.bits.hold_answer(expander, dealt, released, rng).masks
        return replace(self.tree.hold_answer(expander, dealt, released, rng), masks=masks)

    def send_answer(self, share: Bits, held: PendingReveal) -> Bits:
        """Return the bits masked by the random ones."""
        return self.bits.send_answer(share[self.tree.size :], held)

    def answer(self, share: Bits, sent: Bits, received: Bits, held: PendingReveal, *, first: bool) -> Numbers:
        """Close the slot and return a share of the numbers of ones with the tree's noise, rounded."""
        exact = replace(held, noise=np.zeros(self.rows, np.int64))
        counts = self.bits.answer(share[self.tree.size :], sent, received, exact, first=first)
        noises = self.tree.answer(share[: self.tree.size], sent, received, held, first=first)
        self.ring.add(counts, _whole(noises, self.tree.unit, self.tree.ring, first=first))
        wipe(noises)
        return counts

    def variance(self, ticks: int) -> float:
        """Return the variance of the noise after ``ticks`` slots, of one machine's draws, in draws."""
        return self.tree.variance(ticks)

    @property
    def rounding(self) -> float:
        """Return the variance of both machines' rounding; without noise, rounding is exact."""
        return 1.0 / 6.0 if self.tree.unit and self.noise.numerator is not None else 0.0


def _whole(numbers: Numbers, unit: int, ring: Ring, *, first: bool) -> Numbers:
    """Return shares in units of 2**-unit as shares of the nearest whole numbers, modulo 2**32; changes ``numbers``.

    2**(128 - unit) is a multiple of 2**32, so a share that wraps around, or grows by an integer, does so here too. The
    first machine rounds halves up and the second one down, so that two shares of an integer become shares of it.
    """
    if ring != SUMS:
        assert unit == 0, "a small ring has no fractions"
        return numbers[:, 0]
    low = numbers[:, 0]
    high = numbers[:, 1]
    if unit:
        half = (1 << (unit - 1)) - (not first)
        ring.add(numbers, np.array([[half & _WORD, half >> 64]] * len(numbers), np.uint64))
    if unit >= 64:
        low[:] = high >> np.uint64(unit - 64)
    elif unit:
        low >>= np.uint64(unit)
        high <<= np.uint64(64 - unit)
        low |= high
    low &= np.uint64(0xFFFFFFFF)
    return low
