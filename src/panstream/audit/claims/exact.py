"""The exact layer: enumeration for algorithms that draw coins, a linear program for those that add Laplace noise.

Both run the shipped code through `panstream.testing`; nothing is modelled by hand. The view is the snapshot at every
time that the claim covers, in both orders with all outputs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.audit.claims.case import Case, ExactLoss, Trial, scipy_function
from panstream.core.estimate import Estimate
from panstream.core.monitor import Monitor
from panstream.errors import NotSupported
from panstream.primitives import codec
from panstream.testing.enumeration import (
    Enumerator,
    JointLoss,
    Step,
    Stream,
    enumerate_streams,
    refresh,
    release,
    snapshot,
)
from panstream.testing.linear_views import LinearView, Published, linear_views, private_numbers, published_numbers
from panstream.testing.sources import ScriptedSource

Numbers = NDArray[np.float64]
_MAX_VIEW_LENGTH = 160  # characters of a formatted view
_NEARLY = 1 - Fraction(1, 10**6)  # views with this fraction of the worst ratio belong to the trial's event


@dataclass(frozen=True)
class Scenario:
    """Streams of which any two are neighbours (or pairs that are), and the numbers of steps before a copy."""

    streams: Sequence[Stream] = ()
    looks: tuple[int | None, ...] | None = None
    pairs: Sequence[tuple[Stream, Stream]] = ()


@dataclass(frozen=True)
class Enumeration:
    """Every outcome of every draw over rationals: for states of a few cells."""

    algorithm: Any
    window: tuple[int, int]
    scenarios: Sequence[Scenario]

    def __call__(self) -> ExactLoss:
        """Return the largest loss over the scenarios, with its witness."""
        enumerator = Enumerator(self.algorithm, window=self.window)
        worst = JointLoss(ratio=Fraction(1))
        for scenario in self.scenarios:
            for streams in [scenario.streams] if scenario.streams else scenario.pairs:
                loss = enumerator.joint_loss(streams, scenario.looks)
                worst = loss if worst < loss else worst
        if worst.streams is None:
            return ExactLoss(loss=worst.epsilon)
        witness = f"{_format_streams(worst.streams, worst.look)}; {_format_view(worst.view)}"
        return ExactLoss(loss=worst.epsilon, witness=witness, trial=self._trial(enumerator, worst, *worst.streams))

    def _trial(self, enumerator: Enumerator, worst: JointLoss, likely: Stream, unlikely: Stream) -> Trial:
        """Return a trial of the worst pair, whose event is a view with (nearly) the largest ratio."""
        first, second = (enumerator.view_law(stream, worst.look) for stream in (likely, unlikely))
        wanted = frozenset(
            self._comparable(view)
            for view, weight in first.items()
            if (not second.get(view) if worst.ratio is None else weight >= _NEARLY * worst.ratio * second[view])
        )

        def happens(side: bool) -> bool:
            view = [
                snapshot(item) if kind == "state" else ("release", item.released)
                for kind, item in _run(Monitor(self.algorithm), likely if side else unlikely, worst.look)
            ]
            return self._comparable(view) in wanted

        return Trial(event=f"one of {len(wanted)} views, such as {_format_view(worst.view)}", happens=happens)

    def _comparable(self, view: Sequence[Any]) -> tuple[Any, ...]:
        """Return a hashable view: of releases only the integers, clipped to the window."""
        low, high = self.window
        return tuple(
            ("release", tuple(min(max(number, low), high) for number in part[1])) if part[0] == "release" else part
            for part in view
        )


@dataclass(frozen=True)
class LinearProgram:
    """The cheapest shift of the noise under which a neighbour has the same view: for counters of noisy sums."""

    algorithm: Any
    stream: Sequence[Step]
    neighbours: Sequence[Sequence[Step]]
    looks: tuple[int | None, ...] | None = None
    published: Published = published_numbers
    amplitude: int = 1

    def __call__(self) -> ExactLoss:
        """Return the largest loss over neighbours and looks, with its witness."""
        worst: tuple[float, Numbers, Numbers, int, int | None] | None = None
        for view in linear_views(
            self.algorithm,
            self.stream,
            self.neighbours,
            looks=self.looks,
            published=self.published,
            amplitude=self.amplitude,
        ):
            shifts, first = np.unique(view.shifts, axis=0, return_index=True)
            for shift, number in zip(shifts, first, strict=True):
                if worst is None or not math.isinf(worst[0]):
                    loss, test = _cheapest_move(view, shift)
                    if worst is None or loss > worst[0]:
                        worst = loss, test, shift, int(number), view.look
        if worst is None:
            return ExactLoss(loss=0.0)
        loss, test, shift, number, look = worst
        streams = (tuple(self.neighbours[number]), tuple(self.stream))
        reach = float(test @ shift)
        # Without noise the sum takes one of two values, so the threshold lies between them.
        trial = self._trial(test, reach / 2 if math.isinf(loss) else reach, streams, look)
        return ExactLoss(loss=loss, witness=_format_streams(streams, look), trial=trial)

    def _trial(self, weights: Numbers, beyond: float, streams: tuple[Stream, Stream], look: int | None) -> Trial:
        """Return the trial given by the dual solution: a weighted sum of the view exceeds a threshold."""
        noiseless = Monitor(self.algorithm, rng=ScriptedSource({}))
        threshold = float(weights @ self._view(noiseless, streams[1], look)) + beyond
        margin = 1e-9 * (1.0 + abs(threshold))

        def happens(first: bool) -> bool:
            view = self._view(Monitor(self.algorithm), streams[0 if first else 1], look)
            return float(weights @ view) >= threshold - margin

        return Trial(event=f"a weighted sum of {weights.size} numbers seen passes a threshold", happens=happens)

    def _view(self, monitor: Monitor[Any], stream: Stream, look: int | None) -> Numbers:
        """Return all numbers of the view, outputs first and the state last, as `linear_views` does."""
        shown: list[Numbers] = []
        state: list[Numbers] = [private_numbers(restore_snapshot(monitor))] if look == 0 else []
        for position, step in enumerate(stream, start=1):
            for kind, item in _run(monitor, (step,), None):
                shown.append(private_numbers(item) if kind == "state" else self.published(monitor.state, item))
            if position == look:
                state.append(private_numbers(restore_snapshot(monitor)))
        return np.concatenate([*shown, *state]) if shown or state else np.zeros(0)


def _cheapest_move(view: LinearView, shift: Numbers) -> tuple[float, Numbers]:
    """Return min sum kappa·|z| subject to matrix·z = shift, and the dual solution.

    The minimum is the loss (docs/proofs/continual-tree.md, Lemma 1), inf if there is no solution. The dual solution
    weighs the numbers of the view so that their sum distinguishes the two streams best.
    """
    matrix = view.matrix
    kappas = view.kappas
    if not np.any(shift):
        return 0.0, np.zeros(shift.size)
    # The part of the shift that no noise can hide, scaled so that it moves by 1.
    rest = shift - matrix @ np.linalg.lstsq(matrix, shift, rcond=None)[0] if matrix.shape[1] else shift
    if np.abs(rest).max() > 1e-7 * np.abs(shift).max():
        return math.inf, rest / float(rest @ shift)
    solution = scipy_function("optimize", "linprog", "the audit of Laplace counters")(
        np.concatenate([kappas, kappas]),
        A_eq=np.hstack([matrix, -matrix]),
        b_eq=shift,
        bounds=(0, None),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solution.status == 2:
        return math.inf, shift / float(shift @ shift)
    if solution.status != 0:
        raise ArithmeticError(f"the linear program was not solved: {solution.message}")
    return float(solution.fun), np.asarray(solution.eqlin.marginals, np.float64)


def gaussian_loss(shift: Numbers, covariance: Numbers) -> float:
    """Return rho = ½·Δᵀ·Σ⁻¹·Δ, the exact zero-concentrated loss of a view with Gaussian noise of this covariance.

    >>> gaussian_loss(np.array([1.0, 1.0]), np.diag([2.0, 4.0]))
    0.375
    """
    spread = np.sqrt(np.diag(covariance))  # numbers may have different units: each is divided by its own
    spread[spread == 0.0] = 1.0
    shift = shift / spread
    covariance = covariance / np.outer(spread, spread)
    solved = np.linalg.lstsq(covariance, shift, rcond=None)[0]
    if np.abs(covariance @ solved - shift).max(initial=0.0) > 1e-9 * np.abs(shift).max(initial=1.0):
        return math.inf
    return float(shift @ solved) / 2


def case_of(
    algorithm: Any,
    streams: Sequence[Stream] = (),
    *,
    window: tuple[int, int],
    name: str | None = None,
    claimed: float | None = None,
    looks: tuple[int | None, ...] | None = None,
    scenarios: Sequence[Scenario] = (),
    **options: Any,
) -> Case:
    """Return a case for an algorithm, by enumeration: any two of ``streams`` are neighbours; or several ``scenarios``.

    The state must be small (a few bits or residues) and every draw must come from the ``rng`` argument. ``window``
    bounds the noisy integers, as in `Enumerator`. ``options`` are fields of the case.
    """
    exact = Enumeration(algorithm, window, scenarios or [Scenario(streams, looks)])
    return _case(algorithm, exact, name, claimed, options)


def linear_case(
    algorithm: Any,
    stream: Sequence[Step],
    neighbours: Sequence[Sequence[Step]],
    *,
    name: str | None = None,
    claimed: float | None = None,
    looks: tuple[int | None, ...] | None = None,
    published: Published = published_numbers,
    amplitude: int = 1,
    **options: Any,
) -> Case:
    """Return a case for a counter, by linear program: ``neighbours`` are all neighbours of ``stream``.

    All published and stored numbers must be linear in the noise. ``options`` are fields of the case.
    """
    exact = LinearProgram(algorithm, stream, neighbours, looks, published, amplitude)
    return _case(algorithm, exact, name, claimed, options)


def with_update_replaced(stream: Sequence[Step], *steps: Step) -> list[list[Step]]:
    """Return the streams in which one of ``steps`` replaces one of the updates of ``stream``."""
    indices = [index for index, step in enumerate(stream) if step.verb == "update"]
    return [[*stream[:index], step, *stream[index + 1 :]] for index in indices for step in steps]


def _case(algorithm: Any, exact: Any, name: str | None, claimed: float | None, options: dict[str, Any]) -> Case:
    case_options = {"kind": "production", "algorithm": algorithm, "sampled": True, "quick_runs": 500, **options}
    claimed = algorithm.claim().epsilon if claimed is None else claimed
    return Case(name=name or type(algorithm).__name__, claimed=claimed, exact=exact, **case_options)


def restore_snapshot(monitor: Monitor[Any]) -> Any:
    """Return the state as an attacker reads it from the bytes of a copied snapshot."""
    algorithm = monitor.algorithm
    try:
        layout = algorithm.layout()
    except NotSupported:  # literal forms with real numbers: their memory is copied instead
        return copy.deepcopy(monitor.state)
    return codec.decode(monitor.to_bytes(), algorithm.state_type, layout)


def _run(monitor: Monitor[Any], stream: Sequence[Step], look: int | None) -> list[tuple[str, Any]]:
    """Run the steps of a stream; return the view in order, as ("state", snapshot) and ("output", result)."""
    seen: list[tuple[str, Any]] = [("state", restore_snapshot(monitor))] if look == 0 else []
    for position, step in enumerate(stream, start=1):
        if step.verb == "update":
            step.call(monitor.update)
        elif step.verb in ("refresh", "copied", "late_refresh"):
            if step.verb != "late_refresh":
                seen.append(("state", restore_snapshot(monitor)))
            if step.verb != "copied":
                monitor.refresh(rows_since_copy=False)
        elif step.verb in ("release", "tick", "tick_many"):
            seen.append(("output", getattr(monitor, step.verb)(*step.describe().values())))
        else:  # a method of this algorithm, such as a merge
            with monitor._step() as rng:
                result = getattr(monitor.algorithm, step.verb)(monitor.state, *step.describe().values(), rng)
            if isinstance(result, Estimate):
                seen.append(("output", result))
        if position == look:
            seen.append(("state", restore_snapshot(monitor)))
    return seen


def _format_streams(streams: tuple[Stream, Stream], look: int | None) -> str:
    """Format two neighbouring streams, the more likely one first, and when the state was copied."""
    both = " against ".join("[" + " ".join(_step(step) for step in stream) + "]" for stream in streams)
    return f"{both}; " + ("outputs only" if look is None else f"state copied after step {look}")


def _format_view(view: tuple[Any, ...]) -> str:
    return _short(", ".join(_format_part(part) for part in view), _MAX_VIEW_LENGTH)


def _step(step: Step) -> str:
    arguments = list(step.describe().values())
    if step.verb == "update":
        return "+".join("·" if value == [] else _value(value) for value in arguments)
    return step.verb if not arguments else f"{step.verb}{_value(arguments[0])}"


def _value(value: Any) -> str:
    return _short(str(value).replace(" ", ""), 24)


def _short(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _format_part(part: Any) -> str:
    if part and part[0] == "release":
        return f"output {list(part[1]) if part[1] else round(part[2], 4)}"
    shown = []
    for field in part:
        if len(field) == 3:
            name, shape, raw = field
            count = int(np.prod(shape))
            if count:
                size = len(raw) // count
                numbers = np.frombuffer(raw, f"i{size}") if size in (2, 4, 8) else np.frombuffer(raw, np.uint8)
                shown.append(f"{name} {numbers.tolist()}")
        elif field[0] != "released":
            shown.append(f"{field[0]} {field[1]}")
    return "state " + " ".join(shown)


def presence_scenarios(
    *actions: Step, releases: int = 1, announced: int = 0, others: Step | None = None
) -> list[Scenario]:
    """Return streams in which one user acts in every free slot, with the release last, and also between two slots."""
    prefix: list[Step | None] = [] if others is None else [others]
    published = [release()] * releases
    last: list[Step | None] = [*prefix, *([None, refresh()] * announced), None, None, *published]
    if announced:
        return [Scenario(enumerate_streams(last, actions), (None, *range(2 * announced, len(last) + 1)))]
    between: list[Step | None] = [*prefix, None, published[0], None, *published[1:]]
    return [Scenario(enumerate_streams(last, actions)), Scenario(enumerate_streams(between, actions))]
