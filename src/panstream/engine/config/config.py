"""``panstream.toml``: a stream with typed columns, the queries about it, and the store.

Each field of a section's dataclass carries the function that reads and checks its key; unknown keys are rejected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from panstream.algorithms.continual_users.release_strategies import Protected
from panstream.algorithms.randomized_bits import MAX_PHASES
from panstream.engine.config.budget import PersonBudget, read_budget
from panstream.engine.config.calendar_windows import read_calendar, read_time_zone
from panstream.engine.config.candidates import WindowChoice, candidate_tables
from panstream.engine.config.key_readers import (
    checked_sql,
    duration_or_keyword,
    integer,
    keys_of,
    one_of,
    option,
    present_values,
    read_names,
    read_not_negative,
    read_universe,
    typed,
)
from panstream.engine.config.retention import retention_options
from panstream.engine.config.sink import SinkConfig, read_sink
from panstream.engine.config.sketches import query_tables
from panstream.engine.config.statement import StatementConfig, read_statement
from panstream.engine.config.text_style import DecimalMark, Encoding, read_date_formats, read_encoding
from panstream.engine.config.two_party import TwoPartyConfig, cells_of, read_two_party
from panstream.engine.config.values import bounded_names, part_bounds, read_bounds, read_groups
from panstream.engine.config.website import WebConfig, read_web
from panstream.engine.sql.lookup_tables import LookupTable
from panstream.engine.sql.parser import Aggregate, ParsedQuery, check_derived, parse
from panstream.engine.sql.result_view import ResultView
from panstream.errors import ConfigError
from panstream.primitives.hashing import StringHash
from panstream.primitives.sender_counts import CODES, COLUMN, ROW
from panstream.primitives.time_grid import CalendarGrid, FixedGrid, TimeGrid
from panstream.primitives.toml_config import Section, load_config_file
from panstream.privacy.person_loss import BoundedBy
from panstream.privacy.rounding import equal_share, round_down

COLUMN_TYPES = ("int", "double", "string", "binary", "bool", "timestamp", "date")
Durability = Literal["batch", "interval", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """``[stream]``: columns, declared and never read from the data, and how bad and late rows are handled."""

    name: str
    columns: Mapping[str, str]
    user: str | None = option(typed(str))
    user_columns: tuple[str, ...] = option(read_names, ())  # of which each user has one value only
    weight: str | None = option(typed(str))  # signed integer column: deletions and negative weights
    time: str | None = option(typed(str))  # column of event time; arrival time if absent
    time_zone: str = option(read_time_zone, "UTC")  # of windows that are units of the calendar
    lateness: float = option(Section.duration, 0.0)  # seconds that a row may be late
    max_ahead: float | None = option(duration_or_keyword("any", None), 3600.0)  # seconds ahead of the clock
    max_clock_jump: float = option(Section.duration, 3600.0)  # seconds that the system clock may jump ahead
    max_clock_gap: float = option(Section.duration, 7 * 86400.0)  # seconds between two processes with a trusted clock
    on_bad_row: Literal["skip", "stop"] = option(one_of("skip", "stop"), "skip")
    delimiter: str | None = option(typed(str))  # of CSV in files and pipes; a comma, or a tab in .tsv
    decimal: DecimalMark = option(one_of(*get_args(DecimalMark)), ".")  # of numbers in such CSV
    date_format: tuple[str, ...] = option(read_date_formats, ())  # of text in files and pipes; ISO 8601 without one
    encoding: Encoding | None = option(read_encoding)  # of text in files and pipes; UTF-8 unless declared
    header: bool = option(typed(bool), True)  # whether such CSV begins with names; else columns are in declared order
    unusable_epsilon: float | None = option(read_not_negative)  # of the share of unusable rows that ``run`` publishes
    budget: Mapping[str, float] = field(default_factory=dict)  # limit per unit
    person: PersonBudget = PersonBudget()
    guessed: bool = False  # whether the columns were inferred from the input's first rows, and so are public
    derived: Mapping[str, str] = field(default_factory=dict)  # expressions of one row, by name
    # Addresses of the two machines that hold shares; ``cells`` is [two_party] cells, the kind of state that is shared.
    machines: tuple[str, ...] = option(lambda section, key: tuple(map(str, section.required(key, list))), ())
    cells: Literal["exact", "noisy"] = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConfig:
    """One state, its statistic and its budget; the statement of a [[query]] needs one or several of them."""

    name: str
    sql: str
    parsed: ParsedQuery
    epsilon: float  # 0 until the planner gives it a share of a person's budget
    statement: str = ""  # the name of the [[query]]
    universe: int | tuple[Any, ...] | None = option(read_universe)
    expected: int | None = option(integer(1, 1 << 62))
    at_most: int | None = option(integer(1, 1 << 62))  # users that may come, where one answer about any ids is asked
    memory: int | None = option(integer(1, 1 << 50))
    lower: float | None = option(typed(float))
    upper: float | None = option(typed(float))
    max_weight: int | None = option(integer(1, 1 << 60))
    releases: int = option(integer(1, 1 << 30), 1)
    every: float | None = option(Section.period)  # seconds between releases
    horizon: int | None = option(integer(1, 1 << 40))  # how many of them
    window: float | None = option(Section.period)  # seconds; each window has a new state
    calendar: CalendarGrid | None = None  # of window, or else of every, where that is a unit of the calendar
    groups: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    groups_per_user: int | None = option(integer(1, 1 << 20))  # groups that one user can be in; all if not declared
    delta: float = option(typed(float), 0.0)  # for counts of rows, and what is computed from them: Gaussian noise
    max_item_bytes: int | None = option(integer(1, 1024))  # for an open domain: longer names are truncated
    contributions: int | None = option(integer(1, 1 << 40))  # rows of one user that are protected together
    changes: int | None = option(integer(1, 1 << 20))  # times that one user comes or leaves, on two machines
    bounded_by: BoundedBy | None = option(one_of(*get_args(BoundedBy)))  # what bounds the rows of one user
    counter: str = option(one_of(*CODES), ROW)  # the kind of rows that senders number, if they bound their rows
    unit: Protected | None = option(one_of(*get_args(Protected)))  # what is protected; a user unless given
    user_window: float | None = option(Section.duration)  # seconds within which a user's rows are protected
    announced: int = option(integer(0, MAX_PHASES), 0)  # announced intrusions that are paid for in advance
    key: int = option(integer(0, (1 << 128) - 1), 0)
    weight: float = option(Section.positive_number, 1.0)  # importance, where a person's budget is divided
    target_error: float | None = option(Section.positive_number)  # largest useful 95% error
    later: tuple[QueryConfig, ...] = ()  # the same query in the windows that it may take instead
    of_unusable: bool = False  # whether it counts the rows that the other queries could and could not use
    # SipHash by default: whoever chooses the ids must not be able to choose their cells.
    hash: StringHash = option(one_of(*get_args(StringHash)), "siphash")

    @property
    def window_grid(self) -> TimeGrid | None:
        """Return the windows; None without."""
        return None if self.window is None else self.calendar or FixedGrid(self.window)

    @property
    def step_grid(self) -> TimeGrid | None:
        """Return the steps of the schedule, at whose ends there are answers; None without a schedule."""
        return self.window_grid if self.every is None else self.calendar or FixedGrid(self.every)

    @property
    def retention_window(self) -> float | None:
        """Return the length of the windows of RETENTION, whose one state outlives them; None for other questions."""
        return self.every if self.parsed.aggregate is Aggregate.RETENTION else None

    @property
    def names(self) -> str | None:
        """Return the open-domain key of GROUP BY, whose values are not declared, if there is one."""
        return next((key for key in self.parsed.group_by if key not in self.groups), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatementConfig:
    """One [[query]]: its name, the queries whose states answer it, and the view of their answers."""

    name: str
    queries: tuple[str, ...]
    view: ResultView


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One stream, its queries, and the store of their state.

    Args:
        stream: The stream: its columns, the user, the time, the person's budget.
        queries: The queries, those of statements among them.
        statements: Statements as written, each with the queries that answer it.
        lookups: Public tables that queries join, by name.
        directory: Folder of the store; None keeps the state in memory.
        digest: Fingerprint of all that a stored state depends on.
        two_party: The two machines that hold the state, if there are two.
        durability: What is on disk when a batch is acknowledged.
        interval: Seconds between two writes where ``durability`` is "interval".
        batch_rows: Rows of a micro-batch; chosen by the kind of source if None.
        batch_time: Seconds after which an incomplete micro-batch of live input is applied.
        keep_tables: Of how many answers about keys that nobody listed the table of counts is stored.
        keep_prefixes: Of how many such answers all published cells are stored.
        commit_rows: Rows of files that share one commit.
        step: Seconds of a step of live input; None lets the queries decide, 0 commits each batch.
        sink: The database to which answers are copied.
        web: The website whose visits are counted, for its dashboard.
        statement: The operator's own words for the privacy statement.
        choices: What became of each query when a person's budget was divided.
    """

    stream: StreamConfig
    queries: tuple[QueryConfig, ...]
    statements: tuple[_StatementConfig, ...] = ()
    lookups: Mapping[str, LookupTable] = field(default_factory=dict)
    directory: Path | None = None
    digest: str = field(default="", compare=False)  # SHA-256 of the file, in hexadecimal; "" if it is from no file
    two_party: TwoPartyConfig | None = None
    durability: Durability = option(one_of(*get_args(Durability)), "batch")
    interval: float = option(Section.duration, 1.0)
    batch_rows: int | None = option(integer(1, 10_000_000))  # None: chosen by the source
    batch_time: float = option(Section.duration, 0.020)
    keep_tables: int = option(integer(1, 1 << 30), 400)  # releases with tables for point queries
    keep_prefixes: int = option(integer(0, 1 << 30), 1)  # releases with all cells of names, for merging
    commit_rows: int = option(integer(1, 1 << 40), 5_000_000)  # rows of files per commit: they can be read again
    # Seconds between two commits of live rows; 0: commit each batch, None: chosen by the size of the state.
    step: float | None = option(duration_or_keyword("none", 0.0))
    sink: SinkConfig | None = None
    web: WebConfig | None = None
    statement: StatementConfig = StatementConfig()
    choices: tuple[WindowChoice, ...] = ()  # of the planner, where it divided a person's budget

    def query(self, name: str) -> QueryConfig:
        """Return the query called ``name``, or raise ConfigError."""
        for query in self.queries:
            if query.name == name:
                return query
        raise ConfigError(f"there is no query named {name!r}; known: {', '.join(q.name for q in self.queries)}")

    @property
    def needed_columns(self) -> frozenset[str]:
        """Return the columns that some query needs; no other column is read."""
        stream = self.stream
        columns: set[str | None] = {stream.time, stream.weight}
        for query in self.queries:
            columns |= query.parsed.columns
            if query.contributions is not None:
                columns.add(COLUMN if query.bounded_by == "sender" else stream.user)
        needed = frozenset(column for column in columns if column is not None)
        return needed or frozenset(list(stream.columns)[:1])


def load_config(path: str | Path) -> Config:
    """Read a configuration file; relative paths in it are relative to its directory.

    Args:
        path: A file in TOML.
    """
    config = read_config(load_config_file(Path(path)), base=Path(path).parent)
    return replace(config, digest=hashlib.sha256(Path(path).read_bytes()).hexdigest())


def read_config(data: Mapping[str, Any], *, base: Path = Path()) -> Config:
    """Build a configuration from plain values, or raise ConfigError; relative paths are relative to ``base``.

    Args:
        data: What a configuration file holds, as tables and plain values.
        base: Directory to which paths are relative.
    """
    sections = "stream query sketch store lookup two_party sink web statement"
    top = Section("config file", data, set(sections.split()))
    stream_keys = {*keys_of(StreamConfig), "name", "columns", "budget", "derived"}
    stream = _stream(Section("[stream]", top.required("stream", dict), stream_keys), cells_of(top))
    lookups = {name: _lookup(name, table, base) for name, table in top.optional("lookup", dict, {}).items()}
    tables = query_tables(top)
    statement_queries = [_queries(table, stream, lookups, number, base) for number, table in enumerate(tables, start=1)]
    queries = tuple(query for _, part_queries in statement_queries for query in part_queries)
    names = [query.name for query in queries] + [
        statement.name for statement, part_queries in statement_queries if len(part_queries) > 1
    ]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two queries are named {name!r}")
    for name in stream.person.allow_unbounded:
        if name not in names:
            raise ConfigError(f"[stream.budget] allow_unbounded: there is no query named {name!r}")
    store = Section("[store]", top.optional("store", dict, {}), {*keys_of(Config), "directory"})
    directory = store.optional("directory", str)
    if stream.machines and (directory is None or store.optional("durability", str, "batch") != "batch"):
        raise ConfigError('[stream] machines need [store] directory, and durability = "batch": their steps are durable')
    store_options = present_values(store, Config)
    return Config(
        stream=stream,
        queries=queries,
        statements=tuple(statement for statement, _ in statement_queries),
        lookups=lookups,
        directory=None if directory is None else base / directory,
        sink=read_sink(top, base, directory),
        two_party=read_two_party(top, stream.machines, base),
        web=read_web(top, stream.columns, stream.user, store_options.get("step")),
        statement=read_statement(top, base),
        **store_options,
    )


def _lookup(name: str, table: Any, base: Path) -> LookupTable:
    section = Section(f"[lookup.{name}]", table, {"file", "key"})
    return LookupTable.read(name, base / section.required("file", str), section.required("key", str))


def _stream(section: Section, cells: Literal["exact", "noisy"]) -> StreamConfig:
    columns = section.required("columns", dict)
    for column, kind in columns.items():
        if kind not in COLUMN_TYPES:
            raise ConfigError(f"[stream.columns] {column}: type must be one of {', '.join(COLUMN_TYPES)}")
    if not columns:
        raise ConfigError("[stream.columns] must declare at least one column")
    options = present_values(section, StreamConfig)
    for role in ("user", "time", "weight"):
        if options.get(role, next(iter(columns))) not in columns:
            raise ConfigError(f"[stream] {role}: column {options[role]!r} is not declared in [stream.columns]")
    time = options.get("time")
    weight = options.get("weight")
    if time is not None and columns[time] not in ("timestamp", "date", "int"):
        raise ConfigError(f"[stream] time: column {time!r} must be a timestamp, a date or an int of seconds")
    if weight is not None and columns[weight] != "int":
        raise ConfigError(f"[stream] weight: column {weight!r} must be an int")
    if len(options.get("delimiter", ",").encode()) != 1:
        raise ConfigError("[stream] delimiter must be one character of ASCII")
    budget, person = read_budget(section)
    derived = _derived(section, columns, options.get("user"))
    for column in options.get("user_columns", ()):
        if options.get("user") is None or column not in {*columns, *derived}:
            raise ConfigError(
                f"[stream] user_columns: {column!r} needs a user, and must be a declared or derived column"
            )
    return StreamConfig(
        name=section.required("name", str),
        columns=dict(columns),
        budget=budget,
        person=person,
        derived=derived,
        cells=cells,
        **options,
    )


def _derived(section: Section, columns: Mapping[str, str], user: str | None) -> dict[str, str]:
    derived: dict[str, str] = section.optional("derived", dict, {})
    for name, text in derived.items():
        label = f"[stream.derived] {name}"
        if name in columns:
            raise ConfigError(f"{label}: a column of this name is declared")
        if not isinstance(text, str):
            raise ConfigError(f"{label} must be an expression in SQL")
        checked_sql(label, partial(check_derived, name, text, columns, user, derived))
    return derived


def _queries(
    table: Any, stream: StreamConfig, lookups: Mapping[str, LookupTable], number: int, base: Path
) -> tuple[_StatementConfig, tuple[QueryConfig, ...]]:
    """Return one [[query]] and the queries for its states, with the windows that they may take instead."""
    name = table.get("name") if isinstance(table, dict) else None
    label = f"[[query]] {name or number}"
    known = {*keys_of(QueryConfig), "name", "sql", "epsilon", "groups", "bounds"}
    sections = [Section(label, one, known) for one in candidate_tables(label, table)]
    (statement, queries), *later = [_queries_in_window(section, stream, lookups, base) for section in sections]
    return statement, tuple(
        replace(query, later=tuple(parts[index] for _, parts in later)) for index, query in enumerate(queries)
    )


def _cap(section: Section, stream: StreamConfig) -> int | None:
    """Return how many rows of a user COUNT(*) or SUM(x) counts at most, where two machines cap them."""
    if section.choice("bounded_by", get_args(BoundedBy)) != "two_party" or not section.has("contributions"):
        return None
    if not stream.machines or stream.user is None:
        raise ConfigError(f'{section.label}: bounded_by = "two_party" needs [stream] machines and user')
    return section.integer("contributions", 1, 1 << 40)


def _queries_in_window(
    section: Section, stream: StreamConfig, lookups: Mapping[str, LookupTable], base: Path
) -> tuple[_StatementConfig, tuple[QueryConfig, ...]]:
    """Return one [[query]] and the queries for its states, which divide its epsilon and delta evenly."""
    statement = section.required("sql", str)
    is_divided = not section.has("epsilon") and stream.person.epsilon is not None
    epsilon = 0.0 if is_divided else section.positive_number("epsilon")
    select = checked_sql(
        f"{section.label} sql",
        lambda: parse(
            statement,
            columns=stream.columns,
            user=stream.user,
            stream=stream.name,
            derived=stream.derived,
            lookups=lookups,
            cap=_cap(section, stream),
        ),
    )
    if section.has("horizon") and section.has("releases") and not section.has("every"):
        raise ConfigError(f"{section.label}: give releases, or every with horizon")
    name = section.required("name", str)
    has_several_parts = len(select.parts) > 1
    groups = read_groups(section, select, base)
    options = present_values(section, QueryConfig)
    if select.parts[0].aggregate is Aggregate.RETENTION:
        options = retention_options(section.label, options)
    if has_several_parts and "delta" in options:
        options["delta"] = options["delta"] / len(select.parts)
    options |= read_calendar(section, options, stream.time_zone)
    bounds = read_bounds(section)
    unused = set(bounds) - {word for part in select.parts for word in bounded_names(part)}
    if unused:
        raise ConfigError(f"{section.label}: bounds names {min(unused)!r}, neither a value nor an answer of the query")
    queries = tuple(
        QueryConfig(
            name=f"{name}.{part.outputs[0].name}" if has_several_parts else name,
            sql=statement,
            parsed=part,
            epsilon=round_down(equal_share(epsilon, len(select.parts))) if has_several_parts else epsilon,
            statement=name,
            groups=groups,
            **{**options, **part_bounds(part, bounds, options)},
        )
        for part in select.parts
    )
    return _StatementConfig(name=name, queries=tuple(query.name for query in queries), view=select.view), queries
