"""Records drawn from a network follow its joint distribution; what cannot occur does not."""

import math
from fractions import Fraction

import numpy as np
import pytest

from panstream.errors import InvalidParameter
from panstream.models.networks import BayesianNetwork, Domain, contingency, sample
from panstream.models.networks.sampling import _thresholds
from panstream.primitives.noise import NoiseSource, SeededSource
from tests.models.networks.models import joint, random_network
from tests.statistical import assert_fits

N = 200_000


@pytest.mark.parametrize(("sizes", "degree"), [((2, 3, 2, 2), 2), ((3, 12, 2), 2), ((40,), 0), ((1, 2, 1), 1)], ids=str)
def test_samples_follow_the_joint(sizes: tuple[int, ...], degree: int) -> None:
    network = random_network(11, sizes, degree)
    with NoiseSource() as rng:
        records = sample(network, N, rng)
    counts = contingency(records, range(len(sizes)))
    assert_fits(counts.ravel(), joint(network).ravel() * N, f"prior sampling of {sizes}")


def test_impossible_values_are_never_drawn() -> None:
    domain = Domain({"x": ["a", "b", "c", "d"]})
    for place in range(4):
        table = np.full(4, 1 / 3)
        table[place] = 0.0
        steps = [0, *_thresholds(table)[0].tolist(), 1 << 63]
        widths = np.diff(np.array(steps, object))
        assert widths[place] == 0
        assert min(width for at, width in enumerate(widths) if at != place) > 0
        with NoiseSource() as rng:
            records = sample(BayesianNetwork(domain, ((),), (table,)), 5000, rng)
        assert contingency(records, (0,))[place] == 0


def test_thresholds_are_the_probabilities_to_the_last_bit() -> None:
    table = random_network(4, (5, 7), 1).tables
    for each in table:
        for row, steps in zip(each.reshape(-1, each.shape[-1]), _thresholds(each), strict=True):
            drawn = np.diff(np.array([0, *steps.tolist(), 1 << 63], object))
            for probability, width in zip(row.tolist(), drawn, strict=True):
                assert abs(Fraction(probability) - Fraction(int(width), 1 << 63)) < Fraction(1, 1 << 51)


def test_blocks_are_independent_and_complete() -> None:
    """The records of the second block are not those of the first, and all of them were drawn."""
    fair = BayesianNetwork(Domain({"x": ["0", "1"]}), ((),), (np.array([0.5, 0.5]),))
    with NoiseSource() as rng:
        codes = sample(fair, 3 * (1 << 15) + 5, rng).codes[0]
    block = 1 << 15
    for first, second in ((0, block), (block, 2 * block)):
        same = int((codes[first : first + block] == codes[second : second + block]).sum())
        assert abs(same - block / 2) < 5.0 * math.sqrt(block) / 2
    assert codes[-5:].max() <= 1


def test_seeds_repeat_and_sizes_are_checked() -> None:
    network = random_network(1, (3, 4), 1)
    one, two = (sample(network, 100, SeededSource(5)).codes for _ in range(2))
    assert np.array_equal(one, two)
    assert len(sample(network, 0, SeededSource(5))) == 0
    with pytest.raises(InvalidParameter, match="size"):
        sample(network, -1, SeededSource(5))
