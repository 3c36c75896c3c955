"""Mir et al. as printed: every figure of their true loss and bias, and the floating-point leak."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from panstream.core.algorithm import Algorithm
from panstream.errors import InvalidParameter, NotSupported
from panstream.papers.as_printed.mir import PublishedCroppedSum, PublishedDistinct
from panstream.papers.as_printed.mir_heavy_hitters import PublishedHeavyHitters
from panstream.primitives.noise import SeededSource
from tests.statistical import assert_mean

N = 400


def estimates(algorithm: PublishedCroppedSum, net: np.ndarray, seed: int = 5) -> np.ndarray:
    rng = SeededSource(seed)
    values = []
    for _ in range(N):
        with rng:
            state = algorithm.initial_state(rng)
            algorithm.update(state, algorithm.batch(np.arange(net.size), net), rng)
            values.append(algorithm.release(state, rng).value)
    return np.array(values)


@pytest.mark.slow
def test_literal_constant_is_off_by_37246_on_empty_data() -> None:
    literal = PublishedCroppedSum(universe=1000, epsilon=1.0, crop=8)
    assert_mean(estimates(literal, np.zeros(1000, np.int64)), 37_246.5, "literal estimate of nothing")
    corrected = PublishedCroppedSum(universe=1000, epsilon=1.0, crop=8, corrected=True)
    values = estimates(corrected, np.zeros(1000, np.int64))
    assert_mean(values, 0.0, "corrected estimate of nothing")
    assert values.std() == pytest.approx(corrected.deviation(), rel=0.15)


def test_corrected_form_counts_from_three_quarters_to_one_and_a_half() -> None:
    corrected = PublishedCroppedSum(universe=500, epsilon=2.0, crop=4, corrected=True)
    assert_mean(estimates(corrected, np.full(500, 6)), 500 * 4 * 0.75, "corrected estimate at a = 6, crop 4")
    assert_mean(estimates(corrected, np.full(500, 3)), 500 * 3 * 1.5, "corrected estimate at a = 3, crop 4")


def test_error_is_of_order_crop_squared() -> None:
    """24,968 in the reference, on the most favourable data, where the block counter has 4,956 in total."""
    once, twice = (PublishedCroppedSum(universe=20_000, epsilon=1.0, crop=crop) for crop in (16, 32))
    assert once.deviation(favourable=True, output=False) == pytest.approx(24_968, rel=1e-3)
    assert twice.deviation() / once.deviation() == pytest.approx(4, rel=0.05)


def test_true_losses() -> None:
    assert PublishedCroppedSum(universe=2, epsilon=1.0, crop=2).claim().epsilon == math.inf


@pytest.mark.parametrize("users", [1, 2])
def test_real_loss_as_the_limit_of_grids(users: int) -> None:
    """[0, 2·crop) cut into cells of 1/g, integer noise of decay epsilon/(2·crop·g): the exact joint loss tends to
    2·epsilon.

    One user for add-remove; two, of whom one takes the other's load, for replace: 4·epsilon.
    """
    # e**epsilon = 3
    crop = 1
    e = Fraction(3)
    losses = []
    for g in (2, 4, 8):
        cells = 2 * crop * g
        noise = [e if c < g else Fraction(1) for c in range(cells)]
        state = max(noise[c] / noise[(c - a) % cells] for c in range(cells) for a in range(cells))
        moved = max(abs((c + b) % cells - c) for c in range(cells) for b in range(cells))
        output = math.log(3) * moved / cells
        losses.append(users * (math.log(state) + output))
        assert state == e
    published = 2 * users * math.log(3)
    assert losses == sorted(losses)
    assert published - losses[-1] == pytest.approx(users * math.log(3) / 16, rel=1e-9)


def test_floating_point_shows_who_was_updated() -> None:
    """A fresh counter in (0, 1) is any multiple of 2**-53; after a trip past 2·crop only coarse multiples remain."""
    algorithm = PublishedCroppedSum(universe=20_000, epsilon=1.0, crop=8)
    rng = SeededSource(3)
    state = algorithm.initial_state(rng)
    updated = np.arange(10_000)
    weights = np.full(10_000, 8)
    algorithm.update(state, algorithm.batch(updated, weights), rng)
    scaled = state.counters * 2.0**50
    fine = (state.counters < 1) & (scaled != np.floor(scaled))
    assert fine[10_000:].sum() > 500  # shown by counters that were never touched
    assert fine[:10_000].sum() == 0  # and never by one that was: an infinite likelihood ratio


def test_algorithm_1_as_printed_has_no_finite_loss() -> None:
    for rows, largest in ((((1,), (3,)), 1), (((1, 2), (5, 1)), 2)):
        literal = PublishedDistinct(rows=rows, largest=largest, epsilon=1.0)
        assert literal.loss() == math.inf
        assert sum(literal.law().values()) == pytest.approx(1.0)
        assert literal.distances()[(0,) * len(rows[0])] == 0
    with pytest.raises(InvalidParameter, match="tiny instances"):
        PublishedDistinct(rows=((1,),) * 12, largest=3, epsilon=1.0)


def test_algorithm_1_over_a_group_keeps_half_of_what_is_stated() -> None:
    """Over Z_7 the shifts form a group: d changes by at most 1 with one user, so the state loses epsilon/4 and state
    and output together epsilon/2.
    """
    rows = np.array([(1, 0), (0, 1), (1, 2), (3, 1)])
    q = 7
    vectors = np.array(list(product(range(q), repeat=len(rows))))
    sketches = vectors @ rows % q
    sizes = (vectors != 0).sum(axis=1)
    distance = np.full((q, q), len(rows))
    np.minimum.at(distance, tuple(sketches.T), sizes)
    steps = [
        np.abs(np.roll(distance, tuple(weight * row), (0, 1)) - distance).max()
        for row in rows
        for weight in range(1, q)
    ]
    assert max(steps) == 1


def test_published_forms_refuse_what_they_cannot_do() -> None:
    algorithm = PublishedCroppedSum(universe=3, epsilon=1.0, crop=2)
    rng = SeededSource(1)
    state = algorithm.initial_state(rng)
    with pytest.raises(NotSupported):
        algorithm.refresh(state, rng)
    with pytest.raises(NotSupported):
        algorithm.layout()
    assert algorithm.error_bound(beta=0.1) == math.inf
    for bad in ({"universe": 0}, {"crop": 0}, {"epsilon": 0.0}):
        with pytest.raises(InvalidParameter):
            PublishedCroppedSum(**{"universe": 3, "epsilon": 1.0, "crop": 2, **bad})


def test_they_are_algorithms_but_not_shipped_ones() -> None:
    from panstream.core.catalogue import ALGORITHMS

    assert Algorithm in PublishedCroppedSum.__mro__
    assert not any(name.startswith("Published") for name in ALGORITHMS)


def test_algorithm_3_drowns_in_the_errors_of_its_two_sums() -> None:
    """Five heavy users of 1,000 units each among 2,000 in all: as printed and corrected."""
    net = np.full(2000, 7)
    net[:5] = 1_201
    printed = PublishedHeavyHitters(epsilon=1.0, k=20, total_weight=20_000, buckets=2000)
    assert (printed.crop, printed.lower_crop) == (1000, 500)
    means = {}
    for corrected in (False, True):
        algorithm = PublishedHeavyHitters(epsilon=1.0, k=20, total_weight=20_000, buckets=2000, corrected=corrected)
        rng = SeededSource(3)
        values = []
        for _ in range(60):
            with rng:
                state = algorithm.initial_state(rng)
                algorithm.update(state, algorithm.batch(np.arange(net.size), net), rng)
                values.append(algorithm.release(state, rng).value)
        means[corrected] = np.mean(values)
        assert np.std(values) == pytest.approx(algorithm.deviation(), rel=0.5)
    assert algorithm.deviation() > 10_000  # for a truth of 5
    assert abs(means[False] - 5) > 1_000_000
    assert printed.claim().epsilon == math.inf
    with pytest.raises(NotSupported):
        printed.layout()
    for wrong in ({"ratio": 1.0}, {"k": 0}, {"total_weight": 10}):
        with pytest.raises(InvalidParameter):
            PublishedHeavyHitters(**{"epsilon": 1.0, "k": 20, "total_weight": 20_000, "buckets": 4, **wrong})
