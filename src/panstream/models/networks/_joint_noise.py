"""Group one-way tables that share their Laplace noise, by public sizes only; shares and variances of the groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from panstream.primitives.noise.lattice_balls import LARGEST_DIMENSION

LARGEST_TABLE = 64  # cells; in larger tables noise that adds up to 0 is hardly smaller


def group_weight(sizes: Sequence[int]) -> float:
    """Return the weight of a group: shares in proportion to it minimise the absolute noise of all groups together.

    >>> round(group_weight([10]) ** 2, 6), round(group_weight([2, 2]) ** 2, 6)
    (9.0, 3.0)
    """
    free = sum(size - 1 for size in sizes)
    return math.sqrt((free + 1) * max(math.fsum(1 - 1 / size for size in sizes), 0.5))


def joint_groups(sizes: Sequence[int]) -> list[list[int]]:
    """Return groups of positions that minimise the total weight over the sorted sizes; large tables are not grouped.

    >>> joint_groups([2, 40, 2, 3])
    [[0, 2, 3], [1]]
    """
    order = sorted(
        (position for position, size in enumerate(sizes) if size <= LARGEST_TABLE), key=lambda position: sizes[position]
    )
    best = [0.0]
    cut = [0]
    for end in range(1, len(order) + 1):
        cheapest = (math.inf, 0)
        group: list[int] = []
        for start in range(end - 1, -1, -1):
            group.append(sizes[order[start]])
            if len(group) > 1 and sum(group) - len(group) > LARGEST_DIMENSION:
                break
            cheapest = min(cheapest, (best[start] + group_weight(group), start))
        best.append(cheapest[0])
        cut.append(cheapest[1])
    groups = [[position] for position, size in enumerate(sizes) if size > LARGEST_TABLE]
    end = len(order)
    while end:
        groups.append(sorted(order[cut[end] : end]))
        end = cut[end]
    return sorted(groups)


def joint_spread(sizes: Sequence[int]) -> list[float]:
    """Return each table's variance of a cell over that of independent noise of the same rate, for weak rates.

    Half of a table's L1 norm is uniform in a ball of c - 1 dimensions whose radius is Gamma distributed with shape
    D + 1, where D is the number of free cells of the group.
    """
    free = sum(size - 1 for size in sizes)
    return [(free + 1) * (free + 2) * (size - 1) * (2 * size - 1) / (2 * size**2 * (size + 1) ** 2) for size in sizes]
