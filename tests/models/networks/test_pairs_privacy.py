"""All pairs, one record replaced: the loss of what is measured, by brute force over all neighbours of small tables.

The shipped code runs with a source that writes down every table it is asked to blur and by which law, and every choice
with its utilities. Which tables come later depends on what was released before; the choices of edges and the answers of
the first look are enumerated. Divergences are summed from the laws themselves, so they rest on no formula for Gaussian
noise or for the exponential mechanism.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from panstream.models.networks import Domain, PairModel, Records, contingency
from panstream.models.networks import pair_model as pairs
from panstream.models.networks._measurements import _GAUSSIAN
from panstream.models.networks.budget import ZcdpBudget
from panstream.models.networks.pair_fit import ModelKind
from panstream.models.networks.serialization import to_json
from panstream.primitives.noise import DiscreteGaussian, SeededSource, SelectionRate
from panstream.privacy.composition import zcdp_rho
from tests.models.renyi import divergence
from tests.statistical import assert_fits

SIZES = (2, 2, 3)
DOMAIN = Domain({name: [str(code) for code in range(size)] for name, size in zip("abc", SIZES, strict=True)})
CELLS = list(itertools.product(*map(range, SIZES)))
EPSILON = 1.0
DELTA = 1e-6
LOOKS: list[tuple[ModelKind, list[tuple[int, int]]]] = [
    (ModelKind.MIXTURE, []),
    (ModelKind.MIXTURE, [(0, 1)]),
    (ModelKind.INDEPENDENT, [(0, 1)]),
    (ModelKind.FOREST, [(0, 1)]),
    (ModelKind.FOREST, [(0, 2), (1, 2)]),
]
CHOICES = [
    (3,),
    (0, 2),
    (2, 0),
    (1, 1),
]  # of three pairs and then of two; the last candidate of a round ends the search
ORDERS = (1.5, 2.0, 16.0)


class Watching(SeededSource):
    """Keeps tables before their noise, utilities of choices, and the laws; prescribed outcomes replace draws."""

    __slots__ = ("choices", "outcomes", "seen")

    def __init__(self, outcomes: Sequence[NDArray[np.int64]] = (), choices: Sequence[int] = ()) -> None:
        super().__init__(3)
        self.seen: list[tuple[NDArray[np.int64], DiscreteGaussian | SelectionRate]] = []
        self.outcomes = list(outcomes)
        self.choices = list(choices)

    def exponential(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        self.seen.append((utilities.copy(), preference))
        return self.choices.pop(0) if self.choices else super().exponential(utilities, preference)

    def add_discrete_gaussian(self, values: NDArray[np.int64], law: DiscreteGaussian) -> None:
        if law is _GAUSSIAN:  # where fits start, and thinning: no records
            super().add_discrete_gaussian(values, law)
            return
        self.seen.append((values.copy(), law))
        if self.outcomes:
            values[:] = self.outcomes.pop(0)
        else:
            super().add_discrete_gaussian(values, law)


def records_of(rows: Sequence[tuple[int, ...]]) -> Records:
    return Records(DOMAIN, np.array(rows, np.uint16).T.copy())


def measured(
    rows: Sequence[tuple[int, ...]], choices: Sequence[int]
) -> list[tuple[NDArray[np.int64], DiscreteGaussian | SelectionRate]]:
    released = [np.array([2] + [0] * (size - 1)) for size in SIZES]  # the same for all, and utilities differ most
    with Watching(released, choices) as rng:
        pairs._measure(records_of(rows), ZcdpBudget(EPSILON, DELTA), rng, lambda what, done: None)
        return rng.seen


def choice_divergence(
    before: NDArray[np.int64], after: NDArray[np.int64], preference: SelectionRate, order: float
) -> float:
    """Return the Rényi divergence of an exponential mechanism from that of a neighbour, summed over its outcomes."""
    logs, moved = (preference.rate * utilities for utilities in (before, after))
    logs = logs - np.logaddexp.reduce(logs)
    moved = moved - np.logaddexp.reduce(moved)
    return float(np.logaddexp.reduce(order * logs + (1 - order) * moved)) / (order - 1)


def worst_losses(order: float, choices: Sequence[int] = ()) -> tuple[float, float]:
    """Return the largest divergence between two tables of two records that differ in one, and that of choices alone."""
    worst = worst_choice = 0.0
    for kept in CELLS:
        runs = [measured([kept, other], choices) for other in CELLS]
        for one, other in itertools.permutations(runs, 2):
            assert [law for _, law in one] == [law for _, law in other]  # public
            loss = choice = 0.0
            for (before, law), (after, _) in zip(one, other, strict=True):
                if isinstance(law, SelectionRate):
                    choice += choice_divergence(before, after, law, order)
                else:
                    loss += sum(divergence(law, int(shift), order) for shift in (before - after).ravel() if shift)
            worst = max(worst, loss + choice)
            worst_choice = max(worst_choice, choice)
    return worst, worst_choice


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_the_loss_of_all_tables_is_the_claim_and_no_more(
    look: tuple[ModelKind, list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two records no edge is chosen, so all goes to tables."""
    monkeypatch.setattr(pairs, "screen_models", lambda *given: look)
    rho = zcdp_rho(EPSILON, DELTA)
    for order in ORDERS:
        assert 0.999 * order * rho <= worst_losses(order)[0] <= order * rho * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_choices_and_tables_together_lose_no_more_than_the_claim(
    choices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many edges as there can be, which two records would not be asked for; the tables' part is used up."""
    monkeypatch.setattr(pairs, "screen_models", lambda *given: LOOKS[1])
    monkeypatch.setattr(ZcdpBudget, "rounds", lambda *given: 2)
    rho = zcdp_rho(EPSILON, DELTA)
    for order in ORDERS:
        loss, choice = worst_losses(order, choices)
        assert 0 < choice <= float(pairs._STRUCTURE) * order * rho * (1 + 1e-9)
        assert 0.999 * (1 - float(pairs._STRUCTURE)) * order * rho <= loss <= order * rho * (1 + 1e-9)


def test_enumeration_would_notice_choices_that_are_too_sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "screen_models", lambda *given: LOOKS[1])
    monkeypatch.setattr(ZcdpBudget, "rounds", lambda *given: 2)
    rate = ZcdpBudget._rate
    monkeypatch.setattr(ZcdpBudget, "_rate", lambda self, share, sensitivity: 4 * rate(self, share, sensitivity))
    assert worst_losses(2.0, CHOICES[1])[1] > float(pairs._STRUCTURE) * 2.0 * zcdp_rho(EPSILON, DELTA)


def test_enumeration_would_notice_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "screen_models", lambda *given: LOOKS[0])
    law = ZcdpBudget._noise
    halved = lambda self, share: DiscreteGaussian.at_least(law(self, share).sigma / 2)  # noqa: E731
    monkeypatch.setattr(ZcdpBudget, "_noise", halved)
    assert worst_losses(2.0)[0] > 3.9 * 2.0 * zcdp_rho(EPSILON, DELTA)


class Prescribed(Watching):
    """Releases the same tables and choices whatever the records."""

    __slots__ = ()

    def add_discrete_gaussian(self, values: NDArray[np.int64], law: DiscreteGaussian) -> None:
        super().add_discrete_gaussian(values, law)
        if law is not _GAUSSIAN:
            draws = np.random.default_rng(len(self.seen))
            values[:] = 1200 // values.size + draws.integers(-40, 41, values.size)


def test_the_same_released_tables_give_the_same_model_whatever_the_records() -> None:
    """All that is learned is post-processing: the first look and the fit read nothing but what was released."""
    models = []
    for rows in ([CELLS[at % 12] for at in range(600)] + [CELLS[0]] * 600, [CELLS[-1]] * 1200):
        with Prescribed(choices=[0, 0]) as rng:
            learned = PairModel(epsilon=EPSILON, delta=DELTA).fit(records_of(rows), rng)
            assert not rng.choices  # two edges were asked for
        models.append(to_json(learned.network))
    assert models[0] == models[1]


@pytest.mark.slow
def test_each_table_has_the_noise_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables measured once, twice, and of one attribute: 800 runs, in cells of half a standard deviation."""
    monkeypatch.setattr(pairs, "screen_models", lambda *given: LOOKS[3])
    records = records_of([CELLS[0], CELLS[5]] * 10)
    noise: dict[tuple[int, ...], list[NDArray[np.float64]]] = {(0, 1): [], (0, 2): [], (2,): []}
    with SeededSource(12) as rng:
        for _ in range(800):
            for table in pairs._measure(records, ZcdpBudget(0.1, DELTA), rng, lambda what, done: None)[0]:
                if table.attributes in noise:
                    gap = table.counts - contingency(records, table.attributes)
                    noise[table.attributes].append(gap.ravel() / table.sigma)
    edges = np.array([-np.inf, *np.arange(-2, 2.1, 0.5), np.inf])
    for attributes, parts in noise.items():
        values = np.concatenate(parts)
        expected = values.size * np.diff(norm.cdf(edges))
        assert_fits(np.histogram(values, edges)[0], expected, f"noise of the table of {attributes}")
