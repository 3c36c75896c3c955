"""A table of all density estimators: the users, the memory and the privacy loss that each needs for one accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from panstream.algorithms.planning.density import accuracy, failure_probability, sample_size
from panstream.algorithms.planning.density_published import (
    DWORK,
    LAPLACE,
    STATIC_ESTIMATORS,
    PublishedEstimator,
    ppds_capacity,
    ppds_level,
    roth_sample_size,
)
from panstream.algorithms.planning.lower_bounds import independent_parts_bound
from panstream.algorithms.planning.tables import PlanTable, column, format_count
from panstream.errors import InvalidParameter

TOO_FEW = "needs more users than exist"


def _share(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.2%}" if share <= 1 else f"{share:,.1f} x"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What one estimator needs. Figures are ``None`` if no number of users suffices."""

    name: str = column("estimator")
    users: int | None = column("users", format_count, right=True, default=None)
    share: float | None = column("of universe", _share, right=True, default=None)
    feasible: bool = False
    state_bytes: int | None = column("state bytes", format_count, right=True, default=None)
    id_bytes: int | None = column("id bytes", format_count, right=True, default=None)
    true_loss: float = column("true loss", lambda loss: f"{loss:.3f}", right=True)
    note: str = column("note")


def density_plan(epsilon: float, alpha: float, beta: float, universe: int) -> PlanTable:
    """Compare what panstream needs with what the published estimators need for the same claim.

    ``epsilon`` is the total loss that is claimed. The papers claim twice their parameter, so they are run at epsilon/2;
    their actual loss is in ``true_loss``. ``state_bytes`` is the state as published (a bit, a level or a double per
    sampled user; ids for PPDS), ``id_bytes`` the table that maps the ids of sampled users to cells, which a permutation
    makes needless.

    >>> plan = density_plan(1.0, 0.05, 0.05, universe=1_000_000)
    >>> plan.rows[0].users, plan.rows[0].state_bytes
    (2525, 316)
    """
    failure_probability(epsilon, alpha, 1, universe)  # checks the parameters
    rows = [_shipped(epsilon, alpha, beta, universe), *_published(epsilon, alpha, beta, universe)]
    return PlanTable(
        title=f"density within {alpha:g} except with probability {beta:g}, epsilon {epsilon:g} in total, "
        f"{universe:,} users exist",
        asked={"epsilon": epsilon, "alpha": alpha, "beta": beta, "universe": universe},
        rows=tuple(rows),
        kind=_Row,
        bounds=(str(independent_parts_bound(epsilon, universe, 1.0 / universe)),),
    )


def _shipped(epsilon: float, alpha: float, beta: float, universe: int) -> _Row:
    best = accuracy(epsilon, beta, universe, universe)
    try:
        users = sample_size(epsilon, alpha, beta, universe)
    except InvalidParameter:
        return _Row(name="panstream", true_loss=epsilon, note=f"{TOO_FEW}: all of them give alpha {best:.3g}")
    return _Row(
        name="panstream",
        users=users,
        share=users / universe,
        feasible=True,
        state_bytes=_bytes(users),
        id_bytes=0,
        true_loss=epsilon,
        note=f"exact; all users ({_bytes(universe):,} bytes) give alpha {best:.3g}",
    )


def _published(epsilon: float, alpha: float, beta: float, universe: int) -> Iterator[_Row]:
    parameter = epsilon / 2
    for estimator in STATIC_ESTIMATORS:
        if parameter < estimator.largest_epsilon:
            users = estimator.sample_size(parameter, alpha, beta)
            yield _static(estimator, f"{estimator.name} m*", users, parameter, universe)
        else:
            yield _not_defined(estimator.name)
    capacity = ppds_capacity(parameter, alpha, beta, universe)
    qualify = (
        "" if capacity > universe else f"; {universe >> ppds_level(parameter, capacity, universe):,} users qualify"
    )
    yield _Row(
        name="PPDS",
        users=capacity,
        share=capacity / universe,
        feasible=capacity <= universe,
        state_bytes=(capacity + 2) * _id_width(universe) + 1,  # ids, the two hash coefficients, the level
        id_bytes=0,
        true_loss=math.inf,
        note=(f"{TOO_FEW}; " if capacity > universe else "") + "every return of a user costs again" + qualify,
    )
    if parameter < DWORK.largest_epsilon:
        users = roth_sample_size(parameter, alpha, beta)
        yield _static(DWORK, "Dwork, Roth's m", users, parameter, universe)
    else:
        yield _not_defined("Dwork, Roth's m")


def _static(estimator: PublishedEstimator, name: str, users: int, parameter: float, universe: int) -> _Row:
    notes = [TOO_FEW] if users > universe else []
    notes.append("stored reals are unbounded" if estimator is LAPLACE else f"claims {2 * parameter:g}")
    if parameter > 0.5:
        notes.append("proved for epsilon up to 1 only")  # the papers' theorems assume their parameter is at most 1/2
    return _Row(
        name=name,
        users=users,
        share=users / universe,
        feasible=users <= universe,
        state_bytes=_bytes(users * estimator.bits_per_user),
        id_bytes=users * _id_width(universe) if users < universe else 0,
        true_loss=estimator.true_loss(parameter),
        note="; ".join(notes),
    )


def _not_defined(name: str) -> _Row:
    return _Row(name=name, true_loss=math.inf, note="not defined at this epsilon: p1 = 1/2 + epsilon/8 must be below 1")


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def _id_width(universe: int) -> int:
    return max(1, _bytes((universe - 1).bit_length()))
