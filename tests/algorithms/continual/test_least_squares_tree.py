"""The least-squares tree: its noise against dense least squares, its loss, and that it says it is not pan-private."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree, _LeastSquaresState, _max_noise
from panstream.algorithms.continual.noise_sum_tails import error_bound
from panstream.core.catalogue import ALGORITHMS
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter, NotSupported
from panstream.primitives.noise import SeededSource
from panstream.testing.enumeration import snapshot
from panstream.testing.linear_views import linear_views
from tests.algorithms.continual.linear_view import joint_loss, neighbours, one_step, several_steps
from tests.statistical import ALPHA

LARGE = 1 << 40  # the code rounds; noise of this size shows its weights to twelve digits


def nodes_of(radices: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """All nodes as (first slot, one past the last, level)."""
    size = 1
    found = []
    for level, radix in enumerate(radices):
        found += [(start, start + size, level) for start in range(0, math.prod(radices), size)]
        size *= radix
    return found


def visible(radices: tuple[int, ...], slots: int) -> list[tuple[int, int]]:
    """The nodes whose noise the state knows after ``slots`` slots: all closed ones, and children of open ones."""
    total = math.prod(radices)
    size = 1
    parents = []
    for radix in radices:
        size *= radix
        parents.append(size)
    kept = []
    for first, last, level in nodes_of(radices):
        parent = parents[level]
        open_parent = first // parent == slots // parent and parent < total
        top = level == len(radices) - 1 and first <= slots
        if last <= slots or open_parent or top:
            kept.append((first, last))
    return kept


@pytest.mark.parametrize("radices", [(5,), (4, 3), (3, 3, 2), (2, 2, 2, 2)], ids=str)
def test_noise_is_that_of_least_squares(radices: tuple[int, ...]) -> None:
    horizon = math.prod(radices) - 1
    tree = LeastSquaresTree(epsilon=1.0, horizon=horizon, radices=radices)
    errors = Monitor(tree).tick_many([0] * horizon).standard_error
    for slots in range(1, horizon + 1):
        rows = np.zeros((0, math.prod(radices)))
        for first, last in visible(radices, slots):
            row = np.zeros((1, math.prod(radices)))
            row[0, first:last] = 1.0
            rows = np.vstack([rows, row])
        wanted = np.zeros(math.prod(radices))
        wanted[:slots] = 1.0
        weights = np.linalg.pinv(rows).T @ wanted
        assert rows.T @ weights == pytest.approx(wanted, abs=1e-9)
        assert errors[slots - 1] ** 2 / tree.law.variance == pytest.approx(float(weights @ weights))


@pytest.mark.parametrize("radices", [(4, 3), (3, 2, 2), (2, 2, 2)], ids=str)
def test_loss_of_all_outputs_is_the_claim(radices: tuple[int, ...]) -> None:
    slots = math.prod(radices)
    tree = LeastSquaresTree(epsilon=1.0, horizon=slots, radices=radices)
    world = one_step(slots)
    outputs_only = joint_loss(tree, world, neighbours(world), looks=[None], amplitude=LARGE)
    assert outputs_only.loss == pytest.approx(1.0, abs=1e-9)
    with_a_look = joint_loss(tree, world, neighbours(world), looks=[slots // 2], amplitude=LARGE)
    assert with_a_look.loss == math.inf


def test_moving_the_noise_moves_the_outputs_exactly() -> None:
    """The proof's coupling holds to the last unit although the code rounds."""
    radices = (3, 3, 2)
    slots = 17
    tree = LeastSquaresTree(epsilon=1.0, horizon=slots, radices=radices)
    view = linear_views(tree, one_step(slots), neighbours(one_step(slots)), looks=[None], amplitude=LARGE)[0]
    assert view.matrix.shape[1] >= len(nodes_of(radices)) - 1
    assert view.shifts.tolist() == np.triu(np.ones((slots, slots))).tolist()


@pytest.mark.parametrize(("log_horizon", "target"), [(10, 118), (14, 288), (16, 413), (20, 753)])
def test_mean_squared_error_is_near_the_best_known(log_horizon: int, target: float) -> None:
    tree = LeastSquaresTree(epsilon=1.0, horizon=1 << log_horizon)
    error = 2 * len(tree.radices) ** 2 * tree.noise(1 << 14)[0]
    assert error < 1.05 * target
    event_level = 2 * (1 + log_horizon) ** 3
    assert 21.5 < event_level / error < 25.5


def test_measured_error_is_the_formula() -> None:
    runs = 500
    tree = LeastSquaresTree(epsilon=1.0, horizon=1024)
    rng = SeededSource(7)
    errors = np.array([Monitor(tree, rng=rng).tick_many(np.zeros(1024, np.int64)).unclipped for _ in range(runs)])
    squares = (errors**2).mean(axis=1)
    expected = tree.noise(1024)[0] * tree.law.variance + 1 / 12
    z = (squares.mean() - expected) / (squares.std(ddof=1) / math.sqrt(runs))
    assert abs(z) < stats.norm.isf(ALPHA / 2), f"measured {squares.mean():.1f}, expected {expected:.1f}"
    beyond = int((np.abs(errors[:, -1]) > tree.error_bound(beta=0.1)).sum())
    assert stats.binomtest(beyond, runs, 0.1, alternative="greater").pvalue > ALPHA


def test_answers_are_exact_without_noise() -> None:
    values = np.random.default_rng(1).integers(-3, 9, 5000)
    monitor = Monitor(LeastSquaresTree(epsilon=math.inf, horizon=5000, lower=-3, upper=8))
    assert (monitor.tick_many(values[:4000]).value == np.cumsum(values)[:4000]).all()
    monitor.update(values[4000:4500])
    assert monitor.tick().value == values[:4500].sum()
    assert monitor.algorithm.error_bound(beta=0.1) == 0.0


def test_slots_of_several_steps_and_arrays_agree() -> None:
    tree = LeastSquaresTree(epsilon=1.0, horizon=30, radices=(4, 4, 2))
    singly, at_once = (Monitor(tree, rng=SeededSource(3)) for _ in range(2))
    first = at_once.tick_many([1] * 3)
    for _ in range(3):
        singly.update([1])
        singly.tick()
    assert singly.release().interval_rule(0.95)[0] < singly.release().unclipped
    assert len(first) == 3
    assert singly.state.total == at_once.state.total
    assert singly.state.digits.tolist() == at_once.state.digits.tolist()


def test_it_says_that_it_is_not_pan_private() -> None:
    tree = LeastSquaresTree(epsilon=1.0, horizon=100)
    assert str(tree.claim().intrusions) == "none"
    assert "not pan-private" in tree.claim().note
    with pytest.raises(NotSupported, match="not pan-private"):
        Monitor(tree).refresh()
    with pytest.raises(NotSupported, match="call tick"):
        Monitor(tree).release()


def test_horizon_and_rows_are_checked_before_anything_changes() -> None:
    monitor = Monitor(LeastSquaresTree(epsilon=1.0, horizon=4))
    monitor.tick_many([1, 1, 1])
    before = snapshot(monitor.state)
    with pytest.raises(BudgetExhausted):
        monitor.tick_many([1, 1])
    for values in (["1"], [None], [0.5]):
        with pytest.raises(InvalidBatch):
            monitor.update(values)
    assert snapshot(monitor.state) == before


def test_memory_is_a_radix_per_level() -> None:
    sizes = [len(Monitor(LeastSquaresTree(epsilon=1.0, horizon=1 << power)).to_bytes()) for power in (10, 30)]
    assert sizes[1] < 4 * sizes[0] < 8000


def test_bytes_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "LeastSquaresTree", "panstream.algorithms.continual.least_squares_tree")
    monitor = Monitor(LeastSquaresTree(epsilon=1.0, horizon=100), rng=SeededSource(3))
    monitor.tick_many([1] * 20)
    again = Monitor[_LeastSquaresState].from_bytes(monitor.to_bytes(), rng=SeededSource(4))
    monitor._rng = SeededSource(4)
    assert [again.tick().value for _ in range(30)] == [monitor.tick().value for _ in range(30)]


@pytest.mark.parametrize(
    "wrong",
    [{"epsilon": -1.0}, {"horizon": 0}, {"radices": (3, 3)}, {"radices": (0, 99)}, {"lower": 1, "upper": 0}],
    ids=str,
)
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        LeastSquaresTree(**{"epsilon": 1.0, "horizon": 10, **wrong})


def test_several_steps_cost_nothing_more() -> None:
    tree = LeastSquaresTree(epsilon=1.0, horizon=6, radices=(3, 2))
    world = several_steps(6)
    outputs = joint_loss(tree, world, neighbours(world), looks=[None], amplitude=LARGE)
    assert outputs.loss == pytest.approx(1.0, abs=1e-9)


def test_noise_is_that_of_4096_slots_unless_another_number_is_asked_for() -> None:
    tree = LeastSquaresTree(epsilon=1.0, horizon=1 << 20)
    assert tree.noise() == tree.noise(4096) != tree.noise(1)


@pytest.mark.parametrize("radices", [(5,), (4, 3), (2, 2, 2, 2), (14, 14, 6), (7, 5, 3, 2), (4, 1, 6)], ids=str)
def test_no_answer_is_noisier_than_the_bound(radices: tuple[int, ...]) -> None:
    """Every answer of every horizon, one by one; the last digits of the horizon matter too."""
    whole = math.prod(radices)
    for horizon in {1, 2, 3, whole // 2, whole - 2, whole - 1, whole}:
        _, largest = LeastSquaresTree(epsilon=1.0, horizon=horizon, radices=radices).noise(horizon)
        assert largest * (1 - 1e-12) <= _max_noise(radices, horizon) < 1.01 * largest


def test_the_promised_error_is_that_of_the_noisiest_answer_of_a_long_stream() -> None:
    """Evenly spaced slots miss the noisiest one: here by a hundredth part, over 2**40 slots by a twentieth."""
    tree = LeastSquaresTree(epsilon=1.0, horizon=(1 << 18) - 7)
    _, largest = tree.noise(tree.horizon)
    assert tree.noise(1 << 12)[1] < 0.997 * largest
    for beta in (0.3, 0.01):
        exact = 1.0 + error_bound(beta, ((largest, tree.law),))
        assert exact <= tree.error_bound(beta=beta) < 1.001 * exact


def shapes(horizon: int, levels: int) -> set[tuple[int, ...]]:
    """All radices of so many levels that no smaller last one would do for."""
    if levels == 1:
        return {(horizon,)}
    return {
        (first, *others) for first in range(2, horizon) for others in shapes(-(-horizon // first), levels - 1)
    } | shapes(horizon, levels - 1)


@pytest.mark.parametrize("horizon", [10, 17, 20, 24, 40, 209, 229])
def test_no_other_radices_have_much_less_noise(horizon: int) -> None:
    """Noise is drawn at epsilon over the number of levels, so its variance goes with the square of that number."""

    def noise(radices: tuple[int, ...]) -> float:
        mean, _ = LeastSquaresTree(epsilon=1.0, horizon=horizon, radices=radices).noise(horizon)
        return len(radices) ** 2 * mean

    best = min(noise(radices) for radices in shapes(horizon, 3))
    assert noise(LeastSquaresTree(epsilon=1.0, horizon=horizon).radices) <= 1.003 * best


class Watching(SeededSource):
    """Notes how much working memory is held whenever something is drawn."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        super().__init__(1)
        self.held: list[int] = []

    def add_discrete_laplace(self, values: Any, law: Any) -> None:
        self.held.append(sum(size for _, size in self.scratch._used))
        super().add_discrete_laplace(values, law)


def test_noise_is_wiped_as_soon_as_it_is_used() -> None:
    """However many slots are closed at once, the noise of a few thousand is in memory at a time."""
    tree = LeastSquaresTree(epsilon=1.0, horizon=1 << 16)
    rng = Watching()
    with rng:
        state = tree.initial_state(rng)
    rng.held.clear()
    with rng:
        tree.tick_many(state, np.zeros(1 << 16, np.int64), rng)
    assert len(rng.held) >= 4
    assert max(rng.held) < 2 * rng.held[0]


def test_no_loss_at_all_is_refused_by_name() -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be positive, got epsilon=0"):
        LeastSquaresTree(epsilon=0.0, horizon=4)
