"""Notes on an answer: what each group costs, how a bound on a user's rows affects it, what ``expected`` would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.engine.planner.query_plan import QueryPlan
from panstream.privacy.rounding import sum_rounded_up

_WORTHWHILE = 1.5  # times smaller: from here on a smaller error is worth a note


def size_notes(plans: Sequence[QueryPlan], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note on the error that a count of different users would have if its size had been expected.

    It is computed from the published answers, so it reveals nothing more.
    """
    if len(plans) != 1 or not isinstance(plans[0].algorithm, Bitmap):
        return []
    plan = plans[0]
    largest = max((row["estimate"] or 0.0 for row in rows), default=0.0)
    if plan.config.expected is not None or plan.config.universe is not None or largest < 1:
        return []
    size = float(f"{largest:.1g}")
    usual = plan.algorithm.relative_error(size)
    better = DistinctCount(
        plan.config.epsilon, expected=size, memory=plan.config.memory, releases=plan.algorithm.releases, mergeable=True
    )
    if better.choice.error / size * _WORTHWHILE > usual:
        return []
    return [
        f"no number of users was expected: at {size:,.0f} users the standard error is {usual:.2%}, and with "
        f"expected = {size:,.0f} it would be {better.choice.error / size:.2%}"
    ]


def shares_text(plans: Sequence[QueryPlan]) -> str:
    """Return the epsilon of each group, where one user can be in several, as text."""
    by_groups: dict[int, list[float]] = {}
    for plan in plans:
        by_groups.setdefault(plan.groups_touched, []).append(plan.config.epsilon)
    grouped = {groups: epsilons for groups, epsilons in by_groups.items() if groups > 1}
    return "; ".join(
        f"{sum_rounded_up(epsilons):.6g} in each of {groups} groups" for groups, epsilons in grouped.items()
    )


def contribution_notes(plans: Sequence[QueryPlan], batch_rows: int | None) -> list[str]:
    """Return notes on how a bound on the rows of one user affects the answers."""
    labels: dict[str, None] = {}
    batch = "batch" if batch_rows is None else f"batch of up to {batch_rows:,} rows"
    for plan in plans:
        rows = plan.config.contributions
        if rows is None or plan.config.parsed.aggregate.of_users:
            continue
        if plan.config.names is not None:
            labels[f"a user with more than {rows:,} rows is counted with all of them, and loses more"] = None
            continue
        per = "user" + (" and group" if len(plan.groups) > 1 else "") + (" and window" if plan.config.window else "")
        labels[
            f"counting at most {rows:,} rows per {per}, in each {batch} that is read: rows beyond are missing from the "
            "answer, and a user with more rows in several batches loses more"
        ] = None
    return list(labels)
