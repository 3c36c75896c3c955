"""Exact Rényi divergences of discrete Gaussian noise."""

import functools
import math

import numpy as np

from panstream.primitives.noise import DiscreteGaussian


@functools.cache
def divergence(noise: DiscreteGaussian, shift: int, order: float) -> float:
    """Return the divergence of the noise from itself moved by ``shift``, summed far into the tails."""
    assert noise.numerator is not None
    rate = noise.numerator / 2.0**52
    reach = math.ceil(12 * noise.sigma) + abs(shift) * math.ceil(order) + 10
    k = np.arange(-reach, reach + 1, dtype=float)
    logs = -rate * k**2
    moved = -rate * (k - shift) ** 2
    total = np.logaddexp.reduce(order * logs + (1 - order) * moved) - np.logaddexp.reduce(logs)
    return float(total) / (order - 1)
