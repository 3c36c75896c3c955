"""Error, size and budget of a distinct count, in inverse pairs, and when one bit per user is better.

``bitmap_error(users, epsilon, buckets)`` is the relative standard error of `Bitmap`: sqrt(1/I(n) - n)/n with I the
Fisher information of the noisy levels, at the best split of ``epsilon``. Two of the quantities determine the third:

===========================================  ==========================================
``bitmap_error(users, epsilon, buckets)``    error
``bitmap_buckets(users, error, epsilon)``    the fewest buckets that suffice
``bitmap_epsilon(users, error, buckets)``    the smallest epsilon that suffices
===========================================  ==========================================
"""

from __future__ import annotations

import math

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.privacy.numeric_search import minimise, smallest_integer, smallest_positive

_LEVELS = 24
_MAX_BUCKETS = 1 << 26
_MAX_EPSILON = 50.0


def bitmap_error(
    users: float, epsilon: float, buckets: int = 4096, *, levels: int = _LEVELS, releases: int = 1, announced: int = 0
) -> float:
    """Return the relative standard error of a bitmap's count at ``users`` users, for which it is tuned.

    >>> round(bitmap_error(1_000_000, 1.0), 4)
    0.0317
    """
    checks.require_finite(users=users, epsilon=epsilon)
    bitmap = Bitmap(
        epsilon=epsilon, buckets=buckets, levels=levels, expected=users, releases=releases, announced=announced
    )
    return bitmap.relative_error(users)


def bitmap_buckets(users: float, error: float, epsilon: float, *, levels: int = _LEVELS, releases: int = 1) -> int:
    """Return the fewest buckets whose relative standard error at ``users`` is at most ``error``.

    More buckets help only up to about as many as there are users; beyond, each adds more noise than it resolves.

    >>> bitmap_buckets(1_000_000, 0.0318, 1.0)
    4084
    """
    checks.require_finite(users=users, epsilon=epsilon, error=error)

    def error_at(buckets: int) -> float:
        return bitmap_error(users, epsilon, buckets, levels=levels, releases=releases)

    best = round(2.0 ** minimise(lambda power: error_at(round(2.0**power)), 0.0, math.log2(_MAX_BUCKETS), 1e-4))
    if error_at(best) > error:
        raise InvalidParameter(
            f"error must be at least {error_at(best):.4g} for {users:g} users at epsilon={epsilon}, got error={error}"
        )
    return smallest_integer(lambda buckets: error_at(buckets) <= error, 0, best)


def bitmap_epsilon(
    users: float, error: float, buckets: int = 4096, *, levels: int = _LEVELS, releases: int = 1
) -> float:
    """Return the smallest epsilon whose relative standard error at ``users`` is at most ``error``.

    >>> round(bitmap_epsilon(1_000_000, 0.0318), 2)
    1.0
    """
    checks.require_finite(users=users, error=error)

    def error_at(epsilon: float) -> float:
        return bitmap_error(users, epsilon, buckets, levels=levels, releases=releases)

    if error_at(_MAX_EPSILON) > error:
        raise InvalidParameter(
            f"error must be at least {error_at(_MAX_EPSILON):.4g} with buckets={buckets} at {users:g} users, got "
            f"error={error}"
        )
    return smallest_positive(lambda epsilon: error_at(epsilon) <= error, 1e-4, _MAX_EPSILON, 1e-9)


def break_even_density(epsilon: float, universe: int, *, levels: int = _LEVELS) -> float:
    """Return the share of a known population above which one bit per user beats the best bitmap of any size.

    >>> round(break_even_density(1.0, 1_000_000), 2)
    0.13
    """
    checks.require_finite(epsilon=epsilon)
    bits = OptBern(universe=universe, epsilon=epsilon)

    def bits_win(users: float) -> bool:
        power = minimise(
            lambda power: bitmap_error(users, epsilon, round(2.0**power), levels=levels),
            0.0,
            math.log2(4.0 * max(users, 1.0)),
            1e-3,
        )
        return bits.standard_error(users) <= users * bitmap_error(users, epsilon, round(2.0**power), levels=levels)

    return smallest_integer(bits_win, 0, universe) / universe
