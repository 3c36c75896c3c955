"""Exact integer kernels against Python's own integers and against exhaustive squares."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.turnstile._residues import MERSENNE, prime_at_least
from panstream.primitives.kernels.algorithms.modular_counters import (
    add,
    add_multiples,
    is_residue,
    multiply,
    plus_counts,
    points_of,
    sum_hats,
)

PRIMES = [3, 7, 31, 1019, prime_at_least(1 << 20), prime_at_least(1 << 40), prime_at_least(1 << 61), MERSENNE]


@pytest.mark.parametrize("prime", [3, 7, 11, 19, 23, 31, 1019])
def test_residues_are_the_squares(prime: int) -> None:
    squares = {r * r % prime for r in range(1, prime)}
    assert {v for v in range(prime) if is_residue(v, prime)} == squares
    assert len(squares) == (prime - 1) // 2


@pytest.mark.parametrize("prime", PRIMES)
def test_residues_by_euler_and_products_by_python(prime: int) -> None:
    pick = random.Random(prime)
    for _ in range(300):
        a = pick.randrange(prime)
        b = pick.randrange(prime)
        assert is_residue(a, prime) == (pow(a, (prime - 1) // 2, prime) == 1)
        assert multiply(a, b, prime) == a * b % prime


@given(
    st.sampled_from([(7, 1), (31, 16), (1019, 1), (prime_at_least(1 << 50), 3), (MERSENNE, 1)]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(-(1 << 61) + 1, (1 << 61) - 1)), max_size=30),
)
@settings(max_examples=60, deadline=None)
def test_updates_are_additions_modulo_q(shape: tuple[int, int], rows: list[tuple[int, int]]) -> None:
    modulus = shape[0] * shape[1]
    cells = np.array([cell for cell, _ in rows], np.int64)
    weights = np.array([weight for _, weight in rows], np.int64)
    counters = np.array([0, modulus - 1, modulus // 2, 1 % modulus], np.int64)  # cell 4 is outside the sample
    expected = counters.tolist()
    for cell, weight in rows:
        if cell < 4:
            expected[cell] = (expected[cell] + weight) % modulus
    inverse = np.uint64((1 << 64) // modulus)
    add(counters, cells, weights, modulus, inverse)
    assert counters.tolist() == expected
    small = weights % modulus
    again = np.array(expected, np.int64)
    add(again, cells, -small, modulus, np.uint64(0))
    assert again.tolist() == [0, modulus - 1, modulus // 2, 1 % modulus]


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("rows", [1, 50])
def test_multiples_are_products_modulo_p(prime: int, rows: int) -> None:
    pick = random.Random(rows)
    top = MERSENNE
    weights = [pick.choice([1, -1, top, -top, pick.randrange(-top, top)]) for _ in range(rows)]
    factors = [pick.randrange(1, prime) for _ in range(rows)]
    cells = [pick.randrange(3) for _ in range(rows)]
    expected = [0, 0, 0]
    for cell, weight, factor in zip(cells, weights, factors, strict=True):
        expected[cell] = (expected[cell] + weight * factor) % prime
    counters = np.zeros(3, np.int64)
    inverse = np.uint64((1 << 64) // prime)
    add_multiples(counters, np.array(cells), np.array(weights), np.array(factors, np.uint64), prime, inverse)
    assert counters.tolist() == expected


def test_one_weight_stands_for_all_rows() -> None:
    counters = np.zeros(3, np.int64)
    add(counters, np.array([0, 1, 0]), np.array([-9]), 7, np.uint64((1 << 64) // 7))
    assert counters.tolist() == [(-18) % 7, (-9) % 7, 0]


@pytest.mark.parametrize("first", [0, 1, 7, 32])
def test_plus_counts_reads_neighbouring_blocks_of_every_row(first: int) -> None:
    prime = 11
    width = 3
    readings = 2
    squares = {r * r % prime for r in range(1, prime)}
    counters = np.arange(prime * width, dtype=np.int64)[: 2 * 15]
    totals = np.empty(2, np.int64)
    plus_counts(counters, prime, width, first, readings, totals)
    expected = [
        sum(((c - first) % (prime * width) // width + j) % prime in squares for c in row for j in range(readings))
        for row in (range(15), range(15, 30))
    ]
    assert totals.tolist() == expected


@pytest.mark.parametrize(("first", "readings"), [(0, 1), (14, 3), (95, 2)])
def test_sums_of_hats_around_neighbouring_centres(first: int, readings: int) -> None:
    width = 7
    modulus = 105
    totals = np.empty(1, np.int64)
    for value in range(modulus):
        sum_hats(np.array([value]), modulus, width, first, readings, totals)
        gaps = [abs(value - first + j * width + turn) for j in range(readings) for turn in (-modulus, 0, modulus)]
        assert totals[0] == sum(max(0, width - gap) for gap in gaps)


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=20))
@settings(deadline=None)
def test_points_are_residues_of_the_field(words: list[int]) -> None:
    given_words = np.array(words, np.uint64)
    points_of(given_words, given_words)
    assert given_words.tolist() == [word % MERSENNE for word in words]
