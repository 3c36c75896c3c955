"""Errors beside the papers' forms, published estimators and sketches that keep no secret; ratios of mean squared
errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import datasketches
import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import density
from benchmarks.peers.rows import Row
from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.continual.sums import KaryTree
from panstream.algorithms.density import FixedLevel, OptBern
from panstream.algorithms.distinct import Bitmap
from panstream.core.monitor import Monitor
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.figures.beyond import level_for_ids
from panstream.primitives.noise import SeededSource
from panstream.privacy.bitmap_loss import level_rates

GROUP = "accuracy"
RUNS = 300
BUCKETS = 4096
LEVELS = 24


def rows() -> list[Row]:
    """Return every comparison of accuracy."""
    print("accuracy: root mean squared errors, ours and theirs; ratio of mean squared errors with its 95% interval")
    found = []
    for row in (*densities(), *bitmaps(), *counters()):
        print(row, flush=True)
        found.append(row)
    return found


def row(
    name: str, peer: str, ours: NDArray[np.float64], theirs: NDArray[np.float64], target: float | None = None
) -> Row:
    """Compare squared errors; the interval is that of the logarithm of the ratio of their means."""
    ratio = float(theirs.mean() / ours.mean())
    spread = math.sqrt(sum(errors.var(ddof=1) / errors.mean() ** 2 / errors.size for errors in (theirs, ours)))
    low = ratio * math.exp(-1.96 * spread)
    high = ratio * math.exp(1.96 * spread)
    rms = [f"{math.sqrt(errors.mean()):.3g}" for errors in (ours, theirs)]
    return Row(
        group=GROUP, name=name, peer=peer, ours=rms[0], theirs=rms[1], ratio=ratio, low=low, high=high, target=target
    )


def densities() -> Iterator[Row]:
    """At equal total epsilon and at equal bytes, as the papers state their estimators (with their true losses)."""
    users = density.USERS
    ours = density.squared_errors(OptBern(universe=users, epsilon=1.0), 2000, 1)
    equal = density.squared_errors(density.EqualSplit(universe=users, epsilon=1.0), 2000, 2)
    yield row("density, equal epsilon", "equal split (papers, corrected)", ours, equal, 3.5)
    for memory in (users // 8, users // 80):
        bits = min(8 * memory, users)
        mine = density.squared_errors(OptBern(universe=users, epsilon=1.0, sample=bits), 2000, 3)
        level = level_for_ids(memory, users, 1.0)
        ids = density.squared_errors(FixedLevel(universe=users, epsilon=1.0, level=level), 2000, 4)
        yield row(f"density, {memory:,} bytes", "ids of a sampled level (PPDS)", mine, ids, 8.0)


def ours_bitmap(users: int, epsilon: float) -> NDArray[np.float64]:
    """Return squared relative errors of the shipped bitmap under fresh hash keys."""
    rng = SeededSource(users)
    errors = []
    for key in range(RUNS):
        monitor = Monitor(Bitmap(epsilon=epsilon, key=key), rng=rng)
        monitor.update(np.arange(users))
        errors.append((monitor.release().unbiased / users - 1) ** 2)
    return np.array(errors)


def sfm(users: int, epsilon: float) -> NDArray[np.float64]:
    """Return the same for an SFM sketch: bits flipped when it is published, and the published composite likelihood."""
    rng = np.random.default_rng(users)
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    rates = level_rates(BUCKETS, LEVELS)
    errors = []
    grid = users * np.exp(np.linspace(-1.5, 1.5, 3001))
    chance = keep - (2 * keep - 1) * np.exp(-np.outer(grid, rates))
    logs = np.log(chance), np.log1p(-chance)
    for _ in range(RUNS):
        counts = rng.multinomial(users, rates * BUCKETS)
        filled = np.array([np.unique(rng.integers(0, BUCKETS, count)).size for count in counts])
        ones = rng.binomial(filled, keep) + rng.binomial(BUCKETS - filled, 1 - keep)
        best = grid[np.argmax(logs[0] @ ones + logs[1] @ (BUCKETS - ones))]
        errors.append((best / users - 1) ** 2)
    return np.array(errors)


def hll(users: int) -> NDArray[np.float64]:
    """Return the same for a sketch of the same size that keeps no secret."""
    errors = []
    for run in range(60):
        sketch = datasketches.hll_sketch(14, datasketches.tgt_hll_type.HLL_6)
        for item in range(run * users, (run + 1) * users):
            sketch.update(item)
        errors.append((sketch.get_estimate() / users - 1) ** 2)
    return np.array(errors)


def bitmaps() -> Iterator[Row]:
    """Relative errors of distinct counts at 12 KiB."""
    for users, epsilon in ((100_000, 1.0), (100_000, 2.0)):
        ours = ours_bitmap(users, epsilon)
        name = f"distinct count, {users:,}, epsilon {epsilon:g}"
        yield row(name, "SFM sketch (state unprotected)", ours, sfm(users, epsilon))
        if epsilon == 2.0:
            yield row(name, "HLL, 12 KiB (no privacy)", ours, hll(users))


def counters() -> Iterator[Row]:
    """Exact mean squared errors times epsilon², mean over the horizon."""
    for power in (10, 16, 20):
        tree = KaryTree(epsilon=1.0, horizon=1 << power)
        shape = tree.engine.shape(0)
        ours = 2 * shape.levels**2 * shape.noise(1 << power).mean
        event = EventCounter(epsilon=1.0, horizon=1 << power)
        least = LeastSquaresTree(epsilon=1.0, horizon=1 << power)
        peers = {
            "published event-level counter, sound": (event.answer_parts(1)[0][0] * 2 * event.memberships**2, 5.0),
            "least-squares tree (not pan-private)": (2 * len(least.radices) ** 2 * least.noise(1 << 14)[0], None),
        }
        for peer, (theirs, target) in peers.items():
            rms = [f"{math.sqrt(value):.4g}" for value in (ours, theirs)]
            ratio = theirs / ours
            yield Row(group=GROUP, name=f"continual count, 2^{power} ticks", peer=peer, ours=rms[0], theirs=rms[1],
                      ratio=ratio, low=ratio, high=ratio, target=target)  # fmt: skip
