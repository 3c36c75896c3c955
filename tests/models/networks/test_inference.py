"""Posteriors and explanations against the joint distribution, and refusal of what would not fit in memory."""

import itertools
import math

import numpy as np
import pytest

from panstream.errors import InvalidParameter, NotSupported
from panstream.models.networks import (
    BayesianNetwork,
    Bins,
    Domain,
)
from tests.models.networks.models import joint, random_network

MODELS = [((2, 3, 2, 2), 1), ((3, 2, 2, 3, 2), 2), ((2, 2, 2, 2, 2), 3)]


def index(evidence: dict[int, int], count: int) -> tuple[int | slice, ...]:
    return tuple(evidence.get(at, slice(None)) for at in range(count))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("sizes", "degree"), MODELS)
def test_all_questions_of_small_networks(seed: int, sizes: tuple[int, ...], degree: int) -> None:
    network = random_network(seed, sizes, degree)
    full = joint(network)
    count = len(sizes)
    rng = np.random.default_rng(seed)
    for observed in itertools.chain.from_iterable(itertools.combinations(range(count), k) for k in range(3)):
        codes = {at: int(rng.integers(sizes[at])) for at in observed}
        evidence = {f"a{at}": f"v{code}" for at, code in codes.items()}
        rest = [at for at in range(count) if at not in codes]
        reduced = full[index(codes, count)]
        assert network.probability(evidence) == pytest.approx(float(reduced.sum()), rel=1e-12)
        for length in (1, 2):
            for wanted in itertools.permutations(rest, length):
                gone = tuple(axis for axis, at in enumerate(rest) if at not in wanted)
                expected = reduced.sum(axis=gone) / reduced.sum()
                if wanted != tuple(sorted(wanted)):
                    expected = expected.T
                answer = network.posterior([f"a{at}" for at in wanted], evidence)
                assert np.allclose(answer, expected, rtol=1e-11, atol=0)
        best = network.most_probable(evidence)
        assert 2.0**best.log_probability == pytest.approx(float(reduced.max()), rel=1e-12)
        chosen = {at: int(best.values[f"a{at}"][1:]) for at in rest}
        assert full[index({**codes, **chosen}, count)] == pytest.approx(float(reduced.max()), rel=1e-12)


def test_long_products_do_not_vanish() -> None:
    """A chain of 300 attributes, all observed at values of probability 1e-5 each."""
    count = 300
    domain = Domain({f"x{at}": ["rare", "common"] for at in range(count)})
    table = np.array([1e-5, 1 - 1e-5])
    chain = BayesianNetwork(
        domain,
        ((), *((at,) for at in range(count - 1))),
        (table, *(np.array([table, table]) for _ in range(count - 1))),
    )
    evidence = {f"x{at}": "rare" for at in range(1, count)}
    assert chain.log_probability(evidence) == pytest.approx((count - 1) * math.log2(1e-5), rel=1e-12)
    assert chain.posterior(["x0"], evidence) == pytest.approx(table)
    assert chain.most_probable(evidence).log_probability == pytest.approx(
        (count - 1) * math.log2(1e-5) + math.log2(1 - 1e-5), rel=1e-12
    )


def test_many_children_that_disagree_do_not_vanish() -> None:
    """600 observed children, half of them for each value of their parent: the posterior is the prior."""
    count = 600
    domain = Domain({f"x{at}": ["no", "yes"] for at in range(count + 1)})
    rows = [np.array([[1e-5, 1 - 1e-5], [2e-5, 1 - 2e-5]]), np.array([[2e-5, 1 - 2e-5], [1e-5, 1 - 1e-5]])]
    star = BayesianNetwork(
        domain, ((), *((0,) for _ in range(count))), (np.array([0.3, 0.7]), *(rows[at % 2] for at in range(count)))
    )
    evidence = {f"x{at}": "no" for at in range(1, count + 1)}
    assert star.posterior(["x0"], evidence) == pytest.approx([0.3, 0.7], rel=1e-9)
    exact = count / 2 * (math.log2(1e-5) + math.log2(2e-5))
    assert star.log_probability(evidence) == pytest.approx(exact, rel=1e-12)


def test_impossible_evidence_is_refused() -> None:
    network = random_network(3, (3, 3, 2), 1, zeros=True)
    assert network.probability({"a0": "v0"}) == 0.0
    assert network.log_probability({"a0": "v0"}) == -math.inf
    with pytest.raises(InvalidParameter, match="probability 0"):
        network.posterior(["a1"], {"a0": "v0"})
    with pytest.raises(InvalidParameter, match="probability 0"):
        network.most_probable({"a0": "v0"})


def test_numbers_are_evidence_for_bins() -> None:
    domain = Domain({"age": Bins([0, 18, 65, 120]), "code": ["1", "2"]})
    network = BayesianNetwork(
        domain, ((), (0,)), (np.array([0.25, 0.5, 0.25]), np.array([[1, 0], [0.5, 0.5], [0, 1.0]]))
    )
    assert network.posterior(["code"], {"age": 70}).tolist() == [0, 1]
    assert network.posterior(["code"], {"age": "[0, 18)"}).tolist() == [1, 0]
    assert network.posterior(["age"], {"code": 1}).tolist() == [0.5, 0.5, 0]
    with pytest.raises(InvalidParameter, match="inside its declared edges"):
        network.posterior(["code"], {"age": 121})


@pytest.mark.parametrize("wanted", [[], ["a0", "a0"], ["a1"]], ids=["none", "twice", "observed"])
def test_questions_are_checked(wanted: list[str]) -> None:
    with pytest.raises(InvalidParameter, match="attributes must be"):
        random_network(0, (2, 2), 1).posterior(wanted, {"a1": "v0"})
    with pytest.raises(InvalidParameter, match="no category"):
        random_network(0, (2, 2), 1).posterior(["a0"], {"a1": "zz"})


def test_a_factor_above_the_limit_is_refused_before_it_is_made() -> None:
    """A node with 12 parents of 8 values would need 8^13 cells."""
    wide = Domain({f"x{at}": [str(code) for code in range(8)] for at in range(30)})
    flat = np.full(8, 1 / 8)
    network = BayesianNetwork(wide, ((),) * 30, (flat,) * 30)
    with pytest.raises(NotSupported, match="above the limit"):
        network.posterior([f"x{at}" for at in range(13)])
    with pytest.raises(NotSupported, match="table of 64 cells, above the limit of 32"):
        network.posterior(["x0", "x1"], limit=32)
    grid = random_network(5, (4,) * 12, 3)
    with pytest.raises(NotSupported, match="lower degree"):
        grid.most_probable(limit=16)
