"""The exact layer: enumeration for algorithms that toss coins, a linear program for those that add Laplace noise.

Both drive the shipped code through :mod:`panstream.testing`; nothing is modelled by hand. The view is the snapshot at
every time that the claim covers, in both orders with all outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithm import Monitor
from panstream.audit.case import Case, Measured, Trial
from panstream.audit.views import run, stolen, told, told_view
from panstream.errors import MissingExtra
from panstream.testing.enumerate import Enumerator, JointLoss, Step, World, snapshot
from panstream.testing.linear import LinearView, Published, linear_views, private_numbers, published_numbers
from panstream.testing.sources import ScriptedSource

__all__ = ["Enumeration", "LinearProgram", "Scenario", "case_of", "cheapest_move", "gaussian_loss", "linear_case"]

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
        if worst.worlds is None:
            return Measured(loss=worst.epsilon)
        witness = f"{told(worst.worlds, worst.look)}; {told_view(worst.view)}"
        return Measured(loss=worst.epsilon, witness=witness, trial=self._trial(enumerator, worst, *worst.worlds))

    def _trial(self, enumerator: Enumerator, worst: JointLoss, likely: World, unlikely: World) -> Trial:
        """Return the test for the worst pair: whether the view is one of those whose ratio is the largest."""
        first, second = (enumerator.view_law(world, worst.look) for world in (likely, unlikely))
        wanted = frozenset(
            self._comparable(view)
            for view, weight in first.items()
            if (not second.get(view) if worst.ratio is None else weight >= _NEARLY * worst.ratio * second[view])
        )

        def happens(side: bool) -> bool:
            view = [
                snapshot(item) if what == "state" else ("release", item.released)
                for what, item in run(Monitor(self.algorithm), likely if side else unlikely, worst.look)
            ]
            return self._comparable(view) in wanted

        return Trial(event=f"one of {len(wanted)} views, such as {told_view(worst.view)}", happens=happens)

    def _comparable(self, view: Sequence[Any]) -> tuple[Any, ...]:
        """Return a view that can be compared: of releases only the integers; those beyond the window count as its end."""
        low, high = self.window
        return tuple(
            ("release", tuple(min(max(number, low), high) for number in part[1])) if part[0] == "release" else part
            for part in view
        )


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
        worst: tuple[float, Numbers, Numbers, int, int | None] | None = None
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
                if worst is None or not math.isinf(worst[0]):
                    loss, test = cheapest_move(view, shift)
                    if worst is None or loss > worst[0]:
                        worst = loss, test, shift, int(number), view.look
        if worst is None:
            return Measured(loss=0.0)
        loss, test, shift, number, look = worst
        streams = (tuple(self.neighbours[number]), tuple(self.world))
        reach = float(test @ shift)
        # Where no noise hides the difference the sum is one number or the other; else split in the middle.
        trial = self._trial(test, reach / 2 if math.isinf(loss) else reach, streams, look)
        return Measured(loss=loss, witness=told(streams, look), trial=trial)

    def _trial(self, weights: Numbers, beyond: float, streams: tuple[World, World], look: int | None) -> Trial:
        """Return the test that the dual of the program suggests: a weighted sum of all that is seen, and a threshold."""
        still = Monitor(self.algorithm, source=ScriptedSource({}))
        place = float(weights @ self._seen(still, streams[1], look)) + beyond
        margin = 1e-9 * (1.0 + abs(place))

        def happens(first: bool) -> bool:
            seen = self._seen(Monitor(self.algorithm), streams[0 if first else 1], look)
            return float(weights @ seen) >= place - margin

        return Trial(event=f"a weighted sum of {weights.size} numbers seen passes a threshold", happens=happens)

    def _seen(self, monitor: Monitor[Any], world: World, look: int | None) -> Numbers:
        """Return all numbers seen, outputs first and the state last, as :func:`linear_views` does."""
        shown: list[Numbers] = []
        state: list[Numbers] = [private_numbers(stolen(monitor))] if look == 0 else []
        for position, step in enumerate(world, start=1):
            for what, item in run(monitor, (step,), None):
                shown.append(private_numbers(item) if what == "state" else self.published(monitor.state, item))
            if position == look:
                state.append(private_numbers(stolen(monitor)))
        return np.concatenate([*shown, *state]) if shown or state else np.zeros(0)


def cheapest_move(view: LinearView, shift: Numbers) -> tuple[float, Numbers]:
    """Return min sum kappa·|z| subject to matrix·z = shift (docs/proofs/continual-tree.md, Lemma 1), and the dual solution.

    The dual weighs the numbers seen so that their sum tells the two streams apart best. Where no move fits the loss is inf.
    """
    matrix, kappas = view.matrix, view.kappas
    if not np.any(shift):
        return 0.0, np.zeros(shift.size)
    # The part of the shift that no noise can hide, scaled so that it moves by 1.
    rest = shift - matrix @ np.linalg.lstsq(matrix, shift, rcond=None)[0] if matrix.shape[1] else shift
    if np.abs(rest).max() > 1e-7 * np.abs(shift).max():
        return math.inf, rest / float(rest @ shift)
    found = _linprog()(
        np.concatenate([kappas, kappas]),
        A_eq=np.hstack([matrix, -matrix]),
        b_eq=shift,
        bounds=(0, None),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status == 2:
        return math.inf, shift / float(shift @ shift)
    if found.status != 0:
        raise ArithmeticError(f"the linear program was not solved: {found.message}")
    return float(found.fun), np.asarray(found.eqlin.marginals, np.float64)


def gaussian_loss(shift: Numbers, covariance: Numbers) -> float:
    """Return rho = ½·Δᵀ·Σ⁻¹·Δ, the exact zero-concentrated loss of a view with Gaussian noise of this covariance.

    >>> gaussian_loss(np.array([1.0, 1.0]), np.diag([2.0, 4.0]))
    0.375
    """
    solved = np.linalg.lstsq(covariance, shift, rcond=None)[0]
    if np.abs(covariance @ solved - shift).max(initial=0.0) > 1e-9 * np.abs(shift).max(initial=1.0):
        return math.inf
    return float(shift @ solved) / 2


def case_of(
    algorithm: Any,
    streams: Sequence[World] = (),
    *,
    window: tuple[int, int],
    name: str | None = None,
    claimed: float | None = None,
    looks: tuple[int | None, ...] | None = None,
    scenarios: Sequence[Scenario] = (),
    **options: Any,
) -> Case:
    """Return a case for your algorithm, by enumeration: any two of ``streams`` are neighbours; or several ``scenarios``.

    The state must be small (a few bits or residues) and every draw must come from the source that is passed in. ``window``
    bounds the noisy integers, as in :class:`panstream.testing.enumerate.Enumerator`. ``options`` are fields of the case.
    """
    exact = Enumeration(algorithm, window, scenarios or [Scenario(streams, looks)])
    return _case(algorithm, exact, name, claimed, options)


def linear_case(
    algorithm: Any,
    world: Sequence[Step],
    neighbours: Sequence[Sequence[Step]],
    *,
    name: str | None = None,
    claimed: float | None = None,
    looks: tuple[int | None, ...] | None = None,
    published: Published = published_numbers,
    amplitude: int = 1,
    **options: Any,
) -> Case:
    """Return a case for your counter, by linear program: ``neighbours`` are all neighbours of ``world``.

    Everything that is ``published`` and stored must be linear in the noise. ``options`` are fields of the case.
    """
    exact = LinearProgram(algorithm, world, neighbours, looks, published, amplitude)
    return _case(algorithm, exact, name, claimed, options)


def _case(algorithm: Any, exact: Any, name: str | None, claimed: float | None, options: dict[str, Any]) -> Case:
    given = {"kind": "production", "algorithm": algorithm, "sampled": True, "quick_runs": 500, **options}
    claimed = algorithm.claim().epsilon if claimed is None else claimed
    return Case(name=name or type(algorithm).__name__, claimed=claimed, exact=exact, **given)


def _linprog() -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("the audit of Laplace counters", "audit") from None
    return linprog
