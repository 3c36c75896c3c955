"""Continual counters with a delta: their zCDP is the optimum on the shipped steps, and their intervals cover."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.noise_sum_tails import error_bound, half_width
from panstream.algorithms.continual.range_histogram import RangeHistogram
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum, KaryTree
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.algorithms.secret_shared.continual import SharedContinual
from panstream.core.monitor import Monitor
from panstream.errors import InvalidParameter
from panstream.primitives.noise import DiscreteGaussian, SeededSource
from panstream.privacy.composition import gaussian_tail, zcdp_epsilon, zcdp_rho, zcdp_tail
from panstream.privacy.continual_loss import gaussian_losses, moment_norm_square, moment_sensitivity, tree_law
from panstream.testing.enumeration import Step, refresh, tick, update
from panstream.testing.linear_views import LinearView, linear_views
from tests.algorithms.continual.linear_view import neighbours, one_step, several_steps

DELTA = 1e-6
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA}
RANGE = {"lower": 0.0, "upper": 8.0}


def zcdp(view: LinearView) -> float:
    """Return the largest loss of all neighbours: half the smallest sum of (shift/sigma)² that hides each."""
    losses = []
    for shift in view.shifts:
        unit = np.linalg.lstsq(view.matrix / view.kappas, shift, rcond=None)[0]
        if not np.allclose(view.matrix / view.kappas @ unit, shift, atol=1e-6 * max(1.0, float(np.abs(shift).max()))):
            return math.inf
        losses.append(0.5 * float(unit @ unit))
    return max(losses)


def losses(algorithm: Any, world: list[Step], streams: list[list[Step]], **options: Any) -> tuple[float, float]:
    """Return the largest loss of one copy with all outputs, and that of the outputs alone."""
    views = linear_views(algorithm, world, streams, **options)
    alone = [zcdp(view) for view in views if view.look is None]
    return max(zcdp(view) for view in views if view.look is not None), max(alone)


WORLD = several_steps(5)
EXTREMES = [(0.0,), (8.0,)]
CASES: list[tuple[str, Any, list[Step], list[list[Step]]]] = [
    ("one release", ContinualCount(**BUDGET, horizon=1), several_steps(1, 2), neighbours(several_steps(1, 2))),
    ("three levels", ContinualCount(**BUDGET, horizon=5, levels=3), WORLD, neighbours(WORLD)),
    ("no horizon", ContinualCount(**BUDGET), WORLD, neighbours(WORLD)),
    (
        "one step",
        KaryTree(**BUDGET, horizon=5, levels=2, one_step_ticks=True),
        one_step(5),
        neighbours(one_step(5)),
    ),
    ("sum", ContinualSum(**BUDGET, horizon=3, resolution=1.0, **RANGE), WORLD[:6], neighbours(WORLD[:6], 8.0)),
    ("three rows", ContinualCount(**BUDGET, horizon=1, contributions=3), several_steps(1, 2), []),
]


def users(world: list[Step], rows: int) -> list[list[Step]]:
    """All ways to spread some rows over the updates of a stream."""
    places = [at for at, step in enumerate(world) if step.verb == "update"]
    found = []
    for split in np.ndindex(*[rows + 1] * len(places)):
        if sum(split) == rows:
            changed = list(world)
            for at, count in zip(places, split, strict=True):
                changed[at] = update([1] * count)
            found.append(changed)
    return found


@pytest.mark.parametrize(("name", "tree", "world", "streams"), CASES, ids=[case[0] for case in CASES])
def test_the_shipped_steps_lose_the_claimed_zcdp(
    name: str, tree: Any, world: list[Step], streams: list[list[Step]]
) -> None:
    loss = tree.window_loss()
    streams = streams or users(world, 3)
    joint, answers = losses(tree, world, streams)
    claimed = zcdp_rho(1.0, DELTA)
    assert loss.rho_joint is not None
    assert loss.rho_answers is not None
    assert loss.rho_joint <= claimed
    assert joint == pytest.approx(loss.rho_joint, rel=1e-6)
    assert answers <= loss.rho_answers * (1 + 1e-9)
    if tree.engine.shape(0).rows == 1:  # a higher node may still be open after the last tick
        assert answers == pytest.approx(loss.rho_answers, rel=1e-6)
    # With half of the noise the same steps lose four times as much.
    law = DiscreteGaussian.at_least(tree.engine.law().sigma / 2)
    square = tree.norm_square * (tree.contributions or 1) ** 2 * tree.engine.shape(0).rows
    assert gaussian_losses([(law, square)], 1)[0] == pytest.approx(4 * joint, rel=1e-6)
    assert 4 * joint > 3.99 * claimed


@pytest.mark.parametrize("values", [[0.0], [3.0], [8.0]])
@pytest.mark.parametrize(
    "kind",
    [
        ContinualMean(**BUDGET, horizon=2, resolution=1.0, **RANGE),
        ContinualVariance(**BUDGET, horizon=2, resolution=1.0, **RANGE),
        RangeHistogram(**BUDGET, horizon=2, branching=2, depth=3, **RANGE),
    ],
    ids=lambda kind: type(kind).__name__,
)
def test_a_value_moves_all_parts_by_the_claimed_length(kind: Any, values: list[float]) -> None:
    total = kind.batch(values).total
    assert float(total @ total) <= kind.norm_square
    if values != [3.0] or isinstance(kind, RangeHistogram):
        assert float(total @ total) == kind.norm_square
    empty: list[float] = []
    world = [update(empty), tick(), update(empty), tick()]
    joint, answers = losses(kind, world, [[update(values), *world[1:]]])
    loss = kind.window_loss()
    assert joint <= loss.rho_joint * (1 + 1e-9)
    assert answers <= loss.rho_answers * (1 + 1e-9)
    if values == [0.0]:
        assert joint == pytest.approx(loss.rho_joint, rel=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 5, 8])
def test_the_lengths_of_moments_are_those_of_all_values(steps: int) -> None:
    """By trying all values, and all exchanges of two."""
    i = np.arange(steps + 1)
    parts = np.stack([(steps - i) ** 2, 2 * i * (steps - i), i**2], axis=1)
    assert (parts**2).sum(axis=1).max() == moment_norm_square(steps, 2, replaces=False)
    y = 2 * i - steps
    pairs = np.stack([steps * y, y**2], axis=1)
    moved = ((pairs[:, None] - pairs[None]) ** 2).sum(axis=2).max()
    assert moved == moment_norm_square(steps, 2, replaces=True)
    assert moment_norm_square(steps, 1, replaces=True) == moment_sensitivity(steps, 1, replaces=True) ** 2


def test_announced_looks_with_a_refresh_lose_no_more() -> None:
    tree = ContinualCount(**BUDGET, horizon=3, levels=2)
    world = [update([0]), refresh(), update([0]), tick(), refresh(), update([0]), tick(), refresh(), update([0])]
    joint, _ = losses(tree, world, neighbours(world), looks=[None, len(world)])
    assert joint <= tree.window_loss().rho_joint * (1 + 1e-9)  # type: ignore[operator]


def test_what_is_left_out_costs_more() -> None:
    """No start noise, or the same state carried on after a release: no finite loss."""

    class NoStart(ContinualCount):
        def initial_state(self, rng: Any) -> Any:
            state = ContinualCount.initial_state(self, rng)
            state.open[:] = 0
            return state

    world = several_steps(1, 2)
    assert losses(NoStart(**BUDGET, horizon=1), world, neighbours(world))[0] == math.inf


@pytest.mark.parametrize(
    ("tree", "batch", "truth"),
    [
        (ContinualCount(**BUDGET, horizon=1), [1] * 50, 50.0),
        (ContinualCount(**BUDGET, contributions=4), [1] * 50, 50.0),
        (ContinualSum(**BUDGET, horizon=4, **RANGE), [4.0] * 50, 200.0),
        (ContinualMean(**BUDGET, horizon=1, **RANGE), [2.0, 4.0] * 400, 3.0),
        (ContinualVariance(**BUDGET, horizon=1, **RANGE), [2.0, 6.0] * 1000, 4.0 * 2000 / 1999),
        (RangeHistogram(**BUDGET, horizon=1, **RANGE), np.linspace(0, 8, 4001).tolist(), 4.0),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "epsilon") else "",
)
def test_intervals_cover(tree: Any, batch: list[float], truth: float) -> None:
    """Of 400 intervals at 90%, 328 or fewer cover with a probability below 1e-6 (binomial)."""
    inside = 0
    for seed in range(400):
        with SeededSource(seed) as rng:
            monitor = Monitor(tree, rng=rng)
            monitor.update(batch)
            low, high = monitor.tick().interval(0.9)
            inside += low <= truth <= high
    assert inside > 328


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("draws", [1, 2, 5])
def test_widths_and_bounds_hold_for_exact_sums(sigma: float, draws: int) -> None:
    law = DiscreteGaussian.at_least(sigma)
    reach = math.ceil(12 * sigma) + 2
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * law.sigma**2))
    total = np.ones(1)
    for _ in range(draws):
        total = np.convolve(total, one / one.sum())
    size = np.abs(np.arange(total.size) - total.size // 2)
    for level in (0.5, 0.9, 0.999):
        assert total[size <= half_width(level, ((draws, law),))].sum() >= level - 1e-12
        assert total[size > error_bound(1 - level, ((draws, law),))].sum() <= 1 - level
    assert half_width(0.95, ((draws, law),)) == pytest.approx(1.95996 * math.sqrt(draws) * law.sigma + 0.5, rel=1e-4)


def test_the_claim_names_delta_and_holds_for_adaptive_inputs() -> None:
    tree = ContinualCount(**BUDGET, contributions=8)
    claim = tree.claim()
    assert (claim.epsilon, claim.delta, claim.inputs, claim.unit) == (1.0, DELTA, "adaptive", "user")
    assert claim.event_epsilon == pytest.approx(zcdp_epsilon(zcdp_rho(1.0, DELTA) / 64, DELTA))
    assert replace(tree, epsilon=math.inf).claim().delta == 0.0
    assert ContinualCount(epsilon=1.0).window_loss().rho_joint is None


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_chance_of_a_larger_loss_is_above_that_of_a_normal_loss(epsilon: float) -> None:
    tree = ContinualCount(epsilon=epsilon, delta=DELTA, horizon=1)
    rho = zcdp_rho(epsilon, DELTA)
    for times in (0.5, 1.0, 2.0):
        mean = rho
        sd = math.sqrt(2 * rho)
        normal = stats.norm.sf((times * epsilon - mean) / sd) + stats.norm.cdf((-times * epsilon - mean) / sd)
        assert normal < tree.loss_exceeds(times) < max(20 * normal, 1e-9)
        assert times != 1.0 or epsilon > 1.0 or tree.loss_exceeds() < 0.6 * zcdp_tail(rho, epsilon)
    assert zcdp_tail(0.5, 0.1) == 1.0
    assert zcdp_tail(0.5, math.inf) == zcdp_tail(0.0, 1.0) == 0.0
    assert ContinualCount(epsilon=1.0).loss_exceeds() == 0.0


def test_noise_grows_with_the_root_of_levels_and_nodes() -> None:
    """Laplace noise grows with their number: a histogram's standard error is the sixth part at 64 nodes."""
    assert tree_law(1.0, DELTA, 4, 1, 1).variance == pytest.approx(4 * tree_law(1.0, DELTA, 1, 1, 1).variance)
    assert tree_law(1.0, DELTA, 1, 9, 9).variance == pytest.approx(9 * tree_law(1.0, DELTA, 1, 1, 1).variance)
    assert tree_law(1.0, 0.0, 4, 1, 1).variance == pytest.approx(16 * tree_law(1.0, 0.0, 1, 1, 1).variance, rel=0.1)


@pytest.mark.parametrize("kind", [ContinualSum, ContinualMean, ContinualVariance])
@pytest.mark.parametrize("options", [{}, {"contributions": 1000, "epsilon": 0.1}])
def test_the_resolution_is_chosen_so_that_noise_is_drawn_exactly_and_is_stored(kind: Any, options: Any) -> None:
    tree = kind(**{**BUDGET, **RANGE, **options})
    degree = 2 if kind is ContinualVariance else 1
    assert tree.engine.law(15).sigma <= 2**20
    assert tree.resolution > 0
    assert tree.engine.law(15).sigma > 2 ** (18 - degree) or tree.resolution <= 8.0 / 4096
    assert kind.from_parameters(tree.parameters()) == tree
    monitor = Monitor(tree)
    monitor.update([1.0])
    assert Monitor[Any].from_bytes(monitor.to_bytes()).algorithm == tree


def test_a_delta_of_zero_is_not_stored() -> None:
    assert "delta" not in ContinualCount(epsilon=1.0).parameters()
    assert ContinualCount(**BUDGET).parameters()["delta"] == DELTA


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_wrong_deltas_are_refused(delta: float) -> None:
    with pytest.raises(InvalidParameter, match=r"delta must be in \[0, 1\)"):
        ContinualCount(epsilon=1.0, delta=delta)


def test_noise_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be larger for items of 1048576 steps, or the resolution"):
        ContinualSum(**BUDGET, **RANGE, resolution=8.0 / (1 << 20))
    with pytest.raises(InvalidParameter, match="epsilon must be smaller"):
        ContinualCount(epsilon=5000.0, delta=DELTA, horizon=1)
    with pytest.raises(InvalidParameter, match="delta is for one machine"):
        SharedContinual.of(ContinualCount(**BUDGET, horizon=4))


@pytest.mark.parametrize("sigma", [1.0, 1.5, 4.0])
def test_a_discrete_gaussian_is_at_most_one_more_than_a_normal_one(sigma: float) -> None:
    """The lemma of Theorem 11, by summing the law."""
    numbers = np.arange(-60, 61)
    law = np.exp(-(numbers**2) / (2 * sigma**2))
    tail = np.cumsum((law / law.sum())[::-1])[::-1]
    assert (tail <= stats.norm.sf(numbers - 1, scale=sigma) * (1 + 1e-12)).all()
    assert (tail > stats.norm.sf(numbers, scale=sigma)).any()  # and not without the one


@pytest.mark.parametrize(("rows", "sigma", "times"), [(1, 2.0, 3.0), (2, 3.0, 2.5), (3, 4.0, 2.0)])
def test_an_intruder_who_stops_at_a_large_loss_stays_below_the_bound(rows: int, sigma: float, times: float) -> None:
    """The best strategy by recursion: after each number that is seen, how many of her rows hide behind the next one."""
    rho = rows**2 / (2 * sigma**2)
    loss = times * math.sqrt(2 * rho)
    law = DiscreteGaussian.at_least(sigma)
    numbers = np.arange(-40, 41)
    weights = np.exp(-(numbers**2) / (2 * law.sigma**2))
    weights /= weights.sum()

    @cache
    def best(left: int, reached: float) -> float:
        value = float(reached > loss)
        for sent in range(1, left + 1):
            steps = reached + (sent**2 / 2 + sent * numbers) / law.sigma**2
            value = max(value, float(weights @ np.array([best(left - sent, round(step, 9)) for step in steps])))
        return value

    upwards = best(rows, 0.0)
    bound = gaussian_tail(rho, loss, rows / sigma**2)
    assert upwards <= bound <= zcdp_tail(rho, loss)
    half = gaussian_tail(rho / 4, loss, rows / (4 * sigma**2))  # what twice the noise would have
    assert upwards > half


SUMS: list[Any] = [
    WindowedSum(**BUDGET, window=1),
    WindowedSum(**BUDGET, window=3),
    WindowedSum(**BUDGET, window=5, lower=-3, upper=2),
    DecayedSum(**BUDGET, decay="exponential", rate=0.5),
    DecayedSum(**BUDGET, decay="polynomial", rate=1.0),
]


@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize("counter", SUMS, ids=str)
def test_sums_over_windows_and_with_decay_lose_the_claimed_zcdp(counter: Any, one_step_ticks: bool) -> None:
    counter = replace(counter, one_step_ticks=one_step_ticks)
    world = one_step(11) if one_step_ticks else several_steps(11)
    value = -counter.sensitivity if counter.lower < 0 else counter.sensitivity
    joint, answers = losses(counter, world, neighbours(world, value))
    loss = counter.window_loss()
    claimed = zcdp_rho(1.0, DELTA)
    assert loss.rho_joint <= claimed
    assert joint == pytest.approx(loss.rho_joint, rel=1e-6)
    assert answers <= loss.rho_answers * (1 + 1e-9)
    if counter.memberships == 1:  # an answer that adds up several nodes does not show each of them
        assert answers == pytest.approx(loss.rho_answers, rel=1e-6)
    # With half of the noise the same steps lose four times as much.
    law = DiscreteGaussian.at_least(counter.law.sigma / 2)
    square = counter.memberships * counter.sensitivity**2
    assert gaussian_losses([(law, square)], 1)[0] == pytest.approx(4 * joint, rel=1e-6)


@pytest.mark.parametrize("counter", SUMS[1:4], ids=str)
def test_announced_looks_at_sums_cost_no_more(counter: Any) -> None:
    world = [step for before in several_steps(4) for step in (before, refresh())][:-3]
    last = max(number for number, step in enumerate(world, 1) if step.verb == "refresh")
    value = -counter.sensitivity if counter.lower < 0 else counter.sensitivity
    views = linear_views(counter, world, neighbours(world, value), looks=(None, *range(last, len(world) + 1)))
    assert max(zcdp(view) for view in views) == pytest.approx(zcdp_rho(1.0, DELTA), rel=1e-6)


@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize(
    "counter", [WindowedSum(**BUDGET, window=24), DecayedSum(**BUDGET, decay="exponential", rate=0.9)], ids=str
)
def test_sums_have_the_error_they_state(counter: Any, one_step_ticks: bool) -> None:
    counter = replace(counter, one_step_ticks=one_step_ticks)
    exact = replace(counter, epsilon=math.inf)
    ones = [1] * 40
    errors = []
    for seed in range(300):
        rng = SeededSource(seed)
        answers = Monitor(counter, rng=rng).tick_many(ones)
        truth = Monitor(exact, rng=rng).tick_many(ones)
        errors.append((answers.unclipped[-1] - truth.unclipped[-1]) / answers.standard_error[-1])
    # A normal law: 300 standardised errors fail at 1e-6 by chance.
    assert stats.kstest(errors, "norm").pvalue > 1e-6
    stated = counter.error_bound(beta=0.05, ticks=40) / answers.standard_error[-1]
    assert 1.96 < stated < 3.0


def test_a_window_of_many_slots_has_less_noise_with_a_delta() -> None:
    laplace = WindowedSum(epsilon=1.0, window=1 << 14)
    gaussian = WindowedSum(**BUDGET, window=1 << 14)
    variances = [one.answer_parts(50_000)[0][0] * one.law.variance for one in (laplace, gaussian)]
    assert variances[1] < 0.8 * variances[0]
    assert gaussian.claim().delta == DELTA
    assert "delta" not in laplace.parameters()
    with pytest.raises(InvalidParameter, match="resolution coarser"):
        WindowedSum(**BUDGET, window=24, upper=1 << 30)
