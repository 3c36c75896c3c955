"""Cells as secret shares on two machines: the rings of their integers, and the expansion of seeds.

The true bits x are a ⊕ b, the true integers a + b modulo a public number; the first machine holds a, the second b. The
dealer knows what a batch does but not what the cells hold; the machines hold shares and never learn what a batch does.
The protocol has four operations, all on whole arrays, so that sizes do not depend on which cells a batch touches:

- *deal*: the dealer expands a seed for each machine and computes the correction that the second one gets as well;
- *exchange*: a machine masks its share and sends it to the other; both masked shares together are x under a mask that
  neither machine knows;
- *combine*: each machine computes its new share from both masked shares and what it was dealt;
- *convert*: masked bits become shares of integers, which can be added up.

Seeds are expanded by a `SeedExpander`, and the modulus is a parameter (`Ring`), so that tests can enumerate all views
exactly with one bit per cell and a modulus of three. A caller may change the arrays that an expander returns.
docs/proofs/two-machines.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives.kernels.algorithms.secret_shares import add_wide, subtract_wide
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise.source import counter_mode

Bits = NDArray[np.uint8]
Numbers = NDArray[np.uint64]
_ZEROS = np.zeros(1 << 20, np.uint8)


@dataclass(frozen=True, slots=True)
class Ring:
    """Integers modulo ``modulus``, which is public: 2**128, or at most 2**32.

    ``wide`` numbers are rows of two words, the low one first.
    """

    modulus: int
    wide: bool = False

    def __post_init__(self) -> None:
        if not (1 < self.modulus <= 1 << 32 or (self.wide and self.modulus == 1 << 128)):
            raise InvalidParameter(f"modulus must be in 2..2**32, or 2**128 of two words, got modulus={self.modulus}")

    @property
    def small(self) -> np.uint64:
        """Return the modulus, or 0 if it is 2**128, which no word holds."""
        return np.uint64(self.modulus % (1 << 128))

    def zeros(self, size: int) -> Numbers:
        """Return ``size`` zeros of the ring."""
        return np.zeros((size, 2) if self.wide else size, np.uint64)

    def from_bytes(self, data: bytes | NDArray[np.uint8]) -> Numbers:
        """Return a copy of the numbers in ``data``; raise ValueError if its size is no multiple of a number's."""
        words = np.frombuffer(data, np.uint64).copy()
        return words.reshape(-1, 2) if self.wide else words

    def add(self, into: Numbers, other: NDArray[Any]) -> None:
        """Add ``other`` to ``into`` in place, modulo the modulus."""
        if not self.small:
            add_wide(into, other)
        else:
            np.add(into, other, out=into)
            np.remainder(into, self.small, out=into)

    def subtract(self, into: Numbers, other: NDArray[Any]) -> None:
        """Subtract ``other`` from ``into`` in place, modulo the modulus."""
        if not self.small:
            subtract_wide(into, other)
        else:
            np.add(into, self.small, out=into)
            np.subtract(into, other, out=into)
            np.remainder(into, self.small, out=into)

    def of(self, integers: NDArray[np.int64]) -> Numbers:
        """Return signed integers as numbers of the ring, without temporary copies that would have to be wiped."""
        numbers = self.zeros(integers.size)
        low = (numbers[:, 0] if self.wide else numbers).view(np.int64)
        if self.small:
            np.remainder(integers, int(self.small), out=low)
        else:
            low[:] = integers
            np.right_shift(integers, 63, out=numbers[:, 1].view(np.int64))
        return numbers

    def centred(self, numbers: Numbers) -> list[int]:
        """Return each number's representative closest to 0."""
        integers = [int(low) | int(high) << 64 for low, high in numbers] if self.wide else numbers.tolist()
        return [integer - self.modulus if 2 * integer >= self.modulus else integer for integer in integers]


COUNTS: Final = Ring(1 << 32)  # numbers of cells
SUMS: Final = Ring(1 << 128, wide=True)  # sums, and noise in fine fractions


class SeedExpander(Protocol):
    """Uniform numbers from one seed, which is used once: dealer and machine expand it to the same numbers."""

    def bits(self, size: int) -> Bits:
        """Return ``size`` bytes of uniform bits."""

    def words(self, size: int, ring: Ring) -> NDArray[Any]:
        """Return uniform numbers of the ring."""


class Keystream:
    """AES-256 in counter mode from 0, with a key that is used once. Its arrays are wiped with ``scratch``."""

    __slots__ = ("_cipher", "_scratch")

    def __init__(self, key: Bits, scratch: Scratch) -> None:
        if key.nbytes != 32:
            raise InvalidParameter(f"a key must have 32 bytes, got {key.nbytes}")
        self._cipher: CipherContext = counter_mode(key)
        self._scratch = scratch

    def bits(self, size: int) -> Bits:
        """Return ``size`` bytes of the keystream."""
        out: Bits = self._scratch.array(size)
        for start in range(0, size, _ZEROS.size):
            piece = out[start : start + _ZEROS.size]
            self._cipher.update_into(_ZEROS.data[: piece.size], piece.data)
        return out

    def words(self, size: int, ring: Ring) -> NDArray[Any]:
        """Return numbers of the ring, whose modulus is 2**32 or 2**128."""
        if ring == COUNTS:
            return self.bits(4 * size).view(np.uint32)
        if ring == SUMS:
            return self.bits(16 * size).view(np.uint64).reshape(size, 2)
        raise InvalidParameter(f"a keystream has no numbers modulo {ring.modulus}")
