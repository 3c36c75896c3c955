"""What bounds the rows of one user that a state counts, and what a claim assumes for it."""

from __future__ import annotations

import math
from typing import Any

from panstream.algorithms.secret_shared.capped_counts import SharedCroppedSum
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.engine.planner.sender_bounds import sender_assumption
from panstream.errors import ConfigError, InvalidParameter
from panstream.privacy.claim import Unit
from panstream.privacy.person_loss import BoundedBy

_NEED_CONTRIBUTIONS: tuple[BoundedBy, ...] = ("sender", "file", "declared")


def bounded_by(query: QueryConfig, algorithm: Any) -> BoundedBy | None:
    """Return what bounds the rows of one user; None if nothing does.

    COUNT(DISTINCT user) reads one bit however many rows come; capped statistics on two machines cap them exactly.

    Raises:
        InvalidParameter: The query says otherwise.
    """
    shared_cap = isinstance(algorithm, SharedCroppedSum)
    derived: BoundedBy | None = None
    if query.parsed.aggregate.of_users:
        derived = "two_party" if shared_cap else "shape"
    stated = query.bounded_by
    if derived is not None:
        if stated not in (None, derived):
            raise InvalidParameter(
                f'bounded_by = "{stated}" does not fit {query.parsed.aggregate.value}: it is "{derived}", and need not '
                "be given"
            )
        return derived
    if stated is None:
        return None if query.contributions is None else "declared"
    if stated not in _NEED_CONTRIBUTIONS:
        raise InvalidParameter(
            f'bounded_by = "{stated}" is for questions about users, and "two_party" also for COUNT(*) and '
            'SUM(x) with contributions; give "sender" or "declared"'
        )
    if query.contributions is None:
        raise InvalidParameter(f'bounded_by = "{stated}" needs contributions, the most rows of one user')
    if stated == "file" and (query.window is not None or query.every is not None or query.names is not None):
        raise InvalidParameter(
            'bounded_by = "file" needs one answer about one file: no window, no every, and listed keys of GROUP BY'
        )
    return stated


def check_batches(query: QueryConfig, batches: int) -> None:
    """Raise ConfigError if rows that a file bounds come in several batches: the bound holds inside one."""
    if query.bounded_by == "file" and batches > 1:
        raise ConfigError(
            f'[[query]] {query.name}: bounded_by = "file" needs all rows in one batch: raise [store] batch_rows above '
            "their number, or declare the bound"
        )


def groups_touched(unit: Unit, query: QueryConfig, stream: StreamConfig, groups: int) -> int:
    """Return how many groups' losses one unit adds up: an event is in one group, as is what each user has one of.

    What a public table says about the user's id is the same in all of her rows, so these are in one group.

    Where a sender numbers its rows, the bound holds for all groups of a window together, and k of K rows lose no more
    than k/K of a group's loss, so that they lose as much as in one.                    [person-period.md, Lemma 4]
    """
    if unit == "event" or query.bounded_by == "sender":
        return 1
    constant = {*stream.user_columns, *_looked_up_by_user(query, stream)}
    varying = [key for key in query.groups if key not in constant]
    touched = math.prod(len(query.groups[key]) for key in varying)
    return min(query.groups_per_user or groups, touched, groups)


def _looked_up_by_user(query: QueryConfig, stream: StreamConfig) -> list[str]:
    """Return the keys of GROUP BY that are columns of public tables joined by the user's id."""
    columns = {f'"{column.name}"' for column in query.parsed.joined if column.key == stream.user}
    return [name for name, text in zip(query.parsed.group_by, query.parsed.keys, strict=False) if text in columns]


def assumptions(query: QueryConfig, stream: StreamConfig, bound: BoundedBy | None) -> list[str]:
    """Return what a claim assumes about the rows of one user."""
    span = "in all" if query.window is None else "per window"
    texts = []
    if bound == "declared":
        texts.append(f"one user has at most {_rows(query)} {span}, which is declared and not enforced across batches")
    if bound == "sender":
        texts.append(sender_assumption(query))
    constant = [key for key in query.groups if key in stream.user_columns]
    if constant:
        texts.append(f"each user has one {' and one '.join(constant)} only")
    return texts


def _rows(query: QueryConfig) -> str:
    return "1 row" if query.contributions == 1 else f"{query.contributions:,} rows"
