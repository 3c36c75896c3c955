from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.hashing import PRIME, KWise, expand
from tests.statistical import assert_fits

EDGES = [0, 1, 2, 3, 7, 8, 1 << 32, (1 << 60) - 1, 1 << 60, PRIME - 2, PRIME - 1]
elements = st.one_of(st.integers(0, PRIME - 1), st.sampled_from(EDGES))


def reference(coefficients: tuple[int, ...], x: int, prime: int = PRIME) -> int:
    return sum(coefficient * pow(x, power, prime) for power, coefficient in enumerate(coefficients)) % prime


def values(family: KWise, points: list[int]) -> list[int]:
    out = np.empty(len(points), np.uint64)
    family.values(np.array(points, np.uint64), out)
    return [int(value) for value in out]


@pytest.mark.slow
@given(st.lists(elements, min_size=1, max_size=9), st.lists(elements, max_size=30))
@settings(max_examples=300, deadline=None)
def test_values_agree_with_exact_integers(coefficients: list[int], points: list[int]) -> None:
    expected = [reference(tuple(coefficients), x) for x in points]
    assert values(KWise(coefficients=tuple(coefficients)), points) == expected


def test_products_of_all_edges_are_exact() -> None:
    for factor, constant in product(EDGES, EDGES):
        expected = [reference((constant, factor), x) for x in EDGES]
        assert values(KWise(coefficients=(constant, factor)), EDGES) == expected


@pytest.mark.parametrize(("prime", "k"), [(2, 2), (3, 2), (3, 3), (5, 2), (5, 3), (7, 2), (7, 3), (5, 4)])
def test_the_family_is_exactly_k_wise_independent(prime: int, k: int) -> None:
    """Every k points take every k values under equally many coefficients: all of them tried."""
    for points in combinations(range(prime), k):
        seen = Counter(tuple(reference(c, x, prime) for x in points) for c in product(range(prime), repeat=k))
        assert len(seen) == prime**k
        assert set(seen.values()) == {1}


def test_one_coefficient_less_is_not_enough() -> None:
    seen = Counter(tuple(reference(c, x, 5) for x in (0, 1, 2)) for c in product(range(5), repeat=2))
    assert len(seen) < 5**3


def test_members_follow_from_the_key() -> None:
    words = expand(9, "polynomialrow 1", 8)
    expected = tuple((words[2 * i] + words[2 * i + 1] * 2**64) % PRIME for i in range(4))
    assert KWise.from_key(4, 9, "row 1").coefficients == expected
    assert KWise.from_key(4, 9, "row 2").coefficients != expected
    assert KWise.from_key(4, 9, "row 1").independence == 4


POINTS = np.arange(1 << 16)


@pytest.mark.parametrize("key", [0, 1, 2])
def test_structured_points_spread_evenly(key: int) -> None:
    """Chi-square of the highest and lowest bits of the values, for points in arithmetic progression."""
    family = KWise.from_key(8, key)
    for stride in (1, 2, 1 << 20, 1 << 40):
        hashes = np.empty(POINTS.size, np.uint64)
        family.values(POINTS * stride, hashes)
        buckets = (hashes >> np.uint64(29)) * np.uint64(100) >> np.uint64(32)
        assert_fits(np.bincount(buckets, minlength=100), np.full(100, POINTS.size / 100), f"buckets, stride {stride}")
        levels = np.array([min((int(value) & -int(value)).bit_length() - 1, 7) for value in hashes])
        shares = np.array([*(0.5**level for level in range(1, 8)), 0.5**7])
        assert_fits(np.bincount(levels, minlength=8), POINTS.size * shares, f"levels, stride {stride}")


@pytest.mark.parametrize("bad", [PRIME, -1, 2**63 - 1])
def test_a_point_outside_the_field_is_refused_by_row(bad: int) -> None:
    out = np.full(3, 9, np.uint64)
    with pytest.raises(InvalidBatch, match=rf"row 1: points must be in 0..{PRIME - 1}$"):
        KWise(coefficients=(1, 2)).values(np.array([0, bad, 0]), out)
    assert out.tolist() == [9, 9, 9]


@pytest.mark.parametrize("coefficients", [(), [1, 2], (PRIME,), (-1,), (1.0,), (True,)])
def test_other_coefficients_are_refused(coefficients: Any) -> None:
    with pytest.raises(InvalidParameter, match="coefficients must be"):
        KWise(coefficients=coefficients)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="independence must be an integer in 1"):
        KWise.from_key(0)
    with pytest.raises(InvalidParameter, match="out must be a contiguous one-dimensional array of uint64"):
        KWise.from_key(2).values(np.arange(3), np.empty(3, np.int64))
