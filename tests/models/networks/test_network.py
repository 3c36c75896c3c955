"""Every figure of a network against the joint distribution multiplied out record by record."""

import itertools
import json
import math
import runpy
from pathlib import Path

import numpy as np
import pytest

from panstream.errors import InvalidParameter, NotSupported
from panstream.models.networks import BayesianNetwork, Domain, Records, seven_attributes
from panstream.models.networks.network import topological_order
from panstream.models.networks.structure_search import _conditional
from tests.models.networks.models import bits, joint, random_network

ROOT = Path(__file__).parents[3]
MODELS = [
    (seed, sizes, degree)
    for seed, (sizes, degree) in enumerate([((2, 3, 2, 2), 1), ((3, 2, 4, 2, 2), 2), ((2,) * 6, 3), ((5,), 0)])
]


def all_records(network: BayesianNetwork) -> Records:
    codes = np.array(list(itertools.product(*map(range, network.domain.sizes))), np.uint16).T
    return Records(network.domain, codes)


@pytest.mark.parametrize(("seed", "sizes", "degree"), MODELS)
def test_figures_against_the_joint(seed: int, sizes: tuple[int, ...], degree: int) -> None:
    network = random_network(seed, sizes, degree)
    other = random_network(seed + 100, sizes, degree)
    full = joint(network)
    foreign = joint(other)
    assert np.allclose(network.joint(), full, rtol=1e-12, atol=0)
    assert network.entropy() == pytest.approx(bits(full), rel=1e-12)
    assert other.cross_entropy_from(network) == pytest.approx(float(-(full * np.log2(foreign)).sum()), rel=1e-12)
    assert network.cross_entropy_from(network) == pytest.approx(network.entropy(), rel=1e-12)
    logs = network.log_likelihoods(all_records(network)).reshape(sizes)
    assert np.allclose(logs, np.log2(full), rtol=1e-12)
    assert network.cross_entropy(all_records(network)) == pytest.approx(-np.log2(full).mean(), rel=1e-12)
    for attributes in itertools.permutations(range(len(sizes)), min(2, len(sizes))):
        rest = tuple(at for at in range(len(sizes)) if at not in attributes)
        expected = full.sum(axis=rest)
        expected = expected if attributes == tuple(sorted(attributes)) else expected.T
        assert np.allclose(network.marginal(attributes), expected, rtol=1e-11, atol=1e-300)


def test_impossible_records_cost_infinitely_many_bits() -> None:
    network = random_network(3, (3, 3, 2), 1, zeros=True)
    records = all_records(network)
    impossible = (records.codes[0] == 0) | (records.codes[1] == 0)
    assert np.array_equal(np.isneginf(network.log_likelihoods(records)), impossible)
    assert network.cross_entropy(records) == math.inf
    assert network.entropy() == pytest.approx(bits(joint(network)), rel=1e-12)
    assert random_network(3, (3, 3, 2), 1).cross_entropy_from(network) < math.inf
    assert network.cross_entropy_from(random_network(3, (3, 3, 2), 1)) == math.inf


def test_the_published_network_is_what_it_says() -> None:
    network = seven_attributes()
    assert network.domain.sizes == (2, 2, 2, 2, 2, 2, 3)
    assert f"{network.entropy():.2f}" == "5.12"
    assert network.entropy() == pytest.approx(bits(joint(network)), rel=1e-12)
    assert network.degree == 1
    assert network.parameters == 1 + 5 * 2 + 4


def test_the_published_network_is_frozen() -> None:
    """Methods are compared on it, so it may not change; the script that made it still makes the same."""
    text = (ROOT / "src" / "panstream" / "models" / "networks" / "seven_attributes.json").read_text()
    assert json.loads(text)["sha256"] == "74ff79d590b65b30cdda247797f9ab5da39e79b11180b33ce09473b0764ae82c"
    script = runpy.run_path(str(ROOT / "tools" / "seven_attributes.py"))
    made = script["build"](script["solve"](), decimals=4)
    for one, other in zip(made.tables, seven_attributes().tables, strict=True):
        assert np.array_equal(one, other)


def test_structures_are_checked() -> None:
    domain = Domain({"a": ["0", "1"], "b": ["0", "1"]})
    half = np.array([0.5, 0.5])
    rows = np.full((2, 2), 0.5)
    with pytest.raises(InvalidParameter, match="cycle"):
        BayesianNetwork(domain, ((1,), (0,)), (rows, rows))
    with pytest.raises(InvalidParameter, match="one entry for each"):
        BayesianNetwork(domain, ((),), (half,))
    with pytest.raises(InvalidParameter, match="shape"):
        BayesianNetwork(domain, ((), (0,)), (half, half))
    with pytest.raises(InvalidParameter, match="sum to 1"):
        BayesianNetwork(domain, ((), ()), (half, np.array([0.5, 0.4])))
    with pytest.raises(InvalidParameter, match="probabilities"):
        BayesianNetwork(domain, ((), ()), (half, np.array([1.5, -0.5])))
    with pytest.raises(InvalidParameter, match="probabilities"):
        BayesianNetwork(domain, ((), ()), (half, np.array([np.nan, 1.0])))
    for parents in (((0,), ()), ((2,), ()), ((1, 1), ())):
        with pytest.raises(InvalidParameter, match="other attributes"):
            topological_order(parents)
    network = BayesianNetwork(domain, ((1,), ()), (rows, half))
    assert network.order == (1, 0)
    assert network.edges == ((1, 0),)
    with pytest.raises(ValueError, match="read-only"):
        network.tables[0][0, 0] = 1.0
    with pytest.raises(InvalidParameter, match="same domain"):
        network.cross_entropy_from(random_network(0, (2, 2), 1))
    with pytest.raises(InvalidParameter, match="at least one record"):
        network.cross_entropy(Records(domain, np.zeros((2, 0), np.uint16)))
    with pytest.raises(InvalidParameter, match="distinct"):
        network.marginal((0, 0))
    with pytest.raises(NotSupported, match="cells"):
        random_network(0, (8,) * 8, 1).joint()


def test_smoothing_is_by_the_cell() -> None:
    counts = np.array([[3.0, -2.0, 0.0], [0.0, 0.0, 0.0]])
    assert _conditional(counts).tolist() == [[4 / 6, 1 / 6, 1 / 6], [1 / 3, 1 / 3, 1 / 3]]
    assert _conditional(counts, 0).tolist() == [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]]
    with pytest.raises(InvalidParameter, match="pseudocount"):
        _conditional(counts, -1)
