"""Where a cluster holds the state of every query, what that costs, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from panstream.algorithms.continual_users.retained_bitmap import RetainedBitmap
from panstream.algorithms.distinct.sketch_bitmap import SketchBitmap
from panstream.core.shardable import has_cells, has_tables
from panstream.distributed.sharded._divided_states import divided_part, is_divided
from panstream.distributed.sharded._ordered_reading import SECTION_BYTES
from panstream.distributed.sharded._partitioning import TablePartitioning
from panstream.distributed.sharded._worker_reading import TASKS_PER_WORKER, can_read_on_workers, needs_stream_time
from panstream.engine.config.config import Config
from panstream.engine.planner.accuracy import expected_errors
from panstream.engine.planner.query_plan import QueryPlan
from panstream.errors import ConfigError


def divided_algorithms(plans: Sequence[QueryPlan]) -> dict[str, Any]:
    """Return the algorithms whose states are divided among the shards, by query.

    Raises:
        ConfigError: A query cannot be answered on a cluster.
    """
    for plan in plans:
        if isinstance(plan.algorithm, SketchBitmap):
            raise ConfigError(f"[[sketch]] {plan.config.name}: SKETCH is not published on a cluster: use one machine")
    return {plan.config.name: part for plan in plans if (part := divided_part(plan.algorithm)) is not None}


def shard_locations(plans: Sequence[QueryPlan], shards: int) -> list[dict[str, Any]]:
    """Return for every query where its state is, in ``why`` with the cost of the alternative; as JSON values."""
    lines = []
    for plan in plans:
        entry: dict[str, Any] = {"name": plan.config.name, "divided": is_divided(plan.algorithm)}
        part = divided_part(plan.algorithm)
        if has_cells(part):
            cell_count = part.cells
            cells = -(-cell_count // shards)
            entry |= {"cells": cell_count, "cells_per_shard": cells, "extra_noise": 0.0}
            entry["why"] = (
                f"each of {shards} shards owns about {cells:,} of {cell_count:,} cells: same law as on one machine, "
                "no extra noise"
            )
            if part is not plan.algorithm:
                entry["why"] += (
                    f"\nthe coordinator holds the noisy sums over ticks, and reads the noisy cells, "
                    f"{-(-cell_count // 8):,} bytes a group, at every answer and at no other time"
                )
        elif has_tables(plan.algorithm):
            partitioning = TablePartitioning(plan.algorithm, shards)
            cells_by_shard = [partitioning.cells(shard) for shard in range(shards)]
            row = sum(kind.itemsize for kind in plan.algorithm.update_columns)
            entry |= {
                "cells": sum(cells_by_shard),
                "cells_per_shard": max(cells_by_shard),
                "extra_noise": 0.0,
                "row_bytes": row,
            }
            entry["why"] = (
                f"each of {shards} shards owns whole tables, at most {max(cells_by_shard):,} of "
                f"{sum(cells_by_shard):,} cells: same law as "
                "on one machine, no extra noise\n"
                f"every shard is sent all names, {row} bytes a row, or the sums of its cells where that is less"
            )
        elif isinstance(plan.algorithm, RetainedBitmap):
            entry |= {"extra_noise": 0.0}
            entry["why"] = "held by the coordinator, as on one machine: cells of windows that are over stay together"
        else:
            width = getattr(plan.algorithm, "width", 1)
            factor = (shards + 1) / 2
            size, error = expected_errors(plan)[-1]
            entry |= {"message_bytes": 8 * width, "extra_noise": 0.0, "spread_factor": factor}
            entry["why"] = (
                f"held by the coordinator: error {error:.3g} {size} (95%), as on one machine, and {8 * width:,} "
                "bytes in the answer to each task that a worker reads\n"
                f"an accumulator on each of {shards} workers would need {shards} start noises: {factor:g} times the "
                f"variance, {math.sqrt(factor):.3g} times the standard error, and {shards} messages at every tick"
            )
        lines.append(entry)
    return lines


def rows_in_flight(config: Config, plans: Sequence[QueryPlan], shards: int) -> str:
    """Return which processes hold exact values of rows while workers or the coordinator read them, and how many."""
    if not can_read_on_workers(config, plans):
        return (
            "files are read in order by the coordinator: it holds the exact cells of a step's rows, and the shards "
            "their names, until the step is over"
        )
    if not needs_stream_time(config):
        return (
            f"a worker holds the exact marks, sums and names of the task that it reads, and of at most "
            f"{TASKS_PER_WORKER - 1} that the shards have not acknowledged; the coordinator the sums of one task"
        )
    wide = [plan for plan in plans if not is_divided(plan.algorithm)]
    bound = f", at most {SECTION_BYTES >> 20} MB and one batch more," if wide else ""
    return (
        f"a worker holds the exact marks, sums and names of at most {TASKS_PER_WORKER} tasks that it has read, until "
        f"it is their turn in the order of the stream: {TASKS_PER_WORKER * shards} tasks on {shards} workers\n"
        f"the coordinator holds the exact sums of one section of a task{bound} and a shard what it is applying\n"
        "all in memory, overwritten after use, never stored and without a second copy: a look at a worker or at the "
        "coordinator at that moment shows these rows, and no claim covers them\n"
        "from Kafka, a worker holds the messages of one tick in its partitions; its links show about how many they are "
        "and the newest time in them, which can tell something about ids where they decide the partition"
    )
