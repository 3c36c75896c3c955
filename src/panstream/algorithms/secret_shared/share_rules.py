"""Share rules: how a state is held as secret shares, updated by rows, and partially reconstructed for an answer.

A rule has public parameters only. The dealer and both machines call it, and every array that it works on has a public
size, so that neither sizes nor access patterns depend on rows. A share is an array of bytes. The order of calls:

=====================================  =================================================================================
``start``, ``rerandomize``             a machine's share before the first row; the same uniform numbers for both, at
                                       every step
``empty_update``, ``deal``, ``dealt``  the change of a step without rows; what the second machine is dealt for rows;
                                       the same from its bytes
``begin_update``                       masks and correlated randomness that a machine holds during a step with rows
``outgoing_message``                   its masked share, which goes to the other machine
``finish_update``                      the new share, from both masked shares
``deal_answer``, ``dealt_answer``      what the second machine is dealt for an answer, and the same from its bytes
``hold_answer``, ``send_answer``       what a machine holds for an answer, with its own noise; what it sends
``answer``                             its share of the answer's numbers, with its own noise
``dealt_size``, ``parameters``         how many bytes are dealt; public parameters that rebuild the rule
=====================================  =================================================================================
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
"""Arrays that the dealer sends to the second machine in addition to its seed."""


@dataclass(slots=True)
class PendingReveal:
    """What a machine holds during an answer: its masks, its own noise, and the number of answers before this one."""

    masks: Dealt
    noise: NDArray[np.int64]
    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwrittenBits:
    """Bits that rows overwrite; an answer is the number of ones in each of ``rows`` equal rows of cells.

    ``change`` holds which cells are touched and what they become, packed.
    """

    cells: int
    rows: int = 1
    noise: DiscreteLaplace
    releases: int = 1
    ring: Ring = COUNTS

    @property
    def size(self) -> int:
        """Return the bytes of a share: all cells, packed."""
        return (self.cells + 7) // 8

    @property
    def changed(self) -> int:
        """Return the bytes of a share that rows may change."""
        return self.size

    @property
    def counted(self) -> int:
        """Return how many cells an answer counts."""
        return self.cells

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild the rule."""
        return {"cells": self.cells, "rows": self.rows, "noise": self.noise.numerator, "releases": self.releases}

    def start(self, rng: NoiseSource) -> Bits:
        """Return a share of zeros; the first re-randomisation makes it uniform."""
        return np.zeros(self.size, np.uint8)

    def rerandomize(self, share: Bits, common: SeedExpander, *, first: bool) -> None:
        """Flip the same uniform bits of both shares."""
        # The shares of two steps on one machine are then independent: copies of both reveal no more than one of them.
        share ^= common.bits(share.size)

    def empty_update(self) -> Dealt:
        """Return the change of a step without rows."""
        return np.zeros(self.changed, np.uint8), np.zeros(self.changed, np.uint8)

    def deal(self, change: Dealt, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal "x becomes v where h is 1": h_B = h ⊕ h_A and w_B = h ∧ (u_A ⊕ u_B ⊕ v) ⊕ w_A."""
        # All cells are dealt, touched or not, so that neither sizes nor positions depend on the rows. The first
        # machine's h_A, w_A and both masks u come from seeds; the second machine sees h_B and w_B, masked by h_A and
        # w_A.
        touched, values = change
        mask, factor, term = (first.bits(touched.size) for _ in range(3))
        mask ^= second.bits(touched.size)
        mask ^= values
        mask &= touched
        term ^= mask
        factor ^= touched
        return factor, term

    def dealt(self, data: Bits) -> Dealt:
        """Return the second machine's shares of factor and term from the bytes that it received."""
        return data[: self.changed], data[self.changed :]

    def dealt_size(self, *, answers: bool) -> int:
        """Return the bytes of factor and term, or of a word for every cell that is counted."""
        return 4 * self.counted if answers else 2 * self.changed

    def begin_update(self, expander: SeedExpander, dealt: Dealt | None) -> Dealt:
        """Return a mask, and shares of factor and term: from the seed, or as the second machine was dealt them."""
        mask = expander.bits(self.changed)
        return mask, *((expander.bits(self.changed), expander.bits(self.changed)) if dealt is None else dealt)

    def outgoing_message(self, share: Bits, held: Dealt) -> Bits:
        """Return the masked share, written over the mask."""
        return np.bitwise_xor(held[0], share, out=held[0])

    def finish_update(self, share: Bits, sent: Bits, received: Bits, held: Dealt) -> None:
        """Compute a' = a ⊕ (e ∧ h_A) ⊕ w_A in place, e being both masked shares together; likewise for b."""
        opened = np.bitwise_xor(sent, received, out=sent)
        opened &= held[1]
        share ^= opened
        share ^= held[2]

    def deal_answer(self, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal a random bit rho for every counted cell, as bits and as integers s_A + s_B = rho_A ⊕ rho_B."""
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
        """Return the random bits, as bits and as integers, and draw this machine's noise."""
        # Each machine adds noise for the whole epsilon: an attacker with a copy of one machine knows its draw.
        rho = expander.bits((self.counted + 7) // 8)
        words = expander.words(self.counted, self.ring) if dealt is None else dealt[0]
        return PendingReveal((rho, words), draw_noise(self.rows, self.noise, rng), released)

    def send_answer(self, share: Bits, held: PendingReveal) -> Bits:
        """Return the share masked by the random bits, written over them."""
        return np.bitwise_xor(held.masks[0], share, out=held.masks[0])

    def answer(self, share: Bits, sent: Bits, received: Bits, held: PendingReveal, *, first: bool) -> Numbers:
        """Return a share of the noisy number of ones in each row, from both shares masked by rho."""
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
    """A counter in unary for every user: of ``tau`` bits the first min(rows so far, tau) are 1.

    ``change`` is the number of rows of every user, at most tau. An answer is the number of ones among the bits from
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
        """Return the smallest unsigned integer type for a user's bits."""
        return next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if self.tau <= 8 * kind().itemsize)

    @property
    def size(self) -> int:
        """Return the bytes of a share: one word per user."""
        return self.cells * int(np.dtype(self.word).itemsize)

    @property
    def counted(self) -> int:
        """Return how many bits an answer counts."""
        return self.cells * (self.tau - self.low)

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild the rule."""
        return {**OverwrittenBits.parameters(self), "tau": self.tau, "low": self.low}

    def empty_update(self) -> Dealt:
        """Return the change of a step without rows."""
        return (np.zeros(self.cells, np.uint8),)

    def deal(self, change: Dealt, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal "k more of the tau bits become 1" for every user.

        The factor has one of tau bits set, the k-th; the term corrects for the mask. One exchange suffices for any tau:
        both machines shift the same masked bits by every k, and the shares of the factor select the right shift.
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
        """Shift every user's bits by her number of rows, in place."""
        opened = np.bitwise_xor(sent, received, out=sent)
        move_up(share.view(self.word), opened.view(self.word), held[1].view(self.word), self.tau)
        share ^= held[2]

    def send_answer(self, share: Bits, held: PendingReveal) -> Bits:
        """Return the share of the counted bits, packed and masked."""
        counted = np.empty((self.counted + 7) // 8, np.uint8)
        pack_columns(share.view(self.word), self.low, self.tau, counted)
        sent = OverwrittenBits.send_answer(self, counted, held)
        wipe(counted)
        return sent


def draw_noise(count: int, law: DiscreteLaplace, rng: NoiseSource) -> NDArray[np.int64]:
    """Return ``count`` draws in scratch memory of ``rng``."""
    noise: NDArray[np.int64] = rng.scratch.array(count, np.int64)
    noise.fill(0)
    rng.add_discrete_laplace(noise, law)
    return noise
