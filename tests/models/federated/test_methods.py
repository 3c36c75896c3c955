from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate

from panstream.errors import InvalidParameter
from panstream.models.federated import (
    AverageScores,
    DistributedParameters,
    FederatedTree,
    Federation,
    GaussianSums,
    IndependentMarginals,
    MajorityVoting,
    NoisyModel,
    NoisyStatistics,
    analyst,
)
from panstream.models.federated import thesis_methods as thesis
from panstream.models.federated._answers import LocalModelAnswer, TablesAnswer
from panstream.models.federated._questions import CountTables
from panstream.models.federated.estimates import (
    _positive_part,
    posterior_pair,
    posterior_shares,
)
from panstream.models.federated.gaussian_methods import (
    _Edge,
    _equal_groups,
    _forest_network,
    _grouped_sums,
    _heaviest_forest,
)
from panstream.models.networks import Domain
from panstream.models.networks.structure_search import exact_tables, fit_tables, greedy
from tests.models.federated.common import RecordingSource, chain, deal

RECORDS = chain(6000)
DOMAIN = RECORDS.domain


def without_noise(method: object, records: object = RECORDS, holders: int = 3) -> object:
    parts = deal(records, holders, rng_factory=lambda: RecordingSource([]))  # type: ignore[arg-type]
    return method.run(Federation(records.domain, parts)).network  # type: ignore[attr-defined]


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("kind", [NoisyStatistics, MajorityVoting, AverageScores])
def test_without_noise_the_thesis_methods_learn_what_a_curator_would(kind: type, degree: int) -> None:
    expected = greedy(DOMAIN, exact_tables(RECORDS), degree)
    network = without_noise(kind(epsilon=1.0, degree=degree))
    assert network.parents == expected  # type: ignore[attr-defined]
    pooled = fit_tables(DOMAIN, expected, exact_tables(RECORDS))
    for one, other in zip(network.tables, pooled.tables, strict=True):  # type: ignore[attr-defined]
        np.testing.assert_allclose(one, other, atol=2e-3 if degree > 1 else 1e-12)


def test_without_noise_distributed_parameters_are_the_pooled_ones() -> None:
    parents = ((), (0,), (0, 1), (2,))
    network = without_noise(DistributedParameters(epsilon=1.0, parents=parents))
    pooled = fit_tables(DOMAIN, parents, exact_tables(RECORDS))
    for one, other in zip(network.tables, pooled.tables, strict=True):  # type: ignore[attr-defined]
        np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("method", [GaussianSums(epsilon=20.0), FederatedTree(epsilon=20.0), NoisyModel(epsilon=100.0)])
def test_with_little_noise_the_others_come_close_to_the_curator(method: object) -> None:
    best = fit_tables(DOMAIN, greedy(DOMAIN, exact_tables(RECORDS), 1), exact_tables(RECORDS)).cross_entropy(RECORDS)
    result = method.run(Federation(DOMAIN, deal(RECORDS, 3)))  # type: ignore[attr-defined]
    assert best - 0.01 < result.network.cross_entropy(RECORDS) < best + 0.03


def test_where_no_pair_could_stand_out_everything_goes_into_the_margins() -> None:
    holders = deal(RECORDS, 3, epsilon=0.001, delta=1e-6)
    result = FederatedTree(epsilon=0.001).run(Federation(DOMAIN, holders))
    assert result.facts == {"pairs": 0} and not result.network.edges
    assert holders[0].ledger.epsilon == pytest.approx(0.001, rel=1e-3)
    asked = FederatedTree(epsilon=0.001, margins=0.5).run(Federation(DOMAIN, deal(RECORDS, 3)))
    assert asked.facts["pairs"] >= 1


def test_under_heavy_noise_the_tree_drops_edges_instead_of_inventing_them() -> None:
    results = [FederatedTree(epsilon=0.01).run(Federation(DOMAIN, deal(RECORDS, 3))) for _ in range(5)]
    assert all(np.isfinite(each.network.cross_entropy(RECORDS)) for each in results)
    assert all(each.network.cross_entropy(RECORDS) < 9.0 for each in results)  # uniform: 5.17; invented structure: tens


def test_cutting_at_the_holders_biases_the_sums_upwards() -> None:
    """With negatives cut before summing every empty cell gains about half a noise scale per holder."""
    from panstream.models.federated._questions import Table

    federation = Federation(DOMAIN, deal(RECORDS.take(np.arange(30)), 10))
    table = [Table(attributes=(0, 1, 2, 3), budget=0.2)] * 3
    plain = federation.sums("laplace", table)
    cut = federation.sums("laplace", table, clip=True)
    assert abs(np.mean([each.mean() for each in plain.tables]) - 30 / 36) < 20
    assert np.mean([each.mean() for each in cut.tables]) > 40


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        NoisyStatistics(epsilon=1.0),
        MajorityVoting(epsilon=1.0),
        AverageScores(epsilon=1.0),
        DistributedParameters(epsilon=1.0, parents=((), (0,), (0,), (2,))),
    ],
    ids=lambda method: type(method).__name__,
)
def test_both_forms_of_the_thesis(method: object, clip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every holder says -5 and 7 in turn where it has no noise of its own: what is learned is the sum of 0 and 7, or
    of -5 and 7 cut at 0, and 1 in every cell.
    """
    said: list[np.ndarray] = []

    def draw(self: CountTables, statistics: object, rng: object) -> TablesAnswer:
        said.append(np.array([7 if len(said) % 2 else -5]))
        return TablesAnswer(tables=tuple(np.full(each.shape(DOMAIN), said[-1][0]) for each in self.tables))

    monkeypatch.setattr(CountTables, "draw", draw)
    monkeypatch.setattr(analyst, "check_totals", lambda *_: None)
    sums: list[np.ndarray] = []
    real = thesis.fit_tables
    monkeypatch.setattr(thesis, "fit_tables", lambda d, p, t: sums.append(np.maximum(t((0,)), 0)) or real(d, p, t))
    replace(method, clip_at_holder=clip).run(Federation(DOMAIN, deal(RECORDS, 4)))  # type: ignore[type-var]
    cell = 14 if clip else 4
    assert set(sums[-1].ravel()) <= {cell * DOMAIN.sizes[each] for each in range(len(DOMAIN))}


def test_a_local_model_is_cut_before_its_root_is_summed() -> None:
    domain = Domain({"a": ["0", "1"], "b": ["0", "1"]})
    joint = np.array([[30, -20], [5, 5]])
    model = LocalModelAnswer(parents=((), (0,)), tables=(joint.sum(axis=1), joint))
    after, before = (thesis._network(model, domain, clip=clip).tables[0] for clip in (False, True))
    np.testing.assert_allclose(after, np.array([11, 11]) / 22)
    np.testing.assert_allclose(before, np.array([31, 11]) / 42)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (NoisyStatistics, {"epsilon": 0.0}),
        (NoisyStatistics, {"epsilon": 1.0, "degree": 0}),
        (MajorityVoting, {"epsilon": 1.0, "split": 1.0}),
        (NoisyModel, {"epsilon": math.inf}),
        (AverageScores, {"epsilon": 1.0, "average": "mode"}),
        (GaussianSums, {"epsilon": 1.0, "delta": 0.0}),
        (FederatedTree, {"epsilon": 1.0, "delta": 1.0}),
        (FederatedTree, {"epsilon": 1.0, "margins": 0.6, "pairs": 0.4}),
        (FederatedTree, {"epsilon": 1.0, "margins": 1.5}),
        (IndependentMarginals, {"epsilon": -1.0}),
    ],
    ids=range(10),
)
def test_parameters_are_checked(kind: type, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        kind(**wrong)


def test_one_attribute_is_a_network_too() -> None:
    single = RECORDS.select([1])
    for method in (
        FederatedTree(epsilon=5.0),
        GaussianSums(epsilon=5.0),
        NoisyStatistics(epsilon=5.0),
        MajorityVoting(epsilon=5.0),
    ):
        network = method.run(Federation(single.domain, deal(single, 2))).network
        np.testing.assert_allclose(network.tables[0], np.bincount(single.codes[0]) / 6000, atol=0.02)


@pytest.mark.parametrize("shape", [0.25, 1.0])
@pytest.mark.parametrize("place", [-12.0, -3.0, -0.5, 0.0, 1.0, 4.0, 11.0])
def test_the_posterior_mean_against_quadrature(shape: float, place: float) -> None:
    top = -0.5 * min(place, 0) ** 2

    def moment(power: float) -> float:
        def density(log: float) -> float:
            count = math.exp(log)
            return math.exp((shape + power) * log - 0.5 * (count - place) ** 2 - top)

        return float(integrate.quad(density, -60, 4, limit=500, points=[-5, 0, math.log(max(place, 0.1))])[0])

    assert _positive_part(np.array([place]), shape)[0] == pytest.approx(moment(1) / moment(0), rel=2e-3)


def test_shares_add_up_keep_their_order_and_are_never_zero() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        noisy = rng.normal(0, 300, 12) + 1000 * rng.dirichlet(np.full(12, 0.3))
        shares = posterior_shares(noisy, 300.0, 1000)
        assert shares.sum() == pytest.approx(1.0)
        assert shares.min() > 0
        assert (np.argsort(shares) == np.argsort(noisy)).all()
    np.testing.assert_allclose(posterior_shares(np.array([300.0, 500, 200]), 0.01, 1000), [0.3, 0.5, 0.2], atol=1e-4)


def test_a_pair_keeps_its_margins_and_is_independent_where_the_noise_hides_it() -> None:
    rows = np.array([0.5, 0.3, 0.2])
    columns = np.array([0.6, 0.4])
    rng = np.random.default_rng(7)
    exact = np.array([[0.45, 0.05], [0.1, 0.2], [0.05, 0.15]])
    clear = posterior_pair(1e6 * exact, 10.0, rows, columns, 1e6)
    np.testing.assert_allclose(clear.joint, exact, atol=1e-3)
    np.testing.assert_allclose(clear.joint.sum(axis=1), rows)
    np.testing.assert_allclose(clear.joint.sum(axis=0), columns)
    hidden = [
        posterior_pair(1000 * np.outer(rows, columns) + rng.normal(0, 400, (3, 2)), 400.0, rows, columns, 1000)
        for _ in range(40)
    ]
    assert sum(each.evidence > 1.0 for each in hidden) < 12
    assert all(each.joint.min() > 0 for each in hidden)


def test_groups_are_neighbours_of_about_equal_shares() -> None:
    shares = np.array([0.1, 0.1, 0.5, 0.05, 0.05, 0.2])
    group = _equal_groups(shares, 3)
    assert group.tolist() == sorted(group.tolist())
    assert set(group) == set(range(group.max() + 1)) and group.max() <= 2
    assert _grouped_sums(shares, group).sum() == pytest.approx(1.0)
    assert _equal_groups(shares, 9).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_heaviest_forest_by_brute_force() -> None:
    import itertools

    rng = np.random.default_rng(3)
    for _ in range(20):
        weights = {pair: float(rng.random()) for pair in itertools.combinations(range(5), 2)}
        edges = [_Edge(one=a, two=b, weight=w, joint=np.ones((1, 1))) for (a, b), w in weights.items()]
        found = sum(edge.weight for edge in _heaviest_forest(5, edges))
        best = 0.0
        for chosen in itertools.combinations(weights, 4):
            reached = {0}
            for _ in range(4):
                reached |= {x for pair in chosen if reached & set(pair) for x in pair}
            best = max(best, sum(weights[pair] for pair in chosen)) if len(reached) == 5 else best
        assert found == pytest.approx(best)


def test_a_forest_network_has_the_joints_of_its_edges() -> None:
    domain = Domain({name: ["0", "1"] for name in "abcd"})
    joint = np.array([[0.4, 0.1], [0.2, 0.3]])
    margins = [joint.sum(axis=1), joint.sum(axis=0), joint.sum(axis=1), np.array([0.9, 0.1])]
    edges = [_Edge(one=0, two=1, weight=1.0, joint=joint), _Edge(one=2, two=1, weight=1.0, joint=joint)]
    network = _forest_network(domain, margins, edges)
    np.testing.assert_allclose(network.marginal((0, 1)), joint)
    np.testing.assert_allclose(network.marginal((2, 1)), joint)
    np.testing.assert_allclose(network.marginal((3,)), [0.9, 0.1])
    assert network.parents == ((), (0,), (1,), ())
