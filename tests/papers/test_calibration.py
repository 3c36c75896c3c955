"""The noise-calibration recipe over Z_q against brute force: distances, steps, exact losses, errors, sampling."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.algorithm import Monitor
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.papers.calibration import L0, L1, L2, CalibratedSketch, Quality, _NoiseTable
from panstream.randomness import SeededSource, Source
from statistical import assert_fits

ROWS = ((1, 0), (0, 1), (1, 2))
Q = 5
QUALITIES = {"L0": L0, "L1": L1, "L2": L2}


def centred(value: int) -> int:
    return value - Q if value > Q // 2 else value


def brute_distance(quality: Quality) -> NDArray[np.float64]:
    """min f(c) over all c in Z_q^u with L·c = z, straight from the definition."""
    best = np.full((Q, Q), math.inf)
    for c in product(range(Q), repeat=len(ROWS)):
        z = tuple(sum(entry * row[j] for entry, row in zip(c, ROWS, strict=True)) % Q for j in range(2))
        best[z] = min(best[z], quality.of(np.array([centred(entry) for entry in c])))
    return best


@pytest.mark.parametrize("name", QUALITIES)
def test_distance_is_the_cheapest_explanation(name: str) -> None:
    sketch = CalibratedSketch(rows=ROWS, modulus=Q, epsilon=1.0, quality=name)
    expected = brute_distance(QUALITIES[name])
    assert sketch.table.distance == pytest.approx(expected)
    single = max(QUALITIES[name].of(np.array([y, 0, 0])) for y in range(1, Q // 2 + 1))
    assert 0 < sketch.step <= single + 1e-12  # the paper's Δ = max f over one non-zero entry is an upper bound


@pytest.mark.parametrize("name", QUALITIES)
def test_joint_loss_by_exhaustion_is_the_claim(name: str) -> None:
    """View: the state at the look and the published sketch; a user adds any weight before and any after the look."""
    sketch = CalibratedSketch(rows=ROWS, modulus=Q, epsilon=1.0, quality=name)
    weight = sketch.table.weight
    total = int(weight.sum())
    law = {z: Fraction(int(weight[z]), total) for z in product(range(Q), repeat=2)}
    assert all(law.values())
    worst = Fraction(1)
    for row in ROWS:
        ratio = Fraction(1)
        for y, z in product(range(Q), law):
            moved = tuple((z[j] + y * row[j]) % Q for j in range(2))
            ratio = max(ratio, law[z] / law[moved])
        worst = max(worst, ratio * ratio)  # start noise and release noise are independent and both can be the worst
    claimed = sketch.claim().epsilon
    assert math.log(worst) == pytest.approx(claimed, rel=1e-12)
    assert claimed == pytest.approx(2 * sketch.rate * sketch.step, rel=1e-9)
    assert 1.0 - 1e-8 < claimed <= 1.0


class Scripted(Source):
    """Returns chosen uniform integers."""

    __slots__ = ("picks",)

    def __init__(self, *picks: int) -> None:
        super().__init__()
        self.picks = list(picks)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        return np.array([self.picks.pop(0) for _ in range(size)], np.int64)


def test_every_vector_is_drawn_with_exactly_its_weight() -> None:
    table = CalibratedSketch(rows=ROWS, modulus=Q, epsilon=1.0).table
    before = 0
    for place in product(range(Q), repeat=2):
        weight = int(table.weight[place])
        for pick in (before, before + weight - 1):
            assert tuple(table.draw(Scripted(pick)).tolist()) == place
        before += weight


def test_draws_fit_the_law() -> None:
    sketch = CalibratedSketch(rows=ROWS, modulus=Q, epsilon=4.0)
    source = SeededSource(1)
    draws = np.zeros((Q, Q))
    for _ in range(4000):
        with source:
            draws[tuple(sketch.table.draw(source))] += 1
    assert_fits(draws.ravel(), 4000 * (sketch.table.weight / sketch.table.weight.sum()).ravel(), "calibrated noise")


@pytest.mark.parametrize("name", QUALITIES)
def test_decoded_quality_errs_by_the_quality_of_the_noise(name: str) -> None:
    """|d(L·a + z) - d(L·a)| ≤ d(z), for every a and z: the paper's f(a + y) within f(y) of f(a)."""
    distance = CalibratedSketch(rows=ROWS, modulus=Q, epsilon=1.0, quality=name).table.distance
    for a, z in product(product(range(Q), repeat=2), repeat=2):
        moved = tuple((a[j] + z[j]) % Q for j in range(2))
        assert abs(distance[moved] - distance[a]) <= distance[z] + 1e-9


def test_runs_as_an_algorithm_and_keeps_its_error() -> None:
    sketch = CalibratedSketch(rows=((1, 0), (0, 1), (1, 1), (2, 1)), modulus=31, epsilon=20.0)
    source = SeededSource(2)
    monitor = Monitor(sketch, source=source)
    monitor.update([0, 1, 3, 3], weight=[5, 40, -2, 2])
    estimate = monitor.release()
    assert estimate.value == 2.0  # users 0 and 1; 3 left again; the noise is tiny at this epsilon
    noisy = CalibratedSketch(rows=sketch.rows, modulus=31, epsilon=1.0)
    assert noisy.error(beta=0.1) > noisy.error(beta=0.5) > 0
    within = 0
    for _ in range(200):
        with source:
            state = noisy.begin(source)
            noisy.update(state, noisy.batch([0, 1], weight=5), source)
            within += abs(noisy.release(state, source).value - 2) <= noisy.error(beta=0.1)
    assert within > 160
    with pytest.raises(NotSupported):
        monitor.refresh()


def test_l1_costs_linearly_in_the_largest_weight() -> None:
    steps = [CalibratedSketch(rows=((1,),), modulus=q, epsilon=1.0, quality="L1").step for q in (11, 21, 41)]
    assert steps == [5.0, 10.0, 20.0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rows": ()}, "rows must be"),
        ({"rows": ((1, 2), (1,))}, "rows must be"),
        ({"rows": ((0, 0),)}, "not all be zero"),
        ({"modulus": 1}, "modulus must be"),
        ({"modulus": 400}, r"modulus\*\*columns"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"quality": "L3"}, "quality must be"),
        ({"epsilon": 100.0}, "epsilon is too large"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        CalibratedSketch(**{"rows": ROWS, "modulus": Q, "epsilon": 1.0, **parameters}).claim()


def test_bad_batches_and_unreachable_sketches() -> None:
    sketch = CalibratedSketch(rows=((2, 0),), modulus=4, epsilon=1.0)
    assert sketch.claim().epsilon <= 1.0  # only the subgroup {0, 2} x {0} carries weight
    assert int((sketch.table.weight > 0).sum()) == 2
    with pytest.raises(InvalidBatch, match="one value per id"):
        sketch.batch([0, 0], weight=[1])
    cut = _NoiseTable.build(((1,),), 9, L0, 1.0, 2)  # |c| ≤ 2Z only, as printed: not a group
    assert cut.ratio(((1,),), 9) is None
