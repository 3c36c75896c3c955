"""Naming categories that nobody listed: the exact law of the shipped code for all small tables, and its controls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.models.networks import category_names as module
from panstream.models.networks.category_names import categories_claim, frequent_categories
from panstream.models.networks.person_rows import rows_of_persons
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.category_loss import category_noise, category_threshold, chance_of_naming, naming_delta


def tail(distance: int, noise: DiscreteLaplace) -> float:
    """P(noise >= distance), by adding up the law."""
    reach = np.arange(-1000, 1001)
    law = np.exp(-noise.kappa * np.abs(reach))
    return float(law[reach >= distance].sum() / law.sum())


class BranchingSource(NoiseSource):
    """Puts every noisy count just at or just below the threshold, and multiplies the chances of that."""

    __slots__ = ("chance", "path", "threshold")

    is_secure = False

    def __init__(self, threshold: int, path: tuple[bool, ...]) -> None:
        super().__init__()
        self.threshold = threshold
        self.path = path
        self.chance = 1.0

    def add_discrete_laplace(self, values: NDArray[np.int64], noise: DiscreteLaplace) -> None:
        for position, count in enumerate(values.tolist()):
            above = tail(self.threshold - count, noise)
            named = self.path[position]
            self.chance *= above if named else 1 - above
            values[position] = self.threshold - (not named)


def law(records: tuple[str, ...], epsilon: float, delta: float, contributions: int) -> dict[tuple[str, ...], float]:
    threshold = module.category_threshold(epsilon, delta, contributions)
    outcomes: dict[tuple[str, ...], float] = {}
    for path in itertools.product((False, True), repeat=len(set(records))):
        source = BranchingSource(threshold, path)
        named = tuple(frequent_categories(list(records), epsilon, delta, source, contributions=contributions))
        outcomes[named] = outcomes.get(named, 0.0) + source.chance
    assert math.isclose(sum(outcomes.values()), 1.0)
    return outcomes


def neighbours(contributions: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Tables of up to five records of four values that differ in the records of one person."""
    for others in range(3):
        for rest in itertools.combinations_with_replacement("abc", others):
            for one in itertools.combinations_with_replacement("abcd", contributions):
                for other in itertools.combinations_with_replacement("abcd", contributions):
                    yield (*rest, *one), (*rest, *other)


def worst_delta(epsilon: float, delta: float, contributions: int) -> float:
    laws: dict[tuple[str, ...], dict[tuple[str, ...], float]] = {}
    worst = 0.0
    for pair in neighbours(contributions):
        for records in pair:
            key = tuple(sorted(records))
            if key not in laws:
                laws[key] = law(key, epsilon, delta, contributions)
        first, second = (laws[tuple(sorted(records))] for records in pair)
        excess = sum(max(p - math.exp(epsilon) * second.get(named, 0.0), 0.0) for named, p in first.items())
        worst = max(worst, excess)
    return worst


@pytest.mark.parametrize(("epsilon", "delta", "contributions"), [(1.0, 0.05, 1), (2.0, 0.02, 1), (2.0, 0.05, 2)])
def test_what_is_named_loses_epsilon_and_delta_and_not_much_less(
    epsilon: float, delta: float, contributions: int
) -> None:
    """Delta is reached up to the step of the threshold, a factor of exp(kappa)."""
    exact = worst_delta(epsilon, delta, contributions)
    step = math.exp(category_noise(epsilon, contributions).kappa)
    assert delta / step / 2 < exact <= delta


def test_epsilon_is_reached_and_half_of_the_noise_would_lose_twice_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of b that was one of a: a just below the threshold is named, b just above it is not."""

    def loss() -> float:
        one = law(("a",) * 3 + ("b",) * 4, 2.0, 0.05, 1)
        other = law(("a",) * 2 + ("b",) * 5, 2.0, 0.05, 1)
        return math.log(one["a",] / other["a",])

    assert category_threshold(2.0, 0.05) == 4
    assert loss() == pytest.approx(2.0, rel=1e-9)
    monkeypatch.setattr(module, "category_noise", lambda epsilon, contributions: category_noise(2 * epsilon))
    assert loss() == pytest.approx(4.0, rel=1e-9)


@pytest.mark.parametrize(
    ("mistake", "epsilon", "contributions"),
    [
        (lambda epsilon, delta, contributions: category_threshold(epsilon, delta, contributions) - 3, 1.0, 1),
        (lambda epsilon, delta, contributions: category_threshold(epsilon, delta, 1), 2.0, 2),
    ],
    ids=["a lower threshold", "a threshold for one record"],
)
def test_a_threshold_that_is_too_low_loses_more(
    mistake: Callable[[float, float, int], int], epsilon: float, contributions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "category_threshold", mistake)
    assert worst_delta(epsilon, 0.05, contributions) > 0.055


@pytest.mark.parametrize("contributions", [1, 2, 5])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_the_threshold_is_the_least_that_keeps_delta(delta: float, contributions: int) -> None:
    noise = category_noise(1.0, contributions)
    threshold = category_threshold(1.0, delta, contributions)
    assert naming_delta(threshold, noise, contributions) <= delta < naming_delta(threshold - 1, noise, contributions)
    for count in (0, 1, threshold, threshold + 3):
        assert chance_of_naming(count, threshold, noise) == pytest.approx(tail(threshold - count, noise), rel=1e-9)
    # Brute force over how her records are divided among values that only she has.
    for parts in _partitions(contributions, contributions):
        assert sum(chance_of_naming(part, threshold, noise) for part in parts) <= delta


def _partitions(total: int, largest: int) -> Iterator[list[int]]:
    yield []
    for first in range(1, min(total, largest) + 1):
        for rest in _partitions(total - first, first):
            yield [first, *rest]


def test_frequent_values_are_named_and_written_once() -> None:
    """2,000 records against a threshold of 85: failure probability below 1e-200."""
    column = [1, 1.0, "1", None, float("nan")] * 2000 + ["zebra"] * 2000 + ["only me"]
    with NoiseSource() as rng:
        assert frequent_categories(column, 1.0, 1e-9, rng) == ["1", "zebra"]
        assert frequent_categories([None] * 10, 1.0, 1e-9, rng) == []


def test_impossible_budgets_are_refused() -> None:
    with NoiseSource() as rng:
        for epsilon, delta in ((0.0, 1e-6), (math.inf, 1e-6), (1.0, 0.0), (1.0, 0.9)):
            with pytest.raises(InvalidParameter):
                frequent_categories(["a"], epsilon, delta, rng)
    claim = categories_claim(1.0, 1e-6, 3)
    assert (claim.epsilon, claim.unit, claim.delta) == (1.0, "user", 1e-6)


def test_at_most_k_rows_of_a_person_count() -> None:
    """Every row of a person with three is chosen with probability 2/3: 6 standard errors, failure below 1e-8."""
    persons = ["ann"] * 3 + ["bob"] * 2 + ["eve"]
    times = np.zeros(6)
    with NoiseSource() as rng:
        for _ in range(3000):
            chosen = rows_of_persons(persons, 2, rng)
            assert chosen.tolist() == sorted(set(chosen.tolist()))
            times[chosen] += 1
    assert times[3:].tolist() == [3000] * 3
    assert np.abs(times[:3] - 2000).max() < 6 * math.sqrt(3000 * 2 / 9)
    with NoiseSource() as rng, pytest.raises(InvalidBatch, match="whose it is"):
        rows_of_persons(["ann", None], 1, rng)
    with NoiseSource() as rng, pytest.raises(InvalidBatch, match="whose it is"):
        rows_of_persons(["ann", ""], 1, rng)
