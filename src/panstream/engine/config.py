"""``panstream.toml``: a stream with typed columns, and the questions asked of it.

Every key is checked; an unknown one is refused with the nearest known one, since a misspelt privacy setting must not pass
silently.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from panstream.durations import parse_duration
from panstream.engine.sql import ParsedQuery, parse
from panstream.errors import ConfigError, InvalidParameter, SqlRefused
from panstream.privacy.claim import Unit
from panstream.refresh import MAX_PHASES

__all__ = [
    "COLUMN_TYPES",
    "Config",
    "Durability",
    "QueryConfig",
    "StreamConfig",
    "load_config",
    "read_config",
]

COLUMN_TYPES = ("int", "double", "string", "binary", "bool", "timestamp", "date")
Durability = Literal["batch", "interval", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """What the rows look like. Types are declared, never read from the data."""

    name: str
    columns: Mapping[str, str]
    user: str | None = None
    weight: str | None = None  # signed integer column: rows add and take away
    time: str | None = None  # column of event time; arrival time if absent
    lateness: float = 0.0  # seconds that a row may be late
    ahead: float | None = 3600.0  # seconds that a row's time may be ahead of the clock; None: any, for simulated data
    max_jump: float = 3600.0  # seconds that the system's clock may jump ahead
    max_gap: float = 7 * 86400.0  # seconds from one process to the next after which the clock is believed
    on_bad_row: Literal["skip", "stop"] = "skip"
    budget: Mapping[str, float] = field(default_factory=dict)  # limit per unit


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConfig:
    """One question and what may be spent on it."""

    name: str
    sql: str
    parsed: ParsedQuery
    epsilon: float
    universe: int | tuple[Any, ...] | None = None
    expected: int | None = None
    memory: int | None = None
    lower: float | None = None
    upper: float | None = None
    max_weight: int | None = None
    releases: int = 1
    every: float | None = None  # seconds between releases on the clock
    horizon: int | None = None  # how many of them
    window: float | None = None  # seconds; each window is a fresh state
    groups: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    groups_per_user: int | None = None  # how many groups one user can touch; all of them if unknown
    contributions: int | None = None  # rows of one user that are protected together
    announced: int = 0  # intrusions that will be told of and are paid for in advance
    key: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One stream, its queries, and where the state lives."""

    stream: StreamConfig
    queries: tuple[QueryConfig, ...]
    directory: Path | None = None
    durability: Durability = "batch"
    interval: float = 1.0
    batch_rows: int | None = None  # what suits the source
    batch_time: float = 0.020
    commit_rows: int = 5_000_000  # of files: they can be read again, so nobody waits for the disk
    step: float | None = (
        None  # seconds between two commits of live rows: 0 as they come, None chosen by the state's size
    )

    def query(self, name: str) -> QueryConfig:
        """Return the query called ``name``."""
        for query in self.queries:
            if query.name == name:
                return query
        raise ConfigError(f"there is no query named {name!r}; known: {', '.join(q.name for q in self.queries)}")


def load_config(path: str | Path) -> Config:
    """Read a configuration file; relative paths in it count from its folder."""
    source = Path(path)
    refused: str | None = None
    try:
        data = tomllib.loads(source.read_text())
    except FileNotFoundError:
        refused = f"there is no configuration file {source.name!r}"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        refused = f"{source.name}: {error}"
    if refused is not None:
        raise ConfigError(refused)
    return read_config(data, base=source.parent)


def read_config(data: Mapping[str, Any], *, base: Path = Path()) -> Config:
    """Check a configuration given as plain values."""
    top = _Section("the file", data, {"stream", "query", "store"})
    stream = _stream(
        _Section(
            "[stream]",
            top.table("stream"),
            {
                "name",
                "columns",
                "user",
                "weight",
                "time",
                "lateness",
                "ahead",
                "max_jump",
                "max_gap",
                "on_bad_row",
                "budget",
            },
        )
    )
    tables = top.optional("query", list) or []
    if not tables:
        raise ConfigError("at least one [[query]] is needed")
    queries = tuple(_query(table, stream, number) for number, table in enumerate(tables, start=1))
    names = [query.name for query in queries]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two queries are named {name!r}")
    store = _Section(
        "[store]",
        top.optional("store", dict) or {},
        {"directory", "durability", "interval", "batch_rows", "batch_time", "commit_rows", "step"},
    )
    directory = store.optional("directory", str)
    return Config(
        stream=stream,
        queries=queries,
        directory=None if directory is None else base / directory,
        durability=store.choice("durability", get_args(Durability), "batch"),
        interval=store.duration("interval") or 1.0,
        batch_rows=store.whole("batch_rows", 1, 10_000_000),
        batch_time=store.duration("batch_time") or 0.020,
        commit_rows=store.whole("commit_rows", 1, 1 << 40) or 5_000_000,
        step=0.0 if store.values.get("step") == "none" else store.duration("step"),
    )


def _stream(section: _Section) -> StreamConfig:
    columns = section.table("columns")
    for column, kind in columns.items():
        if kind not in COLUMN_TYPES:
            raise ConfigError(f"[stream.columns] {column}: type must be one of {', '.join(COLUMN_TYPES)}")
    if not columns:
        raise ConfigError("[stream.columns] must declare at least one column")
    user, time, weight = (section.optional(role, str) for role in ("user", "time", "weight"))
    for role, column in (("user", user), ("time", time), ("weight", weight)):
        if column is not None and column not in columns:
            raise ConfigError(f"[stream] {role}: column {column!r} is not declared in [stream.columns]")
    if time is not None and columns[time] not in ("timestamp", "date", "int"):
        raise ConfigError(f"[stream] time: column {time!r} must be a timestamp, a date or an int of seconds")
    if weight is not None and columns[weight] != "int":
        raise ConfigError(f"[stream] weight: column {weight!r} must be an int")
    budget = section.optional("budget", dict) or {}
    for unit, limit in budget.items():
        if unit not in get_args(Unit):
            raise ConfigError(f"[stream.budget] {unit}: unit must be one of {', '.join(get_args(Unit))}")
        if not isinstance(limit, int | float) or isinstance(limit, bool) or not limit > 0:
            raise ConfigError(f"[stream.budget] {unit} must be a positive number")
    return StreamConfig(
        name=section.required("name", str),
        columns=dict(columns),
        user=user,
        weight=weight,
        time=time,
        lateness=section.duration("lateness") or 0.0,
        ahead=_ahead(section),
        max_jump=section.duration("max_jump") or 3600.0,
        max_gap=section.duration("max_gap") or 7 * 86400.0,
        on_bad_row=section.choice("on_bad_row", ("skip", "stop"), "skip"),
        budget={unit: float(limit) for unit, limit in budget.items()},
    )


def _ahead(section: _Section) -> float | None:
    if section.values.get("ahead") == "any":
        return None
    found = section.duration("ahead")
    return 3600.0 if found is None else found


def _query(table: Any, stream: StreamConfig, number: int) -> QueryConfig:
    known = {declared for declared in QueryConfig.__dataclass_fields__ if declared != "parsed"}
    name = table.get("name") if isinstance(table, dict) else None
    section = _Section(f"[[query]] {name or number}", table, known)
    statement = section.required("sql", str)
    refused: str | None = None
    try:
        parsed = parse(statement, columns=stream.columns, user=stream.user, stream=stream.name)
    except SqlRefused as error:
        refused = f"{section.place} sql: {error}"
    if refused is not None:
        raise ConfigError(refused)
    groups = _groups(section, parsed)
    every = section.duration("every")
    horizon = section.whole("horizon", 1, 1 << 40)
    if every is None and horizon is not None and section.optional("releases", int) is not None:
        raise ConfigError(f"{section.place}: give releases, or every with horizon")
    return QueryConfig(
        name=section.required("name", str),
        sql=statement,
        parsed=parsed,
        epsilon=section.positive("epsilon", required=True) or math.nan,
        universe=_universe(section),
        expected=section.whole("expected", 1, 1 << 62),
        memory=section.whole("memory", 1, 1 << 50),
        lower=section.number("lower"),
        upper=section.number("upper"),
        max_weight=section.whole("max_weight", 1, 1 << 60),
        releases=section.whole("releases", 1, 1 << 30) or 1,
        every=every,
        horizon=horizon,
        window=section.duration("window"),
        groups=groups,
        groups_per_user=section.whole("groups_per_user", 1, 1 << 20),
        contributions=section.whole("contributions", 1, 1 << 40),
        announced=section.whole("announced", 0, MAX_PHASES) or 0,
        key=section.whole("key", 0, (1 << 128) - 1) or 0,
    )


def _groups(section: _Section, parsed: ParsedQuery) -> dict[str, tuple[Any, ...]]:
    declared = section.optional("groups", dict) or {}
    missing = [key for key in parsed.group_by if key not in declared]
    if missing:
        raise ConfigError(
            f"{section.place}: GROUP BY {missing[0]} needs its keys declared: groups = {{ {missing[0]} = [...] }}; "
            "keys read from the data would tell who is in it"
        )
    extra = [key for key in declared if key not in parsed.group_by]
    if extra:
        raise ConfigError(f"{section.place}: groups names {extra[0]!r}, which the query does not group by")
    for key, values in declared.items():
        if not isinstance(values, list) or not values or len(set(map(repr, values))) != len(values):
            raise ConfigError(f"{section.place}: groups.{key} must list different keys")
    return {key: tuple(values) for key, values in declared.items()}


def _universe(section: _Section) -> int | tuple[Any, ...] | None:
    value = section.values.get("universe")
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(value)
    return section.whole("universe", 1, 1 << 62)


class _Section:
    """One table of the file, read with errors that name the place."""

    def __init__(self, place: str, values: Any, known: set[str]) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(f"{place} must be a table")
        self.place, self.values = place, values
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                raise ConfigError(f"{place}: unknown key {key!r}" + (f", did you mean {near[0]!r}?" if near else ""))

    def optional(self, key: str, kind: type[Any]) -> Any:
        value = self.values.get(key)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise ConfigError(f"{self.place}: {key} must be a {_say(kind)}")
        return value

    def required(self, key: str, kind: type[Any]) -> Any:
        value = self.optional(key, kind)
        if value is None or value == "":
            raise ConfigError(f"{self.place}: {key} is missing")
        return value

    def table(self, key: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.required(key, dict)
        return found

    def number(self, key: str) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{self.place}: {key} must be a finite number")
        return float(value)

    def positive(self, key: str, *, required: bool = False) -> float | None:
        value = self.number(key)
        if value is None and required:
            raise ConfigError(f"{self.place}: {key} is missing")
        if value is not None and not value > 0:
            raise ConfigError(f"{self.place}: {key} must be positive, got {key}={value:g}")
        return value

    def whole(self, key: str, low: int, high: int) -> int | None:
        value: int | None = self.optional(key, int)
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{self.place}: {key} must be in {low}..{high}, got {key}={value}")
        return value

    def duration(self, key: str) -> float | None:
        if self.values.get(key) is None:
            return None
        refused: str | None = None
        try:
            return parse_duration(self.values[key], name=key)
        except InvalidParameter as error:
            refused = f"{self.place}: {error}"
        raise ConfigError(refused)

    def choice(self, key: str, options: tuple[str, ...], default: str) -> Any:
        value = self.optional(key, str) or default
        if value not in options:
            raise ConfigError(f"{self.place}: {key} must be one of {', '.join(options)}, got {value!r}")
        return value


def _say(kind: type[Any]) -> str:
    return {str: "string", int: "whole number", dict: "table", list: "list"}.get(kind, kind.__name__)
