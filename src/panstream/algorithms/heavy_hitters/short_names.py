"""How many events short names, whose symbols are on several levels each, need to be listed."""

from __future__ import annotations

import math

from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.algorithms.heavy_hitters.released_tables import listing_threshold


def threshold_of(algorithm: FrequentItems, size: int) -> float:
    """Return how many events a name of ``size`` bytes needs to be listed with probability 95%, if tables suffice."""
    from panstream.primitives.kernels.algorithms.prefix_tables import repeats_of

    level, row = (math.sqrt(2 * law.variance) for law in algorithm.laws)
    return listing_threshold(level, row, algorithm.rows, repeats_of(size, algorithm.max_item_bytes, algorithm.repeats))


def short_names_text(algorithm: FrequentItems) -> str | None:
    """Return how many events short names need to be listed; None if they need as many as long ones."""
    sizes = [algorithm.max_item_bytes // repeats for repeats in (2, 4) if repeats <= algorithm.repeats]
    lower = {size: threshold_of(algorithm, size) for size in sizes if size > 0}
    if not lower or min(lower.values()) >= algorithm.listing_threshold:
        return None
    return ", ".join(f"{events:,.0f} events for up to {size} bytes" for size, events in lower.items())
