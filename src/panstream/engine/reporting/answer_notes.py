"""Notes on an answer: what each group costs, and how a bound on the rows of one user affects it."""

from __future__ import annotations

from collections.abc import Sequence

from panstream.engine.planner.query_plan import QueryPlan
from panstream.privacy.rounding import sum_rounded_up


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
