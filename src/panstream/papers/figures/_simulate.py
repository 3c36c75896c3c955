"""The papers' streams, and many runs in one call from the distribution of an estimate given the number of users.

Streams draw users uniformly, or from Zipf's distribution with exponent 1. The sample does not depend on the stream, so
of the D users that appeared a hypergeometric number is in the sample, and given that number the stored values are
independent: a sum of bits is the sum of two binomials, a sum of levels comes from two multinomials, a sum of m
Laplace(0, 1) values is the difference of two Gamma(m) ones, and truncated values are drawn one by one. The tests
compare these distributions with the classes themselves.

PPDS runs on arrays instead of event by event, with the same outcome for the same coins: a user whose level is at or
above the current one is stored if and only if the user's last coin was 1, whatever other users do. So the size of the
set at level L is a running sum over the events of users with level at least L, and the level rises where that sum first
reaches the capacity.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.presence import Presence
from panstream.algorithms.randomized_bits import CoinPair
from panstream.papers.as_printed.density_base import LiteralDensity
from panstream.papers.as_printed.density_distributions import (
    LaplaceDistribution,
    LevelDistribution,
    RealDistribution,
    StoredDistribution,
)
from panstream.papers.as_printed.density_ppds import PublishedPPDS, levels_of
from panstream.papers.figures.plan import FigureOptions

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
_MAX_VALUES = 1 << 21  # real values in memory
_BLOCK = 1 << 13

StreamKind = Literal["uniform", "zipf"]


def literal_estimates(algorithm: LiteralDensity, present: Counts, rng: np.random.Generator) -> Floats:
    """Return one estimate of the literal form for each number of users in ``present``."""
    m = algorithm.sampled
    law = algorithm.law
    seen = _sampled_present(present, algorithm.universe, m, rng)
    sums = _sums(law, seen, True, rng) + _sums(law, m - seen, False, rng)
    noise = rng.laplace(0.0, 1.0 / (algorithm.epsilon * m), present.size)
    return np.asarray((sums / m - law.mean(False)) / (law.mean(True) - law.mean(False)) + noise)


def presence_estimates(algorithm: Presence, present: Counts, rng: np.random.Generator) -> Floats:
    """Return one unclipped estimate of the library's algorithm for each number of users in ``present``."""
    law = algorithm.law
    m = algorithm.cells
    seen = _sampled_present(present, algorithm.population.size, m, rng)
    return np.asarray((_noisy_counts(law, seen, m, rng) / m - law.p0) / (law.p1 - law.p0))


def _sampled_present(present: Counts, universe: int, m: int, rng: np.random.Generator) -> Counts:
    """Return how many of the ``present`` users are among ``m`` sampled ones; a hypergeometric draw."""
    if m == universe:
        return present
    return np.asarray(rng.hypergeometric(present, universe - present, m))


def _noisy_counts(law: CoinPair, seen: Counts, m: int, rng: np.random.Generator) -> Counts:
    """Return the released integers: ones among ``m`` bits of which ``seen`` are of present users, plus noise."""
    ones = rng.binomial(seen, law.p1) + rng.binomial(m - seen, law.p0)
    if math.isinf(law.noise.kappa):
        return ones
    stop = -math.expm1(-law.noise.kappa)  # the difference of two geometric numbers is discrete Laplace
    return np.asarray(ones + rng.geometric(stop, ones.size) - rng.geometric(stop, ones.size))


def _sums(law: StoredDistribution, users: Counts, present: bool, rng: np.random.Generator) -> Floats:
    if isinstance(law, LevelDistribution):
        chances = law.chances(present)
        points = law.points
        if points == (0.0, 1.0):
            return np.asarray(rng.binomial(users, chances[1]), np.float64)
        return np.asarray(rng.multinomial(users, np.array(chances) / math.fsum(chances)) @ np.array(points))
    if isinstance(law, LaplaceDistribution):
        spread = rng.standard_gamma(users) - rng.standard_gamma(users)
        return np.asarray(users * law.mean(present) + spread)
    return _drawn_one_by_one(law, users, present, rng)


def _drawn_one_by_one(law: RealDistribution, users: Counts, present: bool, rng: np.random.Generator) -> Floats:
    sums = np.zeros(users.size)
    start = 0
    while start < users.size:
        stop = start + 1
        total = int(users[start])
        while stop < users.size and total + users[stop] <= _MAX_VALUES:
            total += int(users[stop])
            stop += 1
        runs = np.repeat(np.arange(stop - start), users[start:stop])
        values = law.sample(present, total, rng.random)
        sums[start:stop] = np.bincount(runs, values, minlength=stop - start)
        start = stop
    return sums


def ppds_estimate(algorithm: PublishedPPDS, stream: Counts, previous: Counts, rng: np.random.Generator) -> float:
    """Return PPDS's estimate for one stream; ``previous`` is ``previous_events`` of it."""
    universe = algorithm.universe
    bits = algorithm.bits
    gap = algorithm.gap
    factor = 2 * int(rng.integers(0, 1 << max(bits - 1, 0))) + 1
    shift = int(rng.integers(0, 1 << bits))
    heights = levels_of(np.arange(universe), bits, factor, shift)
    coins = np.empty(universe + stream.size, np.bool_)
    coins[:universe] = rng.random(universe) < (1 - gap) / 2
    coins[universe:] = rng.random(stream.size) < (1 + gap) / 2
    level, size = _run_ppds(np.concatenate([heights, heights[stream]]), coins, previous, algorithm.sample)
    scale = math.ldexp(1.0, level) / universe
    noise = rng.laplace(0.0, scale / algorithm.epsilon)
    return float((scale * size - 0.5 + gap / 2) / gap + noise)


def previous_events(stream: Counts, universe: int) -> Counts:
    """Return the previous event of the same user for every arrival; event u < universe is the scan of user u."""
    if not stream.size:
        return np.empty(0, np.int64)
    bits = int(stream.size).bit_length()
    keys = np.sort((stream << bits) | np.arange(stream.size))  # by user, then by time
    users = keys >> bits
    times = keys & ((1 << bits) - 1)
    previous = np.empty(stream.size, np.int64)
    previous[times[0]] = users[0]
    previous[times[1:]] = np.where(users[1:] == users[:-1], times[:-1] + universe, users[1:])
    return previous


def _run_ppds(heights: Counts, coins: NDArray[np.bool_], previous: Counts, capacity: int) -> tuple[int, int]:
    """Return the final level and the number of stored ids for the events' user levels and coins."""
    scanned = heights.size - previous.size
    previous_coins = np.concatenate([np.zeros(scanned, np.bool_), coins[previous]])
    change = coins.astype(np.int8) - previous_coins.astype(np.int8)
    stored = np.zeros(int(heights.max(initial=0)) + 1)  # users by level whose last coin was 1
    level = 0
    start = 0
    while start < heights.size:
        block = slice(start, start + _BLOCK)
        counts = heights[block] >= level
        sizes = stored[level:].sum() + np.cumsum(change[block] * counts, dtype=np.int64)
        full = (sizes >= capacity) & counts & ~previous_coins[block]
        first = int(full.argmax())
        rises = bool(full[first])
        stop = start + first + 1 if rises else min(start + _BLOCK, heights.size)
        stored += np.bincount(heights[start:stop], change[start:stop], minlength=stored.size)
        level = level + rises
        start = stop
    return level, int(stored[level:].sum())


def draw_stream(kind: StreamKind, options: FigureOptions, run: int) -> Counts:
    """Return the stream of repetition ``run``, which is the same for all estimators and privacy budgets."""
    rng = options.generator("stream", kind, options.universe, options.length, run)
    if kind == "uniform":
        return rng.integers(0, options.universe, options.length)
    keep, other = _zipf_alias(options.universe)
    spot = rng.random(options.length) * options.universe
    column = np.minimum(spot.astype(np.int64), options.universe - 1)
    return np.where(spot - column < keep[column], column, other[column])


@lru_cache(maxsize=8)
def distinct_counts(kind: StreamKind, options: FigureOptions, runs: int) -> Counts:
    """Return how many users appear in each of the streams 0..runs-1."""
    counts = np.empty(runs, np.int64)
    for run in range(runs):
        seen = np.zeros(options.universe, np.bool_)
        seen[draw_stream(kind, options, run)] = True
        counts[run] = np.count_nonzero(seen)
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=4)
def _zipf_alias(universe: int) -> tuple[NDArray[np.float64], Counts]:
    """Return Walker's alias table of P(user u) ∝ 1/(u+1): column u is u with chance ``keep[u]``, else ``other[u]``.

    Users are sorted by weight, so columns above 1 come first and give their excess to the last ones.
    """
    weights = 1.0 / np.arange(1, universe + 1)
    keep = weights * (universe / weights.sum())
    other = np.arange(universe)
    donor = int(np.count_nonzero(keep > 1.0)) - 1
    for column in range(universe - 1, -1, -1):
        if donor < 0 or column <= donor:
            break
        other[column] = donor
        keep[donor] -= 1.0 - keep[column]
        if keep[donor] <= 1.0:
            donor -= 1
    return keep, other
