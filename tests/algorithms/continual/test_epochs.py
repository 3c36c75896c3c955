"""The trees of streams without end: disjoint, complete, and the noise of their answers."""

import numpy as np
import pytest

from panstream.algorithms.continual.sums import KaryTree
from panstream.algorithms.continual.tree_shape import EPOCHS, MAX_SLOTS, TreeShape, epoch_of
from panstream.errors import InvalidParameter
from tests.algorithms.continual.tree_twin import TwinTree
from tests.zero_noise import ZeroNoiseSource


@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_slots_lie_in_one_epoch_each(one_step_ticks: bool) -> None:
    ends = np.cumsum([TreeShape.of_epoch(epoch, one_step_ticks).slots for epoch in range(EPOCHS)], dtype=object)
    assert ends[-1] > MAX_SLOTS
    for epoch in range(EPOCHS - 1):
        first = int(ends[epoch - 1]) if epoch else 0
        assert epoch_of(first + 1, one_step_ticks) == (epoch, 1)
        assert epoch_of(int(ends[epoch]), one_step_ticks) == (epoch, TreeShape.of_epoch(epoch, one_step_ticks).slots)


@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_an_item_is_in_one_node_per_level_of_its_epoch(one_step_ticks: bool) -> None:
    assert [TreeShape.of_epoch(epoch, one_step_ticks).rows for epoch in range(4)] == [2, 3, 4, 5]


@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_noise_is_that_of_the_twin(one_step_ticks: bool) -> None:
    tree = KaryTree(epsilon=1.0, one_step_ticks=one_step_ticks)
    twin = TwinTree(tree)
    source = ZeroNoiseSource()
    state = twin.initial_state(source)
    slots = sum(TreeShape.of_epoch(epoch, one_step_ticks).slots for epoch in range(2)) + 100
    for _ in range(slots):
        twin.tick_many(state, [0], source)
        if not one_step_ticks:
            state.draws[0] = 1  # the twin closes slots in one step each: give the leaf its start
    past = 0.0
    start = 0
    for epoch in range(3):
        size = min(TreeShape.of_epoch(epoch, one_step_ticks).slots, slots - start)
        unit = tree.engine.law(epoch).variance
        inside = np.array(twin.variances[start : start + size]) - past
        found = TreeShape.of_epoch(epoch, one_step_ticks).noise(size)
        assert found.mean * unit == pytest.approx(inside.mean())
        assert found.worst * unit == pytest.approx(inside.max())
        assert found.last * unit == pytest.approx(inside[-1])
        past = past + float(inside[-1])
        start = start + size


def test_error_without_a_horizon() -> None:
    """At a million slots at most the published figure for growing trees with fixed radices, 5,000 to 5,900."""
    tree = KaryTree(epsilon=1.0, one_step_ticks=True)
    epoch, _ = epoch_of(1 << 20, True)
    before = sum(TreeShape.of_epoch(e, True).noise().last * tree.engine.law(e).variance for e in range(epoch))
    whole = TreeShape.of_epoch(epoch, True).noise()
    assert before + whole.mean * tree.engine.law(epoch).variance < 4500
    assert before + whole.worst * tree.engine.law(epoch).variance < 5900


def test_bounds_are_checked() -> None:
    for call in (
        lambda: TreeShape.of_epoch(EPOCHS, True),
        lambda: epoch_of(0, True),
        lambda: epoch_of(MAX_SLOTS + 1, True),
    ):
        with pytest.raises(InvalidParameter, match="must be in"):
            call()
