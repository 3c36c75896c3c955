"""What one person loses over a period, question by question, as one table, and what was dropped and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from panstream.algorithms.planning.tables import format_table
from panstream.core.estimate import format_number
from panstream.engine.config.config import Config
from panstream.engine.planner.accuracy import planned_error
from panstream.engine.planner.loss_tables import split_loss
from panstream.engine.planner.person_period import person_word, planned_person_total
from panstream.engine.planner.query_plan import QueryPlan
from panstream.primitives.durations import format_duration
from panstream.privacy.person_loss import BoundedBy, PersonShare

_WIDTH = 100
_NAME = 28  # longest name that is shown in full
_HEAD = ("question", "window", "states", "open", "rows of one in a state", "loses", "95% error")
_BOUNDS: dict[BoundedBy | None, str] = {
    "sender": "numbered by her sender",
    "file": "of the one file",
    "declared": "as declared",
    "two_party": "capped by two machines",
    "shape": "any: counted once",
    None: "not bounded",
}


def person_table(config: Config, plans: Sequence[QueryPlan]) -> list[str]:
    """Return the total, one line for every question, and what was dropped or moved to longer windows, and why."""
    total = planned_person_total(config, plans)
    rows = [_row(share, plan, total.delta) for share, plan in zip(total.shares, plans, strict=True)]
    limit = "" if total.limit is None else f"; declared limit {total.limit:g}"
    title = f"{total.text(person_word(config))}{limit}"
    lines = format_table("\n".join(wrap(title, _WIDTH)), _HEAD, rows, {2, 3, 6}).splitlines()
    for name, text in _notes(config, plans):
        lines += wrap(f"{name}: {text}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def person_json(config: Config, plans: Sequence[QueryPlan]) -> dict[str, Any]:
    """Return the same as plain JSON values: the total, with the expected error of every question, and the choices."""
    total = planned_person_total(config, plans)
    document = total.to_json()
    for shown, share, plan in zip(document["shares"], total.shares, plans, strict=True):
        error = planned_error(plan)
        pure, rho = split_loss(share, total.delta)
        shown |= {
            "window": plan.config.window or plan.config.retention_window,
            "pure": pure if math.isfinite(pure) else "inf",
            "rho": rho,
            "error_95": error if math.isfinite(error) else None,
        }
    choices = [
        {"name": choice.name, "window": choice.window, "dropped": choice.dropped, "reasons": list(choice.reasons)}
        for choice in config.choices
    ]
    return {**document, "choices": choices}


def dropped_lines(config: Config) -> list[str]:
    """Return which queries the planner dropped, and why."""
    return [f"{choice.name} is dropped: {'; '.join(choice.reasons)}" for choice in config.choices if choice.dropped]


def _row(share: PersonShare, plan: QueryPlan, delta: float) -> tuple[str, ...]:
    name = share.name if len(share.name) <= _NAME else f"{share.name[: _NAME - 1]}…"
    length = plan.config.window or plan.config.retention_window
    window = "-" if length is None else format_duration(length)
    error = format_number(planned_error(plan), 3, infinite="no bound")
    listed = "listed from " if plan.config.names is not None else ""
    if share.loss is None:
        return name, window, "-", "-", "not bounded", "-", f"{listed}{error}"
    bound = _BOUNDS[share.bounded_by]
    if share.contributions is not None and share.bounded_by != "shape":
        bound = f"{share.contributions:,} {bound}"
    opened = f"{share.open}+{share.opening}" if share.opening else f"{share.open}"
    opened += f", {share.retained} retained" if share.retained else ""
    return name, window, f"{share.windows}", opened, bound, _loss(share, delta), f"{listed}{error}"


def _loss(share: PersonShare, delta: float) -> str:
    pure, rho = split_loss(share, delta)
    parts = [f"{pure:.3g}"] if pure or not rho else []
    return " + ".join([*parts, *([f"rho {rho:.2g}"] if rho else [])])


def _notes(config: Config, plans: Sequence[QueryPlan]) -> list[tuple[str, str]]:
    """Return what has no bound, was dropped, or moved, and why."""
    shares = planned_person_total(config, plans).shares
    notes = [(share.name, f"not bounded: {share.reason}") for share in shares if share.loss is None]
    for choice in config.choices:
        if choice.dropped:
            notes.append((choice.name, f"dropped: {'; '.join(choice.reasons)}"))
        elif choice.reasons:
            notes.append((choice.name, f"not in shorter windows: {'; '.join(choice.reasons)}"))
    return notes
