"""Statistics that a profile sketch answers: any function of a user's net weight, summed over users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks


@dataclass(frozen=True, slots=True)
class Statistic:
    """The sum over users of ``function`` of the net weight; the function takes and returns an array.

    A user who never appeared has net weight 0 and is included in the sum.

    Args:
        name: What answers call it.
        function: Takes and returns an array: from net weights to the values that are summed.

    >>> Statistic("odd", lambda a: a % 2).at(np.array([0, 1, 2, 3])).tolist()
    [0.0, 1.0, 0.0, 1.0]
    """

    name: str
    function: Callable[[NDArray[np.int64]], NDArray[np.generic]]

    def at(self, weights: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the function's values; raise InvalidParameter unless they are finite numbers.

        Args:
            weights: Net weights, one per user.
        """
        values = np.asarray(self.function(weights), np.float64)
        if values.shape != weights.shape or not np.isfinite(values).all():
            raise InvalidParameter(f"the function of {self.name!r} must return one finite number for every net weight")
        return values

    @classmethod
    def cropped_moment(cls, order: float, crop: int) -> Self:
        """Return the sum of min(|a|, crop)**order.

        Args:
            order: The power.
            crop: Larger net weights count as this one.
        """
        if not order > 0 or crop < 1:
            raise InvalidParameter(f"order and crop must be positive, got order={order}, crop={crop}")
        return cls(
            f"sum of min(|net|, {crop})**{order:g}", lambda a: np.minimum(np.abs(a), crop).astype(np.float64) ** order
        )

    @classmethod
    def heavy_hitters(cls, threshold: int) -> Self:
        """Return the number of users with a net weight of at least ``threshold``, exactly (no grey zone)."""
        checks.require_at_least(1, threshold=threshold)
        return cls(f"users with net >= {threshold}", lambda a: a >= threshold)

    @classmethod
    def incidence(cls, t: int) -> Self:
        """Return the number of users with a net weight of exactly ``t`` (t-incidence)."""
        return cls(f"users with net = {t}", lambda a: a == t)


DISTINCT = Statistic("distinct users", lambda a: a != 0)
"""Users whose net weight is not 0."""
