"""The data of the papers' figures, on universes small enough to be driven user by user."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.planning.density_published import DWORK, OPTBERN
from panstream.errors import InvalidParameter
from panstream.papers.as_printed.density_ppds import PublishedPPDS
from panstream.papers.diabetes_table import read_table, write_table
from panstream.papers.figures import FIGURES, FigureOptions, evaluate_point, find_figure
from panstream.papers.figures._simulate import _zipf_alias, distinct_counts, draw_stream
from panstream.papers.figures.beyond import _bits_for, level_for_ids
from panstream.papers.figures.dependences import connections, information
from panstream.papers.figures.errors import LITERAL, _estimate_errors
from panstream.papers.figures.networks import PRINTED, SUMMED
from panstream.papers.figures.plan import CLAIMED, SAME_LOSS, FigureRow
from panstream.primitives.noise import SeededSource
from panstream.privacy.budget_split import density_split, laplace_variance
from tests.statistical import ALPHA, assert_mean

SIX = ("gender", "A1Cresult", "insulin", "change", "diabetesMed", "readmitted")
SMALL = FigureOptions(universe=400, length=300, repetitions=60, quick=True)


def test_every_figure_of_the_papers_is_there() -> None:
    paper = [f"000-{number}" for number in range(1, 8)]
    networks = [f"002-3.{number}" for number in range(1, 10)]
    streams = [f"002-4.{number}" for number in range(1, 12)]
    beyond = ["new-memory", "new-loss"]
    counters = ["new-cropped", "new-counters", "new-conjectures", "new-window", "new-decay"]
    assert list(FIGURES) == [*paper, *networks, *streams, *beyond, *counters]
    with pytest.raises(InvalidParameter, match="figure must be one of 000-1, "):
        find_figure("000-8")


@pytest.fixture(scope="module")
def six_attributes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 6 of the 43 attributes: with all of them a figure takes a minute."""
    folder = tmp_path_factory.mktemp("diabetes")
    sample = read_table()
    write_table(sample.select([sample.domain.names.index(name) for name in SIX]).take(np.arange(2000)), folder)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("key", list(FIGURES))
def test_every_figure_can_be_computed(key: str, six_attributes: str) -> None:
    """First and last point: every panel and series that a point promises, with the paper's estimators and ours."""
    plan = find_figure(key)
    options = replace(SMALL, repetitions=2 if "-3." in key else 5, diabetes=six_attributes)
    points = plan.points(options)
    panels = {panel.key for panel in plan.panels}
    series = set()
    for index in (0, len(points) - 1):
        rows = evaluate_point(key, index, options)
        assert {row.panel for row in rows} <= panels
        assert all(math.isfinite(row.y) for row in rows)
        if index == 0:
            assert rows == evaluate_point(key, index, options)  # the same draws, whatever came before
        series |= {row.series for row in rows}
    assert {point.panel for point in points} <= panels
    if key not in ("002-3.2", "002-3.3", "002-4.6"):  # pictures of networks, and of two Laplace laws
        assert any(name.startswith("panstream") for name in series)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["002-3.4", "002-3.8"])
def test_both_forms_of_the_thesis_and_the_references_are_drawn(key: str, six_attributes: str) -> None:
    options = replace(SMALL, length=40_000, repetitions=2, diabetes=six_attributes)
    plan = find_figure(key)
    rows = {row.series: row for row in evaluate_point(key, len(plan.points(options)) - 1, options)}
    for name in ("noisy ss (3.5)", "noisy mv (3.6)", "noisy model (3.7)"):
        assert {name + PRINTED, name + SUMMED} <= set(rows)
    assert plan.note(options) == "" and "sample" in find_figure("002-3.8").note(SMALL)
    greedy = rows["greedy, no privacy"].y
    independent = rows["independent, no privacy"].y
    assert greedy < independent
    if "true network" in rows:  # at epsilon = 2 every method is close to it, and none is better
        truth = rows["true network"].y
        assert truth == pytest.approx(5.12, abs=0.01)
        assert all(truth <= row.y < independent for name, row in rows.items() if "independent" not in name)


def test_papers_settings() -> None:
    """Streams of 1e5 over 1e5 users, densities .63 and .25, 300 and 1,000 repetitions."""
    full = FigureOptions()
    assert (full.universe, full.length, full.runs(300), full.runs(1000)) == (100_000, 100_000, 300, 1000)
    assert distinct_counts("uniform", full, 3).mean() / full.universe == pytest.approx(1 - math.exp(-1), abs=0.005)
    assert distinct_counts("zipf", full, 3).mean() / full.universe == pytest.approx(0.25, abs=0.01)
    for bad in ({"universe": 10}, {"length": 0}, {"repetitions": 1}):
        with pytest.raises(InvalidParameter):
            FigureOptions(**bad)


@pytest.mark.parametrize("universe", [1, 2, 7, 1000])
def test_alias_table_holds_zipfs_law(universe: int) -> None:
    keep, other = _zipf_alias(universe)
    columns = np.bincount(np.arange(universe), keep, minlength=universe)
    chances = (columns + np.bincount(other, 1 - keep, minlength=universe)) / universe
    weights = 1 / np.arange(1, universe + 1)
    assert chances == pytest.approx(weights / weights.sum(), abs=1e-12)


def test_zipf_stream_follows_the_law() -> None:
    options = FigureOptions(universe=100, length=50_000)
    counts = np.bincount(draw_stream("zipf", options, 0), minlength=100)
    weights = 1 / np.arange(1, 101)
    assert stats.chisquare(counts, weights / weights.sum() * 50_000).pvalue > ALPHA


def test_sample_sizes_are_the_planners() -> None:
    rows = {row.series: row.y for row in evaluate_point("000-1", 4, SMALL)}  # epsilon = .5
    assert rows["Dwork"] == DWORK.sample_size(0.5, 0.1, 0.05)
    assert rows["OptBern"] == OPTBERN.sample_size(0.5, 0.1, 0.05)
    assert rows[SAME_LOSS] < rows[CLAIMED] < rows["OptBern"]


def test_state_ratios_are_those_of_the_papers() -> None:
    rows = {row.series: row.y for row in evaluate_point("002-4.7", 49, SMALL)}
    assert rows["Dwork, R(1)"] == pytest.approx(1.25)
    assert rows["Dwork, R(0)"] == pytest.approx(0.75)
    assert rows["OptBern, R(1)"] == pytest.approx(math.exp(0.5))
    assert rows["quantised Laplace, R(1)"] == pytest.approx(2 * math.exp(0.25) - 1)


@pytest.mark.parametrize("name", ["Dwork", "OptBern", SAME_LOSS, CLAIMED])
def test_errors_have_the_variance_of_the_formula(name: str) -> None:
    options = FigureOptions(universe=2000, length=1500)
    epsilon = 0.4
    m = 500
    runs = 4000
    errors = _estimate_errors(name, epsilon, m, "uniform", options, runs)
    density = float(distinct_counts("uniform", options, runs).mean()) / options.universe
    if name in LITERAL:
        law = LITERAL[name](universe=2000, epsilon=epsilon, sample=m).law
        gap = law.mean(True) - law.mean(False)
        values = (density * law.variance(True) + (1 - density) * law.variance(False)) / gap**2 / m
        noise = 2 / (epsilon * m) ** 2
    else:
        total = 2 * epsilon if name == CLAIMED else OPTBERN.true_loss(epsilon)
        state, kappa = density_split(total, m)
        gap = math.tanh(state / 2)
        values = (1 - gap**2) / 4 / gap**2 / m
        noise = laplace_variance(kappa) / (m * gap) ** 2
    expected = values + noise + density * (1 - density) / m * (2000 - m) / 1999
    assert_mean(errors, 0.0, f"{name} is unbiased")
    assert_mean(errors**2, expected, f"MSE of {name}")


def test_ppds_in_a_figure_is_ppds_driven_user_by_user() -> None:
    """N = 400 streams; the class takes each stream event by event."""
    options = FigureOptions(universe=200, length=150)
    runs = 400
    figure_errors = _estimate_errors("PPDS", 1.0, 20, "zipf", options, runs)
    algorithm = PublishedPPDS(universe=200, epsilon=1.0, sample=20)
    rng = SeededSource(6)
    driven = []
    for run in range(runs):
        stream = draw_stream("zipf", options, run)
        with rng as step:
            state = algorithm.initial_state(step)
            algorithm.update(state, algorithm.batch(stream), step)
            driven.append(algorithm.release(state, step).value - np.unique(stream).size / 200)
    assert stats.ks_2samp(driven, figure_errors).pvalue > ALPHA


def test_memory_of_bits_and_ids() -> None:
    assert _bits_for(12_500, 100_000) == 100_000
    assert _bits_for(1000, 100_000) == 8000
    for memory in (12_500, 3_000, 500):
        level = level_for_ids(memory, 100_000, 1.0)
        capacity = 8 * memory // 17
        watched = -(-100_000 >> level)
        p1 = OptBern(universe=watched, epsilon=1.0).law.p1
        overflow = stats.binom.sf(capacity, watched, p1)
        assert overflow < 1e-8
        finer = -(-100_000 >> (level - 1))
        assert stats.binom.sf(capacity, finer, p1) > 1e-8  # one level lower would not fit
    assert level_for_ids(10**6, 100_000, 1.0) == 0


def test_at_equal_memory_bits_win() -> None:
    options = FigureOptions(universe=20_000, length=20_000, repetitions=400)
    plan = find_figure("new-memory")
    index = [i for i, point in enumerate(plan.points(options)) if point.panel == "uniform"][-1]
    ours, theirs = evaluate_point("new-memory", index, options)
    assert theirs.low > 8 * ours.high


def test_intervals_of_rows() -> None:
    rng = np.random.default_rng(0)
    row = FigureRow.mean("a", "s", 0.1, rng.normal(3.0, 1.0, 10_000))
    assert row.high - row.low == pytest.approx(2 * 1.96 / 100, rel=0.05)
    share = FigureRow.share("a", "s", 0.1, np.arange(200) < 20)
    wilson = stats.binomtest(20, 200).proportion_ci(method="wilson")
    assert (share.low, share.high) == pytest.approx((wilson.low, wilson.high), rel=1e-3)
    empty = FigureRow.share("a", "s", 0.1, np.zeros(100, np.bool_))
    assert empty.low == 0.0
    assert empty.high > 0


def test_generators_belong_to_their_names() -> None:
    first = SMALL.generator("x", 1).random(3)
    assert np.array_equal(first, SMALL.generator("x", 1).random(3))
    assert not np.array_equal(first, SMALL.generator("x", 2).random(3))
    assert not np.array_equal(first, replace(SMALL, seed=2).generator("x", 1).random(3))


def test_connections_of_a_network_are_those_of_the_text() -> None:
    """Section 3.2.1: which attributes of Figure 3.2 depend on each other, and which do given a third."""
    network = connections(0.5)
    assert network.entropy() < 6.0
    for first, second, given, dependent in (
        (0, 2, None, True),
        (0, 4, None, True),
        (0, 4, 2, False),
        (3, 5, None, True),
        (3, 5, 1, False),
        (4, 1, None, False),
        (4, 1, 5, True),
    ):
        assert (information(network, first, second, given) > 1e-3) == dependent
    rows = {row.series: row.y for row in evaluate_point("002-3.3", 6, SMALL)}
    assert rows["true network, its strongest edges"] == pytest.approx(5.12, abs=5e-3)
    assert rows["claimed: the uniform distribution"] == pytest.approx(math.log2(192))
