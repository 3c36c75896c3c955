"""The exact layer for one person over a period: several windows, each with a state of its own, and one copy.

The rows of the person and the moment of the copy are enumerated over the whole period; the shipped code runs in every
window.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.audit.claims.case import ExactLoss
from panstream.audit.claims.exact import gaussian_loss
from panstream.privacy.composition import zcdp_epsilon
from panstream.testing.enumeration import Enumerator, Step, Stream, release, update
from panstream.testing.linear_views import linear_views

ABSENT = update([])
COMES = update([0])

Numbers = NDArray[np.float64]
Moment = tuple[int | None, ...]
"""For every window: after which of its steps it is copied, or None if it cannot be read at that moment."""


@dataclass(frozen=True, slots=True)
class PeriodWindow:
    """A window of a query: the algorithm, and its steps, where a number is the slot of the period that it reads."""

    algorithm: Any
    steps: tuple[int | Step, ...]

    def stream(self, behaviour: Sequence[Step]) -> Stream:
        """Return the steps for what the person does in each slot of the period."""
        return tuple(behaviour[step] if isinstance(step, int) else step for step in self.steps)


@dataclass(frozen=True)
class PeriodEnumeration:
    """All that one person can do in the slots of a period, against all else, for a copy at each of ``moments``.

    States of different windows draw independently, so the largest ratio of two likelihoods of a view is the product of
    those of its windows.
    """

    windows: tuple[PeriodWindow, ...]
    moments: Sequence[Moment]
    actions: tuple[Step, ...] = (ABSENT, COMES)
    window: tuple[int, int] = (-2, 3)  # bounds the noisy integers, as in `Enumerator`

    def __call__(self) -> ExactLoss:
        """Return the largest loss, with the streams and the moment that reach it."""
        slots = 1 + max(step for window in self.windows for step in window.steps if isinstance(step, int))
        behaviours = list(itertools.product(self.actions, repeat=slots))
        shipped = {one.algorithm: Enumerator(one.algorithm, window=self.window) for one in self.windows}

        @cache
        def between(algorithm: Any, streams: tuple[Stream, ...], look: int | None) -> Numbers:
            laws = [shipped[algorithm].view_law(stream, look) for stream in streams]
            return np.array([[_loss(likely, unlikely) for unlikely in laws] for likely in laws])

        @cache
        def losses(number: int, look: int | None) -> Numbers:
            """Return the loss of a window for every two behaviours."""
            window = self.windows[number]
            streams = [window.stream(behaviour) for behaviour in behaviours]
            different = tuple(dict.fromkeys(streams))
            index = [different.index(stream) for stream in streams]
            return between(window.algorithm, different, look)[np.ix_(index, index)]

        worst = 0.0
        witness = ""
        for moment in self.moments:
            total: Numbers = np.sum([losses(number, look) for number, look in enumerate(moment)], axis=0)
            if total.max() > worst:
                worst = float(total.max())
                likely, unlikely = np.unravel_index(int(total.argmax()), total.shape)
                witness = _format(behaviours[int(likely)], behaviours[int(unlikely)], moment)
        return ExactLoss(loss=worst, witness=witness)


@dataclass(frozen=True)
class GaussianPeriod:
    """Windows of one counter with Gaussian noise: what each loses as zCDP, added up, and converted at a delta.

    ``neighbours`` are all streams of one window that hold rows of the person; all its numbers are linear in the noise.
    """

    algorithm: Any
    stream: Stream
    neighbours: Sequence[Stream]
    moments: Sequence[Moment]
    delta: float
    amplitude: int = 1  # of the noise that is injected, where the code rounds

    def __call__(self) -> ExactLoss:
        """Return the largest loss, with the moment that reaches it."""
        rho: dict[int | None, float] = {}
        for view in linear_views(self.algorithm, self.stream, self.neighbours, amplitude=self.amplitude):
            covariance = view.matrix @ np.diag(view.kappas**-2.0) @ view.matrix.T
            rho[view.look] = max(gaussian_loss(shift, covariance) for shift in view.shifts)
        worst = max(self.moments, key=lambda moment: sum(rho[look] for look in moment))
        total = sum(rho[look] for look in worst)
        witness = f"rho {total:.4g}; {_format_copies(worst)}"
        return ExactLoss(loss=zcdp_epsilon(total, self.delta) if math.isfinite(total) else math.inf, witness=witness)


def consecutive_windows(algorithm: Any, count: int, *, slots: int = 2, releases: int = 1) -> tuple[PeriodWindow, ...]:
    """Return windows one after the other, each with a release after its slots; further ones are between them.

    Args:
        algorithm: What every window starts anew.
        count: Number of windows.
        slots: Slots of each in which the person can come.
        releases: Answers of each; before each of them but the first is one slot.
    """
    windows = []
    per_window = slots + releases - 1
    for number in range(count):
        first = number * per_window
        steps: list[int | Step] = [*range(first, first + slots), release()]
        for more in range(first + slots, first + per_window):
            steps += [more, release()]
        windows.append(PeriodWindow(algorithm, tuple(steps)))
    return tuple(windows)


def one_copy(steps: Sequence[int]) -> list[Moment]:
    """Return every moment at which one window, of so many steps, is copied, and that without a copy."""
    alone = [None] * len(steps)
    moments: list[Moment] = [tuple(alone)]
    for number, count in enumerate(steps):
        moments += [(*alone[:number], look, *alone[number + 1 :]) for look in range(count + 1)]
    return moments


def _loss(likely: dict[Any, Fraction], unlikely: dict[Any, Fraction]) -> float:
    """Return the logarithm of the largest ratio of a view's likelihoods; inf if a view shows which stream it was."""
    possible = [(weight, unlikely.get(view, Fraction(0))) for view, weight in likely.items() if weight]
    return math.inf if any(not other for _, other in possible) else math.log(max(one / two for one, two in possible))


def _format(likely: Iterable[Step], unlikely: Iterable[Step], moment: Moment) -> str:
    both = " against ".join(
        "[" + " ".join("·" if step == ABSENT else "0" for step in behaviour) + "]" for behaviour in (likely, unlikely)
    )
    return f"{both}; {_format_copies(moment)}"


def _format_copies(moment: Moment) -> str:
    copied = [f"window {number} after step {look}" for number, look in enumerate(moment, 1) if look is not None]
    return f"copied: {', '.join(copied)}" if copied else "outputs only"
