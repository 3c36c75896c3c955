"""Noise for several tables at once: counts of points by enumeration, the law against its formula, every draw in its
ball.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest

from panstream.primitives.noise import DiscreteLaplace, NoiseSource, SeededSource
from panstream.primitives.noise.lattice_balls import _vectors, balanced_point, count_ball_points, mixture, pick_index
from tests.statistical import assert_fits


def points(size: int, radius: int) -> list[tuple[int, ...]]:
    every = itertools.product(range(-radius, radius + 1), repeat=size)
    return [point for point in every if sum(point) == 0 and sum(map(abs, point)) <= 2 * radius]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_balls_count_points(size: int) -> None:
    for radius in range(4):
        assert count_ball_points(size, radius) == len(points(size, radius))
    assert count_ball_points(size, -1) == 0


@pytest.mark.parametrize("sizes", [(2,), (2, 2), (3, 4, 2), (7, 6, 5, 5), (16, 15, 15, 10, 9), (2,) * 40], ids=str)
def test_the_mixture_is_the_product_and_has_no_negative_part(sizes: tuple[int, ...]) -> None:
    shares = mixture(sizes)
    degree = len(shares) - 1
    assert min(shares) >= 0
    for radius in (0, 1, 5, degree, 3 * degree + 7):
        summed = sum(share * math.comb(radius + degree - j, degree) for j, share in enumerate(shares) if j <= radius)
        assert summed == math.prod(count_ball_points(size, radius) for size in sizes)


@pytest.mark.parametrize(("size", "radius"), [(2, 3), (3, 2), (4, 2), (5, 1)])
def test_points_are_uniform_in_their_ball(size: int, radius: int) -> None:
    every = points(size, radius)
    with SeededSource(size) as rng:
        drawn = Counter(tuple(balanced_point(size, radius, rng._below)) for _ in range(60 * len(every)))
    assert set(drawn) <= set(every)
    assert_fits(np.array([drawn[point] for point in every]), np.full(len(every), 60.0), "points")


@pytest.mark.parametrize(("size", "radius"), [(1, 2), (2, 3), (3, 3), (4, 3), (5, 1)])
def test_points_are_exactly_uniform(size: int, radius: int) -> None:
    """Every sequence of uniform numbers that can be drawn, with its probability."""
    chances: Counter[tuple[int, ...]] = Counter()
    path: list[int] | None = []
    while path is not None:
        bounds: list[int] = []

        def below(bound: int, path: list[int] = path, bounds: list[int] = bounds) -> int:
            bounds.append(bound)
            if len(path) < len(bounds):
                path.append(0)
            return path[len(bounds) - 1]

        point = tuple(balanced_point(size, radius, below))
        chances[point] += Fraction(1, math.prod(bounds))  # type: ignore[assignment]
        while path and path[-1] == bounds[len(path) - 1] - 1:
            path.pop()
        if path:
            path[-1] += 1
        else:
            path = None
    every = points(size, radius)
    assert chances == dict.fromkeys(every, Fraction(1, len(every)))


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "kappa"), [((2, 2), 0.4), ((3, 2), 0.7), ((3,), 0.5)], ids=str)
def test_joint_noise_fits_its_pmf(sizes: tuple[int, ...], kappa: float) -> None:
    law = DiscreteLaplace.at_most(kappa)
    draws = 1500
    far = 12
    every = list(itertools.product(*(points(size, far) for size in sizes)))
    weights = np.array([math.exp(-kappa * max(sum(map(abs, point)) for point in whole)) for whole in every])
    seen: Counter[tuple[tuple[int, ...], ...]] = Counter()
    with SeededSource(len(sizes)) as rng:
        for _ in range(draws):
            tables = [np.zeros(size, np.int64) for size in sizes]
            rng.add_joint_laplace(tables, law)
            seen[tuple(tuple(table.tolist()) for table in tables)] += 1
    counts = np.array([seen[whole] for whole in every])
    expected = weights / weights.sum() * draws  # beyond `far` lies less than a draw
    common = expected >= 10
    assert_fits(
        np.append(counts[common], draws - counts[common].sum()),
        np.append(expected[common], draws - expected[common].sum()),
        "joint noise",
    )


def test_a_pick_adds_digits_until_it_is_sure() -> None:
    requests = []

    def exactly_half(bound: int) -> int:
        requests.append(bound)
        return bound // 2 if len(requests) == 1 else 0 if len(requests) == 2 else bound - 1

    # exp(0) = 1: two equal weights meet at one half, where no number of digits after it decides but the last.
    assert pick_index([1, 1], Fraction(0), exactly_half) == 1
    assert len(requests) > 1
    with SeededSource(1) as rng:
        drawn = np.bincount([pick_index([1, 2, 5], Fraction(1, 2), rng._below) for _ in range(1500)], minlength=3)
    weights = np.array([1.0, 2.0 * math.exp(-0.5), 5.0 * math.exp(-1.0)])
    assert_fits(drawn, weights / weights.sum() * 1500, "pick")


def test_no_law_is_no_noise_and_a_strong_one_hardly_any() -> None:
    with NoiseSource() as rng:
        for kappa in (math.inf, 1000.0):
            tables = [np.arange(3), np.arange(5)]
            rng.add_joint_laplace(tables, DiscreteLaplace.at_most(kappa))
            assert [table.tolist() for table in tables] == [[0, 1, 2], [0, 1, 2, 3, 4]]


def digits_of(number: Fraction) -> Callable[[int], int]:
    """Return the bits of a real number in [0, 1), as many as are asked for and never the same twice."""
    left = number

    def below(bound: int) -> int:
        nonlocal left
        left *= bound
        drawn = math.floor(left)
        left -= drawn
        return drawn

    return below


def chosen(weights: Sequence[int], rate: Fraction, number: Fraction) -> int:
    """Return where a uniform number falls, with 700 digits."""
    context = Context(prec=700, Emin=-(10**9), Emax=10**9)
    decay = Fraction(context.exp(context.divide(Decimal(-rate.numerator), Decimal(rate.denominator))))
    shares = [weight * decay**j for j, weight in enumerate(weights)]
    return sum(number * sum(shares) >= bound for bound in itertools.accumulate(shares[:-1]))


@pytest.mark.parametrize("distance", [10, 53, 55, 60, 62, 100, 119, 121, 200])
@pytest.mark.parametrize(
    ("weights", "rate"), [((1, 1), 0), ((10**70 - 1, 10**70 + 1), 0), ((3, 1, 7), Fraction(1, 3))], ids=str
)
def test_a_pick_is_right_however_near_the_number_is_to_a_bound(
    weights: tuple[int, ...], rate: Fraction, distance: int
) -> None:
    """Numbers 10^-distance below and above each bound. The first two bounds are one half and 5·10^-71 less."""
    context = Context(prec=700)
    decay = Fraction(
        context.exp(context.divide(Decimal(-Fraction(rate).numerator), Decimal(Fraction(rate).denominator)))
    )
    shares = [weight * decay**j for j, weight in enumerate(weights)]
    near = [bound / sum(shares) for bound in itertools.accumulate(shares[:-1])]
    for bound in (*near, Fraction(1, 2)):
        for number in (
            bound - Fraction(1, 10**distance),
            bound + Fraction(1, 10**distance),
            bound - Fraction(1, 2**300),
        ):
            assert pick_index(weights, Fraction(rate), digits_of(number)) == chosen(weights, Fraction(rate), number)


def test_a_pick_between_weights_of_very_different_size() -> None:
    """10^400·e^-900 is about 10^9, and 10^-400·e^900 about 10^-9."""
    middle = Fraction(1, 2)
    assert pick_index((1, 10**400), Fraction(900), digits_of(middle)) == 1
    assert pick_index((10**400, 1), Fraction(-900), digits_of(middle)) == 0
    assert pick_index((1, 10**380), Fraction(900), digits_of(middle)) == 0
    assert pick_index((1, 0, 0, 10**1200), Fraction(900), digits_of(middle)) == 3


@pytest.mark.parametrize("size", [2, 3, 4])
def test_vectors_are_counted_by_how_many_are_below_zero(size: int) -> None:
    for radius in (1, 2, 3):
        shell = [point for point in points(size, radius) if sum(map(abs, point)) == 2 * radius]
        counted = Counter(sum(part < 0 for part in point) for point in shell)
        assert {n: _vectors(size, radius, n) for n in range(1, size)} == {n: counted[n] for n in range(1, size)}
