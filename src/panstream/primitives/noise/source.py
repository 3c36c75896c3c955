"""Randomness for one atomic step: fresh from the operating system, exact, and wiped when the step ends.

An attacker who reads a generator's state can compute past coins and future noise from it. Therefore no randomness is
stored: a source exists for one step, and at the end of its ``with`` block the key, the keystream and every array it
returned are overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise.distributions import (
    COIN_BITS,
    LAPLACE_BITS,
    RATE_BITS,
    Coin,
    DiscreteGaussian,
    DiscreteLaplace,
    SelectionRate,
)
from panstream.primitives.noise.entropy import system_entropy

Integers = NDArray[np.signedinteger[Any]]
_Add = Callable[[Integers, NDArray[np.uint64], NDArray[np.int64]], int]
_Resolve = Callable[[list[int], Callable[[], int]], int]

_NO_WORDS = np.empty(0, np.uint64)
_DIRECT = 256  # bytes up to which getrandom is cheaper than setting up a cipher
_CHUNK = 1 << 20
_SMALL_CHUNK = 1 << 16
_TOSS_WORDS = 1 << 15  # random words per block of coins
_COIN_WORDS = 3800  # words of coins per block: they take 32,154 random words on average, standard deviation 68
_ZEROS = np.zeros(_CHUNK, np.uint8)
_MANY = 1 << 14  # draws from which on a table is faster
_LARGEST_EXPONENT = 1 << (RATE_BITS + 10)  # utilities further below the best count as this far, see docs/proofs


class NoiseSource:
    """Draws for one atomic step. Use as a context manager; arrays it returns are zeroed when the block ends.

    >>> from panstream.primitives.noise import Coin
    >>> with NoiseSource() as rng:
    ...     heads = int(rng.bernoulli(Coin.at_most(0.5), 1000).sum())
    >>> 300 < heads < 700
    True
    """

    __slots__ = ("_cipher", "_drawn", "scratch")

    is_secure = True

    def __init__(self) -> None:
        self.scratch = Scratch()
        self._cipher: CipherContext | None = None
        self._drawn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Overwrite all randomness of this step."""
        self._cipher = None  # OpenSSL cleanses its round keys when the context is freed
        self._drawn = 0
        self.scratch.close()

    def bernoulli(self, coin: Coin, size: int, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return ``size`` independent tosses of ``coin`` as bytes 0 and 1.

        Args:
            out: Where to write the bits; a new array by default.
            coin: The coin.
            size: Number of tosses.
        """
        coins = self.scratch.array(size) if out is None else out[:size]
        if coin.threshold in (0, 1 << COIN_BITS):
            coins.fill(coin.threshold != 0)
            return coins
        from panstream.primitives.kernels.noise.bernoulli import compare_bytes, resolve_coins

        self._fill(coins)
        top = np.uint8(coin.threshold >> 56)
        rest = np.uint64(coin.threshold & ((1 << 56) - 1))
        ties = compare_bytes(coins, top)
        resolve_coins(coins, top, rest, self._words(ties))
        return coins

    def redraw(self, coin: Coin, bits: NDArray[np.uint64], marks: NDArray[np.uint64]) -> None:
        """Replace every marked bit by an independent toss of ``coin``.

        Args:
            bits: The bits, which are changed.
            marks: Which of them to draw again.
            coin: The coin.
        """
        if coin.threshold in (0, 1 << COIN_BITS):
            bits |= marks
            if coin.threshold == 0:
                bits ^= marks
            return
        from panstream.primitives.kernels.noise.bernoulli import bernoulli_words, redraw

        digits = _digits_of(coin.threshold)
        words: NDArray[np.uint64] = self.scratch.array(_TOSS_WORDS, np.uint64)
        coins: NDArray[np.uint64] = self.scratch.array(_COIN_WORDS, np.uint64)
        done = 0
        while done < marks.size:
            tossed = 0
            while tossed < coins.size:
                self._fill(words.view(np.uint8))
                tossed = bernoulli_words(digits, words, coins, tossed)
            done = redraw(bits, marks, done, coins)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent uniform integers below ``bound`` from 0 on, for ``1 <= bound <= 2**63``."""
        if not 1 <= bound <= 1 << 63:
            raise InvalidParameter(f"bound must be in 1..2**63, got bound={bound}")
        from panstream.primitives.kernels.noise.bernoulli import uniform_below

        out: NDArray[np.int64] = self.scratch.array(size, np.int64)
        done = 0
        while done < size:
            words = self._words((size - done) * 3 // 2 + 8)
            done, _ = uniform_below(out, done, np.uint64(bound), words)
        return out

    def fill_words(self, words: NDArray[np.uint64]) -> None:
        """Fill a contiguous array with uniform 64-bit words; the caller wipes it.

        Args:
            words: Where to write.
        """
        self._fill(words.view(np.uint8))

    def add_discrete_laplace(self, values: Integers, law: DiscreteLaplace) -> None:
        """Add independent noise of ``law`` to every element of ``values``, in place.

        Below 2^14 elements, the number of words and the instructions depend on law and size only, except with a
        probability of 2^-121 per element (`panstream.primitives.noise._laplace_digits`).
        """
        if law.numerator is None or not values.size or self._add_many(values, law):
            return
        from panstream.primitives.kernels.noise.laplace_digits import add_from_digits
        from panstream.primitives.noise._laplace_digits import digit_coins, resolve_draw

        high, low = digit_coins(law)

        def add(piece: Integers, words: NDArray[np.uint64], undecided: NDArray[np.int64]) -> int:
            return add_from_digits(piece, words, high, low, undecided)

        self._add_few(values, 4 * high.size, add, lambda words, more: resolve_draw(law, words, more))

    def _add_few(self, values: Integers, words_per_value: int, add: _Add, resolve: _Resolve) -> None:
        """Add noise that takes ``words_per_value`` words per element; ``resolve`` decides what ``add`` could not."""
        capacity = min(values.size, _SMALL_CHUNK // 8 // words_per_value)
        words: NDArray[np.uint64] = self.scratch.array(capacity * words_per_value, np.uint64)
        undecided: NDArray[np.int64] = self.scratch.array(capacity, np.int64)
        for start in range(0, values.size, capacity):
            piece = values[start : start + capacity]
            self._fill(words[: piece.size * words_per_value].view(np.uint8))
            for index in undecided[: add(piece, words, undecided)].tolist():
                drawn = words[index * words_per_value : (index + 1) * words_per_value].tolist()
                piece[index] += resolve(drawn, lambda: int(self._words(1)[0]))

    def add_balanced_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        """Add noise that sums to 0, in place: P(x) proportional to exp(-kappa·|x|₁) among such integer vectors.

        All elements but one are drawn from ``law``; the last is minus their sum s, accepted with probability
        proportional to exp(-kappa·|s|), which is that of a further draw being at least |s|.

        Args:
            values: The integers, which are changed.
            law: The noise.
        """
        if law.numerator is None or values.size < 2:
            return
        rows = 4 + 2 * math.isqrt(values.size)  # about one in two times the square root of the size is accepted
        draws: NDArray[np.int64] = self.scratch.array(rows * values.size, np.int64)
        table = draws.reshape(rows, values.size)
        while True:
            draws.fill(0)
            NoiseSource.add_discrete_laplace(self, draws, law)
            sums = table[:, :-1].sum(axis=1)
            accepted = np.flatnonzero(table[:, -1] >= np.abs(sums))
            if accepted.size:
                table[accepted[0], -1] = -sums[accepted[0]]
                values += table[accepted[0]]
                return

    def add_joint_laplace(self, tables: Sequence[NDArray[np.int64]], law: DiscreteLaplace) -> None:
        """Add noise x to several tables, in place: P(x) proportional to exp(-kappa·max‖x_i‖₁), each x_i with sum 0.

        Exact, and for few cells; `panstream.primitives.noise.lattice_balls` documents what is not wiped.

        Args:
            tables: The tables, which are changed.
            law: The noise.
        """
        if law.numerator is None:
            return
        from panstream.primitives.noise.lattice_balls import balanced_point, mixture, pick_index

        numerator = min(2 * law.numerator, (1 << 62) - 1)
        shares = mixture(tuple(table.size for table in tables))
        radius = pick_index(shares, Fraction(numerator, 1 << LAPLACE_BITS), self._below)
        radius += self._geometric_sum(len(shares), DiscreteLaplace(numerator))
        for table in tables:
            table += balanced_point(table.size, radius, self._below)

    def _add_many(self, values: Integers, law: DiscreteLaplace | DiscreteGaussian) -> bool:
        """Add noise by a table if that is faster; return whether it was done, which depends on sizes only."""
        if values.size < _MANY or not values.flags.c_contiguous:
            return False
        from panstream.primitives.noise._inversion_table import draw_table, resolve

        table = draw_table(law)
        if table is None:
            return False
        from panstream.primitives.kernels.noise.inversion_table import add_from_table

        flat = values.reshape(-1)
        words: NDArray[np.uint64] = self.scratch.array(min(flat.size, _CHUNK // 8), np.uint64)
        undecided: NDArray[np.int64] = self.scratch.array(words.size, np.int64)
        for start in range(0, flat.size, words.size):
            piece = flat[start : start + words.size]
            self._fill(words[: piece.size].view(np.uint8))
            count = add_from_table(piece, words, table.bounds, table.guide, table.digits, table.reach, undecided)
            for index in undecided[:count].tolist():
                first = int(words[index])
                size = resolve(law, first >> 1, lambda: int(self._words(1)[0]))
                piece[index] += -size if first & 1 else size
        return True

    def _geometric_sum(self, count: int, law: DiscreteLaplace) -> int:
        """Return the sum of ``count`` geometric numbers: two-sided noise, of which negative draws are dropped."""
        total = 0
        draws: NDArray[np.int64] = self.scratch.array(2 * count + 32, np.int64)
        while count:
            draws.fill(0)
            NoiseSource.add_discrete_laplace(self, draws, law)
            accepted = draws[draws >= 0][:count]
            total = total + int(accepted.sum())
            count = count - accepted.size
        return total

    def _below(self, bound: int) -> int:
        """Return a uniform integer below any bound."""
        bits = (bound - 1).bit_length()
        while True:
            drawn = int.from_bytes(self._words(-(-bits // 64)).tobytes(), "little") >> (-bits % 64)
            if drawn < bound:
                return drawn

    def add_discrete_gaussian(self, values: Integers, law: DiscreteGaussian) -> None:
        """Add independent noise of ``law`` to every element of ``values``, in place.

        Below 2^14 elements, the number of words and the instructions depend on law and size only, except with a
        probability of 2^-64 per element (`panstream.primitives.noise._gaussian_rejection`).
        """
        if law.numerator is None or not values.size or self._add_many(values, law):
            return
        from panstream.primitives.kernels.noise.gaussian_rejection import add_from_candidates
        from panstream.primitives.noise._gaussian_rejection import WORDS, candidates_of, resolve_draw

        drawn = candidates_of(law)
        curvature = np.uint64(law.numerator)
        block_bits = np.uint64(drawn.block_bits)

        def add(piece: Integers, words: NDArray[np.uint64], undecided: NDArray[np.int64]) -> int:
            return add_from_candidates(
                piece, words, drawn.starts, drawn.high, drawn.low, curvature, block_bits, drawn.number, undecided
            )

        self._add_few(values, WORDS * drawn.number, add, lambda words, more: resolve_draw(law, words, more))

    def exponential(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        """Return an index i with probability proportional to exp(rate · utilities[i]): the exponential mechanism.

        Args:
            utilities: The utility of each choice.
            preference: How strongly larger utilities are preferred.
        """
        return self._choose(utilities, preference, again=True)

    def permute_and_flip(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        """Return an index near the largest utility by permute-and-flip (McKenna, Sheldon 2020).

        For the same pure epsilon it is never worse than `exponential`; its zCDP loss is larger.

        Args:
            utilities: The utility of each choice.
            preference: How strongly larger utilities are preferred.
        """
        return self._choose(utilities, preference, again=False)

    def _choose(self, utilities: NDArray[np.int64], preference: SelectionRate, again: bool) -> int:
        if utilities.size == 0:
            raise InvalidParameter("utilities must not be empty")
        exponents = self._exponents(utilities, preference)
        from panstream.primitives.kernels.noise.private_selection import accept_uniform, permute_and_flip

        bits = np.uint64(RATE_BITS)
        state: NDArray[np.int64] = self.scratch.array(2, np.int64)
        state[:] = 0
        order: NDArray[np.int64] = self.scratch.array(utilities.size, np.int64)
        order[:] = np.arange(utilities.size)
        count = min(4 * utilities.size + 32, _CHUNK // 8)
        unused = self._words(0)
        while True:
            words: NDArray[np.uint64] = self.scratch.array(count + unused.size, np.uint64)
            words[: unused.size] = unused  # an incomplete trial is replayed from its words: fresh ones would bias it
            self._fill(words[unused.size :].view(np.uint8))
            if again:
                complete, used = accept_uniform(exponents, state, bits, words)
            else:
                complete, used = permute_and_flip(exponents, order, state, bits, words)
            if complete:
                return int(state[0])
            unused = words[used:]

    def _exponents(self, utilities: NDArray[np.int64], preference: SelectionRate) -> NDArray[np.uint64]:
        """Return rate · (largest utility - utility) over 2**52, none above 1,024, without overflow."""
        gaps: NDArray[np.uint64] = self.scratch.array(utilities.size, np.uint64)
        # Wrapping is correct: the true difference of two int64 fits in uint64.
        np.subtract(utilities.max().astype(np.int64).view(np.uint64), utilities.view(np.uint64), out=gaps)
        if preference.numerator is None:
            gaps[gaps > 0] = _LARGEST_EXPONENT << 1  # marks "never"
            return gaps
        if preference.numerator == 0:
            gaps[:] = 0
            return gaps
        np.minimum(gaps, np.uint64(_LARGEST_EXPONENT // preference.numerator), out=gaps)
        gaps *= np.uint64(preference.numerator)
        return gaps

    def _words(self, count: int) -> NDArray[np.uint64]:
        if count == 0:
            return _NO_WORDS
        words: NDArray[np.uint64] = self.scratch.array(count, np.uint64)
        self._fill(words.view(np.uint8))
        return words

    def _fill(self, buffer: NDArray[np.uint8]) -> None:
        """Fill ``buffer`` with uniform bytes."""
        if self._cipher is None and self._drawn + buffer.nbytes <= _DIRECT:
            self._drawn += buffer.nbytes
            system_entropy(buffer)
            return
        if self._cipher is None:
            self._cipher = self._reseed()
        for start in range(0, buffer.nbytes, _CHUNK):
            piece = buffer[start : start + _CHUNK]
            self._cipher.update_into(_ZEROS.data[: piece.nbytes], piece.data)

    @staticmethod
    def _reseed() -> CipherContext:
        """Return AES-256 in counter mode under a fresh key; the only other copy of the key is wiped."""
        key = np.empty(32, np.uint8)
        system_entropy(key)
        try:
            return counter_mode(key)
        finally:
            wipe(key)


@lru_cache(maxsize=64)
def _digits_of(threshold: int) -> NDArray[np.uint64]:
    """Return the binary digits of a threshold, the highest first, each as a word of equal bits."""
    digits = np.array([-(threshold >> bit & 1) for bit in range(COIN_BITS - 1, -1, -1)], np.int64).view(np.uint64)
    digits.flags.writeable = False
    return digits


def counter_mode(key: NDArray[np.uint8]) -> CipherContext:
    """Return an AES-256-CTR keystream; the counter may start at 0 since every key is used once."""
    view: Any = key.data
    return Cipher(algorithms.AES(view), modes.CTR(bytes(16))).encryptor()
