"""Numbers of set bits at every tick: exact without noise; noise makes up for a user who comes at another tick."""

import math

import numpy as np
import pytest

from panstream.algorithms.secret_shared import running_sums
from panstream.algorithms.secret_shared.continual_presence import (
    SharedContinualDensity,
    SharedContinualDistinct,
    beats_paying,
)
from panstream.algorithms.secret_shared.counted_bits import NoisyBitCounts, _whole
from panstream.algorithms.secret_shared.party import StepTask
from panstream.algorithms.secret_shared.presence import SharedDensity
from panstream.algorithms.secret_shared.ring import SUMS
from panstream.algorithms.secret_shared.rules import rule_from_parameters
from panstream.errors import BudgetExhausted, InvalidParameter
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.primitives.packed_bits import pack_bits
from tests.algorithms.secret_shared.parties import Three
from tests.algorithms.secret_shared.test_ring import _ancestors
from tests.algorithms.secret_shared.test_statistics import Running
from tests.statistical import assert_mean, assert_rate

NONE = DiscreteLaplace(None)


@pytest.mark.parametrize("radices", [(4,), (2, 3), (3, 2, 2), (2,) * 7])
def test_counts_are_exact_without_noise(radices: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    ticks = min(math.prod(radices), 12)
    rule = NoisyBitCounts(cells=3 * 13, rows=3, radices=radices, noise=NONE, releases=ticks)
    assert rule_from_parameters("counted", rule.parameters()) == rule
    three = Three()
    plain = np.zeros(39, np.uint8)
    three.step(StepTask(kind="idle", started={"x": rule}))
    for _ in range(ticks):
        touched, values = rng.integers(0, 2, (2, 39), np.uint8)
        plain = np.where(touched, values, plain).astype(np.uint8)
        three.step(StepTask(kind="rows"), {"x": (pack_bits(touched), pack_bits(values))})
        three.step(StepTask(kind="idle"))
        assert three.step(StepTask(kind="answers", answered=["x"]))["x"] == plain.reshape(3, 13).sum(1).tolist()
    with pytest.raises(BudgetExhausted):
        three.step(StepTask(kind="answers", answered=["x"]))


def test_shares_are_rounded_alike_wherever_they_wrap_around() -> None:
    """An integer more in a share is an integer more after rounding; two shares of an integer become shares of it."""
    rng = np.random.default_rng(2)
    for unit in (12, 36, 60, 72):
        shares = rng.integers(0, 1 << 64, (200, 2), np.uint64)
        added = rng.integers(-(1 << 20), 1 << 20, 200)
        moved = shares.copy()
        SUMS.add(moved, _units(added, unit))
        for first in (True, False):
            before = _whole(shares.copy(), unit, SUMS, first=first).astype(np.int64)
            after = _whole(moved.copy(), unit, SUMS, first=first).astype(np.int64)
            assert np.array_equal((after - before) % (1 << 32), added % (1 << 32))
        rest = _units(added, unit)
        SUMS.subtract(rest, shares)
        both = _whole(shares.copy(), unit, SUMS, first=True) + _whole(rest, unit, SUMS, first=False)
        assert np.array_equal(both.astype(np.int64) % (1 << 32), added % (1 << 32))


def _units(integers: np.ndarray, unit: int) -> np.ndarray:
    words = [(int(number) << unit) % (1 << 128) for number in integers]
    return np.array([[word & ((1 << 64) - 1), word >> 64] for word in words], np.uint64)


@pytest.mark.parametrize("radices", [(5,), (2, 3), (2, 2, 2)])
def test_a_user_who_comes_at_another_tick_is_made_up_for(
    radices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all pairs of ticks: 2h draws of one machine give every answer of the other stream, and h where she never
    comes. So 2h·kappa is enough; the audit enumerates that with one level it is attained.
    """
    ticks = min(math.prod(radices), 6)
    rule = NoisyBitCounts(cells=1, radices=radices, noise=NONE, releases=ticks)

    def answers(comes: int, noise: dict[int, int]) -> list[int]:
        drawn = 0

        def draw(count: int, law: object, source: object) -> np.ndarray:
            nonlocal drawn
            values = np.array([noise.get(number, 0) for number in range(drawn, drawn + count)], np.int64)
            drawn += count
            return values

        three = Three()
        second = three.parties[1]
        with monkeypatch.context() as patch:
            patch.setattr(second, "open", _silent(second.open, patch))
            patch.setattr(running_sums, "draw_noise", draw)
            three.step(StepTask(kind="idle", started={"x": rule}))
            opened = []
            for tick in range(ticks):
                bits = pack_bits(np.array([tick == comes], np.uint8))
                three.step(StepTask(kind="rows"), {"x": (bits, bits)})
                opened += three.step(StepTask(kind="answers", answered=["x"]))["x"]
        return opened

    largest = 0
    for early in range(ticks):
        for late in range(early + 1, ticks + 1):
            noise: dict[int, int] = {}
            for number in _ancestors(radices, early):
                noise[number] = noise.get(number, 0) + 1
            for number in _ancestors(radices, late) if late < ticks else ():
                noise[number] = noise.get(number, 0) - 1
            assert answers(early, {}) == answers(late, noise) == [int(tick >= early) for tick in range(ticks)]
            largest = max(largest, sum(map(abs, noise.values())))
    statistic = SharedContinualDensity(universe=1, epsilon=1.0, releases=ticks, radices=radices)
    assert statistic.law.kappa * largest == pytest.approx(statistic.claim().epsilon)
    half = DiscreteLaplace.at_most(2 * statistic.law.kappa)
    assert half.kappa * largest > 1.9 * statistic.claim().epsilon


def _silent(opens: object, patch: pytest.MonkeyPatch) -> object:
    def without_noise(*arguments: object) -> object:
        with patch.context() as inner:
            inner.setattr(running_sums, "draw_noise", lambda count, law, source: np.zeros(count, np.int64))
            return opens(*arguments)  # type: ignore[operator]

    return without_noise


def test_live_statistics_follow_the_rows() -> None:
    rng = np.random.default_rng(3)
    users = np.zeros(203, bool)
    present = Running(
        SharedContinualDensity(
            universe=203, epsilon=math.inf, releases=6, deletions=True, changes=6, count=True, radices=(2, 3)
        )
    )
    came = Running(SharedContinualDistinct(epsilon=math.inf, buckets=4096, levels=3, releases=6))
    everybody: set[int] = set()
    for _ in range(6):
        ids = rng.integers(0, 203, 50)
        weights = rng.choice([-1, 1], 50)
        for user, weight in zip(ids, weights, strict=True):
            users[user] = weight > 0
        everybody |= set(ids.tolist())
        present.update(ids, weights)
        came.update(ids)
        assert present.release().value == users.sum()
        assert came.release().value == pytest.approx(len(everybody), rel=0.05)


def test_intervals_of_live_counts_cover_and_errors_are_as_planned() -> None:
    """300 states of each kind at their fifth tick; false alarm with probability ALPHA for each of four tests."""
    live = SharedContinualDensity(universe=40, epsilon=1.0, releases=12, count=True, radices=(3, 4))
    table = SharedContinualDistinct(epsilon=4.0, buckets=4096, levels=1, releases=12, radices=(3, 4))
    for statistic, given in ((live, range(0, 40, 2)), (table, range(400))):
        names = [f"{number:03}" for number in range(300)]
        three = Three()
        change = statistic.empty_buffer()
        three.step(StepTask(kind="idle", started=dict.fromkeys(names, statistic.rule)))
        with NoiseSource() as rng:
            statistic.accumulate(change, statistic.batch(given), rng.scratch)
            dense = statistic.to_dense_update(change, rng)
        three.step(StepTask(kind="rows"), dict.fromkeys(names, dense))
        for _ in range(5):
            opened = three.step(StepTask(kind="answers", answered=names))
        exact = float(np.unpackbits(dense[0]).sum())
        noise = np.array([opened[name][0] for name in names]) - exact
        if isinstance(statistic, SharedContinualDensity):
            planned = statistic.standard_error(exact, 5) ** 2
            estimates = [statistic.estimate(opened[name], 5) for name in names]
            hits = sum(low <= exact <= high for low, high in (estimate.interval(0.9) for estimate in estimates))
            assert_rate(min(hits, 270), 300, 0.9, "covered at 90% or more")
        else:
            planned = statistic.noise_variance(5)
        assert_mean(noise**2 / planned, 1.0, "squared noise over its variance")


def test_claims_and_refusals() -> None:
    paid = SharedDensity(universe=9, epsilon=1.0, releases=1000)
    live = SharedContinualDensity(universe=9, epsilon=1.0, releases=1000)
    often = SharedContinualDensity(universe=9, epsilon=1.0, releases=1000, deletions=True, changes=4)
    levels = len(live.radices)
    assert live.law.kappa * 2 * levels == pytest.approx(1.0)
    assert often.law.kappa * 8 * levels == pytest.approx(1.0)
    assert "all rows of one user against none of them lose 0.5" in live.claim().note
    assert "at most 4 times" in often.claim().note
    assert live.claim().epsilon == often.claim().epsilon == 1.0
    table = SharedContinualDistinct.sized(1.0, expected=20_000, releases=1000)
    assert 60 < np.mean([1.96 * 20_000 * table.relative_error(20_000, tick) for tick in range(1, 1001, 13)]) < 65
    assert live.standard_error(1.0, 500) < paid.standard_error(1.0) / 50
    for statistic in (live, often, table):
        assert type(statistic)(**statistic.parameters()) == statistic
        assert statistic.layout()["cells"].shape == (statistic.rule.size,)
    assert [beats_paying(1.0, 1000, changes) for changes in (1, 50, 100)] == [True, True, False]
    with pytest.raises(InvalidParameter, match="only exact ones"):
        SharedContinualDensity(universe=9, epsilon=1.0, releases=10, noisy=True)
    with pytest.raises(InvalidParameter, match="only exact ones"):
        SharedContinualDistinct(epsilon=1.0, releases=10, noisy=True)
    with pytest.raises(InvalidParameter, match="changes needs deletions"):
        SharedContinualDensity(universe=9, epsilon=1.0, releases=10, changes=2)
