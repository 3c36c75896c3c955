"""What an announced intrusion means for one query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from panstream.engine.backend import Slot
from panstream.engine.plan import QueryPlan
from panstream.engine.results import iso


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What became of one state in an announced intrusion. ``window`` is its beginning, of a query with windows."""

    query: str
    done: bool
    window: str | None = None
    group: str | None = None

    @classmethod
    def states(cls, plan: QueryPlan, done: Mapping[Slot, bool]) -> list[Refreshed]:
        """Return what became of every state of a query."""
        length = plan.config.window
        return [
            cls(
                query=plan.config.name,
                done=good,
                window=None if length is None else iso(window * length),
                group=plan.group_name(plan.groups[group]) or None,
            )
            for (window, group), good in done.items()
        ]

    def __str__(self) -> str:
        place = [] if self.window is None else [f"window from {self.window}"]
        place += [] if self.group is None else [self.group]
        name = f"{self.query} ({'; '.join(place)})" if place else self.query
        return f"{name}: {'refreshed' if self.done else 'not refreshed'}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"query": self.query, "window": self.window, "group": self.group, "refreshed": self.done}


def outlook(plan: QueryPlan, before: int) -> tuple[bool, str]:
    """Return whether a query would be refreshed, and what to say, if ``before`` intrusions were announced already."""
    many = plan.claim.intrusions.announced
    if plan.claim.intrusions.machines > 1:
        return True, _ON_MACHINES[min(plan.claim.intrusions.together, 1)]
    if many < 0:
        return True, "is refreshed, which costs no epsilon but more error from here on"
    if many > before or (many and plan.config.window is not None):
        window = " per window" if plan.config.window else ""
        return True, f"is refreshed, as paid for in advance ({many} at most{window})"
    used = "all that were paid for are used up" if many else "cannot be refreshed, since announced is not declared"
    return False, f"{used}: this is the one intrusion that its claim covers; a second one has no finite price"


_ON_MACHINES = (
    "the shares are blinded anew, which costs nothing: any number of copies of one machine at a time is covered; if "
    "both were copied in one epoch, the copies show the exact state, and the claim no longer holds",
    "the shares are blinded anew, which costs nothing: any number of copies of one machine at a time is covered, and "
    "copies of both in one epoch are covered once",
)
