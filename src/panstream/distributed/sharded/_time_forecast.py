"""The oldest and newest times of partitions, from the statistics of Parquet files where they have them.

Statistics are what a file's writer says about it. They are a forecast only: a task is read again if what was read
before it shows another time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from panstream.distributed.sharded._ordered_reading import TimeSpan
from panstream.distributed.sharded._worker_reading import Partition
from panstream.engine.config.config import Config
from panstream.engine.runtime.selector import TIME_UNITS

_PER_MICROSECOND = {"timestamp[us]": 1, "timestamp[ns]": 1000}  # per unit of a file
_MICROSECONDS = {"timestamp[s]": 1_000_000, "timestamp[ms]": 1000}


def spans_from_statistics(config: Config, partitions: Sequence[Partition], limit: float) -> dict[str, TimeSpan]:
    """Return the spans of those partitions whose files tell them, by name; none if a time is after ``limit``."""
    spans: dict[str, TimeSpan] = {}
    groups_by_path: dict[str, list[tuple[int, TimeSpan | None]]] = {}
    for partition in partitions:
        if partition.format != "parquet" or partition.path is None:
            continue
        if partition.path not in groups_by_path:
            groups_by_path.clear()  # partitions of a file follow one another
            groups_by_path[partition.path] = _group_spans(config, partition.path)
        before = 0
        group_spans: list[TimeSpan | None] = []
        for rows, span in groups_by_path[partition.path]:
            if partition.before <= before < partition.before + partition.rows:
                group_spans.append(span)
            before += rows
        stated = [span for span in group_spans if span is not None]
        if stated and len(stated) == len(group_spans) and all(newest <= limit for _, newest in stated):
            spans[partition.name] = (min(oldest for oldest, _ in stated), max(newest for _, newest in stated))
    return spans


def _group_spans(config: Config, path: str) -> list[tuple[int, TimeSpan | None]]:
    """Return the number of rows of every row group, and its span if its statistics have one."""
    import pyarrow as pa
    from pyarrow import parquet

    assert config.stream.time is not None
    try:
        metadata = parquet.read_metadata(path)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        schema = parquet.ParquetSchema(metadata)
        index = next(
            (number for number in range(len(schema)) if schema.column(number).path == config.stream.time), None
        )
        if index is None:
            return [(group.num_rows, None) for group in groups]
        kind = schema.to_arrow_schema().field(config.stream.time).type
        return [(group.num_rows, _span(config, group.column(index).statistics, kind)) for group in groups]
    except (pa.ArrowException, OSError, KeyError, ValueError):
        return []  # the reader will say what is wrong with the file


def _span(config: Config, statistics: Any, kind: Any) -> TimeSpan | None:
    if statistics is None or not statistics.has_min_max:
        return None
    assert config.stream.time is not None
    declared = config.stream.columns[config.stream.time]
    ends = (statistics.min_raw, statistics.max_raw)
    if not all(isinstance(end, int) for end in ends):
        return None
    text = str(kind).split(",")[0].rstrip("]") + "]" if str(kind).startswith("timestamp") else str(kind)
    scale: Mapping[str, float] = TIME_UNITS
    if declared == "timestamp" and text in _PER_MICROSECOND:
        units = [end // _PER_MICROSECOND[text] for end in ends]
    elif declared == "timestamp" and text in _MICROSECONDS:
        units = [end * _MICROSECONDS[text] for end in ends]
    elif (declared == "date" and text == "date32[day]") or (declared == "int" and text.startswith("int")):
        units = [*ends]
    else:
        return None
    oldest, newest = (unit * scale[declared] for unit in units)
    return (oldest, newest) if math.isfinite(newest) else None
