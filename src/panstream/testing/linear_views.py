"""The view matrix of shipped linear code: the effect of every draw of noise on every number in the view.

A linear algorithm has view = A·draws + B·data. Two neighbouring streams give the same view if the draws are shifted by
z with A·z = the difference of the data, and the joint loss is the smallest sum of kappa_i·|z_i| over such shifts, or
infinite if there is none (docs/proofs/continual-tree.md, Lemma 1). This module runs the algorithm once for every draw
and returns A, the kappas and the differences; the caller solves the linear program, for example with
``scipy.optimize.linprog``. For Gaussian draws the kappas are 1/sigma, and half of the smallest sum of squares is the
zCDP loss.

>>> from panstream.algorithms.continual.sums import KaryTree
>>> stream = [ticks([0]), ticks([0])]
>>> views = linear_views(KaryTree(epsilon=1.0, horizon=2, one_step_ticks=True), stream, [[ticks([1]), ticks([0])]])
>>> views[0].matrix.tolist(), views[0].shifts.tolist()
([[1.0, 0.0], [1.0, 1.0]], [[1.0, 1.0]])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.core.estimate import Estimates
from panstream.errors import InvalidParameter
from panstream.primitives.codec import field_role
from panstream.testing.enumeration import Step
from panstream.testing.sources import ScriptedSource

Numbers = NDArray[np.float64]
Published = Callable[[Any, Any], Numbers]


def ticks(values: Sequence[float]) -> Step:
    """Return a step that fills and closes one slot per value."""
    return Step("tick_many", (("values", tuple(values)),))


@dataclass(frozen=True, slots=True, eq=False)
class LinearView:
    """The view with one copy of the state, or with none: one row per number, one column per draw."""

    look: int | None  # number of steps before the copy
    matrix: Numbers
    kappas: Numbers
    shifts: Numbers  # one row per neighbouring stream: how far it moves each number


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    public: Numbers  # all outputs, and every state that was copied by an announced intrusion
    states: list[Numbers]  # after 0, 1, 2, ... steps
    kappas: list[float]

    def view(self, look: int | None) -> Numbers:
        return self.public if look is None else np.concatenate([self.public, self.states[look]])


def published_numbers(state: Any, result: Any) -> Numbers:
    """Return the numbers of a release: its noisy integers if it lists them, else its value."""
    if isinstance(result, Estimates):
        return result.unclipped.copy()
    return np.array(result.released if result.released else [result.unclipped], np.float64)


def linear_views(
    algorithm: Any,
    stream: Sequence[Step],
    neighbours: Iterable[Sequence[Step]],
    *,
    looks: Iterable[int | None] | None = None,
    published: Published = published_numbers,
    amplitude: int = 1,
) -> list[LinearView]:
    """Return the views of a stream, with a copy after each number of steps in ``looks`` (default: all, and none).

    A "refresh" step copies the state and refreshes it, "copied" only copies it, "late_refresh" only refreshes it.
    Public fields of the state are not part of the view: they are computed from outputs. ``published`` returns the
    numbers of a release. ``amplitude`` is the size of the injected noise, large where the code rounds. Raises
    InvalidParameter if the code is not linear in its draws.
    """
    base = _run(algorithm, stream, {}, published)
    draws = len(base.kappas)
    impulses = [_run(algorithm, stream, {draw: amplitude}, published) for draw in range(draws)]
    shifted = [_run(algorithm, neighbour, {}, published) for neighbour in neighbours]
    script = {draw: amplitude * (draw % 7 - 3) for draw in range(draws)}
    mixed = _run(algorithm, stream, script, published)
    views = []
    for look in [None, *range(len(stream) + 1)] if looks is None else looks:
        seen = base.view(look)
        columns = [(run.view(look) - seen) / amplitude for run in impulses]
        matrix = np.array(columns).T if columns else np.zeros((seen.size, 0))
        off = matrix @ np.array(list(script.values()), float) - (mixed.view(look) - seen)
        if np.abs(off).max(initial=0.0) > 1e-6 * amplitude * max(draws, 1):
            raise InvalidParameter(f"{type(algorithm).__name__} is not linear in its noise")
        shifts = np.array([run.view(look) - seen for run in shifted]).reshape(len(shifted), seen.size)
        views.append(LinearView(look, matrix, np.array(base.kappas), shifts))
    return views


def _run(algorithm: Any, stream: Sequence[Step], script: Mapping[int, int], published: Published) -> _Run:
    rng = ScriptedSource(script)
    state = algorithm.initial_state(rng)
    shown: list[Numbers] = []
    states = [private_numbers(state)]
    for step in stream:
        if step.verb == "update":
            algorithm.update(state, step.call(algorithm.batch), rng)
        elif step.verb in ("refresh", "copied", "late_refresh"):
            if step.verb != "late_refresh":
                shown.append(private_numbers(state))
            if step.verb != "copied":
                algorithm.refresh(state, rng)
        else:
            result = getattr(algorithm, step.verb)(state, *step.describe().values(), rng)
            shown.append(published(state, result))
        states.append(private_numbers(state))
    return _Run(np.concatenate(shown) if shown else np.zeros(0), states, rng.kappas)


def private_numbers(state: Any) -> Numbers:
    """Return all numbers of the state's private fields, in field order."""
    hidden = [
        getattr(state, declared.name)
        for declared in fields(state)
        if field_role(declared) not in ("public", "published")
    ]
    return np.concatenate([np.asarray(field, np.float64).ravel() for field in hidden]) if hidden else np.zeros(0)
