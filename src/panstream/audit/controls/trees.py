"""Broken copies of the default tree. Never use them."""

from __future__ import annotations

from dataclasses import replace

from panstream.continual.sums import KaryTree
from panstream.continual.tree_engine import TreeEngine, TreeState
from panstream.estimate import Estimate
from panstream.randomness import Source

__all__ = ["ClearLeaf", "OneLevelTooFew", "StaleRefresh"]


class ClearLeaf(KaryTree):
    """An open slot holds what it received, without noise."""

    def begin(self, source: Source) -> TreeState:
        """Start as the tree does, then clear the leaf."""
        state = KaryTree.begin(self, source)
        state.open[0] = 0
        return state

    def tick(self, state: TreeState, source: Source) -> Estimate:
        """Close the slot, then clear the next one."""
        estimate = KaryTree.tick(self, state, source)
        state.open[0] = 0
        return estimate


class OneLevelTooFew(KaryTree):
    """Shares epsilon between one level less than an event is in."""

    @property
    def engine(self) -> TreeEngine:
        """Return a tree whose noise is too small."""
        engine = super().engine
        rows = engine.shape(0).rows
        return replace(engine, epsilon=engine.epsilon * rows / (rows - 1))


class StaleRefresh(KaryTree):
    """Does nothing after an announced intrusion."""

    def refresh(self, state: TreeState, source: Source) -> None:
        """Leave the state as it was seen."""
