"""Plan SKETCH: the table of a published sketch."""

from __future__ import annotations

import math
from typing import Any

from panstream.algorithms.distinct.sketch_bitmap import SketchBitmap
from panstream.engine.config.config import QueryConfig, StreamConfig
from panstream.errors import InvalidParameter

LEVELS = 20
_MIN_BUCKETS = 64
_MAX_BUCKETS = 1 << 22


def choose_sketch(query: QueryConfig, stream: StreamConfig) -> tuple[Any, str]:
    """Return the algorithm of SKETCH and the reason for its size.

    Raises:
        InvalidParameter: The stream cannot be asked this.
    """
    if stream.machines:
        raise InvalidParameter(
            "SKETCH is not computed on two machines: a watcher of one would read more than is public"
        )
    if stream.weight is not None:
        raise InvalidParameter("SKETCH does not work with signed weights: a cell cannot forget a user")
    if query.window is None or query.every is not None or query.announced or query.universe is not None:
        raise InvalidParameter(
            "SKETCH needs window, is published when it closes, and takes no every, announced or universe"
        )
    if query.expected is None:
        raise InvalidParameter("SKETCH needs expected, about how many users the largest union has that will be asked")
    buckets = 1 << max(round(math.log2(query.expected)), 0)
    algorithm = SketchBitmap(
        epsilon=query.epsilon,
        buckets=min(max(buckets, _MIN_BUCKETS), _MAX_BUCKETS),
        levels=LEVELS,
        expected=query.expected,
        key=query.key,
        hash=query.hash,
    )
    why = (
        f"every window is published as a sketch of {algorithm.levels} x {algorithm.buckets:,} noisy cells, each at "
        f"epsilon {query.epsilon:g}; unions and overlaps are then computed by anybody, at no further loss"
    )
    return algorithm, why
