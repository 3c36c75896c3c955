"""The map from ids to cells: samples, buckets, levels, families; and how full an open universe gets."""

import math
from typing import Any

import numpy as np
import pytest

from panstream.hashing import KWise, cells_of, hash_integers, permute
from panstream.scratch import Scratch
from panstream.turnstile.legendre import LegendreCounter
from panstream.turnstile.occupancy import Occupancy
from panstream.turnstile.placement import CHUNK, Placement
from panstream.turnstile.residues import MERSENNE
from statistical import assert_fits, assert_mean


def placement(**given: Any) -> Placement:
    nothing: dict[str, Any] = dict.fromkeys(("universe", "sample", "buckets", "independence"))
    return Placement(**{**nothing, "levels": 1, "key": 5, **given})


def located(place: Placement, ids: Any, multipliers: int = 0) -> tuple[list[int], list[int]]:
    cells, factors = [], []
    with Scratch() as scratch:
        for rows, piece, multiples in place.pieces(place.read(ids)[0], scratch, multipliers=multipliers):
            assert rows.stop - rows.start == piece.size
            cells += piece.tolist()
            factors += [] if multiples is None else multiples.tolist()
    return cells, factors


def test_a_sample_is_the_start_of_the_public_permutation() -> None:
    ids = np.random.default_rng(0).integers(0, 10_000, 2 * CHUNK + 17)
    expected = np.empty(ids.size, np.int64)
    permute(ids, 10_000, 5, expected)
    assert located(placement(universe=10_000, sample=300), ids)[0] == expected.tolist()
    assert located(placement(universe=10_000), ids)[0] == ids.tolist()


def test_buckets_are_the_cells_of_the_hash() -> None:
    ids = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, CHUNK + 3)
    hashes, expected = np.empty(ids.size, np.uint64), np.empty(ids.size, np.int64)
    hash_integers(ids, 5, hashes)
    cells_of(hashes, 1000, 7, expected)
    assert located(placement(buckets=1000, levels=7), ids)[0] == expected.tolist()


def test_family_places_by_its_polynomial() -> None:
    """Bucket and level come from different bits of one value of the k-wise family."""
    ids = np.arange(500)
    values = np.empty(500, np.uint64)
    KWise.from_key(3, 5, "cells").values(ids, values)
    expected = []
    for value in values.tolist():
        low = value & ((1 << 29) - 1)
        level = min((low & -low).bit_length() - 1 if low else 32, 6)
        expected.append(level * 1000 + ((value >> 29) * 1000 >> 32))
    assert located(placement(buckets=1000, levels=7, independence=3), ids)[0] == expected


@pytest.mark.parametrize("independence", [None, 4])
def test_levels_and_buckets_have_their_chances(independence: int | None) -> None:
    cells, _ = located(placement(buckets=16, levels=4, independence=independence), np.arange(64_000))
    shares = np.repeat([1 / 2, 1 / 4, 1 / 8, 1 / 8], 16) / 16
    assert_fits(np.bincount(cells, minlength=64), 64_000 * shares, "cells")


def test_multipliers_are_in_range_and_spread() -> None:
    _, factors = located(placement(buckets=8), np.arange(20_000), multipliers=11)
    assert_fits(np.bincount(factors, minlength=11)[1:], np.full(10, 2000.0), "multipliers")
    assert 0 not in factors
    _, wide = located(placement(buckets=8), np.arange(1000), multipliers=MERSENNE)
    assert len(set(wide)) == 1000 and max(wide) < MERSENNE


@pytest.mark.parametrize(("levels", "users"), [(1, 0), (1, 300), (8, 30), (8, 3_000), (8, 60_000)])
def test_maximum_likelihood_and_intervals(levels: int, users: int) -> None:
    """Counts drawn from the exact law of independent cells: bias, spread and coverage of the estimate."""
    law = LegendreCounter(buckets=1024, levels=levels, epsilon=2.0).law
    occupancy = Occupancy(
        buckets=1024, levels=levels, at_zero=law.at_zero, elsewhere=law.elsewhere, noise_variance=law.noise.variance
    )
    rng = np.random.default_rng(users)
    chance = np.asarray(occupancy.mean(users)) / 1024
    repeat = 150
    noise = rng.geometric(-math.expm1(-law.kappa), (2, repeat, levels))
    counts = rng.binomial(1024, chance, (repeat, levels)) + noise[0] - noise[1]
    found = np.array([occupancy.estimate(row) for row in counts])
    error = occupancy.standard_error(users)
    covered = sum(low <= users <= high for low, high in (occupancy.interval(row, 0.95) for row in counts))
    assert covered > 0.95 * repeat - 5 * math.sqrt(0.95 * 0.05 * repeat)
    if users > 3 * error:
        assert_mean(
            found, users, "maximum likelihood", sd=1.5 * error + 0.3 * users * (error / users) ** 2 * math.sqrt(repeat)
        )
        assert found.std() == pytest.approx(error, rel=0.25)


def test_a_count_without_noise_is_as_uncertain_as_a_rounded_number() -> None:
    """A whole number that stands for a real one within a half: 1/12, the variance of a uniform variable on [0, 1]."""
    empty = Occupancy(buckets=8, levels=3, at_zero=1.0, elsewhere=0.0, noise_variance=0.0)
    assert empty.variance(0.0) == pytest.approx([1 / 12] * 3, rel=1e-12)
