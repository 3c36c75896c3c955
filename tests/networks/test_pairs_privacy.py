"""All pairs, one record replaced: the loss of what is measured, by brute force over all neighbours of small tables.

The shipped code runs with a source that writes down every table it is asked to blur and by which law. Which tables come
second depends on what was released before; each answer of that first look is enumerated. The divergence is summed from
the law itself, so it rests on no formula for Gaussian noise.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from tests.statistical import assert_fits

from panstream.networks import Domain, PairModel, Records, contingency, pairs
from panstream.networks.budget import ZcdpBudget
from panstream.networks.files import to_json
from panstream.networks.measured import _LAW
from panstream.privacy.composition import zcdp_rho
from panstream.randomness import DiscreteGaussian, SeededSource

SIZES = (2, 2, 3)
DOMAIN = Domain({name: [str(code) for code in range(size)] for name, size in zip("abc", SIZES, strict=True)})
CELLS = list(itertools.product(*map(range, SIZES)))
EPSILON, DELTA = 1.0, 1e-6
LOOKS: list[list[tuple[int, int]] | None] = [None, [], [(0, 1)], [(0, 2), (1, 2)]]
ORDERS = (1.5, 2.0, 16.0)


class Watching(SeededSource):
    """Keeps each table before its noise and the law; puts prescribed tables in place of noisy ones if there are any."""

    __slots__ = ("outcomes", "seen")

    def __init__(self, outcomes: Sequence[NDArray[np.int64]] = ()) -> None:
        super().__init__(3)
        self.seen: list[tuple[NDArray[np.int64], DiscreteGaussian]] = []
        self.outcomes = list(outcomes)

    def add_discrete_gaussian(self, values: NDArray[np.int64], law: DiscreteGaussian) -> None:
        if law is _LAW:  # where fits start, and thinning: no records
            super().add_discrete_gaussian(values, law)
            return
        self.seen.append((values.copy(), law))
        if self.outcomes:
            values[:] = self.outcomes.pop(0)
        else:
            super().add_discrete_gaussian(values, law)


def records_of(rows: Sequence[tuple[int, ...]]) -> Records:
    return Records(DOMAIN, np.array(rows, np.uint16).T.copy())


def measured(rows: Sequence[tuple[int, ...]]) -> list[tuple[NDArray[np.int64], DiscreteGaussian]]:
    with Watching() as source:
        pairs._measure(records_of(rows), ZcdpBudget(EPSILON, DELTA), source, lambda what, done: None)
        return source.seen


@functools.cache
def divergence(law: DiscreteGaussian, shift: int, order: float) -> float:
    """Return the Rényi divergence of the law from itself moved by ``shift``, summed over 12 standard deviations."""
    assert law.numerator is not None
    rate, reach = law.numerator / 2.0**52, math.ceil(12 * law.sigma) + abs(shift)
    whole = np.arange(-reach, reach + 1, dtype=float)
    logs = -rate * whole**2
    logs -= np.logaddexp.reduce(logs)
    moved = -rate * (whole - shift) ** 2
    moved -= np.logaddexp.reduce(-rate * whole**2)
    return float(np.logaddexp.reduce(order * logs + (1 - order) * moved)) / (order - 1)


def worst_loss(order: float) -> float:
    """Return the largest divergence between two tables of two records that differ in one of them."""
    worst = 0.0
    for kept in CELLS:
        runs = [measured([kept, other]) for other in CELLS]
        for one, other in itertools.permutations(runs, 2):
            assert [law for _, law in one] == [law for _, law in other]  # public
            loss = 0.0
            for (before, law), (after, _) in zip(one, other, strict=True):
                loss += sum(divergence(law, int(shift), order) for shift in (before - after).ravel() if shift)
            worst = max(worst, loss)
    return worst


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_the_loss_of_all_tables_is_the_claim_and_no_more(
    look: list[tuple[int, int]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "first_look", lambda *given: look)
    rho = zcdp_rho(EPSILON, DELTA)
    for order in ORDERS:
        assert 0.999 * order * rho <= worst_loss(order) <= order * rho * (1 + 1e-9)


def test_enumeration_would_notice_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "first_look", lambda *given: None)
    law = ZcdpBudget._law
    halved = lambda self, share: DiscreteGaussian.at_least(law(self, share).sigma / 2)  # noqa: E731
    monkeypatch.setattr(ZcdpBudget, "_law", halved)
    assert worst_loss(2.0) > 3.9 * 2.0 * zcdp_rho(EPSILON, DELTA)


def test_the_same_released_tables_give_the_same_model_whatever_the_records() -> None:
    """All that is learned is post-processing: the first look and the fit read nothing but what was released."""
    rows = [CELLS[at % 12] for at in range(600)] + [CELLS[0]] * 600
    with Watching() as source:
        PairModel(epsilon=EPSILON, delta=DELTA).fit(records_of(rows), source)
        tables = source.seen
    draws = np.random.default_rng(4)
    released = [values + draws.integers(-40, 41, values.shape) for values, _ in tables]
    models = []
    for other in (rows, [CELLS[-1]] * 1200):
        with Watching(released) as source:
            learned = PairModel(epsilon=EPSILON, delta=DELTA).fit(records_of(other), source)
            assert not source.outcomes
        models.append(to_json(learned.network))
    assert models[0] == models[1]


def test_each_table_has_the_noise_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables measured once, twice, and of one attribute: 800 runs, in cells of half a standard deviation."""
    monkeypatch.setattr(pairs, "first_look", lambda *given: [(0, 1)])
    records = records_of([CELLS[0], CELLS[5]] * 10)
    noise: dict[tuple[int, ...], list[NDArray[np.float64]]] = {(0, 1): [], (0, 2): [], (2,): []}
    with SeededSource(12) as source:
        for _ in range(800):
            for table in pairs._measure(records, ZcdpBudget(0.1, DELTA), source, lambda what, done: None):
                if table.attributes in noise:
                    gap = table.counts - contingency(records, table.attributes)
                    noise[table.attributes].append(gap.ravel() / table.sigma)
    edges = np.array([-np.inf, *np.arange(-2, 2.1, 0.5), np.inf])
    for attributes, parts in noise.items():
        values = np.concatenate(parts)
        expected = values.size * np.diff(norm.cdf(edges))
        assert_fits(np.histogram(values, edges)[0], expected, f"noise of the table of {attributes}")
