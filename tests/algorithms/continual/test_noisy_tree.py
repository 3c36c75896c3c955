"""The engine of the trees: which noise an epoch has."""

import pytest

from panstream.algorithms.continual.sums import KaryTree


@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_without_an_epoch_the_law_is_that_of_the_first(one_step_ticks: bool) -> None:
    """In epoch e an item is in the nodes of e + 1 levels and in the root."""
    engine = KaryTree(epsilon=1.5, one_step_ticks=one_step_ticks).engine
    assert engine.law().kappa == pytest.approx(1.5 / 2)
    assert [engine.law(epoch).kappa for epoch in range(4)] == pytest.approx([1.5 / (epoch + 2) for epoch in range(4)])
