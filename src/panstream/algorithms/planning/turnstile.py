"""Counters for integer inserts and deletes: their errors in inverse pairs, and a table of all that answer a question.

===================================  ==================================================================
``counter_error(counter, beta)``     the error that is exceeded with probability at most ``beta``
``counter_epsilon(counter, error)``  the smallest epsilon with at most that error
``turnstile_plan(question, ...)``    every counter that can answer the question, the best first
===================================  ==================================================================
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from panstream.algorithms.planning.tables import PlanTable, column, format_count
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.modular_counter import ModularCounter
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.algorithms.turnstile.statistic import DISTINCT, Statistic
from panstream.core.estimate import format_number
from panstream.errors import InvalidParameter
from panstream.privacy.claim import Adjacency
from panstream.privacy.numeric_search import smallest_positive

Question = Literal["distinct", "cropped sum", "heavy hitters"]
MAX_EPSILON = 50.0
_PROFILE_LARGEST = 1 << 16


_three_digits = functools.partial(format_number, digits=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnstilePlanRow:
    """One counter: its error at ``beta``, the expected bias from collisions, and its memory."""

    name: str = column("counter")
    setting: str = column("setting")
    error: float = column("error", _three_digits, right=True)
    bias: float = column("bias", _three_digits, right=True)
    state_bytes: int = column("state bytes", format_count, right=True)
    useful: bool = column("useful", lambda useful: "yes" if useful else "no", default=True)
    note: str = column("note")


def counter_error(counter: ModularCounter, beta: float = 0.05, *, users: int | None = None) -> float:
    """Return the error of a counter that is exceeded with probability at most ``beta``.

    Args:
        counter: The counter.
        beta: Probability that the error is exceeded.
        users: Number of users, on which the error of hash buckets depends.

    >>> round(counter_error(LegendreCounter(universe=20_000, epsilon=1.0), 0.05))
    666
    """
    if users is not None and isinstance(counter, LegendreCounter) and counter.placement.open:
        return counter.error_at(users, beta=beta)
    return counter.error_bound(beta=beta)


def counter_epsilon(counter: ModularCounter, error: float, beta: float = 0.05, *, users: int | None = None) -> float:
    """Return the smallest epsilon with at most ``error``, the counter being the same otherwise.

    >>> round(counter_epsilon(LegendreCounter(universe=20_000, epsilon=9.0), 666.3), 2)
    1.0
    """

    def suffices(epsilon: float) -> bool:
        return counter_error(replace(counter, epsilon=epsilon), beta, users=users) <= error

    if not suffices(MAX_EPSILON):
        raise InvalidParameter(f"error={error:g} is not reached at any epsilon up to {MAX_EPSILON:g}")
    return smallest_positive(suffices, 1e-5, MAX_EPSILON, 1e-10)


def turnstile_plan(
    question: Question,
    *,
    epsilon: float,
    users: int,
    universe: int | None = None,
    largest: int = 1 << 40,
    crop: int | None = None,
    threshold: int | None = None,
    total_weight: int | None = None,
    min_net_weight: int | None = None,
    releases: int = 1,
    adjacency: Adjacency = "add-remove",
    beta: float = 0.05,
) -> PlanTable:
    """Compare every counter that can answer ``question`` about ``users`` users, the smallest error and bias first.

    ``universe`` is the size of a known universe, None if ids are of any kind; ``largest`` bounds |net weight|; ``crop``
    belongs to cropped sums; ``threshold``, ``total_weight`` (a public bound on the sum of all weights) and
    ``min_net_weight`` (the lowest net weight that a user may end with; None if no row takes away) to heavy hitters.

    >>> plan = turnstile_plan("cropped sum", epsilon=1.0, users=20_000, universe=20_000, crop=16, largest=160)
    >>> plan.rows[0].name, plan.rows[0].useful
    ('BlockCounter', True)
    """
    if users < 1 or (universe is not None and users > universe):
        raise InvalidParameter(f"users must be in 1..universe={universe}, got users={users}")
    common: dict[str, Any] = {"epsilon": epsilon, "releases": releases, "adjacency": adjacency}
    if question == "distinct":
        answer = float(users)
        rows = _distinct(common, users, universe, largest, beta)
    elif question == "cropped sum":
        if crop is None:
            raise InvalidParameter("crop must be given for a cropped sum")
        answer = float(users * crop)
        rows = _cropped(common, users, universe, largest, crop, beta)
    elif question == "heavy hitters":
        if threshold is None:
            raise InvalidParameter("threshold must be given for heavy hitters")
        answer = float(users if total_weight is None else min(users, total_weight // threshold))
        if universe is None and (min_net_weight or 0) < 0:
            raise InvalidParameter(
                "universe must be given where net weights may end below 0, got "
                f"min_net_weight={min_net_weight}: in a shared bucket they "
                "would cancel others"
            )
        rows = _heavy(common, universe, (min_net_weight, largest), threshold, total_weight, answer, beta)
    else:
        raise InvalidParameter(f"question must be distinct, cropped sum or heavy hitters, got question={question!r}")
    ordered = sorted(rows, key=_total_error)
    return PlanTable(
        title=f"{question}, {users:,} users, epsilon {epsilon:g} in total, error exceeded with probability at most "
        f"{beta:g}; the answer can be at most {_three_digits(answer)}",
        asked={"question": question, "epsilon": epsilon, "beta": beta, "users": users, "largest_answer": answer},
        rows=tuple(replace(row, useful=_total_error(row) < answer) for row in ordered),
        kind=TurnstilePlanRow,
    )


def _distinct(
    common: dict[str, Any], users: int, universe: int | None, largest: int, beta: float
) -> Iterator[TurnstilePlanRow]:
    if universe is not None:
        yield _row(LegendreCounter(universe=universe, **common), f"universe={universe}", beta)
        if largest <= _PROFILE_LARGEST:
            yield _profile(common, universe, largest, DISTINCT, beta)
    yield min((_hashed(common, users, 1 << power, beta) for power in range(6, 17)), key=lambda row: row.error)


def _hashed(common: dict[str, Any], users: int, buckets: int, beta: float) -> TurnstilePlanRow:
    levels = max(1, math.ceil(math.log2(users / buckets)) + 1) if users > buckets else 1
    counter = LegendreCounter(buckets=buckets, levels=levels, **common)
    note = "ids of any kind; small bias of maximum likelihood"
    return _row(counter, f"buckets={buckets}, levels={levels}", beta, users=users, note=note)


def _cropped(
    common: dict[str, Any], users: int, universe: int | None, largest: int, crop: int, beta: float
) -> Iterator[TurnstilePlanRow]:
    if universe is not None:
        counter = BlockCounter(universe=universe, crop=crop, largest=largest, **common)
        yield _row(counter, f"universe={universe}, prime={counter.prime}", beta)
        if largest <= _PROFILE_LARGEST:
            yield _profile(common, universe, largest, Statistic.cropped_moment(1, crop), beta)
    spread = (_shared(common, users, users << power, largest, crop, beta) for power in range(8))
    yield min(spread, key=_total_error)


def _shared(common: dict[str, Any], users: int, buckets: int, largest: int, crop: int, beta: float) -> TurnstilePlanRow:
    counter = BlockCounter(buckets=buckets, crop=crop, largest=largest, **common)
    read = buckets * crop * -math.expm1(-users / buckets)  # all users at the crop, where collisions hide most
    note = "ids of any kind, weights of one sign"
    return _row(counter, f"buckets={buckets}", beta, bias=users * crop - read, note=note)


def _heavy(
    common: dict[str, Any],
    universe: int | None,
    between: tuple[int | None, int],
    threshold: int,
    total_weight: int | None,
    answer: float,
    beta: float,
) -> Iterator[TurnstilePlanRow]:
    useless = f"useless: at most {answer:,.0f} can be heavy, the noise of order sqrt(k)/epsilon hides them"

    def note(row: TurnstilePlanRow, otherwise: str) -> TurnstilePlanRow:
        return replace(row, note=otherwise if _total_error(row) < answer else useless)

    min_net_weight, largest = between
    if universe is not None:
        counter = HeavyHitterCount(
            universe=universe, threshold=threshold, min_net_weight=min_net_weight, largest=largest, **common
        )
        yield note(_row(counter, f"universe={universe}, prime={counter.prime}", beta), _reach(counter))
        furthest = max(largest, -(min_net_weight or 0))
        if furthest <= _PROFILE_LARGEST:
            yield note(
                _profile(common, universe, furthest, Statistic.heavy_hitters(threshold), beta),
                "a point at any threshold",
            )
    if total_weight is not None and (min_net_weight or 0) >= 0:
        best = min(
            (_bucketed(common, 1 << power, largest, threshold, total_weight, beta) for power in range(4, 26)),
            key=_total_error,
        )
        counter = HeavyHitterCount(buckets=1, threshold=threshold, **common)
        yield note(best, f"ids of any kind; {_reach(counter)}")


def _total_error(row: TurnstilePlanRow) -> float:
    return row.error + row.bias


def _reach(counter: HeavyHitterCount) -> str:
    """Return a note on the kind of answer that a heavy-hitter count gives."""
    if not counter.bracketed:
        return "a step for every weight: a point"
    near = f"those from {counter.light + 1} to {counter.threshold + counter.width - 1}"
    return f"an interval without a point, wider by the number of {near}"


def _bucketed(
    common: dict[str, Any], buckets: int, largest: int, threshold: int, total_weight: int, beta: float
) -> TurnstilePlanRow:
    top = min(largest, total_weight)
    counter = HeavyHitterCount(buckets=buckets, threshold=threshold, largest=top, total_weight=total_weight, **common)
    return _row(counter, f"buckets={buckets}, prime={counter.prime}", beta, bias=counter.collision_bias())


def _profile(
    common: dict[str, Any], universe: int, largest: int, statistic: Statistic, beta: float
) -> TurnstilePlanRow:
    sketch = ProfileSketch(universe=universe, largest=largest, **common)
    row = _row(sketch, f"universe={universe}, prime={sketch.prime}", beta, note="answers every other question too")
    return replace(row, error=sketch.error_of(statistic, beta=beta))


def _row(
    counter: ModularCounter, setting: str, beta: float, *, users: int | None = None, bias: float = 0.0, note: str = ""
) -> TurnstilePlanRow:
    return TurnstilePlanRow(
        name=type(counter).__name__,
        setting=setting,
        error=counter_error(counter, beta, users=users),
        bias=bias,
        state_bytes=8 * counter.cells,
        note=note,
    )
