"""The exact layer: enumeration for algorithms that toss coins, a linear program for those that add Laplace noise.

Both drive the shipped code through :mod:`panstream.testing`; nothing is modelled by hand. The view is the snapshot at
every time that the claim covers, in both orders with all outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.audit.case import Measured, Trial
from panstream.audit.views import observed, seen_as, view_numbers
from panstream.audit.words import told_look, told_streams, told_view
from panstream.errors import MissingExtra
from panstream.testing.enumerate import Enumerator, JointLoss, Step, World
from panstream.testing.linear import LinearView, Published, linear_views, published_numbers

__all__ = ["Enumeration", "LinearProgram", "Scenario", "gaussian_loss"]

Numbers = NDArray[np.float64]
_NEARLY = 1 - Fraction(1, 10**6)


@dataclass(frozen=True)
class Scenario:
    """Streams of which any two are neighbours (or pairs that are), and after which steps the state is looked at."""

    streams: Sequence[World] = ()
    looks: tuple[int | None, ...] | None = None
    pairs: Sequence[tuple[World, World]] = ()


@dataclass(frozen=True)
class Enumeration:
    """Every outcome of every draw over rationals: for states of a few cells."""

    algorithm: Any
    window: tuple[int, int]
    scenarios: Sequence[Scenario]

    def __call__(self) -> Measured:
        """Return the largest loss over the scenarios, with its witness."""
        enumerator = Enumerator(self.algorithm, window=self.window)
        worst = JointLoss(ratio=Fraction(1))
        for scenario in self.scenarios:
            for streams in [scenario.streams] if scenario.streams else scenario.pairs:
                found = enumerator.joint_loss(streams, scenario.looks)
                worst = found if worst < found else worst
        return Measured(loss=worst.epsilon, witness=_words(worst), trial=self._trial(enumerator, worst))

    def _trial(self, enumerator: Enumerator, worst: JointLoss) -> Trial | None:
        """Return the test for the worst pair: whether the view is one of those whose ratio is the largest."""
        if worst.worlds is None:
            return None
        likely, unlikely = worst.worlds
        first, second = (enumerator.view_law(world, worst.look) for world in worst.worlds)
        wanted = frozenset(
            seen_as(view, self.window)
            for view, weight in first.items()
            if (not second.get(view) if worst.ratio is None else weight >= _NEARLY * worst.ratio * second[view])
        )

        def happens(side: bool) -> bool:
            view = observed(self.algorithm, likely if side else unlikely, worst.look)
            return seen_as(view, self.window) in wanted

        return Trial(event=f"one of {len(wanted)} views, such as {told_view(worst.view)}", happens=happens)


def _words(loss: JointLoss) -> str:
    if loss.worlds is None:
        return ""
    return f"{told_streams(loss.worlds)}; {told_look(loss.look)}; {told_view(loss.view)}"


@dataclass(frozen=True)
class LinearProgram:
    """The cheapest way to move the noise so that a neighbour shows the same: for counters made of noisy sums."""

    algorithm: Any
    world: Sequence[Step]
    neighbours: Sequence[Sequence[Step]]
    looks: tuple[int | None, ...] | None = None
    published: Published = published_numbers
    amplitude: int = 1

    def __call__(self) -> Measured:
        """Return the largest loss over neighbours and looks, with its witness."""
        worst, where = 0.0, None
        for view in linear_views(
            self.algorithm,
            self.world,
            self.neighbours,
            looks=self.looks,
            published=self.published,
            amplitude=self.amplitude,
        ):
            shifts, first = np.unique(view.shifts, axis=0, return_index=True)
            for shift, number in zip(shifts, first, strict=True):
                move = CheapestMove(view, shift)
                if where is None or move.loss > worst:
                    worst, where = move.loss, (view, move, int(number))
                if math.isinf(worst):
                    break
            if math.isinf(worst):
                break
        if where is None:
            return Measured(loss=0.0)
        view, move, number = where
        streams = (tuple(self.neighbours[number]), tuple(self.world))
        witness = f"{told_streams(streams)}; {told_look(view.look)}"
        return Measured(loss=worst, witness=witness, trial=self._trial(view, move, streams))

    def _trial(self, view: LinearView, move: CheapestMove, streams: tuple[World, World]) -> Trial:
        """Return the test that the dual of the program suggests: a weighted sum of all that is seen, and a threshold."""
        weights, shift = move.test, move.shift
        reach = float(weights @ shift)
        still = view_numbers(self.algorithm, streams[1], view.look, self.published, noise=False)
        start = float(weights @ still)
        # Where no noise hides the difference the sum is one number or the other; else split in the middle.
        place = start + (reach / 2 if math.isinf(move.loss) else reach)
        margin = 1e-9 * (1.0 + abs(place))

        def happens(first: bool) -> bool:
            seen = view_numbers(self.algorithm, streams[0 if first else 1], view.look, self.published)
            return float(weights @ seen) >= place - margin

        return Trial(event=f"a weighted sum of {weights.size} numbers seen passes a threshold", happens=happens)


@dataclass(frozen=True)
class CheapestMove:
    """min sum kappa·|z| subject to matrix·z = shift (docs/proofs/continual-tree.md, Lemma 1)."""

    view: LinearView
    shift: Numbers

    @cached_property
    def _solved(self) -> tuple[float, Numbers]:
        matrix, kappas = self.view.matrix, self.view.kappas
        if not np.any(self.shift):
            return 0.0, np.zeros(self.shift.size)
        unexplained = self._unexplained()
        if unexplained is not None:
            return math.inf, unexplained
        found = _linprog()(
            np.concatenate([kappas, kappas]),
            A_eq=np.hstack([matrix, -matrix]),
            b_eq=self.shift,
            bounds=(0, None),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.status == 2:
            return math.inf, self.shift / float(self.shift @ self.shift)
        if found.status != 0:
            raise ArithmeticError(f"the linear program was not solved: {found.message}")
        return float(found.fun), np.asarray(found.eqlin.marginals, np.float64)

    def _unexplained(self) -> Numbers | None:
        """Return the part of the shift that no noise can hide, scaled so that it moves by 1, or None."""
        matrix = self.view.matrix
        if not matrix.shape[1]:
            return self.shift / float(self.shift @ self.shift)
        explained = matrix @ np.linalg.lstsq(matrix, self.shift, rcond=None)[0]
        rest: Numbers = self.shift - explained
        if np.abs(rest).max() <= 1e-7 * np.abs(self.shift).max():
            return None
        return rest / float(rest @ self.shift)

    @property
    def loss(self) -> float:
        """Return the loss; inf where no move of the noise fits."""
        return self._solved[0]

    @property
    def test(self) -> Numbers:
        """Return the weights of the numbers seen that tell the two streams apart best: the dual solution."""
        return self._solved[1]


def gaussian_loss(shift: Numbers, covariance: Numbers) -> float:
    """Return rho = ½·Δᵀ·Σ⁻¹·Δ, the exact zero-concentrated loss of a view with Gaussian noise of this covariance.

    >>> gaussian_loss(np.array([1.0, 1.0]), np.diag([2.0, 4.0]))
    0.375
    """
    solved = np.linalg.lstsq(covariance, shift, rcond=None)[0]
    if np.abs(covariance @ solved - shift).max(initial=0.0) > 1e-9 * np.abs(shift).max(initial=1.0):
        return math.inf
    return float(shift @ solved) / 2


def _linprog() -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("the audit of Laplace counters", "audit") from None
    return linprog
