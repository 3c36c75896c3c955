"""k-wise independent hash functions: polynomials of degree k - 1 over the field of p = 2**61 - 1 elements.

With coefficients uniform in the field, the values at any k different points are independent and uniform
(Wegman and Carter, 1981).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.hashing._array_checks import check_limit, check_out, words_of
from panstream.primitives.hashing.keys import HashKey, expand

PRIME = (1 << 61) - 1
"""The size of the field: values and results are integers in 0..2**61 - 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KWise:
    """The polynomial ``c[0] + c[1]·x + ... + c[k - 1]·x**(k - 1)`` modulo 2**61 - 1.

    >>> KWise(coefficients=(3, 2)).independence
    2
    >>> out = np.empty(2, np.uint64)
    >>> KWise(coefficients=(3, 2)).values(np.array([0, 10]), out)
    >>> out.tolist()
    [3, 23]
    """

    coefficients: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.coefficients, tuple) or not self.coefficients:
            raise InvalidParameter("coefficients must be a tuple of at least one integer")
        for coefficient in self.coefficients:
            if isinstance(coefficient, bool) or not isinstance(coefficient, int) or not 0 <= coefficient < PRIME:
                raise InvalidParameter("coefficients must be integers in 0..2**61 - 2")

    @classmethod
    def from_key(cls, independence: int, key: HashKey = 0, label: str = "") -> KWise:
        """Return the member of the family that ``key`` chooses; different labels give independent members.

        Coefficient ``i`` is ``w[2i] + w[2i + 1] * 2**64`` modulo the prime, w being
        ``expand(key, "polynomial" + label, 2 * independence)``: uniform up to 2**-67.
        """
        checks.require_int(1, 1024, independence=independence)
        words = expand(key, "polynomial" + label, 2 * independence)
        pairs = zip(words[::2], words[1::2], strict=True)
        return cls(coefficients=tuple((low + (high << 64)) % PRIME for low, high in pairs))

    @property
    def independence(self) -> int:
        """Return k: the values at any k points are independent over the choice of the coefficients."""
        return len(self.coefficients)

    def values(self, points: NDArray[Any], out: NDArray[np.uint64]) -> None:
        """Write the polynomial's value, in 0..2**61 - 2, at every point of the same range."""
        from panstream.primitives.kernels.hashing.polynomial import evaluate_all

        evaluate_all(self._checked(points, out, np.uint64), self._array(), out)

    def buckets(self, points: NDArray[Any], buckets: int, out: NDArray[Any]) -> None:
        """Write ``value * buckets >> 61``, in [0, buckets): uniform up to buckets / 2**61, relatively."""
        from panstream.primitives.kernels.hashing.polynomial import buckets_all

        words = self._checked(points, out, np.int32, np.int64)
        checks.require_int(1, min(int(np.iinfo(out.dtype).max), (1 << 32) - 1), buckets=buckets)
        buckets_all(words, self._array(), np.uint64(buckets), out)

    def signs(self, points: NDArray[Any], out: NDArray[np.int8]) -> None:
        """Write +1 or -1, the value's lowest bit: even odds up to 2**-62."""
        from panstream.primitives.kernels.hashing.polynomial import signs_all

        signs_all(self._checked(points, out, np.int8), self._array(), out)

    def levels(self, points: NDArray[Any], levels: int, out: NDArray[np.int8]) -> None:
        """Write the value's number of trailing zero bits, at most ``levels - 1``: at least l with chance 2**-l."""
        from panstream.primitives.kernels.hashing.polynomial import levels_all

        checks.require_int(1, 58, levels=levels)
        levels_all(self._checked(points, out, np.int8), self._array(), np.uint64(1 << (levels - 1)), out)

    def _array(self) -> NDArray[np.uint64]:
        return np.array(self.coefficients, np.uint64)

    @staticmethod
    def _checked(points: Any, out: Any, *dtypes: type[np.generic]) -> NDArray[np.uint64]:
        words = words_of(points, "points")
        check_out(out, words.size, *dtypes)
        check_limit(words, PRIME, "points")
        return words
