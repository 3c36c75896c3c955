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

from panstream.algorithms.planning.lower_bounds import independent_parts_bound
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
    planner = _Planner(users=users, universe=universe, largest=largest, beta=beta, common=common)
    if question == "distinct":
        answer = float(users)
        rows = planner.distinct()
    elif question == "cropped sum":
        if crop is None:
            raise InvalidParameter("crop must be given for a cropped sum")
        answer = float(users * crop)
        rows = planner.cropped(crop)
    elif question == "heavy hitters":
        if threshold is None:
            raise InvalidParameter("threshold must be given for heavy hitters")
        answer = float(users if total_weight is None else min(users, total_weight // threshold))
        if universe is None and (min_net_weight or 0) < 0:
            raise InvalidParameter(
                f"universe must be given where net weights may end below 0, got min_net_weight={min_net_weight}: in a "
                "shared bucket they would cancel others"
            )
        rows = planner.heavy(threshold, min_net_weight, total_weight, answer)
    else:
        raise InvalidParameter(f"question must be distinct, cropped sum or heavy hitters, got question={question!r}")
    ordered = sorted(rows, key=_total_error)
    return PlanTable(
        title=f"{question}, {users:,} users, epsilon {epsilon:g} in total, error exceeded with probability at most "
        f"{beta:g}; the answer can be at most {_three_digits(answer)}",
        asked={"question": question, "epsilon": epsilon, "beta": beta, "users": users, "largest_answer": answer},
        rows=tuple(replace(row, useful=_total_error(row) < answer) for row in ordered),
        kind=TurnstilePlanRow,
        bounds=(str(independent_parts_bound(epsilon, users, float(crop or 1))),) if adjacency == "add-remove" else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """What all candidates for one question share; a method per question yields their rows."""

    users: int
    universe: int | None
    largest: int
    beta: float
    common: dict[str, Any]  # parameters of every counter

    def distinct(self) -> Iterator[TurnstilePlanRow]:
        if self.universe is not None:
            yield self._row(LegendreCounter(universe=self.universe, **self.common), f"universe={self.universe}")
            yield from self._profile(self.largest, DISTINCT)
        yield min((self._distinct_in_buckets(1 << power) for power in range(6, 17)), key=lambda row: row.error)

    def _distinct_in_buckets(self, buckets: int) -> TurnstilePlanRow:
        levels = max(1, math.ceil(math.log2(self.users / buckets)) + 1) if self.users > buckets else 1
        counter = LegendreCounter(buckets=buckets, levels=levels, **self.common)
        note = "ids of any kind; small bias of maximum likelihood"
        return self._row(counter, f"buckets={buckets}, levels={levels}", note=note)

    def cropped(self, crop: int) -> Iterator[TurnstilePlanRow]:
        if self.universe is not None:
            counter = BlockCounter(universe=self.universe, crop=crop, largest=self.largest, **self.common)
            yield self._row(counter, f"universe={self.universe}, prime={counter.prime}")
            yield from self._profile(self.largest, Statistic.cropped_moment(1, crop))
        yield min((self._cropped_in_buckets(self.users << power, crop) for power in range(8)), key=_total_error)

    def _cropped_in_buckets(self, buckets: int, crop: int) -> TurnstilePlanRow:
        counter = BlockCounter(buckets=buckets, crop=crop, largest=self.largest, **self.common)
        # With all users at the crop collisions hide most of the sum.
        read = buckets * crop * -math.expm1(-self.users / buckets)
        note = "ids of any kind, weights of one sign"
        return self._row(counter, f"buckets={buckets}", bias=self.users * crop - read, note=note)

    def heavy(
        self, threshold: int, min_net_weight: int | None, total_weight: int | None, answer: float
    ) -> Iterator[TurnstilePlanRow]:
        useless = f"useless: at most {answer:,.0f} can be heavy, the noise of order sqrt(k)/epsilon hides them"

        def note(row: TurnstilePlanRow, otherwise: str) -> TurnstilePlanRow:
            return replace(row, note=otherwise if _total_error(row) < answer else useless)

        if self.universe is not None:
            counter = HeavyHitterCount(
                universe=self.universe,
                threshold=threshold,
                min_net_weight=min_net_weight,
                largest=self.largest,
                **self.common,
            )
            yield note(self._row(counter, f"universe={self.universe}, prime={counter.prime}"), _reach(counter))
            furthest = max(self.largest, -(min_net_weight or 0))
            for row in self._profile(furthest, Statistic.heavy_hitters(threshold)):
                yield note(row, "a point at any threshold")
        if total_weight is not None and (min_net_weight or 0) >= 0:
            rows = (self._heavy_in_buckets(1 << power, threshold, total_weight) for power in range(4, 26))
            counter = HeavyHitterCount(buckets=1, threshold=threshold, **self.common)
            yield note(min(rows, key=_total_error), f"ids of any kind; {_reach(counter)}")

    def _heavy_in_buckets(self, buckets: int, threshold: int, total_weight: int) -> TurnstilePlanRow:
        top = min(self.largest, total_weight)
        counter = HeavyHitterCount(
            buckets=buckets, threshold=threshold, largest=top, total_weight=total_weight, **self.common
        )
        return self._row(counter, f"buckets={buckets}, prime={counter.prime}", bias=counter.collision_bias())

    def _profile(self, largest: int, statistic: Statistic) -> Iterator[TurnstilePlanRow]:
        """Yield the row of a profile sketch, unless it would publish too many numbers."""
        if largest <= _PROFILE_LARGEST:
            sketch = ProfileSketch(universe=self.universe, largest=largest, **self.common)
            setting = f"universe={self.universe}, prime={sketch.prime}"
            row = self._row(sketch, setting, note="answers every other question too")
            yield replace(row, error=sketch.error_of(statistic, beta=self.beta))

    def _row(self, counter: ModularCounter, setting: str, *, bias: float = 0.0, note: str = "") -> TurnstilePlanRow:
        return TurnstilePlanRow(
            name=type(counter).__name__,
            setting=setting,
            error=counter_error(counter, self.beta, users=self.users),
            bias=bias,
            state_bytes=8 * counter.cells,
            note=note,
        )


def _total_error(row: TurnstilePlanRow) -> float:
    return row.error + row.bias


def _reach(counter: HeavyHitterCount) -> str:
    """Return a note on the kind of answer that a heavy-hitter count gives."""
    if not counter.bracketed:
        return "a step for every weight: a point"
    near = f"those from {counter.light + 1} to {counter.threshold + counter.width - 1}"
    return f"an interval without a point, wider by the number of {near}"
