"""Belief propagation against the whole joint table; the forest fitted to noisy tables against a general optimiser."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from panstream.errors import InvalidParameter
from panstream.models.networks import Domain
from panstream.models.networks.forest_fit import Forest, fit_forest, forest_from_edges
from panstream.models.networks.noisy_tables import NoisyTable, posterior_mean_counts, project_to_simplex

EDGES = [
    (),
    ((0, 1),),
    ((0, 1), (1, 2), (2, 3)),
    ((3, 0), (3, 1), (3, 2)),
    ((2, 0), (3, 1)),
]
SIZES = (2, 3, 2, 4)


def whole(forest: Forest, nodes: list[NDArray[np.float64]], pairs: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    joint = np.zeros(forest.sizes)
    for cell in itertools.product(*map(range, forest.sizes)):
        joint[cell] = sum(node[cell[at]] for at, node in enumerate(nodes))
        joint[cell] += sum(pair[cell[i], cell[j]] for (i, j), pair in zip(forest.edges, pairs, strict=True))
    joint = np.exp(joint - joint.max())
    return joint / joint.sum()


def margin(joint: NDArray[np.float64], keep: tuple[int, ...]) -> NDArray[np.float64]:
    rest = tuple(at for at in range(joint.ndim) if at not in keep)
    table = joint.sum(axis=rest)
    return table if keep == tuple(sorted(keep)) else table.T


@pytest.mark.parametrize("edges", EDGES, ids=str)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_two_sweeps_give_the_marginals_of_the_joint_table(edges: tuple[tuple[int, int], ...], scale: float) -> None:
    rng = np.random.default_rng(len(edges))
    forest = forest_from_edges(SIZES, edges)
    nodes = [rng.normal(0, scale, size) for size in SIZES]
    pairs = [rng.normal(0, scale, (SIZES[i], SIZES[j])) for i, j in edges]
    joint = whole(forest, nodes, pairs)
    ones, twos = forest.marginals(nodes, pairs)
    for at, one in enumerate(ones):
        np.testing.assert_allclose(one, margin(joint, (at,)), atol=1e-12)
    for edge, two in zip(edges, twos, strict=True):
        np.testing.assert_allclose(two, margin(joint, edge), atol=1e-12)


def test_long_stars_do_not_vanish() -> None:
    sizes = (2,) * 200
    forest = forest_from_edges(sizes, [(0, at) for at in range(1, 200)])
    tie = np.array([[0.0, -250.0], [-250.0, 0.0]])
    ones, twos = forest.marginals([np.array([0.0, 1.0])] * 200, [tie] * 199)
    assert all(np.isfinite(one).all() for one in ones)
    assert all(np.isfinite(two).all() for two in twos)


@pytest.mark.parametrize("edges", [((0, 1), (1, 2), (2, 0)), ((1, 1),), ((0, 7),), ((0, 1), (1, 0))], ids=str)
def test_what_is_not_a_forest_is_refused(edges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidParameter):
        forest_from_edges(SIZES, edges)


def domain() -> Domain:
    return Domain({f"a{at}": [str(value) for value in range(size)] for at, size in enumerate(SIZES)})


def test_exact_tables_of_a_tree_give_the_tree_back() -> None:
    rng = np.random.default_rng(3)
    edges = ((1, 0), (1, 2), (2, 3))
    truth = whole(
        forest_from_edges(SIZES, edges),
        [np.zeros(s) for s in SIZES],
        [rng.normal(0, 1, (SIZES[i], SIZES[j])) for i, j in edges],
    )
    tables = [NoisyTable(edge, 1e6 * margin(truth, edge), 0.0) for edge in edges]
    tables += [NoisyTable((at,), 1e6 * margin(truth, (at,)), 0.0) for at in range(4)]
    network = fit_forest(domain(), 10**6, tables, iterations=1500)
    np.testing.assert_allclose(network.joint(), truth, atol=2e-4)


@pytest.mark.parametrize("laplace", [False, True])
def test_the_fit_is_the_optimum_a_general_optimiser_finds(laplace: bool) -> None:
    """Two attributes: minimise the stated objective over the simplex directly."""
    rng = np.random.default_rng(11)
    small = Domain({"a": ["x", "y"], "b": ["u", "v", "w"]})
    two = np.array([[300.0, 40.0, -25.0], [10.0, 200.0, 120.0]]) + rng.normal(0, 20, (2, 3))
    one = np.array([330.0, 310.0])
    # Strong enough to count as such
    n = 640
    s1 = 70.0
    s2 = 40.0
    shrinkage = 1.0

    def misfit(gap: NDArray[np.float64], sd: float) -> float:
        b = sd / math.sqrt(2.0)
        return float((np.sqrt(gap**2 + b**2) / b - 1.0).sum() if laplace else (gap**2).sum() / (2 * sd**2))

    def objective(theta: NDArray[np.float64]) -> float:
        p = np.exp(theta - theta.max())
        p = (p / p.sum()).reshape(2, 3)
        rows = p.sum(1)
        columns = p.sum(0)
        fit = misfit(n * p - two, s2) + misfit(n * rows - one, s1)
        return float(fit + shrinkage * 2 * (p * np.log(p / np.outer(rows, columns))).sum())

    best = min((optimize.minimize(objective, rng.normal(0, 1, 6), tol=1e-10) for _ in range(3)), key=lambda r: r.fun)
    p = np.exp(best.x - best.x.max())
    tables = [NoisyTable((0, 1), two, s2, laplace), NoisyTable((0,), one, s1, laplace)]
    network = fit_forest(small, n, tables, shrinkage=shrinkage, smoothing=0.0, iterations=5000)
    np.testing.assert_allclose(network.joint(), (p / p.sum()).reshape(2, 3), atol=3e-3)


def test_equal_tables_are_averaged_and_axes_may_be_swapped() -> None:
    counts = np.array([[30.0, 10.0, 5.0], [5.0, 40.0, 10.0]])
    small = Domain({"a": ["x", "y"], "b": ["u", "v", "w"]})
    plain = fit_forest(small, 100, [NoisyTable((0, 1), counts, 1.0)])
    split = fit_forest(small, 100, [NoisyTable((0, 1), counts + 2, 2**0.5), NoisyTable((1, 0), counts.T - 2, 2**0.5)])
    np.testing.assert_allclose(plain.joint(), split.joint(), atol=1e-9)


def test_hopeless_noise_fades_into_independence_and_nothing_is_impossible() -> None:
    rng = np.random.default_rng(5)
    wide = Domain({"a": [str(v) for v in range(12)], "b": [str(v) for v in range(12)]})
    noise = 1000.0
    tables = [NoisyTable((0,), rng.permutation(np.arange(12) * 15.0), 3.0), NoisyTable((1,), np.full(12, 82.5), 3.0)]
    tables += [NoisyTable((0, 1), rng.normal(0, noise, (12, 12)), noise)]
    joint = fit_forest(wide, 990, tables).joint()
    product = np.outer(joint.sum(1), joint.sum(0))
    assert 0.5 * np.abs(joint - product).sum() < 0.2
    assert joint.min() > 0


def test_projection_is_the_nearest_point_and_expectation_its_smooth_twin() -> None:
    rng = np.random.default_rng(2)
    for size in (1, 2, 7):
        counts = rng.normal(1 / size, 0.5, size)
        found = project_to_simplex(counts)
        assert found.sum() == pytest.approx(1.0)
        assert found.min() >= 0
        for _ in range(200):
            other = rng.dirichlet(np.ones(size))
            assert ((found - counts) ** 2).sum() <= ((other - counts) ** 2).sum() + 1e-12
        np.testing.assert_allclose(posterior_mean_counts(counts, 1e-9), found, atol=1e-6)
        smooth = posterior_mean_counts(counts, 0.3)
        assert smooth.sum() == pytest.approx(1.0)
        assert smooth.min() > 0


def test_expectation_is_that_of_truncated_normals() -> None:
    from scipy.stats import truncnorm

    counts = np.array([3.0, -2.0, 0.5, -90.0])
    sigma = 1.5
    found = posterior_mean_counts(counts, sigma, total=2.0)
    threshold = optimize.brentq(
        lambda t: truncnorm.mean(-(counts - t) / sigma, np.inf, counts - t, sigma).sum() - 2.0, -5, 20
    )
    np.testing.assert_allclose(
        found, truncnorm.mean(-(counts - threshold) / sigma, np.inf, counts - threshold, sigma), rtol=1e-4
    )


def test_bad_tables_are_named() -> None:
    small = Domain({"a": ["x", "y"], "b": ["u", "v", "w"]})
    with pytest.raises(InvalidParameter, match="one or two attributes"):
        fit_forest(small, 10, [NoisyTable((), np.float64(3.0), 1.0)])
    with pytest.raises(InvalidParameter, match="domain's shape"):
        fit_forest(small, 10, [NoisyTable((0, 1), np.zeros((3, 2)), 1.0)])
    with pytest.raises(InvalidParameter, match="sigma must be"):
        NoisyTable((0,), np.zeros(2), math.nan)
    with pytest.raises(InvalidParameter, match="one axis"):
        NoisyTable((0,), np.zeros((2, 2)), 1.0)
    with pytest.raises(InvalidParameter, match="records must be at least 1"):
        fit_forest(small, 0, [])
