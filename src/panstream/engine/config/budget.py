"""``[stream.budget]``: how much all queries together may lose, per unit and for one person over a period."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from panstream.primitives.toml_config import Section
from panstream.privacy.claim import Unit
from panstream.privacy.person_loss import PERIOD


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonBudget:
    """The most that one person may lose to all queries and one intrusion, and over which period.

    Attributes:
        epsilon: The limit; without one the total is reported and not limited.
        period: Seconds of the period.
    """

    epsilon: float | None = None
    period: float = PERIOD


def read_budget(stream: Section) -> tuple[dict[str, float], PersonBudget]:
    """Return the limits per unit, and the budget of a person."""
    units = get_args(Unit)
    section = Section("[stream.budget]", stream.optional("budget", dict, {}), {*units, "person", "period"})
    limits = {unit: section.positive_number(unit) for unit in units if section.has(unit)}
    person = section.positive_number("person") if section.has("person") else None
    return limits, PersonBudget(epsilon=person, period=section.duration("period") or PERIOD)
