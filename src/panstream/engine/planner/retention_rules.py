"""Plan RETENTION: the table and its split, the errors to expect, and the size below which it says nothing."""

from __future__ import annotations

import math
from typing import Any

from panstream.algorithms.continual_users.retained_bitmap import RetainedBitmap
from panstream.algorithms.secret_shared.retention import SharedRetention
from panstream.core.estimate import format_number
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.errors import InvalidParameter

SHARE = 0.12  # of a window's users come again: what errors are stated for
COHORTS = 13  # over which shares are computed
_USEFUL = 0.25  # largest useful 95% error of such a share, as a part of it
_REACH = 1.96
_MOST_USERS = 1 << 30


RetainedWindows = RetainedBitmap | SharedRetention
"""What answers RETENTION, on one machine or on two."""


def choose_retained_bitmap(query: QueryConfig, stream: StreamConfig) -> tuple[Any, str]:
    """Return the algorithm of RETENTION and the reason for its size.

    Raises:
        InvalidParameter: The stream cannot be asked this, or so few users are expected that no answer would be useful.
    """
    if stream.weight is not None:
        raise InvalidParameter("RETENTION does not work with signed weights: a cell cannot forget a user")
    if stream.machines and stream.cells == "noisy":
        raise InvalidParameter(
            'RETENTION on two machines has exact bits under its shares: leave cells = "noisy" out, or use one machine'
        )
    assert query.expected is not None  # since the configuration was read
    lags = int(query.parsed.constants[0])
    options: dict[str, Any] = {"epsilon": query.epsilon, "horizon": query.horizon, "expected": query.expected}
    options |= {"lags": lags, "cohorts": COHORTS, "key": query.key, "hash": query.hash}
    algorithm: RetainedWindows = SharedRetention(**options) if stream.machines else RetainedBitmap(**options)
    if not is_useful(algorithm):
        raise InvalidParameter(
            f"RETENTION says nothing about {query.expected:,} users a window at epsilon {query.epsilon:.4g}: even over "
            f"{COHORTS} windows the 95% error of the share that comes back is above a quarter of it, where "
            f"{SHARE:.0%} do; it needs {needed_text(algorithm)}, or longer windows"
        )
    table = f"{algorithm.levels} x {algorithm.buckets:,} cells a window"
    if isinstance(algorithm, SharedRetention):
        return (
            algorithm,
            f"exact bits of the last {lags} windows stay as shares and are compared with each new one; {table}",
        )
    why = (
        f"noisy cells of the last {lags} windows stay in the state and are compared with each new one; "
        f"{table}, epsilon_state {algorithm.epsilon_state:.3g}"
    )
    return algorithm, why


def pooled_error(algorithm: RetainedWindows, users: float) -> float:
    """Return the 95% error of the share that comes back, over all cohorts, relative to `SHARE`."""
    return _REACH * algorithm.overlap_error(users, SHARE) / math.sqrt(algorithm.cohorts) / (SHARE * users)


def is_useful(algorithm: RetainedWindows) -> bool:
    """Return whether the share that comes back can be estimated at the expected size."""
    return math.isinf(algorithm.epsilon) or pooled_error(algorithm, algorithm.expected) <= _USEFUL


def needed_users(algorithm: RetainedWindows) -> float:
    """Return from how many users a window on answers at this epsilon are useful; inf if none are enough."""
    rest = {name: getattr(algorithm, name) for name in ("epsilon", "horizon", "lags", "cohorts")}
    users = 16.0
    while users < _MOST_USERS:
        if is_useful(type(algorithm)(expected=users, **rest)):
            return users
        users *= 1.1
    return math.inf


def needed_text(algorithm: RetainedWindows) -> str:
    """Return the size from which answers are useful, rounded up to two digits, as text."""
    users = needed_users(algorithm)
    if math.isinf(users):
        return "a larger epsilon"
    digits = 10 ** max(math.floor(math.log10(users)) - 1, 0)
    return f"about {math.ceil(users / digits) * digits:,} at this epsilon"


def expected_retention_errors(algorithm: RetainedWindows, sizes: list[int]) -> list[tuple[str, float]]:
    """Return pairs of an answer and a size, as text, and its 95% error there."""
    errors: list[tuple[str, float]] = []
    for size in sizes:
        errors.append((f"users of a window with {size:,}", _REACH * size * algorithm.moments().relative_error(size)))
        back = _REACH * algorithm.overlap_error(size, SHARE)
        errors.append((f"users back, if {SHARE:.0%} of {size:,} are ({format_number(SHARE * size)})", back))
        pooled = 100 * SHARE * pooled_error(algorithm, size)
        errors.append((f"percentage points of the share back, over {algorithm.cohorts} windows of {size:,}", pooled))
    return errors
