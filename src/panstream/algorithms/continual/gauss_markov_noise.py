"""Noise that is correlated over time: the exact draws of `GaussMarkovCount`.

Each level is in a unit in which its draws have a standard deviation between 2**29 and 2**30, so that rounding a level
shifts the law of its next value by next to nothing. A draw is the sum of two discrete Gaussians, of which one is
shifted, since a single one is drawn exactly only up to a standard deviation of 2**20.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise import DiscreteGaussian, NoiseSource
from panstream.privacy.gauss_markov_loss import DRAW_BITS, gauss_markov_variances, level_exponents

COUNT_BITS = 8  # the count and its noise are in units of 2**-8 events
_COARSE_BITS = 10  # a draw of a level is 2**10 times one Gaussian number, plus another one
_FINE = DiscreteGaussian.at_least(2.0**14)


@dataclass(frozen=True, slots=True)
class GaussMarkovNoise:
    """The draws of an epoch. Row 0 of the levels is drawn afresh for every answer."""

    count: DiscreteGaussian
    exponents: NDArray[np.int64]
    coarse: tuple[DiscreteGaussian, ...]
    fine: DiscreteGaussian
    bits: tuple[int, ...]  # a number of a row is in units of 2**-bits events
    starts: tuple[tuple[int, DiscreteGaussian], ...]  # of the slower levels: 2**shift times this, plus one draw

    @property
    def rest_bits(self) -> int:
        """Return the bits of an answer beyond those of the count."""
        return max(self.bits) - COUNT_BITS

    @property
    def finer(self) -> NDArray[np.int64]:
        """Return by how many bits numbers of a row are shifted to the unit of the sums."""
        return np.array([max(self.bits) - bits for bits in self.bits], np.int64)

    @property
    def count_variance(self) -> float:
        """Return the variance of a draw of the count, in events."""
        return self.count.variance * 4.0**-COUNT_BITS

    @property
    def sum_variance(self) -> float:
        """Return the variance of X."""
        total = 0.0
        for row, (law, bits) in enumerate(zip(self.coarse, self.bits, strict=True)):
            draw = (law.variance * 4.0**_COARSE_BITS + self.fine.variance) * 4.0**-bits
            total += draw if row == 0 else draw / _innovation(int(self.exponents[row - 1]))
        return total

    def add_to_count(self, count: NDArray[np.int64], rng: NoiseSource) -> None:
        """Add one draw to the count."""
        rng.add_discrete_gaussian(count, self.count)

    def draw(self, ticks: int, rng: NoiseSource) -> NDArray[np.int64]:
        """Return a row of draws for each level, in scratch memory."""
        rows = len(self.coarse)
        draws: NDArray[np.int64] = rng.scratch.array(rows * ticks, np.int64).reshape(rows, ticks)
        draws.fill(0)
        for row, law in zip(draws, self.coarse, strict=True):
            rng.add_discrete_gaussian(row, law)
        draws <<= _COARSE_BITS
        rng.add_discrete_gaussian(draws.reshape(-1), self.fine)
        return draws

    def start(self, levels: NDArray[np.int64], rng: NoiseSource) -> None:
        """Start the slower levels with the variance that they have in the long run."""
        levels[:] = 0
        first = self.draw(1, rng)[1:, 0]
        wide: NDArray[np.int64] = rng.scratch.array(len(self.starts), np.int64)
        wide.fill(0)
        for i, (shift, law) in enumerate(self.starts):
            rng.add_discrete_gaussian(wide[i : i + 1], law)
            wide[i : i + 1] <<= shift
        np.add(first, wide, out=levels[: first.size])


def _innovation(exponent: int) -> float:
    """Return the share of a level's variance that is new at every tick."""
    return 1.0 - (1.0 - 2.0**-exponent) ** 2


@lru_cache(maxsize=64)
def gauss_markov_noise(
    epsilon: float, delta: float, order: int, contributions: int, one_step_ticks: bool
) -> GaussMarkovNoise:
    """Return the draws whose joint loss is (``epsilon``, ``delta``) over a horizon of this ``order``."""
    variances = gauss_markov_variances(epsilon, delta, order, contributions, one_step_ticks=one_step_ticks)
    exponents = level_exponents(order, one_step_ticks=one_step_ticks)
    shown = np.array(exponents, np.int64)
    shown.flags.writeable = False
    if not variances.count:
        none = DiscreteGaussian(None)
        rows = len(exponents)
        return GaussMarkovNoise(none, shown, (none,) * (rows + 1), none, (DRAW_BITS,) * (rows + 1), ((0, none),) * rows)
    count = DiscreteGaussian.at_least(math.sqrt(variances.count) * 2.0**COUNT_BITS)
    spreads = [variances.fresh, *(variances.level * _innovation(exponent) for exponent in exponents)]
    sigmas = [math.nextafter(math.sqrt(spread), math.inf) for spread in spreads]
    bits = tuple(DRAW_BITS + 1 - math.ceil(math.log2(sigma)) for sigma in sigmas)
    units = [math.ldexp(sigma, bit) for sigma, bit in zip(sigmas, bits, strict=True)]
    coarse = tuple(DiscreteGaussian.at_least(unit * 2.0**-_COARSE_BITS) for unit in units)
    starts = []
    for exponent, unit in zip(exponents, units[1:], strict=True):
        sigma = unit * math.sqrt(1.0 / _innovation(exponent) - 1.0)  # the draw that is added has the rest
        shift = math.ceil(math.log2(sigma)) - 20
        starts.append((shift, DiscreteGaussian.at_least(math.nextafter(math.ldexp(sigma, -shift), math.inf))))
    return GaussMarkovNoise(count, shown, coarse, _FINE, bits, tuple(starts))
