"""Exact joint losses of shipped code, over every outcome, every intrusion and both orders of intrusion and release.

The enumerator calls ``initial_state``, ``update``, ``refresh``, ``release`` and ``tick`` of the algorithm itself with
an instrumented noise source, computes the exact distribution of (view so far, state), and compares neighbouring streams
view by view. Probabilities are rationals; e**-kappa enters as a rational with more than 70 digits.
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
    """One atomic step of a stream: a verb, and the arguments of ``algorithm.batch``."""

    verb: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def describe(self) -> dict[str, Any]:
        """Return the arguments by name, with tuples turned back into lists."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self.arguments}

    def call(self, function: Callable[..., ResultT]) -> ResultT:
        """Call ``algorithm.batch`` or ``monitor.update`` with the arguments; ids are passed by position."""
        arguments = self.describe()
        ids = (arguments.pop("ids"),) if "ids" in arguments else ()
        return function(*ids, **arguments)


Stream = tuple[Step, ...]
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
    """Return an announced intrusion: the state is copied, then refreshed."""
    return Step("refresh")


def copied() -> Step:
    """Return an intrusion that is noticed later: the state is copied and does not change."""
    return Step("copied")


def late_refresh() -> Step:
    """Return the refresh after an intrusion that was noticed late: the state is refreshed without a copy."""
    return Step("late_refresh")


def enumerate_streams(slots: Sequence[Step | None], actions: Iterable[Step]) -> list[Stream]:
    """Return every stream obtained by putting an action into each ``None`` of ``slots``.

    ``actions`` are the possible events of one user in a slot (none, appear, appear twice, leave, ...), together with
    the events of the other users there. Any two of the streams are then neighbours.
    """
    choices = [[slot] if slot is not None else list(actions) for slot in slots]
    return [tuple(stream) for stream in product(*choices)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointLoss:
    """The largest log ratio, and the pair of streams and the view that attain it."""

    ratio: Fraction | None  # None if a view is possible under one stream and impossible under the other
    streams: tuple[Stream, Stream] | None = None
    look: int | None = None
    view: Key = ()

    @property
    def epsilon(self) -> float:
        """Return the loss; inf if the ratio is unbounded."""
        if self.ratio is None:
            return math.inf
        return math.log(self.ratio.numerator) - math.log(self.ratio.denominator)

    def __lt__(self, other: JointLoss) -> bool:
        return self.ratio is not None and (other.ratio is None or self.ratio < other.ratio)


_View = tuple[int, ...]  # indices into ``_observations``: hashing the states themselves every time would be slow


class _Distribution(NamedTuple):
    """Probabilities of (view, state) as integers over a common denominator: sums of fractions would be much slower."""

    denominator: int
    weights: dict[tuple[_View, int], int]


class Enumerator:
    """Exact distributions of the view of an attacker and the public of one algorithm.

    ``window`` bounds the noisy integers that are enumerated (inclusive): it must reach one beyond the smallest and the
    largest integer that can be released without noise.
    """

    def __init__(self, algorithm: Any, *, window: tuple[int, int]) -> None:
        if window[0] > window[1]:
            raise InvalidParameter(f"window must not be empty, got window={window}")
        self.algorithm = algorithm
        self.window = window
        self._states: dict[Key, Any] = {}
        self._numbers: dict[Any, int] = {}  # index of every state and output in ``_observations``
        self._observations: list[Any] = []
        self._moves: dict[tuple[Key, Step], list[tuple[Fraction, Key, Key]]] = {}
        self._shares: dict[tuple[int, Step, int], list[tuple[int, int, _View]]] = {}
        self._denominators: dict[tuple[int, Step], int] = {}
        self._prefixes: dict[tuple[Stream, int | None], _Distribution] = {}

    def view_law(self, stream: Stream, look: int | None) -> dict[Key, Fraction]:
        """Return the exact distribution of the view: outputs, announced copies, and the state after ``look`` steps."""
        denominator, views = self._views(stream, look)
        return {self._observed(view): Fraction(weight, denominator) for view, weight in views.items()}

    def _views(self, stream: Stream, look: int | None) -> tuple[int, dict[_View, int]]:
        after = self._after(stream, look)
        views: dict[_View, int] = {}
        for (view, _), weight in after.weights.items():
            views[view] = views.get(view, 0) + weight
        return after.denominator, views

    def _after(self, stream: Stream, look: int | None) -> _Distribution:
        """Return the distribution of the view and the state after the steps."""
        if not stream:
            merged: dict[tuple[_View, int], Fraction] = {}
            for chance, state in outcomes(self.algorithm.initial_state, self.window):
                _add(merged, ((), self._number(self.remember(state))), chance)
            denominator = math.lcm(*(chance.denominator for chance in merged.values()))
            start = _Distribution(
                denominator,
                {key: chance.numerator * (denominator // chance.denominator) for key, chance in merged.items()},
            )
            return _with_copy(start) if look == 0 else start
        previous = self._prefix(stream[:-1], look)
        step = stream[-1]
        previous = _with_copy(previous) if step.verb in ("refresh", "copied") else previous
        states = {state for _, state in previous.weights}
        denominator = math.lcm(*{self._denominator(state, step) for state in states})
        shares = {state: self._parts(state, step, denominator) for state in states}
        following: dict[tuple[_View, int], int] = {}
        for (view, state), weight in previous.weights.items():
            for share, next_state, output in shares[state]:
                key = (view + output, next_state)
                following[key] = following.get(key, 0) + weight * share
        after = _Distribution(previous.denominator * denominator, following)
        return _with_copy(after) if look == len(stream) else after

    def _denominator(self, state: int, step: Step) -> int:
        """Return the least common denominator of the probabilities of all moves from a state."""
        if (state, step) not in self._denominators:
            moves = self.moves(self._observations[state], step)
            self._denominators[state, step] = math.lcm(*{chance.denominator for chance, _, _ in moves})
        return self._denominators[state, step]

    def _parts(self, state: int, step: Step, denominator: int) -> list[tuple[int, int, _View]]:
        """Return the moves from a state with weights over ``denominator``, cached since long division is slow."""
        if (state, step, denominator) not in self._shares:
            self._shares[state, step, denominator] = [
                (
                    share.numerator * (denominator // share.denominator),
                    self._number(next_state),
                    tuple(map(self._number, output)),
                )
                for share, next_state, output in self.moves(self._observations[state], step)
            ]
        return self._shares[state, step, denominator]

    def _number(self, observation: Any) -> int:
        number = self._numbers.setdefault(observation, len(self._observations))
        if number == len(self._observations):
            self._observations.append(observation)
        return number

    def _observed(self, view: _View) -> Key:
        return tuple(self._observations[number] for number in view)

    def _prefix(self, stream: Stream, look: int | None) -> _Distribution:
        """Return the distribution after a stream's first steps, cached for other streams with the same prefix."""
        look = None if look is None or look > len(stream) else look
        if (stream, look) not in self._prefixes:
            self._prefixes[stream, look] = self._after(stream, look)
        return self._prefixes[stream, look]

    def joint_loss(self, streams: Sequence[Stream], looks: Iterable[int | None] | None = None) -> JointLoss:
        """Return the loss between any two of ``streams``, with one copy after each of ``looks`` (any or none)."""
        worst = JointLoss(ratio=Fraction(1))
        for look in self._looks(streams, looks):
            # Prefixes with an earlier copy are not used again.
            self._prefixes = {key: prefix for key, prefix in self._prefixes.items() if key[1] is None}
            distributions = [self._views(stream, look) for stream in streams]
            common = math.lcm(*(denominator for denominator, _ in distributions))
            scaled = [(common // denominator, views) for denominator, views in distributions]
            for view in set().union(*(views for _, views in scaled)):
                weights = [scale * views.get(view, 0) for scale, views in scaled]
                high = max(weights)
                low = min(weights)
                if worst.ratio is not None and high * worst.ratio.denominator > low * worst.ratio.numerator:
                    worst = JointLoss(
                        ratio=Fraction(high, low) if low else None,
                        streams=(streams[weights.index(high)], streams[weights.index(low)]),
                        look=look,
                        view=self._observed(view),
                    )
        return worst

    def pair_loss(self, pairs: Iterable[tuple[Stream, Stream]], looks: Iterable[int | None] | None = None) -> JointLoss:
        """Return the loss over the given pairs only, for example for replace adjacency."""
        return max(
            (self.joint_loss(pair, looks) for pair in pairs),
            key=lambda loss: math.inf if loss.ratio is None else loss.ratio,
        )

    def _looks(self, streams: Sequence[Stream], looks: Iterable[int | None] | None) -> list[int | None]:
        lengths = {len(stream) for stream in streams}
        if len(lengths) != 1:
            raise InvalidParameter("neighbouring streams must have the same number of steps")
        return [None, *range(lengths.pop() + 1)] if looks is None else list(looks)

    def moves(self, key: Key, step: Step) -> list[tuple[Fraction, Key, Key]]:
        """Return the exact outcomes of one step from a stored state: (probability, next state, published output)."""
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
        """Store a state for `moves` and return its key."""
        key = snapshot(state)
        self._states.setdefault(key, state)
        return key


def snapshot(state: Any) -> Key:
    """Return all fields of a state, as an attacker copies them, as a hashable value."""
    return tuple(
        (declared.name, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else (declared.name, value)
        for declared in fields(state)
        for value in (getattr(state, declared.name),)
    )


def _with_copy(before: _Distribution) -> _Distribution:
    """Return the distribution with the state appended to the view."""
    weights = {((*view, state), state): weight for (view, state), weight in before.weights.items()}
    return _Distribution(before.denominator, weights)


def _add(weights: dict[Any, Fraction], key: Any, weight: Fraction) -> None:
    weights[key] = weights[key] + weight if key in weights else weight  # a sum with Fraction(0) would be slower
