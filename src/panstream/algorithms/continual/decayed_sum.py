"""Sums in which the weight of a slot decays with its age, exponentially or polynomially."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import Bounds
from panstream.algorithms.continual.noise_sum_tails import NoiseParts, add_noise, error_bound
from panstream.algorithms.continual.partial_sum_counter import (
    CounterAnswer,
    PartialSumCounter,
    Shape,
    SlotBatch,
    TickState,
)
from panstream.errors import InvalidParameter
from panstream.primitives.codec import FieldLayout, public, published
from panstream.primitives.kernels.algorithms.partial_sums import decayed_slots
from panstream.primitives.noise import NoiseSource

_PRECISION = 1e-10  # relative error aimed at where polynomial weights are replaced by exponentials
_EXACT_WEIGHTS = 4096  # polynomial weights added up one by one; an integral bounds those of older slots


@dataclass(slots=True)
class _DecayedState(TickState):
    """The open slot, the slot published last, and numbers computed from outputs only (bits of float64)."""

    carried: NDArray[np.int64] = published()  # the last answer, and one decayed sum per exponential
    spread: NDArray[np.int64] = public()  # the same for the numbers of draws, with squared weights


@dataclass(frozen=True, slots=True, eq=False)
class _ExponentialTerms:
    """A weight function as a sum of exponentials: weight(age) = sum weights·decays**age for age >= 1."""

    decays: NDArray[np.float64]
    weights: NDArray[np.float64]
    squared: NDArray[np.float64]  # the same for weight(age)**2, from squared_decays
    squared_decays: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayedSum(PartialSumCounter):
    """A sum in which a slot of age a (0 for the newest) weighs rate**a, or (1 + a)**-rate.

    Every slot is published once with noise; the decayed sum is computed from what was published. Polynomial weights are
    replaced by a sum of about 150 exponentials (relative error below 1e-9), so the state does not grow with the stream.

    Privacy:
        Unit: one event added or removed, or with ``unit="slot"`` a slot's content exchanged. A slot starts as noise
        of rate epsilon/sensitivity (unless a tick is one step) and closes with fresh noise of that rate. One copy at
        any time and all outputs lose exactly ``epsilon``. Everything else in the state is computed from outputs, so one
        copy in every slot loses no more, nor do announced copies with a refresh. With ``delta`` the noise is Gaussian,
        and they lose (epsilon, delta).
        Proof: docs/proofs/continual-papers.md, Theorem 1.

    Error:
        With s = sensitivity/epsilon and d draws a slot (2, or 1 if ticks are one step): variance 2d·s²/(1 - rate²) for
        exponential decay, at most 2d·s²·zeta(2·rate) for polynomial decay with rate above 1/2; it grows with the stream
        below. For effective windows, 1/(1 - rate), above about 10,000 slots a `WindowedSum` has less noise.

    Args:
        horizon: How many ticks there will be at most; None for a stream without end.
        decay: "exponential" (rate in (0, 1)) or "polynomial" (rate in [0.05, 20]).
        rate: The factor per slot, or the exponent.
        delta: 0 for discrete Laplace noise; above 0 for discrete Gaussian noise. An event is in one slot only, so a
            single sum has more noise with a delta; where many questions share one budget, zCDP adds up to less.

    Examples:
        >>> monitor = DecayedSum(epsilon=1.0, decay="exponential", rate=0.9).start()
        >>> monitor.update([1, 1, 0])
        >>> monitor.tick().name
        'decayed sum'

    Reference: Budaeva et al. 2013, §1.3.3 (Bolot, Fawaz, Muthukrishnan, Nikolov, Taft 2013).
    """

    theorem: ClassVar[str] = "Theorem 1"

    state_type: ClassVar[type[Any]] = _DecayedState
    memberships: ClassVar[int] = 1  # an event lies in one slot
    shape: ClassVar[Shape] = (1, 1, 0)  # the open slot and the slot published last
    label: ClassVar[str] = "decayed sum"

    decay: Literal["exponential", "polynomial"]
    rate: float
    delta: float = 0.0

    def check(self) -> None:
        """Raise InvalidParameter if ``decay`` is unknown or ``rate`` is out of its range."""
        if self.decay not in ("exponential", "polynomial"):
            raise InvalidParameter(f"decay must be 'exponential' or 'polynomial', got decay={self.decay!r}")
        if self.decay == "exponential" and not 0 < self.rate < 1:
            raise InvalidParameter(f"rate must be in (0, 1) for exponential decay, got rate={self.rate}")
        if self.decay == "polynomial" and not 0.05 <= self.rate <= 20:
            raise InvalidParameter(f"rate must be in [0.05, 20] for polynomial decay, got rate={self.rate}")

    @property
    def terms(self) -> _ExponentialTerms:
        """Return the weights as a sum of exponentials."""
        return _exponential_terms(self.decay, self.rate, self.horizon or 1 << 40)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of a counter, with the decayed sums and their draws."""
        numbers = FieldLayout("i8", (1 + self.terms.decays.size,))
        return {**PartialSumCounter.layout(self), "carried": numbers, "spread": numbers}

    def answer_parts(self, time: int) -> NoiseParts:
        """Return the number of draws in the answer, each counted by its squared weight."""
        return ((self.slot_draws * float(self._powered_weights(np.array([time]), 2)[0]), self.law),)

    def error_bound(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the error that is exceeded with probability at most ``beta``, at slot ``ticks`` or at any slot."""
        if ticks is not None or self.horizon is not None or math.isinf(self.epsilon):
            return PartialSumCounter.error_bound(self, beta=beta, ticks=ticks)
        if self.decay == "polynomial" and self.rate <= 0.5:
            return math.inf
        return error_bound(beta, self.answer_parts(self.max_slots)) * self.scale

    def bounds(self, slots: NDArray[np.int64]) -> Bounds:
        """Return the smallest and largest decayed sum."""
        # The weights are known up to rounding only: a bound of 0 must not become a tiny number of the wrong sign.
        lower, upper = PartialSumCounter.bounds(self, slots)
        return np.minimum(lower, 0.0), np.maximum(upper, 0.0)

    def weight_of(self, slots: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return upper bounds, tight to 1e-6, of the sum of the weights of ``slots`` slots."""
        return (1.0 + 1e-6) * self._powered_weights(slots, 1)

    def _powered_weights(self, slots: NDArray[np.int64], power: int) -> NDArray[np.float64]:
        """Return the sum of the weights of ``slots`` slots, each to a power; for old slots an integral bounds it."""
        time = slots.astype(np.float64)
        if self.decay == "exponential":
            factor = self.rate**power
            return np.asarray(-np.expm1(time * math.log(factor)) / (1.0 - factor))
        exponent = power * self.rate
        exact = np.minimum(slots, _EXACT_WEIGHTS)
        head = np.cumsum(np.arange(1, int(exact.max(initial=1)) + 1) ** -exponent)[exact - 1]
        if exponent == 1.0:
            return np.asarray(head + np.log(time / exact))
        above = 1.0 - exponent
        return np.asarray(head + (time**above - exact**above) / above)

    def initialize(self, state: TickState, rng: NoiseSource) -> None:
        """Open the first slot."""
        if not self.one_step_ticks:
            add_noise(state.open, self.law, rng)
        state.open_draws[0] = self.slot_draws - 1

    def close(self, state: Any, slots: SlotBatch, rng: NoiseSource) -> None:
        """Publish every slot and decay what was published before."""
        terms = self.terms
        published, draws = self.noisy_slots(state, slots.totals, rng)
        for accumulator, decays, weights, values, out in (
            (state.carried, terms.decays, terms.weights, published.astype(np.float64), slots.answers),
            (state.spread, terms.squared_decays, terms.squared, draws, slots.draws),
        ):
            decayed_slots(accumulator[1:].view(np.float64), decays, weights, values, out)
            accumulator[:1] = out[-1:].view(np.int64)
        state.closed[:] = published[-1:]
        state.closed_draws[:] = int(draws[-1])

    def answer(self, state: Any) -> CounterAnswer:
        """Return the decayed sum of what was published."""
        value, squares = (float(bits[:1].view(np.float64)[0]) for bits in (state.carried, state.spread))
        return CounterAnswer(value, (int(state.closed[0]),), ((squares, self.law),))


@lru_cache(maxsize=64)
def _exponential_terms(decay: str, rate: float, slots: int) -> _ExponentialTerms:
    """Return exponentials that add up to the weights for ages below ``slots``.

    (1 + a)**-c = 1/Gamma(c)·∫ exp(-(1+a)·e**x)·e**(c·x) dx, by the trapezoidal rule on x: its relative error is
    2|Gamma(c + 2·pi·i/h)|/Gamma(c), about exp(-pi²/h) (Beylkin and Monzón 2010). Nodes far to the left do not decay
    within ``slots``; they are replaced by one.
    """
    if decay == "exponential":
        one = np.ones(1)
        return _ExponentialTerms(np.array([rate]), one, one, np.array([rate * rate]))
    step = math.pi**2 / (math.log(1.0 / _PRECISION) + 6.0 + 2.0 * rate * 2.0)
    left = math.floor((-math.log(slots) + math.log(_PRECISION)) / step)
    right = math.ceil(math.log(40.0 + 4.0 * rate * 2.0) / step)
    x = step * np.arange(left, right + 1)
    decays = np.exp(-np.exp(x))

    def weights(exponent: float) -> NDArray[np.float64]:
        node_weights = step * np.exp(exponent * x - math.lgamma(exponent) - np.exp(x))
        node_weights[0] /= -math.expm1(-exponent * step)  # plus all nodes further left, a geometric series
        return np.asarray(node_weights)

    return _ExponentialTerms(decays, weights(rate), weights(2.0 * rate), decays)
