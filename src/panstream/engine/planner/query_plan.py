"""The plan of a query: algorithm, claim and reason, all computed before a row arrives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from panstream.algorithms.secret_shared.statistic import SharedStatistic
from panstream.core.algorithm import is_continual
from panstream.core.estimate import Estimate
from panstream.engine.config.config import Config, QueryConfig, StreamConfig
from panstream.engine.planner.algorithm_choice import ENDLESS, choose_algorithm, releases_of
from panstream.engine.planner.bounded_rows import assumptions, bounded_by, groups_touched
from panstream.engine.planner.person_period import check_person_budget
from panstream.engine.planner.public_facts import public_facts
from panstream.engine.planner.secret_shared_rules import choose_shared_continual_statistic
from panstream.engine.planner.sender_bounds import check_counter
from panstream.engine.sql.formulas import estimate_formula
from panstream.engine.sql.parser import Aggregate, Output
from panstream.engine.storage.sealed_box import MAX_BYTES
from panstream.errors import (
    BudgetExceeded,
    BudgetExhausted,
    ConfigError,
    InvalidParameter,
    UnboundedLoss,
    translate_errors,
)
from panstream.primitives.codec import FieldLayout
from panstream.primitives.durations import format_duration
from panstream.privacy.claim import Claim, Location
from panstream.privacy.composition import compose_repeated
from panstream.privacy.ledger import Ledger

_BYTES = {"int": 8.0, "bits": 1 / 8, "packed": 1 / 8, "u1": 1.0, "i4": 4.0, "i8": 8.0, "u8": 8.0}  # per cell
_METADATA_BYTES = 1 << 20  # of the store, for parameters, the ledger and positions
_STOPS = 'on_bad_row = "stop" lets one row decide whether all others of its batch, and all later ones, count'


@dataclass(frozen=True, kw_only=True)
class QueryPlan:
    """One query, ready to run: the algorithm of every group, and the claim of all groups together."""

    # Without slots: cached properties, which every answer of thousands of groups uses, need a __dict__.

    config: QueryConfig
    algorithm: Any
    claim: Claim
    groups: tuple[tuple[Any, ...], ...]
    groups_touched: int  # groups that one protected unit can be in; the claim composes over them
    why: str

    @property
    def continual(self) -> bool:
        """Return whether releases are ticks."""
        return is_continual(self.algorithm)

    @property
    def releases(self) -> int:
        """Return the number of planned releases, `ENDLESS` without a horizon; with windows, per window."""
        return releases_of(self.config)

    @property
    def planned_releases(self) -> int | None:
        """Return the total number of releases, None if they never end."""
        return None if self.config.window is not None or self.is_unbounded else self.releases

    @property
    def is_unbounded(self) -> bool:
        """Return whether there is no last release."""
        return self.releases == ENDLESS

    @property
    def state_bytes(self) -> int:
        """Return the bytes of the serialized states of all groups."""
        # Starting a sketch of names draws megabytes of noise, and shared states start on their machines.
        if self.config.names is not None or isinstance(self.algorithm, SharedStatistic):
            return self.max_state_bytes(0.0, windows=1)
        return len(self.groups) * len(self.algorithm.start().to_bytes())

    @cached_property
    def series(self) -> tuple[str, ...]:
        """Return the names under which answers are logged, group by group.

        Such as ``visits [region=north]``, or ``visits.total [region=north]`` if a statement has several answers.
        """
        names = self._names
        return tuple(f"{name} [{self.group_name(keys)}]" if keys else name for keys in self.groups for name in names)

    @cached_property
    def claim_json(self) -> dict[str, Any]:
        """Return the claim as JSON values, as published with every answer."""
        return self.claim.to_json()

    @property
    def _names(self) -> list[str]:
        config = self.config
        if config.parsed.single_output:
            return [config.name for _ in self.outputs]
        return [f"{config.statement}.{output.name}" for output in self.outputs]

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Return the answers that are computed from one state."""
        return self.config.parsed.outputs

    def answer(self, output: Output, state_estimate: Estimate, read: Callable[[Any], Estimate]) -> Estimate:
        """Compute one answer from a release.

        Args:
            output: The formula of the answer.
            state_estimate: Estimate of the state's own statistic.
            read: Returns the estimate of another statistic of the same released numbers.
        """
        if self.config.parsed.aggregate is Aggregate.COUNT:  # rows only add 1, though the algorithm allows negatives
            state_estimate = state_estimate.within(0.0, math.inf)
        return estimate_formula(
            output.formula, lambda what: state_estimate if what is None else read(what), output.name
        )

    def loss_exceeds(self, times: float = 1.0) -> float:
        """Return an upper bound on the probability that one unit loses more than ``times`` the claimed epsilon."""
        if not self.claim.delta:
            return 0.0
        states: float = self.claim.delta / self.algorithm.claim().delta  # that one unit touches; union bound
        return min(states * float(self.algorithm.loss_exceeds(times)), 1.0)

    def max_state_bytes(self, lateness: float, windows: int | None = None) -> int:
        """Return the largest total size of all states, from public parameters, without creating one."""
        phases = max(0, self.claim.intrusions.announced)
        one = sum(_size(field, phases) for field in self.algorithm.layout().values())
        return one * (self.max_states(lateness) if windows is None else len(self.groups) * windows)

    def max_states(self, lateness: float) -> int:
        """Return the largest number of states: one for every group in every open window."""
        grid = self.config.window_grid
        # The last ``lateness`` seconds overlap at most ceil(lateness / window) + 1 windows; one more is a margin.
        return len(self.groups) * (1 if grid is None else 2 + math.ceil(lateness / grid.shortest))

    def group_name(self, group: tuple[Any, ...]) -> str:
        """Return the text for a group, such as ``region=north``; empty for an open domain, which shares one state."""
        keys = self.config.parsed.group_by if group else ()
        return ", ".join(f"{key}={value}" for key, value in zip(keys, group, strict=True))


def plan_all(config: Config, *, zero_noise: bool = False) -> tuple[QueryPlan, ...]:
    """Plan every query.

    Args:
        config: Stream, queries and budget.
        zero_noise: Switch all noise off, for tests; every claim then has epsilon = inf.

    Raises:
        ConfigError: A query cannot be answered, or the states do not fit the store.
        BudgetExceeded: Together the queries exceed the declared budget.
    """
    from panstream.engine.planner.person_division import divide_person_budget

    check_counter(config)
    config = divide_person_budget(config)
    locations = state_locations(config)
    queries = [replace(query, epsilon=math.inf) if zero_noise else query for query in config.queries]
    plans = tuple(plan_query(query, config.stream, locations) for query in queries)
    for query in queries:
        if query.bounded_by == "file" and config.directory is not None:
            raise ConfigError(
                f'[[query]] {query.name}: bounded_by = "file" holds for one run over one file: take directory out of '
                "[store], or declare the bound"
            )
    if config.stream.on_bad_row == "stop":
        plans = tuple(replace(plan, claim=plan.claim.without_privacy(_STOPS)) for plan in plans)
    planned_ledger(config, plans)
    check_person_budget(config, plans)
    _check_store_size(config, plans)
    return plans


def state_locations(config: Config) -> tuple[Location, ...]:
    """Return where copies of states are covered."""
    on_disk = config.durability == "batch" and config.directory is not None
    return ("memory", "disk") if on_disk else ("memory",)


def _check_store_size(config: Config, plans: Iterable[QueryPlan]) -> None:
    """Raise ConfigError if all states together exceed the capacity of the store."""
    if config.directory is None or config.durability == "none":
        return
    total = 0
    max_bytes = MAX_BYTES - _METADATA_BYTES
    for plan in plans:
        total += plan.max_state_bytes(config.stream.lateness)
        if total > max_bytes:
            raise ConfigError(
                f"[[query]] {plan.config.name}: with its state, of up to "
                f"{plan.max_state_bytes(config.stream.lateness):,} "
                f"bytes, the queries need {total:,} bytes, and the store holds {max_bytes:,} at most: lower universe, "
                "expected, memory, max_weight or the number of groups"
            )


def _size(field: FieldLayout, phases: int) -> int:
    cells = math.prod(phases if length is None else length for length in field.shape)
    return math.ceil(cells * _BYTES[field.kind])


def planned_ledger(config: Config, plans: tuple[QueryPlan, ...]) -> Ledger:
    """Charge all queries to a new ledger; raise BudgetExceeded if a limit is exceeded or a loss has no bound."""
    ledger = Ledger({(unit, "add-remove"): limit for unit, limit in config.stream.budget.items()})  # type: ignore[misc]
    for plan in plans:
        try:
            ledger.charge(plan.config.name, plan.claim)
        except UnboundedLoss as error:
            refused = f"[stream.budget]: {error}; {_remedy(plan, error.unit)}take {error.unit} out of [stream.budget]"
        except BudgetExhausted as error:
            refused = f"[[query]] {plan.config.name}: {error}; lower an epsilon or raise [stream.budget]"
        else:
            continue
        raise BudgetExceeded(refused)
    return ledger


def _remedy(plan: QueryPlan, unit: str) -> str:
    """Return how to bound a total, as the first half of a sentence; empty if there is no way."""
    windowed = plan.config.window is not None
    steps = []
    if unit in ("user", "user-window") and plan.claim.unit == "event":
        remedy = "contributions = the most rows of one user" + (" in a window" if windowed else "")
        steps.append(f"give {plan.config.name!r} {remedy}")
    if unit == "user" and windowed:
        steps.append("limit user-window instead of user")
    return f"{' and '.join(steps)}, or " if steps else ""


def plan_query(query: QueryConfig, stream: StreamConfig, locations: tuple[Location, ...]) -> QueryPlan:
    """Plan one query; raise ConfigError if no algorithm answers it as configured."""

    def planned() -> QueryPlan:
        algorithm, why = choose_algorithm(query, stream)
        if stream.machines and not isinstance(algorithm, SharedStatistic):
            algorithm, why = choose_shared_continual_statistic(algorithm, stream.cells)
        groups = tuple(product(*(query.groups[key] for key in query.parsed.group_by if key != query.names)))
        touched = groups_touched(algorithm.claim().unit, query, stream, len(groups))
        claim = _claim(algorithm.claim(), query, touched, locations, public_facts(stream, query, (), by_clock=True))
        for assumption in assumptions(query, stream, bounded_by(query, algorithm)):
            claim = claim.assuming(assumption)
        return QueryPlan(config=query, algorithm=algorithm, claim=claim, groups=groups, groups_touched=touched, why=why)

    def refused(error: Exception) -> ConfigError:
        size = "large" if query.epsilon > 1 else "small"
        why = error if isinstance(error, InvalidParameter) else f"epsilon={query.epsilon} is too {size} to compute with"
        return ConfigError(f"[[query]] {query.name}: {why}")

    return translate_errors(planned, (InvalidParameter, ArithmeticError), refused)


def _claim(
    base: Claim, query: QueryConfig, touched: int, locations: tuple[Location, ...], public: tuple[str, ...]
) -> Claim:
    """Return the claim for all groups that one unit can be in; with windows, for one window."""
    notes = [base.note] if base.note else []
    event_epsilon = base.event_epsilon
    if touched > 1:
        notes.append(f"one user can touch {touched} groups, each at epsilon {base.epsilon:g}")
        event_epsilon = base.epsilon if event_epsilon is None else event_epsilon  # an event falls into one group
    unit = base.unit
    if query.window is not None:
        span = format_duration(query.window) + (f" ({query.calendar.zone})" if query.calendar is not None else "")
        if unit == "user":
            unit = "user-window"
            notes.append(f"per user and window of {span}; a user in w windows loses w times as much")
        else:
            notes.append(f"windows of {span} are disjoint: an event falls into one")
    if query.retention_window is not None:
        notes.append(f"per user and window of {format_duration(query.retention_window)}")
    return replace(
        compose_repeated(base, touched),
        releases=base.releases,
        event_epsilon=event_epsilon,
        unit=unit,
        window=(query.window or query.user_window or query.retention_window) if unit == "user-window" else None,
        locations=locations,
        public=(*base.public, *public),
        note="; ".join(notes),
    )
