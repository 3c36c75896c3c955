"""The unbounded sum of section 4.1 as stated: logarithmic mechanism and WindowSum, both on clear sums."""

from __future__ import annotations

from dataclasses import dataclass

from panstream.papers.literal_counters import LiteralCounter, LiteralState, binary_step
from panstream.privacy.psums import published_hybrid_loss
from panstream.randomness import DiscreteLaplace, Source

__all__ = ["PublishedHybrid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHybrid(LiteralCounter):
    """Theorem 4: epsilon/2 for each part, sums in the clear. The outputs lose at most epsilon; one look makes it infinite.

    ``horizon`` bounds only the size of the state here; the mechanism does not use it.
    """

    @property
    def output_loss(self) -> float:
        """Return what the outputs lose: without looks the theorem holds, with a little room."""
        return published_hybrid_loss(self.epsilon, self.horizon)

    @property
    def rows(self) -> int:
        """Return the logarithmic sum and the levels of the largest epoch."""
        return 1 + self.horizon.bit_length()

    def close(self, state: LiteralState, value: int, source: Source) -> float:
        """Give the value to the logarithmic mechanism, and between powers of two to the epoch's binary mechanism."""
        state.sums[0] += value
        if state.time & (state.time - 1) == 0:
            source.add_discrete_laplace(state.sums[:1], DiscreteLaplace.at_most(self.epsilon / 2 / self.bound))
            state.noisy[0] = state.sums[0]
            state.sums[1:] = state.noisy[1:] = 0
            return float(state.noisy[0])
        epoch = state.time.bit_length() - 1
        kappa = self.epsilon / 2 / (self.bound * (epoch + 1))  # Lap((log W + 1)/(epsilon/2)) for W = 2**epoch
        since = state.time - (1 << epoch)
        binary_step(state.sums[1:], state.noisy[1:], since, value, DiscreteLaplace.at_most(kappa), source)
        return float(sum(self.released(state)))

    def released(self, state: LiteralState) -> tuple[int, ...]:
        """Return the logarithmic output and the epoch's noisy sums."""
        since = state.time - (1 << state.time.bit_length() - 1)
        return (int(state.noisy[0]), *(int(state.noisy[1 + i]) for i in range(self.rows - 1) if since >> i & 1))
