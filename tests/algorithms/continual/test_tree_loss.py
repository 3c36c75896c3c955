"""The exact joint loss of the default tree, by linear program on the view matrix, and broken trees."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.algorithms.continual.sums import KaryTree
from panstream.algorithms.continual.tree_base import TreeState
from panstream.algorithms.continual.tree_shape import TreeShape
from panstream.core.estimate import Estimate
from panstream.primitives.noise import NoiseSource
from panstream.testing.enumeration import refresh, tick, update
from panstream.testing.linear_views import ticks
from tests.algorithms.continual.linear_view import (
    joint_loss,
    neighbours,
    one_step,
    several_steps,
    with_event,
    with_refreshes,
)
from tests.algorithms.continual.tree_twin import TwinTree


class RawTicks(KaryTree):
    """Shows the noisy sums of every node that a one-step tick releases, as ``tick`` does."""

    def tick_many(self, state: TreeState, values: Any, rng: NoiseSource) -> Estimate:  # type: ignore[override]
        def leaves(start: int, stop: int, out: NDArray[np.int64]) -> None:
            out[:, 0] = values[start:stop]

        released = self.engine.close(state, len(values), leaves, rng)[2]
        return self._answer(state, tuple(int(number) for number in released))


@pytest.mark.parametrize(
    ("levels", "slots"), [(1, 5), (2, 9), (3, 7), *[pytest.param(h, 16, marks=pytest.mark.slow) for h in (2, 3, 4)]]
)
@pytest.mark.parametrize("epsilon", [0.8])
@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_joint_loss_is_the_claim(levels: int, slots: int, epsilon: float, one_step_ticks: bool) -> None:
    tree = RawTicks(epsilon=epsilon, horizon=slots, levels=levels, one_step_ticks=one_step_ticks)
    world = one_step(slots) if one_step_ticks else several_steps(slots)
    worst = joint_loss(tree, world, neighbours(world))
    assert worst.loss == pytest.approx(tree.claim().epsilon, abs=1e-9)
    assert worst.whole


@pytest.mark.slow
@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_joint_loss_of_the_answers_alone(one_step_ticks: bool) -> None:
    tree = KaryTree(epsilon=1.0, horizon=9, levels=2, one_step_ticks=one_step_ticks)
    world = one_step(9) if one_step_ticks else several_steps(9)
    show_value = {"published": lambda state, result: np.atleast_1d(np.asarray(result.unclipped, float))}
    worst = joint_loss(tree, world, neighbours(world), **show_value)
    assert worst.loss == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
def test_joint_loss_with_several_updates_in_a_slot() -> None:
    tree = KaryTree(epsilon=1.0, horizon=5, levels=2, lower=-1, upper=1)
    world = several_steps(5, updates=2)
    assert joint_loss(tree, world, neighbours(world)).loss == pytest.approx(1.0, abs=1e-9)
    assert joint_loss(tree, world, neighbours(world, -1)).loss == pytest.approx(1.0, abs=1e-9)


def test_joint_loss_when_arrays_and_single_slots_are_mixed() -> None:
    """Slots of an array have no noise at their start; the one that the call leaves open has."""
    tree = KaryTree(epsilon=1.0, horizon=9, levels=2)
    world = [update([0]), ticks([0, 0, 0]), update([0]), tick(), ticks([0, 0]), update([0]), tick()]
    streams = [with_event(world, at) for at, step in enumerate(world) if step.verb == "update"]
    for at, slots in ((1, 3), (4, 2)):
        streams += [[*world[:at], ticks([int(i == n) for i in range(slots)]), *world[at + 1 :]] for n in range(slots)]
    show = {"published": lambda state, result: state.sums.ravel().copy()}
    assert joint_loss(tree, world, streams, **show).loss == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_joint_loss_across_epochs(one_step_ticks: bool) -> None:
    """The first epoch has 6 or 8 slots: look and items in it and after it."""
    tree = RawTicks(epsilon=1.0, one_step_ticks=one_step_ticks)
    slots = TreeShape.of_epoch(0, one_step_ticks).slots + 4
    world = one_step(slots) if one_step_ticks else several_steps(slots)
    worst = joint_loss(tree, world, neighbours(world), looks=[None, *range(0, len(world) + 1, 3), len(world)])
    assert worst.loss == pytest.approx(1.0, abs=1e-9)
    assert worst.whole


@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_joint_loss_with_announced_looks(one_step_ticks: bool) -> None:
    """Any number of announced looks costs no more, with an unannounced one in the last phase."""
    tree = RawTicks(epsilon=1.0, horizon=8, levels=3, one_step_ticks=one_step_ticks)
    plain = one_step(8) if one_step_ticks else several_steps(8)
    world = with_refreshes(plain, every=3)
    last = max(at for at, step in enumerate(world) if step.verb == "refresh") + 1
    worst = joint_loss(tree, world, neighbours(world), looks=[None, *range(last, len(world) + 1)])
    assert worst.loss == pytest.approx(1.0, abs=1e-9)
    assert worst.whole


def test_scheduled_refreshes_allow_a_look_in_every_phase() -> None:
    """Two looks with a refresh between them that nobody saw cost epsilon; without it there is no bound."""
    tree = KaryTree(epsilon=1.0, horizon=10, levels=2)
    first = several_steps(2)
    second = several_steps(3)
    world = [*first, refresh(), *second]  # shows the state, then refreshes: a look right before a scheduled refresh
    after = range(len(first) + 1, len(world) + 1)
    assert joint_loss(tree, world, neighbours(world), looks=after).loss == pytest.approx(1.0, abs=1e-9)
    assert joint_loss(tree, world, neighbours(world), looks=[1, 2]).loss == math.inf


@pytest.mark.slow
def test_joint_loss_of_larger_events_slots_and_users() -> None:
    world = several_steps(5)
    bounded = KaryTree(epsilon=1.0, horizon=5, levels=2, lower=-2, upper=5)
    assert joint_loss(bounded, world, neighbours(world, 5)).loss == pytest.approx(1.0, abs=1e-9)
    users = KaryTree(epsilon=1.0, horizon=5, levels=2, contributions=3)
    thrice = [with_event(with_event(with_event(world, a), b), c) for a, b, c in ((0, 2, 4), (0, 6, 8), (2, 4, 6))]
    same = [with_event(world, at, (1, 1, 1)) for at in (0, 4, 8)]
    thrown = [[step if step.arguments != (("ids", ((1, 1, 1),)),) else update([1, 1, 1]) for step in w] for w in same]
    losses = [joint_loss(users, world, streams).loss for streams in (thrice, thrown)]
    assert losses == pytest.approx([1.0, 1.0], abs=1e-9)
    slot = RawTicks(epsilon=1.0, horizon=5, levels=2, lower=0, upper=4, unit="slot", one_step_ticks=True)
    assert joint_loss(slot, one_step(5), neighbours(one_step(5), 4)).loss == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "loss"),
    [
        ({}, 1.0),
        ({"start_noise": False}, math.inf),  # clear sums in memory
        ({"release_noise": False}, math.inf),  # initial noise only: release minus state shows what came between
        ({"leaf_start_noise": False}, math.inf),  # a slot of several steps is seen while it is open
        ({"charged_levels": 2}, 1.5),  # one level too few
    ],
    ids=["sound", "clear sums", "initial noise only", "clear leaf", "one level too few"],
)
def test_broken_trees_are_caught(broken: dict[str, Any], loss: float) -> None:
    twin = TwinTree(KaryTree(epsilon=1.0, horizon=7, levels=3), **broken)
    world = several_steps(7)
    assert joint_loss(twin, world, neighbours(world)).loss == pytest.approx(loss, abs=1e-9)


def test_a_clear_leaf_is_fine_if_a_tick_is_one_step() -> None:
    twin = TwinTree(KaryTree(epsilon=1.0, horizon=7, levels=3, one_step_ticks=True), leaf_start_noise=False)
    assert joint_loss(twin, one_step(7), neighbours(one_step(7))).loss == pytest.approx(1.0, abs=1e-9)
