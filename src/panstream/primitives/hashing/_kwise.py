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

        words = words_of(points, "points")
        check_out(out, words.size, np.uint64)
        check_limit(words, PRIME, "points")
        evaluate_all(words, np.array(self.coefficients, np.uint64), out)
