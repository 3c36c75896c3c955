"""Many runs at once, from the law of an estimate given how many users appeared.

Who is sampled does not depend on the stream, so of the D users that appeared a hypergeometric number is in the sample, and
given that number the stored values are independent: a sum of bits is the sum of two binomials, a sum of levels comes from
two multinomials, a sum of m Laplace(0, 1) values is the difference of two Gamma(m) ones, and truncated values
are drawn one by one. The tests compare these laws with the classes themselves, step by step.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from panstream.density.presence import BitLaw, Presence
from panstream.papers.density_laws import LaplaceLaw, LevelLaw, StoredLaw, TruncatedGaussianLaw, TruncatedLaplaceLaw
from panstream.papers.literal_density import LiteralDensity

__all__ = ["literal_estimates", "presence_estimates"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
_AT_ONCE = 1 << 21  # real values in memory


def literal_estimates(algorithm: LiteralDensity, present: Counts, rng: np.random.Generator) -> Floats:
    """Return one estimate of the literal form for each number of users in ``present``."""
    m, law = algorithm.sampled, algorithm.law
    seen = _sampled_present(present, algorithm.universe, m, rng)
    sums = _sums(law, seen, True, rng) + _sums(law, m - seen, False, rng)
    noise = rng.laplace(0.0, 1.0 / (algorithm.epsilon * m), present.size)
    return np.asarray((sums / m - law.mean(False)) / (law.mean(True) - law.mean(False)) + noise)


def presence_estimates(algorithm: Presence, present: Counts, rng: np.random.Generator) -> Floats:
    """Return one estimate of the shipped algorithm, before it is moved into [0, 1], for each number in ``present``."""
    law, m = algorithm.law, algorithm.cells
    seen = _sampled_present(present, algorithm.population.size, m, rng)
    return np.asarray((_noisy_counts(law, seen, m, rng) / m - law.p0) / (law.p1 - law.p0))


def _sampled_present(present: Counts, universe: int, m: int, rng: np.random.Generator) -> Counts:
    """Return how many of the ``present`` users are among ``m`` sampled ones."""
    if m == universe:
        return present
    return np.asarray(rng.hypergeometric(present, universe - present, m))


def _noisy_counts(law: BitLaw, seen: Counts, m: int, rng: np.random.Generator) -> Counts:
    """Return the released integers: ones among ``m`` bits of which ``seen`` are of present users, plus noise."""
    ones = rng.binomial(seen, law.p1) + rng.binomial(m - seen, law.p0)
    if math.isinf(law.noise.kappa):
        return ones
    stop = -math.expm1(-law.noise.kappa)  # the difference of two geometric numbers is discrete Laplace
    return np.asarray(ones + rng.geometric(stop, ones.size) - rng.geometric(stop, ones.size))


def _sums(law: StoredLaw, users: Counts, present: bool, rng: np.random.Generator) -> Floats:
    if isinstance(law, LevelLaw):
        chances, points = law.chances(present), law.points
        if points == (0.0, 1.0):
            return np.asarray(rng.binomial(users, chances[1]), np.float64)
        return np.asarray(rng.multinomial(users, np.array(chances) / math.fsum(chances)) @ np.array(points))
    if isinstance(law, LaplaceLaw):
        spread = rng.standard_gamma(users) - rng.standard_gamma(users)
        return np.asarray(users * law.mean(present) + spread)
    if isinstance(law, TruncatedLaplaceLaw | TruncatedGaussianLaw):
        return _drawn_one_by_one(law, users, present, rng)
    raise TypeError(f"no law of sums for {type(law).__name__}")


def _drawn_one_by_one(
    law: TruncatedLaplaceLaw | TruncatedGaussianLaw, users: Counts, present: bool, rng: np.random.Generator
) -> Floats:
    sums = np.zeros(users.size)
    start = 0
    while start < users.size:
        stop = start + 1
        total = int(users[start])
        while stop < users.size and total + users[stop] <= _AT_ONCE:
            total += int(users[stop])
            stop += 1
        runs = np.repeat(np.arange(stop - start), users[start:stop])
        values = law.sample(present, total, rng.random)
        sums[start:stop] = np.bincount(runs, values, minlength=stop - start)
        start = stop
    return sums
