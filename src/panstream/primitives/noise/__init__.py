"""Exact random draws from the operating system's entropy, none of which outlives an atomic step.

``entropy`` fills a buffer from the kernel; ``distributions`` defines exactly what is drawn, ``lattice_balls`` noise
that sums to 0; ``source`` draws and wipes. ``SeededSource`` is for tests and experiments only and says so.
"""

from panstream.primitives.noise._seeded import SeededSource
from panstream.primitives.noise.distributions import (
    Coin,
    DiscreteGaussian,
    DiscreteLaplace,
    SelectionRate,
    symmetric_coins,
)
from panstream.primitives.noise.source import NoiseSource

__all__ = [
    "Coin",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "NoiseSource",
    "SeededSource",
    "SelectionRate",
    "symmetric_coins",
]
