"""What the tests of the bitmaps share: ids that fall into a given cell, and the exact law of the levels' counts."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct.bitmap_base import BitmapCounter
from panstream.primitives.inputs import items
from panstream.primitives.memory.scratch import Scratch
from panstream.privacy.bitmap_loss import level_rates
from panstream.testing.enumeration import Enumerator, enumerate_streams


def cells_of(algorithm: BitmapCounter, ids: Any) -> list[int]:
    """Return the cell of every id."""
    with Scratch() as scratch:
        return [int(cell) for chunk in algorithm.table.rows(items(ids), scratch) for cell in chunk]


def ids_in(algorithm: BitmapCounter, cell: int, count: int = 1) -> list[int]:
    """Return the first ``count`` integers that fall into ``cell``."""
    found = np.flatnonzero(np.array(cells_of(algorithm, range(4096))) == cell)[:count]
    assert found.size == count, f"no {count} ids below 4096 fall into cell {cell}"
    return [int(number) for number in found]


def joint(algorithm: BitmapCounter, slots: list[Any], actions: list[Any], looks: Any = None, reach: int = 1) -> float:
    """Return the enumerated joint loss of one user's actions in the empty slots."""
    enumerator = Enumerator(algorithm, window=(-reach, algorithm.buckets + reach))
    return enumerator.joint_loss(enumerate_streams(slots, actions), looks=looks).epsilon


def occupied(rng: np.random.Generator, users: int, buckets: int, levels: int) -> NDArray[np.int64]:
    """Draw how many cells of every level ``users`` users come to, for any number of users.

    Exact but for levels with more than 64 users a cell, of which one has an empty cell with probability below 1e-20.
    """
    counts = np.full(levels, buckets)
    for level, here in enumerate(rng.multinomial(users, level_rates(buckets, levels) * buckets)):
        if here > 64 * buckets:
            continue
        if here < 16 * buckets:
            counts[level] = np.unique(rng.integers(0, buckets, here)).size
        else:
            counts[level] = np.count_nonzero(rng.multinomial(here, np.full(buckets, 1 / buckets)))
    return counts


def noisy_counts(rng: np.random.Generator, filled: NDArray[np.int64], algorithm: BitmapCounter) -> NDArray[np.int64]:
    """Draw the released counts of ones for ``filled`` occupied cells a level."""
    p1 = float(algorithm.law.present)
    kappa = algorithm.law.noise.kappa
    ones = rng.binomial(filled, p1) + rng.binomial(algorithm.buckets - filled, 1 - p1)
    if math.isinf(kappa):
        return ones
    return ones + rng.geometric(-math.expm1(-kappa), ones.shape) - rng.geometric(-math.expm1(-kappa), ones.shape)
