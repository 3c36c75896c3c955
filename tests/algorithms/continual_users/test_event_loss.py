"""Theorem A: the loss of one event, enumerated from the shipped code, is the formula to nine digits."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.continual_users import ContinualDensity
from panstream.privacy.change_tree_loss import max_change_budget, max_change_budget_approx
from panstream.testing.bit_views import Losses, views

LN3 = math.log(3.0)
KAPPA = math.log(1.25)


def change_loss(state: float, tree: float, start: float = 0.0, *, deletions: bool = False) -> float:
    """Return what one event loses: max{eps_s + f(tree + start), f(2·tree)}, f(x) = ln(p0 + p1·e**x)."""
    started, twice = (math.log((1 + math.exp(state + x)) / (1 + math.exp(state))) for x in (tree + start, 2 * tree))
    return state + max(started, twice) if deletions else max(state + started, twice)


def density(levels: int, ticks: int, *, start: float = 0.0, deletions: bool = False) -> ContinualDensity:
    epsilon = change_loss(LN3, levels * KAPPA, start, deletions=deletions)
    return ContinualDensity(
        universe=1,
        epsilon=epsilon,
        horizon=ticks,
        deletions=deletions,
        method="event",
        levels=levels,
        epsilon_state=LN3,
        start_rate=start,
    )


def exact(algorithm: Any, ticks: int, steps: tuple[int, ...] = (0, 1)) -> float:
    p1 = algorithm.table.law.p1
    return max(Losses(view, ticks, p1).of_event(steps) for view in views(algorithm, ticks))


@pytest.mark.parametrize(
    ("levels", "ticks", "start", "reference"),
    [
        (1, 3, 0.0, 1.270462546),
        (2, 3, 0.0, 1.450588712),
        (3, 4, 0.0, 1.637934257),
        (1, 3, 0.1, 1.350224911),
        (2, 3, 0.1, 1.533715270),
    ],
)
def test_one_event_loses_what_the_theorem_says(levels: int, ticks: int, start: float, reference: float) -> None:
    """Releasing the start, with noise of rate ``start``, adds its rate."""
    algorithm = density(levels, ticks, start=start)
    assert algorithm.claim().epsilon == pytest.approx(reference, abs=1e-9)
    assert exact(algorithm, ticks) == pytest.approx(reference, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("levels", "reference"), [(1, 1.450588712), (2, 1.831487115)])
def test_deletions_double_the_constant_and_a_start_as_large_is_free(levels: int, reference: float) -> None:
    ticks = 3
    for start in (0.0, levels * KAPPA * (1 - 1e-12)):
        algorithm = density(levels, ticks, deletions=True, start=start)
        assert algorithm.claim().epsilon == pytest.approx(reference, abs=1e-9)
        assert exact(algorithm, ticks, (0, 1, -1)) == pytest.approx(reference, abs=1e-9)


def test_the_second_branch_is_needed() -> None:
    """At R = 1.2, kappa = .4 the first branch alone would claim .419974; the loss is .511911."""
    state = math.log(1.2)
    kappa = 0.4
    epsilon = change_loss(state, kappa)
    assert epsilon == pytest.approx(0.511911, abs=1e-6)
    algorithm = ContinualDensity(
        universe=1, epsilon=epsilon, horizon=3, method="event", levels=1, epsilon_state=state, start_rate=0.0
    )
    assert exact(algorithm, 3) == pytest.approx(0.511911, abs=1e-6)


@pytest.mark.parametrize("deletions", [False, True])
def test_the_room_of_changes_is_the_inverse_and_none_is_left_by_a_large_start(deletions: bool) -> None:
    for state, start in ((0.4, 0.0), (0.4, 0.3), (1.2, 0.1)):
        tree = max_change_budget(1.7, state, start, deletions=deletions)
        assert change_loss(state, tree, start, deletions=deletions) == pytest.approx(1.7, rel=1e-12)
        assert max_change_budget_approx(1.7, state, start, deletions=deletions) == pytest.approx(tree, rel=1e-9)
    assert max_change_budget_approx(1.3, 0.4, 9.0, deletions=deletions) == 0.0


def test_epochs_lose_no_more() -> None:
    """Without a horizon an event's interval may begin in one epoch and end in the next: the same formula."""
    epsilon = change_loss(LN3, 2 * KAPPA)
    algorithm = ContinualDensity(
        universe=1, epsilon=epsilon, method="event", levels=1, epsilon_state=LN3, start_rate=0.0
    )
    # The first epoch has six
    ticks = 8
    worst = 0.0
    for view in views(algorithm, ticks)[6:]:
        losses = Losses(view, ticks, algorithm.table.law.p1, outputs=(-9, 0, 9))
        rng = np.random.default_rng(view.look)
        for at in range(len(losses.points) - 1):
            pattern = tuple(int(step == at) for step in range(len(losses.points) - 1))
            laws = [losses.chances(each) for each in (pattern, (0,) * len(pattern))]
            for first, second in (laws, laws[::-1]):
                for shown in range(len(losses.shown)):
                    choice = rng.integers(0, 3, len(view.weights))
                    worst = max(worst, losses.climb(first, second, shown, choice))
    assert worst == pytest.approx(epsilon, abs=1e-9)


class _CountsTheStart(ContinualDensity):
    """Counts the start as a change: nodes that open at tick 0 hold only their draw."""

    def initial_state(self, source: Any) -> Any:
        state = ContinualDensity.initial_state(self, source)
        state.open += int(state.bits[0] & 1)
        return state


class _NoStartDraw(ContinualDensity):
    def initial_state(self, source: Any) -> Any:
        state = ContinualDensity.initial_state(self, source)
        state.open[:] = -int(state.bits[0] & 1)
        return state


def test_counting_the_start_as_a_change_is_caught() -> None:
    plain = density(2, 3)
    wrong = _CountsTheStart(**plain.parameters())
    assert exact(wrong, 3) == pytest.approx(1.831487115, abs=1e-9)
    assert exact(wrong, 3) > plain.claim().epsilon + 0.3


def test_open_nodes_in_the_clear_are_caught() -> None:
    wrong = _NoStartDraw(**replace(density(1, 3)).parameters())
    with pytest.raises(AssertionError):
        views(wrong, 3)  # a number is shown in the clear
