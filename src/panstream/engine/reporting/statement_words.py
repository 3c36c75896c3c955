"""Phrases that several sections of a privacy statement use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from panstream.engine.config.config import Config
from panstream.engine.planner.query_plan import QueryPlan
from panstream.primitives.durations import format_duration
from panstream.privacy.claim import Unit
from panstream.privacy.rounding import rounded_up


def copied_places(config: Config, plans: Sequence[QueryPlan]) -> str:
    """Return what an intruder copies."""
    if config.two_party is not None:
        return "the memory and disk of one of the two machines"
    if "disk" in plans[0].claim.locations:
        return "the machine's memory, its disk, or both at the same time,"
    return "the machine's memory" if config.directory is None else "the machine's memory (not its disk)"


def protected_unit(unit: Unit, window: float | None, config: Config) -> str:
    """Return a unit of protection in words."""
    person = f"one person (one {config.stream.user})"
    if unit in ("user", "user-window"):
        return person if window is None else f"{person} within {format_duration(window)}"
    return "one row" if unit == "event" else f"one {unit}"


def both_shares(plans: Sequence[QueryPlan]) -> str:
    """Return what a copy of both machines' shares reveals."""
    if all(plan.claim.intrusions.together for plan in plans):
        return "both together are a noisy state, of which one copy is covered and a second is not"
    return "both together are the exact state"


def but_for(chance: float) -> str:
    """Return the clause that excepts ``chance`` from a bound; empty if it is 0."""
    return f", but for a chance of at most {rounded_up(chance)}" if chance else ""


def quoted_names(names: Iterable[str]) -> str:
    """Return names in quotation marks, with commas."""
    return ", ".join(f"“{name}”" for name in names)


def count_of(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
