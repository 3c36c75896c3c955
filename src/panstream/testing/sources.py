"""Instrumented noise sources: enumerate every outcome, or replace noise by scripted numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise import Coin, DiscreteGaussian, DiscreteLaplace, NoiseSource
from panstream.primitives.noise.source import Integers
from panstream.primitives.packed_bits import unpack_bits

ResultT = TypeVar("ResultT")


def redraw_one_by_one(rng: NoiseSource, coin: Coin, bits: NDArray[np.uint64], marks: NDArray[np.uint64]) -> None:
    """Redraw the marked bits one by one, by the source's own `bernoulli`."""
    marked = np.flatnonzero(unpack_bits(marks.view(np.uint8), 64 * marks.size))
    for cell, side in zip(marked.tolist(), rng.bernoulli(coin, marked.size).tolist(), strict=True):
        word, bit = divmod(cell, 64)
        bits[word] = np.uint64((int(bits[word]) & ~(1 << bit)) | side << bit)


class _BranchingSource(NoiseSource):
    """Follows a path of choices and computes its exact probability.

    Discrete Laplace noise is infinite; since it is only ever added to integers, the *sums* are enumerated over
    ``window`` (inclusive). Beyond the range of the possible sums likelihood ratios are constant, so a window that
    exceeds that range by one on either side is exact. Where numbers wrap around, at ``modulus``, there are no more than
    that many sums, and no window is needed.
    """

    __slots__ = ("modulus", "options", "path", "probability", "window")

    is_secure = False

    def __init__(self, path: list[int], window: tuple[int, int], modulus: int | None = None) -> None:
        super().__init__()
        self.path = path
        self.options: list[int] = []  # number of choices at each point of the path
        self.probability = Fraction(1)
        self.window = window
        self.modulus = modulus

    def bernoulli(self, coin: Coin, size: int, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        coins = np.empty(size, np.uint8) if out is None else out[:size]
        p = coin.probability
        sides = [(side, weight) for side, weight in ((0, 1 - p), (1, p)) if weight]
        for i in range(size):
            coins[i] = self._branch(sides)
        return coins

    def redraw(self, coin: Coin, bits: NDArray[np.uint64], marks: NDArray[np.uint64]) -> None:
        """Branch on every marked bit, as `bernoulli` does."""
        redraw_one_by_one(self, coin, bits, marks)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        choices = [(value, Fraction(1, bound)) for value in range(bound)]
        return np.array([self._branch(choices) for _ in range(size)], np.int64)

    def add_discrete_laplace(self, values: Integers, law: DiscreteLaplace) -> None:
        """Branch on the sum of each value and its noise, within the window or modulo ``modulus``."""
        flat = values.reshape(-1)
        if self.modulus is not None:
            for i in range(flat.size):
                flat[i] = (int(flat[i]) + self._branch(_wrapped(law, self.modulus))) % self.modulus
            return
        if law.numerator is not None:
            for i in range(flat.size):
                flat[i] = self._branch(_sums(law, int(flat[i]), self.window))

    def _branch(self, choices: list[tuple[int, Fraction]]) -> int:
        depth = len(self.options)
        if depth == len(self.path):
            self.path.append(0)
        self.options.append(len(choices))
        value, weight = choices[self.path[depth]]
        self.probability *= weight
        return value


@lru_cache(maxsize=1024)
def _sums(law: DiscreteLaplace, value: int, window: tuple[int, int]) -> list[tuple[int, Fraction]]:
    """Return (sum, probability) of the value plus a draw, for sums in the window."""
    q = law.decay()
    scale = (1 - q) / (1 + q)
    return [(total, scale * q ** abs(total - value)) for total in range(window[0], window[1] + 1)]


@lru_cache(maxsize=16)
def _wrapped(law: DiscreteLaplace, modulus: int) -> list[tuple[int, Fraction]]:
    """Return (remainder, probability) of a draw modulo ``modulus``."""
    if law.numerator is None:
        return [(0, Fraction(1))]
    q = law.decay()
    scale = (1 - q) / (1 + q) / (1 - q**modulus)
    return [(k, scale * (q**k + q ** (modulus - k))) for k in range(modulus)]


def outcomes(
    step: Callable[[NoiseSource], ResultT], window: tuple[int, int] = (0, 0), modulus: int | None = None
) -> Iterator[tuple[Fraction, ResultT]]:
    """Run ``step`` once for every possible sequence of draws; yield (exact probability, result)."""
    path: list[int] = []
    while True:
        rng = _BranchingSource(path, window, modulus)
        result = step(rng)
        yield rng.probability, result
        while path and path[-1] + 1 == rng.options[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1


class ScriptedSource(NoiseSource):
    """Adds scripted numbers instead of noise, by the index of the draw; 0 for draws that the script does not have.

    ``kappas`` records the decay rate of every discrete Laplace draw in order, across steps, and 1/sigma of every
    discrete Gaussian one. A script with one unit at one draw measures the effect of that draw on the view.
    """

    __slots__ = ("kappas", "script")

    is_secure = False

    def __init__(self, script: Mapping[int, int]) -> None:
        super().__init__()
        self.script = script
        self.kappas: list[float] = []

    def add_discrete_laplace(self, values: Integers, law: DiscreteLaplace) -> None:
        """Add the scripted numbers and record the decay rates."""
        self._add(values, law.kappa)

    def add_discrete_gaussian(self, values: Integers, law: DiscreteGaussian) -> None:
        """Add the scripted numbers and record 1/sigma."""
        self._add(values, 1.0 / law.sigma if law.sigma else math.inf)

    def _add(self, values: Integers, kappa: float) -> None:
        flat = values.reshape(-1)
        for i in range(flat.size):
            flat[i] += self.script.get(len(self.kappas), 0)
            self.kappas.append(kappa)

    def bernoulli(self, coin: Coin, size: int, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Raise TypeError: an algorithm that draws coins has no view matrix."""
        raise TypeError("coins have no place in a linear view")

    def redraw(self, coin: Coin, bits: NDArray[np.uint64], marks: NDArray[np.uint64]) -> None:
        """Draw every marked bit by `bernoulli`, which subclasses with scripted coins override."""
        redraw_one_by_one(self, coin, bits, marks)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Raise TypeError: an algorithm that draws uniform numbers has no view matrix."""
        raise TypeError("uniform draws have no place in a linear view")
