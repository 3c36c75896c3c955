"""Reconstruction attacks on answers that are too accurate (Mir et al. 2011, §4).

An attacker who copies the state of an algorithm can add further users to the copy and read the answer, any number of
times: a distinct count of "the users so far and these" reveals how many of these were present. From enough such answers
the members follow, unless the errors are of the order of sqrt(m). The decoders take a matrix of queries, one 0/1 row
each, and the answers; ``members_from_counters`` is the optimal attack on the state of a modular counter.
"""

from __future__ import annotations

import math
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.errors import InvalidParameter

Bits = NDArray[np.uint8]


def accuracy_bound(epsilon: float) -> float:
    """Return e**epsilon/(1 + e**epsilon), the largest accuracy of any membership test."""
    return 1.0 / (1.0 + math.exp(-epsilon))


def decode_dot_products(queries: Bits, answers: NDArray[np.float64]) -> Bits:
    """Return members x from answers near queries·x, by least squares and rounding (Dinur and Nissim, 2003).

    >>> queries = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]], np.uint8)
    >>> decode_dot_products(queries, np.array([1.1, 0.9, 0.1, 1.2])).tolist()
    [0, 1, 0]
    """
    _check(queries, answers)
    matrix = queries.astype(np.float64)
    return (_inverse(matrix) @ (matrix.T @ answers) > 0.5).astype(np.uint8)


def decode_with_outliers(queries: Bits, answers: NDArray[np.float64], *, rounds: int = 300) -> Bits:
    """Return members where a constant fraction of the answers may be arbitrary (Dwork, McSherry, Talwar, 2007).

    Minimises the sum of absolute deviations over real x and rounds, by alternating directions: a shrunken residual and
    a least-squares step with one factorisation.
    """
    _check(queries, answers)
    matrix = queries.astype(np.float64)
    scale = max(1.0, float(np.abs(answers).max()))
    target = answers / scale
    matrix = matrix / scale
    factor = _inverse(matrix)
    x = np.full(matrix.shape[1], 0.5)
    residual = matrix @ x - target
    dual = np.zeros_like(target)
    weight = 1.0 / max(1e-9, float(np.median(np.abs(residual))))
    for _ in range(rounds):
        x = factor @ (matrix.T @ (target + residual - dual))
        now = matrix @ x - target + dual
        residual = np.sign(now) * np.maximum(np.abs(now) - 1 / weight, 0.0)
        dual = now - residual
    return np.asarray(x > 0.5).astype(np.uint8)


def decode_unions(
    queries: Bits, answers: NDArray[np.float64], *, max_members: int, relative: float, additive: float
) -> Bits | None:
    """Return a set of at most ``max_members`` whose unions with all queries fit the answers, or None if there is none.

    An answer fits if it lies in (1 ± relative)·|x ∪ q| ± additive (Theorem 11 of the paper). Exhaustive: small
    universes.
    """
    _check(queries, answers)
    users = queries.shape[1]
    sizes = queries.sum(axis=1, dtype=np.int64)
    best: tuple[float, tuple[int, ...]] | None = None
    for members in chain.from_iterable(combinations(range(users), size) for size in range(max_members + 1)):
        inside = queries[:, members].sum(axis=1, dtype=np.int64)
        union = sizes + len(members) - inside
        excess = np.abs(answers - union) - relative * union - additive
        worst = float(excess.max())
        if worst <= 1e-9 and (best is None or worst < best[0]):
            best = worst, members
    if best is None:
        return None
    decoded = np.zeros(users, np.uint8)
    decoded[list(best[1])] = 1
    return decoded


def answers_from_unions(
    queries: Bits, unions: NDArray[np.float64], alone: float, *, effect: float = 1.0
) -> NDArray[np.float64]:
    """Return about how many members each query names, from the answer without and with its users inserted.

    By inclusion and exclusion, for every statistic to which a present user adds ``effect`` however often she came:
    distinct counts, cropped sums at which everybody is inserted with the crop (Corollary 1 of the paper), and
    heavy-hitter counts at which everybody has a 1/k share (Corollary 2).

    Args:
        queries: A row of zeros and ones per query.
        unions: The answer after the users of each query were inserted into a copy.
        alone: The answer of the copy itself.
        effect: What a present user adds: the crop, or 1.

    >>> answers_from_unions(np.array([[1, 1, 0], [0, 1, 1]], np.uint8), np.array([16.0, 24.0]), 16.0, effect=8.0)
    array([2., 1.])
    """
    _check(queries, unions)
    sizes = queries.sum(axis=1, dtype=np.int64)
    return np.asarray((alone + effect * sizes - unions) / effect)


def answers_from_counters(counter: LegendreCounter, counters: NDArray[np.int64], queries: Bits) -> NDArray[np.float64]:
    """Return the answers of a copied state: the estimated number of members among the users of each query.

    For a query q the users of q are inserted with weight 1 into a copy; then members = D(x) + |q| - D(x ∪ q), both
    distinct counts decoded as in a release but without its noise, which an attacker does not add.
    """
    squares = _squares(counter, counters)
    moved = _squares(counter, (counters + 1) % counter.prime)
    change = (moved.astype(np.int64) - squares) / counter.law.gap  # users leaving zero, negated
    return np.asarray(queries.sum(axis=1) + queries @ change)


def members_from_counters(counter: LegendreCounter, counters: NDArray[np.int64]) -> Bits:
    """Return the more likely of net weight 0 and 1 for every user, from a copied state; no attack is more accurate.

    The initial value was c for a non-member and c - 1 for a member; if both are equally likely the guess is
    "non-member".
    """
    as_absent = _squares(counter, counters)
    as_member = _squares(counter, (counters - 1) % counter.prime)
    return (as_member & ~as_absent & 1).astype(np.uint8)


def _inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inverse of the normal equations, regularised since no query may distinguish two users."""
    gram = matrix.T @ matrix
    return np.linalg.inv(gram + 1e-10 * np.trace(gram) / len(gram) * np.eye(len(gram)))


def _squares(counter: LegendreCounter, counters: NDArray[np.int64]) -> NDArray[np.uint8]:
    from panstream.primitives.kernels.algorithms.modular_counters import is_residue

    return np.array([is_residue(int(value), counter.prime) for value in counters], np.uint8)


def _check(queries: Bits, answers: NDArray[np.float64]) -> None:
    if queries.ndim != 2 or answers.shape != queries.shape[:1]:
        raise InvalidParameter(f"there must be one answer per query, got {answers.shape} for {queries.shape}")
