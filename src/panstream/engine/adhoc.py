"""Answer one query about a file or a table without a configuration: infer the columns, charge, read, release.

Rows take the same path as in a running stream: source, engine, release. Only columns are inferred, before the first
row counts; bounds of values, groups and contributions are given by the caller or not used.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from panstream.engine.config.config import Config, QueryConfig, StreamConfig, read_config
from panstream.engine.config.text_style import DecimalMark
from panstream.engine.planner.query_plan import plan_all, plan_query
from panstream.engine.reporting.answer import Answer, release_to_row
from panstream.engine.reporting.answer_notes import contribution_notes, shares_text, size_notes
from panstream.engine.reporting.export import notes, visible_rows
from panstream.engine.reporting.unusable_share import is_published_for, published_share, with_paid_share
from panstream.engine.rows.group_keys import KeyText, parse_group_key
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ROWS_OF_FILES, IngestResult, ingest_all, is_paths, open_configured_source
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import Dialect
from panstream.engine.sources.first_rows import Caller, check_first_rows
from panstream.engine.sources.input_files import InputFile, expand_paths, file_tables
from panstream.engine.sources.input_ledgers import ledgers_of
from panstream.engine.sources.schema_guess import InferredSchema, infer_schema, infer_table_schema
from panstream.engine.sql.parser import table_read
from panstream.engine.storage.ledger_file import charge_ledgers
from panstream.errors import ConfigError, InvalidParameter, SourceError, translate_errors
from panstream.privacy.claim import weak_epsilon_warning
from panstream.privacy.rounding import equal_share, round_down

_T = TypeVar("_T")
_NAME = "answer"
_NAMED = 3  # most files that are named in a message
_ANY_ORDER = 36_500 * 86_400.0  # seconds of lateness: windows stay open to the end of the file, in any order of rows
_TIMES = ("timestamp", "date")


def query(
    source: Any,
    sql: str,
    *,
    epsilon: float,
    user: str | None = None,
    ledger: str | Path | bool = True,
    budget: float | None = None,
    format: str | None = None,
    types: Mapping[str, str] | None = None,
    time: str | None = None,
    time_zone: str | None = None,
    public: Sequence[str | Path] = (),
    decimal: DecimalMark = ".",
    date_format: str | Sequence[str] | None = None,
    encoding: str | None = None,
    unusable_share: bool = True,
    **settings: Any,
) -> Answer:
    """Answer one SELECT about a file or a table, with a loss of at most ``epsilon``.

    Args:
        source: A file, a glob, a directory or "-" for standard input (CSV, TSV, JSON lines,
            Parquet, Arrow, compressed or not), a Delta or Iceberg table, the address of one of
            these in an object store, or a table of pandas, polars, Arrow or DuckDB.
            Its format and columns are guessed from its first rows, and are public.
        sql: One SELECT; FROM may call the source anything.
        epsilon: The privacy cost of the whole answer, with all of its aggregates and groups:
            where one user can be in several groups, it is divided over them.
        user: The column that identifies the person each row is about; without it, single rows
            are protected. With it, counts, sums and means still protect single rows, with a
            warning, unless ``contributions`` is given, the most rows of one user.
        ledger: Where the cost is added up: a file next to each file that is read (True,
            ``visits.csv.ledger``), another one that you name, or none (False). DataFrames and
            standard input have none unless you name one. Of an address in an object store, it is
            in ``~/.local/state/panstream/ledgers`` on this machine.
        budget: Refuse what would cost more in total; the ledger remembers it.
        format: "csv", "tsv", "json", "parquet" or "arrow", if the file name does not say.
        types: Types of columns, instead of the guess.
        time: The column of event time, if a window needs one and there is more than one.
        time_zone: The time zone of windows that are days, weeks, months, quarters or years, such as
            "Europe/Berlin"; UTC unless given. Times without an offset are UTC in any case.
        public: Tables that the statement may join, since they hold nothing private: CSV or Parquet
            files, named as in ``JOIN 'countries.csv' USING (code)``, with a unique key.
        decimal: The decimal mark of numbers.
        date_format: Formats of dates and times as ``datetime.strptime`` takes them.
        encoding: "windows-1252", "latin-1" or "utf-16" where text is not UTF-8.
        unusable_share: Whether to publish, for files, the share of rows that could not be used,
            for a twentieth of epsilon; not where users are protected without ``contributions``.
        **settings: Keys of a ``[[query]]``: ``lower`` and ``upper`` bounds, ``groups``, ``universe``,
            ``expected``, ``contributions``, ``window``, ``delta`` and so on. They are never read from the rows.

    Examples:
        >>> import pyarrow
        >>> visits = pyarrow.table({"host": ["a", "b", "a", "c"] * 1000, "bytes": [10, 20, 30, 40] * 1000})
        >>> answer = query(visits, "SELECT AVG(bytes) FROM visits", epsilon=1.0, lower=0, upper=100)
        >>> 20 <= float(answer) <= 30
        True
    """
    sources = [str(source)] if isinstance(source, str | Path) else source
    written = Dialect(decimal=decimal, date_format=date_format, encoding=encoding)
    prepared = PreparedQuery(
        sources,
        sql,
        epsilon=epsilon,
        user=user,
        format=format,
        types=types,
        time=time,
        time_zone=time_zone,
        public=public,
        settings=settings,
        written=written,
        unusable_share=unusable_share,
    )
    for text in prepared.warnings():
        warnings.warn(text, stacklevel=2)
    return prepared.answer(ledger=ledger, budget=budget)


class PreparedQuery:
    """A query whose input was sniffed but not read: the inferred columns can be shown before anything is charged."""

    def __init__(
        self,
        source: Sequence[str] | Any,
        sql: str,
        *,
        epsilon: float,
        user: str | None = None,
        format: str | None = None,
        types: Mapping[str, str] | None = None,
        time: str | None = None,
        time_zone: str | None = None,
        public: Sequence[str | Path] = (),
        settings: Mapping[str, Any] | None = None,
        written: Dialect | None = None,
        caller: Caller = "python",
        unusable_share: bool = True,
    ) -> None:
        tables = [str(table) for table in public]
        table_in_from(sql, tables)  # raises before anything waits for standard input
        self.sql = sql
        self.files = list(source) if is_paths(source) else []
        self._source = source
        if is_paths(source):
            self.guess = infer_schema(source, format=format, written=written, caller=caller)
        else:
            self._source, self.guess = infer_table_schema(source)
        self.guess = _with_types(self.guess, types or {})
        self._epsilon = epsilon
        stream = {"user": user, "time": time, "time_zone": time_zone}
        self._declared = self._with_hints(
            lambda: _config(sql, self.guess.columns, stream, {"epsilon": epsilon, **(settings or {})}, tables)
        )
        self._doubts = self._check_first_rows(caller) if is_paths(source) else []
        self._publishes_share = unusable_share and is_paths(source) and is_published_for(self._declared.queries)
        self.ingested = IngestResult()  # numbers of skipped rows, for their owner only

    @functools.cached_property
    def config(self) -> Config:
        """The configuration; epsilon and delta are divided over the groups that one user can be in, and a part of
        epsilon pays for the share of unusable rows.
        """
        declared = self._declared
        queries = _as_query_errors(lambda: tuple(_divided(query, declared.stream) for query in declared.queries))
        divided = replace(declared, queries=queries)
        return with_paid_share(divided, self._epsilon) if self._publishes_share else divided

    def warnings(self) -> list[str]:
        """Return warnings that the caller should see before the answer is charged."""
        weak_epsilon = weak_epsilon_warning(self._epsilon)
        texts = [*self._doubts, *([] if weak_epsilon is None else [weak_epsilon])]
        stream = self.config.stream
        plans = _as_query_errors(lambda: plan_all(self.config))
        if stream.user is not None and any(plan.claim.unit == "event" and plan.config.unit is None for plan in plans):
            texts.append(
                f"one row is protected, not all rows of one {stream.user}, since nothing limits how many there are; "
                f"give contributions, the most rows of one {stream.user}"
            )
        return texts

    def _check_first_rows(self, caller: Caller) -> list[str]:
        """Return warnings about types that do not fit the first rows; raise SourceError if most rows do not fit."""
        stream = self._declared.stream
        schema = RowSchema.of(stream, self._declared.needed_columns)
        required = [name for name in (schema.user, stream.time) if name is not None]
        named = frozenset[str]().union(*(query.parsed.columns for query in self._declared.queries))
        hints = [hint for name, hint in self.guess.hints.items() if name in named]
        reading = self.guess.reading
        return hints + check_first_rows(self._source, schema.columns, required=required, caller=caller, **reading)

    def _with_hints(self, work: Callable[[], _T]) -> _T:
        """Return ``work()``; append hints about the text style of columns to its error."""
        return translate_errors(
            work, InvalidParameter, lambda error: InvalidParameter("; ".join([str(error), *self.guess.hints.values()]))
        )

    def ledgers(self, ledger: str | Path | bool) -> list[Path]:
        """Return the ledger files that the cost is written to."""
        if isinstance(ledger, bool):
            return ledgers_of(self._inputs()) if ledger else []
        return [Path(ledger)]

    def _inputs(self) -> list[InputFile]:
        """Return the files that are read, without standard input."""
        if not self.files:
            return []
        inputs = expand_paths(self.files, format=self.guess.reading.get("format"))
        return [file for file in inputs if file.path is not None]

    def _check_read_once(self) -> None:
        """Raise SourceError for a file under two names: its rows would count twice and be charged once."""
        seen: dict[tuple[int, int], Path] = {}
        for path in (file.path for file in self._inputs() if isinstance(file.path, Path)):
            status = path.stat()
            other = seen.setdefault((status.st_dev, status.st_ino), path)
            if other is not path:
                raise SourceError(
                    f"{other.name} and {path.name} are one file (links), so that its rows would count twice; "
                    "leave one of them out"
                )

    def _covered(self, ledger: str | Path | bool) -> str:
        """Return which answers the ledgers count, as text."""
        if not isinstance(ledger, bool):
            return f"all answers that {Path(ledger).name} records"
        inputs = self._inputs()
        tables = [f"the table {table.name}" for table in file_tables(inputs)]
        names = tables + [file.path.name for file in inputs if file.path is not None and file.table is None]
        shown = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} other files"]
        return f"all answers about {' and '.join(filter(None, (', '.join(shown[:-1]), shown[-1])))}"

    def answer(
        self,
        *,
        ledger: str | Path | bool = True,
        budget: float | None = None,
        tick: Callable[[int, float | None], None] | None = None,
    ) -> Answer:
        """Charge the query, read the input, and answer.

        Args:
            ledger: See `query`.
            budget: See `query`.
            tick: Called after each batch with the number of rows, and the share of the input that was read.
        """
        self._check_read_once()
        paths = self.ledgers(ledger)
        if budget is not None and not paths:
            raise InvalidParameter("a budget needs a ledger: name a file for it")
        with (
            self._with_hints(lambda: _as_query_errors(lambda: Selector(self.config))) as select,
            _as_query_errors(lambda: Engine(self.config)) as engine,
        ):
            source = open_configured_source(self.config, self._source, **self.guess.reading)
            engine.declare("calls")
            claims = {plan.config.name: plan.claim for plan in engine.plans}
            is_single = sum(not query.of_unusable for query in self.config.queries) == 1
            claims_by_text = {
                self.sql if is_single and name == _NAME else f"{self.sql} ({name})": claims[name] for name in claims
            }
            charged = charge_ledgers(paths, claims_by_text, budget=budget)
            self.ingested = ingest_all(engine, source, select, on_batch=tick, once=True)
            if self.ingested.interrupted:
                raise KeyboardInterrupt
            engine.step()  # starts the schedules, so that an input without rows is answered like any other
            engine.finish()
            has_several_columns = len(self.config.statements[0].view.shown) > 1
            zone = self.config.stream.time_zone
            rows = [
                release_to_row(release, name if has_several_columns else None, zone=zone)
                for name, release in visible_rows(engine)
            ]
            answer_plans = [plan for plan in engine.plans if not plan.config.of_unusable]
            promised = (
                *contribution_notes(answer_plans, None if "pipe" in self.guess.reading else ROWS_OF_FILES),
                *(note for _, note in notes(engine)),
                *size_notes(answer_plans, rows),
            )
            shares = shares_text(answer_plans)
            unusable = published_share(engine)
        return Answer(
            sql=self.sql,
            rows=tuple(rows),
            claims=tuple(claims.values()),
            guessed=self.guess.to_json(),
            ledger=charged,
            covered="" if charged is None else self._covered(ledger),
            notes=promised,
            shares=shares,
            unusable=unusable,
        )


def table_in_from(sql: str, public: Sequence[str] = ()) -> str:
    """Return the table of a statement's FROM; a file name is in quotes. Raise unless it is one SELECT.

    Args:
        sql: The statement.
        public: The tables that it may join.

    >>> table_in_from("SELECT COUNT(*) FROM 'logs/*.csv' WHERE status = 200")
    'logs/*.csv'
    """
    table, _ = table_read(sql, public)
    if table.args.get("db") is not None:
        raise InvalidParameter(f"put the name of the file in quotes: FROM '{table.sql(dialect='duckdb')}'")
    if not table.name:
        raise InvalidParameter(f"FROM must name a file, a glob, a directory or '-', in quotes; got {table.sql()}")
    return str(table.name)


def _config(
    sql: str,
    columns: Mapping[str, str],
    declared: Mapping[str, str | None],
    settings: Mapping[str, Any],
    public: Sequence[str],
) -> Config:
    for role in ("user", "time"):
        column = declared[role]
        if column is not None and column not in columns:
            raise InvalidParameter(f"{role} must be one of the columns {', '.join(columns)}, got {column!r}")
    stream: dict[str, Any] = {"name": table_in_from(sql, public), "columns": dict(columns)}
    stream |= {key: value for key, value in declared.items() if value is not None}
    scheduled = settings.get("window") is not None or settings.get("every") is not None
    if scheduled or declared["time"] is not None:
        stream |= {"time": declared["time"] or _time_column(columns), "lateness": _ANY_ORDER}
    query_table = {"name": _NAME, "sql": sql, **{key: value for key, value in settings.items() if value is not None}}
    if isinstance(groups := query_table.get("groups"), Mapping):
        query_table["groups"] = {name: _keys(keys, columns.get(name)) for name, keys in groups.items()}
    lookups = {name: {"file": name, "key": key} for name, key in table_read(sql, public)[1].items()}
    config = _as_query_errors(lambda: read_config({"stream": stream, "query": [query_table], "lookup": lookups}))
    return replace(config, stream=replace(config.stream, guessed=True))


def _divided(query: QueryConfig, stream: StreamConfig) -> QueryConfig:
    """Divide epsilon and delta over the groups that one user can be in, so that they cost the declared total."""
    groups = plan_query(query, stream, ("memory",)).groups_touched
    return replace(
        query,
        epsilon=round_down(equal_share(query.epsilon, groups)),
        delta=round_down(equal_share(query.delta, groups)),
    )


def _keys(keys: Any, kind: str | None) -> Any:
    """Convert group keys that are given as text to the type of their column; of an expression, the type comes later."""
    if not isinstance(keys, list | tuple):
        return keys
    if kind is None:
        return [KeyText(key) if isinstance(key, str) else key for key in keys]
    try:
        return [parse_group_key(key, kind) if isinstance(key, str) else key for key in keys]
    except ValueError:
        return list(keys)  # planning reports the invalid key


def _time_column(columns: Mapping[str, str]) -> str:
    candidates = [name for name, kind in columns.items() if kind in _TIMES]
    if len(candidates) != 1:
        which = (
            f"there are several: {', '.join(candidates)}" if candidates else "there is no column of timestamps or dates"
        )
        raise InvalidParameter(f"a window needs the column of event time, time, and {which}")
    return candidates[0]


def _with_types(guessed: InferredSchema, types: Mapping[str, str]) -> InferredSchema:
    for column in types:
        if column not in guessed.columns:
            raise InvalidParameter(
                f"types must name columns of the input, {', '.join(guessed.columns)}; got {column!r}"
            )
    return replace(guessed, columns={**guessed.columns, **types})


def _as_query_errors(work: Callable[[], _T]) -> _T:
    """Return ``work()``; re-raise ConfigError as InvalidParameter without references to a configuration file."""

    def without_sections(error: ConfigError) -> InvalidParameter:
        message = str(error).replace("declare user in [stream]", "give user, the column that identifies the person")
        message = re.sub(r"^\[lookup\.[^\]]*\]: ", "", message)  # it names the file, too
        for prefix in (f"[[query]] {_NAME} sql: ", f"[[query]] {_NAME}: ", f"[[query]] {_NAME} ", "[stream] "):
            message = message.replace(prefix, "")
        return InvalidParameter(message)

    return translate_errors(work, ConfigError, without_sections)
