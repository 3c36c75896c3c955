"""Attacks on a copied file or on the process's memory: guesses, as trials whose advantage is reported.

Against sound code they succeed no more often than the claim allows. The controls are ids in freed memory that was not
overwritten, and generators that outlive a step: an attacker rewinds them to past coins, or runs them forward to future
noise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.presence import PresenceBatch
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.randomized_bits import BitState
from panstream.audit.claims.case import Case, Kind, Trial
from panstream.audit.claims.exact import restore_snapshot
from panstream.audit.claims.membership_odds import member_odds
from panstream.core.monitor import Monitor
from panstream.primitives.codec import FieldLayout, public
from panstream.primitives.inputs import ItemBatch
from panstream.primitives.noise import NoiseSource, SeededSource
from panstream.primitives.packed_bits import draw_packed_bits

_NEEDLE = 0x51A7C0FFEE5EED17
_OTHER = 0x2B0B5EEDCAFED00D
_LARGEST = 32  # words; numpy reuses freed small blocks without clearing them
_CACHED_BLOCKS = 8  # of one size, in numpy's cache of freed blocks


class _LeavesIdsBehind(Bitmap):
    """Frees its copy of the ids without overwriting it. Never use it."""

    def batch(self, ids: Any) -> ItemBatch:
        """Return a batch whose ids are not marked for wiping."""
        return replace(Bitmap.batch(self, ids), owned=())


def _in_freed_memory(number: int) -> bool:
    """Return whether a newly allocated block contains the number."""
    for words in range(1, _LARGEST + 1):
        blocks = [np.empty(words, np.uint64) for _ in range(_CACHED_BLOCKS)]
        if any((block == np.uint64(number)).any() for block in blocks):
            return True
    return False


def _left_behind(algorithm: Bitmap, first: bool) -> bool:
    for words in range(1, _LARGEST + 1):  # clear what earlier runs left
        for block in [np.empty(words, np.uint64) for _ in range(_CACHED_BLOCKS)]:
            block.fill(0)
    Monitor(algorithm).update([_NEEDLE if first else _OTHER, 5, 7])
    return _in_freed_memory(_NEEDLE)


def _odds_favour_member(algorithm: OptBern, first: bool) -> bool:
    monitor = Monitor(algorithm)
    monitor.update([0, 1] if first else [1])
    return member_odds(monitor.to_bytes(), 0).factor > 1


_WORD = (1 << 64) - 1
_STEP = 6364136223846793005
_SHIFT = 1442695040888963407
_BACK = pow(_STEP, -1, 1 << 64)
_MAX_WORDS = 16
_USERS = 24


class _StoredGenerator(NoiseSource):
    """A congruential generator that stays in memory between steps, as most generators do; ``word`` is its state."""

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
    def rewind(word: int, steps: int) -> int:
        """Return the generator's state ``steps`` words earlier."""
        for _ in range(steps):
            word = ((word - _SHIFT) * _BACK) & _WORD
        return word


def _fresh_word() -> int:
    with NoiseSource() as rng:
        return int(rng.uniform_below(1 << 62, 1)[0])


def _rewound(algorithm: OptBern, first: bool) -> bool:
    """Guess whether user 0 was present, from the bits and the generator at the end."""
    generator = _StoredGenerator(_fresh_word())
    monitor = Monitor(algorithm, rng=generator)
    if first:
        monitor.update([0])
    seen = restore_snapshot(monitor).bits
    word = generator.word
    return _explains(algorithm, seen, word, [0]) and not _explains(algorithm, seen, word, [])


def _explains(algorithm: OptBern, seen: NDArray[np.uint8], word: int, ids: list[int]) -> bool:
    for steps in range(1, _MAX_WORDS):
        replayed = _StoredGenerator(_StoredGenerator.rewind(word, steps))
        monitor = Monitor(algorithm, rng=replayed)
        if ids:
            monitor.update(ids)
        if replayed.word == word and np.array_equal(monitor.state.bits, seen):
            return True
    return False


def _predicted(algorithm: OptBern, first: bool) -> bool:
    """Guess whether user 0 arrived after the intrusion, from the draws that the copied generator predicts."""
    generator = _StoredGenerator(_fresh_word())
    monitor = Monitor(algorithm, rng=generator)
    seen = restore_snapshot(monitor)
    word = generator.word
    if first:
        monitor.update([0])
    published = monitor.release().released
    outputs = []
    for ids in ([0], []):
        ahead = Monitor(algorithm, state=copy.deepcopy(seen), rng=_StoredGenerator(word))
        if ids:
            ahead.update(ids)
        outputs.append(ahead.release().released)
    return published == outputs[0] and published != outputs[1]


@dataclass(slots=True)
class _SeedState(BitState):
    """The bits, and the seed from which every step draws."""

    seed: int = public()
    steps: int = public()


class _StoredSeed(OptBern):
    """Draws a seed once, stores it in the state and seeds every step from it."""

    state_type: ClassVar[type[Any]] = _SeedState

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the bits and the seed."""
        return {**OptBern.layout(self), "seed": FieldLayout("int"), "steps": FieldLayout("int")}

    def initial_state(self, rng: NoiseSource) -> _SeedState:
        """Draw the seed, and from it the bits."""
        return self.replayed(int(rng.uniform_below(1 << 62, 1)[0]))

    def replayed(self, seed: int) -> _SeedState:
        """Return the initial state of a seed."""
        with SeededSource(seed) as seeded_rng:
            bits = draw_packed_bits(self.law.absent, self.cells, seeded_rng)
        return _SeedState(bits=bits, frozen=np.empty((0, bits.size), np.uint8), released=0, seed=seed, steps=1)

    def update(self, state: Any, batch: PresenceBatch, rng: NoiseSource) -> None:
        """Update with coins from the stored seed."""
        with SeededSource(state.seed + state.steps) as seeded_rng:
            OptBern.update(self, state, batch, seeded_rng)
        state.steps += 1


def _replayed(algorithm: _StoredSeed, first: bool) -> bool:
    """Guess whether user 0 was present, by replaying the seed in the copied bytes. Both streams have one update."""
    monitor = Monitor(algorithm)
    monitor.update([0] if first else [])
    seen = restore_snapshot(monitor)
    bits = []
    for ids in ([0], []):
        state = algorithm.replayed(seen.seed)
        algorithm.update(state, algorithm.batch(ids), NoiseSource())
        bits.append(state.bits)
    return np.array_equal(seen.bits, bits[0]) and not np.array_equal(seen.bits, bits[1])


def _attack(
    name: str,
    algorithm: Any,
    event: str,
    happens: Callable[[Any, bool], bool],
    represents: str = "",
    *,
    quick_runs: int = 500,
    runs: int = 2_000,
) -> Case:
    kind: Kind = "control" if represents else "production"
    return Case(
        name=name,
        kind=kind,
        claimed=algorithm.claim().epsilon,
        trial=Trial(event, partial(happens, algorithm), attack=True),
        algorithm=algorithm,
        represents=represents,
        sampled=True,
        quick_runs=quick_runs,
        runs=runs,
    )


def _attack_cases() -> Iterator[Case]:
    """Yield attacks on sound code, and on code that stores ids, generators or seeds."""
    bits = OptBern(universe=2, epsilon=1.0)
    coins = OptBern(universe=_USERS, epsilon=0.1)
    cells = Bitmap(epsilon=1.0, buckets=64, levels=2)
    freed = "the member's id is in freed memory after the step"
    yield _attack(
        "OptBern, membership attack on a stolen file",
        bits,
        "the likelihood ratio of the stolen bytes speaks for the member",
        _odds_favour_member,
        runs=4_000,
    )
    yield _attack("Bitmap, allocator residue", cells, freed, _left_behind, runs=4_000)
    yield _attack(
        "Generator rewound",
        coins,
        "the intruder rewinds the generator and finds user 0's coin",
        _rewound,
        "a generator's state in memory leads back to past coins "
        "(PCG64: accuracy .757 to 1.000 where ε = .1 allows .525)",
        quick_runs=300,
    )
    yield _attack(
        "Generator reused between steps",
        coins,
        "the output is the one predicted for user 0",
        _predicted,
        "a generator's state in memory leads forward to future noise, even if it cannot be rewound",
    )
    yield _attack(
        "Seed stored in the state",
        _StoredSeed(universe=_USERS, epsilon=0.1),
        "replaying the stolen seed with user 0 gives the stolen bits",
        _replayed,
        "a reproducible run on real data: the seed is in the file that is stolen",
    )
    yield _attack(
        "Ids left in freed memory",
        _LeavesIdsBehind(epsilon=1.0, buckets=64, levels=2),
        freed,
        _left_behind,
        "memory that is freed and not overwritten: the allocator hands it to whoever asks next",
        quick_runs=300,
    )


CASES = (_attack_cases,)
