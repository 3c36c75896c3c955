"""Which edges a forest is offered: what they teach, less a part of what their noise costs."""

import numpy as np

from panstream.networks.tree import _gains


def test_noise_costs_an_edge_something_but_less_than_all_of_its_norm() -> None:
    """Projecting a noisy table onto what tables can be takes away a part of the noise, and never adds to it."""
    table, halves = np.array([[400, 100], [100, 400]]), [np.array([0.5, 0.5])] * 2
    clean, noisy = (_gains(1000, halves, {(0, 1): table}, {(0, 1): None}, {(0, 1): noise}) for noise in (0.0, 300.0))
    assert clean[0, 1] == 4 * 150  # the L1 distance from independence
    assert clean[0, 1] - 300 < noisy[0, 1] < clean[0, 1]
