"""Chosen pairs, one record replaced: the loss of what is measured and chosen, by brute force over small tables.

The shipped code runs with a source that prescribes every released table and every choice, and writes down what it was
asked to blur or to choose from, and by which law. For each transcript and all neighbouring tables of two records the
Rényi divergences are summed from the laws themselves, so they rest on no formula for Gaussian noise or choices.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.models.networks import AdaptiveModel, Domain, Records
from panstream.models.networks import adaptive_model as adaptive
from panstream.models.networks.budget import ZcdpBudget
from panstream.models.networks.serialization import to_json
from panstream.primitives.noise import DiscreteGaussian, SeededSource, SelectionRate
from panstream.privacy.composition import zcdp_rho
from tests.models.renyi import divergence

SIZES = (2, 2, 3)
DOMAIN = Domain({name: [str(code) for code in range(size)] for name, size in zip("abc", SIZES, strict=True)})
CELLS = list(itertools.product(*map(range, SIZES)))
EPSILON = 1.0
DELTA = 1e-6
ORDERS = (1.5, 2.0, 16.0)
CHOICES = [(0,), (0, 1, 2), (2, 3), (3,)]  # repeated; positions among the candidates, the last of which is no pair


class Prescribed(SeededSource):
    """Releases the same tables and choices whatever the records, and keeps what it was asked."""

    __slots__ = ("choices", "draws", "seen")

    def __init__(self, choices: Sequence[int], seed: int = 3) -> None:
        super().__init__(seed)
        self.choices = itertools.cycle(choices)
        self.draws = np.random.default_rng(seed)
        self.seen: list[tuple[NDArray[np.int64], DiscreteGaussian | SelectionRate]] = []

    def exponential(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        self.seen.append((utilities.copy(), preference))
        return next(self.choices) % utilities.size

    def add_discrete_gaussian(self, values: NDArray[np.int64], law: DiscreteGaussian) -> None:
        self.seen.append((values.copy(), law))
        values[:] = 24 // values.size + self.draws.integers(-8, 9, values.size)


def records_of(rows: Sequence[tuple[int, ...]]) -> Records:
    return Records(DOMAIN, np.array(rows, np.uint16).T.copy())


def measured(
    rows: Sequence[tuple[int, ...]], choices: Sequence[int]
) -> tuple[list[tuple[NDArray[np.int64], DiscreteGaussian | SelectionRate]], ZcdpBudget]:
    budget = ZcdpBudget(EPSILON, DELTA)
    with Prescribed(choices) as rng:
        learning = adaptive._Measurements(records_of(rows), budget, rng)
        learning.measure_ones()
        while learning.remaining:
            learning.measure_round()
        return rng.seen, budget


def choice_divergence(
    before: NDArray[np.int64], after: NDArray[np.int64], preference: SelectionRate, order: float
) -> float:
    """Return the Rényi divergence of an exponential mechanism from that of a neighbour, summed over its outcomes."""
    logs, moved = (preference.rate * utilities for utilities in (before, after))
    logs = logs - np.logaddexp.reduce(logs)
    moved = moved - np.logaddexp.reduce(moved)
    return float(np.logaddexp.reduce(order * logs + (1 - order) * moved)) / (order - 1)


def worst_losses(order: float, choices: Sequence[int], first: Sequence[tuple[int, ...]]) -> tuple[float, float, float]:
    """Return the largest divergence between neighbours with one of these records, that of choices, and their share."""
    worst = worst_choice = share = 0.0
    for same in first:
        runs = [measured([same, other], choices) for other in CELLS]
        share = float(runs[0][1].spent["structure"])
        for (one, _), (other, _) in itertools.permutations(runs, 2):
            assert [law for _, law in one] == [law for _, law in other]  # public
            loss = choice = 0.0
            for (before, law), (after, _) in zip(one, other, strict=True):
                if isinstance(law, SelectionRate):
                    choice += choice_divergence(before, after, law, order)
                else:
                    loss += sum(divergence(law, int(shift), order) for shift in (before - after).ravel() if shift)
            worst = max(worst, loss + choice)
            worst_choice = max(worst_choice, choice)
    return worst, worst_choice, share


@pytest.fixture(autouse=True)
def _short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "_FEW_STEPS", 2)


def check(order: float, choices: Sequence[int], first: Sequence[tuple[int, ...]]) -> None:
    rho = zcdp_rho(EPSILON, DELTA)
    loss, choice, share = worst_losses(order, choices, first)
    assert 0 < share < 0.2
    assert 0 <= choice <= share * order * rho * (1 + 1e-9)
    assert 0.999 * (1 - share) * order * rho <= loss <= order * rho * (1 + 1e-9)


def test_choices_and_tables_together_lose_no_more_than_the_claim() -> None:
    check(2.0, CHOICES[1], CELLS[:1])


@pytest.mark.slow
@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_no_transcript_and_no_neighbours_lose_more_than_the_claim(choices: tuple[int, ...]) -> None:
    for order in ORDERS:
        check(order, choices, CELLS)


def test_enumeration_would_notice_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    law = ZcdpBudget._noise
    halved = lambda self, share: DiscreteGaussian.at_least(law(self, share).sigma / 2)  # noqa: E731
    monkeypatch.setattr(ZcdpBudget, "_noise", halved)
    assert worst_losses(2.0, CHOICES[1], CELLS[:1])[0] > 3.5 * 2.0 * zcdp_rho(EPSILON, DELTA)


def test_enumeration_would_notice_choices_that_are_too_sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = ZcdpBudget._rate
    monkeypatch.setattr(ZcdpBudget, "_rate", lambda self, share, sensitivity: 4 * rate(self, share, sensitivity))
    _, choice, share = worst_losses(2.0, CHOICES[1], CELLS[:1])
    assert choice > share * 2.0 * zcdp_rho(EPSILON, DELTA)


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_the_same_released_tables_give_the_same_model_whatever_the_records(choices: tuple[int, ...]) -> None:
    """The fit, the candidates and the shares read nothing but what was released."""
    models = []
    for rows in ([CELLS[at % 12] for at in range(600)] + [CELLS[0]] * 600, [CELLS[-1]] * 1200):
        with Prescribed(choices) as rng:
            learned = AdaptiveModel(epsilon=EPSILON, delta=DELTA).fit(records_of(rows), rng)
        models.append(to_json(learned.network))
    assert models[0] == models[1]
