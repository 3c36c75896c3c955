"""Loops of correlated noise: autoregressive levels in exact integers, and what their sum tells about a constant.

Level 0 is drawn afresh for every answer and stored nowhere. Level i >= 1 goes from x to x - round(x / 2**k) + draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit


# All shifts are public; the order of operations does not depend on a draw.
@njit(cache=True, nogil=True)
def next_levels(
    levels: NDArray[np.int64],
    exponents: NDArray[np.int64],
    finer: NDArray[np.int64],
    draws: NDArray[np.int64],
    sums: NDArray[np.int64],
) -> None:
    """Advance the levels once per column of ``draws``, and write the sum of all of them to ``sums``.

    ``draws`` has a row for level 0 and one for each level. A number of row i is shifted by ``finer[i]`` bits to the
    unit of the sums.
    """
    for tick in range(sums.size):
        total = draws[0, tick] << finer[0]
        for i in range(exponents.size):
            k = exponents[i]
            half = np.int64(1) << (k - 1)
            levels[i] += draws[i + 1, tick] - ((levels[i] + half) >> k)
            total += levels[i] << finer[i + 1]
        sums[tick] = total


@njit(cache=True, nogil=True)
def constant_information(decays: NDArray[np.float64], variances: NDArray[np.float64], ticks: int) -> float:
    """Return 1'K⁻¹1, K the covariance of ``ticks`` sums of autoregressive levels that start from a known state.

    It is the information that the sums hold about a constant that is added to all of them. ``variances`` are those of
    the levels in the long run. A Kalman filter adds it up.
    """
    size = decays.size
    covariance = np.zeros((size, size))
    response = np.zeros(size)
    across = np.zeros(size)
    total = 0.0
    for _ in range(ticks):
        width = 0.0
        rest = 1.0
        for i in range(size):
            response[i] *= decays[i]
            for j in range(size):
                covariance[i, j] *= decays[i] * decays[j]
            covariance[i, i] += variances[i] * (1.0 - decays[i] ** 2)
        for i in range(size):
            across[i] = covariance[i].sum()
            width += across[i]
            rest -= response[i]
        total += rest * rest / width
        for i in range(size):
            response[i] += across[i] / width * rest
            for j in range(size):
                covariance[i, j] -= across[i] * across[j] / width
    return total
