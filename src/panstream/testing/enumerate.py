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
from typing import Any, TypeVar

import numpy as np

from panstream.errors import InvalidParameter
from panstream.estimate import Estimate
from panstream.randomness import Source
from panstream.testing.sources import outcomes

__all__ = ["Enumerator", "JointLoss", "Step", "World", "refresh", "release", "tick", "update", "worlds"]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Step:
    """One atomic step of a stream: a verb, and what ``algorithm.batch`` is called with."""

    verb: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def given(self) -> dict[str, Any]:
        """Return the arguments by name, lists as lists again."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self.arguments}

    def call(self, function: Callable[..., ResultT]) -> ResultT:
        """Call ``algorithm.batch`` or ``monitor.update`` with the arguments; ids go by position, whatever they are
        called there.
        """
        given = self.given()
        ids = (given.pop("ids"),) if "ids" in given else ()
        return function(*ids, **given)


World = tuple[Step, ...]
Key = tuple[Any, ...]


def update(ids: Any = None, **keywords: Any) -> Step:
    """Return an update step; ``ids`` and keywords are passed to ``algorithm.batch``."""
    given = {"ids": ids, **keywords} if ids is not None else keywords
    frozen = {name: tuple(value) if isinstance(value, list | range) else value for name, value in given.items()}
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


def worlds(slots: Sequence[Step | None], actions: Iterable[Step]) -> list[World]:
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
        self._moves: dict[tuple[Key, Step], list[tuple[Fraction, Key, Key]]] = {}

    def view_law(self, world: World, look: int | None) -> dict[Key, Fraction]:
        """Return the exact law of the view: all outputs, all announced snapshots, and the state after ``look``
        steps.
        """
        law: dict[tuple[Key, Key], Fraction] = {}
        for weight, state in outcomes(self.algorithm.begin, self.window):
            _add(law, ((), self.remember(state)), weight)
        if look == 0:
            law = _seen(law)
        for position, step in enumerate(world, start=1):
            if step.verb == "refresh":
                law = _seen(law)
            following: dict[tuple[Key, Key], Fraction] = {}
            for (view, key), weight in law.items():
                for chance, after, output in self.moves(key, step):
                    _add(following, (view + output, after), weight * chance)
            law = _seen(following) if position == look else following
        views: dict[Key, Fraction] = {}
        for (view, _), weight in law.items():
            _add(views, view, weight)
        return views

    def joint_loss(self, streams: Sequence[World], looks: Iterable[int | None] | None = None) -> JointLoss:
        """Return the loss between any two of ``streams``, one look anywhere (or none at all)."""
        worst = JointLoss(ratio=Fraction(1))
        for look in self._looks(streams, looks):
            laws = [self.view_law(world, look) for world in streams]
            for view in set().union(*laws):
                weights = [law.get(view, Fraction(0)) for law in laws]
                high, low = max(weights), min(weights)
                found = JointLoss(
                    ratio=high / low if low else None,
                    worlds=(streams[weights.index(high)], streams[weights.index(low)]),
                    look=look,
                    view=view,
                )
                worst = found if worst < found else worst
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
            for weight, (state, output) in outcomes(lambda source: self._run(key, step, source), self.window):
                _add(merged, (self.remember(state), output), weight)
            self._moves[key, step] = [(weight, after, output) for (after, output), weight in merged.items()]
        return self._moves[key, step]

    def _run(self, key: Key, step: Step, source: Source) -> tuple[Any, Key]:
        state = copy.deepcopy(self._states[key])
        if step.verb == "update":
            self.algorithm.update(state, step.call(self.algorithm.batch), source)
            return state, ()
        result = getattr(self.algorithm, step.verb)(state, source)
        if not isinstance(result, Estimate):
            return state, ()
        return state, (("release", result.released, float(result.value), float(result.standard_error)),)

    def remember(self, state: Any) -> Key:
        """Return the key under which a state is kept for :meth:`moves`."""
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


def _seen(law: dict[tuple[Key, Key], Fraction]) -> dict[tuple[Key, Key], Fraction]:
    return {((*view, key), key): weight for (view, key), weight in law.items()}


def _add(law: dict[Any, Fraction], key: Any, weight: Fraction) -> None:
    law[key] = law.get(key, Fraction(0)) + weight
