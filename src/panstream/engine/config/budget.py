"""``[stream.budget]``: how much all queries together may lose, per unit and for one person over a period."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from panstream.errors import ConfigError
from panstream.primitives.toml_config import Section
from panstream.privacy.claim import Unit
from panstream.privacy.person_loss import PERIOD

_PERSON_KEYS = ("person", "delta", "period", "allow_unbounded")


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonBudget:
    """The most that one person may lose to all queries and one intrusion, and over which period.

    Attributes:
        epsilon: The limit; without one the total is reported and not limited.
        delta: Delta at which the total is stated; 0: that of all queries together.
        period: Seconds of the period.
        allow_unbounded: Names of queries that may read any number of rows of one person; they are not limited.
    """

    epsilon: float | None = None
    delta: float = 0.0
    period: float = PERIOD
    allow_unbounded: tuple[str, ...] = ()


def read_budget(stream: Section) -> tuple[dict[str, float], PersonBudget]:
    """Return the limits per unit, and the budget of a person."""
    units = get_args(Unit)
    section = Section("[stream.budget]", stream.optional("budget", dict, {}), {*units, *_PERSON_KEYS})
    limits = {unit: section.positive_number(unit) for unit in units if section.has(unit)}
    person = section.positive_number("person") if section.has("person") else None
    delta = section.optional("delta", float, 0.0)
    if not 0.0 <= delta < 1.0:
        raise ConfigError(f"[stream.budget]: delta must be in [0, 1), got delta={delta:g}")
    return limits, PersonBudget(
        epsilon=person,
        delta=delta,
        period=section.duration("period") or PERIOD,
        allow_unbounded=tuple(map(str, section.optional("allow_unbounded", list, []))),
    )
