"""The error of a second moment or an inner product by protected unit, and where noise exceeds the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from panstream.algorithms.continual_users.continual_moments import ContinualInnerProduct, ContinualSecondMoment
from panstream.algorithms.planning.tables import PlanTable, column, format_count
from panstream.algorithms.turnstile.inner_product import InnerProduct
from panstream.algorithms.turnstile.second_moment import SecondMoment
from panstream.errors import SignalBelowNoise

_USERS = (2, 5, 10, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsPlanRow:
    """One statistic at one unit; without figures if its parameters are refused."""

    name: str = column("question")
    protects: str = column("protects")
    error: float | None = column("error", lambda part: "-" if part is None else f"{part:.2%}", right=True, default=None)
    buckets: int | None = column("buckets", format_count, right=True, default=None)
    state_bytes: int | None = column("state bytes", format_count, right=True, default=None)
    note: str = column("note", default="")


def moments_plan(
    *,
    epsilon: float,
    expected: float,
    max_weight: int = 1,
    contributions: Sequence[int] = _USERS,
    releases: int = 1,
    beta: float = 0.05,
) -> PlanTable:
    """Compare the errors for one event and for users with at most some rows, at an L2 norm of ``expected``.

    The error is that of the noisiest release, in parts of the squared norm; of the norm itself it is half as large. For
    several releases the sketches on a tree are listed, too.

    >>> plan = moments_plan(epsilon=1.0, expected=490.0)
    >>> plan.rows[0].protects, round(plan.rows[0].error, 3), plan.rows[4].note
    ('one event', 0.024, 'refused: drowns in noise')
    """

    kinds: tuple[type[SecondMoment] | type[InnerProduct], ...] = (SecondMoment, InnerProduct)
    if releases > 1:
        kinds = (SecondMoment, ContinualSecondMoment, InnerProduct, ContinualInnerProduct)

    def row(kind: type[SecondMoment] | type[InnerProduct], max_rows: int | None) -> MomentsPlanRow:
        protects = "one event" if max_rows is None else f"a user of at most {max_rows} rows"
        try:
            sketch = kind(
                epsilon=epsilon, expected=expected, max_weight=max_weight, contributions=max_rows, releases=releases
            )
        except SignalBelowNoise:
            return MomentsPlanRow(name=kind.__name__, protects=protects, note="refused: drowns in noise")
        return MomentsPlanRow(
            name=kind.__name__,
            protects=protects,
            error=sketch.error_bound(beta=beta) / expected**2,
            buckets=sketch.buckets,
            state_bytes=16 * sketch.streams * sketch.width * _levels(sketch),
        )

    rows = [row(kind, max_rows) for kind in kinds for max_rows in (None, *contributions)]
    return PlanTable(
        title=f"moments at an L2 norm of {expected:,g}, epsilon {epsilon:g} in total; error as a share of the squared "
        f"norm, exceeded with probability at most {beta:g}",
        asked={"epsilon": epsilon, "beta": beta, "expected": expected, "releases": releases},
        rows=tuple(rows),
        kind=MomentsPlanRow,
        bounds=("No lower bound with a constant is known for second moments and joins under one copy of the state.",),
    )


def _levels(sketch: SecondMoment | InnerProduct) -> int:
    return (sketch.levels or 1) if isinstance(sketch, ContinualSecondMoment | ContinualInnerProduct) else 1
