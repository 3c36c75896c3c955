"""The simple counting mechanism I with its clear count, and "noise on each data point" of section 5.1."""

from __future__ import annotations

from dataclasses import dataclass

from panstream.papers.literal_counters import LiteralCounter, LiteralState
from panstream.privacy.psums import published_point_loss, published_simple_loss
from panstream.randomness import DiscreteLaplace, Source

__all__ = ["PublishedPointNoise", "PublishedSimpleCounterI"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSimpleCounterI(LiteralCounter):
    """2.3.2: the true count, published with fresh Lap(1/epsilon) noise at every slot.

    The outputs lose T·bound·epsilon, as the paper says (O(T·epsilon)); the count in memory is clear.
    """

    @property
    def output_loss(self) -> float:
        """Return the loss of all outputs."""
        return published_simple_loss(self.epsilon, self.horizon) * self.bound

    @property
    def rows(self) -> int:
        """Return one: the count."""
        return 1

    def close(self, state: LiteralState, value: int, source: Source) -> float:
        """Count and publish."""
        state.sums[0] += value
        state.noisy[0] = state.sums[0]
        source.add_discrete_laplace(state.noisy, DiscreteLaplace.at_most(self.epsilon))
        return float(state.noisy[0])

    def released(self, state: LiteralState) -> tuple[int, ...]:
        """Return the output."""
        return (int(state.noisy[0]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPointNoise(LiteralCounter):
    """5.1: each data point of 0..N gets Lap(1/epsilon) noise before it leaves the house.

    True loss N·epsilon, with any number of looks if a slot is filled and sent in one step; "epsilon" would need Lap(N/epsilon).
    """

    @property
    def output_loss(self) -> float:
        """Return N·epsilon."""
        return published_point_loss(self.epsilon, self.bound)

    @property
    def joint_loss(self) -> float:
        """Return N·epsilon: nothing but what was sent stays in memory."""
        return self.output_loss

    @property
    def rows(self) -> int:
        """Return one: the point sent last."""
        return 1

    def close(self, state: LiteralState, value: int, source: Source) -> float:
        """Send the point with noise."""
        state.noisy[0] = value
        source.add_discrete_laplace(state.noisy, DiscreteLaplace.at_most(self.epsilon))
        return float(state.noisy[0])

    def released(self, state: LiteralState) -> tuple[int, ...]:
        """Return the noisy point."""
        return (int(state.noisy[0]),)
