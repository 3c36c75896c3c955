"""A count at every tick whose noise is correlated over time: with a delta, the smallest known error on long horizons.

An answer is (count + eta) + X. The state holds count + eta and the levels whose sum is X: autoregressive numbers that
remember from a few ticks to the whole horizon, and one more that is drawn afresh for every answer and stored nowhere.
All are integers (`panstream.algorithms.continual.gauss_markov_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.gauss_markov_noise import COUNT_BITS, GaussMarkovNoise, gauss_markov_noise
from panstream.algorithms.continual.noise_sum_tails import NoiseParts, error_bound
from panstream.algorithms.continual.sums import ContinualCount
from panstream.algorithms.continual.ticker import Ticker
from panstream.algorithms.continual.tree_base import TreeBatch
from panstream.core.estimate import Estimate, Estimates
from panstream.errors import InvalidParameter
from panstream.primitives.codec import FieldLayout, noise, noised, public, published
from panstream.primitives.kernels.algorithms.gauss_markov import next_levels
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.composition import zcdp_epsilon
from panstream.privacy.gauss_markov_loss import (
    MOST_ORDER,
    event_loss,
    gauss_markov_losses,
    gauss_markov_variances,
    level_exponents,
    order_of,
)

_EPOCHS = (10, 15, 20, *[MOST_ORDER] * 13)  # orders without a horizon; part of the stored format
_ROWS = len(level_exponents(MOST_ORDER, one_step_ticks=False))
_CHUNK = 1 << 10


@dataclass(slots=True)
class GaussMarkovState:
    """What the machine holds between two steps, and all an intruder can copy."""

    count: NDArray[np.int64] = noised()  # events of the epoch with their noise, in units of 2**-8
    levels: NDArray[np.int64] = noise()  # the slower levels of X, each in its own unit
    past: NDArray[np.int64] = published()  # released sums of past epochs, in units of 2**-8
    last: NDArray[np.int64] = published()  # bits of float64: the last answer
    spread: NDArray[np.int64] = public()  # bits of float64: variance of ``past`` and of the last answer
    draws: int = public()  # of noise in the count
    ticks: int = public()
    epoch: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussMarkovCount(Ticker[GaussMarkovState]):
    """The number of events so far, at every tick, with Gaussian noise that is correlated over time.

    Privacy:
        Unit: one event added or removed, anywhere in time (``contributions=K``: a user of at most K events). One copy
        at any time and all outputs lose (``epsilon``, ``delta``), and so do any number of announced copies, each
        followed by a refresh.
        Proof: docs/proofs/gauss-markov.md, Theorem 1.

    Error:
        Mean squared error at epsilon 1, delta 1e-6 over 2**10, 2**14, 2**20 slots: 660, 983, 1587 (a tree with the
        same delta: 1160, 1993, 3998), and with ``one_step_ticks`` 521, 815, 1377. Without a horizon it is up to half as
        large again.

    Args:
        delta: Probability that the loss exceeds ``epsilon``, above 0.
        one_step_ticks: Every slot is filled and closed in one step by ``tick_many``; ``update`` and
            ``tick`` are refused.

    Examples:
        >>> monitor = GaussMarkovCount(epsilon=1.0, delta=1e-6, horizon=8760).start()
        >>> monitor.update(1000)          # a number of events
        >>> monitor.update([1, 1, -1])    # or rows: arrivals and departures
        >>> abs(monitor.tick().value - 1001) < 250
        True

    Reference: Gauss-Markov processes as noise between two Markov boundaries; compare the factorisations of Henzinger,
    Kalinin, Upadhyay 2026 for a state that nobody copies.
    """

    state_type: ClassVar[type[Any]] = GaussMarkovState
    proof: ClassVar[str] = "gauss-markov.md"
    theorem: ClassVar[str] = "Theorem 1"
    max_slots: ClassVar[int] = sum(1 << order for order in _EPOCHS)
    label: ClassVar[str] = "count"
    width: ClassVar[int] = 1  # numbers that a batch adds up

    delta: float
    one_step_ticks: bool = False
    contributions: int | None = None

    def check(self) -> None:
        """Raise InvalidParameter without a delta, beyond the longest horizon, or where noise cannot be drawn."""
        if not self.delta:
            raise InvalidParameter("delta must be above 0; ContinualCount needs none")
        if self.horizon is not None and self.horizon > 1 << MOST_ORDER:
            raise InvalidParameter(f"horizon must be at most 2**{MOST_ORDER}, got horizon={self.horizon}")
        for epoch in (0, len(_EPOCHS) - 1):
            variances = gauss_markov_variances(
                self.epsilon,
                self.delta,
                self.order(epoch),
                self.contributions or 1,
                one_step_ticks=self.one_step_ticks,
            )
            sigma = math.sqrt(variances.count) * 2.0**COUNT_BITS
            self.require_drawable(sigma / 256.0, sigma, 1)  # the theorem needs a sigma of 8 units

    def order(self, epoch: int) -> int:
        """Return the order of ``epoch``; with a horizon there is only one."""
        return order_of(self.horizon) if self.horizon is not None else _EPOCHS[epoch]

    def noise(self, epoch: int = 0) -> GaussMarkovNoise:
        """Return the draws of ``epoch``."""
        return gauss_markov_noise(
            self.epsilon, self.delta, self.order(epoch), self.contributions or 1, self.one_step_ticks
        )

    @property
    def scale(self) -> float:
        """Return the unit of the count's noise."""
        return 2.0**-COUNT_BITS

    def claim(self) -> Claim:
        """Return the joint loss of one copy at any time and all outputs."""
        claim = Ticker.claim(self)
        if claim.event_epsilon is None or not claim.is_private:
            return claim
        rows = self.contributions or 1
        rho = max(
            event_loss(self.epsilon, self.delta, order, rows, one_step_ticks=self.one_step_ticks)
            for order in self._orders
        )
        return replace(claim, event_epsilon=min(zcdp_epsilon(rho, self.delta), self.epsilon))

    @property
    def _orders(self) -> set[int]:
        return {*_EPOCHS} if self.horizon is None else {self.order(0)}

    def gaussian_losses(self) -> tuple[float, float]:
        """Return what a copy with all outputs loses, as zCDP, and what the outputs alone lose."""
        losses = [
            gauss_markov_losses(self.epsilon, self.delta, order, one_step_ticks=self.one_step_ticks)
            for order in self._orders
        ]
        return losses[0][0], max(answers for _, answers in losses)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the count, the levels, what was published, and the public clock."""
        return {
            "count": FieldLayout("i8", (1,)),
            "levels": FieldLayout("i8", (_ROWS,)),
            "past": FieldLayout("i8", (1,)),
            "last": FieldLayout("i8", (1,)),
            "spread": FieldLayout("i8", (2,)),
            "draws": FieldLayout("int", at_least=0),
            "ticks": FieldLayout("int", at_least=0, below=self.last_slot + 1),
            "epoch": FieldLayout("int", at_least=0, below=len(_EPOCHS) if self.horizon is None else 1),
        }

    def initial_state(self, rng: NoiseSource) -> GaussMarkovState:
        """Return a state whose count and levels start as noise."""
        state = self.empty_state()
        self._open(state, rng)
        return state

    def batch(self, values: Any, *, users: Any = None) -> TreeBatch:
        """Check events of the open slot: their number, or one row each.

        Args:
            values: How many events there were, or one row each.
            users: The users of the events, if their number is bounded.
        """
        return _reader(self.contributions, self.one_step_ticks).batch(values, users=users)

    def update(self, state: GaussMarkovState, batch: TreeBatch, rng: NoiseSource) -> None:
        """Add the events to the count."""
        self.require_slots(state.ticks, 1)
        total: NDArray[np.int64] = rng.scratch.array(1, np.int64)
        np.left_shift(batch.total, COUNT_BITS, out=total)
        state.count += total

    def tick(self, state: GaussMarkovState, rng: NoiseSource) -> Estimate:
        """Close the slot and return the estimate so far."""
        self.require_multi_step()
        _, _, released = self._close(state, np.zeros(1, np.int64), rng)
        return self._answer(state, released)

    def tick_many(self, state: GaussMarkovState, values: Any, rng: NoiseSource) -> Estimates:
        """Take the number of events of every slot, close each, and return all estimates.

        Args:
            state: The state, which is changed.
            values: The number of events of every slot.
            rng: Source of the noise.
        """
        slots = _reader(self.contributions, self.one_step_ticks).read_slots(values)
        try:
            answers, variances, _ = self._close(state, slots.rows, rng)
        finally:
            slots.wipe()
        return Estimates(unclipped=answers, standard_error=np.sqrt(variances), claim=self.claim(), name=self.slot_label)

    def release(self, state: GaussMarkovState, rng: NoiseSource) -> Estimate:
        """Return the estimate of the last tick again."""
        self.require_tick(state.ticks)
        return self._answer(state, ())

    def refresh(self, state: GaussMarkovState, rng: NoiseSource) -> None:
        """Add fresh noise to the count and start the levels again, after an announced intrusion."""
        law = self.noise(state.epoch)
        law.add_to_count(state.count, rng)
        law.start(state.levels, rng)
        state.draws += 1

    def expected_estimate(self, ticks: int, rows: float = 0.0) -> Estimate:
        """Return the answer after ``ticks`` slots and ``rows`` events if all draws were 0."""
        return self._describe(rows, self.variance_at(ticks), (), ticks)

    def variance_at(self, ticks: int) -> float:
        """Return the variance of the answer after ``ticks`` slots, without refreshes."""
        epoch = 0
        variance = 0.0
        while self.horizon is None and ticks > 1 << self.order(epoch):
            ticks -= 1 << self.order(epoch)
            variance += 2.0 * self.noise(epoch).count_variance
            epoch += 1
        return variance + self.noise(epoch).count_variance + self.noise(epoch).sum_variance

    def error_bound(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the error that any single answer up to ``ticks`` exceeds with probability at most ``beta``."""
        noiseless_error = self.error_without_noise(ticks)
        if noiseless_error is not None:
            return noiseless_error
        return self.scale * error_bound(beta, self._parts(self.variance_at(ticks or self.last_slot)))

    def _parts(self, variance: float) -> NoiseParts:
        law = self.noise().count
        return ((variance / self.noise().count_variance, law),) if law.variance else ()

    def _describe(self, value: float, variance: float, released: tuple[int, ...], ticks: int) -> Estimate:
        return self.make_estimate(value, math.sqrt(variance), self._parts(variance), released, ticks)

    def _answer(self, state: GaussMarkovState, released: tuple[int, ...]) -> Estimate:
        value, variance = (float(field.view(np.float64)[-1]) for field in (state.last, state.spread))
        return self._describe(value, variance, released, state.ticks)

    def _open(self, state: GaussMarkovState, rng: NoiseSource) -> None:
        law = self.noise(state.epoch)
        state.count[:] = 0
        law.add_to_count(state.count, rng)
        law.start(state.levels, rng)
        state.draws = 1

    def _close(
        self, state: GaussMarkovState, totals: NDArray[np.int64], rng: NoiseSource
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[int, ...]]:
        """Fill and close a slot per total, all or none; return answers, variances and what the last slot released."""
        self.require_slots(state.ticks, totals.size)
        answers = np.empty(totals.size)
        variances = np.empty(totals.size)
        released: tuple[int, ...] = ()
        work = GaussMarkovState(*(_copied(getattr(state, declared.name)) for declared in fields(state)))
        try:
            start = 0
            while start < totals.size:
                stop = min(totals.size, start + _CHUNK, start + self._remaining(work))
                piece = slice(start, stop)
                taken = rng.scratch.mark
                answers[piece], variances[piece], released = self._piece(work, totals[piece], rng)
                rng.scratch.rewind(taken)
                start = stop
            for declared in fields(state):
                value = getattr(work, declared.name)
                if isinstance(value, np.ndarray):
                    getattr(state, declared.name)[:] = value
                else:
                    setattr(state, declared.name, value)
        finally:
            wipe(work.count)
            wipe(work.levels)
        return answers, variances, released

    def _remaining(self, state: GaussMarkovState) -> int:
        """Return how many slots the epoch has left."""
        return sum(1 << self.order(epoch) for epoch in range(state.epoch + 1)) - state.ticks

    def _piece(
        self, work: GaussMarkovState, totals: NDArray[np.int64], rng: NoiseSource
    ) -> tuple[NDArray[np.float64], float, tuple[int, ...]]:
        law = self.noise(work.epoch)
        sums: NDArray[np.int64] = rng.scratch.array(totals.size, np.int64)
        next_levels(work.levels, law.exponents, law.finer, law.draw(totals.size, rng), sums)
        counts: NDArray[np.int64] = rng.scratch.array(totals.size, np.int64)
        np.cumsum(totals, out=counts)
        counts <<= COUNT_BITS
        counts += work.count
        work.count[:] = counts[-1]
        # All that shows noise without the count, or the count without noise, is in memory that is wiped.
        rest: NDArray[np.int64] = rng.scratch.array(totals.size, np.int64)
        np.bitwise_and(sums, (1 << law.rest_bits) - 1, out=rest)
        sums >>= law.rest_bits
        counts += sums
        counts += work.past
        spread = work.spread.view(np.float64)
        spread[1] = spread[0] + work.draws * law.count_variance + law.sum_variance
        work.ticks += totals.size
        variance = float(spread[1])
        answers: NDArray[np.float64] = (counts + rest * 2.0**-law.rest_bits) * self.scale
        work.last.view(np.float64)[:] = answers[-1]
        released: tuple[int, ...] = ((int(counts[-1]) << law.rest_bits) + int(rest[-1]),)
        if self.horizon is None and not self._remaining(work):
            frozen: NDArray[np.int64] = rng.scratch.array(1, np.int64)
            frozen[:] = work.count
            law.add_to_count(frozen, rng)
            released = (*released, int(frozen[0]))
            work.past += frozen
            spread[0] += (work.draws + 1) * law.count_variance
            if work.epoch + 1 < len(_EPOCHS):
                work.epoch += 1
                self._open(work, rng)
        return answers, variance, released


@lru_cache(maxsize=16)
def _reader(contributions: int | None, one_step_ticks: bool) -> ContinualCount:
    """Return what reads the rows of a batch: those of a count without noise."""
    return ContinualCount(epsilon=math.inf, horizon=1, contributions=contributions, one_step_ticks=one_step_ticks)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
