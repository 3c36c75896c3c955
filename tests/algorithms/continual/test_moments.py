"""Means and variances: exact without noise, Bernstein parts, joint loss, honest errors, no data."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.sums import KaryTree
from panstream.core.monitor import Monitor
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.noise import SeededSource
from panstream.testing.enumeration import snapshot, tick, update
from panstream.testing.linear_views import linear_views, ticks
from tests.algorithms.continual.linear_view import joint_loss, several_steps, with_event
from tests.exact_law import assert_exact_intervals
from tests.statistical import ALPHA
from tests.zero_noise import ZeroNoiseSource

KINDS = [ContinualMean, ContinualVariance]
ADJACENCIES = ["add-remove", "replace"]


def truth(kind: type[Any], values: Any) -> list[float]:
    """The exact answers, by NumPy, with NaN where there are none."""
    clipped = np.clip(values, 0.0, 10.0)
    if kind is ContinualMean:
        return [float(clipped[:n].mean()) for n in range(1, len(clipped) + 1)]
    return [math.nan, *(float(clipped[:n].var(ddof=1)) for n in range(2, len(clipped) + 1))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("horizon", [600, None])
def test_answers_are_exact_without_noise(kind: type[Any], adjacency: str, horizon: int | None) -> None:
    values = np.round(np.random.default_rng(1).normal(4, 3, 600), 2)
    algorithm = kind(epsilon=math.inf, horizon=horizon, lower=0.0, upper=10.0, resolution=0.01, adjacency=adjacency)
    monitor = Monitor(algorithm)
    got = monitor.tick_many(values[:400]).value.tolist()
    for value in values[400:]:
        monitor.update([value])
        got.append(monitor.tick().value)
    assert got == pytest.approx(truth(kind, values), nan_ok=True)
    assert monitor.release().value == got[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_data_is_said_in_words(kind: type[Any], adjacency: str) -> None:
    noiseless = Monitor(kind(epsilon=math.inf, horizon=9, lower=-1.0, upper=1.0, adjacency=adjacency))
    noisy = Monitor(kind(epsilon=1.0, horizon=9, lower=-1.0, upper=1.0, adjacency="add-remove"), rng=SeededSource(2))
    for estimate in (noiseless.tick(), noisy.tick()):
        assert math.isnan(estimate.value)
        assert estimate.standard_error == math.inf
        assert estimate.name.endswith("(no data)")
        assert estimate.interval() == ((-1.0, 1.0) if kind is ContinualMean else (0.0, 2.0))
    noiseless.update([0.5])
    assert math.isnan(noiseless.tick().value) == (kind is ContinualVariance)
    noiseless.update([0.5])
    assert noiseless.tick().value == pytest.approx(0.5 if kind is ContinualMean else 0.0, abs=1e-3)
    assert noiseless.tick_many([0.5]).standard_error[0] == 0.0


def parts(steps: int, degree: int, adjacency: Any) -> ContinualMean | ContinualVariance:
    kind = ContinualMean if degree == 1 else ContinualVariance
    return kind(epsilon=1.0, horizon=4, lower=0.0, upper=float(steps), resolution=1.0, adjacency=adjacency)


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 7, 10])
def test_parts_and_their_sensitivity(steps: int, degree: int) -> None:
    """All values, and all pairs of values, of the grid."""
    rows = np.arange(steps + 1)
    bernstein, centred = (parts(steps, degree, adjacency) for adjacency in ("add-remove", "replace"))
    leaves = np.empty((steps + 1, bernstein.width), np.int64)
    bernstein.spread(rows, leaves)
    expected = [
        [math.comb(degree, j) * i**j * (steps - i) ** (degree - j) for j in range(degree + 1)] for i in range(steps + 1)
    ]
    assert leaves.tolist() == expected
    assert leaves.min() >= 0
    assert set(leaves.sum(axis=1)) == {bernstein.sensitivity}
    moved = np.empty((steps + 1, centred.width), np.int64)
    centred.spread(rows, moved)
    largest = max(np.abs(moved[a] - moved[b]).sum() for a, b in itertools.product(rows, rows))
    assert largest <= centred.sensitivity
    if degree == 1 or steps % 4 == 0 or steps == 2:
        assert largest >= centred.sensitivity * (1.0 if degree == 1 else 8 / 9)


def test_centred_squares_attain_their_sensitivity() -> None:
    variance = parts(8, 2, "replace")
    leaves = np.empty((2, 2), np.int64)
    variance.spread(np.array([8, 2]), leaves)  # y = 1 and y = -1/2
    assert np.abs(leaves[0] - leaves[1]).sum() == variance.sensitivity == 144


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_joint_loss_when_events_are_added(kind: type[Any]) -> None:
    algorithm = kind(epsilon=1.0, horizon=3, levels=2, lower=0.0, upper=4.0, resolution=1.0)
    world = several_steps(3, nothing=2.0)
    for at, extra in itertools.product((0, 2, 4), (0.0, 1.0, 4.0)):
        more = [*world[:at], update([2.0, extra]), *world[at + 1 :]]
        assert joint_loss(algorithm, world, [more]).loss == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_joint_loss_when_values_are_exchanged(kind: type[Any]) -> None:
    algorithm = kind(epsilon=1.0, horizon=3, levels=2, lower=0.0, upper=8.0, resolution=1.0, adjacency="replace")
    world = several_steps(3, nothing=8.0)
    losses = [joint_loss(algorithm, world, [with_event(world, at, v)]).loss for at in (0, 4) for v in (0.0, 2.0, 7.0)]
    assert max(losses) == pytest.approx(1.0, abs=1e-9)
    assert losses[: len(losses) // 2] == pytest.approx(losses[len(losses) // 2 :])


@pytest.mark.parametrize("kind", KINDS)
def test_joint_loss_when_values_are_exchanged_and_a_tick_is_one_step(kind: type[Any]) -> None:
    """Answers are ratios; their sums, which the state makes public, are linear."""
    options = {"adjacency": "replace", "one_step_ticks": True}
    algorithm = kind(epsilon=1.0, horizon=6, levels=2, lower=0.0, upper=8.0, resolution=1.0, **options)
    world = [ticks([8.0])] * 6
    changed = [[*world[:at], ticks([value]), *world[at + 1 :]] for at in range(6) for value in (0.0, 2.0)]
    worst = joint_loss(algorithm, world, changed, published=lambda state, result: state.sums.ravel().copy())
    assert worst.loss == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_third_of_the_budget_each_is_noisier(kind: type[Any]) -> None:
    """Count and sum of y, and for the variance y² too, against separate trees; ratios of exact variances."""
    steps = 1024
    algorithm = kind(epsilon=1.0, horizon=1024, lower=0.0, upper=1.0, resolution=1 / steps)
    degree = algorithm.degree
    part = algorithm.engine.law().variance / algorithm.sensitivity**2
    split = KaryTree(epsilon=1.0 / (degree + 1), horizon=1024).engine.law().variance
    if kind is ContinualMean:
        # sum (1-x) and sum x: the count is their sum; a sum of x in [0, 1] has sensitivity 1 too
        assert split / part == pytest.approx(4.0, rel=0.01)
        noise = {"count": 2 * part, "sum": part}
        assert all(split / variance > 1.99 for variance in noise.values())
    else:
        noise = {"count": 3 * part, "sum": 2 * part, "squares": 3 * part}
        assert all(split / variance > 2.99 for variance in noise.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_errors_are_calibrated(kind: type[Any], adjacency: str) -> None:
    """RUNS answers on the same 4,000 values: unbiased to first order, standard errors and bounds honest."""
    runs = 600
    values = np.clip(np.random.default_rng(5).normal(3, 2, 4000), 0, 10)
    algorithm = kind(epsilon=1.0, horizon=16, lower=0.0, upper=10.0, adjacency=adjacency)
    exact = truth(kind, values)[-1]
    rng = SeededSource(6)
    errors = []
    claimed = []
    covered = 0
    for _ in range(runs):
        monitor = Monitor(algorithm, rng=rng)
        monitor.update(values)
        estimate = monitor.tick()
        errors.append(estimate.value - exact)
        claimed.append(estimate.standard_error)
        low, high = estimate.interval(0.95)
        covered += low <= exact <= high
    scale = float(np.mean(claimed))
    assert abs(np.mean(errors)) < stats.norm.isf(ALPHA / 2) * scale / math.sqrt(runs) + 0.02 * scale
    assert np.std(errors) == pytest.approx(scale, rel=0.25)
    assert stats.binomtest(covered, runs, 0.93, alternative="less").pvalue > ALPHA
    bound = algorithm.error_bound(beta=0.1, events=4000)
    assert scale < bound
    beyond = int((np.abs(errors) > bound).sum())
    assert stats.binomtest(beyond, runs, 0.1, alternative="greater").pvalue > ALPHA


@pytest.mark.parametrize("kind", KINDS)
def test_error_bounds_without_enough_events_are_the_whole_range(kind: type[Any]) -> None:
    algorithm = kind(epsilon=1.0, horizon=100, lower=0.0, upper=10.0)
    most = 10.0 if kind is ContinualMean else 50.0
    assert algorithm.error_bound(beta=0.1) == algorithm.error_bound(beta=0.1, events=3) == most
    assert algorithm.error_bound(beta=0.1, events=10**6) < most / 100
    unbounded = kind(epsilon=1.0, lower=0.0, upper=10.0)
    assert unbounded.error_bound(beta=0.1, events=10**6) == most
    assert unbounded.error_bound(beta=0.1, events=10**6, ticks=100) < most / 50


@pytest.mark.parametrize("kind", KINDS)
def test_negative_variances_and_means_outside_do_not_leave(kind: type[Any]) -> None:
    rng = SeededSource(9)
    for _ in range(100):
        monitor = Monitor(kind(epsilon=0.5, horizon=4, lower=0.0, upper=1.0), rng=rng)
        monitor.update([1.0] * 60)
        value = monitor.tick().value
        assert math.isnan(value) or 0.0 <= value <= 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_the_count_is_public_only_where_the_adjacency_says_so(kind: type[Any]) -> None:
    for adjacency, events in (("add-remove", 0), ("replace", 5)):
        algorithm = kind(epsilon=1.0, horizon=9, lower=0.0, upper=1.0, adjacency=adjacency)
        monitor = Monitor(algorithm)
        monitor.update([0.5, 0.5, 0.5])
        monitor.tick_many([0.5, 0.5])
        assert monitor.state.events == events
        facts = " ".join(algorithm.claim().public)
        assert ("number of events" in facts) == (adjacency == "replace")
        assert algorithm.claim().adjacency == adjacency


@pytest.mark.parametrize("kind", KINDS)
def test_bad_rows_and_parameters_are_refused(kind: type[Any]) -> None:
    monitor = Monitor(kind(epsilon=1.0, horizon=9, lower=0.0, upper=1.0, outside="refuse"))
    before = snapshot(monitor.state)
    for values in ([0.5, None], [0.5, math.nan], [0.5, "x"], [0.5, 2.0]):
        for call in (monitor.update, monitor.tick_many):
            with pytest.raises(InvalidBatch, match="row 1"):
                call(values)
    assert snapshot(monitor.state) == before
    for wrong in ({"adjacency": "swap"}, {"lower": 2.0}, {"resolution": 1e-15}, {"outside": "drop"}):
        with pytest.raises(InvalidParameter):
            kind(**{"epsilon": 1.0, "lower": 0.0, "upper": 1.0, **wrong})


def test_view_of_a_mean_is_linear_although_the_answer_is_not() -> None:
    algorithm = ContinualMean(epsilon=1.0, horizon=3, levels=2, lower=0.0, upper=4.0, resolution=1.0)
    views = linear_views(algorithm, [update([2.0]), tick()], [])
    assert views[0].matrix.shape[1] > views[0].matrix.shape[0]


def test_population_variance_divides_by_the_count() -> None:
    values = [1.0, 2.0, 4.0, 7.0, 7.5]
    for population, ddof in ((True, 0), (False, 1)):
        algorithm = ContinualVariance(epsilon=math.inf, horizon=4, lower=0.0, upper=8.0, population=population)
        monitor = algorithm.start()
        monitor.update(values)
        assert monitor.tick().value == pytest.approx(np.var(values, ddof=ddof), rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "what", "true", "parts", "weight"),
    [
        (ContinualMean, "count", 2.0, 2, 1.0),
        (ContinualVariance, "count", 2.0, 3, 1.0),
        (ContinualMean, "sum", 4.0, 1, 4.0),
    ],
)
def test_what_is_told_beside_a_moment_has_the_interval_of_its_own_noise(
    kind: type[Any], what: str, true: float, parts: int, weight: float
) -> None:
    """After one tick every part has a draw from its start and one from its end: their exact law by convolution. With a
    lower end of 0, a sum is the upper end times one part.
    """
    tree = kind(epsilon=2.0, horizon=4, levels=1, lower=0.0, upper=4.0, resolution=1.0)
    with ZeroNoiseSource() as source:
        state = tree.initial_state(source)
        tree.update(state, tree.batch([1.0, 3.0]), source)
        tree.tick(state, source)
    answer = tree.at(state, what)
    assert answer.value == true
    assert_exact_intervals(answer, 2 * parts, tree.engine.law().kappa, weight / tree.sensitivity)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mean_told_beside_a_moment_moves_with_its_parts(kind: type[Any]) -> None:
    """The exact mean without noise, and the error that moving one part after the other by a draw's deviation gives."""
    tree = kind(epsilon=2.0, horizon=4, levels=1, lower=-1.0, upper=4.0, resolution=0.5)
    values = [1.0, 3.0, 3.5, -0.5] * 25
    with ZeroNoiseSource() as source:
        state = tree.initial_state(source)
        tree.update(state, tree.batch(values), source)
        tree.tick(state, source)
    told = tree.at(state, "mean")
    total = tree.engine.totals(state)
    law = tree.engine.law()
    assert told.value == pytest.approx(np.mean(values), rel=1e-12)
    # a draw from the start and one from the end
    step = 1e-4
    deviation = math.sqrt(2 * law.variance)
    moved = [total + step * np.eye(total.size)[part] for part in range(tree.width)]
    slopes = [(tree.from_totals(each, "mean", law).unclipped - told.unclipped) / step for each in moved]
    assert told.standard_error == pytest.approx(deviation * math.hypot(*slopes), rel=1e-4)
