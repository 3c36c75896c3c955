"""Polynomials over the field of the Mersenne prime 2**61 - 1: k-wise independent hash functions.

Compiled because products have 122 bits, which NumPy does not have. The same instructions run for every value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import product_high

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
