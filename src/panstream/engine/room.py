"""Whether the store can hold what a configuration plans: said before any state exists."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from panstream.codec import FieldLayout
from panstream.engine.config import Config
from panstream.errors import ConfigError
from panstream.store import sealed

if TYPE_CHECKING:
    from panstream.engine.plan import QueryPlan

__all__ = ["check_room", "most_bytes"]

_BYTES = {"int": 8.0, "bits": 1 / 8, "packed": 1 / 8, "u1": 1.0, "i4": 4.0, "i8": 8.0, "u8": 8.0}
_BESIDES = 1 << 20  # for parameters, the ledger and positions


def check_room(config: Config, plans: Iterable[QueryPlan]) -> None:
    """Raise ConfigError if all states together are more than the store can hold."""
    if config.directory is None or config.durability == "none":
        return
    total, most = 0, sealed.MOST - _BESIDES
    for plan in plans:
        total += most_bytes(plan, config.stream.lateness)
        if total > most:
            raise ConfigError(
                f"[[query]] {plan.config.name}: with its state, of up to {most_bytes(plan, config.stream.lateness):,} bytes, the "
                f"queries need {total:,} bytes, and the store holds {most:,} at most: lower universe, expected, memory, "
                "max_weight or the number of groups"
            )


def most_bytes(plan: QueryPlan, lateness: float) -> int:
    """Return the size of all states of a query at their largest, from public parameters, without starting one."""
    phases = max(0, plan.claim.intrusions.announced)
    one = sum(_size(field, phases) for field in plan.algorithm.layout().values())
    window = plan.config.window
    open_windows = 1 if window is None else 2 + math.ceil(lateness / window)
    return one * len(plan.groups) * open_windows


def _size(field: FieldLayout, phases: int) -> int:
    cells = math.prod(phases if length is None else length for length in field.shape)
    return math.ceil(cells * _BYTES[field.kind])
