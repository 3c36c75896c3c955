"""Structures against exhaustive search, and parameters against counting by hand."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks import (
    Domain,
    Records,
    chow_liu,
    contingency,
    exact_tables,
    fit_tables,
    greedy,
    independent,
    local_search,
    marginal_tables,
    mutual_information,
    naive_bayes,
    pairwise,
    sample,
)
from panstream.models.networks.network import topological_order
from panstream.models.networks.structure_search import _bic_score
from panstream.primitives.noise import SeededSource
from tests.models.networks.models import random_network


def drawn(seed: int, sizes: tuple[int, ...] = (2, 3, 2, 2, 3), degree: int = 2, count: int = 3000) -> Records:
    return sample(random_network(seed, sizes, degree), count, SeededSource(seed))


def information(records: Records, parents: tuple[tuple[int, ...], ...]) -> float:
    families = [(*family, child) for child, family in enumerate(parents) if family]
    return sum(mutual_information(contingency(records, family)) for family in families)


def all_trees(count: int) -> list[list[tuple[int, int]]]:
    edges = list(itertools.combinations(range(count), 2))
    return [list(chosen) for chosen in itertools.combinations(edges, count - 1) if connected(count, chosen)]


def connected(count: int, edges: tuple[tuple[int, int], ...]) -> bool:
    reached = {0}
    for _ in range(count):
        reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
    return len(reached) == count


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("root", [0, 3])
def test_no_tree_beats_chow_liu(seed: int, root: int) -> None:
    records = drawn(seed)
    parents = chow_liu(records.domain, marginal_tables(pairwise(records)), root)
    assert parents[root] == ()
    assert all(len(family) == 1 for at, family in enumerate(parents) if at != root)
    topological_order(parents)
    trees = all_trees(5)
    assert len(trees) == 5**3  # Cayley
    best = max(sum(mutual_information(contingency(records, edge)) for edge in tree) for tree in trees)
    assert information(records, parents) == pytest.approx(best, rel=1e-12)
    assert information(records, greedy(records.domain, exact_tables(records), 1, root=root)) == pytest.approx(
        best, rel=1e-12
    )


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_greedy_takes_the_best_family_at_every_step(degree: int) -> None:
    records = drawn(9)
    chosen = greedy(records.domain, exact_tables(records), degree, root=2)
    placed = [2]
    expected = [()] * 5
    while len(placed) < 5:
        options = [
            (mutual_information(contingency(records, (*family, child))), -child, family)
            for child in set(range(5)) - set(placed)
            for family in itertools.combinations(sorted(placed), min(degree, len(placed)))
        ]
        _, child, family = max(options)
        expected[-child] = family
        placed.append(-child)
    assert information(records, chosen) == pytest.approx(information(records, tuple(expected)), rel=1e-12)
    assert sorted(map(len, chosen)) == sorted(min(degree, at) for at in range(5))


def test_greedy_with_another_score() -> None:
    domain = Domain({name: ["0", "1"] for name in "abcd"})
    parents = greedy(domain, no_tables, 1, score=lambda child, family: float(family == (child - 1,)))
    assert parents == ((), (0,), (1,), (2,))


def no_tables(attributes: tuple[int, ...]) -> NDArray[Any]:
    raise AssertionError(attributes)


def test_simple_structures() -> None:
    domain = Domain({name: ["0", "1"] for name in "abc"})
    assert independent(domain) == ((), (), ())
    assert naive_bayes(domain, 1) == ((1,), (), (1,))
    for call in (
        lambda: naive_bayes(domain, 3),
        lambda: chow_liu(domain, no_tables, 3),
        lambda: greedy(domain, no_tables, 0),
        lambda: local_search(domain, no_tables, 10, degree=0),
        lambda: local_search(domain, no_tables, 0),
    ):
        with pytest.raises(InvalidParameter):
            call()


def test_tables_are_summed_from_larger_ones() -> None:
    records = drawn(2)
    tables = marginal_tables({(3, 0, 2): contingency(records, (3, 0, 2)), (1, 4): contingency(records, (1, 4))})
    for attributes in [(0,), (3, 0), (0, 3), (2, 0, 3), (4,), (4, 1)]:
        assert np.array_equal(tables(attributes), contingency(records, attributes))
    with pytest.raises(InvalidParameter, match="no table holds"):
        tables((0, 1))


def test_parameters_are_the_smoothed_shares() -> None:
    domain = Domain({"a": ["0", "1"], "b": ["0", "1", "2"]})
    records = Records(domain, np.array([[0, 0, 0, 1], [0, 0, 2, 1]], np.uint16))
    network = fit_tables(domain, ((), (0,)), exact_tables(records))
    assert network.tables[0].tolist() == [4 / 6, 2 / 6]
    assert network.tables[1].tolist() == [[3 / 6, 1 / 6, 2 / 6], [1 / 4, 2 / 4, 1 / 4]]
    with pytest.raises(InvalidParameter, match="cycle"):
        fit_tables(domain, ((1,), (0,)), exact_tables(records))


def all_structures(count: int, degree: int) -> list[tuple[tuple[int, ...], ...]]:
    families = [
        [f for size in range(degree + 1) for f in itertools.combinations([e for e in range(count) if e != child], size)]
        for child in range(count)
    ]
    found = []
    for parents in itertools.product(*families):
        try:
            topological_order(parents)
        except InvalidParameter:
            continue
        found.append(parents)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_local_search_ends_where_no_neighbour_is_better(seed: int) -> None:
    records = drawn(seed, (2, 3, 2, 2), 2)
    parents = local_search(records.domain, exact_tables(records), len(records), degree=2)
    score = _bic_score(records.domain, exact_tables(records), len(records))

    def total(structure: tuple[tuple[int, ...], ...]) -> float:
        return sum(score(child, family) for child, family in enumerate(structure))

    structures = all_structures(4, 2)
    arrows = {(parent, child) for child, family in enumerate(parents) for parent in family}
    for structure in structures:
        others = {(parent, child) for child, family in enumerate(structure) for parent in family}
        differ = arrows ^ others
        turned = len(differ) == 2 and {tuple(reversed(edge)) for edge in differ} == differ
        if len(differ) == 1 or turned:
            assert total(structure) <= total(parents) + 1e-5
    assert total(parents) > total(((),) * 4) - 1e-9


def test_bic_is_the_penalised_likelihood() -> None:
    records = drawn(3)
    parents = ((), (0,), (0, 1), (), (3,))
    score = _bic_score(records.domain, exact_tables(records), len(records))
    fitted = fit_tables(records.domain, parents, exact_tables(records), pseudocount=0)
    expected = fitted.log_likelihood(records) - math.log2(len(records)) / 2 * fitted.parameters
    assert sum(score(child, family) for child, family in enumerate(parents)) == pytest.approx(expected, rel=1e-12)


def test_noisy_tables_will_do() -> None:
    """Negative counts count as nothing."""
    records = drawn(4)
    rng = np.random.default_rng(0)
    noisy = {pair: table + rng.integers(-30, 30, table.shape) for pair, table in pairwise(records).items()}
    assert any((table < 0).any() for table in noisy.values())
    cut = {pair: np.maximum(table, 0) for pair, table in noisy.items()}

    def learned(tables: dict[tuple[int, int], NDArray[np.int64]]) -> list[float]:
        given = marginal_tables(tables)
        domain = records.domain
        structures = (
            chow_liu(domain, given),
            greedy(domain, given, 1),
            local_search(domain, given, len(records), degree=1, penalty=4.0),
        )
        return [fit_tables(domain, parents, given).cross_entropy(records) for parents in structures]

    assert learned(noisy) == learned(cut)
    assert np.isfinite(learned(noisy)).all()


def test_local_search_finds_the_arrows_of_a_strong_chain() -> None:
    flip = np.array([[0.9, 0.1], [0.1, 0.9]])
    from panstream.models.networks import BayesianNetwork

    domain = Domain({name: ["0", "1"] for name in "abcd"})
    chain = BayesianNetwork(domain, ((), (0,), (1,), (2,)), (np.array([0.5, 0.5]), flip, flip, flip))
    records = sample(chain, 5000, SeededSource(1))
    found = local_search(domain, exact_tables(records), 5000)
    joined = {frozenset((parent, child)) for child, family in enumerate(found) for parent in family}
    assert joined == {frozenset((0, 1)), frozenset((1, 2)), frozenset((2, 3))}
