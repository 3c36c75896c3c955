"""ContinualSecondMoment and ContinualInnerProduct: signed sketches whose counters are released through a tree.

Every level of the tree has a copy of the counters, to which rows are added; a release closes the copies that end there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from panstream.algorithms.continual.noisy_tree import NoisyTree, TreeState
from panstream.algorithms.continual.tree_shape import MAX_CAPACITY, MAX_LEVELS, TreeShape
from panstream.algorithms.turnstile.inner_product import InnerProduct
from panstream.algorithms.turnstile.modular_counter import CounterBatch
from panstream.algorithms.turnstile.second_moment import SecondMoment
from panstream.algorithms.turnstile.signed_sketch import CounterNoise, SignedSketch
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout
from panstream.primitives.noise import DiscreteLaplace, NoiseSource


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSketch(SignedSketch):
    """Base of the signed sketches that are released through a tree.

    Args:
        releases: How many answers there will be; the tree is planned for them.
        levels: Levels of the tree; the best by default, stored with the state.
        capacity: Largest number of closed nodes in one answer; the best by default, stored with the state.
    """

    state_type: ClassVar[type[Any]] = TreeState

    levels: int | None = None
    capacity: int | None = None

    def __post_init__(self) -> None:
        checks.require_at_least(1, releases=self.releases)
        if (self.levels is None) != (self.capacity is None):
            raise InvalidParameter("levels and capacity must be given together")
        if self.levels is None or self.capacity is None:
            shape = TreeShape.best(self.releases, False)
            object.__setattr__(self, "levels", shape.levels)
            object.__setattr__(self, "capacity", shape.capacity)
        else:
            checks.require_integer_in_range(1, MAX_LEVELS, levels=self.levels)
            checks.require_integer_in_range(1, MAX_CAPACITY, capacity=self.capacity)
            if self.shape.slots < self.releases:
                raise InvalidParameter(
                    f"capacity must leave room for releases={self.releases}, got capacity={self.capacity}"
                )
        SignedSketch.__post_init__(self)

    @property
    def shape(self) -> TreeShape:
        """Return the tree over the releases."""
        assert self.levels is not None
        assert self.capacity is not None
        return TreeShape(self.levels, self.capacity, False)

    @property
    def engine(self) -> NoisyTree:
        """Return the tree of accumulators that holds the counters."""
        cells = self.streams * self.width
        return NoisyTree(self.epsilon, self.max_weight, self.contributions or 1, cells, False, self.shape)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the distribution of every draw."""
        law = NoisyTree(self.epsilon, self.max_weight, self.contributions or 1, 1, False, self.shape).law()
        assert isinstance(law, DiscreteLaplace)
        return law

    @property
    def planned(self) -> CounterNoise:
        """Return the noise of the noisiest release without refreshes."""
        return CounterNoise(self.law, self.shape.noise(self.releases).worst)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the levels' counters, the released sums and the public clock."""
        return self.engine.layout(self.releases)

    def initial_state(self, rng: NoiseSource) -> TreeState:  # type: ignore[override]
        """Return counters that hold one draw of noise each, on every level."""
        values: dict[str, Any] = {
            name: 0 if field.kind == "int" else np.zeros([size or 0 for size in field.shape], np.int64)
            for name, field in self.layout().items()
        }
        state = TreeState(**values)
        self.engine.open_all(state, rng)
        return state

    def update(self, state: TreeState, batch: CounterBatch, rng: NoiseSource) -> None:  # type: ignore[override]
        """Add every row to its counter with its sign, on every level."""
        self.add_rows(list(state.open), batch, rng)

    def release(self, state: TreeState, rng: NoiseSource) -> Estimate:  # type: ignore[override]
        """Close the slot, publish the counters that end with it, and return the estimate of all rows so far."""
        consume_release(state.ticks, self.releases)
        _, _, released = self.engine.close(state, 1, None, rng)
        totals = self.engine.totals(state)
        noise = CounterNoise(self.law, float(totals[-1]) / self.law.variance if math.isfinite(self.epsilon) else 0.0)
        sums = totals[:-1].reshape(self.streams, -1)
        return self.decode(sums, noise, tuple(int(number) for number in released))

    def refresh(self, state: TreeState, rng: NoiseSource) -> None:  # type: ignore[override]
        """Add fresh noise to every counter after an announced intrusion; any number of them is covered."""
        self.engine.refresh(state, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualSecondMoment(TreeSketch, SecondMoment):
    """F2, the sum over all ids of the squared net weight, in many answers over time.

    Privacy:
        Unit: event, one row added or removed; with ``contributions=K`` a user of at most K rows. A row is in one node
        on each of h levels, whose counters start as DLap(kappa) and are released with another,
        kappa = epsilon/(h·max_weight·K). One copy at any time and all releases lose exactly ``epsilon``, and so do any
        number of announced copies with a refresh after each.
        Proof: docs/proofs/turnstile.md, Theorem 6.

    Error:
        As `SecondMoment`, with the noise of the noisiest answer of the tree, which grows with the cube of the logarithm
        of the number of releases instead of linearly. Up to about 30 releases the best tree has one level and both
        are the same.

    Examples:
        >>> monitor = ContinualSecondMoment(epsilon=1.0, expected=3000, releases=365).start()
        >>> for day in range(3):
        ...     monitor.update([f"item {i % 1000}" for i in range(100_000)])
        ...     answer = monitor.release()
        >>> abs(answer.value / 90_000_000 - 1) < 0.2
        True

    Reference: Mir et al. 2011, §5, on the counters of `SecondMoment`.
    """

    theorem: ClassVar[str] = "Theorem 6"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualInnerProduct(TreeSketch, InnerProduct):
    """The sum over all ids of (net weight on the left)·(net weight on the right), in many answers over time.

    Privacy:
        As `ContinualSecondMoment`. An event is a row of either stream; a user's ``contributions`` are her rows of both
        streams together.
        Proof: docs/proofs/turnstile.md, Theorem 6.

    Error:
        As `InnerProduct`, with the noise of the noisiest answer of the tree.

    Examples:
        >>> monitor = ContinualInnerProduct(epsilon=1.0, expected=3000, releases=365).start()
        >>> for day in range(3):
        ...     monitor.update([f"item {i % 1000}" for i in range(100_000)], stream="left")
        ...     monitor.update([f"item {i % 500}" for i in range(100_000)], stream="right")
        ...     answer = monitor.release()
        >>> abs(answer.value / 90_000_000 - 1) < 0.2
        True

    Reference: Mir et al. 2011, §5, on the counters of `InnerProduct`.
    """

    theorem: ClassVar[str] = "Theorem 6"
