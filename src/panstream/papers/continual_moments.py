"""Algorithms 3 and 4 of "Private Aggregate Computations on Streams": average and variance as stated.

A value of 0 means "no data", the noise ignores how large a value may be, and nothing guards a small count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.papers.literal_counters import LiteralCounter, LiteralState, binary_step
from panstream.privacy.psums import binary_levels, published_average_loss, published_variance_loss
from panstream.randomness import DiscreteLaplace, Source

__all__ = ["PublishedAverage", "PublishedVariance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAverage(LiteralCounter):
    """Algorithm 3 with eps' = eps/(2·log2 T) for count and sum alike.

    True loss of the outputs for values in 0..N: (1 + N)·(floor(log2 T) + 1)/(2·log2 T)·epsilon; 55.6·epsilon for N = 100 and
    T = 1024. With one look: infinite.
    """

    @property
    def output_loss(self) -> float:
        """Return the loss of the noisy sums."""
        return published_average_loss(self.epsilon, self.horizon, self.bound)

    @property
    def rows(self) -> int:
        """Return the levels of count and sum."""
        return 2 * binary_levels(self.horizon)

    def close(self, state: LiteralState, value: int, source: Source) -> float:
        """Return noisy sum over noisy count."""
        law = _law(self, 2.0)
        count, total = _steps(state, (int(value != 0), value), (law, law), source)
        return total / count if count else math.nan

    def released(self, state: LiteralState) -> tuple[int, ...]:
        """Return all noisy sums in use."""
        return _in_use(state, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVariance(LiteralCounter):
    """Algorithm 4: a count with eps' = eps/log2 T, the average of the values, and that of their squares.

    True loss of the outputs: 5557·epsilon for values in 0..100 and T = 1024. With one look: infinite.
    """

    @property
    def output_loss(self) -> float:
        """Return the loss of the noisy sums."""
        return published_variance_loss(self.epsilon, self.horizon, self.bound)

    @property
    def rows(self) -> int:
        """Return the levels of the count and of two averages."""
        return 5 * binary_levels(self.horizon)

    def close(self, state: LiteralState, value: int, source: Source) -> float:
        """Return the rolling variance formula of the noisy numbers."""
        here = int(value != 0)
        average = _law(self, 2.0)
        laws = (_law(self, 1.0), average, average, average, average)
        counts = _steps(state, (here, here, value, here, value * value), laws, source)
        if counts[0] == 1 or not counts[1] or not counts[3]:
            return math.nan
        mean, power = counts[2] / counts[1], counts[4] / counts[3]
        return (power * counts[0] - counts[0] * mean**2) / (counts[0] - 1)

    def released(self, state: LiteralState) -> tuple[int, ...]:
        """Return all noisy sums in use."""
        return _in_use(state, 5)


def _law(algorithm: LiteralCounter, share: float) -> DiscreteLaplace:
    return DiscreteLaplace.at_most(algorithm.epsilon / (share * math.log2(algorithm.horizon)))


def _steps(
    state: LiteralState, values: tuple[int, ...], laws: tuple[DiscreteLaplace, ...], source: Source
) -> list[int]:
    clear, noisy = _split(state.sums, len(values)), _split(state.noisy, len(values))
    return [binary_step(clear[i], noisy[i], state.time, values[i], laws[i], source) for i in range(len(values))]


def _in_use(state: LiteralState, parts: int) -> tuple[int, ...]:
    noisy = _split(state.noisy, parts)
    levels = [level for level in range(noisy.shape[1]) if state.time >> level & 1]
    return tuple(int(number) for number in noisy[:, levels].ravel())


def _split(sums: NDArray[np.int64], parts: int) -> NDArray[np.int64]:
    return sums.reshape(parts, -1)
