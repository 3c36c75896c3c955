"""The state that all counters of this room share: open accumulators, released sums, and public counts of their draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.codec import FieldLayout, noise, noised, public
from panstream.randomness import DiscreteLaplace, Source
from panstream.refresh import refresh_accumulators

__all__ = ["IDLE", "Shape", "TickState", "empty_state", "refresh_state", "state_layout"]

IDLE = -1  # number of draws of an accumulator that is not open

Shape = tuple[int, int, int]
"""How many accumulators, released sums and kept noises there are."""


@dataclass(slots=True)
class TickState:
    """What the machine holds between two steps, and all an intruder can copy."""

    open: NDArray[np.int64] = noised()  # accumulators; one that is not open holds 0
    closed: NDArray[np.int64] = noised()  # released sums that later answers need
    kept: NDArray[np.int64] = noise()  # noise of open segments, where the proof counts it in the view
    open_draws: NDArray[np.int64] = public()  # how many draws each one holds, or IDLE
    closed_draws: NDArray[np.int64] = public()
    kept_draws: NDArray[np.int64] = public()
    time: int = public()  # slots closed so far


def empty_state(shape: Shape) -> TickState:
    """Return a state in which nothing is open and nothing was released."""
    accumulators, closed, kept = shape
    return TickState(
        open=np.zeros(accumulators, np.int64),
        closed=np.zeros(closed, np.int64),
        kept=np.zeros(kept, np.int64),
        open_draws=np.full(accumulators, IDLE, np.int64),
        closed_draws=np.zeros(closed, np.int64),
        kept_draws=np.full(kept, IDLE, np.int64),
        time=0,
    )


def state_layout(shape: Shape, horizon: int) -> dict[str, FieldLayout]:
    """Return what the fields of a state of this shape look like."""
    accumulators, closed, kept = shape
    return {
        "open": FieldLayout("i8", (accumulators,)),
        "closed": FieldLayout("i8", (closed,)),
        "kept": FieldLayout("i8", (kept,)),
        "open_draws": FieldLayout("i8", (accumulators,), at_least=IDLE),
        "closed_draws": FieldLayout("i8", (closed,), at_least=0),
        "kept_draws": FieldLayout("i8", (kept,), at_least=IDLE),
        "time": FieldLayout("int", at_least=0, below=horizon + 1),
    }


def refresh_state(state: TickState, law: DiscreteLaplace, source: Source) -> None:
    """Add fresh noise to every open accumulator and every kept noise."""
    for values, draws in ((state.open, state.open_draws), (state.kept, state.kept_draws)):
        is_open = draws != IDLE
        seen = source.scratch.array(int(is_open.sum()), np.int64)
        np.compress(is_open, values, out=seen)
        refresh_accumulators(seen, law, source)
        values[is_open] = seen
        draws[is_open] += 1
