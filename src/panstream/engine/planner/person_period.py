"""What one person can lose over a period to all queries of a configuration and one intrusion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from panstream.algorithms.continual_users.retained_bitmap import RetainedBitmap
from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.engine.config.config import Config, StreamConfig
from panstream.engine.planner.bounded_rows import bounded_by
from panstream.errors import BudgetExceeded
from panstream.privacy.person_history import AskedQuery
from panstream.privacy.person_loss import PersonShare, PersonTotal, WindowLoss

if TYPE_CHECKING:
    from panstream.engine.planner.query_plan import QueryPlan


def planned_person_total(config: Config, plans: Sequence[QueryPlan]) -> PersonTotal:
    """Return the total of any period in which the configuration stays as it is, and one process keeps its states.

    Args:
        config: The configuration.
        plans: The plans of its queries.
    """
    budget = config.stream.person
    shares = tuple(person_share(plan, config.stream, budget.period) for plan in plans)
    return PersonTotal(period=budget.period, shares=shares, limit=budget.epsilon, delta=budget.delta)


def check_person_budget(config: Config, plans: Sequence[QueryPlan]) -> None:
    """Raise BudgetExceeded if a budget for one person is declared and cannot be met."""
    total = planned_person_total(config, plans)
    if total.limit is None:
        return
    allowed = config.stream.person.allow_unbounded
    for plan, share in zip(plans, total.shares, strict=True):
        if math.isinf(share.epsilon) and plan.config.statement not in allowed:
            raise BudgetExceeded(f"[stream.budget] person: {not_bounded(share)}")
    bounded = total.bounded
    if total.delta and bounded.stated_delta > total.delta:
        raise BudgetExceeded(
            f"[stream.budget] delta: the deltas of all windows add up to {bounded.stated_delta:.3g}, of "
            f"{total.delta:g}: lower the delta of a query"
        )
    if bounded.epsilon > total.limit * (1.0 + 1e-12):
        largest = max(bounded.shares, key=lambda share: share.epsilon)
        raise BudgetExceeded(
            f"[stream.budget] person: {bounded.text()}, of {total.limit:g}; {largest.name!r} takes "
            f"{largest.epsilon:.3g} of it: lower an epsilon, ask it in longer windows, or raise person"
        )


def not_bounded(share: PersonShare) -> str:
    """Return why a query cannot be part of a person's budget, and what to do."""
    return f"{share.name!r} {share.reason}; or name it in allow_unbounded, and no total is promised"


def person_share(plan: QueryPlan, stream: StreamConfig, period: float, *, sharded: bool = False) -> PersonShare:
    """Return what one query takes of a person's loss over a period.

    By the time of arrival, windows that are over are made unreadable before others are opened. Rows with times of their
    own can end some windows and begin others in one batch, and both are readable until the batch is on disk; so can
    every batch of a cluster, where states are ``sharded``.
    """
    claim = plan.claim
    name = plan.config.name
    if not claim.is_private:
        return PersonShare(name=name, loss=None, reason=f"has no privacy: {claim.note}")
    if claim.unit not in ("user", "user-window") or claim.adjacency != "add-remove":
        return PersonShare(name=name, loss=None, reason=_no_bound(plan, stream))
    shared = isinstance(plan.algorithm, SharedStatistic)  # a copy of one machine's shares adds nothing
    loss = WindowLoss.of_claim(plan.algorithm.claim()) if shared else plan.algorithm.window_loss()
    loss = loss.times(plan.groups_touched)
    return PersonShare.of_windows(
        name,
        loss,
        window=_shortest_window(plan),
        period=period,
        lateness=_lateness(plan, stream),
        overlap=windows_overlap(plan, stream, sharded=sharded),
        retained=plan.algorithm.retained_windows if isinstance(plan.algorithm, RetainedBitmap) else 0,
        bounded_by=bounded_by(plan.config, plan.algorithm),
        contributions=plan.config.contributions,
    )


def _shortest_window(plan: QueryPlan) -> float | None:
    """Return the length after which a query starts afresh, at least; None if it never does."""
    grid = plan.config.window_grid if plan.config.retention_window is None else plan.config.step_grid
    return plan.claim.window if plan.claim.window is None or grid is None else grid.shortest


def windows_overlap(plan: QueryPlan, stream: StreamConfig, *, sharded: bool = False) -> bool:
    """Return whether a copy can show windows that are over together with those that follow them.

    A state that outlives its windows is on disk as it was before the last ones, whatever ends them.
    """
    outlives = plan.config.retention_window is not None
    return "disk" in plan.claim.locations and (stream.time is not None or sharded or outlives)


def _lateness(plan: QueryPlan, stream: StreamConfig) -> float:
    """Return how long windows wait for late rows; those of RETENTION do not."""
    waits = stream.time is not None and plan.config.retention_window is None
    return stream.lateness if waits else 0.0


def _no_bound(plan: QueryPlan, stream: StreamConfig) -> str:
    """Return why nothing bounds the rows of one person, and what would."""
    per_window = " in a window" if plan.config.window is not None else ""
    if stream.user is None:
        return (
            f"protects single {plan.claim.unit}s, and no column identifies the user, so a person's rows are not limited"
        )
    return (
        f"protects one {plan.claim.unit}: nothing limits the rows of one {stream.user} that it reads; give "
        f"contributions, the most rows of one {stream.user}{per_window}, or count DISTINCT {stream.user}"
    )


def person_word(config: Config) -> str:
    """Return what one person is called: whoever visits a site is known by an address and a browser only."""
    return "visitor" if config.web is not None else "user"


def continue_history(
    history: Sequence[AskedQuery],
    plans: Sequence[QueryPlan],
    config: Config,
    *,
    now: float | None,
    stored: bool,
    sharded: bool = False,
) -> tuple[AskedQuery, ...]:
    """Return what was asked, and is asked from now on.

    Args:
        history: What was asked before; queries in it without an end that are not planned any more end now.
        plans: What is asked from now on.
        config: Its configuration.
        now: The stream's time; None before its first row.
        stored: Whether states outlive the process; otherwise every query of ``history`` has ended.
        sharded: Whether states are on a cluster.
    """
    stream = config.stream
    start = None if stored else 1 + max((query.start or 0 for query in history), default=0)
    planned = [
        AskedQuery(
            share=person_share(plan, stream, stream.person.period, sharded=sharded),
            window=_shortest_window(plan),
            is_regular=plan.config.calendar is None,
            lateness=lateness,
            overlap=windows_overlap(plan, stream, sharded=sharded),
            begin=None if now is None else now - lateness,
            start=start,
        )
        for plan, lateness in ((plan, _lateness(plan, stream)) for plan in plans)
    ]
    unchanged = {_identity(query): query for query in history if query.end is None and stored and query.start is None}
    current = [unchanged.pop(_identity(query), query) for query in planned]
    over = [query for query in history if query.end is not None]
    end = None if now is None else math.nextafter(now, math.inf)  # it has read rows of that very time
    ended = [
        replace(query, end=end)
        for query in history
        if query.end is None and not any(query is other for other in current)
    ]
    return (*over, *ended, *current)


def _identity(query: AskedQuery) -> tuple[object, ...]:
    """Return what must be the same for a query to go on: a state that lost more begins another entry."""
    return query.share.name, query.share.loss, query.window, query.lateness, query.overlap
