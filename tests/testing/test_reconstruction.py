"""The decoders against brute force and linear programming, and against panstream's own state."""

import math

import numpy as np
import pytest
from scipy import optimize

from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.errors import InvalidParameter
from panstream.testing.reconstruction import (
    accuracy_bound,
    answers_from_counters,
    answers_from_unions,
    decode_dot_products,
    decode_unions,
    decode_with_outliers,
    members_from_counters,
)

USERS = 64
QUERIES = 320


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12)


@pytest.mark.slow
def test_accurate_answers_give_all_members_away_and_coarse_ones_do_not(rng: np.random.Generator) -> None:
    """Theorem 12: errors well below sqrt(m) reveal nearly everyone, errors of several sqrt(m) hide them."""
    shares = {}
    for c in (0.05, 0.2, 4.0):
        right = []
        for _ in range(10):
            members = rng.integers(0, 2, USERS).astype(np.uint8)
            queries = rng.integers(0, 2, (QUERIES, USERS)).astype(np.uint8)
            answers = queries @ members.astype(float) + rng.uniform(-1, 1, QUERIES) * c * math.sqrt(USERS)
            right.append(float((decode_dot_products(queries, answers) == members).mean()))
        shares[c] = float(np.mean(right))
    assert shares[0.05] == 1.0
    assert shares[0.2] > accuracy_bound(3.0)  # no algorithm this accurate is even 3-pan-private
    assert shares[4.0] < accuracy_bound(1.0)


def test_outliers_are_decoded_like_a_linear_program(rng: np.random.Generator) -> None:
    """Theorem 13: a fifth of arbitrary answers does not help, and the decoder is as good as the exact L1 minimum."""
    members = rng.integers(0, 2, 40).astype(np.uint8)
    queries = rng.integers(0, 2, (200, 40)).astype(np.uint8)
    answers = queries @ members.astype(float) + rng.uniform(-0.2, 0.2, 200)
    wrong = rng.random(200) < 0.2
    answers[wrong] = rng.uniform(0, 40, int(wrong.sum()))
    assert (decode_with_outliers(queries, answers) == members).all()
    assert (decode_dot_products(queries, answers) != members).any()
    identity = np.eye(200)
    program = optimize.linprog(
        np.concatenate([np.zeros(40), np.ones(200)]),
        A_ub=np.block([[queries, -identity], [-queries.astype(float), -identity]]),
        b_ub=np.concatenate([answers, -answers]),
        bounds=[(None, None)] * 40 + [(0, None)] * 200,
    )
    assert (decode_with_outliers(queries, answers) == (program.x[:40] > 0.5)).all()


def test_beyond_half_the_answers_nothing_can_be_decoded(rng: np.random.Generator) -> None:
    members = rng.integers(0, 2, USERS).astype(np.uint8)
    queries = rng.integers(0, 2, (QUERIES, USERS)).astype(np.uint8)
    answers = rng.uniform(0, USERS, QUERIES)
    assert (decode_with_outliers(queries, answers) == members).mean() < 0.8


@pytest.mark.parametrize("relative", [0.0, 0.05])
def test_union_queries(relative: float, rng: np.random.Generator) -> None:
    """Theorem 11: any consistent set misses no more than 16(relative + slack)L/(1 - relative) members."""
    for mistaken in (0, 1, 2):
        members, believed = np.zeros((2, 12), np.uint8)
        members[:3] = 1
        believed[mistaken : 3 + mistaken] = 1
        queries = rng.integers(0, 2, (200, 12)).astype(np.uint8)
        answers = (queries | believed).sum(axis=1) * (1 + rng.uniform(-relative, relative, 200))
        found = decode_unions(queries, answers, max_members=3, relative=relative, additive=mistaken * (1 + relative))
        assert found is not None
        assert int((found & members).sum()) >= 3 - 2 * mistaken
        if mistaken == 0 and relative == 0:
            assert (found == members).all()
    assert decode_unions(queries, answers + 50, max_members=3, relative=0.0, additive=0.0) is None


def test_a_stolen_state_answers_queries_without_bias(rng: np.random.Generator) -> None:
    """The answers are what the paper's intruder computes: members among the queried, on average."""
    counter = LegendreCounter(universe=60, epsilon=3.0, prime=1019)
    members = rng.integers(0, 2, 60).astype(np.uint8)
    queries = rng.integers(0, 2, (30, 60)).astype(np.uint8)
    total = np.zeros(30)
    runs = 400
    for _ in range(runs):
        monitor = counter.start()
        monitor.update(np.flatnonzero(members))
        total += answers_from_counters(counter, monitor.state.counters, queries)
    spread = math.sqrt(30 * 2 / math.tanh(counter.law.epsilon_state / 2) ** 2 / runs)
    assert np.abs(total / runs - queries @ members.astype(int)).max() < 5 * spread


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_our_own_state_gives_away_no_more_than_epsilon_allows(epsilon: float, rng: np.random.Generator) -> None:
    users = 1500
    counter = LegendreCounter(universe=users, epsilon=epsilon)
    members = rng.integers(0, 2, users).astype(np.uint8)
    queries = rng.integers(0, 2, (2 * users, users)).astype(np.uint8)
    monitor = counter.start()
    monitor.update(np.flatnonzero(members))
    stolen = monitor.state.counters
    best = float((members_from_counters(counter, stolen) == members).mean())
    asked = float((decode_dot_products(queries, answers_from_counters(counter, stolen, queries)) == members).mean())
    slack = 3 * math.sqrt(0.25 / users)
    assert max(best, asked) <= accuracy_bound(epsilon) + slack
    exact = 0.5 + math.tanh(counter.law.epsilon_state / 2) / 4  # of the likelihood attack, for a large prime
    assert best == pytest.approx(exact, abs=5 * math.sqrt(0.25 / users))
    assert asked <= best + slack


def test_an_algorithm_without_noise_is_caught(rng: np.random.Generator) -> None:
    """The control: the same attack on clear counters finds everybody."""
    members = rng.integers(0, 2, USERS).astype(np.uint8)
    queries = rng.integers(0, 2, (QUERIES, USERS)).astype(np.uint8)
    assert (decode_dot_products(queries, queries @ members.astype(float)) == members).all()
    with pytest.raises(InvalidParameter, match="one answer per query"):
        decode_dot_products(queries, np.zeros(3))


@pytest.mark.parametrize(("statistic", "effect"), [("cropped sum", 8.0), ("heavy hitters", 1.0)])
def test_cropped_sums_and_heavy_hitters_give_members_away_too(
    statistic: str, effect: float, rng: np.random.Generator
) -> None:
    """Corollaries 1 to 4: answers off by effect·c·sqrt(m), and a fifth of them arbitrary, name nearly everybody."""
    shares = {}
    for c in (0.05, 4.0):
        right = []
        for _ in range(6):
            members = rng.integers(0, 2, USERS).astype(np.uint8)
            queries = rng.integers(0, 2, (QUERIES, USERS)).astype(np.uint8)
            weights = members * (8 if statistic == "cropped sum" else 100)
            together = weights + queries * (8 if statistic == "cropped sum" else 100)
            if statistic == "cropped sum":
                unions = np.minimum(together, 8).sum(axis=1)
                alone = float(np.minimum(weights, 8).sum())
            else:  # everybody present has exactly a 1/k share of the public total
                unions = (together >= 100).sum(axis=1)
                alone = float((weights >= 100).sum())
            reach = effect * c * math.sqrt(USERS)
            answers = unions + rng.uniform(-reach, reach, QUERIES)
            wrong = rng.random(QUERIES) < 0.2
            answers[wrong] = rng.uniform(0, effect * USERS, int(wrong.sum()))
            decoded = decode_with_outliers(queries, answers_from_unions(queries, answers, alone, effect=effect))
            right.append(float((decoded == members).mean()))
        shares[c] = float(np.mean(right))
    assert shares[0.05] > accuracy_bound(3.0)
    assert shares[4.0] < accuracy_bound(1.0)
