"""The hybrid mechanism: extends a counter with a horizon to streams without end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.noise_sum_tails import NoiseParts
from panstream.algorithms.continual.partial_sum_counter import IDLE, CounterAnswer, PartialSumCounter, Shape, TickState
from panstream.core.registry import find_algorithm
from panstream.errors import InvalidBytes, InvalidParameter
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.logarithmic import LogarithmicMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI
from panstream.primitives.noise import NoiseSource

_LAST_EPOCH = 61  # epochs double, so this covers 2^62 slots
_OUTER = (1, 1, 0)  # shape of the logarithmic mechanism's part of the state
_BOUNDED: dict[str, type[PartialSumCounter]] = {
    kind.__name__: kind for kind in (BinaryMechanism, EventCounter, SimpleCounterI)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridMechanism(PartialSumCounter):
    """A running sum over a stream of any length: a logarithmic mechanism, and a bounded one between powers of two.

    The slots 2**k + 1 .. 2**(k+1) - 1 form an epoch with a bounded counter of horizon 2**k - 1 of its own. An answer
    adds the logarithmic mechanism's sum up to 2**k to the bounded counter's sum since then.

    Privacy:
        Unit: one event added or removed, or with ``unit="slot"`` a slot's content replaced. An event enters the
        logarithmic mechanism (epsilon/2) and one bounded counter (epsilon/2), both with noise at the start and at the
        release of every sum: one copy at any time and all outputs lose exactly ``epsilon``; any number of announced
        copies with a refresh too.
        Proof: docs/proofs/continual-papers.md, Theorem 5.

    Error:
        With the binary mechanism, after slot t with k = floor(log2 t): 8(k+1)s² + 16·k²·s²·popcount(t - 2**k) at most,
        s = sensitivity/epsilon.

    Args:
        horizon: Maximum number of ticks; None for a stream without end.
        bounded: Class name of the counter between powers of two: "BinaryMechanism", "EventCounter",
            "SimpleCounterI", or one that was registered by ``panstream.register``.

    Examples:
        >>> monitor = HybridMechanism(epsilon=1.0).start()
        >>> answers = monitor.tick_many([1, 0, 1] * 100)
        >>> len(answers), monitor.claim().epsilon
        (300, 1.0)

    Reference: Budaeva et al. 2013, §4.1, Theorem 4 (Chan, Shi, Song 2011, Theorem 4.7), with noise at the start
    and at the release of every sum.
    """

    theorem: ClassVar[str] = "Theorem 5"

    memberships: ClassVar[int] = 2  # an event enters both mechanisms

    bounded: str = "BinaryMechanism"

    def check(self) -> None:
        """Raise InvalidParameter unless ``bounded`` names a counter with a horizon."""
        try:
            fits = issubclass(_kind(self.bounded), PartialSumCounter) and _kind(self.bounded).needs_horizon
        except InvalidBytes:
            fits = False
        if not fits:
            raise InvalidParameter("bounded must be the class name of a counter that needs a horizon")

    @property
    def shape(self) -> Shape:
        """Return the state's size: that of the logarithmic mechanism and of the largest bounded counter."""
        accumulators, closed, retained = self.epoch(_LAST_EPOCH).shape
        return 1 + accumulators, 1 + closed, retained

    @property
    def logarithmic(self) -> LogarithmicMechanism:
        """Return the mechanism that answers at powers of two, with half of epsilon."""
        return _logarithmic(self)

    def epoch(self, number: int) -> PartialSumCounter:
        """Return the bounded counter of epoch ``number``, which has 2**number - 1 slots."""
        return _epoch(self, number)

    def loss_parts(self) -> dict[str, float]:
        """Return the losses of both mechanisms, half of epsilon each."""
        return {"logarithmic": self.epsilon / 2, "bounded": self.epsilon / 2}

    def answer_parts(self, time: int) -> NoiseParts:
        """Return the draws of both mechanisms in the answer after slot ``time``."""
        number, since = _epoch_of(time)
        inner = self.epoch(number).answer_parts(since) if since else ()
        return (*self.logarithmic.answer_parts(time), *inner)

    def worst_times(self) -> list[int]:
        """Return the horizon, and in every epoch before it the worst slot of the bounded counter."""
        last = self.horizon or 1
        inner = [(1 << n) + slot for n in range(1, last.bit_length()) for slot in self.epoch(n).worst_times()]
        return [time for time in (last, *inner) if time <= last]

    def initialize(self, state: TickState, rng: NoiseSource) -> None:
        """Start the logarithmic mechanism; the first two slots need no bounded counter."""
        self.logarithmic.initialize(state.part(0, _OUTER, state.time), rng)

    def advance(
        self, state: TickState, totals: NDArray[np.int64], rng: NoiseSource
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Feed all slots to the logarithmic mechanism, and those within an epoch to its bounded counter too."""
        answers, variances = self.logarithmic.advance(state.part(0, _OUTER, state.time), totals, rng)
        done = 0
        while done < totals.size:
            number, since = _epoch_of(state.time + 1)
            if since == 0:  # a power of two: the logarithmic mechanism answers, a new epoch begins
                done = done + 1
                state.time = state.time + 1
                if number > 0:
                    _clear_epoch(state, released=True)
                    self.epoch(number).initialize(self._inner(state, number), rng)
                continue
            remaining = (2 << number) - 1 - state.time
            piece = slice(done, done + min(remaining, totals.size - done))
            more, noise = self.epoch(number).advance(self._inner(state, number), totals[piece], rng)
            answers[piece] += more
            variances[piece] += noise
            done = piece.stop
            state.time = state.time + more.size
            if more.size == remaining:  # the next slot, a power of two, is the logarithmic mechanism's
                _clear_epoch(state, released=False)
        return answers, variances

    def answer(self, state: TickState) -> CounterAnswer:
        """Return the sum up to the last power of two plus the sum since."""
        outer = self.logarithmic.answer(state.part(0, _OUTER, state.time))
        number, since = _epoch_of(state.time)
        if since == 0:
            return outer
        inner = self.epoch(number).answer(self._inner(state, number))
        return CounterAnswer(outer.value + inner.value, outer.released + inner.released, (*outer.parts, *inner.parts))

    def refresh(self, state: TickState, rng: NoiseSource) -> None:
        """Add fresh noise to every open accumulator of both mechanisms."""
        state.part(0, _OUTER, state.time).refresh(self.logarithmic.law, rng)
        number = _epoch_of(state.time)[0]
        if number > 0:
            self._inner(state, number).refresh(self.epoch(number).law, rng)

    def _inner(self, state: TickState, number: int) -> TickState:
        """Return the part of the state that belongs to the bounded counter of epoch ``number``."""
        return state.part(1, self.epoch(number).shape, state.time - (1 << number))


def _kind(name: str) -> type[PartialSumCounter]:
    return _BOUNDED[name] if name in _BOUNDED else find_algorithm(name)


@lru_cache(maxsize=256)
def _logarithmic(hybrid: HybridMechanism) -> LogarithmicMechanism:
    return LogarithmicMechanism(**_halved(hybrid))


@lru_cache(maxsize=1024)
def _epoch(hybrid: HybridMechanism, number: int) -> PartialSumCounter:
    return _kind(hybrid.bounded)(horizon=max(1, (1 << number) - 1), **_halved(hybrid))


def _halved(hybrid: HybridMechanism) -> dict[str, Any]:
    names = ("lower", "upper", "unit", "resolution", "outside", "one_step_ticks", "max_events")
    return {"epsilon": hybrid.epsilon / 2, **{name: getattr(hybrid, name) for name in names}}


def _epoch_of(time: int) -> tuple[int, int]:
    """Return (k, time - 2**k) with 2**k the last power of two, and (0, 0) before the first slot."""
    number = max(time.bit_length() - 1, 0)
    return number, time - (1 << number) if time else 0


def _clear_epoch(state: TickState, *, released: bool) -> None:
    """Zero every accumulator of the finished epoch, and with ``released`` its published sums too.

    Its data must not remain in the state: the noise of a finished epoch is not refreshed.
    """
    state.open[1:] = 0
    state.open_draws[1:] = IDLE
    state.kept[:] = 0
    state.kept_draws[:] = IDLE
    if released:
        state.closed[1:] = 0
        state.closed_draws[1:] = 0
