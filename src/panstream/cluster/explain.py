"""Where a cluster keeps the state of every query, what that costs, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from panstream.cluster import division
from panstream.engine.plan import QueryPlan

__all__ = ["explain_cluster", "places"]


def places(plans: Sequence[QueryPlan], shards: int) -> list[dict[str, Any]]:
    """Return for every query where its state is, and the cost of that against the alternative."""
    found = []
    for plan in plans:
        divided = division.division_of(plan.algorithm)
        entry: dict[str, Any] = {"name": plan.config.name, "divided": divided is not None}
        if divided is not None:
            cells = -(-divided.cells // shards)
            entry |= {"cells": divided.cells, "cells_per_shard": cells, "extra_noise": 0.0}
            entry["why"] = (
                f"each of {shards} shards owns about {cells:,} of {divided.cells:,} cells: same law as on one machine, no extra noise"
            )
        else:
            width = getattr(plan.algorithm, "width", 1)
            entry |= {"message_bytes": 8 * width, "extra_noise": 0.0, "spread_factor": (shards + 1) / 2}
            entry["why"] = (
                f"one place, the coordinator, which gets {8 * width:,} bytes for every partition or micro-batch; an open accumulator on "
                f"each of {shards} workers would need a start noise each and multiply the noise variance by {(shards + 1) / 2:g}"
            )
        found.append(entry)
    return found


def explain_cluster(plans: Sequence[QueryPlan], shards: int) -> str:
    """Return the same for people."""
    lines = [f"on a cluster of {shards} shards"]
    lines += [f"  {entry['name']:<11} {entry['why']}" for entry in places(plans, shards)]
    return "\n".join(lines)
