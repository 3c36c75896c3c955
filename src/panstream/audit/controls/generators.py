"""Generators that outlive a step: an intruder rewinds them to past coins, or runs them forward to future noise."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithm import Monitor
from panstream.audit.case import Case, Trial
from panstream.audit.views import stolen
from panstream.codec import FieldLayout, public
from panstream.density.optbern import OptBern
from panstream.density.presence import PresenceBatch, PresenceState
from panstream.randomness import SeededSource, Source

__all__ = ["KeptGenerator", "SeedKept", "generator_controls"]

_WORD = (1 << 64) - 1
_STEP, _SHIFT = 6364136223846793005, 1442695040888963407
_BACK = pow(_STEP, -1, 1 << 64)
_MOST_WORDS = 16
_USERS = 24


class KeptGenerator(Source):
    """A congruential generator that lives on between steps, as most generators do: whoever reads ``word`` has all of it."""

    __slots__ = ("word",)

    def __init__(self, word: int) -> None:
        super().__init__()
        self.word = word & _WORD

    def _fill(self, buffer: NDArray[np.uint8]) -> None:
        raw = bytearray()
        while len(raw) < buffer.nbytes:
            self.word = (self.word * _STEP + _SHIFT) & _WORD
            mixed = ((self.word ^ (self.word >> 29)) * 0x9E3779B97F4A7C15) & _WORD
            raw += (mixed ^ (mixed >> 32)).to_bytes(8, "little")
        buffer[:] = np.frombuffer(raw[: buffer.nbytes], np.uint8)

    @staticmethod
    def before(word: int, steps: int) -> int:
        """Return what the generator held so many words earlier."""
        for _ in range(steps):
            word = ((word - _SHIFT) * _BACK) & _WORD
        return word


def _fresh_word() -> int:
    with Source() as source:
        return int(source.uniform_below(1 << 62, 1)[0])


def _rewound(algorithm: OptBern, first: bool) -> bool:
    """Guess whether user 0 came, from the bits and the generator as they are at the end."""
    generator = KeptGenerator(_fresh_word())
    monitor = Monitor(algorithm, source=generator)
    if first:
        monitor.update([0])
    seen, word = stolen(monitor).bits, generator.word
    return _explains(algorithm, seen, word, [0]) and not _explains(algorithm, seen, word, [])


def _explains(algorithm: OptBern, seen: NDArray[np.uint8], word: int, ids: list[int]) -> bool:
    for steps in range(1, _MOST_WORDS):
        again = KeptGenerator(KeptGenerator.before(word, steps))
        monitor = Monitor(algorithm, source=again)
        if ids:
            monitor.update(ids)
        if again.word == word and np.array_equal(monitor.state.bits, seen):
            return True
    return False


def _predicted(algorithm: OptBern, first: bool) -> bool:
    """Guess whether user 0 came after the look, from what the generator was going to draw."""
    generator = KeptGenerator(_fresh_word())
    monitor = Monitor(algorithm, source=generator)
    seen, word = stolen(monitor), generator.word
    if first:
        monitor.update([0])
    published = monitor.release().released
    outputs = []
    for ids in ([0], []):
        ahead = Monitor(algorithm, state=copy.deepcopy(seen), source=KeptGenerator(word))
        if ids:
            ahead.update(ids)
        outputs.append(ahead.release().released)
    return published == outputs[0] and published != outputs[1]


@dataclass(slots=True)
class SeedState(PresenceState):
    """The bits, and the seed from which every step draws."""

    seed: int = public()
    steps: int = public()


class SeedKept(OptBern):
    """Draws a seed once, keeps it in the state and seeds every step from it."""

    state_type: ClassVar[type[Any]] = SeedState

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the bits and the seed."""
        return {**OptBern.layout(self), "seed": FieldLayout("int"), "steps": FieldLayout("int")}

    def begin(self, source: Source) -> SeedState:
        """Draw the seed, and from it the bits."""
        return self.replayed(int(source.uniform_below(1 << 62, 1)[0]))

    def replayed(self, seed: int) -> SeedState:
        """Return the start that a seed leads to."""
        with SeededSource(seed) as own:
            plain = OptBern.begin(self, own)
        return SeedState(bits=plain.bits, frozen=plain.frozen, released=0, seed=seed, steps=1)

    def update(self, state: Any, batch: PresenceBatch, source: Source) -> None:
        """Draw from the seed again."""
        with SeededSource(state.seed + state.steps) as own:
            OptBern.update(self, state, batch, own)
        state.steps += 1


def _replayed(algorithm: SeedKept, first: bool) -> bool:
    """Guess whether user 0 came, by replaying the seed found in the stolen bytes. Both streams have one update."""
    monitor = Monitor(algorithm)
    monitor.update([0] if first else [])
    seen = stolen(monitor)
    bits = []
    for ids in ([0], []):
        state = algorithm.replayed(seen.seed)
        algorithm.update(state, algorithm.batch(ids), Source())
        bits.append(state.bits)
    return np.array_equal(seen.bits, bits[0]) and not np.array_equal(seen.bits, bits[1])


def generator_controls() -> list[Case]:
    """Return three ways to keep randomness that must not be kept."""
    algorithm = OptBern(universe=_USERS, epsilon=0.1)
    shared: dict[str, Any] = {"kind": "control", "claimed": algorithm.claim().epsilon, "sampled": True}
    seeded = SeedKept(universe=_USERS, epsilon=0.1)
    return [
        Case(
            name="Generator rewound",
            trial=Trial(
                "the intruder rewinds the generator and finds user 0's coin",
                lambda side: _rewound(algorithm, side),
                True,
            ),
            stands_for="a generator's state in memory leads back to past coins (PCG64: accuracy .757 to 1.000 where ε = .1 allows .525)",
            quick_runs=300,
            runs=2_000,
            **shared,
        ),
        Case(
            name="Generator kept between steps",
            trial=Trial("the output is the one predicted for user 0", lambda side: _predicted(algorithm, side), True),
            stands_for="a generator's state in memory leads forward to future noise, even if it cannot be rewound",
            quick_runs=500,
            runs=2_000,
            **shared,
        ),
        Case(
            name="Seed kept in the state",
            trial=Trial(
                "replaying the stolen seed with user 0 gives the stolen bits",
                lambda side: _replayed(seeded, side),
                True,
            ),
            stands_for="a reproducible run on real data: the seed is in the file that is stolen",
            quick_runs=500,
            runs=2_000,
            **shared,
        ),
    ]
