"""Which edges a forest is offered: what they teach, less a part of what their noise costs."""

import numpy as np

from panstream.models.networks import Domain, Records, TreeNetwork
from panstream.models.networks.noisy_tables import project_to_simplex
from panstream.models.networks.tree_network import _gain
from panstream.primitives.noise import SeededSource


def test_noise_costs_an_edge_something_but_less_than_all_of_its_norm() -> None:
    """Projecting a noisy table onto what tables can be takes away a part of the noise, and never adds to it."""
    table = np.array([[400, 100], [100, 400]])
    independent = np.full((2, 2), 250)
    clean, noisy = (_gain(table, independent, None, noise) for noise in (0.0, 300.0))
    assert clean == 4 * 150  # the L1 distance from independence
    assert clean - 300 < noisy < clean


def test_where_noise_drowns_everything_the_posterior_mean_is_nearer_than_a_projection() -> None:
    """Twenty rows at epsilon .5: over ten seeds the distance of all one-way tables from the truth falls."""
    truth = np.array([0.5, 0.2, 0.1, 0.05, 0.05, 0.04, 0.03, 0.03])
    domain = Domain({name: [str(code) for code in range(8)] for name in "abcdef"})
    codes = np.repeat(np.arange(8), (20 * truth + 0.5).astype(int))
    records = Records(domain, np.tile(codes, (6, 1)))
    found = []
    for seed in range(10):
        with SeededSource(seed) as rng:
            learned = TreeNetwork(epsilon=0.5, delta=1e-9).fit(records, rng)
        projected = [project_to_simplex(table.counts / len(records)) for table in learned.tables]
        found.append(
            [
                np.mean([np.abs(each - truth).sum() for each in tables])
                for tables in ([learned.network.marginal((at,)) for at in range(6)], projected)
            ]
        )
    ours, projection = np.mean(found, axis=0)
    assert ours < 0.9 * projection
    assert "mostly noise" in learned.notes[0]
    assert "records are needed" in learned.notes[0]


def test_a_model_without_edges_says_so() -> None:
    numpy_rng = np.random.default_rng(1)
    domain = Domain({name: ["x", "y"] for name in "ab"})
    with SeededSource(1) as rng:
        few = Records(domain, numpy_rng.integers(0, 2, (2, 400)))
        assert "noise would hide any edge" in TreeNetwork(epsilon=0.1).fit(few, rng).notes[0]
        many = Records(domain, numpy_rng.integers(0, 2, (2, 50_000)))
        found = TreeNetwork(epsilon=0.1).fit(many, rng)
        assert found.network.edges or "stood out" in found.notes[0]
        assert TreeNetwork(epsilon=1.0, degree=0).fit(many, rng).notes == ()
