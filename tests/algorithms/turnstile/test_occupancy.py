"""Counts of an open universe: their mean and variance against cells that are filled one by one."""

import itertools
import math

import numpy as np
import pytest

from panstream.algorithms.turnstile.legendre_counter import _Occupancy


@pytest.mark.parametrize("users", [0, 1, 2, 3])
def test_mean_and_variance_of_every_level_over_all_ways_to_fall(users: int) -> None:
    """Two levels of two cells each, half of the users in each level: every way is as likely as any other."""
    occupancy = _Occupancy(buckets=2, levels=2, at_zero=0.8, elsewhere=0.3, noise_variance=5.0)
    moments = np.zeros(2)
    for cells in itertools.product(range(4), repeat=users):
        chances = [0.3 if cell in cells else 0.8 for cell in (0, 1)]
        mean = math.fsum(chances)
        second = mean**2 + math.fsum(p * (1 - p) for p in chances)
        moments += np.array([mean, second]) / 4**users
    assert occupancy.mean(users) == pytest.approx([moments[0]] * 2)
    # An upper bound is said: of two cells of a level, one is the emptier the fuller the other is.
    exact = moments[1] - moments[0] ** 2 + 5.0 + 1 / 12
    said = occupancy.variance(users)
    assert exact * (1 - 1e-9) <= said[0] == said[1] <= exact * 1.05
    if users == 0:
        assert said[0] == pytest.approx(exact)
