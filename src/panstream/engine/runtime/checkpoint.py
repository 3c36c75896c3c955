"""The checkpoint of an engine: states, applied batches, ledger, and releases that are drawn but not yet published."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from panstream.engine.config.config import Config, QueryConfig
from panstream.engine.config.statement import Intake
from panstream.engine.planner.person_period import continue_history
from panstream.engine.runtime.coverage import Coverage
from panstream.engine.runtime.producers import Producers
from panstream.engine.runtime.release_record import release_timestamp
from panstream.engine.runtime.running_query import RunningQuery
from panstream.engine.runtime.state_backend import LocalBackend, Slot
from panstream.engine.storage.release_log import Release, ReleaseLog
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import ConfigError, NotSupported, StoreDamaged, StoreError
from panstream.privacy.ledger import Kind, Ledger
from panstream.privacy.person_history import AskedQuery

_FORMAT = 1


def open_store(config: Config, operator_key: bytes | None) -> SnapshotStore | None:
    """Open the store of a configuration; None if it names no directory."""
    if config.directory is None:
        return None
    if sys.platform == "win32":
        raise NotSupported(
            "a store cannot be kept on Windows, where an open file cannot be replaced: use WSL2 or a container"
        )
    return SnapshotStore(config.directory, operator_key=operator_key)


def open_log(config: Config) -> ReleaseLog:
    """Open the log of published answers, in memory if the configuration names no directory."""
    if config.directory is None:
        return ReleaseLog(":memory:", keep_tables=config.keep_tables)
    path = config.directory / "releases.sqlite"
    return ReleaseLog(path, keep_tables=config.keep_tables, keep_prefixes=config.keep_prefixes)


@dataclass(slots=True)
class EngineCheckpoint:
    """Everything that one commit stores besides the states themselves.

    With durability "none" states are not stored: every start creates new ones and charges for them again.
    """

    stream: str
    ledger: Ledger
    applied_batches: dict[str, int] = field(default_factory=dict)  # by file, or by a producer's position key
    producers: Producers = field(default_factory=Producers)
    unpublished: list[Release] = field(default_factory=list)
    intrusions: list[dict[str, Any]] = field(default_factory=list)
    applied: int | None = None  # arrival time at which rows were last applied, or may have been
    newest: float | None = None  # the stream's time
    dirty: bool = True  # whether input came since the last end of input
    with_states: bool = True
    intakes: list[Intake] = field(default_factory=list)  # how rows have arrived so far
    asked: tuple[AskedQuery, ...] = ()  # which queries were asked when, for a person's total
    parked: dict[str, Any] = field(default_factory=dict)  # queries that the configuration no longer names
    parked_states: dict[str, bytes] = field(default_factory=dict)
    config: Config | None = None
    # Cluster only: producer, number and next time of a batch that was applied in part.
    begun: tuple[str, int, float | None] | None = None
    # Cluster only: partitions that are applied in part, the clock and open steps before them, and the sections done.
    reading: dict[str, Any] | None = None
    _fingerprints: dict[str, dict[str, Any]] = field(default_factory=dict)  # cache, by query

    @classmethod
    def restore(
        cls,
        config: Config,
        store: SnapshotStore | None,
        queries: Mapping[str, RunningQuery],
        log: ReleaseLog,
        *,
        moment: float,
    ) -> EngineCheckpoint:
        """Load the stored checkpoint into ``queries``; start new queries at this ``moment`` and charge for them.

        Raises:
            ConfigError: A stored query was changed, or the store belongs to another stream.
            StoreError: Store and release log do not fit each other, so one of them was rolled back or removed.
        """
        now = release_timestamp(moment)
        parts = store.load() if store is not None else None
        published = log.counts()
        if parts is None and published:
            raise StoreError(
                "the release log has answers but the state is gone, so what was spent would be forgotten: use a new "
                "directory"
            )
        checkpoint = cls._read(config, parts)
        checkpoint.with_states = config.durability != "none"
        stored = {} if parts is None else cls.meta(parts)["queries"]
        checkpoint.parked = {name: {"removed": now, **meta} for name, meta in stored.items() if name not in queries}
        checkpoint.parked_states = {
            label: data for label, name, _, data in stored_states(parts or {}) if name in checkpoint.parked
        }
        for name, query in queries.items():
            _restore_query(query, config, stored.get(name), parts or {})
            query.coverage = _coverage(stored.get(name), now, begun=parts is not None)
            _check_log(query, published, {(release.query, release.number) for release in checkpoint.unpublished})
            charge = name if query.starts == 1 else f"{name} (start {query.starts})"
            if charge not in {name for name, _ in checkpoint.ledger}:
                checkpoint.ledger.charge(charge, query.plan.claim)
        checkpoint.config = config
        newest = None if parts is None else cls.meta(parts)["newest"]
        arrived = bool(checkpoint.asked) and config.stream.time is None
        checkpoint.asked = continue_history(
            checkpoint.asked,
            [query.plan for query in queries.values()],
            config,
            now=max(newest or 0.0, moment) if arrived else newest if checkpoint.asked else None,
            stored=checkpoint.with_states,
            sharded=any(type(query.backend) is not LocalBackend for query in queries.values()),
        )
        return checkpoint

    @classmethod
    def _read(cls, config: Config, parts: Mapping[str, bytes] | None) -> EngineCheckpoint:
        limits: dict[Kind, float] = {(unit, "add-remove"): limit for unit, limit in config.stream.budget.items()}  # type: ignore[misc]
        if parts is None:
            return cls(stream=config.stream.name, ledger=Ledger(limits))
        meta = cls.meta(parts)
        if meta["stream"] != config.stream.name:
            raise ConfigError(f"the store belongs to stream {meta['stream']!r}, not to {config.stream.name!r}")
        on = meta["with_states"]
        return cls(
            stream=meta["stream"],
            ledger=Ledger(limits, Ledger.from_json(meta["ledger"])),
            applied_batches=meta["seen"] if on else {},
            unpublished=[
                Release(
                    query=q,
                    number=n,
                    time=t,
                    record=r,
                    table=parts.get(f"table/{n}/{q}", b""),
                    unread=[q, n] in meta["unread"],
                )
                for q, n, t, r in meta["drawn"]
            ],
            intrusions=meta["intrusions"],
            applied=meta["applied"] if on else None,
            newest=meta["newest"] if on else None,
            dirty=meta["dirty"] if on else True,
            begun=tuple(meta["begun"]) if on and meta["begun"] else None,
            reading=meta.get("reading") if on else None,
            producers=Producers.from_json(meta["producers"]) if on else Producers(),
            intakes=meta["intakes"],
            asked=tuple(map(AskedQuery.from_json, meta.get("asked", ()))),
        )

    @staticmethod
    def meta(parts: Mapping[str, bytes]) -> dict[str, Any]:
        """Return the public part of a commit, which contains no state."""
        try:
            meta = json.loads(parts["meta"])
            format_version = meta["format"]
        except (KeyError, ValueError, TypeError):
            raise StoreDamaged("the store holds something other than an engine's state") from None
        if format_version != _FORMAT:
            raise StoreDamaged(f"the state has format {format_version!r}; this release reads format {_FORMAT}")
        return dict(meta)

    def parts(self, queries: Mapping[str, RunningQuery], drawn: Sequence[Release]) -> dict[str, bytes]:
        """Return the named parts of one commit: ``meta``, ``state/window/group/query`` and ``table/number/query``."""
        meta = {
            "format": _FORMAT,
            "stream": self.stream,
            "with_states": self.with_states,
            "seen": self.applied_batches,
            "begun": self.begun,
            **({} if self.reading is None else {"reading": self.reading}),
            "producers": self.producers.to_json(),
            "ledger": self.ledger.to_json(),
            "drawn": [[r.query, r.number, r.time, r.record] for r in drawn],
            "unread": [[r.query, r.number] for r in drawn if r.unread],
            "intrusions": self.intrusions,
            "applied": self.applied,
            "newest": self.newest,
            "dirty": self.dirty,
            "intakes": self.intakes,
            "asked": [query.to_json() for query in self.asked],
            "queries": {**self.parked, **{name: self._query_meta(query) for name, query in queries.items()}},
        }
        parts = {"meta": json.dumps(meta).encode(), **self.parked_states}
        parts |= {f"table/{release.number}/{release.query}": release.table for release in drawn if release.table}
        for name, query in queries.items() if self.with_states else ():
            for (window, group), monitor in query.monitors.items():
                parts[f"state/{window}/{group}/{name}"] = monitor.to_bytes(checksum=False)
        return parts

    def expose_parked(self) -> None:
        """Record that the states of parked queries were copied; without an algorithm they cannot be refreshed."""
        exposed: dict[str, list[Slot]] = {}
        for _, name, slot, _ in stored_states(self.parked_states):
            exposed.setdefault(name, []).append(slot)
        for name, slots in exposed.items():
            self.parked[name]["exposed"] = slots

    def _query_meta(self, query: RunningQuery) -> dict[str, Any]:
        assert self.config is not None
        name = query.plan.config.name
        if name not in self._fingerprints:
            self._fingerprints[name] = _query_fingerprint(query.plan.config, self.config)
        return {
            "declared": self._fingerprints[name],
            "algorithm": type(query.plan.algorithm).__name__,
            "claim": query.plan.claim.to_json(),
            "kept": self.with_states,
            "starts": query.starts,
            "made": query.release_count,
            "before": query.prior_releases,
            "ticked": list(query.ticks_by_window.items()),
            "started": list(query.started.items()),
            "refreshed": list(query.refreshed.items()),
            "exposed": sorted(query.exposed),
            "since": query.coverage.since,
            "gaps": query.coverage.gaps,
            "step": None if query.schedule is None else query.schedule.step,
        }


def stored_states(parts: Mapping[str, bytes]) -> Iterator[tuple[str, str, Slot, bytes]]:
    """Yield the states among the parts of a commit: label, query, slot and bytes."""
    for label, data in parts.items():
        if label.startswith("state/"):
            window, group, name = label.removeprefix("state/").split("/", 2)
            yield label, name, (int(window), int(group)), data


def _restore_query(
    query: RunningQuery, config: Config, meta: dict[str, Any] | None, parts: Mapping[str, bytes]
) -> None:
    if meta is None:
        query.start()
        return
    name = query.plan.config.name
    now = _query_fingerprint(query.plan.config, config)
    for key in {**meta["declared"], **now}:
        # Without a stored state the query starts again, under the settings that its claim now depends on.
        if now.get(key) != meta["declared"].get(key) and (meta["kept"] or key not in _CLAIMED):
            raise _changed(name, key)
    if not meta["kept"]:
        query.prior_releases = meta["before"] + meta["made"]
        query.starts = meta["starts"] + 1
        query.start()
        return
    if meta["claim"]["epsilon"] == "inf" and query.plan.claim.is_private:
        raise _changed(name, "a setting or a source of noise that gave it no privacy")
    for _, state_query, slot, data in stored_states(parts):
        if state_query == name:
            query.monitors[slot] = query.backend.restore(name, slot, data)
            if query.monitors[slot].algorithm != query.plan.algorithm:
                raise _changed(name, "its algorithm")
    query.release_count = meta["made"]
    query.prior_releases = meta["before"]
    query.starts = meta["starts"]
    query.exposed = {(int(window), int(group)) for window, group in meta["exposed"]}
    query.started = {int(window): int(moment) for window, moment in meta["started"]}
    query.refreshed = {int(window): list(moments) for window, moments in meta["refreshed"]}
    query.ticks_by_window = {int(window): int(count) for window, count in meta["ticked"]}
    if query.schedule is not None:
        query.schedule.step = meta["step"]


def _coverage(meta: dict[str, Any] | None, now: str, *, begun: bool) -> Coverage:
    """Return which rows a query can have seen: only later ones if it is new or its state was not stored."""
    if meta is None or not meta["kept"]:
        return Coverage(since=now if begun else None)
    gaps = [(begin, end) for begin, end in meta["gaps"]]
    if "removed" in meta:
        gaps.append((meta["removed"], now))
    return Coverage(since=meta["since"], gaps=tuple(gaps))


def _check_log(
    query: RunningQuery, published: Mapping[str, tuple[int, int]], drawn: Collection[tuple[str, int]]
) -> None:
    """Reject a state that was rolled back, and a log that was removed, truncated or replaced by an older one.

    Releases are stored before they are published, so a log may lack those of the last commits, which are ``drawn``.
    """
    name = query.plan.config.name
    release_count = query.prior_releases + query.release_count
    for series in query.plan.series:
        count, last = published.get(series, (0, 0))
        if last > release_count:
            raise StoreError(
                f"{name!r} has published more answers than its state knows of, so the state was rolled back and "
                "answers would be drawn twice: use a new directory"
            )
        unpublished = sum((series, number) in drawn for number in range(last + 1, release_count + 1))
        if count < last or last + unpublished < release_count:
            raise StoreError(
                f"the release log (releases.sqlite) has {count} answers of {name!r}, which has published "
                f"{release_count - unpublished}, so the log was removed or replaced, and answers drawn twice would go "
                "unnoticed: "
                "put the log back, or give the query a new name, which starts afresh and is charged on top"
            )


# Settings of the whole stream that claims depend on, by the keys under which they are stored. They must not change
# while a state is stored, since what the state was exposed to under the old setting cannot be undone.
_CLAIMED: dict[str, Callable[[Config], Any]] = {
    "[stream] on_bad_row": lambda config: config.stream.on_bad_row,
    "[store] durability": lambda config: config.durability,
    "[store] step": lambda config: "none" if config.step == 0 else "by the clock",
    "guessed columns": lambda config: config.stream.guessed,
}


_NOT_STORED = ("parsed", "name", "later", "target_error")  # the rest of a query, and what only plans it
# Their defaults are not in stores of version 1.
_STORED_IF_GIVEN = ("bounded_by", "counter", "calendar", "at_most", "changes")


def _query_fingerprint(query: QueryConfig, config: Config) -> dict[str, Any]:
    """Return, as JSON values, every setting that the meaning of a query's state or its claim depends on."""
    stream = config.stream
    values = {
        option.name: getattr(query, option.name)
        for option in fields(query)
        if option.name not in _NOT_STORED
        and not (option.name in _STORED_IF_GIVEN and getattr(query, option.name) == option.default)
    }
    about = {"user": stream.user, "weight": stream.weight, "time": stream.time, "lateness": stream.lateness}
    claimed = {key: read(config) for key, read in _CLAIMED.items()}
    types = {column: stream.columns[column] for column in sorted(query.parsed.columns)}
    means = {"meaning": dict(query.parsed.meaning)} if query.parsed.meaning else {}
    fingerprint = {**values, **about, **claimed, "columns": types, **means}
    return dict(json.loads(json.dumps(fingerprint, default=str)))


def _changed(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"[[query]] {name}: {what} was changed while its state is stored; change it back, or give the query a new "
        "name, which starts afresh and is charged on top"
    )
