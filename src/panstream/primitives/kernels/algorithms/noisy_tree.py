"""Loops of the tree counters: close nodes slot by slot, quantise values, select the first rows of each user.

Compiled because every slot depends on the one before, and users are compared byte by byte in the caller's memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import byte_at


# The schedule of `advance` without values, which is public: the caller draws as much noise as it needs.
@njit(cache=True, nogil=True)
def count_closings(
    digits: NDArray[np.int64], weights: NDArray[np.int64], capacity: int, rooted: bool, slots: int
) -> tuple[int, int, bool]:
    """Return (slots done, nodes above the leaves that close, whether the root closed), stopping after the root.

    ``digits`` has one entry per level and is not changed; ``weights`` has one per level below the root.
    """
    now = digits.copy()
    last = now.size - 1
    weight_used = 0
    for level in range(weights.size):
        weight_used += weights[level] * now[level]
    closed = 0
    for slot in range(slots):
        level = 0
        while level < last and weight_used + weights[level] > capacity:
            weight_used -= weights[level] * now[level]
            now[level] = 0
            level += 1
        closed += level
        if rooted and level == last:
            return slot + 1, closed, True
        weight_used += weights[level]
        now[level] += 1
    return slots, closed, False


@njit(cache=True, nogil=True)
def closed_levels(weights: NDArray[np.int64], capacity: int, out: NDArray[np.int64]) -> None:
    """Write, for every slot of a tree without root, how many levels close at its end."""
    digits = np.zeros(weights.size, np.int64)
    weight_used = 0
    for slot in range(out.size):
        level = 0
        while level < weights.size - 1 and weight_used + weights[level] > capacity:
            weight_used -= weights[level] * digits[level]
            digits[level] = 0
            level += 1
        digits[level] += 1
        weight_used += weights[level]
        out[slot] = level + 1


@njit(cache=True, nogil=True)
def advance(
    accumulators: NDArray[np.int64],
    draws: NDArray[np.int64],
    digits: NDArray[np.int64],
    sums: NDArray[np.float64],
    past: NDArray[np.float64],
    weights: NDArray[np.int64],
    capacity: int,
    rooted: bool,
    values: NDArray[np.int64],
    noise: NDArray[np.int64],
    leaf_starts: bool,
    variance_of_draw: float,
    estimates: NDArray[np.float64],
    variances: NDArray[np.float64],
    released: NDArray[np.int64],
) -> int:
    """Process one row of ``values`` per slot: close the nodes that are complete and write the answers.

    ``sums[level]`` holds the estimates of the closed nodes whose parent is open, and their variance in draws; ``past``
    the same for closed epochs, with the variance in squared units. ``released`` receives the noisy sums of the last
    slot, level by level. Returns how many levels closed in the last slot. Noise is consumed in order: the releases of a
    slot from the leaf up, then the starting noise of the nodes it reopens. A leaf starts with noise only if
    ``leaf_starts`` and only after the last slot, since the other leaves are filled and closed within this call.
    """
    levels, width = accumulators.shape
    last = levels - 1
    weight_used = 0
    for level in range(weights.size):
        weight_used += weights[level] * digits[level]
    above = np.empty(width + 1)  # everything but the leaves
    _add_up(sums, past, variance_of_draw, above)
    used = 0
    closed = 0
    for slot in range(values.shape[0]):
        for level in range(levels):
            for part in range(width):
                accumulators[level, part] += values[slot, part]
        level = 0
        while True:
            level_draws = float(draws[level] + 1)
            below_draws = 0.0
            trust = 1.0  # weight of the node's own sum against that of its children
            if level > 0:
                below_draws = sums[level - 1, width]
                trust = below_draws / (below_draws + level_draws)
                sums[level - 1, width] = 0.0
            sums[level, width] += level_draws * below_draws / (below_draws + level_draws) if level > 0 else level_draws
            for part in range(width):
                node_sum = accumulators[level, part] + noise[used]
                used += 1
                released[level, part] = node_sum
                if level > 0:
                    below = sums[level - 1, part]
                    sums[level, part] += below + trust * (node_sum - below)
                    sums[level - 1, part] = 0.0
                else:
                    sums[0, part] += node_sum
            if level == last or weight_used + weights[level] <= capacity:
                break
            weight_used -= weights[level] * digits[level]
            digits[level] = 0
            level += 1
        closed = level + 1
        digits[level] += 1
        if level < weights.size:
            weight_used += weights[level]
        if level > 0:
            _add_up(sums, past, variance_of_draw, above)
        for part in range(width):
            estimates[slot, part] = above[part] + sums[0, part]
        variances[slot] = above[width] + variance_of_draw * sums[0, width]
        if rooted and level == last:
            break  # a new epoch starts all accumulators
        for opened in range(closed):
            starts = opened > 0 or (leaf_starts and slot == values.shape[0] - 1)
            draws[opened] = 1 if starts else 0
            for part in range(width):
                accumulators[opened, part] = noise[used] if starts else 0
                used += starts
    return closed


@njit(cache=True, nogil=True)
def _add_up(
    sums: NDArray[np.float64], past: NDArray[np.float64], variance_of_draw: float, above: NDArray[np.float64]
) -> None:
    levels, columns = sums.shape
    for column in range(columns):
        total = 0.0
        for level in range(levels - 1, 0, -1):
            total += sums[level, column]
        above[column] = past[column] + (variance_of_draw * total if column == columns - 1 else total)


# The comparison is false for NaN, which therefore counts as outside.
@njit(cache=True, nogil=True)
def first_outside(values: NDArray[np.float64], lower: float, upper: float) -> int:
    """Return the first row that is not between ``lower`` and ``upper``, or -1."""
    for row in range(values.size):
        if not lower <= values[row] <= upper:
            return row
    return -1


# Clamped before the conversion to an integer, which would overflow.
@njit(cache=True, nogil=True)
def quantize(
    values: NDArray[np.float64], origin: float, step: float, low: int, high: int, out: NDArray[np.int64]
) -> None:
    """Write the nearest whole number of steps from ``origin``, clamped to low..high."""
    for row in range(values.size):
        steps = np.rint((values[row] - origin) / step)
        out[row] = low if steps < low else high if steps > high else np.int64(steps)


@njit(cache=True, nogil=True)
def count_cells(cells: NDArray[np.int64], branching: int, depth: int, totals: NDArray[np.int64]) -> None:
    """Add 1 to the node of every depth that holds each row's finest cell; ``totals`` has the coarsest nodes first."""
    first = totals.size
    nodes = branching**depth
    divisor = 1
    for _ in range(depth):
        first -= nodes
        for row in range(cells.size):
            totals[first + cells[row] // divisor] += 1
        nodes //= branching
        divisor *= branching


@njit(cache=True, nogil=True)
def row_addresses(
    offsets: NDArray[Any], address: np.uint64, addresses: NDArray[np.uint64], lengths: NDArray[np.int64]
) -> None:
    """Write address and length in bytes of every row of the data at ``address``."""
    for row in range(addresses.size):
        addresses[row] = address + np.uint64(offsets[row])
        lengths[row] = offsets[row + 1] - offsets[row]


@njit(cache=True, nogil=True)
def _same(one: np.uint64, other: np.uint64, length: Any) -> bool:
    same = np.uint64(0)
    while same < np.uint64(length) and byte_at(one + same) == byte_at(other + same):
        same += np.uint64(1)
    return bool(same == np.uint64(length))


@njit(cache=True, nogil=True)
def keep_first_rows(
    hashes: NDArray[np.uint64],
    addresses: NDArray[np.uint64],
    lengths: NDArray[np.int64],
    max_rows: int,
    table: NDArray[np.int64],
    counts: NDArray[np.int64],
    keep: NDArray[np.uint8],
) -> None:
    """Set keep to 1 for the first ``max_rows`` rows of every id and to 0 for the others.

    The id of a row is ``lengths[row]`` bytes at the address ``addresses[row]``. ``table`` has a power of two of
    entries, more than rows, each the first row of an id; ``counts`` must be zero at first and is positive for used
    entries. Ids are equal if their bytes are; hashes only choose where probing starts. Were equal hashes enough, one
    user could push out another's rows, and the bound on contributions would be wrong.
    """
    mask = np.uint64(table.size - 1)
    for row in range(hashes.size):
        slot = hashes[row] & mask
        while counts[slot] != 0:
            other = table[slot]
            alike = hashes[row] == hashes[other] and lengths[row] == lengths[other]
            if alike and _same(addresses[row], addresses[other], lengths[row]):
                break
            slot = (slot + np.uint64(1)) & mask
        if counts[slot] == 0:
            table[slot] = row
        counts[slot] += 1
        keep[row] = counts[slot] <= max_rows
