"""What one row can lose to several queries together: a copy of all their states and all answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.engine.planner.query_plan import QueryPlan
from panstream.errors import InvalidParameter
from panstream.privacy.composition import zcdp_epsilon
from panstream.privacy.ledger import LedgerTotal
from panstream.privacy.rounding import round_up, sum_rounded_up


def event_loss(plans: Sequence[QueryPlan], delta: float) -> tuple[float, float]:
    """Return epsilon and delta of one row that all the plans read.

    Windows are disjoint, so a row is in one state of each query, or of each group. Losses of zCDP add up before they
    are converted at ``delta``; those of other queries are added as they are.

    Args:
        plans: Queries that protect single rows.
        delta: Delta at which zCDP is converted.

    Raises:
        InvalidParameter: A plan protects something else.
    """
    pure = []
    rhos = []
    deltas = []
    for plan in plans:
        if plan.claim.unit != "event":
            raise InvalidParameter(f"{plan.config.name!r} protects one {plan.claim.unit}, not one row")
        shared = isinstance(plan.algorithm, SharedStatistic)  # whose states lose nothing
        rho = None if shared else plan.algorithm.window_loss().rho_joint
        if rho is None:
            pure.append(plan.claim.epsilon)
            deltas.append(plan.claim.delta)
        else:
            rhos.append(rho)
    if not rhos:
        return sum_rounded_up(pure), sum_rounded_up(deltas)
    together = round_up(zcdp_epsilon(sum_rounded_up(rhos), delta))
    return sum_rounded_up([*pure, together]), sum_rounded_up([*deltas, delta])


def compose_events(total: LedgerTotal, plans: Sequence[QueryPlan]) -> LedgerTotal:
    """Return the total of one row with losses of zCDP composed instead of added up, at the same delta, if that is less.

    Args:
        total: A total of the ledger, which adds up the epsilons of all queries; of another unit, it is returned as it
            is.
        plans: The queries that it is of.
    """
    of_events = [plan for plan in plans if plan.claim.unit == "event" and plan.claim.adjacency == total.adjacency]
    delta = sum_rounded_up(plan.claim.delta for plan in of_events)
    if total.unit != "event" or total.reason or not delta:
        return total
    composed, composed_delta = event_loss(of_events, delta)
    names = {plan.config.name for plan in of_events}
    epsilon = sum_rounded_up([composed, *(loss for name, loss in total.parts if name not in names)])
    return replace(total, epsilon=epsilon) if epsilon < total.epsilon and composed_delta <= total.delta else total
