"""ContinualDensity: which fraction of a known population has appeared, at every tick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from panstream.algorithms.continual.noise_sum_tails import Law, NoiseParts, half_width, laplace_at_rate, noise_variance
from panstream.algorithms.continual_users.ones_counter import PublicView, SetBitCounter
from panstream.algorithms.continual_users.release_strategies import StrategyInputs
from panstream.algorithms.density.presence import Presence
from panstream.algorithms.density.universe import Members, Universe, as_members
from panstream.algorithms.randomized_bits import CoinPair, score_interval
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks

_ROUNDS = 3  # iterations: the best weight of the start depends on the density that is being estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bits(Presence):
    """One bit per sampled user for a given share of epsilon, without release noise of its own."""

    epsilon_state: float

    @property
    def law(self) -> CoinPair:
        """Return the symmetric pair of coins, without release noise."""
        return CoinPair.symmetric(self.epsilon_state, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualDensity(SetBitCounter):
    """The fraction of a known population that has appeared so far, or its number, at every tick.

    Each user has one noisy bit, as in `OptBern`. Published is either the number of ones, charged at every tick, or a
    tree over the changes of that number, whichever has the smaller error; ``explain`` names it.

    Privacy:
        Unit: as ``unit`` says; one unit's rows may be added or removed. One copy of the state at any time and all
        answers lose at most ``epsilon``: exactly that at event level, by an upper bound at user level in a tree. Noise
        enters with every bit, with every node of the tree as it opens, and with every number that is published. Two
        copies have no finite loss. Rows after the last tick are refused.
        Proof: docs/proofs/continual-users.md, Theorem B.

    Error:
        After n ticks at event level about log(n)**1.5, at user level about sqrt(n), and n where deletions meet
        user level: 95% error 383, 930 and 1,677 at n = 100, epsilon 1, 20,000 users, half of whom come.

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids.
        sample: How many of them have a bit.
        deletions: Whether rows may remove users.
        count: Whether the answer is the number of users instead of their fraction.

    Examples:
        >>> monitor = ContinualDensity(universe=20_000, epsilon=1.0, horizon=100, count=True).start()
        >>> for hour in range(3):
        ...     monitor.update(range(1000 * hour, 1000 * hour + 2000))
        ...     estimate = monitor.tick()
        >>> abs(estimate.value - 4000) < 2000
        True

    """

    theorem: ClassVar[str] = "Theorem B"

    universe: Members
    sample: int | None = None
    deletions: bool = False
    count: bool = False
    population: Universe = field(init=False, repr=False, compare=False)
    table: Presence = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        SetBitCounter.__post_init__(self)
        bits = _Bits(
            universe=self.universe,
            epsilon=math.inf,
            sample=self.sample,
            deletions=self.deletions,
            key=self.key,
            epsilon_state=self.strategy.epsilon_state,
        )
        object.__setattr__(self, "table", bits)

    def check(self) -> None:
        """Raise InvalidParameter if a parameter breaks its rule."""
        object.__setattr__(self, "universe", as_members(self.universe))
        object.__setattr__(self, "population", Universe(self.universe, self.sample, self.key))
        if self.expected is not None and self.expected > self.population.size:
            raise InvalidParameter(
                f"expected must not exceed {self.population.size} users, got expected={self.expected}"
            )

    @property
    def strategy_inputs(self) -> StrategyInputs:
        """Return what is published and what is protected."""
        density = 0.5 if self.expected is None else self.expected / self.population.size
        return self._inputs_for(self.population.sampled, density, deletions=self.deletions)

    @property
    def public_facts(self) -> tuple[str, ...]:
        """Return what is public besides the answers."""
        return ("the universe, the sample and its key", "how many ticks there were")

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "distinct users" if self.count else "density"

    @property
    def planned(self) -> float:
        """Return ``expected``, or half of the population."""
        return self.expected or self.population.size / 2

    @property
    def _gap(self) -> float:
        law = self.table.law
        return law.p1 - law.p0

    def decode(self, seen: PublicView) -> Estimate:
        """Return the density with its interval; the start is subtracted with the weight of smallest variance."""
        cells = self.population.sampled
        absent = self.table.law.p0
        steps = cells * self._gap
        base = float(seen.start[0]) - cells * absent if self.strategy.start else 0.0
        top = float(seen.sums[0]) + (-cells * absent if self.pays_per_release else base)
        density = (top - base) / steps
        for _ in range(_ROUNDS if self.strategy.start else 1):
            share = self.strategy.best_share(cells, self._touched(density))
            density = (top - share * base) / steps
        return self._estimate(density, share, steps, seen)

    def _touched(self, density: float) -> float:
        """Return the part of the cells that rows redrew; with deletions it may be all of them."""
        return 1.0 if self.deletions else min(max(density, 0.0), 1.0)

    def _estimate(self, density: float, share: float, steps: float, seen: PublicView) -> Estimate:
        parts = self._parts(share, seen.noise, seen.law)
        size = self.population.size if self.count else 1

        def rule(level: float) -> tuple[float, float]:
            def reach(truth: float) -> float:
                return half_width(level, parts, self._normal(truth, share)) / steps

            low, high = score_interval(density, reach, reach)
            return low * size, high * size

        inside = min(max(density, 0.0), 1.0)
        return Estimate(
            value=inside * size,
            unbiased=density * size,
            standard_error=math.sqrt(self._normal(inside, share) + noise_variance(parts)) / steps * size,
            claim=self.claim(),
            name=self.label,
            support=(0.0, float(size)),
            released=seen.released,
            interval_rule=rule,
        )

    def _parts(self, share: float, noise: float, law: Law) -> NoiseParts:
        """Return the draws in the decoded number (ones now) - share·(ones at the start)."""
        start_weight = share if self.pays_per_release else 1.0 - share
        first = [(start_weight**2, laplace_at_rate(self.strategy.start))] if self.strategy.start else []
        return [*first, (noise / law.variance, law)] if noise else first

    def _normal(self, truth: float, share: float) -> float:
        """Return the variance of bits and sampling at a true density, in ones."""
        bits = self.strategy.bits_spread(self.population.sampled, self._touched(truth), share)
        total = self.population.size
        sampled = self.population.sampled
        unsampled_fraction = (total - sampled) / (total - 1) if total > 1 else 0.0
        return bits + truth * (1.0 - truth) * sampled * unsampled_fraction * self._gap**2

    def expected_estimate(self, ticks: int, users: float) -> Estimate:
        """Return the answer after ``ticks`` ticks if ``users`` have appeared and every draw were 0."""
        law = self.table.law
        cells = self.population.sampled
        density = min(users / self.population.size, 1.0)
        ones = cells * (self._gap * density + (law.p0 if self.pays_per_release else 0.0))
        start = np.array([round(cells * law.p0)], np.int64)
        noise, draw = self.noise_at(ticks)
        return self.decode(PublicView(np.array([ones]), noise, draw, start))

    def standard_error(self, users: float) -> float:
        """Return the standard error of the last answer, in users, when ``users`` have appeared."""
        last = self.expected_estimate(self.horizon or self.last_slot, users).standard_error
        return last * (1 if self.count else self.population.size)

    def error_bound(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the error that is exceeded with probability at most ``beta``, whatever the density.

        ``ticks`` is the number of ticks so far, by default the horizon.
        """
        checks.require_probability(beta=beta)
        noiseless_error = self.error_without_noise(ticks)
        if noiseless_error is not None:
            return noiseless_error
        noise, law = self.noise_at(ticks or self.last_slot)
        errors = []
        for density in (part / 16 for part in range(17)):
            share = self.strategy.best_share(self.population.sampled, self._touched(density))
            errors.append(half_width(1.0 - beta, self._parts(share, noise, law), self._normal(density, share)))
        size = self.population.size if self.count else 1
        return max(errors) / (self.population.sampled * self._gap) * size
