"""Counts and sums: exact without noise, input, claims."""

import math
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.continual.grid import Grid, GridBatch
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter
from panstream.testing.enumeration import snapshot
from tests.algorithms.continual.linear_view import joint_loss, neighbours, several_steps, with_event


@pytest.mark.parametrize("horizon", [3000, None])
def test_counts_are_exact_without_noise(horizon: int | None) -> None:
    arrivals = np.random.default_rng(1).integers(-5, 6, 3000)
    monitor = Monitor(ContinualCount(epsilon=math.inf, horizon=horizon))
    assert (monitor.tick_many(arrivals[:2000]).value == np.cumsum(arrivals)[:2000]).all()
    for slot in range(2000, 2100):
        monitor.update(int(arrivals[slot]))
        monitor.update([1, -1, 0])
        assert monitor.tick().value == np.cumsum(arrivals)[slot]


@pytest.mark.parametrize("horizon", [3000, None])
@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_sums_are_exact_without_noise(horizon: int | None, one_step_ticks: bool) -> None:
    cents = np.random.default_rng(2).integers(-2000, 5000, 3000)
    total = ContinualSum(
        epsilon=math.inf, horizon=horizon, lower=-10.0, upper=30.0, resolution=0.01, one_step_ticks=one_step_ticks
    )
    expected = np.cumsum(np.clip(cents, -1000, 3000)) / 100
    assert Monitor(total).tick_many(cents / 100).value == pytest.approx(expected)


def test_several_updates_make_a_slot() -> None:
    monitor = Monitor(ContinualSum(epsilon=math.inf, lower=0.0, upper=8.0, resolution=0.5))
    monitor.update([1.0, 2.5])
    monitor.update([100.0])
    monitor.update([])
    assert monitor.tick().value == 11.5
    assert monitor.tick_many([1.0, 1.0]).value.tolist() == [12.5, 13.5]


@pytest.mark.slow
def test_joint_loss_of_sums_and_counts() -> None:
    world = several_steps(4)
    total = ContinualSum(epsilon=1.0, horizon=4, levels=2, lower=-1.0, upper=3.0, resolution=0.5)
    assert joint_loss(total, world, neighbours(world, 3.0)).loss == pytest.approx(1.0, abs=1e-9)
    assert joint_loss(total, world, neighbours(world, -1.0)).loss == pytest.approx(1 / 3, abs=1e-9)
    count = ContinualCount(epsilon=1.0, horizon=4, levels=2)
    for event in (1, -1):
        assert joint_loss(count, world, neighbours(world, event)).loss == pytest.approx(1.0, abs=1e-9)
    users = ContinualCount(epsilon=1.0, horizon=4, levels=2, contributions=2)
    twice = [with_event(with_event(world, first), second) for first in (0, 2, 4) for second in (4, 6) if first < second]
    assert joint_loss(users, world, twice).loss == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("events", [[2], [None], ["x"], [0.5], 1 << 41, True, None, "ab"])
def test_bad_events_are_refused(events: Any) -> None:
    monitor = Monitor(ContinualCount(epsilon=1.0, horizon=9))
    before = snapshot(monitor.state)
    with pytest.raises(InvalidBatch):
        monitor.update(events)
    assert snapshot(monitor.state) == before


def test_values_outside_are_clipped_or_refused() -> None:
    clipping = Monitor(ContinualSum(epsilon=math.inf, lower=0.0, upper=1.0))
    clipping.update([-5.0, 0.5, 7.0])
    assert clipping.tick().value == pytest.approx(1.5)
    refusing = Monitor(ContinualSum(epsilon=1.0, lower=0.0, upper=1.0, outside="refuse", horizon=5))
    assert refusing.claim().epsilon == math.inf
    before = snapshot(refusing.state)
    for call in (refusing.update, refusing.tick_many):
        with pytest.raises(InvalidBatch, match="row 1"):
            call([0.5, 7.0])
    with pytest.raises(InvalidBatch, match="row 1"):
        refusing.tick_many([0.5, float("nan")])
    with pytest.raises(BudgetExhausted):
        refusing.tick_many([0.5] * 6)
    assert snapshot(refusing.state) == before


def test_copies_of_the_input_are_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Grid.read
    taken = []

    def remember(grid: Grid, data: Any) -> GridBatch:
        taken.append(read(grid, data))
        assert taken[-1].rows.any()
        return taken[-1]

    monkeypatch.setattr(Grid, "read", remember)
    total = ContinualSum(epsilon=1.0, lower=0.0, upper=1.0)
    monitor = Monitor(total)
    monitor.update([0.5, 0.25])
    monitor.tick_many([0.5, 0.25])
    batch = total.batch([0.5, 0.25])
    assert batch.total.any()
    batch.wipe()
    assert not batch.total.any()
    assert not any(steps.rows.any() for steps in taken)


def test_slots_and_claims() -> None:
    slot = ContinualSum(epsilon=1.0, horizon=9, lower=-2.0, upper=3.0, resolution=1.0, unit="slot", one_step_ticks=True)
    assert (slot.sensitivity, slot.claim().unit, slot.claim().adjacency) == (5, "slot", "replace")
    event = ContinualSum(epsilon=1.0, horizon=9, lower=-2.0, upper=3.0, resolution=1.0)
    assert (event.sensitivity, event.claim().unit) == (3, "event")
    for wrong in ({"unit": "slot"}, {"unit": "day"}, {"lower": 4.0}, {"resolution": -1.0}, {"outside": "drop"}):
        with pytest.raises(InvalidParameter):
            ContinualSum(**{"epsilon": 1.0, "lower": 0.0, "upper": 3.0, **wrong})
    with pytest.raises(InvalidParameter, match="coarser"):
        ContinualSum(epsilon=1e-9, lower=0.0, upper=1.0)


def test_error_is_in_units_of_the_values() -> None:
    count = ContinualCount(epsilon=1.0, horizon=100)
    total = ContinualSum(epsilon=1.0, horizon=100, lower=0.0, upper=50.0)
    assert total.error_bound(beta=0.1) == pytest.approx(50 * count.error_bound(beta=0.1), rel=0.01)
    estimate = Monitor(total).tick()
    assert estimate.standard_error == pytest.approx(50 * Monitor(count).tick().standard_error, rel=0.02)


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_the_shortest_horizons_survive_bytes(horizon: int) -> None:
    monitor = ContinualCount(epsilon=math.inf, horizon=horizon).start()
    monitor.update(5)
    again = Monitor.from_bytes(monitor.to_bytes())
    assert again.tick().value == 5.0
