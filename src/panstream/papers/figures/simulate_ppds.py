"""PPDS by whole arrays instead of event by event, with the very same outcome for the same coins.

A user whose level stays at or above the current one is stored if and only if her last coin was 1, whatever happened to
others. So the size of the set at level L is a running sum over the events of users with level at least L, and the level rises
where that sum first reaches the capacity.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from panstream.papers.density_ppds import PublishedPPDS, levels_of

__all__ = ["ppds_estimate", "previous_events", "settle"]

_BLOCK = 1 << 13


def ppds_estimate(
    algorithm: PublishedPPDS, stream: NDArray[np.int64], previous: NDArray[np.int64], rng: np.random.Generator
) -> float:
    """Return PPDS's estimate for one stream; ``previous`` is ``previous_events`` of it."""
    universe, bits, gap = algorithm.universe, algorithm.bits, algorithm.gap
    factor = 2 * int(rng.integers(0, 1 << max(bits - 1, 0))) + 1
    shift = int(rng.integers(0, 1 << bits))
    heights = levels_of(np.arange(universe), bits, factor, shift)
    coins = np.empty(universe + stream.size, np.bool_)
    coins[:universe] = rng.random(universe) < (1 - gap) / 2
    coins[universe:] = rng.random(stream.size) < (1 + gap) / 2
    level, size = settle(np.concatenate([heights, heights[stream]]), coins, previous, algorithm.sample)
    scale = math.ldexp(1.0, level) / universe
    noise = rng.laplace(0.0, scale / algorithm.epsilon)
    return float((scale * size - 0.5 + gap / 2) / gap + noise)


def previous_events(stream: NDArray[np.int64], universe: int) -> NDArray[np.int64]:
    """Return for every arrival the event before it of the same user; event u < universe is the scan of user u."""
    if not stream.size:
        return np.empty(0, np.int64)
    bits = int(stream.size).bit_length()
    keys = np.sort((stream << bits) | np.arange(stream.size))  # by user, then by time
    users, times = keys >> bits, keys & ((1 << bits) - 1)
    before = np.empty(stream.size, np.int64)
    before[times[0]] = users[0]
    before[times[1:]] = np.where(users[1:] == users[:-1], times[:-1] + universe, users[1:])
    return before


def settle(
    heights: NDArray[np.int64], coins: NDArray[np.bool_], previous: NDArray[np.int64], capacity: int
) -> tuple[int, int]:
    """Return the final level and the number of stored ids for the events' user levels and coins."""
    scanned = heights.size - previous.size
    before = np.concatenate([np.zeros(scanned, np.bool_), coins[previous]])
    change = coins.astype(np.int8) - before.astype(np.int8)
    stored = np.zeros(int(heights.max(initial=0)) + 1)  # users by level whose last coin was 1
    level, start = 0, 0
    while start < heights.size:
        block = slice(start, start + _BLOCK)
        counts = heights[block] >= level
        sizes = stored[level:].sum() + np.cumsum(change[block] * counts, dtype=np.int64)
        full = (sizes >= capacity) & counts & ~before[block]
        first = int(full.argmax())
        rises = bool(full[first])
        stop = start + first + 1 if rises else min(start + _BLOCK, heights.size)
        stored += np.bincount(heights[start:stop], change[start:stop], minlength=stored.size)
        level, start = level + rises, stop
    return level, int(stored[level:].sum())
