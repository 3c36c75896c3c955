"""Rows given what is known: against brute force over all records, for mixtures and networks of several parents."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from panstream.errors import InvalidParameter
from panstream.models.networks import (
    BayesianNetwork,
    Bins,
    ConditionedModel,
    Domain,
    Mixture,
    condition,
)
from panstream.primitives.noise import SeededSource

DOMAIN = Domain(
    {
        "sex": ["f", "m"],
        "age": Bins([0, 20, 40, 60, 80], whole=True, atoms=[99]),
        "visits": ["1", "2", "3"],
        "ill": ["no", "yes"],
    }
)


def model(kind: str) -> BayesianNetwork | Mixture:
    rng = np.random.default_rng(7)
    sizes = DOMAIN.sizes
    if kind.startswith("mixture"):
        tables = tuple(rng.dirichlet(np.ones(size), 3) for size in sizes)
        forest = model("tree") if kind == "mixture of forests" else None
        return Mixture(DOMAIN, rng.dirichlet(np.ones(3)), tables, forest)  # type: ignore[arg-type]
    parents: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (1, 2)) if kind == "two parents" else ((1,), (), (1,), (2,))
    tables = tuple(
        rng.dirichlet(np.ones(sizes[at]), tuple(sizes[each] for each in family)) for at, family in enumerate(parents)
    )
    return BayesianNetwork(DOMAIN, parents, tables)


def joint(found: BayesianNetwork | Mixture | ConditionedModel) -> np.ndarray:
    return found.marginal(tuple(range(4)))


KNOWN: list[tuple[dict[str, Any], dict[int, list[float]]]] = [
    ({"sex": "f"}, {0: [1, 0]}),
    ({"age": "40..65"}, {1: [0, 0, 1, 6 / 21, 0]}),
    ({"age": (40, 65)}, {1: [0, 0, 1, 6 / 21, 0]}),
    ({"age": "60.."}, {1: [0, 0, 0, 1, 1]}),
    ({"age": "..19", "ill": "yes"}, {1: [1, 0, 0, 0, 0], 3: [0, 1]}),
    ({"age": "99"}, {1: [0, 0, 0, 0, 1]}),
    ({"age": 25}, {1: [0, 1, 0, 0, 0]}),
    ({"age": "[20, 40)", "visits": "2..3"}, {1: [0, 1, 0, 0, 0], 2: [0, 1, 1]}),
]


@pytest.mark.parametrize("kind", ["mixture", "mixture of forests", "tree", "two parents"])
@pytest.mark.parametrize(("given", "weights"), KNOWN, ids=[str(given) for given, _ in KNOWN])
def test_the_model_is_what_brute_force_gives(kind: str, given: dict[str, Any], weights: dict[int, list[float]]) -> None:
    whole = joint(model(kind)).copy()
    for at, each in weights.items():
        whole *= np.array(each).reshape([-1 if axis == at else 1 for axis in range(4)])
    found = condition(model(kind), given)
    assert found.probability == pytest.approx(whole.sum(), rel=1e-12)
    np.testing.assert_allclose(joint(found), whole / whole.sum(), atol=1e-12)


@pytest.mark.parametrize("kind", ["mixture", "mixture of forests", "tree", "two parents"])
def test_all_rows_agree_with_what_is_given(kind: str) -> None:
    found = condition(model(kind), {"age": "40..65", "visits": "2..", "sex": "m"})
    with SeededSource(3) as rng:
        drawn = found.draw(500, rng).numeric_columns(rng, within=found.within)
    assert set(drawn["sex"]) == {"m"}
    assert set(drawn["visits"]) <= {2, 3}
    ages = [int(age) for age in drawn["age"]]  # type: ignore[call-overload]
    assert min(ages) >= 40
    assert max(ages) <= 65
    assert len(set(ages)) > 15
    exactly = condition(model(kind), {"age": 25})
    with SeededSource(3) as rng:
        drawn = exactly.draw(50, rng, independent=True).numeric_columns(rng, within=exactly.within)
    assert set(drawn["age"]) == {25}


def test_nothing_given_is_the_model_itself() -> None:
    for kind in ("mixture", "mixture of forests", "tree"):
        found = condition(model(kind), {})
        assert found.probability == pytest.approx(1.0)
        np.testing.assert_allclose(joint(found), joint(model(kind)))


@pytest.mark.slow
def test_parts_of_bins_are_counted_as_they_are_drawn() -> None:
    """covered against the share of evenly spaced draws that fall into the range."""
    shares = (np.arange(40_000) + 0.5) / 40_000
    for bins in (
        Bins([0, 20, 40]),
        Bins([0, 20, 40], whole=True),
        Bins([1, 10, math.inf], tail=10_000),
        Bins(["2023-01-01", "2023-03-01", "2023-12-31"], dates=True),
    ):
        low = bins.edges[0]
        high = min(bins.edges[-1], 10_000.0)
        for first, last in itertools.combinations(np.linspace(low, high, 7).round(), 2):
            found = bins.covered((first, last))
            for code in range(bins.count):
                drawn = bins.sample_values(np.full(shares.size, code), shares)
                numbers = np.array([bins.number(each) for each in drawn])
                inside = ((numbers >= first) & (numbers <= last)).mean()
                assert found[code] == pytest.approx(inside, abs=1e-3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sex": "x"}, "it has f, m"),
        ({"age": "old"}, "a range such as"),
        ({"age": "65..40"}, "begin before it ends"),
        ({"age": 200}, "inside its declared edges"),
        ({"age": "90..95"}, "probability of 0 under the model"),
        ({"weight": "3"}, "no attribute"),
    ],
)
def test_what_cannot_be_given_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        condition(model("tree"), given)


def test_evidence_that_hardly_ever_happens_is_refused() -> None:
    domain = Domain({"a": ["x", "y"], "b": ["x", "y"]})
    rare = BayesianNetwork(domain, ((), ()), (np.array([1 - 1e-5, 1e-5]), np.array([1 - 9e-5, 9e-5])))
    with pytest.raises(InvalidParameter, match="probability of 9e-10"):
        condition(rare, {"a": "y", "b": "y"})
    assert condition(rare, {"a": "y"}).probability == pytest.approx(1e-5)
