"""Published sketches: exact loss of the shipped steps, estimates and their intervals, bytes, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream import Monitor
from panstream.algorithms.distinct import Bitmap, Sketch, SketchBitmap
from panstream.algorithms.distinct.pair_fit import bounded_interval
from panstream.errors import BudgetExhausted, InvalidBytes, InvalidParameter, MergeError, NotSupported
from panstream.primitives.noise import NoiseSource, SeededSource
from panstream.primitives.packed_bits import pack_bits, unpack_bits
from panstream.privacy.sketch_loss import SketchCoins, sketch_coins
from panstream.testing.enumeration import release, update
from tests.algorithms.distinct.bitmap_cases import ids_in, joint

EPSILONS = [0.5, 1.0, 2.0]


class PublishedAsStored(SketchBitmap):
    """Control: the stored cells are published as they are."""

    @property
    def coins(self) -> SketchCoins:
        coins = sketch_coins(self.epsilon)
        return SketchCoins(
            absent=coins.absent, present=coins.present, raised=type(coins.raised)(0), retained=coins.raised.at_most(1)
        )


def losses(algorithm: SketchBitmap) -> tuple[float, float]:
    """Return the enumerated loss with one copy anywhere, and that of the published cells alone."""
    (user,) = ids_in(algorithm, 0)
    slots: list[Any] = [None, None, release()]
    actions = [update([]), update([user]), update([user, user])]
    return joint(algorithm, slots, actions, reach=0), joint(algorithm, slots, actions, reach=0, looks=[None])


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_claim_is_the_enumerated_loss(epsilon: float) -> None:
    algorithm = SketchBitmap(epsilon=epsilon, buckets=1, levels=1)
    with_copy, alone = losses(algorithm)
    assert with_copy == pytest.approx(algorithm.claim().epsilon, rel=1e-9)
    assert with_copy <= algorithm.claim().epsilon + 1e-12  # the enumerator's logarithm is rounded to nearest
    assert alone == pytest.approx(epsilon, rel=1e-8)
    assert alone - 1e-12 <= algorithm.window_loss().answers <= epsilon


def test_others_in_the_cell_lose_nothing_more() -> None:
    algorithm = SketchBitmap(epsilon=1.0, buckets=1, levels=1)
    user, other = ids_in(algorithm, 0, 2)
    actions = [update([other]), update([user, other]), update([other, user])]
    loss = joint(algorithm, [update([other]), None, None, release()], actions, reach=0)
    assert loss <= algorithm.claim().epsilon


def test_cells_published_as_they_are_stored_have_no_finite_loss() -> None:
    with_copy, alone = losses(PublishedAsStored(epsilon=1.0, buckets=1, levels=1))
    assert math.isinf(with_copy)
    assert alone > 1.0


@pytest.mark.parametrize(("epsilon", "joint_loss"), [(0.5, 1.7486), (1.0, 2.7473), (2.0, 4.5711)])
def test_the_best_coins_lose_less_than_symmetric_ones(epsilon: float, joint_loss: float) -> None:
    coins = sketch_coins(epsilon)
    assert coins.joint_loss == pytest.approx(joint_loss, abs=1e-4)
    assert coins.published_loss <= epsilon
    # The least loss with symmetric coins: R = e^(J/2), tanh(epsilon/2) = (R-1)²/(R²+2R-1).
    target = math.tanh(epsilon / 2)
    rate = (2 + 2 * target + math.sqrt((2 + 2 * target) ** 2 - 4 * (1 - target) * (1 + target))) / (2 * (1 - target))
    assert coins.joint_loss < 2 * math.log(rate)
    pi0, pi1 = coins.published
    assert float(pi0 + pi1) == pytest.approx(1.0, abs=1e-12)


def test_a_closed_window_takes_no_rows_and_is_not_closed_again() -> None:
    monitor = SketchBitmap(epsilon=1.0, buckets=64).start()
    monitor.update([1, 2, 3])
    with pytest.raises(NotSupported, match="this window is open"):
        Sketch.of(monitor)
    monitor.release()
    published = Sketch.of(monitor)
    with pytest.raises(BudgetExhausted, match="this window is closed"):
        monitor.update([4])
    with pytest.raises(BudgetExhausted):
        monitor.release()
    assert Sketch.of(monitor).bits == published.bits
    assert Sketch.of(Monitor.from_bytes(monitor.to_bytes())).bits == published.bits
    with pytest.raises(NotSupported, match="SketchBitmap"):
        Sketch.of(Bitmap(epsilon=1.0).start())


def sketch_of(ids: Any, epsilon: float, rng: NoiseSource, index: int = 0, **rest: Any) -> Sketch:
    monitor = Monitor(SketchBitmap(epsilon=epsilon, **{"buckets": 4096, "levels": 16, **rest}), rng=rng)
    monitor.update(ids)
    monitor.release()
    return Sketch.of(monitor, "visitors", start=float(index), end=float(index + 1))


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_estimates_are_unbiased_and_covered(epsilon: float) -> None:
    """Chance of a false alarm: below 1e-6 for every mean, and 1e-7 for each coverage."""
    runs = 120
    rng = SeededSource(17)
    truth = {"count": 2000, "union": 3400, "both": 600, "first": 1400}
    values: dict[str, list[float]] = {name: [] for name in truth}
    inside = dict.fromkeys(truth, 0)
    for run in range(runs):
        first = sketch_of(np.arange(2000) + 10_000 * run, epsilon, rng)
        second = sketch_of(np.arange(1400, 3400) + 10_000 * run, epsilon, rng, 1)
        estimates = {
            "count": first.count(),
            "union": first.union(second),
            "both": first.intersection(second),
            "first": first.difference(second),
        }
        for name, estimate in estimates.items():
            values[name].append(estimate.unclipped)
            low, high = estimate.interval()
            inside[name] += low <= truth[name] <= high
    for name, expected in truth.items():
        error = np.std(values[name], ddof=1) / math.sqrt(runs)
        assert abs(np.mean(values[name]) - expected) < 5.0 * error + 0.01 * expected, name
        assert inside[name] >= 96, name  # of 120, where .95 are expected: below that with a chance of 1e-7


def test_overlaps_of_disjoint_and_of_equal_sets() -> None:
    rng = SeededSource(3)
    first = sketch_of(range(5000), 3.0, rng)
    assert first.intersection(sketch_of(range(10_000, 15_000), 3.0, rng, 1)).interval(0.999999)[0] == 0.0
    again = sketch_of(range(5000), 3.0, rng, 1)
    low, high = first.intersection(again).interval(0.999999)
    assert low <= 5000 <= high
    assert low > 4000


def test_unions_of_many_windows() -> None:
    rng = SeededSource(4)
    days = [sketch_of(range(500 * day, 500 * day + 2000), 2.0, rng, day) for day in range(7)]
    union = days[0].union(*days[1:])
    low, high = union.interval(0.999999)
    assert low <= 5000 <= high
    assert union.claim.epsilon == pytest.approx(7 * 2.0 + 2.5712, abs=1e-3)  # one copy sees one of them open


def test_a_union_about_which_the_cells_say_little_is_an_interval() -> None:
    rng = SeededSource(14)
    days = [sketch_of(range(500 * day, 500 * day + 1000), 0.5, rng, day) for day in range(20)]
    union = days[0].union(*days[1:])
    assert union.has_no_value
    low, high = union.interval()
    assert max(day.count().interval(0.99)[0] for day in days) == low
    assert low < 10_500 < high
    assert union.to_json()["value"] is None


def test_the_claim_adds_up_windows_and_what_one_copy_sees() -> None:
    rng = SeededSource(5)
    first, second = (sketch_of([1], 1.0, rng, index) for index in (0, 1))
    extra = first.joint - first.epsilon
    assert first.intersection(second).claim.epsilon == pytest.approx(2.0 + extra, rel=1e-6)
    overlapping = sketch_of([1], 1.0, rng, 0)
    assert first.union(overlapping).claim.epsilon == pytest.approx(2.0 + 2 * extra, rel=1e-6)


def test_retention_compares_each_window_with_later_ones() -> None:
    rng = SeededSource(6)
    weeks = [sketch_of(range(1000), 3.0, rng, week) for week in range(4)]
    table = Sketch.retention(weeks, lags=2)
    assert [len(row) for row in table] == [2, 2, 1, 0]
    assert table[0][0].unclipped == weeks[0].intersection(weeks[1]).unclipped


def test_what_cannot_be_compared_is_refused() -> None:
    rng = SeededSource(7)
    first = sketch_of([1], 1.0, rng)
    for other, message in (
        (sketch_of([1], 1.0, rng, buckets=2048), "buckets"),
        (sketch_of([1], 1.0, rng, levels=12), "levels"),
        (sketch_of([1], 1.0, rng, key=3), "hash key"),
        (sketch_of([1], 1.0, rng, hash="siphash"), "hash"),
        (first, "cannot be compared with itself"),
        (Sketch.from_bytes(first.to_bytes()), "cannot be compared with itself"),
    ):
        with pytest.raises(MergeError, match=message):
            first.intersection(other)
        with pytest.raises(MergeError, match=message):
            first.union(other)


def test_bytes_are_read_back_and_damage_is_refused() -> None:
    data = sketch_of([1, 2, 3], 1.0, SeededSource(8), buckets=60, levels=3).to_bytes()
    sketch = Sketch.from_bytes(data)
    assert sketch.to_bytes() == data
    assert sketch.name == "visitors"
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(InvalidBytes):
            Sketch.from_bytes(bytes(damaged))


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_be_refused(data: bytes) -> None:
    with pytest.raises(InvalidBytes):
        Sketch.from_bytes(b"PANSKCH1" + data)


@pytest.mark.parametrize(
    "change",
    [
        {"buckets": 0},
        {"levels": 65},
        {"bits": b""},
        {"pi0": 0.9},
        {"epsilon": 9.0},
        {"hash": "md5"},
        {"start": 2.0},
        {"name": "x" * 2000},
    ],
)
def test_fields_that_no_sketch_has_are_refused(change: dict[str, Any]) -> None:
    sketch = sketch_of([1], 1.0, SeededSource(9), buckets=64, levels=4)
    fields = {name: getattr(sketch, name) for name in Sketch.__dataclass_fields__}
    with pytest.raises(InvalidParameter):
        Sketch(**fields | change)


def test_bits_beyond_the_last_cell_are_refused() -> None:
    sketch = sketch_of([1], 1.0, SeededSource(9), buckets=3, levels=3)
    bits = bytearray(sketch.bits)
    bits[-1] |= 0x80
    fields = {name: getattr(sketch, name) for name in Sketch.__dataclass_fields__} | {"bits": bytes(bits)}
    with pytest.raises(InvalidParameter, match="9 cells"):
        Sketch(**fields)


def test_epsilon_out_of_range_is_refused() -> None:
    for epsilon in (0.0, -1.0, 9.0):
        with pytest.raises(InvalidParameter, match="epsilon"):
            SketchBitmap(epsilon=epsilon)


def test_without_noise_the_cells_are_exact() -> None:
    algorithm = SketchBitmap(epsilon=math.inf, buckets=256, levels=8)
    monitor = algorithm.start()
    monitor.update(range(100))
    monitor.release()
    bits = unpack_bits(monitor.state.bits, algorithm.cells)
    assert 80 <= bits.sum() <= 100
    assert np.array_equal(pack_bits(bits), monitor.state.bits)
    assert not monitor.algorithm.claim().is_private


@pytest.mark.parametrize("value", [-300.0, -10.0, 0.0, 30.0, 500.0, 990.0, 1400.0])
def test_bounded_intervals_lie_within_their_bounds(value: float) -> None:
    low, high = bounded_interval(value, 100.0, 1000.0, 0.95)
    assert 0.0 <= low <= high <= 1000.0
    assert high > 0.0
    if 200.0 < value < 800.0:
        assert (low, high) == (pytest.approx(value - 195.996, abs=0.01), pytest.approx(value + 195.996, abs=0.01))
