"""Plan RETENTION: the table and its split, the errors to expect, and the size below which it says nothing."""

from __future__ import annotations

import math
from typing import Any

from panstream.algorithms.continual_users.retained_bitmap import RetainedBitmap
from panstream.core.estimate import format_number
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.errors import InvalidParameter

SHARE = 0.12  # of a window's users come again: what errors are stated for
COHORTS = 13  # over which shares are computed
_USEFUL = 0.25  # largest useful 95% error of such a share, as a part of it
_REACH = 1.96
_MOST_USERS = 1 << 30


def choose_retained_bitmap(query: QueryConfig, stream: StreamConfig) -> tuple[Any, str]:
    """Return the algorithm of RETENTION and the reason for its size.

    Raises:
        InvalidParameter: The stream cannot be asked this, or so few users are expected that no answer would be useful.
    """
    if stream.machines:
        raise InvalidParameter("RETENTION is not computed on two machines: they keep no cells of windows that are over")
    if stream.weight is not None:
        raise InvalidParameter("RETENTION does not work with signed weights: a cell cannot forget a user")
    assert query.expected is not None  # since the configuration was read
    lags = int(query.parsed.constants[0])
    algorithm = sized_bitmap(query, lags, query.expected)
    if not is_useful(algorithm):
        raise InvalidParameter(
            f"RETENTION says nothing about {query.expected:,} users a window at epsilon {query.epsilon:.4g}: even over "
            f"{COHORTS} windows the 95% error of the share that comes back is above a quarter of it, where "
            f"{SHARE:.0%} do; it needs {needed_text(query.epsilon, lags)}, or longer windows"
        )
    why = (
        f"noisy cells of the last {lags} windows stay in the state and are compared with each new one; "
        f"{algorithm.levels} x {algorithm.buckets:,} cells a window, epsilon_state {algorithm.epsilon_state:.3g}"
    )
    return algorithm, why


def sized_bitmap(query: QueryConfig, lags: int, users: float) -> RetainedBitmap:
    """Return the algorithm for so many users a window."""
    return RetainedBitmap(
        epsilon=query.epsilon,
        horizon=query.horizon,
        expected=users,
        lags=lags,
        cohorts=COHORTS,
        key=query.key,
        hash=query.hash,
    )


def pooled_error(algorithm: RetainedBitmap, users: float) -> float:
    """Return the 95% error of the share that comes back, over all cohorts, relative to `SHARE`."""
    return _REACH * algorithm.overlap_error(users, SHARE) / math.sqrt(algorithm.cohorts) / (SHARE * users)


def is_useful(algorithm: RetainedBitmap) -> bool:
    """Return whether the share that comes back can be estimated at the expected size."""
    return math.isinf(algorithm.epsilon) or pooled_error(algorithm, algorithm.expected) <= _USEFUL


def needed_users(epsilon: float, lags: int) -> float:
    """Return from how many users a window on answers are useful; inf if none are enough."""
    users = 16.0
    while users < _MOST_USERS:
        if is_useful(RetainedBitmap(epsilon=epsilon, expected=users, lags=lags, cohorts=COHORTS)):
            return users
        users *= 1.1
    return math.inf


def needed_text(epsilon: float, lags: int) -> str:
    """Return the size from which answers are useful, rounded up to two digits, as text."""
    users = needed_users(epsilon, lags)
    if math.isinf(users):
        return "a larger epsilon"
    digits = 10 ** max(math.floor(math.log10(users)) - 1, 0)
    return f"about {math.ceil(users / digits) * digits:,} at this epsilon"


def expected_retention_errors(algorithm: RetainedBitmap, sizes: list[int]) -> list[tuple[str, float]]:
    """Return pairs of an answer and a size, as text, and its 95% error there."""
    errors: list[tuple[str, float]] = []
    for size in sizes:
        errors.append((f"users of a window with {size:,}", _REACH * size * algorithm.moments().relative_error(size)))
        back = _REACH * algorithm.overlap_error(size, SHARE)
        errors.append((f"users back, if {SHARE:.0%} of {size:,} are ({format_number(SHARE * size)})", back))
        pooled = 100 * SHARE * pooled_error(algorithm, size)
        errors.append((f"percentage points of the share back, over {algorithm.cohorts} windows of {size:,}", pooled))
    return errors
