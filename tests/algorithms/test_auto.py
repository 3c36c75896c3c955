"""DistinctCount chooses by the two error formulas, sizes within memory, explains, and its monitor survives bytes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from panstream import Monitor
from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.continual_users import ContinualBitmap, ContinualDensity
from panstream.algorithms.density import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter
from panstream.primitives.noise import SeededSource
from tests.statistical import assert_mean


def test_unknown_population_gets_a_bitmap() -> None:
    question = DistinctCount(1.0)
    assert question.algorithm == Bitmap(epsilon=1.0)
    assert "No universe was given" in question.explain()
    assert "No expected= was given" in question.explain()
    assert question.claim() == question.algorithm.claim()


@pytest.mark.parametrize(("epsilon", "even"), [(1.0, 0.13), (2.0, 0.11)])
def test_known_population_is_decided_by_density(epsilon: float, even: float) -> None:
    universe = 200_000
    few = DistinctCount(epsilon, universe=universe, expected=0.7 * even * universe, releases=2)
    many = DistinctCount(epsilon, universe=universe, expected=1.4 * even * universe, releases=2)
    assert isinstance(few.algorithm, Bitmap)
    assert isinstance(many.algorithm, OptBern)
    for question in (few, many):
        assert "Rejected" in question.explain()
        assert "Bits win above about" in question.explain()


def test_the_choice_has_the_smaller_error() -> None:
    for expected in (100, 5_000, 10_000, 13_000, 30_000, 100_000):
        question = DistinctCount(1.0, universe=100_000, expected=expected, releases=2)
        bits = OptBern(count=True, universe=100_000, epsilon=1.0, releases=2).standard_error(expected)
        bitmaps = [
            expected * Bitmap(epsilon=1.0, buckets=2**power, levels=24, releases=2).relative_error(expected)
            for power in range(6, 20)
        ]
        assert isinstance(question.algorithm, Bitmap) == (min(bitmaps) < bits)
        if isinstance(question.algorithm, Bitmap):
            assert expected * question.algorithm.relative_error(expected) <= min(bitmaps) * 1.01


def test_a_single_answer_of_about_known_size_releases_the_start() -> None:
    """Half the error at 5%: planned for what is expected, 127 instead of 294 at 95%, epsilon 1, 20,000 users."""
    question = DistinctCount(1.0, universe=20_000, expected=1_000)
    assert isinstance(question.algorithm, ContinualDensity)
    assert question.choice.error * 1.96 < 127
    assert "the start released once" in question.explain()
    assert isinstance(DistinctCount(1.0, universe=20_000, expected=1_000, announced=1).algorithm, Bitmap)
    tiny = DistinctCount(1.0, universe=10**7, expected=1_000)
    assert tiny.choice.error <= OptBern(count=True, universe=10**7, epsilon=1.0).standard_error(1_000) / 5


def test_a_single_answer_of_unknown_ids_releases_the_start() -> None:
    """At 10,000 users and epsilon 1: 2.90% without, 2.13% with the start released, 1.67% if 160,000 is a bound."""
    errors = {}
    for name, options in {
        "plain": {"mergeable": True},
        "start": {},
        "bounded": {"at_most": 160_000},
    }.items():
        question = DistinctCount(1.0, expected=10_000, **options)  # type: ignore[arg-type]
        errors[name] = question.choice.error / 10_000
        assert isinstance(question.algorithm, Bitmap if name == "plain" else ContinualBitmap)
        assert ("the start released once" in question.explain()) == (name != "plain")
        assert question.claim().epsilon == 1.0
    assert errors["plain"] == pytest.approx(0.0290, abs=2e-4)
    assert errors["start"] == pytest.approx(0.0213, abs=2e-4)
    assert errors["bounded"] == pytest.approx(0.0167, abs=2e-4)
    for options in ({"releases": 2}, {"announced": 1}):
        assert isinstance(DistinctCount(1.0, expected=10_000, **options).algorithm, Bitmap)


def test_one_level_keeps_its_error_up_to_the_bound() -> None:
    for expected, times in ((500, 4), (10_000, 16), (200_000, 32)):
        for mergeable in (False, True):
            question = DistinctCount(1.0, expected=expected, at_most=times * expected, mergeable=mergeable)
            algorithm = question.algorithm
            assert isinstance(algorithm, Bitmap | ContinualBitmap)
            assert algorithm.relative_error(times * expected) <= 1.02 * algorithm.relative_error(expected)
    with pytest.raises(InvalidParameter, match="at_most must be at least expected=500"):
        DistinctCount(1.0, expected=500, at_most=400)


def test_what_is_lost_without_expected_is_told() -> None:
    why = DistinctCount(1.0).explain()
    assert "If there are 10,000,000 users, the error is 3.18%; with expected=10,000,000 it would be 0.07%." in why
    assert "it would be" not in DistinctCount(1.0, expected=100).explain()


def test_everyone_is_expected_if_only_the_universe_is_known() -> None:
    question = DistinctCount(1.0, universe=5000)
    assert question.algorithm == OptBern(count=True, universe=5000, epsilon=1.0)
    assert "all users of the universe were expected" in question.explain()


def test_memory_limits_both() -> None:
    question = DistinctCount(1.0, universe=10**8, expected=5 * 10**7, memory=6250, releases=2)
    chosen = question.algorithm
    other = replace(question, universe=None).algorithm
    assert isinstance(chosen, OptBern)
    assert chosen.sample == 50_000
    assert isinstance(other, Bitmap)
    assert other.table.cells <= 50_000
    assert "50,000 sampled users out of 100,000,000" in question.explain()
    small = DistinctCount(1.0, expected=10**6, memory=256)
    assert small.algorithm.table.cells <= 2048
    assert DistinctCount(1.0, memory=2500).algorithm.table.cells <= 20_000


@pytest.mark.parametrize("announced", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"expected": 2000, "mergeable": True},
        {"universe": 5003},
        {"universe": 10**6, "memory": 6250},
        {"memory": 2500},
    ],
    ids=str,
)
def test_the_memory_it_states_is_what_it_takes(options: dict[str, Any], announced: int) -> None:
    question = DistinctCount(2.0, announced=announced, **options)
    monitor = question.start()
    for _ in range(announced):
        monitor.refresh(rows_since_copy=False)
    arrays = monitor.state.bits.nbytes + monitor.state.frozen.nbytes
    assert f"({arrays:,} bytes), standard error" in question.explain()
    header = 1000  # names and parameters
    assert arrays <= len(monitor.to_bytes()) <= arrays + header
    assert arrays <= question.memory if question.memory is not None else True


def test_levels_reach_the_largest_count() -> None:
    for universe in (1000, 10**6, 10**9):
        question = DistinctCount(2.0, universe=universe, expected=universe / 50, releases=2)
        assert isinstance(question.algorithm, Bitmap)
        at_end = question.algorithm.relative_error(universe)
        ample = replace(question.algorithm, levels=33).relative_error(universe)
        assert at_end < 1.02 * ample


@pytest.mark.parametrize("universe", [None, 3000, 100_000])
def test_monitor_counts_and_survives_bytes(universe: int | None) -> None:
    question = DistinctCount(4.0, universe=universe, expected=2000)
    monitor = Monitor[Any].from_bytes(question.start().to_bytes())
    assert monitor.algorithm == question.algorithm
    monitor.update(range(2000))
    again = Monitor[Any].from_bytes(monitor.to_bytes())
    estimate = again.release()
    assert estimate.name == "distinct users"
    assert abs(estimate.unbiased - 2000) < 6 * estimate.standard_error
    low, high = estimate.interval()
    assert low < estimate.value < high
    assert estimate.claim.epsilon == pytest.approx(4.0)
    with pytest.raises(BudgetExhausted):
        again.release()


RUNS = 100


def test_counts_have_the_error_they_say() -> None:
    """Scaled to users: unbiased, standard error of the formula, sampled or not."""
    for sample in (None, 500):
        algorithm = OptBern(count=True, universe=2000, epsilon=2.0, sample=sample)
        rng = SeededSource(4)
        values = []
        for key in range(RUNS):
            monitor = Monitor[Any](replace(algorithm, key=key), rng=rng)
            monitor.update(np.arange(600))
            values.append(monitor.release().unbiased)
        assert_mean(np.array(values), 600.0, "users")
        assert 0.7 < np.std(values) / algorithm.standard_error(600) < 1.4
        assert algorithm.error_bound(beta=0.05) == 2000 * replace(algorithm, count=False).error_bound(beta=0.05)


def test_a_count_is_a_density_in_users() -> None:
    algorithm = OptBern(count=True, universe=["ann", "bob", "cid"], epsilon=math.inf, announced=1)
    assert algorithm.claim() == OptBern(universe=("ann", "bob", "cid"), epsilon=math.inf, announced=1).claim()
    monitor = algorithm.start()
    monitor.update(["ann"])
    monitor.refresh(rows_since_copy=False)
    monitor.update(["cid", "ann"])
    assert monitor.release().value == pytest.approx(2.0)
    assert Monitor[Any].from_bytes(monitor.to_bytes()).algorithm == algorithm
    with pytest.raises(InvalidBatch):
        monitor.update(["dan"])


def test_announced_error_grows() -> None:
    plain, announced = (OptBern(count=True, universe=10_000, epsilon=4.0, announced=k) for k in (0, 1))
    assert announced.standard_error(5000) > plain.standard_error(5000)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"universe": 0}, "universe must be in"),
        ({"expected": -1}, "expected must be a positive number"),
        ({"universe": 10, "expected": 11}, "expected must not exceed 10 users, got expected=11"),
        ({"memory": 10}, "memory must be at least 256 bytes, got memory=10"),
        ({"releases": 0}, "releases must be at least 1"),
        ({"announced": 8}, "announced must be in"),
        ({"key": -1}, "key must be"),
    ],
)
def test_bad_parameters(bad: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        DistinctCount(**{"epsilon": 1.0, **bad})
