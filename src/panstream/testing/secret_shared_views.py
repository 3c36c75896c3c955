"""Exact losses of two participants and a dealer, copied at different times, over every outcome of the shipped steps.

A *look* is an intrusion (who, "epoch" or "step", number) for who in "A", "B" (participants) and "F" (dealer). A copy of
a participant in an epoch has its share, and after a step with an answer its share of the answer, which it stores until
the next step. A copy in a step has everything that is processed there, and a participant's shares before and after.
Answers are public. Views after which all streams and states have the same odds are merged, since no later view depends
on which of them occurred.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.secret_shared.party import Kind, Party, StateShare, StepTask, deal, open_answers
from panstream.algorithms.secret_shared.ring import Ring
from panstream.algorithms.secret_shared.rules import Rule
from panstream.algorithms.secret_shared.share_rules import Dealt
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.testing.sources import outcomes

__all__ = ["Key", "Look", "RecordedKeystream", "RecordingNoise", "Row", "SharedViews", "covered_looks"]

Look = tuple[str, str, int]
Key = tuple[Any, ...]
Row = tuple[Dealt | None, ...]  # the changes of every step in one stream

_NAME = "x"


class RecordedKeystream:
    """The expansion of one seed: drawn at the first read, the same for every reader."""

    def __init__(self, rng: NoiseSource, width: int) -> None:
        self._rng = rng
        self._width = width
        self.read: list[NDArray[Any]] = []

    def reader(self) -> _KeystreamReader:
        """Return an expander of this seed that starts at its beginning."""
        return _KeystreamReader(self)

    def bits(self, size: int) -> NDArray[np.uint8]:
        """Draw bytes that use ``width`` bits."""
        return self._rng.uniform_below(1 << self._width, size).astype(np.uint8)

    def words(self, size: int, ring: Ring) -> NDArray[np.uint64]:
        """Draw numbers of a ring."""
        drawn = ring.zeros(size)
        (drawn[:, 0] if ring.wide else drawn)[:] = self._rng.uniform_below(ring.modulus, size)
        return drawn


class _KeystreamReader:
    def __init__(self, keystream: RecordedKeystream) -> None:
        self._keystream = keystream
        self._position = 0

    def bits(self, size: int) -> NDArray[np.uint8]:
        return self._next(lambda: self._keystream.bits(size))

    def words(self, size: int, ring: Ring) -> NDArray[Any]:
        return self._next(lambda: self._keystream.words(size, ring))

    def _next(self, draw: Any) -> NDArray[Any]:
        if self._position == len(self._keystream.read):
            self._keystream.read.append(draw())
        self._position += 1
        return self._keystream.read[self._position - 1].copy()


class RecordingNoise:
    """A participant's noise source that records its draws."""

    def __init__(self, rng: NoiseSource) -> None:
        self._rng = rng
        self.scratch = Scratch()
        self.drawn: list[int] = []

    def add_discrete_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        """Draw from the instrumented source and record the values."""
        self._rng.add_discrete_laplace(values, law)
        self.drawn += values.tolist()


@dataclass(frozen=True, slots=True)
class _Move:
    """One outcome of a step: its probability, both shares after it, the public answer, and what each party processed.

    ``handled`` also has the participants' stored shares of the answer, as "A keeps" and "B keeps".
    """

    chance: Fraction
    after: Key
    opened: Key
    handled: dict[str, Key]

    def share(self, who: str) -> Key:
        """Return what a participant stores in the epoch after the step."""
        return self.after["AB".index(who)], self.handled.get(f"{who} keeps", ())


class SharedViews:
    """Exact losses of the views of covered and uncovered looks, for one state under ``rule``.

    The rule's ring must be small, and so must the number of its cells; ``width`` is the number of bits of a byte that
    cells use. Subclasses override parts of a step, such as the known mistakes of docs/proofs/two-machines.md.
    """

    def __init__(self, rule: Rule, *, width: int = 1) -> None:
        self.rule = rule
        self.width = width
        self._moves: dict[Key, list[_Move]] = {}
        self._parts: dict[Key, Key] = {}
        self._views: dict[Key, int] = {}
        self._seen: dict[Key, tuple[int, list[tuple[int, Key, int]]]] = {}

    def loss(self, program: Sequence[Kind], streams: Sequence[Row], looks: Collection[Look]) -> float:
        """Return the largest log ratio between any two streams of the view of the looks and all answers.

        A stream has one entry for every step: its change, or None for a step without rows. Step 0 starts the state.
        """
        seen = frozenset(looks)
        start: Key = (b"", b"", 0, None)
        odds = {self._normal({start: [1] * len(streams)})}
        for number, kind in enumerate(("idle", *program)):
            changes = [None if number == 0 else stream[number - 1] for stream in streams]
            following = set()
            for view_odds in odds:
                following |= self._after(dict(view_odds), kind, number, changes, seen)
            odds = following
        worst = Fraction(1)
        for view_odds in odds:
            totals = [sum(column) for column in zip(*(weights for _, weights in view_odds), strict=True)]
            if not min(totals):
                return math.inf
            worst = max(worst, Fraction(max(totals), min(totals)))
        return math.log(worst.numerator) - math.log(worst.denominator)

    def _after(
        self,
        odds: dict[Key, tuple[int, ...]],
        kind: Kind,
        number: int,
        changes: Sequence[Dealt | None],
        looks: frozenset[Look],
    ) -> set[Any]:
        views: dict[int, dict[Key, list[int]]] = {}
        moves = [
            (stream, weight, *self._outcomes(state, kind, number, changes[stream], looks))
            for state, weights in odds.items()
            for stream, weight in enumerate(weights)
            if weight
        ]
        common = math.lcm(*{denominator for _, _, denominator, _ in moves})
        for stream, weight, denominator, transitions in moves:
            scaled = weight * (common // denominator)
            for seen, next_state, share in transitions:
                entry = views.setdefault(seen, {}).setdefault(next_state, [0] * len(changes))
                entry[stream] += scaled * share
        return {self._normal(view) for view in views.values()}

    def _outcomes(
        self, state: Key, kind: Kind, number: int, change: Dealt | None, looks: frozenset[Look]
    ) -> tuple[int, list[tuple[int, Key, int]]]:
        """Return a denominator and, for each outcome of a step, the view's number, the next state and the weight."""
        change_key = () if change is None else tuple(array.tobytes() for array in change)
        visible = _visible(number, looks)
        key = (*state, change_key, kind, number == 0, visible)
        if key not in self._seen:
            chances: dict[tuple[int, Key], Fraction] = {}
            for move in self._moved(state, kind, number, change, change_key):
                view = (move.opened, *(move.share(who) if is_share else move.handled[who] for is_share, who in visible))
                outcome = self._views.setdefault(view, len(self._views)), move.after
                chances[outcome] = chances.get(outcome, Fraction(0)) + move.chance
            denominator = math.lcm(*(chance.denominator for chance in chances.values()))
            shares = [
                (*outcome, chance.numerator * (denominator // chance.denominator))
                for outcome, chance in chances.items()
            ]
            self._seen[key] = denominator, shares
        return self._seen[key]

    @staticmethod
    def _normal(odds: dict[Key, list[int]]) -> Any:
        """Return the odds divided by their common factor, on which no later ratio depends."""
        common = math.gcd(*(weight for weights in odds.values() for weight in weights))
        return frozenset((state, tuple(weight // common for weight in weights)) for state, weights in odds.items())

    def _moved(self, state: Key, kind: Kind, number: int, change: Dealt | None, change_key: Key) -> list[_Move]:
        key = (*state, change_key, kind, number == 0)
        if key not in self._moves:
            self._moves[key] = [
                _Move(chance, *self._common(outcome))
                for chance, outcome in outcomes(
                    lambda rng: self.step(state, kind, change, rng, start=number == 0), modulus=self.noise_modulus
                )
            ]
        return self._moves[key]

    def _common(self, outcome: tuple[Key, Key, dict[str, Key]]) -> tuple[Key, Key, dict[str, Key]]:
        """Return the outcome with one object for equal parts, of which there are few."""
        after, opened, handled = outcome
        part = self._parts.setdefault
        return part(after, after), part(opened, opened), {who: part(seen, seen) for who, seen in handled.items()}

    @property
    def noise_modulus(self) -> int:
        """Return the modulus at which noise wraps around: the ring's."""
        return self.rule.ring.modulus

    def step(
        self, state: Key, kind: Kind, change: Dealt | None, rng: NoiseSource, *, start: bool
    ) -> tuple[Key, Key, dict[str, Key]]:
        """Run one step with all three parties; return the next state, the public answer and what each processed."""
        parties = self._parties(state, start)
        released = state[2]
        memory = state[3]
        task = StepTask(
            kind=kind,
            started={_NAME: self.rule} if start else {},
            answered=[_NAME] if kind == "answers" else [],
        )
        seeds = [self.seed(rng, first=first) for first in (True, False)]
        noises = [self.drawing(rng, first=first) for first in (True, False)]
        changes = {} if change is None else {_NAME: self.drawn(change, rng, released, memory)}
        dealt = deal(task, {_NAME: self.rule}, changes, *(seed.reader() for seed in seeds))
        sent = []
        for party, seed, noise in zip(parties, seeds, noises, strict=True):
            party_input = None if party.first else {name: tuple(a.copy() for a in part) for name, part in dealt.items()}
            out = party.open(task, seed.reader(), party_input, noise)
            sent.append(np.concatenate([np.empty(0, np.uint8), *(array.copy() for array in out)]))
        common, memory = self.common(rng, kind, memory)
        closed = [party.close(other, common.reader()) for party, other in zip(parties, reversed(sent), strict=True)]
        opened = open_answers({_NAME: self.rule}, [outcome.answers for outcome in closed])
        parts = [tuple(array.tobytes() for array in outcome.answers.values()) for outcome in closed]
        extra = tuple(array.tobytes() for part in dealt.values() for array in part)
        keystreams = [tuple(array.tobytes() for array in seed.read) for seed in seeds]
        shown = tuple(array.tobytes() for array in common.read)
        handled: dict[str, Key] = {
            "A": (keystreams[0], sent[1].tobytes(), shown, tuple(noises[0].drawn), parts[0]),
            "B": (keystreams[1], extra, sent[0].tobytes(), shown, tuple(noises[1].drawn), parts[1]),
            "F": (keystreams, extra, *changes.get(_NAME, ()), parts) if kind != "idle" else (),
            "A keeps": parts[0],
            "B keeps": parts[1],
        }
        handled["F"] = _plain(handled["F"])
        cells = [outcome.shares[_NAME].cells.tobytes() for outcome in closed]
        number = released + (kind == "answers")
        return (*cells, number, memory), tuple(opened.get(_NAME, ())), handled

    def _parties(self, state: Key, start: bool) -> list[Party]:
        parties = [Party(first=True), Party(first=False)]
        if not start:
            for party, cells in zip(parties, state, strict=False):
                party.shares[_NAME] = StateShare(self.rule, np.frombuffer(cells, np.uint8).copy(), state[2])
        return parties

    def drawn(self, change: Dealt, rng: NoiseSource, released: int, memory: Any) -> Dealt:
        """Return a change as the dealer shares it; unchanged, since cells are exact."""
        return change

    def seed(self, rng: NoiseSource, *, first: bool) -> RecordedKeystream:
        """Return the seed that the dealer sends to a participant."""
        return RecordedKeystream(rng, self.width)

    def drawing(self, rng: NoiseSource, *, first: bool) -> Any:
        """Return a participant's noise source."""
        return RecordingNoise(rng)

    def common(self, rng: NoiseSource, kind: Kind, memory: Any) -> tuple[RecordedKeystream, Any]:
        """Return the seed that the participants agree on, and what a mistaken subclass stores of it."""
        return RecordedKeystream(rng, self.width), memory


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return tuple(_plain(element) for element in value) if isinstance(value, tuple | list) else value


def _visible(number: int, looks: frozenset[Look]) -> Key:
    """Return the parts of a step and the epoch after it that looks copy: (True, who) a share, (False, who) the step."""
    shares = [
        (True, who)
        for who in "AB"
        if {(who, "epoch", number), (who, "step", number), (who, "step", number + 1)} & looks
    ]
    return (*shares, *((False, who) for who in "ABF" if (who, "step", number) in looks))


def covered_looks(steps: int) -> Iterator[frozenset[Look]]:
    """Yield every maximal set of looks that the claim covers.

    In each epoch one participant is copied, and in a step between two epochs of the same participant that one too; so
    it is in step 0, which starts the state.
    """
    for owners in product("AB", repeat=steps + 1):
        looks: Iterable[Look] = [(who, "epoch", epoch) for epoch, who in enumerate(owners)]
        between = [(owners[t], "step", t) for t in range(1, steps + 1) if owners[t - 1] == owners[t]]
        yield frozenset([*looks, *between, (owners[0], "step", 0)])
