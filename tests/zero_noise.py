"""A noise source without noise, for exact versions of noisy code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise import Coin, DiscreteGaussian, DiscreteLaplace, NoiseSource
from panstream.testing.sources import redraw_one_by_one


class ZeroNoiseSource(NoiseSource):
    """No noise: coins show their likelier side, uniform draws are 0."""

    __slots__ = ()

    is_secure = False

    def bernoulli(self, coin: Coin, size: int, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Show 1 where 1 is likelier than 0."""
        coins = np.empty(size, np.uint8) if out is None else out[:size]
        coins.fill(2 * coin.threshold > 1 << 64)
        return coins

    def redraw(self, coin: Coin, bits: NDArray[np.uint64], marks: NDArray[np.uint64]) -> None:
        """Show the likelier side wherever a bit is marked."""
        redraw_one_by_one(self, coin, bits, marks)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Draw zeros."""
        return np.zeros(size, np.int64)

    def add_discrete_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        """Add nothing."""

    def add_discrete_gaussian(self, values: NDArray[np.int64], law: DiscreteGaussian) -> None:
        """Add nothing."""
