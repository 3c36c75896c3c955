"""Mixtures of products: answers against enumeration of the joint table, files, drawing, and the fit to tables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.errors import InvalidBytes, InvalidParameter, NotSupported
from panstream.models.networks import (
    BayesianNetwork,
    Domain,
    Mixture,
    Records,
    balanced_sample,
    from_bif,
    sample,
    to_bif,
)
from panstream.models.networks._measurements import MeasuredTables, other_half
from panstream.models.networks._mixture_fit import fit_mixture, product_mixture, try_mixture
from panstream.models.networks._tilted_forest import TiltedForest
from panstream.models.networks.serialization import from_json, to_json
from panstream.models.networks.svg import to_svg
from panstream.primitives.noise import SeededSource

SIZES = (2, 3, 4)
DOMAIN = Domain({name: [f"{name}{at}" for at in range(size)] for name, size in zip("abc", SIZES, strict=True)})


def random_mixture(components: int = 5, seed: int = 0) -> Mixture:
    draws = np.random.default_rng(seed)
    tables = tuple(draws.dirichlet(np.full(size, 0.7), components) for size in SIZES)
    return Mixture(DOMAIN, draws.dirichlet(np.ones(components)), tables)


def with_forest(components: int = 5, seed: int = 0) -> Mixture:
    """A mixture of forests a → c, b alone."""
    draws = np.random.default_rng(seed + 1)
    plain = random_mixture(components, seed)
    tables = (draws.dirichlet(np.ones(2)), draws.dirichlet(np.ones(3)), draws.dirichlet(np.ones(4), 2))
    return Mixture(DOMAIN, plain.weights, plain.tables, BayesianNetwork(DOMAIN, ((), (), (0,)), tables))


def joint(mixture: Mixture) -> NDArray[np.float64]:
    """Multiply everything out, one component at a time."""
    total = np.zeros(SIZES)
    for weight, a, b, c in zip(mixture.weights, *mixture.tables, strict=True):
        if mixture.forest is None:
            total += weight * a[:, None, None] * b[None, :, None] * c[None, None, :]
            continue
        first, second, third = mixture.forest.tables
        a = first * a / (first @ a)
        b = second * b / (second @ b)
        given = third * c
        given = given / given.sum(axis=1, keepdims=True)
        total += weight * a[:, None, None] * b[None, :, None] * given[:, None, :]
    return total


BOTH = pytest.mark.parametrize("mixture", [random_mixture(), with_forest()], ids=["products", "forests"])


@BOTH
def test_answers_equal_those_of_the_joint_table(mixture: Mixture) -> None:
    whole = joint(mixture)
    for wanted in [(0,), (2, 0), (1, 2), (2, 1, 0)]:
        others = tuple(at for at in range(3) if at not in wanted)
        order = np.argsort(np.argsort(wanted))
        assert np.allclose(mixture.marginal(wanted), whole.sum(axis=others).transpose(order), atol=1e-14)
    given = whole[1].sum(axis=1) / whole[1].sum()
    assert np.allclose(mixture.posterior(["b"], {"a": "a1"}), given, atol=1e-14)
    assert math.isclose(mixture.probability({"a": "a0", "c": "c3"}), whole[0, :, 3].sum(), rel_tol=1e-12)
    codes = np.array(list(itertools.product(*map(range, SIZES))), np.uint16).T
    assert np.allclose(mixture.log_likelihoods(Records(DOMAIN, codes)), np.log2(whole.reshape(-1)), atol=1e-12)


@BOTH
def test_the_network_with_its_component_is_the_same_distribution(mixture: Mixture) -> None:
    network = mixture.with_component()
    assert network.domain.names == ("component", "a", "b", "c")
    assert np.allclose(network.marginal((1, 2, 3)), joint(mixture), atol=1e-14)
    assert np.allclose(from_bif(to_bif(mixture)).marginal((1, 2, 3)), joint(mixture), atol=1e-12)
    clash = Domain({"component": ["x", "y"], "b": ["x", "y"]})
    table = np.array([[0.5, 0.5]])
    assert Mixture(clash, np.ones(1), (table, table)).with_component().domain.names[0] == "component_"


@BOTH
def test_the_nearest_tree_has_the_mixtures_own_tables(mixture: Mixture) -> None:
    tree = mixture.nearest_tree()
    assert len(tree.edges) == 2
    for parent, child in tree.edges:
        assert np.allclose(tree.marginal((parent, child)), mixture.marginal((parent, child)), atol=1e-12)
    assert to_svg(mixture) == to_svg(tree)


@BOTH
def test_a_mixture_survives_its_file_to_the_last_bit(mixture: Mixture) -> None:
    text = to_json(mixture, {"note": "public"})
    back = from_json(text)
    assert isinstance(back, Mixture)
    assert to_json(back, {"note": "public"}) == text
    with pytest.raises(InvalidBytes):
        from_json(text.replace('"weights"', '"masses"'))


@BOTH
@pytest.mark.parametrize("draw", [sample, balanced_sample])
def test_drawn_records_have_the_mixtures_distribution(draw: object, mixture: Mixture) -> None:
    # 24 cells, 200,000 rows: a cell is off by 5.5 standard deviations with probability below 1e-6 in all
    rows = 200_000
    with SeededSource(3) as rng:
        drawn = draw(mixture, rows, rng)  # type: ignore[operator]
    assert drawn.domain == DOMAIN
    found = np.zeros(SIZES)
    np.add.at(found, tuple(drawn.codes.astype(np.int64)), 1.0 / rows)
    truth = joint(mixture)
    assert (np.abs(found - truth) <= 5.5 * np.sqrt(truth / rows) + 1e-6).all()


def test_what_does_not_fit_is_refused() -> None:
    table = np.array([[0.5, 0.5]])
    with pytest.raises(InvalidParameter, match="weights"):
        Mixture(DOMAIN.select([0]), np.ones((1, 1)), (table,))
    with pytest.raises(InvalidParameter, match="sum to 1"):
        Mixture(DOMAIN.select([0]), np.ones(2), (np.vstack([table, table]),))
    for mixture in (random_mixture(), with_forest()):
        with pytest.raises(NotSupported, match="cells"):
            mixture.posterior(["a", "b", "c"], limit=8)
    plain = random_mixture()
    two = BayesianNetwork(DOMAIN, ((), (), (0, 1)), (np.ones(2) / 2, np.ones(3) / 3, np.full((2, 3, 4), 0.25)))
    with pytest.raises(InvalidParameter, match="at most one parent"):
        Mixture(DOMAIN, plain.weights, plain.tables, two)
    with pytest.raises(InvalidParameter, match="same domain"):
        Mixture(DOMAIN, plain.weights, plain.tables, two.__class__(DOMAIN.select([0]), ((),), (np.ones(2) / 2,)))
    pair = Domain({"a": ["0", "1"], "b": ["0", "1"]})
    sure = np.array([1.0, 0.0])
    forest = BayesianNetwork(pair, ((), (0,)), (np.ones(2) / 2, np.array([[1.0, 0.0], [0.0, 1.0]])))
    with pytest.raises(InvalidParameter, match="possible category"):
        Mixture(pair, np.ones(1), (sure[None], sure[None]), forest)


def measured(mixture: Mixture, spread: float, draws: np.random.Generator | None = None) -> MeasuredTables:
    sizes = np.array(mixture.domain.sizes)
    parts = np.concatenate(mixture.tables, axis=1)
    ones = mixture.weights @ parts
    pairs = parts.T @ (mixture.weights[:, None] * parts)
    block = np.repeat(np.arange(len(sizes)), sizes)
    between = block[:, None] != block[None, :]
    if draws is not None:
        noise = np.triu(draws.normal(0, spread, pairs.shape), 1)
        ones = ones + draws.normal(0, spread, ones.shape)
        pairs = pairs + noise + noise.T
    return MeasuredTables(tuple(sizes), ones, np.full(ones.size, spread**-2), pairs * between, between * spread**-2)


def test_tables_and_gradient_of_tilted_forests() -> None:
    """A chain with a branch and a tree of its own, against the joint table and against finite differences."""
    draws = np.random.default_rng(3)
    sizes = [2, 3, 2, 4, 3, 2]
    parents = [None, 0, 1, 1, None, 4]
    tables = [draws.dirichlet(np.ones(c), () if p is None else sizes[p]) for c, p in zip(sizes, parents, strict=True)]
    shape = TiltedForest(sizes, parents, tables)
    weights = draws.dirichlet(np.ones(3))
    tilts = draws.normal(size=(3, sum(sizes)))
    domain = Domain({f"x{at}": [str(code) for code in range(size)] for at, size in enumerate(sizes)})
    forest = BayesianNetwork(domain, tuple(() if p is None else (p,) for p in parents), tuple(tables))
    rows = [np.exp(tilts[:, block]) for block in shape.blocks]
    mixture = Mixture(domain, weights, tuple(each / each.sum(axis=1, keepdims=True) for each in rows), forest)
    found = shape.tables(weights, tilts)
    for one, other in itertools.combinations(range(6), 2):
        got = found.pairs[shape.blocks[one], shape.blocks[other]]
        assert np.allclose(got, mixture.marginal((one, other)), atol=1e-12)
    block = np.repeat(np.arange(6), sizes)
    pull = np.triu(draws.normal(size=found.pairs.shape), 1) * (block[:, None] != block[None, :])
    slope = pull + pull.T
    single = draws.normal(size=found.ones.size)

    def value(weights: NDArray[np.float64], tilts: NDArray[np.float64]) -> float:
        at = shape.tables(weights, tilts)
        return float(single @ at.ones + np.vdot(pull, at.pairs))

    by_weight, by_tilt = shape.gradient(found, single, slope)
    for row, column in itertools.product(range(3), range(sum(sizes))):
        step = np.zeros_like(tilts)
        step[row, column] = 1e-6
        assert math.isclose(
            (value(weights, tilts + step) - value(weights, tilts - step)) / 2e-6, by_tilt[row, column], abs_tol=1e-8
        )
    for row in range(3):
        step = 1e-6 * np.eye(3)[row]
        assert math.isclose(
            (value(weights + step, tilts) - value(weights - step, tilts)) / 2e-6, by_weight[row], abs_tol=1e-8
        )


def test_thinned_parts_are_independent() -> None:
    """Over 20,000 draws the correlation of both parts is 0; beyond 5/sqrt(20000) with probability below 1e-6."""
    draws = np.random.default_rng(5)
    sd = 0.02
    true = 0.3
    whole = true + sd * draws.normal(size=20_000)
    size = whole.size
    tables = MeasuredTables((size,), whole, np.full(size, sd**-2), np.zeros((1, 1)), np.zeros((1, 1)))
    with SeededSource(5) as rng:
        part, _ = tables.thinned(rng)
    other = other_half(whole, part)
    assert abs(np.corrcoef(part, other)[0, 1]) < 5 / math.sqrt(size)
    assert abs(other.mean() - true) < 5 * sd * math.sqrt(5 / size)


def test_exact_tables_are_fitted_closely_and_noisy_ones_closer_than_their_noise() -> None:
    mixture = random_mixture()
    truth = [mixture.marginal(pair) for pair in itertools.combinations(range(3), 2)]
    distances = []
    for spread, draws in ((1e-4, None), (0.02, np.random.default_rng(2))):
        tables = measured(mixture, spread, draws)
        with SeededSource(7) as rng:
            halves = [tables.thinned(rng) for _ in range(4)]
            trial = try_mixture(tables, halves, [product_mixture(tables, half[0]) for half in halves], rng)
            shape = product_mixture(tables, tables.ones)
            weights, tilts = fit_mixture(tables, shape, trial.steps, rng)
        parts = [np.exp(logs) * tilt for logs, tilt in zip(shape.logs, tilts, strict=True)]
        fitted = Mixture(DOMAIN, weights, tuple(each / each.sum(axis=1, keepdims=True) for each in parts))
        found = [fitted.marginal(pair) for pair in itertools.combinations(range(3), 2)]
        distances.append(np.mean([0.5 * np.abs(a - b).sum() for a, b in zip(truth, found, strict=True)]))
    assert distances[0] < 0.02  # what the finish mixes in
    noise_alone = np.mean([0.5 * 0.02 * math.sqrt(2 / math.pi) * a.size for a in truth])
    assert distances[1] < 0.8 * noise_alone


def test_a_network_is_not_a_mixture() -> None:
    assert not isinstance(random_mixture().with_component(), Mixture)
    assert isinstance(random_mixture().nearest_tree(), BayesianNetwork)
