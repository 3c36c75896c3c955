"""How one state is kept as shares: what rows do to it, and what an answer opens of it.

A rule has public parameters only. The front end deals with it, both machines act on it, and none of its verbs looks at
anything but arrays of public sizes. A share is an array of bytes:

=================================  =====================================================================================
``start``, ``blind``               a machine's share before the first row; the same uniform numbers on both, every step
``nothing``, ``deal``, ``dealt``   the change of rows that do nothing; what both machines are dealt for rows, from bytes
``hold``, ``send``, ``take``       what a machine holds in a step with rows, what it sends, how its share changes
``deal_answer``, ``dealt_answer``  what the second machine is dealt to open an answer, and that from its bytes
``hold_answer``, ``send_answer``   what a machine holds for an answer, its noise included; what it then sends
``answer``                         a machine's part of the numbers that are opened, with its own noise
``dealt_size``, ``parameters``     how many bytes are dealt; public numbers that rebuild the rule
=================================  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.ring import COUNTS, Bits, Numbers, Ring, SeedExpander
from panstream.errors import InvalidParameter
from panstream.primitives.kernels.algorithms.secret_shares import (
    complete_words,
    count_masked,
    move_up,
    moves,
    pack_columns,
)
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import DiscreteLaplace, NoiseSource

Dealt = tuple[NDArray[Any], ...]
"""What the front end sends the second machine besides its seed."""


@dataclass(slots=True)
class PendingReveal:
    """What a machine holds while an answer is opened: its mask or words, its own noise, and the number of answers
    before.
    """

    masks: Dealt
    noise: NDArray[np.int64]
    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwrittenBits:
    """Bits that rows overwrite; an answer opens the number of ones in each of ``rows`` equal rows of cells.

    ``change`` is which cells are touched and what they become, packed.
    """

    cells: int
    rows: int = 1
    noise: DiscreteLaplace
    releases: int = 1
    ring: Ring = COUNTS

    @property
    def size(self) -> int:
        """Return the bytes of all cells, packed."""
        return (self.cells + 7) // 8

    @property
    def counted(self) -> int:
        """Return how many cells an answer counts."""
        return self.cells

    def parameters(self) -> dict[str, Any]:
        """Return cells, rows, noise and releases."""
        return {"cells": self.cells, "rows": self.rows, "noise": self.noise.numerator, "releases": self.releases}

    def start(self, rng: NoiseSource) -> Bits:
        """Return zeros."""
        return np.zeros(self.size, np.uint8)

    def rerandomize(self, share: Bits, common: SeedExpander, *, first: bool) -> None:
        """Flip the same bits of both shares."""
        # A share of one step is then independent of that of the next: copies of both add nothing to one of them.
        share ^= common.bits(share.size)

    def empty_update(self) -> Dealt:
        """Return that no cell is touched."""
        return np.zeros(self.size, np.uint8), np.zeros(self.size, np.uint8)

    def deal(self, change: Dealt, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal "x becomes v where h is 1": h_B = h ⊕ h_A and w_B = h ∧ (u_A ⊕ u_B ⊕ v) ⊕ w_A."""
        # All cells are dealt, touched or not, so that neither sizes nor places tell which rows there were.
        touched, values = change
        mask, factor, term = (first.bits(touched.size) for _ in range(3))
        mask ^= second.bits(touched.size)
        mask ^= values
        mask &= touched
        term ^= mask
        factor ^= touched
        return factor, term

    def dealt(self, data: Bits) -> Dealt:
        """Return factor and term."""
        return data[: self.size], data[self.size :]

    def dealt_size(self, *, answers: bool) -> int:
        """Return the bytes of factor and term, or of a word for every cell that is counted."""
        return 4 * self.counted if answers else 2 * self.size

    def begin_update(self, expander: SeedExpander, dealt: Dealt | None) -> Dealt:
        """Return a mask of the share, and shares of a factor and of a term, which the second machine was dealt."""
        mask = expander.bits(self.size)
        return mask, *((expander.bits(self.size), expander.bits(self.size)) if dealt is None else dealt)

    def outgoing_message(self, share: Bits, held: Dealt) -> Bits:
        """Return the masked share, in the place of the mask."""
        return np.bitwise_xor(held[0], share, out=held[0])

    def finish_update(self, share: Bits, sent: Bits, received: Bits, held: Dealt) -> None:
        """Compute a' = a ⊕ (e ∧ h_A) ⊕ w_A in place, e being both masked shares together; likewise for b."""
        opened = np.bitwise_xor(sent, received, out=sent)
        opened &= held[1]
        share ^= opened
        share ^= held[2]

    def deal_answer(self, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal a random bit rho for every cell that is counted: s_A + s_B = rho_A ⊕ rho_B in the ring."""
        rho = first.bits((self.counted + 7) // 8)
        rho ^= second.bits(rho.size)
        first_words = first.words(self.counted, self.ring)
        out = np.empty_like(first_words)
        complete_words(rho, first_words, np.uint64(self.ring.modulus), out)
        return (out,)

    def dealt_answer(self, data: Bits) -> Dealt:
        """Return the second machine's shares of the random bits."""
        return (data.view(np.uint32 if self.ring == COUNTS else np.uint64),)

    def hold_answer(
        self, expander: SeedExpander, dealt: Dealt | None, released: int, rng: NoiseSource
    ) -> PendingReveal:
        """Return the random bits, as bits and as integers, and draw the noise."""
        # Each machine adds the whole noise: whoever has looked at one of them knows what that one drew.
        rho = expander.bits((self.counted + 7) // 8)
        words = expander.words(self.counted, self.ring) if dealt is None else dealt[0]
        return PendingReveal((rho, words), draw_noise(self.rows, self.noise, rng), released)

    def send_answer(self, share: Bits, held: PendingReveal) -> Bits:
        """Return the share masked by the random bits, in their place."""
        return np.bitwise_xor(held.masks[0], share, out=held.masks[0])

    def answer(self, share: Bits, sent: Bits, received: Bits, held: PendingReveal, *, first: bool) -> Numbers:
        """Return a share of the number of ones in each row, from both shares masked by rho."""
        opened = np.bitwise_xor(sent, received, out=sent)
        words = held.masks[1]
        counts = np.zeros(self.rows, np.uint64)
        count_masked(opened, words, words.size // self.rows, first, np.uint64(self.ring.modulus), counts)
        noise = self.ring.of(held.noise)
        self.ring.add(counts, noise)
        wipe(noise)
        return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturatingCounters(OverwrittenBits):
    """A thermometer for every user: of ``tau`` bits the first min(rows so far, tau) are 1.

    ``change`` is the number of rows of every user, at most tau. An answer opens the number of ones among the bits from
    ``low`` up to ``tau``: with low = 0 the sum of min(rows, tau), with low = tau - 1 the users with tau rows or more.
    ``cells`` is the number of users.
    """

    tau: int
    low: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.tau <= 64 and 0 <= self.low < self.tau and self.rows == 1):
            raise InvalidParameter(f"tau must be in 1..64 and low below it, got tau={self.tau} and low={self.low}")

    @property
    def word(self) -> Any:
        """Return the type of a user's bits."""
        return next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if self.tau <= 8 * kind().itemsize)

    @property
    def size(self) -> int:
        """Return the bytes of all users' words."""
        return self.cells * int(np.dtype(self.word).itemsize)

    @property
    def counted(self) -> int:
        """Return how many bits an answer counts."""
        return self.cells * (self.tau - self.low)

    def parameters(self) -> dict[str, Any]:
        """Return those of all bits, and the thermometer's."""
        return {**OverwrittenBits.parameters(self), "tau": self.tau, "low": self.low}

    def empty_update(self) -> Dealt:
        """Return that no user came."""
        return (np.zeros(self.cells, np.uint8),)

    def deal(self, change: Dealt, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal "k more of the tau bits become 1" for every user.

        The factor has one bit of tau, the k-th; the term is what the mask adds. One exchange, whatever tau is: both
        machines move the same masked bits by every k, and the factor's shares pick the right one.
        """
        arrivals = change[0]
        word = self.word
        mask, factor, term = (first.bits(self.size) for _ in range(3))
        mask ^= second.bits(self.size)
        chosen = np.empty(arrivals.size, word)
        moved = np.empty(arrivals.size, word)
        moves(arrivals, mask.view(word), self.tau, chosen, moved)
        factor ^= chosen.view(np.uint8)
        term ^= moved.view(np.uint8)
        chosen.fill(0)
        moved.fill(0)
        return factor, term

    def finish_update(self, share: Bits, sent: Bits, received: Bits, held: Dealt) -> None:
        """Move every user's bits up, in place."""
        opened = np.bitwise_xor(sent, received, out=sent)
        move_up(share.view(self.word), opened.view(self.word), held[1].view(self.word), self.tau)
        share ^= held[2]

    def send_answer(self, share: Bits, held: PendingReveal) -> Bits:
        """Return the share of the bits that are counted, packed and masked."""
        counted = np.empty((self.counted + 7) // 8, np.uint8)
        pack_columns(share.view(self.word), self.low, self.tau, counted)
        sent = OverwrittenBits.send_answer(self, counted, held)
        wipe(counted)
        return sent


def draw_noise(count: int, law: DiscreteLaplace, rng: NoiseSource) -> NDArray[np.int64]:
    """Return so many draws of a law."""
    noise: NDArray[np.int64] = rng.scratch.array(count, np.int64)
    noise.fill(0)
    rng.add_discrete_laplace(noise, law)
    return noise
