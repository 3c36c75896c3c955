"""Masks of secure sums: a code over the field of 2**61 - 1 elements, of which up to ``dropouts`` words may be missing.

Member u derives a pseudo-random vector p[u][v] for every member v, itself included; v can derive the same one. With the
members numbered from 1 and d dropouts, u's mask is the sum over v of v**d·p[u][v]. With it go d check vectors, the sums
of v**k·p[u][v] for k < d. All of this is linear, so the same holds of sums over several u: from the sums of any M - d
of the members v and the summed checks follows the sum of the masks. From fewer follows nothing, since any d + 1 columns
of a Vandermonde matrix are independent (docs/proofs/federated.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives.hashing import PRIME, KWise

_SPARE = 16  # further words for those that are not below the prime, one in 2**61


def to_field(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return integers modulo the prime."""
    return np.mod(values, PRIME).astype(np.uint64)


def from_field(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the integers nearest to 0 with these remainders; the inverse of `to_field` up to 2**60."""
    signed = values.astype(np.int64)
    return np.where(signed > PRIME // 2, signed - PRIME, signed)


def read_field(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return what another party has sent as elements of the field; raise InvalidParameter for anything else."""
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < PRIME:
        raise InvalidParameter("its masked values are not elements of the field")
    return values.reshape(-1).astype(np.uint64)


def combine(terms: Iterable[tuple[int, NDArray[np.uint64]]], size: int) -> NDArray[np.uint64]:
    """Return the sum of factor times vector.

    Args:
        terms: Factors, of any sign, with their vectors.
        size: Length of the vectors.
    """
    total = np.zeros(size, np.uint64)
    product = np.empty(size, np.uint64)
    for factor, vector in terms:
        KWise(coefficients=(0, factor % PRIME)).values(vector, product)
        total += product
        total -= np.where(total >= PRIME, np.uint64(PRIME), np.uint64(0))
    return total


def stream(key: bytes, size: int) -> NDArray[np.uint64]:
    """Return uniform elements of the field, a function of ``key`` (AES-256 in counter mode)."""
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    words: NDArray[np.uint64] = np.frombuffer(cipher.update(bytes(8 * (size + _SPARE))), np.uint64) & np.uint64(PRIME)
    below: NDArray[np.uint64] = words[words != PRIME][:size]
    return below


def encode(vectors: Iterable[NDArray[np.uint64]], dropouts: int, size: int) -> list[NDArray[np.uint64]]:
    """Return the check vectors of one member, and last its mask.

    Args:
        vectors: Its vectors with all members, in their order.
        dropouts: How many members may be missing.
        size: Length of the vectors.
    """
    sums = [np.zeros(size, np.uint64)] * (dropouts + 1)
    for point, vector in enumerate(vectors, 1):
        sums = [combine(((1, total), (point**power, vector)), size) for power, total in enumerate(sums)]
    return sums


def decode(
    summed: Mapping[int, NDArray[np.uint64]], checks: Sequence[NDArray[np.uint64]], members: int
) -> NDArray[np.uint64]:
    """Return the sum of masks from the sums of M - d members and the summed check vectors.

    The polynomial x**d + ... whose zeros are the missing members drops them from the sum.

    Args:
        summed: Sums of vectors by the number of the member (from 1) that they belong to.
        checks: The sums of the check vectors, d of them.
        members: How many members there are.
    """
    used = sorted(summed)[: members - len(checks)]
    missing = [point for point in range(1, members + 1) if point not in used]
    if len(missing) != len(checks):
        raise InvalidParameter(f"{members - len(checks)} of {members} sums are needed, got {len(summed)}")
    coefficients = [1]  # of the polynomial, highest power first
    for point in missing:
        coefficients = [a - point * b for a, b in zip([*coefficients, 0], [0, *coefficients], strict=True)]
    factors = [(math.prod(point - other for other in missing), summed[point]) for point in used]
    lower = zip((-coefficient for coefficient in coefficients[:0:-1]), checks, strict=True)
    return combine([*factors, *lower], summed[used[0]].size)
