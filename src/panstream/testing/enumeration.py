"""Exact joint losses of shipped code: every outcome, every look, both orders of look and release.

The enumerator drives ``begin``, ``update``, ``refresh``, ``release`` and ``tick`` of the algorithm itself through an
instrumented source, follows the exact law of (everything seen so far, state), and compares neighbouring streams view
by view. Probabilities are rationals; e**-kappa enters as a rational with more than 70 digits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np

from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives.noise import NoiseSource
from panstream.testing.sources import outcomes

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Step:
    """One atomic step of a stream: a verb, and what ``algorithm.batch`` is called with."""

    verb: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def describe(self) -> dict[str, Any]:
        """Return the arguments by name, lists as lists again."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self.arguments}

    def call(self, function: Callable[..., ResultT]) -> ResultT:
        """Call ``algorithm.batch`` or ``monitor.update`` with the arguments; ids go by position, whatever they are
        called there.
        """
        arguments = self.describe()
        ids = (arguments.pop("ids"),) if "ids" in arguments else ()
        return function(*ids, **arguments)


World = tuple[Step, ...]
Key = tuple[Any, ...]


def update(ids: Any = None, **keywords: Any) -> Step:
    """Return an update step; ``ids`` and keywords are passed to ``algorithm.batch``."""
    arguments = {"ids": ids, **keywords} if ids is not None else keywords
    frozen = {name: tuple(value) if isinstance(value, list | range) else value for name, value in arguments.items()}
    return Step("update", tuple(frozen.items()))


def release() -> Step:
    """Return a step that publishes an estimate."""
    return Step("release")


def tick() -> Step:
    """Return a step that closes a slot and publishes."""
    return Step("tick")


def refresh() -> Step:
    """Return an announced intrusion: the state is seen, then refreshed."""
    return Step("refresh")


def copied() -> Step:
    """Return an intrusion that is noticed later: the state is seen, and stays as it is."""
    return Step("copied")


def late_refresh() -> Step:
    """Return the refresh after an intrusion that was noticed late: the state is refreshed without being seen."""
    return Step("late_refresh")


def enumerate_streams(slots: Sequence[Step | None], actions: Iterable[Step]) -> list[World]:
    """Return every stream obtained by putting an action into each ``None`` of ``slots``.

    ``actions`` are what one user may do in a slot (nothing, appear, appear twice, leave, ...), written with whatever
    the others do there. Any two of the streams are then neighbours.
    """
    choices = [[slot] if slot is not None else list(actions) for slot in slots]
    return [tuple(world) for world in product(*choices)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointLoss:
    """The largest log-ratio found, and the pair of streams and the view that show it."""

    ratio: Fraction | None  # None where one stream makes a view impossible that the other can show
    worlds: tuple[World, World] | None = None
    look: int | None = None
    view: Key = ()

    @property
    def epsilon(self) -> float:
        """Return the loss; inf where the ratio has no bound."""
        if self.ratio is None:
            return math.inf
        return math.log(self.ratio.numerator) - math.log(self.ratio.denominator)

    def __lt__(self, other: JointLoss) -> bool:
        return self.ratio is not None and (other.ratio is None or self.ratio < other.ratio)


_View = tuple[int, ...]  # numbers of what was seen: hashing the states themselves again and again would be slow


class _Law(NamedTuple):
    """Probabilities of the view and the state, in parts of ``whole``: sums of fractions would be much slower."""

    whole: int
    weights: dict[tuple[_View, int], int]


class Enumerator:
    """Exact laws of what an intruder and the public see of one algorithm.

    ``window`` bounds the noisy integers that are enumerated (inclusive): let it reach one past the smallest and
    the largest integer that can be released without noise.
    """

    def __init__(self, algorithm: Any, *, window: tuple[int, int]) -> None:
        if window[0] > window[1]:
            raise InvalidParameter(f"window must not be empty, got window={window}")
        self.algorithm = algorithm
        self.window = window
        self._states: dict[Key, Any] = {}
        self._numbers: dict[Any, int] = {}  # of states and of what was published, in the order of ``_seen``
        self._seen: list[Any] = []
        self._moves: dict[tuple[Key, Step], list[tuple[Fraction, Key, Key]]] = {}
        self._shares: dict[tuple[int, Step, int], list[tuple[int, int, _View]]] = {}
        self._denominators: dict[tuple[int, Step], int] = {}
        self._laws: dict[tuple[World, int | None], _Law] = {}

    def view_law(self, world: World, look: int | None) -> dict[Key, Fraction]:
        """Return the exact law of the view: all outputs, all announced snapshots, and the state after ``look``
        steps.
        """
        denominator, views = self._views(world, look)
        return {self._shown(view): Fraction(weight, denominator) for view, weight in views.items()}

    def _views(self, world: World, look: int | None) -> tuple[int, dict[_View, int]]:
        law = self._after(world, look)
        views: dict[_View, int] = {}
        for (view, _), weight in law.weights.items():
            views[view] = views.get(view, 0) + weight
        return law.whole, views

    def _after(self, world: World, look: int | None) -> _Law:
        """Return the law of the view and the state after the steps."""
        if not world:
            merged: dict[tuple[_View, int], Fraction] = {}
            for chance, state in outcomes(self.algorithm.initial_state, self.window):
                _add(merged, ((), self._number(self.remember(state))), chance)
            denominator = math.lcm(*(chance.denominator for chance in merged.values()))
            law = _Law(
                denominator,
                {key: chance.numerator * (denominator // chance.denominator) for key, chance in merged.items()},
            )
            return _looked(law) if look == 0 else law
        previous = self._begun(world[:-1], look)
        step = world[-1]
        previous = _looked(previous) if step.verb in ("refresh", "copied") else previous
        states = {state for _, state in previous.weights}
        denominator = math.lcm(*{self._denominator(state, step) for state in states})
        shares = {state: self._parts(state, step, denominator) for state in states}
        following: dict[tuple[_View, int], int] = {}
        for (view, state), weight in previous.weights.items():
            for share, next_state, output in shares[state]:
                key = (view + output, next_state)
                following[key] = following.get(key, 0) + weight * share
        law = _Law(previous.whole * denominator, following)
        return _looked(law) if look == len(world) else law

    def _denominator(self, state: int, step: Step) -> int:
        """Return the least common denominator of the chances of all moves from a state."""
        if (state, step) not in self._denominators:
            moves = self.moves(self._seen[state], step)
            self._denominators[state, step] = math.lcm(*{chance.denominator for chance, _, _ in moves})
        return self._denominators[state, step]

    def _parts(self, state: int, step: Step, denominator: int) -> list[tuple[int, int, _View]]:
        """Return the moves from a state in parts of ``denominator``, kept for other streams: division of long integers
        is slow.
        """
        if (state, step, denominator) not in self._shares:
            self._shares[state, step, denominator] = [
                (
                    share.numerator * (denominator // share.denominator),
                    self._number(next_state),
                    tuple(map(self._number, output)),
                )
                for share, next_state, output in self.moves(self._seen[state], step)
            ]
        return self._shares[state, step, denominator]

    def _number(self, thing: Any) -> int:
        number = self._numbers.setdefault(thing, len(self._seen))
        if number == len(self._seen):
            self._seen.append(thing)
        return number

    def _shown(self, view: _View) -> Key:
        return tuple(self._seen[number] for number in view)

    def _begun(self, world: World, look: int | None) -> _Law:
        """Return the law after a stream's first steps, kept for the other streams and looks that begin so."""
        look = None if look is None or look > len(world) else look
        if (world, look) not in self._laws:
            self._laws[world, look] = self._after(world, look)
        return self._laws[world, look]

    def joint_loss(self, streams: Sequence[World], looks: Iterable[int | None] | None = None) -> JointLoss:
        """Return the loss between any two of ``streams``, one look anywhere (or none at all)."""
        worst = JointLoss(ratio=Fraction(1))
        for look in self._looks(streams, looks):
            self._laws = {begun: law for begun, law in self._laws.items() if begun[1] is None}  # others are past
            view_laws = [self._views(world, look) for world in streams]
            common = math.lcm(*(denominator for denominator, _ in view_laws))
            laws = [(common // denominator, law) for denominator, law in view_laws]
            for view in set().union(*(law for _, law in laws)):
                weights = [scale * law.get(view, 0) for scale, law in laws]
                high = max(weights)
                low = min(weights)
                if worst.ratio is not None and high * worst.ratio.denominator > low * worst.ratio.numerator:
                    worst = JointLoss(
                        ratio=Fraction(high, low) if low else None,
                        worlds=(streams[weights.index(high)], streams[weights.index(low)]),
                        look=look,
                        view=self._shown(view),
                    )
        return worst

    def pair_loss(self, pairs: Iterable[tuple[World, World]], looks: Iterable[int | None] | None = None) -> JointLoss:
        """Return the loss over the given pairs only: for replace adjacency, or a single suspicion."""
        return max(
            (self.joint_loss(pair, looks) for pair in pairs),
            key=lambda loss: math.inf if loss.ratio is None else loss.ratio,
        )

    def _looks(self, streams: Sequence[World], looks: Iterable[int | None] | None) -> list[int | None]:
        lengths = {len(world) for world in streams}
        if len(lengths) != 1:
            raise InvalidParameter("neighbouring streams must have the same number of steps")
        return [None, *range(lengths.pop() + 1)] if looks is None else list(looks)

    def moves(self, key: Key, step: Step) -> list[tuple[Fraction, Key, Key]]:
        """Return the exact law of one step from a remembered state: (chance, the state after it, what it published)."""
        if (key, step) not in self._moves:
            merged: dict[tuple[Key, Key], Fraction] = {}
            for weight, (state, output) in outcomes(lambda rng: self._run(key, step, rng), self.window):
                _add(merged, (self.remember(state), output), weight)
            self._moves[key, step] = [(weight, next_state, output) for (next_state, output), weight in merged.items()]
        return self._moves[key, step]

    def _run(self, key: Key, step: Step, rng: NoiseSource) -> tuple[Any, Key]:
        state = copy.deepcopy(self._states[key])
        if step.verb == "update":
            self.algorithm.update(state, step.call(self.algorithm.batch), rng)
            return state, ()
        if step.verb == "copied":
            return state, ()
        verb = "refresh" if step.verb == "late_refresh" else step.verb
        result = getattr(self.algorithm, verb)(state, rng)
        if not isinstance(result, Estimate):
            return state, ()
        return state, (("release", result.released, float(result.value), float(result.standard_error)),)

    def remember(self, state: Any) -> Key:
        """Return the key under which a state is kept for `moves`."""
        key = snapshot(state)
        self._states.setdefault(key, state)
        return key


def snapshot(state: Any) -> Key:
    """Return everything an intruder copies, as a value that can be compared."""
    return tuple(
        (declared.name, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else (declared.name, value)
        for declared in fields(state)
        for value in (getattr(state, declared.name),)
    )


def _looked(law: _Law) -> _Law:
    return _Law(law.whole, {((*view, state), state): weight for (view, state), weight in law.weights.items()})


def _add(law: dict[Any, Fraction], key: Any, weight: Fraction) -> None:
    law[key] = law[key] + weight if key in law else weight
