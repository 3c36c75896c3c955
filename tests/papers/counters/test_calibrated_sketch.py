"""Algorithm 1 over Z_q: distances by brute force, exact losses, the joint loss with the release, draws of the law."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from panstream.core.monitor import Monitor
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.papers import CalibratedSketch, PublishedDistinct
from panstream.papers.counters.calibrated_sketch import calibrated_distances
from panstream.primitives.noise import SeededSource
from tests.statistical import ALPHA

ROWS = ((1, 3), (2, -1), (4, 0))
NORMS = {
    "distinct": lambda c: sum(entry != 0 for entry in c),
    "L1": lambda c: sum(map(abs, c)),
    "L2": lambda c: math.ceil(math.sqrt(sum(entry * entry for entry in c)) - 1e-9),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("modulus", [3, 5, 7])
def test_distances_are_the_least_norms(norm: str, modulus: int) -> None:
    best: dict[tuple[int, ...], int] = {}
    for c in product(range(-(modulus // 2), modulus // 2 + 1), repeat=len(ROWS)):
        z = tuple(sum(a * row[j] for a, row in zip(c, ROWS, strict=True)) % modulus for j in range(2))
        best[z] = min(best.get(z, 99), NORMS[norm](c))
    found = calibrated_distances(ROWS, modulus, norm)  # type: ignore[arg-type]
    for z in product(range(modulus), repeat=2):
        assert found[z] == best.get(z, 1 << 40)


@pytest.mark.parametrize("norm", NORMS)
def test_one_noise_loses_at_most_half_of_epsilon_and_the_integers_lose_everything(norm: str) -> None:
    sketch = CalibratedSketch(rows=ROWS, modulus=7, epsilon=1.0, norm=norm)  # type: ignore[arg-type]
    assert sketch.loss() == pytest.approx(0.5, abs=1e-12)
    assert PublishedDistinct(rows=((1,), (3,)), largest=1, epsilon=1.0).loss() == math.inf


def _joint_loss(sketch: CalibratedSketch, first: np.ndarray) -> float:
    """Return the loss of (state, output) over all changes of user 0 before the copy and before the release."""
    second = sketch.law()
    axes = tuple(range(first.ndim))
    worst = 0.0
    row = sketch.rows[0]
    for before, after in product(range(sketch.modulus), repeat=2):
        moved_state = np.roll(first, [(before * part) % sketch.modulus for part in row], axes)
        moved_noise = np.roll(second, [((after - before) * part) % sketch.modulus for part in row], axes)
        ratios = np.log(first / moved_state).max() + np.log(second / moved_noise).max()
        worst = max(worst, float(ratios))
    return worst


def test_a_copy_and_the_release_lose_epsilon_and_more_with_half_the_noise() -> None:
    sketch = CalibratedSketch(rows=ROWS, modulus=7, epsilon=1.0)
    assert _joint_loss(sketch, sketch.law()) == pytest.approx(1.0, abs=1e-9)
    halved = CalibratedSketch(rows=ROWS, modulus=7, epsilon=2.0).law()
    assert _joint_loss(sketch, halved) == pytest.approx(1.5, abs=1e-9)


def test_draws_have_the_law() -> None:
    """A chi-square test of 4,000 draws; a correct law fails with probability ALPHA."""
    sketch = CalibratedSketch(rows=ROWS, modulus=5, epsilon=2.0)
    counts = np.zeros((5, 5))
    rng = SeededSource(4)
    with rng:
        for _ in range(4_000):
            counts[tuple(sketch.draw_noise(rng))] += 1
    assert stats.chisquare(counts.ravel(), 4_000 * sketch.law().ravel()).pvalue > ALPHA


def test_without_noise_the_distance_is_found_and_weights_cancel() -> None:
    sketch = CalibratedSketch(rows=((1, 0), (0, 1), (1, 1)), modulus=11, epsilon=math.inf)
    monitor = Monitor(sketch)
    monitor.update([0, 1, 0], weight=[5, -2, -4])
    monitor.update([1], weight=2)
    assert monitor.release().value == 1
    assert Monitor(sketch).release().value == 0


def test_answers_at_a_large_epsilon_are_near_and_at_one_drown() -> None:
    """The class is for comparison: at epsilon 1 the answer hardly depends on the data."""
    rng = np.random.default_rng(2)
    rows = tuple(tuple(int(part) for part in rng.integers(-5, 6, 3)) for _ in range(8))
    means = {}
    for epsilon in (1.0, 60.0):
        for users in (0, 3):
            values = []
            for seed in range(20):
                monitor = Monitor(CalibratedSketch(rows=rows, modulus=11, epsilon=epsilon), rng=SeededSource(seed))
                monitor.update(list(range(users)), weight=1)
                values.append(monitor.release().value)
            means[epsilon, users] = float(np.mean(values))
    assert means[60.0, 0] == 0
    assert means[60.0, 3] >= 1  # so few sketches that three users may share that of one
    assert abs(means[1.0, 3] - means[1.0, 0]) < 1


def test_wrong_input_is_refused() -> None:
    for wrong in ({"modulus": 4}, {"modulus": 1001}, {"norm": "L3"}, {"rows": ()}, {"epsilon": 0.0}):
        with pytest.raises(InvalidParameter):
            CalibratedSketch(**{"rows": ROWS, "modulus": 7, "epsilon": 1.0, **wrong})  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch, match="row 1: ids"):
        CalibratedSketch(rows=ROWS, modulus=7, epsilon=1.0).batch([0, 3])
    with pytest.raises(InvalidBatch, match="row 0: weight"):
        CalibratedSketch(rows=ROWS, modulus=7, epsilon=1.0, norm="L1").batch([0], weight=2)
