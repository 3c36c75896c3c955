"""What a query loses of a person's budget, and its error, at a range of epsilons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from panstream.engine.config.config import Config, QueryConfig
from panstream.engine.planner.accuracy import largest_useful_error, planned_error
from panstream.engine.planner.person_period import not_bounded, person_share
from panstream.engine.planner.query_plan import QueryPlan, plan_query, state_locations
from panstream.errors import BudgetExceeded, ConfigError
from panstream.privacy.budget_division import Account, LossTable
from panstream.privacy.person_loss import PersonShare
from panstream.privacy.rounding import equal_share, round_down

_PER_OCTAVE = 16  # entries of a table; losses and errors are computed once per octave, and interpolated
_AT_LIMIT = 14 * _PER_OCTAVE  # entry whose epsilon is the budget
_BEYOND = 10 * _PER_OCTAVE  # entries above it, for the prices of what the budget does not allow


class LossTables:
    """Tables of the queries of one configuration, at epsilons around ``limit``.

    Args:
        config: The configuration.
        limit: The person's budget.
        count: How many questions share it.
    """

    def __init__(self, config: Config, limit: float, count: int) -> None:
        self.limit = limit
        self.epsilons = limit * np.exp2(np.arange(-_AT_LIMIT, _BEYOND + 1) / _PER_OCTAVE)
        self._config = config
        self._count = count
        self._with_delta: dict[int, QueryConfig] = {}
        self._tables: dict[tuple[int, ...], LossTable] = {}

    def table(self, queries: tuple[QueryConfig, ...]) -> LossTable:
        """Return the losses and errors of one question, whose states in one window are those of ``queries``.

        Raises:
            ConfigError: The question cannot be answered.
            BudgetExceeded: Nothing bounds the rows of one person in it.
        """
        key = tuple(map(id, queries))
        if key not in self._tables:
            self._tables[key] = self._computed(queries)
        return self._tables[key]

    def with_delta(self, query: QueryConfig) -> QueryConfig:
        """Return the query with the budget's delta if that gives it Gaussian noise, whose loss adds up slower."""
        config = self._config
        delta = config.stream.person.delta
        if not delta or query.delta or query.epsilon or query.parsed.aggregate.of_users:
            return query
        if id(query) not in self._with_delta:
            noisy = replace(query, delta=delta)
            try:
                plan = plan_query(replace(noisy, epsilon=min(self.limit, 1.0)), config.stream, state_locations(config))
            except ConfigError:
                plan = None
            loss = None if plan is None else self._share(plan).loss
            gains = loss is not None and loss.rho_joint is not None
            self._with_delta[id(query)] = noisy if gains else query
        return self._with_delta[id(query)]

    def plans(self, queries: Sequence[QueryConfig], epsilon: float) -> list[QueryPlan]:
        """Return the plans of the states of one question, which divide ``epsilon`` evenly."""
        config = self._config
        part = round_down(equal_share(epsilon, len(queries)))
        plans = [
            plan_query(replace(self.with_delta(query), epsilon=part), config.stream, state_locations(config))
            for query in queries
        ]
        for plan in plans:
            if (share := self._share(plan)).loss is None:
                raise BudgetExceeded(f"[stream.budget] person: {not_bounded(share)}")
        return plans

    def losses(self, plans: Sequence[QueryPlan]) -> tuple[float, float]:
        """Return the pure loss and the zCDP of a person over the period."""
        parts = [split_loss(self._share(plan), self._config.stream.person.delta) for plan in plans]
        return math.fsum(pure for pure, _ in parts), math.fsum(rho for _, rho in parts)

    def _share(self, plan: QueryPlan) -> PersonShare:
        return person_share(plan, self._config.stream, self._config.stream.person.period)

    def _computed(self, queries: tuple[QueryConfig, ...]) -> LossTable:
        rows: dict[int, tuple[float, float, float]] = {}
        targets: list[float | None] = []
        scales: list[float] = []
        refused: ConfigError | None = None

        def is_useful(entry: int) -> bool:
            nonlocal refused, targets, scales
            try:
                plans = self.plans(queries, float(self.epsilons[entry]))
            except ConfigError as error:
                refused = error
                return True
            targets = targets or [largest_useful_error(plan) for plan in plans]
            errors = [planned_error(plan) for plan in plans]
            scales = scales or [target or error for target, error in zip(targets, errors, strict=True)]
            relative = max(error / scale for error, scale in zip(errors, scales, strict=True))
            if math.isfinite(relative):
                rows[entry] = (*self.losses(plans), relative)
            return relative <= 1.0 or None in targets

        useful = is_useful(_AT_LIMIT)
        if useful:  # smaller epsilons than the first useless one need not be known
            next((entry for entry in range(_AT_LIMIT - _PER_OCTAVE, -1, -_PER_OCTAVE) if not is_useful(entry)), None)
        else:
            above = range(_AT_LIMIT + _PER_OCTAVE, len(self.epsilons), _PER_OCTAVE)
            next((entry for entry in above if is_useful(entry)), None)
        if refused is not None and not scales:
            raise refused  # at every epsilon
        required = None not in targets
        entries = sorted(rows)
        table = self._interpolated(
            entries, np.array([rows[entry] for entry in entries]).reshape(-1, 3), required=required
        )
        return table if required else self._relative_to_equal_share(table)

    def _interpolated(self, entries: Sequence[int], rows: NDArray[np.float64], *, required: bool) -> LossTable:
        positions = np.arange(len(self.epsilons))
        if not entries:
            nowhere = np.full(len(positions), math.inf)
            return LossTable(nowhere, np.zeros(len(positions)), nowhere, required)
        pure, rho, errors = (_interpolate(positions, entries, rows[:, index]) for index in range(3))
        inside = (positions >= entries[0]) & (positions <= entries[-1])
        return LossTable(pure, rho, np.where(inside, np.minimum.accumulate(errors), math.inf), required)

    def _relative_to_equal_share(self, table: LossTable) -> LossTable:
        """Return the table with errors relative to the one at an equal share of the budget."""
        account = Account(self.limit, self._config.stream.person.delta)
        low = 0
        high = len(self.epsilons) - 1
        while low < high:
            middle = (low + high + 1) // 2
            cost = account.epsilon(float(table.pure[middle]), float(table.rho[middle]))
            low, high = (middle, high) if cost <= self.limit / self._count else (low, middle - 1)
        finite = np.flatnonzero(np.isfinite(table.errors))
        scale = table.errors[max(low, int(finite[0]))] if finite.size else 1.0
        return replace(table, errors=table.errors / (scale or 1.0))


def split_loss(share: PersonShare, delta: float) -> tuple[float, float]:
    """Return the pure loss and the zCDP of a share, as a division estimates them.

    Without a delta all is pure. With one, answers alone lose at most their epsilon**2 / 2 as zCDP, and a copy adds the
    pure loss of the states in it.
    """
    loss = share.loss
    if not delta or loss is None:
        return share.epsilon, 0.0
    copied = share.open + share.opening
    if loss.rho_joint is not None and loss.rho_answers is not None:
        return 0.0, share.windows * loss.rho_answers + copied * (loss.rho_joint - loss.rho_answers)
    answers = share.windows * loss.answers**2 / 2
    return float(share.of_copy) + (share.open * loss.answers if share.of_copy else 0.0), answers


def _interpolate(
    positions: NDArray[np.int64], entries: Sequence[int], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Interpolate the logarithms of positive values, and others as they are."""
    if (values > 0.0).all() and np.isfinite(values).all():
        return np.exp(np.interp(positions, entries, np.log(values)))
    return np.interp(positions, entries, values)
