"""Bits of consecutive windows as secret shares: what the open window has in common with those that are over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.ring import Bits, Numbers, SeedExpander
from panstream.algorithms.secret_shared.share_rules import Dealt, OverwrittenBits, PendingReveal
from panstream.errors import InvalidParameter
from panstream.primitives.kernels.algorithms.secret_shares import complete_words, count_masked
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import DiscreteLaplace, NoiseSource

_WORD = 8  # bytes of a released number's share


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedBits(OverwrittenBits):
    """The bits of an open window, which rows overwrite, and those of the last ``lags`` windows, which nothing changes.

    An answer closes the window. It has the number of ones in it and, for each of the windows before it, the number of
    cells in which the two differ, in each of ``rows`` equal rows of cells; then the same numbers of the last
    ``remembered`` answers, newest first, which are stored as shares and are public. Differences are linear in shares,
    so a pair of windows needs no product of two secrets: both machines have shares of x ⊕ y.

    A share is the released numbers of earlier answers, the open window's bits, and those of the others, newest first.
    """

    lags: int
    pair_noise: DiscreteLaplace
    remembered: int = 0

    def __post_init__(self) -> None:
        if self.lags < 1 or self.rows < 1 or self.cells % self.rows:
            raise InvalidParameter(
                f"lags must be at least 1 and rows divide cells, got lags={self.lags}, rows={self.rows}"
            )

    @property
    def width(self) -> int:
        """Return the bytes of a window: its cells, packed."""
        return (self.cells + 7) // 8

    @property
    def numbers(self) -> int:
        """Return how many numbers an answer adds to those that were released before."""
        return (1 + self.lags) * self.rows

    @property
    def size(self) -> int:
        """Return the bytes of a share."""
        return self._history + (1 + self.lags) * self.width

    @property
    def changed(self) -> int:
        """Return the bytes that rows may change: those of the open window."""
        return self.width

    @property
    def counted(self) -> int:
        """Return how many bits an answer counts: the open window's, and its differences from the others."""
        return (1 + self.lags) * self.cells

    @property
    def _history(self) -> int:
        return _WORD * self.remembered * self.numbers

    def _released(self, share: Bits) -> Numbers:
        return share[: self._history].view(np.uint64)

    def _windows(self, share: Bits) -> Bits:
        """Return a view of the windows' bits, one row each, the open one first."""
        return share[self._history :].reshape(1 + self.lags, self.width)

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild the rule."""
        more = {"lags": self.lags, "pair_noise": self.pair_noise.numerator, "remembered": self.remembered}
        return {**OverwrittenBits.parameters(self), **more}

    def rerandomize(self, share: Bits, common: SeedExpander, *, first: bool) -> None:
        """Flip the same uniform bits of both shares, and move numbers between them."""
        windows = share[self._history :]
        windows ^= common.bits(windows.size)
        released = self._released(share)
        (self.ring.add if first else self.ring.subtract)(released, common.words(released.size, self.ring))

    def outgoing_message(self, share: Bits, held: Dealt) -> Bits:
        """Return the masked share of the open window, written over the mask."""
        return OverwrittenBits.outgoing_message(self, self._windows(share)[0], held)

    def finish_update(self, share: Bits, sent: Bits, received: Bits, held: Dealt) -> None:
        """Overwrite the touched cells of the open window, in place."""
        OverwrittenBits.finish_update(self, self._windows(share)[0], sent, received, held)

    def deal_answer(self, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal a random bit for every cell of every vector that is counted, as bits and as integers."""
        # A mask of its own for every vector: with one for two of them, a machine would see their sum.
        rho = first.bits((1 + self.lags) * self.width)
        rho ^= second.bits(rho.size)
        first_words = first.words(self.counted, self.ring)
        out = np.empty_like(first_words)
        vectors = (rho.reshape(1 + self.lags, self.width), self._vectors(first_words), self._vectors(out))
        for mask, share, rest in zip(*vectors, strict=True):
            complete_words(mask, share, np.uint64(self.ring.modulus), rest)
        return (out,)

    def _vectors(self, words: NDArray[Any]) -> NDArray[Any]:
        return words.reshape(1 + self.lags, self.cells)

    def hold_answer(
        self, expander: SeedExpander, dealt: Dealt | None, released: int, rng: NoiseSource
    ) -> PendingReveal:
        """Return the random bits, as bits and as integers, and draw this machine's noise."""
        rho = expander.bits((1 + self.lags) * self.width)
        words = expander.words(self.counted, self.ring) if dealt is None else dealt[0]
        noise: NDArray[np.int64] = rng.scratch.array(self.numbers, np.int64)
        noise.fill(0)
        rng.add_discrete_laplace(noise[: self.rows], self.noise)
        rng.add_discrete_laplace(noise[self.rows :], self.pair_noise)
        return PendingReveal((rho, words), noise, released)

    def send_answer(self, share: Bits, held: PendingReveal) -> Bits:
        """Return the masked shares of the open window and of its differences, written over the masks."""
        masks = held.masks[0].reshape(1 + self.lags, self.width)
        windows = self._windows(share)
        masks ^= windows[0]
        masks[1:] ^= windows[1:]
        return held.masks[0]

    def answer(self, share: Bits, sent: Bits, received: Bits, held: PendingReveal, *, first: bool) -> Numbers:
        """Return a share of the noisy numbers and of earlier ones, and close the window."""
        opened = np.bitwise_xor(sent, received, out=sent).reshape(1 + self.lags, self.width)
        numbers = np.zeros((1 + self.remembered) * self.numbers, np.uint64)
        counts = numbers[: self.numbers]
        modulus = np.uint64(self.ring.modulus)
        words = self._vectors(held.masks[1])
        for bits, share_of_bits, out in zip(opened, words, counts.reshape(1 + self.lags, self.rows), strict=True):
            count_masked(bits, share_of_bits, self.cells // self.rows, first, modulus, out)
        noise = self.ring.of(held.noise)
        self.ring.add(counts, noise)
        wipe(noise)
        released = self._released(share)
        numbers[self.numbers :] = released
        released[:] = numbers[: released.size]
        windows = self._windows(share)
        for row in range(self.lags, 0, -1):  # in place: a temporary copy would outlive the oldest window
            windows[row] = windows[row - 1]
        windows[0] = 0
        return numbers
