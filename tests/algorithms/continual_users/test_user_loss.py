"""Theorems B and C: what a whole user loses, enumerated and searched for in the shipped code; and what one draw would
cost.
"""

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.continual_users import ContinualDensity
from panstream.privacy.change_tree_loss import _flicker_loss, max_flicker_budget, max_single_budget
from panstream.testing.bit_views import BitView, Losses, views
from panstream.testing.enumeration import Enumerator, enumerate_streams, tick, update

LN3 = math.log(3.0)
TRIES = 10_000 if os.environ.get("PANSTREAM_FULL") else 100


def single_loss(state: float, kappa: float, start: float) -> float:
    """Return what a user loses where the start is released, then one answer: eps_s + max{f(kappa) - f0(-start),
    f(start) + f0(kappa)}, f(x) = ln(p0 + p1·e**x), f0(x) = ln(p1 + p0·e**x).
    """
    p1 = 1 / (1 + math.exp(-state))

    def f(x: float, p: float = p1) -> float:
        return math.log(1 - p + p * math.exp(x))

    return state + max(f(kappa) - f(-start, 1 - p1), f(start) + f(kappa, 1 - p1))


def search(losses: Losses, rng: np.random.Generator, tries: int) -> float:
    """Return the largest loss found between any two patterns of one user in so many tries.

    Each climb starts anywhere, then flips one step of one of the two patterns at a time and keeps what is no worse.
    """
    steps = len(losses.points) - 1
    worst = 0.0
    tried = 0
    while tried < tries:
        pair = rng.integers(0, 2, (2, steps))
        shown = int(rng.integers(len(losses.shown)))
        choice = rng.integers(0, len(losses.outputs), len(losses.view.weights))
        best = -math.inf
        stuck = 0
        while stuck < 2 * steps and tried < tries:
            flipped = pair.copy()
            if best > -math.inf:
                flipped[rng.integers(2), rng.integers(steps)] ^= 1
            moved = choice.copy()
            laws = [losses.chances(tuple(each)) for each in flipped]
            found = losses.climb(laws[0], laws[1], shown, moved)
            tried += 1
            if found >= best:
                stuck = 0 if found > best + 1e-9 else stuck + 1
                best = found
                pair = flipped
                choice = moved
            else:
                stuck += 1
        worst = max(worst, best)
    return worst


def density(kappa: float, closings: tuple[int, ...], ticks: int, state: float = LN3, **options: Any) -> Any:
    levels = len(closings)
    epsilon = _flicker_loss(state, kappa, levels, closings, windowed="window" in options)
    given: dict[str, Any] = {"unit": "user", "method": "user", "levels": levels, "epsilon_state": state}
    return ContinualDensity(
        universe=1, epsilon=epsilon * (1 + 1e-8), horizon=ticks, start_rate=0.0, **{**given, **options}
    )


@pytest.mark.parametrize(
    ("kappa", "ticks", "closings", "exact", "bound"),
    [(0.05, 4, (4,), 1.236805, 1.245876), (math.log(1.25), 3, (1, 2), None, None)],
)
def test_every_pair_of_patterns_stays_below_the_bound(
    kappa: float, ticks: int, closings: tuple[int, ...], exact: float | None, bound: float | None
) -> None:
    algorithm = density(kappa, closings, ticks)
    claimed = algorithm.claim().epsilon
    assert algorithm.strategy.rate / len(closings) == pytest.approx(kappa, rel=1e-6)
    found = max(Losses(view, ticks, algorithm.table.law.p1).of_user() for view in views(algorithm, ticks))
    assert found <= claimed
    if exact is not None:
        assert found == pytest.approx(exact, abs=1e-5)
        assert claimed == pytest.approx(bound, abs=1e-5)


@pytest.mark.parametrize("windowed", [False, True])
def test_the_bound_is_theorem_b_as_printed(windowed: bool) -> None:
    state = 1.2
    kappa = 0.07
    closings = (4, 2, 1)
    p1 = 1 / (1 + math.exp(-state))
    p0 = 1 - p1
    height = 3
    nodes = 4 * 1 + 2 * 2 + 1 * 3
    r = math.exp(state - 2 * height * kappa)

    def g(x: float) -> float:
        return math.log(p0 * math.exp(p1 * x) + p1 * math.exp(-p0 * x))

    ends = 2 * g(2 * height * kappa) if windowed else g(height * kappa)
    stretches = 4 * g(2 * kappa) + 2 * g(4 * kappa) + g(6 * kappa)
    bends = 3 * height + 2 * r / (1 + r) ** 2 * (nodes + windowed * height)
    bound = state + height * kappa * (4 * p1 - p0) + ends + stretches + math.log(math.cosh(kappa)) * bends
    assert _flicker_loss(state, kappa, height, closings, windowed=windowed) == pytest.approx(bound, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_no_pattern_of_eight_ticks_is_found_above_the_bound(levels: int) -> None:
    """A hill-climbing search over patterns, looks and outputs; PANSTREAM_FULL tries 10,000 patterns of each."""
    rng = np.random.default_rng(21 + levels)
    ticks = 8
    kappas = (0.02, 0.06, 0.15)
    for kappa in kappas:
        algorithm = density(kappa, _closings(ticks, levels), ticks)
        shown = views(algorithm, ticks)
        for view in [shown[0], shown[1], shown[4], shown[-1]]:
            losses = Losses(view, ticks, algorithm.table.law.p1, (-9, -2, -1, 0, 1, 2, 9))
            assert search(losses, rng, max(5, TRIES // 12)) <= algorithm.claim().epsilon


def _closings(ticks: int, levels: int) -> tuple[int, ...]:
    probe = ContinualDensity(universe=1, epsilon=1.0, horizon=ticks, unit="user")
    return probe.strategy_inputs.closings(levels)


@pytest.mark.slow
def test_rows_within_a_window_and_few_rows_stay_below_their_bounds() -> None:
    ticks = 4
    kappa = 0.1
    for options in ({"unit": "user-window", "window": 2}, {"contributions": 1}, {"contributions": 2}):
        probe = ContinualDensity(universe=1, epsilon=1.0, horizon=ticks, **{"unit": "user", **options})
        algorithm = density(kappa, probe.strategy_inputs.closings(1), ticks, **options)
        claimed = algorithm.claim().epsilon
        whole = density(kappa, (ticks,), ticks).claim().epsilon
        worst = 0.0
        for view in views(algorithm, ticks):
            losses = Losses(view, ticks, algorithm.table.law.p1, (-9, 0, 9))
            laws = {pattern: np.log(losses.view_weights(pattern)) for pattern in losses.patterns()}
            slots = np.array([point for point in losses.points[1:]])
            slots[slots < 0] = (view.look or 0) + 1  # the look lies in the next slot
            for first, law in laws.items():
                for second, other in laws.items():
                    differs = slots[np.array(first) != np.array(second)]
                    if "window" in options:
                        allowed = differs.size == 0 or np.ptp(differs) < 2
                    else:
                        allowed = max(sum(first), sum(second)) <= options["contributions"]
                    worst = max(worst, float((law - other).max())) if allowed else worst
        assert worst <= claimed
        if "contributions" in options:
            assert claimed < whole


@pytest.mark.slow
def test_one_draw_in_a_node_would_cost_far_more() -> None:
    """The control: a single draw bends at 0, so every flicker costs first order."""
    ticks = 8
    state = 0.7
    kappa = 0.05
    algorithm = density(kappa, (ticks,), ticks, state)
    view = views(algorithm, ticks)[0]
    single = BitView(view.look, view.weights, np.ones_like(view.draws), view.kappas)
    always = (1,) * ticks
    never = (0,) * ticks
    found = []
    for each in (view, single):
        losses = Losses(each, ticks, algorithm.table.law.p1, (-9, 0, 9))
        laws = [losses.chances(pattern) for pattern in (never, always)]
        found.append(losses.climb(*laws, 0, np.ones(ticks, np.int64)))
    two, one = found
    assert two < algorithm.claim().epsilon
    assert one > 3 * two


def test_the_single_answer_loses_exactly_its_claim() -> None:
    """The start, one answer and one look, every order, every coin: the enumerator drives the shipped code."""
    state = LN3
    start = 0.2
    epsilon = 1.35
    algorithm = ContinualDensity(
        universe=1,
        epsilon=epsilon,
        horizon=1,
        unit="user",
        expected=1,
        method="paid",
        levels=0,
        epsilon_state=state,
        start_rate=start,
    )
    streams = enumerate_streams([None, None, tick()], [update([]), update([0])])
    loss = Enumerator(algorithm, window=(-1, 2)).joint_loss(streams)
    assert loss.epsilon == pytest.approx(single_loss(state, algorithm.law.kappa, start), abs=1e-9)
    assert epsilon * (1 - 1e-8) <= loss.epsilon <= epsilon


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize(("levels", "closings"), [(1, (1,)), (3, (4, 2, 1)), (7, (1,) * 7)])
def test_the_room_of_flickering_rows_is_all_that_the_bound_leaves(
    levels: int, closings: tuple[int, ...], windowed: bool
) -> None:
    state = 0.7
    epsilon = 1.1

    def loss(tree: float) -> float:
        return _flicker_loss(state, tree / levels, levels, closings, windowed=windowed)

    tree = max_flicker_budget(epsilon, state, levels, closings, windowed=windowed)
    assert loss(tree) <= epsilon < loss(tree * (1 + 1e-8))
    most = max_flicker_budget(100.0, state, levels, closings, windowed=windowed)  # above half the state the bound ends
    assert loss(most) <= 100.0 and most == pytest.approx(state / 2, rel=1e-8)
    assert loss(most * (1 + 1e-8)) == math.inf
    assert max_flicker_budget(math.inf, state, levels, closings, windowed=windowed) == math.inf
    assert _flicker_loss(state, state / 2, 1, (1,), windowed=windowed) < math.inf  # half of it is within


@pytest.mark.parametrize(("state", "start"), [(0.3, 0.05), (0.9, 0.1), (1.5, 0.6), (0.2, 0.9)])
def test_the_room_of_a_single_answer_is_its_inverse(state: float, start: float) -> None:
    epsilon = state + 1.2 * start + 0.1
    kappa = max_single_budget(epsilon, state, start)
    assert single_loss(state, kappa, start) == pytest.approx(epsilon, rel=1e-7)
    assert single_loss(state, kappa, start) <= epsilon


def test_a_claim_with_less_noise_is_refused_by_the_numbers() -> None:
    """Stored parameters fix the split, never the noise: that follows from epsilon."""
    algorithm = density(0.05, (4,), 4)
    again = ContinualDensity(**algorithm.parameters())
    assert again.strategy == replace(algorithm.strategy)
    halved = ContinualDensity(**{**algorithm.parameters(), "epsilon": algorithm.epsilon - 0.05})
    assert halved.strategy.rate < algorithm.strategy.rate


@pytest.mark.parametrize(("start", "left"), [(0.5, True), (1.0, False), (9.0, False)])
def test_a_start_may_leave_nothing_for_an_answer(start: float, left: bool) -> None:
    """At 1.0 something is left for rows before the answer, but nothing for those after the start."""
    room = max_single_budget(1.0, 0.5, start)
    assert room > 0.0 if left else room == 0.0
