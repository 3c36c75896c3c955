"""Variants of the two-party steps: with noised cells, with a retry, and with one mistake each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.randomized_bits import CoinPair
from panstream.algorithms.secret_shared.party import Kind
from panstream.algorithms.secret_shared.presence import draw_cells
from panstream.algorithms.secret_shared.ring import Ring
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.testing.secret_shared_views import Key, RecordedKeystream, RecordingNoise, SharedViews

COINS = CoinPair.symmetric(math.log(3), math.log(2))


class Unblinded(SharedViews):
    """Shares are not re-randomised."""

    def common(self, rng: NoiseSource, kind: Kind, memory: Any) -> tuple[RecordedKeystream, Any]:
        """Re-randomise with zeros."""
        return _Zeros(rng, self.width), memory


class _Zeros(RecordedKeystream):
    def bits(self, size: int) -> NDArray[np.uint8]:
        return np.zeros(size, np.uint8)

    def words(self, size: int, ring: Ring) -> NDArray[np.uint64]:
        return ring.zeros(size)


class BlindedAlike(SharedViews):
    """Every idle step re-randomises with the same numbers."""

    def common(self, rng: NoiseSource, kind: Kind, memory: Any) -> tuple[RecordedKeystream, Any]:
        """Store the numbers of the first idle step after the start."""
        keystream = RecordedKeystream(rng, self.width)
        if kind == "idle":
            drawn = keystream.bits(self.rule.size) if memory in (None, "started") else np.frombuffer(memory, np.uint8)
            keystream.read.append(drawn)
            return keystream, "started" if memory is None else drawn.tobytes()
        return keystream, memory


class Named(SharedViews):
    """Updated cells are named, and only they get fresh shares."""

    def step(
        self, state: Key, kind: Kind, change: Dealt | None, rng: NoiseSource, *, start: bool
    ) -> tuple[Key, Key, dict[str, Key]]:
        """Share only the updated cells again."""
        if kind != "rows" or change is None:
            return SharedViews.step(self, state, kind, change, rng, start=start)
        a = state[0][0]
        b = state[1][0]
        touched = int(change[0][0])
        value = int(change[1][0])
        fresh = int(rng.uniform_below(2, 1)[0])
        next_shares = (bytes([fresh]), bytes([fresh ^ value])) if touched else (bytes([a]), bytes([b]))
        handled: dict[str, Key] = {
            "A": (touched, next_shares[0]),
            "B": (touched, next_shares[1]),
            "F": (touched, fresh),
        }
        return (*next_shares, state[2], state[3]), (), handled


class MaskedAlike(SharedViews):
    """The dealer masks every step's shares with the same bits."""

    def seed(self, rng: NoiseSource, *, first: bool) -> RecordedKeystream:
        """Return a keystream of 0 for the first participant and of 1 for the second."""
        keystream = RecordedKeystream(rng, self.width)
        keystream.read.append(np.full(self.rule.size, 0 if first else 1, np.uint8))
        return keystream


class MaskedWindowsAlike(SharedViews):
    """The dealer masks all vectors of an answer with the same bits; rows are in the window that is over."""

    def step(
        self, state: Key, kind: Kind, change: Dealt | None, rng: NoiseSource, *, start: bool
    ) -> tuple[Key, Key, dict[str, Key]]:
        """Exchange the open window and the other one after rows."""
        (first, second, *rest), opened, handled = SharedViews.step(self, state, kind, change, rng, start=start)
        if kind == "rows":
            return (first[::-1], second[::-1], *rest), opened, handled
        return (first, second, *rest), opened, handled

    def seed(self, rng: NoiseSource, *, first: bool) -> RecordedKeystream:
        """Return a keystream whose bytes of one read are all the same."""
        return _Repeated(rng, self.width)


class _Repeated(RecordedKeystream):
    def bits(self, size: int) -> NDArray[np.uint8]:
        return np.repeat(RecordedKeystream.bits(self, 1), size)


class OneNoise(SharedViews):
    """Only the first participant draws noise."""

    def drawing(self, rng: NoiseSource, *, first: bool) -> Any:
        """Return a source without noise for the second participant."""
        return RecordingNoise(rng) if first else _Silent(rng)


class _Silent(RecordingNoise):
    def add_discrete_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        """Leave the values unchanged."""


class Unmasked(SharedViews):
    """The participants send their shares of an answer to the dealer without a common mask."""

    def common(self, rng: NoiseSource, kind: Kind, memory: Any) -> tuple[RecordedKeystream, Any]:
        """Re-randomise the shares, but not the answers."""
        return _OnlyBits(rng, self.width), memory


class _OnlyBits(RecordedKeystream):
    def words(self, size: int, ring: Ring) -> NDArray[np.uint64]:
        return ring.zeros(size)


class Noisy(SharedViews):
    """The dealer draws noised cells, as on one machine: 1 with probability 3/4 if a user came, else with 1/4."""

    def drawn(self, change: Dealt, rng: NoiseSource, released: int, memory: Any) -> Dealt:
        """Draw the updated cells, and in the first step all cells."""
        touched, present = (array.copy() for array in change)
        return draw_cells(touched, present, 1, COINS, rng, fresh=memory is None)

    def common(self, rng: NoiseSource, kind: Kind, memory: Any) -> tuple[RecordedKeystream, Any]:
        """Record that the first step is over."""
        return SharedViews.common(self, rng, kind, memory)[0], "begun" if kind == "rows" else memory


class DrawnInFirstStep(Noisy):
    """Cells are noisy at the start, and exact after an update."""

    def drawn(self, change: Dealt, rng: NoiseSource, released: int, memory: Any) -> Dealt:
        """Draw the first step's cells only."""
        return Noisy.drawn(self, change, rng, released, memory) if memory is None else change


class Retried(SharedViews):
    """The first step, rows and an answer, is aborted before its commit and retried, possibly with other rows.

    Both rounds count as steps of the program and leave the shares unchanged.
    """

    def step(
        self, state: Key, kind: Kind, change: Dealt | None, rng: NoiseSource, *, start: bool
    ) -> tuple[Key, Key, dict[str, Key]]:
        """Run one round; after the first answer restore the shares from before the first rows."""
        memory = state[3]
        next_state, opened, handled = SharedViews.step(self, state, kind, change, rng, start=start)
        if kind == "rows" and memory is None:
            return (*next_state[:3], state[:3]), opened, handled
        if kind == "answers" and not isinstance(memory, str):
            return self.aborted(memory, opened, handled)
        return next_state, opened, handled

    def aborted(self, previous_state: Key, opened: Key, handled: dict[str, Key]) -> tuple[Key, Key, dict[str, Key]]:
        """Return the previous shares; the dealer gets neither participant's share of the answer."""
        return (*previous_state, "retry"), (), {"A": handled["A"], "B": handled["B"], "F": handled["F"][:-1]}


class RedrawnOnRetry(Retried):
    """The first participant reconstructs an answer before the commit, and the retry draws it again."""

    def aborted(self, previous_state: Key, opened: Key, handled: dict[str, Key]) -> tuple[Key, Key, dict[str, Key]]:
        """Add the reconstructed answer to the view of the first participant."""
        next_state, _, seen = super().aborted(previous_state, opened, handled)
        return next_state, (), {**seen, "A": (*seen["A"], opened)}


class ReusedNoise(SharedViews):
    """Every answer has the noise of the first one, as if a retry reused it with other rows."""

    noise: tuple[Key, Key] | None = None

    def step(
        self, state: Key, kind: Kind, change: Dealt | None, rng: NoiseSource, *, start: bool
    ) -> tuple[Key, Key, dict[str, Key]]:
        """Run a step and store both participants' noise of an answer."""
        self.noise = state[3] if kind == "answers" else None
        next_state, opened, handled = SharedViews.step(self, state, kind, change, rng, start=start)
        noise = (handled["A"][3], handled["B"][4]) if kind == "answers" else state[3]
        return (*next_state[:3], noise), opened, handled

    def drawing(self, rng: NoiseSource, *, first: bool) -> Any:
        """Return a source that repeats the participant's first noise."""
        return RecordingNoise(rng) if self.noise is None else _Replayed(rng, self.noise[0 if first else 1])


class _Replayed(RecordingNoise):
    def __init__(self, rng: NoiseSource, noise: Key) -> None:
        super().__init__(rng)
        self._noise = noise

    def add_discrete_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        values += self._noise
        self.drawn += self._noise
