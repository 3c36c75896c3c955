"""Quantiles over a range: consistency against least squares, the error formula, exactness, joint loss."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.continual.range_histogram import RangeHistogram, _consistent_cells, _edge_variances, _rounded
from panstream.core.monitor import Monitor
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.noise import SeededSource
from panstream.testing.enumeration import snapshot, update
from tests.algorithms.continual.linear_view import joint_loss, several_steps
from tests.statistical import ALPHA

TREES = [(4, 1), (16, 1), (4, 2), (3, 3), (2, 4)]


def incidence(branching: int, depth: int) -> np.ndarray:
    """One row per node, coarsest first; one column per cell."""
    cells = branching**depth
    rows = []
    for level in range(1, depth + 1):
        size = branching ** (depth - level)
        rows += [(np.arange(cells) // size == node).astype(float) for node in range(branching**level)]
    return np.array(rows)


@pytest.mark.parametrize(("branching", "depth"), TREES)
def test_counts_are_those_of_least_squares(branching: int, depth: int) -> None:
    nodes = incidence(branching, depth)
    noisy = np.random.default_rng(1).normal(size=len(nodes))
    expected = np.linalg.lstsq(nodes, noisy, rcond=None)[0]
    assert _consistent_cells(noisy, branching, depth) == pytest.approx(expected)


@pytest.mark.parametrize(("branching", "depth"), TREES)
def test_variances_of_edges_are_those_of_least_squares(branching: int, depth: int) -> None:
    solve = np.linalg.pinv(incidence(branching, depth))
    below = np.vstack([np.zeros(solve.shape[1]), np.cumsum(solve, axis=0)])
    spread, weight, total = _edge_variances(branching, depth)
    assert spread == pytest.approx((below**2).sum(axis=1), abs=1e-12)
    assert weight == pytest.approx(below @ below[-1], abs=1e-12)
    assert total == pytest.approx(float(below[-1] @ below[-1]))
    assert np.abs(below).max() <= 1.0 + 1e-12  # so Chernoff's bound of ``error`` holds


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(("branching", "depth"), [(4, 2), (3, 3)])
def test_the_band_is_where_the_count_may_cross_by_least_squares(branching: int, depth: int, quantile: float) -> None:
    """The variance of every edge's excess over the quantile comes from the pseudoinverse, not from the formula."""
    histogram = RangeHistogram(lower=0.0, upper=1.0, quantile=quantile, epsilon=1.0, branching=branching, depth=depth)
    solve = np.linalg.pinv(incidence(branching, depth))
    below = np.vstack([np.zeros(solve.shape[1]), np.cumsum(solve, axis=0)])
    deviations = np.sqrt(((below - quantile * below[-1]) ** 2).sum(axis=1))
    nodes = incidence(branching, depth) @ np.random.default_rng(3).integers(0, 9, branching**depth).astype(float)
    excess = (below - quantile * below[-1]) @ nodes
    cells = branching**depth
    for variance in (0.5, 4.0, 60.0, 300.0, 2000.0):
        for level in (0.5, 0.95):
            reach = stats.norm.ppf((1 + level) / 2) * deviations * math.sqrt(variance)
            first = np.flatnonzero(excess >= -reach)[0]
            last = np.flatnonzero(excess <= reach)[-1]
            expected = max(first - 1, 0) / cells, min(last + 1, cells) / cells
            assert histogram._interval(nodes, quantile, variance, level) == pytest.approx(expected)


def outward(highest: bool) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """The weights of all nodes in the count beyond each edge, by least squares, a histogram, and its edges from
    inside out.
    """
    solve = np.linalg.pinv(incidence(4, 2))
    below = np.vstack([np.zeros(solve.shape[1]), np.cumsum(solve, axis=0)])
    nodes = incidence(4, 2) @ np.r_[np.zeros(4), [1.0, 2, 30, 50, 50, 30, 2, 1], np.zeros(4)]
    return (below[-1] - below if highest else below), nodes, list(range(17) if highest else range(16, -1, -1))


@pytest.mark.parametrize("highest", [False, True])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_outermost_edge_is_one_that_noise_alone_does_not_explain(highest: bool, level: float) -> None:
    histogram = RangeHistogram(lower=0.0, upper=1.0, quantile=1.0, epsilon=1.0, branching=4, depth=2)
    beyond, nodes, edges = outward(highest)
    for variance in (0.01, 1.0, 40.0, 300.0):
        reach = stats.norm.ppf(1 - (1 - level) / (2 * 15)) * np.sqrt((beyond**2).sum(axis=1) * variance)
        counts = beyond @ nodes
        edge = edges[0]
        for each in edges[1:-1]:
            edge = each if counts[each] - reach[each] > 0.5 else edge
        after = edges[edges.index(edge) + 1]
        found = histogram._extreme(nodes, highest, variance, level)
        assert (found.edge, found.next_edge) == (edge, after)
        assert found.at_most_beyond == (0 if after == edges[-1] else math.floor(counts[after] + reach[after] + 1e-6))


@pytest.mark.parametrize("horizon", [5, None])
def test_quantiles_are_exact_up_to_a_cell_without_noise(horizon: int | None) -> None:
    values = np.random.default_rng(2).gamma(3, 5, 3000)
    histogram = RangeHistogram(epsilon=math.inf, horizon=horizon, lower=0.0, upper=64.0)
    monitor = Monitor(histogram)
    monitor.update(values[:1500])
    monitor.update(values[1500:])
    estimate = monitor.tick()
    cell = 64.0 / 256
    clipped = np.clip(values, 0, 64)
    assert estimate.value == pytest.approx(np.median(clipped), abs=cell)
    for quantile in (0.01, 0.1, 0.25, 0.9, 0.999):
        found = histogram.at(monitor.state, quantile)
        exact = float(np.quantile(clipped, quantile))
        assert found.value == pytest.approx(exact, abs=cell)
        low, high = found.interval()
        assert low - cell <= exact <= high + cell
        assert high - low <= 3 * cell
    least, most = (histogram.at(monitor.state, quantile) for quantile in (0.0, 1.0))
    assert least.value - cell <= clipped.min() < least.value
    assert most.value <= clipped.max() <= most.value + cell
    assert (least.at_most_beyond, most.at_most_beyond) == (0, 0)
    counts = histogram.counts(monitor.state)
    assert counts == pytest.approx(np.histogram(clipped, bins=256, range=(0, 64))[0], abs=1e-9)


def test_values_on_edges_fall_into_one_cell() -> None:
    histogram = RangeHistogram(epsilon=math.inf, horizon=5, lower=0.0, upper=8.0, branching=2, depth=3)
    monitor = Monitor(histogram)
    monitor.update([0.0, 0.99, 4.5, 8.0, 9.0, -1.0])
    monitor.tick()
    assert histogram.counts(monitor.state).round(9).tolist() == [3, 0, 0, 0, 1, 0, 0, 2]


def test_arrays_of_slots() -> None:
    values = np.arange(300) % 100
    histogram = RangeHistogram(epsilon=math.inf, lower=0.0, upper=256.0, one_step_ticks=True)
    medians = Monitor(histogram).tick_many(values)
    exact = [float(np.median(values[: n + 1])) for n in range(300)]
    assert medians.value == pytest.approx(exact, abs=1.5)
    assert medians.name == "median"


def test_joint_loss_is_the_claim() -> None:
    histogram = RangeHistogram(epsilon=1.0, horizon=3, levels=2, lower=0.0, upper=4.0, branching=2, depth=2)
    world = several_steps(3, nothing=0.5)
    added = [[*world[:at], update([0.5, value]), *world[at + 1 :]] for at in (0, 2, 4) for value in (0.5, 1.5, 3.5)]
    worst = joint_loss(histogram, world, added)
    assert worst.loss == pytest.approx(1.0, abs=1e-9)
    assert worst.whole


RUNS = 300


@pytest.mark.slow
def test_errors_are_honest() -> None:
    values = np.random.default_rng(3).normal(50, 12, 5000)
    histogram = RangeHistogram(epsilon=1.0, horizon=20, lower=0.0, upper=100.0)
    exact = float(np.quantile(values, 0.3))
    ranks = np.sort(values)
    rng = SeededSource(4)
    inside = 0
    bound_broken = 0
    bound = histogram.error_bound(beta=0.1)
    for _ in range(RUNS):
        monitor = Monitor(histogram, rng=rng)
        monitor.update(values)
        monitor.tick()
        found = histogram.at(monitor.state, 0.3)
        low, high = found.interval(0.9)
        inside += low <= exact <= high
        between = abs(int(np.searchsorted(ranks, found.value)) - 0.3 * ranks.size)
        one_cell = float(np.histogram(values, bins=256, range=(0, 100))[0].max())
        bound_broken += between > 2 * bound + one_cell
    assert stats.binomtest(inside, RUNS, 0.9, alternative="less").pvalue > ALPHA
    assert stats.binomtest(bound_broken, RUNS, 0.1, alternative="greater").pvalue > ALPHA


SHAPES = {
    "normal": np.random.default_rng(9).normal(50, 10, 8000).clip(0, 100),
    "one far value": np.r_[np.full(5000, 40.0), 95.0],
    "all at one point": np.full(3000, 60.0),
    "up to both ends": np.random.default_rng(9).uniform(0, 100, 4000),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_said_of_minimum_and_maximum_is_true(shape: str) -> None:
    """All four statements hold in 95% of runs: of 100 at least 87, which fails once in 1,000 at exactly 95%."""
    values = SHAPES[shape]
    rng = SeededSource(5)
    true = 0
    histogram = RangeHistogram(epsilon=1.0, horizon=20, lower=0.0, upper=100.0)
    step = 100 / 256
    for _ in range(100):
        monitor = Monitor(histogram, rng=rng)
        monitor.update(values)
        monitor.tick()
        least, most = (histogram.at(monitor.state, quantile) for quantile in (0.0, 1.0))
        held = (values < least.value).any() or least.value == 100.0, (values >= most.value).any()
        ranks = (
            (values < least.value - step).sum() <= least.at_most_beyond,
            (values >= most.value + step).sum() <= most.at_most_beyond,
        )
        ends = least.interval()[0] <= values.min() <= least.interval()[1], most.interval()[1] == 100.0
        true += all((*held, *ranks, *ends))
    assert true >= 87


def test_a_lone_extreme_does_not_show_and_a_crowd_does() -> None:
    histogram = RangeHistogram(epsilon=1.0, horizon=20, lower=0.0, upper=100.0, quantile=1.0)
    rng = SeededSource(5)
    found = {}
    for far in (1, 3000):
        answers = []
        for _ in range(40):
            monitor = Monitor(histogram, rng=rng)
            monitor.update([40.0] * 5000 + [95.0] * far)
            answers.append(monitor.tick().value)
        found[far] = answers
    assert np.median(found[1]) < 50.0
    assert min(found[3000]) > 90.0


def test_an_extreme_is_said_in_ranks() -> None:
    histogram = RangeHistogram(epsilon=math.inf, horizon=4, lower=0.0, upper=100.0, quantile=1.0)
    monitor = Monitor(histogram)
    monitor.update(np.r_[np.full(7950, 50.0), np.full(50, 71.3)])
    highest = monitor.tick()
    assert str(highest) == "maximum: at least 71.09; at most 0 of about 8,000 values lie above 71.49 (95%; no privacy)"
    assert math.isnan(highest.standard_error)
    assert highest.interval() == (71.09375, 100.0)
    told = highest.to_json()
    assert (told["value"], told["standard_error"], told["at_most_beyond"]) == (71.09375, None, 0)
    assert told["description"] == "at least 71.09; at most 0 of about 8,000 values lie above 71.49 (95%)"
    lowest = histogram.at(monitor.state, 0.0)
    assert str(lowest).startswith("minimum: at most 50.4; at most 0 of about 8,000 values lie below 50 (95%")
    assert lowest.value == 50.390625
    assert "at_most_beyond" not in histogram.at(monitor.state, 0.5).to_json()
    ends = Monitor(histogram)
    ends.update([100.0] * 50)
    assert str(ends.tick()).startswith("maximum: at least 99.6 (95%")


@pytest.mark.parametrize(
    ("number", "up", "text"),
    [
        (70.3125, False, "70.31"),
        (70.3125, True, "70.32"),
        (-70.3125, True, "-70.31"),
        (0.0, True, "0"),
        (12345.5, True, "12,346"),
        (0.1 + 0.2, True, "0.3"),
    ],
)
def test_edges_are_rounded_to_the_safe_side(number: float, up: bool, text: str) -> None:
    assert _rounded(number, up=up) == text


def test_no_data_is_said_in_words() -> None:
    for epsilon in (1.0, math.inf):
        estimate = Monitor(RangeHistogram(epsilon=epsilon, horizon=4, lower=0.0, upper=1.0), rng=SeededSource(1)).tick()
        assert estimate.name == "median (no data)"
        assert math.isnan(estimate.value)
        assert estimate.interval() == (0.0, 1.0)


def test_error_formula_scales_with_the_depth() -> None:
    flat = RangeHistogram(epsilon=1.0, horizon=20, lower=0.0, upper=1.0, branching=64, depth=1)
    deep = RangeHistogram(epsilon=1.0, horizon=20, lower=0.0, upper=1.0, branching=8, depth=2)
    assert flat.engine.law().kappa == pytest.approx(2 * deep.engine.law().kappa)
    assert _edge_variances(64, 1)[0].max() == 64.0
    assert deep.error_bound(beta=0.1) < flat.error_bound(beta=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"quantile": 1.5},
        {"branching": 1},
        {"depth": 0},
        {"branching": 16, "depth": 5},
        {"lower": 1.0},
        {"outside": "x"},
    ],
    ids=str,
)
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        RangeHistogram(**{"epsilon": 1.0, "lower": 0.0, "upper": 1.0, **wrong})


def test_bad_rows_are_refused() -> None:
    monitor = Monitor(RangeHistogram(epsilon=1.0, horizon=4, lower=0.0, upper=1.0, outside="refuse"))
    before = snapshot(monitor.state)
    for values in ([0.5, None], [0.5, math.nan], [0.5, "x"], [0.5, 2.0]):
        with pytest.raises(InvalidBatch, match="row 1"):
            monitor.update(values)
    with pytest.raises(InvalidParameter, match="quantile"):
        monitor.algorithm.at(monitor.state, -0.1)  # type: ignore[attr-defined]
    assert snapshot(monitor.state) == before


@pytest.mark.parametrize("highest", [False, True])
def test_cells_near_the_end_are_known_better_than_a_single_count(highest: bool) -> None:
    """Least squares gives the outermost cells less than one draw's variance, and the threshold follows it exactly."""
    histogram = RangeHistogram(lower=0.0, upper=1.0, quantile=1.0, epsilon=1.0, branching=4, depth=2)
    beyond, _, edges = outward(highest)
    nodes = incidence(4, 2) @ np.full(16, 7.0)
    first = beyond[edges[-2]]
    assert first @ first < 1.0
    # The last variance at which the seven values of the outermost cell cannot be noise alone.
    limit = (6.5 / stats.norm.ppf(1 - 0.05 / 30)) ** 2 / (first @ first)
    found = [histogram._extreme(nodes, highest, variance, 0.95).edge for variance in (0.999 * limit, 1.001 * limit)]
    assert found[0] == edges[-2]
    assert found[1] != edges[-2]
