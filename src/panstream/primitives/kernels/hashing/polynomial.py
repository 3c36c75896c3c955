"""Polynomials over the field of the Mersenne prime 2**61 - 1: k-wise independent hash functions.

Compiled because products have 122 bits, which NumPy does not have. The same instructions run for every value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.machine_words import product_high, trailing_zeros

PRIME = np.uint64((1 << 61) - 1)


@njit(cache=True, nogil=True, forceinline=True)
def _reduce_once(word: np.uint64) -> Any:
    return word - PRIME if word >= PRIME else word


@njit(cache=True, nogil=True, forceinline=True)
def _evaluate(x: np.uint64, coefficients: NDArray[np.uint64]) -> Any:
    """Evaluate by Horner's rule; 2**61 = 1 in the field, so a product's upper bits are added to its lower 61."""
    total = coefficients[coefficients.size - 1]
    for i in range(coefficients.size - 2, -1, -1):
        upper = (product_high(total, x) << np.uint64(3)) | ((total * x) >> np.uint64(61))
        total = _reduce_once(((total * x) & PRIME) + upper)
        total = _reduce_once(total + coefficients[i])
    return total


@njit(cache=True, nogil=True)
def evaluate_all(values: NDArray[np.uint64], coefficients: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Write the polynomial's value at every ``values[i] < PRIME``."""
    for i in range(values.size):
        out[i] = _evaluate(values[i], coefficients)


@njit(cache=True, nogil=True)
def buckets_all(
    values: NDArray[np.uint64], coefficients: NDArray[np.uint64], buckets: np.uint64, out: NDArray[Any]
) -> None:
    """Write ``value * buckets >> 61``."""
    for i in range(values.size):
        out[i] = np.int64(product_high(_evaluate(values[i], coefficients) << np.uint64(3), buckets))


@njit(cache=True, nogil=True)
def signs_all(values: NDArray[np.uint64], coefficients: NDArray[np.uint64], out: NDArray[np.int8]) -> None:
    """Write +1 for an even value and -1 for an odd one."""
    for i in range(values.size):
        odd = np.int64(_evaluate(values[i], coefficients) & np.uint64(1))
        out[i] = 1 - 2 * odd


@njit(cache=True, nogil=True)
def levels_all(
    values: NDArray[np.uint64], coefficients: NDArray[np.uint64], guard: np.uint64, out: NDArray[np.int8]
) -> None:
    """Write the number of trailing zero bits, capped by the position of ``guard``'s only bit."""
    for i in range(values.size):
        out[i] = np.int64(trailing_zeros(_evaluate(values[i], coefficients) | guard))
