"""What an announced intrusion means for one query."""

from __future__ import annotations

from panstream.engine.plan import QueryPlan

__all__ = ["fate"]


def fate(plan: QueryPlan, before: int) -> tuple[bool, str]:
    """Return whether a query would be refreshed, and what to say, if ``before`` intrusions were announced already."""
    many = plan.claim.intrusions.announced
    if many < 0:
        return True, "is refreshed, which costs no epsilon but more error from here on"
    if many > before or (many and plan.config.window is not None):
        window = " per window" if plan.config.window else ""
        return True, f"is refreshed, as paid for in advance ({many} at most{window})"
    used = "all that were paid for are used up" if many else "cannot be refreshed, since announced is not declared"
    return False, f"{used}: this is the one look that its claim covers; a further one has no finite price"
