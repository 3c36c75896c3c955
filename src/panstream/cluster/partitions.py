"""What can be read apart: files and stretches of row groups, dealt out in tasks of many rows each.

Only for queries that are answered at the end or when asked: rows of partitions have no common order, and clocks need one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panstream.engine.config import Config
from panstream.engine.feeds.inputs import InputFile, expand

__all__ = ["Partition", "can_read_apart", "files_of", "partitions_of", "stretches", "tasks_of"]

_TEXT_BYTES = 32  # a row of text, about: only to deal out tasks of like size
_LEAST, _MOST = 1 << 20, 1 << 23  # rows of a task
_SHARES = 3  # of the rows that are left, for each worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Some rows that can be read again: a file, or some row groups of a Parquet file. ``name`` is their producer.

    ``before`` is how many rows of the file come before them; ``rows`` is exact for row groups only.
    """

    name: str
    path: str | None = None
    format: str | None = None
    before: int = 0
    rows: int = 0


def can_read_apart(config: Config) -> bool:
    """Return whether no query answers by a clock, so that partitions may be read in any order."""
    return all(query.every is None and query.window is None for query in config.queries)


def partitions_of(inputs: Iterable[str], *, format: str | None = None, rows: int = _LEAST) -> list[Partition]:
    """Return files, and Parquet files in stretches of row groups of about ``rows`` rows; none if one is a pipe."""
    files = expand(list(inputs), format=format)  # type: ignore[arg-type]
    if any(file.path is None for file in files):
        return []
    return [partition for file in files for partition in stretches(file, rows)]


def stretches(file: InputFile, rows: int = _LEAST) -> Iterator[Partition]:
    """Yield a file, or stretches of row groups of a Parquet file."""
    assert file.path is not None
    where = str(file.path.absolute())
    if file.format != "parquet":
        size = file.path.stat().st_size // _TEXT_BYTES
        yield Partition(name=f"{file.name}#", path=where, format=file.format, rows=size)
        return
    from pyarrow import parquet

    metadata = parquet.read_metadata(file.path)
    before = size = start = 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).num_rows
        if size >= rows or group == metadata.num_row_groups - 1:
            name = f"{file.name}#{start}-{group}"
            yield Partition(name=name, path=where, format="parquet", before=before, rows=size)
            before, size, start = before + size, 0, group + 1


def tasks_of(
    partitions: Sequence[Partition], workers: int, *, large: bool, alone: Iterable[str] = ()
) -> list[list[Partition]]:
    """Return partitions in tasks, each a share of the rows that are left: large ones first, small ones to end together.

    A task reaches a shard as a whole or not at all. ``large`` tasks are for states of which only the touched cells
    matter, so that no row travels. Partitions named in ``alone`` are with some shards already, and so share no task.
    """
    apart = set(alone)
    tasks: list[list[Partition]] = [[partition] for partition in partitions if partition.name in apart]
    task: list[Partition] = []
    size, left = 0, sum(partition.rows for partition in partitions)
    for partition in partitions:
        if partition.name in apart:
            left -= partition.rows
            continue
        task.append(partition)
        size += partition.rows
        if size >= min(max(_LEAST, left // (_SHARES * max(1, workers))), _MOST if large else _LEAST):
            tasks.append(task)
            left -= size
            task, size = [], 0
    return [*tasks, task] if task else tasks


def files_of(frame: Any, columns: Sequence[str]) -> list[InputFile] | None:
    """Return the local Parquet files that a Dask DataFrame consists of, None if it is anything else than their rows."""
    expression = frame.optimize(fuse=False).expr
    kind = type(expression).__name__
    if kind not in ("ReadParquetFSSpec", "ReadParquetPyarrowFS"):
        return None
    if expression.operand("filters") or expression.operand("_partitions") is not None:
        return None
    if kind == "ReadParquetFSSpec":
        known = expression._dataset_info
        local = type(known["fs"]).__name__ == "LocalFileSystem"
        schema, files = known["physical_schema"], list(known["ds"].files)
    else:
        local = type(expression.fs).__name__ == "LocalFileSystem"
        fragments = expression.fragments
        schema, files = fragments[0].physical_schema, sorted(fragment.path for fragment in fragments)
    if not local or not all(name in schema.names for name in columns):
        return None
    return [InputFile(path=Path(file), format="parquet", name=file) for file in files]
