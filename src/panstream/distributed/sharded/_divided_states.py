"""Which part of an algorithm's state is divided among the shards: all of it, or the cells that it counts."""

from __future__ import annotations

from typing import Any

from panstream.algorithms.continual_users.ones_counter import SetBitCounter
from panstream.core.shardable import is_shardable


def divided_part(algorithm: Any) -> Any:
    """Return the algorithm of what shards hold; None if nothing is divided.

    Where numbers of set bits are published at every tick, shards hold the bits. The noisy tree over these numbers is
    in one place, the coordinator, which reads the bits at a tick and at no other time.
    """
    if isinstance(algorithm, SetBitCounter):
        return algorithm.table
    return algorithm if is_shardable(algorithm) else None


def is_divided(algorithm: Any) -> bool:
    """Return whether shards hold the cells of an algorithm's state."""
    return divided_part(algorithm) is not None
