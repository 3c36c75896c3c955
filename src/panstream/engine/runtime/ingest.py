"""Apply the micro-batches of a source to an engine; and a dry run that reports which rows would be skipped, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.config.config import Config, StreamConfig
from panstream.engine.planner.public_facts import CommitTimer, ingestion_paths
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.rows.row_batch import BadRow, RowBatch, RowSchema
from panstream.engine.runtime.clocks import JUMPED
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.running_query import RunningQuery
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import Dialect, EventSource, TableSource, open_source
from panstream.engine.sources.first_rows import check_first_rows
from panstream.engine.sources.object_stores import is_live
from panstream.errors import ClockJumped
from panstream.primitives.interrupts import INTERRUPTS

_REPORTED = 1000  # row numbers in the report to the sender
ROWS_OF_FILES = 1 << 19  # per micro-batch of a file; rows of a pipe must not wait for so many
_NO_TIME = "the time is missing or cannot be read"
_CLOCK_CHECK = 1.0  # seconds between two checks of the clock while files are read
_POLL = 0.050  # seconds that a live source waits for rows at most, so that steps end on time

Tick = Callable[[int, float | None], None]


@dataclass(slots=True)
class IngestResult:
    """What a source delivered. Row numbers are for the sender of the rows only: they reveal which rows were bad."""

    rows: int = 0
    batches: int = 0
    skipped: list[int] = field(default_factory=list)
    skipped_count: int = 0
    late: list[int] = field(default_factory=list)
    late_count: int = 0
    interrupted: bool = False

    def note(self, skipped: NDArray[np.int64], late: NDArray[np.int64]) -> None:
        """Add the row numbers of a batch; only the first `_REPORTED` are stored, all are counted."""
        self.skipped += skipped[: max(0, _REPORTED - len(self.skipped))].tolist()
        self.late += late[: max(0, _REPORTED - len(self.late))].tolist()
        self.skipped_count += len(skipped)
        self.late_count += len(late)


def open_configured_source(
    config: Config,
    inputs: Sequence[str] | Any,
    *,
    follow: bool = False,
    format: str | None = None,
    schema: RowSchema | None = None,
    **more: Any,
) -> EventSource:
    """Open the source that a stream's inputs name, with the columns, batch size and dialect of its configuration.

    Args:
        config: The stream's configuration.
        inputs: Paths, globs, directories, tables, addresses of object stores, "-" for standard input, or one ``redis://host/db#stream``,
            ``mqtt://host/topic`` or ``kafka://host/topic``; or a table with the Arrow C interface.
        follow: Whether files are read as they grow.
        format: The format of the files; by default what their names end with.
        schema: The columns to read; by default those that the queries need.
        more: Further settings of the source.
    """
    schema = RowSchema.of(config.stream, config.needed_columns) if schema is None else schema
    if not is_paths(inputs):
        return TableSource(inputs, schema, name=None, batch_rows=config.batch_rows or ROWS_OF_FILES)
    settings: dict[str, Any] = {"batch_time": config.batch_time}
    is_finite_input = not follow and not any(map(is_live, inputs))
    rows = config.batch_rows or (ROWS_OF_FILES if is_finite_input else None)
    if rows is not None:
        settings["batch_rows"] = rows
    if not is_finite_input:
        settings["poll"] = min(_POLL, (config.step or _POLL) / 4)
    if format is not None:
        settings["format"] = format
    if config.web is not None and not any(is_live(source_text) and source_text != "-" for source_text in inputs):
        settings["site"] = config.web.site
    if "dialect" not in more and (dialect := dialect_of(config.stream)) is not None:
        settings["dialect"] = dialect
    return open_source(inputs, schema, follow=follow, **settings, **more)


def dialect_of(stream: StreamConfig) -> Dialect | None:
    """Return the declared dialect of text in files and pipes; None if nothing is declared."""
    declared: dict[str, Any] = {
        "delimiter": stream.delimiter,
        "names": () if stream.header else tuple(stream.columns),
        "decimal": stream.decimal,
        "date_format": stream.date_format,
        "encoding": stream.encoding,
    }
    usual = {"delimiter": None, "names": (), "decimal": ".", "date_format": (), "encoding": None}
    return None if declared == usual else Dialect(**declared)


def check_files(config: Config, inputs: Sequence[str], *, format: str | None = None) -> list[str]:
    """Compare the first rows of files with the declared types; return warnings.

    Live inputs are not checked, since their rows have not arrived yet.

    Raises:
        SourceError: Most of the first rows of a file cannot be used.
    """
    files = [name for name in inputs if not is_live(name)]
    if not files:
        return []
    stream = config.stream
    schema = RowSchema.of(stream, config.needed_columns)
    required = [name for name in (schema.user, stream.time) if name is not None]
    dialect = dialect_of(stream)
    return check_first_rows(
        files, schema.columns, required=required, dialect=dialect, format=format, caller="configuration"
    )


def ingest(
    engine: Engine,
    inputs: Sequence[str] | Any,
    *,
    follow: bool = False,
    format: str | None = None,
    on_batch: Tick | None = None,
) -> IngestResult:
    """Apply files, or one table of pandas, polars, Arrow or DuckDB, to an engine.

    Ends with the input, or with Ctrl-C or SIGTERM; the result's ``interrupted`` is set then.

    Args:
        engine: The engine.
        inputs: Paths, globs, directories or addresses, as the command takes them; or one table.
        follow: Whether files are read as they grow.
        format: The format of the files; by default what their names end with.
        on_batch: Called after each batch with the number of rows, and the share of the input that was read.
    """
    source = open_configured_source(engine.config, inputs, follow=follow, format=format)
    engine.declare(*(ingestion_paths(inputs, follow=follow) if is_paths(inputs) else ["calls"]))
    with Selector(engine.config) as select:
        return ingest_all(engine, source, select, on_batch=on_batch)


def is_paths(inputs: Any) -> bool:
    """Return whether inputs are paths or addresses, not a table."""
    return isinstance(inputs, list | tuple) and all(isinstance(entry, str) for entry in inputs)


def ingest_all(
    engine: Engine, source: EventSource, select: Selector, *, on_batch: Tick | None = None, once: bool = False
) -> IngestResult:
    """Apply all batches of a source, skipping those applied before; acknowledge each batch once it is durable.

    Files can be read again after a crash, so many of their micro-batches share one commit. Rows of live sources are
    committed at the end of their step.

    Args:
        engine: The engine, whose intakes are declared.
        source: The source; closed at the end.
        select: Evaluates the queries' expressions.
        on_batch: Called after each batch with the number of rows, and the share of the input that was read.
        once: Store no position of the source, since it would reveal the length of the input.
    """
    result = IngestResult()
    source.resume({} if once else engine.positions(), None if once else engine.positions_ahead())
    rows_per_commit = engine.config.commit_rows if source.progress() is not None else 1
    clock = CommitTimer(engine.step_length) if engine.by_clock else None
    unacknowledged: list[object] = []
    last_check = time.monotonic()
    pending = 0
    try:
        with INTERRUPTS.handling() as guard:
            with guard.step():
                if clock is not None:
                    engine.step()
            _check_clock(engine)
            for batch in source.batches():
                if batch is not None:
                    batch.producer = None if once else batch.producer
                    pending += len(batch)
                    with guard.step():
                        commit = clock is None and pending >= rows_per_commit
                        _apply_batch(engine, select, batch, result, commit=commit)
                    pending = 0 if pending >= rows_per_commit else pending
                    unacknowledged.append(batch.token)
                if clock is not None:
                    if not clock.remaining():
                        with guard.step():
                            engine.step()
                        clock.next()
                        _check_clock(engine)
                elif batch is None or time.monotonic() - last_check > _CLOCK_CHECK:
                    last_check = time.monotonic()
                    pending = 0
                    with guard.step():
                        engine.advance()
                    _check_clock(engine)
                if engine.durable:
                    for token in unacknowledged:
                        source.acknowledge(token)
                    unacknowledged.clear()
                if on_batch is not None:
                    on_batch(result.rows, source.progress())
    except KeyboardInterrupt:
        result.interrupted = True
        INTERRUPTS.forget()
    finally:
        source.close()
        if not engine.broken and (clock is not None or pending):
            with INTERRUPTS.step():
                engine.step() if clock is not None else engine.advance()
    return result


def _check_clock(engine: Engine) -> None:
    if engine.jumped:
        raise ClockJumped(JUMPED)


def _apply_batch(engine: Engine, select: Selector, batch: RowBatch, result: IngestResult, *, commit: bool) -> None:
    try:
        applied = engine.apply(select(batch), commit=commit)
        if applied.new:
            result.note(applied.skipped, applied.late)
        result.rows += len(batch)
        result.batches += 1
    finally:
        select.wipe()
        batch.wipe()


def find_invalid_rows(config: Config, inputs: Sequence[str], *, format: str | None = None) -> Iterator[BadRow]:
    """Yield the rows that would be skipped, in the order of the input; for their owner only.

    No state or store is created, and nothing is charged.
    """
    config = replace(config, stream=replace(config.stream, on_bad_row="skip"))
    queries = [RunningQuery(plan) for plan in plan_all(config)]  # never started, so there is no state
    source = open_configured_source(config, inputs, format=format)
    try:
        with Selector(config) as select:
            for batch in source.batches():
                if batch is None:
                    continue
                try:
                    batch_bad_rows = _bad_rows_of(config, queries, select, batch)
                finally:
                    select.wipe()
                    batch.wipe()
                yield from batch_bad_rows
    finally:
        source.close()


def _bad_rows_of(config: Config, queries: Sequence[RunningQuery], select: Selector, batch: RowBatch) -> list[BadRow]:
    schema = RowSchema.of(config.stream, config.needed_columns)
    batch_bad_rows = batch.bad_rows(schema)
    rows = select(batch)

    def report(bad: NDArray[np.bool_], reason: str) -> None:
        batch_bad_rows.extend(BadRow(row=number, reason=reason) for number in batch.numbers(bad & ~rows.bad).tolist())

    if rows.times is not None:
        report(~np.isfinite(rows.times), _NO_TIME)
        ahead = config.stream.max_ahead
        report(rows.times > (np.inf if ahead is None else time.time() + ahead), "the time is in the future")
    for query in queries:
        name = query.plan.config.name
        bad = query.unusable(rows, rows.queries[name])
        report(bad, f"query {name!r} cannot use its user, value or weight as declared")
    return sorted(batch_bad_rows, key=lambda bad: bad.row)
