"""Balanced records: expected counts up to rounding, the right law on average, and numbers inside their bins."""

import numpy as np
import pytest

from panstream.errors import InvalidParameter
from panstream.models.networks import BayesianNetwork, Bins, Domain, Records, balanced_sample, compare, contingency
from panstream.primitives.noise import NoiseSource, SeededSource
from tests.statistical import assert_rate


def network() -> BayesianNetwork:
    domain = Domain({"a": ["x", "y"], "b": ["u", "v", "w"], "c": ["0", "1"]})
    a = np.array([0.3, 0.7])
    b = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    c = np.linspace(0.1, 0.9, 6).reshape(2, 3)
    return BayesianNetwork(domain, ((), (0,), (0, 1)), (a, b, np.stack([c, 1 - c], axis=-1)))


@pytest.mark.parametrize("size", [1, 7, 1000, 20_001])
def test_every_group_has_its_expected_counts_up_to_one(size: int) -> None:
    model = network()
    with NoiseSource() as rng:
        records = balanced_sample(model, size, rng)
    for child, family in enumerate(model.parents):
        counts = contingency(records, (*family, child)).reshape(-1, model.domain.sizes[child])
        wanted = counts.sum(1, keepdims=True) * model.tables[child].reshape(counts.shape)
        assert np.abs(counts - wanted).max() < 1 + 1e-6
    assert contingency(records, (0, 1))[0, 2] == 0


@pytest.mark.slow
def test_one_record_alone_has_the_law_of_the_network() -> None:
    model = network()
    hits = 0
    trials = 3000
    with NoiseSource() as rng:
        for _ in range(trials):
            codes = balanced_sample(model, 3, rng).codes[:, 1]
            hits += bool(codes[0] == 1 and codes[1] == 2)
    assert_rate(hits, trials, 0.7 * 0.7, "one of three records")


def test_attributes_without_an_edge_are_not_tied_by_the_order_of_rows() -> None:
    domain = Domain({"a": ["x", "y"], "b": ["x", "y"]})
    model = BayesianNetwork(domain, ((), ()), (np.array([0.5, 0.5]), np.array([0.5, 0.5])))
    with SeededSource(6) as rng:
        table = contingency(balanced_sample(model, 40_000, rng), (0, 1))
    assert np.abs(table - 10_000).max() < 500


def test_nothing_and_less_than_nothing() -> None:
    with NoiseSource() as rng:
        assert len(balanced_sample(network(), 0, rng)) == 0
        with pytest.raises(InvalidParameter, match="size must be nonnegative"):
            balanced_sample(network(), -1, rng)


def test_numbers_come_from_their_bins() -> None:
    edges = [0.0, 18.0, 65.0, 120.0]
    domain = Domain(
        {"age": Bins(edges, whole=True), "dose": Bins([0.5, 1.5, float("inf")]), "sex": ["f", "m"]}, missing=["age"]
    )
    numpy_rng = np.random.default_rng(0)
    codes = np.array([numpy_rng.integers(0, size, 2000) for size in (4, 2, 2)], np.uint16)
    records = Records(domain, codes)
    with NoiseSource() as rng:
        columns = records.numeric_columns(rng)
    assert columns["age"].count(None) == int((codes[0] == 3).sum())
    assert all(isinstance(age, int) for age in columns["age"] if age is not None)
    again = Records.read(columns, domain)
    assert (again.codes == records.codes).all()
    assert set(columns["dose"]) > {1.5}


def test_numbers_are_spread_evenly_over_their_bin() -> None:
    """4,000 numbers from 0 to 8: all different, an eighth in each unit."""
    records = Records(Domain({"dose": Bins([0.0, 8.0])}), np.zeros((1, 4000), np.uint16))
    with NoiseSource() as rng:
        dose = np.array(records.numeric_columns(rng)["dose"], float)
    assert len(set(dose.tolist())) > 3990
    for count in np.bincount(dose.astype(int), minlength=8).tolist():
        assert_rate(count, 4000, 1 / 8, "numbers in an eighth of the bin")


def test_comparison_is_half_the_l1_distance() -> None:
    domain = Domain({"a": ["x", "y"], "b": ["u", "v"]})
    one = Records(domain, np.array([[0, 0, 1, 1], [0, 1, 0, 1]], np.uint16))
    other = Records(domain, np.array([[0, 0, 1, 1], [0, 0, 1, 1]], np.uint16))
    found = compare(one, other)
    assert found.one_way == {"a": 0.0, "b": 0.0}
    assert found.two_way == {("a", "b"): 0.5}
    assert found.mean_two_way == 0.5
    assert compare(one.select([0]), other.select([0])).mean_two_way == 0.0
    with pytest.raises(InvalidParameter, match="same domain"):
        compare(one, other.select([0]))
    with pytest.raises(InvalidParameter, match="at least one record"):
        compare(one, Records(domain, np.zeros((2, 0), np.uint16)))
