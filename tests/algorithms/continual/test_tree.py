"""The default tree: its twin, its exact joint loss, its errors, and what it refuses."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.continual.sums import KaryTree
from panstream.algorithms.continual.tree_base import TreeState
from panstream.core.catalogue import ALGORITHMS
from panstream.core.estimate import Estimate
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidBytes, InvalidParameter, NotSupported
from panstream.primitives.noise import NoiseSource, SeededSource
from panstream.testing.enumeration import refresh, snapshot, tick, update
from panstream.testing.sources import ScriptedSource
from tests.algorithms.continual.tree_twin import TwinTree
from tests.statistical import ALPHA

SCRIPT = {draw: (draw * 7919) % 201 - 100 for draw in range(100_000)}


# The twin


@pytest.mark.parametrize("horizon", [400, None])
@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_arrays_of_ticks_agree_with_the_twin(horizon: int | None, one_step_ticks: bool) -> None:
    shape = {} if horizon is None else {"levels": 3}
    tree = KaryTree(epsilon=0.5, horizon=horizon, one_step_ticks=one_step_ticks, **shape)
    twin = TwinTree(tree)
    values = [(slot * 31) % 11 for slot in range(400)]
    rng = ScriptedSource(SCRIPT)
    twin_source = ScriptedSource(SCRIPT)
    state = tree.initial_state(rng)
    twin_state = twin.initial_state(twin_source)
    got: list[float] = []
    for start, stop in ((0, 1), (1, 2), (2, 60), (60, 400)):
        got += tree.tick_many(state, values[start:stop], rng).unclipped.tolist()
        twin.tick_many(twin_state, values[start:stop], twin_source)
        assert len(rng.kappas) == len(twin_source.kappas)
    assert got == pytest.approx(twin.answers, abs=1e-6)
    assert state.open[: len(twin_state.open), 0].tolist() == twin_state.open


@pytest.mark.parametrize("horizon", [100, None])
def test_slots_of_several_steps_agree_with_the_twin(horizon: int | None) -> None:
    tree = KaryTree(epsilon=0.5, horizon=horizon, lower=-9, upper=9, **({} if horizon is None else {"levels": 3}))
    twin = TwinTree(tree)
    rng = ScriptedSource(SCRIPT)
    twin_source = ScriptedSource(SCRIPT)
    state = tree.initial_state(rng)
    twin_state = twin.initial_state(twin_source)
    for slot in range(100):
        for values in ([slot % 9, -3], [], [slot % 4]):
            tree.update(state, tree.batch(values), rng)
            twin.update(twin_state, sum(values), twin_source)
        if slot % 17 == 5:
            tree.refresh(state, rng)
            twin.refresh(twin_state, twin_source)
        estimate = tree.tick(state, rng)
        expected = twin.tick(twin_state, twin_source)
        assert estimate.released == expected.released
        assert estimate.unclipped == pytest.approx(expected.value, abs=1e-6)
        assert estimate.standard_error == pytest.approx(expected.standard_error)
        assert tree.release(state, rng).unclipped == estimate.unclipped


def test_public_state_is_made_of_releases() -> None:
    """Whoever read the outputs can rebuild everything that the state calls public."""
    tree = KaryTree(epsilon=0.5, horizon=60, levels=3, lower=0, upper=9)
    rng = ScriptedSource(SCRIPT)
    state = tree.initial_state(rng)
    rebuilt = np.zeros((3, 2))
    for slot in range(60):
        tree.update(state, tree.batch([slot % 10]), rng)
        for level, own in enumerate(tree.tick(state, rng).released):
            below = rebuilt[level - 1].copy() if level else np.array([own, math.inf])
            trust = 1.0 if level == 0 else below[1] / (below[1] + 2.0)
            rebuilt[level] += (below[0] + trust * (own - below[0]), 2.0 * trust)
            if level:
                rebuilt[level - 1] = 0.0
        assert state.sums[:3] == pytest.approx(rebuilt)
        assert not state.sums[3].any()


# Errors


@pytest.mark.slow
@pytest.mark.parametrize(("one_step_ticks", "horizon", "runs"), [(True, 1024, 3000), (False, 256, 60)])
def test_mean_squared_error_is_the_formula(one_step_ticks: bool, horizon: int, runs: int) -> None:
    """Runs are independent, so the mean over slots of one run is one sample."""
    tree = KaryTree(epsilon=1.0, horizon=horizon, one_step_ticks=one_step_ticks)
    rng = SeededSource(5)
    squares = []
    for _ in range(runs):
        monitor = Monitor(tree, rng=rng)
        if one_step_ticks:
            error = monitor.tick_many(np.zeros(horizon, np.int64)).unclipped
        else:
            error = np.array([monitor.tick().unclipped for _ in range(horizon)])
        squares.append(float(np.mean(error**2)))
    expected = tree.engine.shape(0).noise(horizon).mean * tree.engine.law().variance
    z = (np.mean(squares) - expected) / (np.std(squares, ddof=1) / math.sqrt(len(squares)))
    assert abs(z) < stats.norm.isf(ALPHA / 2), f"measured {np.mean(squares):.1f}, expected {expected:.1f}"


@pytest.mark.slow
def test_standard_errors_and_intervals_are_calibrated() -> None:
    tree = KaryTree(epsilon=1.0, horizon=300, one_step_ticks=True)
    rng = SeededSource(8)
    errors = np.array([Monitor(tree, rng=rng).tick_many(np.zeros(300, np.int64)).unclipped for _ in range(1000)])
    claimed = Monitor(tree, rng=rng).tick_many(np.zeros(300, np.int64)).standard_error
    ratio = (errors**2).mean(axis=0) / claimed**2
    assert ratio == pytest.approx(1.0, abs=0.4)
    assert abs(errors.mean(axis=0) / (claimed / math.sqrt(1000))).max() < stats.norm.isf(ALPHA / 600)
    within = 0
    for _ in range(400):
        monitor = Monitor(tree, rng=rng)
        monitor.tick_many(np.zeros(2, np.int64))
        low, high = monitor.release().interval(0.95)
        within += low <= 0 <= high
    assert stats.binomtest(within, 400, 0.95, alternative="less").pvalue > ALPHA


def test_refresh_widens_the_standard_error() -> None:
    monitor = Monitor(KaryTree(epsilon=1.0, horizon=10, levels=1), rng=SeededSource(1))
    unit = monitor.algorithm.engine.law().variance  # type: ignore[attr-defined]
    monitor.refresh()
    monitor.refresh()
    assert monitor.tick().standard_error == pytest.approx(math.sqrt(4 * unit))
    assert monitor.tick().standard_error == pytest.approx(math.sqrt(6 * unit))


def test_promised_error() -> None:
    tree = KaryTree(epsilon=1.0, horizon=1024)
    worst = tree.engine.shape(0).noise(1024).worst * tree.engine.law().variance
    assert 2 * math.sqrt(worst) < tree.error_bound(beta=0.05) < 4 * math.sqrt(worst)
    assert tree.error_bound(beta=0.05, ticks=10) < tree.error_bound(beta=0.05, ticks=100) <= tree.error_bound(beta=0.05)
    unbounded = KaryTree(epsilon=1.0)
    assert unbounded.error_bound(beta=0.05) == math.inf
    assert tree.error_bound(beta=0.05) < unbounded.error_bound(beta=0.05, ticks=1024) < 2 * tree.error_bound(beta=0.05)
    assert KaryTree(epsilon=math.inf, horizon=9).error_bound(beta=0.5) == 0.0


# What it holds and what it refuses


@pytest.mark.parametrize("horizon", [20_000, None])
@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_without_noise_answers_are_exact(horizon: int | None, one_step_ticks: bool) -> None:
    values = (np.arange(20_000) * 37) % 101 - 50
    monitor = Monitor(KaryTree(epsilon=math.inf, horizon=horizon, one_step_ticks=one_step_ticks, lower=-50, upper=50))
    assert (monitor.tick_many(values).value == np.cumsum(values)).all()
    assert monitor.claim().epsilon == math.inf


def test_memory_does_not_grow_with_the_horizon() -> None:
    small, large = (KaryTree(epsilon=1.0, horizon=1 << power, one_step_ticks=True) for power in (10, 40))
    sizes = [len(Monitor(tree).to_bytes()) for tree in (small, large)]
    assert sizes[1] < 2 * sizes[0] < 4000


def test_a_stream_longer_than_its_horizon_is_refused_before_anything_changes() -> None:
    tree = KaryTree(epsilon=1.0, horizon=10)
    monitor = Monitor(tree)
    monitor.tick_many([1] * 8)
    before = snapshot(monitor.state)
    with pytest.raises(BudgetExhausted, match="horizon=10 allows 2 more ticks, got 3"):
        monitor.tick_many([1, 1, 1])
    assert snapshot(monitor.state) == before
    monitor.tick_many([1, 1])
    before = snapshot(monitor.state)
    for call in (monitor.tick, lambda: monitor.update([1])):
        with pytest.raises(BudgetExhausted):
            call()
    assert snapshot(monitor.state) == before
    assert isinstance(monitor.release(), Estimate)


class StopsEarly(NoiseSource):
    """Fails at the given draw, as an interrupted machine would."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def add_discrete_laplace(self, values: Any, law: Any) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        NoiseSource.add_discrete_laplace(self, values, law)


def test_an_interrupted_call_leaves_the_state_as_it_was() -> None:
    tree = KaryTree(epsilon=1.0)
    with NoiseSource() as rng:
        state = tree.initial_state(rng)
    before = snapshot(state)
    with pytest.raises(KeyboardInterrupt), StopsEarly(3) as rng:
        tree.tick_many(state, np.ones(100_000, np.int64), rng)
    assert snapshot(state) == before


@pytest.mark.parametrize("values", [[1 << 70], [0, None], [0.5], ["1"], [True], [float("nan")]])
def test_bad_rows_are_refused(values: list[Any]) -> None:
    tree = KaryTree(epsilon=1.0, horizon=10)
    with pytest.raises(InvalidBatch):
        tree.batch(values)
    monitor = Monitor(KaryTree(epsilon=1.0, horizon=10, one_step_ticks=True, unit="slot"))
    before = snapshot(monitor.state)
    with pytest.raises(InvalidBatch):
        monitor.tick_many(values)
    assert snapshot(monitor.state) == before


def test_values_outside_the_range_are_moved_to_its_bounds() -> None:
    """Refusing their batch would let one value decide whether the others count."""
    for tree in (
        KaryTree(epsilon=math.inf, horizon=10, lower=-1, upper=2),
        LeastSquaresTree(epsilon=math.inf, horizon=10, lower=-1, upper=2),
    ):
        monitor = Monitor[Any](tree)
        monitor.update(np.array([7, -7, 1]))
        assert monitor.tick().value == 2


def test_one_step_ticks_refuse_slots_of_several_steps() -> None:
    monitor = Monitor(KaryTree(epsilon=1.0, horizon=10, one_step_ticks=True))
    for call in (lambda: monitor.update([1]), monitor.tick):
        with pytest.raises(NotSupported, match="call ticks"):
            call()
    with pytest.raises(NotSupported, match="releases at ticks"):
        monitor.release()


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"horizon": 0},
        {"horizon": 1 << 57},
        {"levels": 0},
        {"levels": 25},
        {"capacity": 0, "levels": 1},
        {"capacity": 5},
        {"capacity": 1, "levels": 2},
        {"horizon": None, "levels": 3},
        {"lower": 1, "upper": 0},
        {"lower": 0, "upper": 0},
        {"unit": "user"},
        {"unit": "slot"},
        {"contributions": 0},
        {"epsilon": 1e-9, "upper": 1 << 30},
    ],
    ids=str,
)
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        KaryTree(**{"epsilon": 1.0, "horizon": 100, **wrong})


@pytest.mark.parametrize("horizon", [50, None])
def test_bytes_round_trip(horizon: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "KaryTree", "panstream.algorithms.continual.sums")
    monitor = Monitor(KaryTree(epsilon=1.0, horizon=horizon), rng=SeededSource(3))
    monitor.tick_many([1] * 20)
    monitor.update([1, 0])
    data = monitor.to_bytes()
    again = Monitor[TreeState].from_bytes(data, rng=SeededSource(4))
    monitor._rng = SeededSource(4)
    assert again.to_bytes() == data
    assert [again.tick().value for _ in range(20)] == [monitor.tick().value for _ in range(20)]
    with pytest.raises(InvalidBytes):
        Monitor[TreeState].from_bytes(data[:-1])


def test_claim_names_unit_adjacency_and_intrusions() -> None:
    claim = KaryTree(epsilon=1.0, horizon=100).claim()
    assert (claim.unit, claim.adjacency, claim.releases, claim.horizon) == ("event", "add-remove", 100, 100)
    assert str(claim.intrusions).startswith("1 unannounced and any number of announced")
    assert KaryTree(epsilon=1.0, contributions=4).claim().unit == "user"
    slot = KaryTree(epsilon=1.0, horizon=10, unit="slot", one_step_ticks=True, lower=-3, upper=4)
    assert (slot.claim().unit, slot.claim().adjacency, slot.sensitivity) == ("slot", "replace", 7)


def test_monitor_runs_on_system_entropy() -> None:
    """The steps of the docstring, in every order, on the real source."""
    monitor = KaryTree(epsilon=1.0, horizon=200).start()
    for step in [update([1]), tick(), refresh(), update([0, 1]), tick()]:
        arguments = dict(step.arguments)
        getattr(monitor, step.verb)(*[list(value) for value in arguments.values()])
    assert len(monitor.tick_many([1] * 198)) == 198
    assert monitor.tick_many([]).value.size == 0
