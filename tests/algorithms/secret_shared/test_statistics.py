"""Statistics on shares answer what one machine answers without noise, and cover the truth with theirs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum
from panstream.algorithms.density.graph_density import GraphDensity
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.secret_shared.capped_counts import SharedCappedSum, SharedCroppedSum, SharedHeavyCount
from panstream.algorithms.secret_shared.continual import SharedContinual
from panstream.algorithms.secret_shared.party import StepTask
from panstream.algorithms.secret_shared.presence import SharedDensity, SharedDistinct, SharedGraphDensity
from panstream.algorithms.secret_shared.retention import SharedRetention
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.estimate import Estimate
from panstream.core.monitor import Monitor
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from tests.algorithms.secret_shared.parties import Three
from tests.statistical import assert_mean, assert_rate


class Running:
    """A statistic with its state on two parties."""

    def __init__(self, statistic: SharedStatistic) -> None:
        self.statistic = statistic
        self.three = Three()
        self.made = 0
        self.begun = False
        self.three.step(StepTask(kind="idle", started={"s": statistic.rule}))

    def update(self, *arguments: Any, **options: Any) -> None:
        change = self.statistic.empty_buffer()
        batch = self.statistic.batch(*arguments, **options)
        with NoiseSource() as rng:
            self.statistic.accumulate(change, batch, rng.scratch)
            dense = self.statistic.to_dense_update(change, rng, fresh=not self.begun)
            self.three.step(StepTask(kind="rows"), {"s": dense})
        self.begun = True
        batch.wipe()

    def opened(self) -> list[int]:
        self.made += 1
        return self.three.step(StepTask(kind="answers", answered=["s"]))["s"]

    def release(self) -> Estimate:
        return self.statistic.estimate(self.opened(), self.made)


def test_a_bitmap_on_shares_is_the_bitmap() -> None:
    rng = np.random.default_rng(3)
    shared = Running(SharedDistinct(epsilon=math.inf, buckets=256, levels=12))
    plain = Bitmap(epsilon=math.inf, buckets=256, levels=12).start()
    for _ in range(5):
        ids = rng.integers(0, 5_000, 700)
        shared.update(ids)
        plain.update(ids)
    assert np.array_equal(shared.three.opened("s"), plain.state.bits)
    assert shared.release().value == pytest.approx(plain.release().value)


def test_presence_and_deletes_are_those_of_one_machine() -> None:
    rng = np.random.default_rng(4)
    shared = Running(SharedDensity(universe=203, epsilon=math.inf, deletions=True, count=True))
    plain = OptBern(universe=203, epsilon=math.inf, deletions=True, count=True).start()
    for _ in range(40):
        ids = rng.integers(0, 203, 30)
        weights = rng.choice([-1, 1], 30)
        shared.update(ids, weights)
        plain.update(ids, weights)
        assert np.array_equal(shared.three.opened("s")[:25], plain.state.bits[:25])
    assert shared.release().value == pytest.approx(plain.release().value)


def test_edges_are_those_of_one_machine() -> None:
    edges = [(u, v) for u in range(20) for v in range(u)]
    shared = Running(SharedGraphDensity(vertices=40, epsilon=math.inf))
    plain = GraphDensity(vertices=40, epsilon=math.inf).start()
    shared.update(edges)
    plain.update(edges)
    found = shared.release()
    assert found.value == pytest.approx(plain.release().value)
    assert (found.name, found.claim.unit) == ("graph density", "edge")


@pytest.mark.parametrize(
    "algorithm",
    [
        ContinualCount(epsilon=math.inf, horizon=7),
        ContinualSum(epsilon=math.inf, horizon=7, lower=-2.0, upper=9.0),
        ContinualMean(epsilon=math.inf, horizon=7, lower=0.0, upper=10.0),
        ContinualVariance(epsilon=math.inf, horizon=7, lower=0.0, upper=10.0),
        RangeHistogram(epsilon=math.inf, horizon=7, lower=0.0, upper=10.0, branching=4),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_ticks_are_those_of_one_machine(algorithm: Any) -> None:
    rng = np.random.default_rng(5)
    shared = Running(SharedContinual.of(algorithm))
    plain = Monitor(algorithm)
    for _ in range(7):
        values = np.ones(50, np.int64) if isinstance(algorithm, ContinualCount) else rng.uniform(0, 10, 50)
        shared.update(values)
        plain.update(values)
        found = shared.release()
        wanted = plain.tick()
        assert found.value == pytest.approx(wanted.value, rel=1e-9)
        assert found.name == wanted.name


def test_appearances_up_to_a_cap() -> None:
    rng = np.random.default_rng(6)
    exact = np.zeros(90, np.int64)
    running = [Running(kind(universe=90, epsilon=math.inf, crop=5)) for kind in (SharedCroppedSum, SharedHeavyCount)]
    for _ in range(6):
        ids = rng.integers(0, 90, 80)
        np.add.at(exact, ids, 1)
        for each in running:
            each.update(ids)
    assert [each.release().value for each in running] == [np.minimum(exact, 5).sum(), (exact >= 5).sum()]


@pytest.mark.parametrize(("upper", "contributions", "scale"), [(5.0, 3, 1.0), (10.0, 8, 1.25), (0.5, 64, 0.5)])
def test_sums_are_capped_for_every_user_exactly(upper: float, contributions: int, scale: float) -> None:
    """Over several steps, the sum over users of min(sum of rounded values, contributions times the largest)."""
    rng = np.random.default_rng(8)
    exact = np.zeros(90)
    statistic = SharedCappedSum(universe=90, epsilon=math.inf, upper=upper, contributions=contributions)
    assert statistic.scale == scale
    running = Running(statistic)
    for _ in range(6):
        ids = rng.integers(0, 90, 200)
        values = rng.uniform(-1.0, 1.3 * upper, 200)
        np.add.at(exact, ids, np.floor(np.clip(values, 0.0, upper) / scale + 0.5) * scale)
        running.update(ids, values)
    answer = running.release()
    assert answer.value == pytest.approx(np.minimum(exact, contributions * upper).sum())
    assert f"at most {contributions * upper:g} of one user" in answer.name


def test_users_that_nobody_listed_are_capped_in_cells() -> None:
    """Ids of any kind: each cell's cap is exact, and users who share a cell share its cap."""
    rng = np.random.default_rng(9)
    names = [f"user {number}" for number in range(300)]
    wide = SharedCroppedSum(buckets=1 << 20, epsilon=math.inf, crop=4)
    narrow = SharedCroppedSum(buckets=50, epsilon=math.inf, crop=4)
    cells = np.asarray(narrow.cells_of(names).cells)
    assert len(set(np.asarray(wide.cells_of(names).cells))) == 300
    shared = [Running(wide), Running(narrow)]
    rows = rng.integers(0, 300, 900)
    for part in np.array_split(rows, 3):
        for running in shared:
            running.update([names[row] for row in part])
    of_users = np.bincount(rows, minlength=300)
    of_cells = np.bincount(cells, weights=of_users, minlength=50)
    assert [running.release().value for running in shared] == [
        np.minimum(of_users, 4).sum(),
        np.minimum(of_cells, 4).sum(),
    ]
    assert "in 50 cells" in narrow.expected_estimate(3.0).name
    with pytest.raises(InvalidParameter, match="either universe"):
        SharedCroppedSum(epsilon=1.0, crop=3)


@pytest.mark.parametrize(
    "statistic",
    [
        SharedCappedSum(universe=2, epsilon=1.0, upper=2.0, contributions=2),
        SharedCroppedSum(buckets=1, epsilon=1.0, crop=3),
    ],
    ids=lambda statistic: type(statistic).__name__,
)
def test_one_users_rows_move_a_capped_sum_by_the_cap_at_most(statistic: Any) -> None:
    """All that one user can add to all that others sent: the loss of one draw is the claim, and half of it too little.

    With one cell the others share her cap, which can only hide what she adds.
    """
    moved = set()
    for others in range(6):
        sums = []
        for mine in range(6):
            running = Running(replace(statistic, epsilon=math.inf))
            values = isinstance(statistic, SharedCappedSum)
            rows = [([1] * others, [2.0] * others), ([0] * mine, [2.0] * mine)]
            for ids, numbers in rows:
                running.update(ids, numbers) if values else running.update(ids)
            sums.append(running.release().value / statistic.scale)
        moved |= {abs(one - two) for one in sums for two in sums}
    assert max(moved) == statistic.crop
    assert statistic.law.kappa * max(moved) == pytest.approx(statistic.claim().epsilon)
    half = DiscreteLaplace.at_most(2 * statistic.law.kappa)
    assert half.kappa * max(moved) > 1.9 * statistic.claim().epsilon


def test_noisy_cells_are_those_of_one_machine() -> None:
    """Errors of noisy cells against the formulas, with one draw of cells each; false alarm with probability ALPHA for
    each of two tests.
    """
    shared = SharedDistinct(epsilon=2.0, buckets=512, levels=10, noisy=True)
    plain = Bitmap(epsilon=2.0, buckets=512, levels=10)
    assert shared.rule.noise == plain.law.noise
    assert shared.claim().epsilon == plain.claim().epsilon
    assert plain.relative_error(3000.0) < shared.relative_error(3000.0) < 1.3 * plain.relative_error(3000.0)
    deleting = SharedDensity(universe=2000, epsilon=math.inf, deletions=True, noisy=True)
    running = Running(deleting)
    running.update(range(900))
    running.update(delete=range(300))
    assert running.release().value == pytest.approx(600 / 2000)
    scores = []
    for run in range(40):
        running = Running(shared)
        running.update(np.arange(3000) + 3000 * run)  # other cells in every run
        found = running.release()
        scores.append((found.unbiased - 3000.0) / found.standard_error)
    assert_mean(np.array(scores) ** 2, 1.0, "squared errors over their variance")
    assert_mean(np.array(scores), 0.0, "errors")


def test_noise_is_that_of_both_machines_and_intervals_cover() -> None:
    """300 states of each kind, independent of each other; false alarm with probability ALPHA for each of six tests."""
    kinds: list[tuple[Any, Any, float]] = [
        (SharedDensity(universe=40, epsilon=1.0, releases=3, count=True), range(0, 40, 2), 20.0),
        (SharedContinual.of(ContinualCount(epsilon=1.0, horizon=3)), 700, 700.0),
        (SharedDensity(universe=400, epsilon=2.0, releases=3, count=True, noisy=True), range(0, 400, 2), 200.0),
    ]
    for statistic, given, truth in kinds:
        names = [f"{at:03}" for at in range(300)]
        three = Three()
        change = statistic.empty_buffer()
        three.step(StepTask(kind="idle", started=dict.fromkeys(names, statistic.rule)))
        with NoiseSource() as rng:
            statistic.accumulate(change, statistic.batch(given), rng.scratch)
            dense = {name: statistic.to_dense_update(change, rng, fresh=True) for name in names}
        three.step(StepTask(kind="rows"), dense)
        for _ in range(2):
            opened = three.step(StepTask(kind="answers", answered=names))
        found = [statistic.estimate(opened[name], 2) for name in names]
        scores = np.array([(each.unbiased - truth) / each.standard_error for each in found])
        assert_mean(scores**2, 1.0, "squared errors over their variance")
        hits = sum(low <= truth <= high for low, high in (each.interval(0.9) for each in found))
        assert_rate(min(hits, round(0.9 * len(found))), len(found), 0.9, "covered at 90% or more")


def test_claims_and_refusals() -> None:
    for statistic in (
        SharedDistinct(epsilon=1.0),
        SharedDensity(universe=9, epsilon=1.0),
        SharedCroppedSum(universe=9, epsilon=1.0, crop=3),
        SharedCroppedSum(buckets=9, epsilon=1.0, crop=3),
        SharedCappedSum(universe=9, epsilon=1.0, upper=4.0, contributions=3),
        SharedContinual.of(ContinualCount(epsilon=1.0, horizon=9)),
        SharedRetention(epsilon=1.0, expected=500, horizon=9),
    ):
        claim = statistic.claim()
        assert (claim.epsilon, claim.intrusions.unannounced, claim.intrusions.machines) == (1.0, -1, 2)
        assert claim.assumption.startswith("AES-256-CTR, X25519, TLS 1.3; front end and machines run hardened")
        assert "at one machine at a time" in str(claim)
        assert statistic.layout()["cells"].shape == (statistic.rule.size,)
        with pytest.raises(NotSupported, match="needs two machines"):
            statistic.start()
        assert type(statistic)(**statistic.parameters()) == statistic
    with pytest.raises(InvalidParameter, match="crop"):
        SharedCroppedSum(universe=9, epsilon=1.0, crop=65)
    with pytest.raises(InvalidParameter, match="horizon"):
        SharedContinual.of(ContinualCount(epsilon=1.0))
    with pytest.raises(InvalidParameter, match="vertices"):
        SharedGraphDensity(vertices=1 << 15, epsilon=1.0)


def test_sizes_are_planned() -> None:
    small = SharedDistinct.sized(1.0, expected=1_000)
    assert (small.buckets, small.levels) == (524_288, 1)
    assert small.relative_error(1_000) == pytest.approx(0.00216, rel=0.01)
    large = SharedDistinct.sized(1.0, expected=10_000_000)
    assert (large.buckets, large.levels) == (52_428, 10)
    assert SharedDistinct(epsilon=1.0).relative_error(100_000) == pytest.approx(0.00409, rel=0.01)
    assert SharedDensity(universe=10**5, epsilon=1.0).standard_error(1.0) == pytest.approx(1.92, abs=0.01)
    heavy = SharedHeavyCount(universe=100, epsilon=1.0, crop=4).expected_estimate(50.0)
    assert (heavy.value, heavy.standard_error) == (50.0, pytest.approx(1.92, abs=0.01))
    assert SharedContinual.of(ContinualCount(epsilon=1.0, horizon=4)).expected_estimate(4, 10.0).value == 0.0
