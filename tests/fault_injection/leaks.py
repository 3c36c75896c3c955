"""Leaks put in on purpose, one for every field that is compared, and the mistakes of earlier versions: all must be
caught.

Most make one visible thing depend on how many rows the WHERE of the first query has let through. The fork server of the
audit imports this module when it is started with ``--instrument tests.fault_injection.leaks``.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from panstream.audit.product.audit import INGEST_PATHS, audit_system, bundled
from panstream.audit.product.fork_server_client import ForkServer

_Change = TypeVar("_Change", bound=Callable[..., Any])

INSTRUMENT = __name__

INJECTED_LEAKS: dict[str, tuple[str, Callable[[], None]]] = {}
"""By name: where the leak shows, a key of ``_SHOWN_BY``, and what puts it in."""

_SHOWN_BY = {  # the bundled configuration, or one beside this module, and the number of the ingest path
    "run": ("visitors", 0),
    "serve": ("visitors", 3),
    "cluster": ("visitors", 7),
    "workers": ("hours", 6),
    "beacon": ("site", 11),
    "follow": ("visitors", 12),
    "arrival": ("arrivals", 3),
    "sender": ("counted", 0),
    "client": ("counted_arrivals", 14),
    "async client": ("counted_arrivals", 15),
    "send": ("counted_arrivals", 16),
    "query": ("limits", 8),
}
PERSON = "person with 3 rows in each of 3 windows"
_TELLING_NEIGHBOURS = ("section: unknown", "age: empty", "event removed", "visitor: no number", PERSON)
_CHECKPOINT = "panstream.engine.runtime.checkpoint:EngineCheckpoint"
_hits = _rows = _beacons = 0
_eager: set[tuple[int, str]] = set()  # users with several rows in an hour, and the hour
_before = -1  # the first step of shards starts their states
_ending: list[Callable[[int], int]] = []


def run_positive_controls(fork_server: ForkServer, *, only: Sequence[str] = ()) -> dict[str, str]:
    """Inject each leak, or ``only`` some, and run the audit; return the first field that gave each away, or nothing.

    Args:
        fork_server: A fork server that was started with ``INSTRUMENT``.
        only: Names of leaks; all by default.
    """
    configurations = {path.stem: path for path in [*bundled(), Path(__file__).with_name("hours.toml")]}
    telling_fields: dict[str, str] = {}
    for name in only or INJECTED_LEAKS:
        configuration, index = _SHOWN_BY[INJECTED_LEAKS[name][0]]
        report = audit_system(
            configurations[configuration],
            fork_server,
            ingest_paths=[INGEST_PATHS[index]],
            injected_leaks=[name],
            choose=lambda neighbour: neighbour.name in _TELLING_NEIGHBOURS,
        )
        telling_fields[name] = report.undeclared[0].field if report.undeclared else ""
    return telling_fields


def inject_leaks(names: Sequence[str]) -> Callable[[int], int]:
    """Put leaks into this process; return what they make of its exit code."""
    for name in names:
        _wrap("panstream.engine.runtime.engine:Engine", "apply", _counting)
        INJECTED_LEAKS[name][1]()

    def exit_code(code: int) -> int:
        for change in _ending:
            code = change(code)
        return code

    return exit_code


def _wrap(owner: str, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by ``change(function, *arguments)``."""
    target = resolve_name(owner)
    real = getattr(target, name)
    setattr(target, name, lambda *args, **options: change(real, *args, **options))


def _leak(title: str, owner: str, name: str, *, shown_by: str = "run") -> Callable[[_Change], _Change]:
    """Register what replaces a function."""

    def register(change: _Change) -> _Change:
        INJECTED_LEAKS[title] = shown_by, lambda: _wrap(owner, name, change)
        return change

    return register


def _counting(apply: Any, engine: Any, rows: Any, **options: Any) -> Any:
    """Count selected rows, as no shipped code does."""
    global _hits, _rows
    chosen = next(iter(rows.queries.values())).rows
    _hits += rows.count if chosen is None else int(chosen.sum())
    _rows += rows.count
    return apply(engine, rows, **options)


def _with_meta(parts: dict[str, bytes], **figures: int) -> dict[str, bytes]:
    return {**parts, "meta": json.dumps({**json.loads(parts["meta"]), **figures}).encode()}


_leak("store metadata", _CHECKPOINT, "parts")(lambda parts, *args: _with_meta(parts(*args), hits=_hits))
_leak("number of rows in the store", _CHECKPOINT, "parts")(lambda parts, *args: _with_meta(parts(*args), rows=_rows))


@_leak("times of bad rows are lost", "panstream.engine.runtime.engine:Engine", "_times")
def _times_of_bad_rows_lost(times: Any, engine: Any, rows: Any) -> Any:
    import numpy as np

    finite, event_times = times(engine, rows)
    return finite, event_times if event_times is None or rows.bad is None else np.where(rows.bad, np.nan, event_times)


_leak("a further part of the store", _CHECKPOINT, "parts")(lambda parts, *args: {**parts(*args), "rest": bytes(_hits)})


@_leak(
    "sparse sums of windows",
    "panstream.distributed.sharded._ordered_reading:SegmentSums",
    "to_prepared",
    shown_by="workers",
)
def _sparse_sums(to_prepared: Any, segment: Any, **options: Any) -> Any:
    """Open the windows with selected rows only, as an answer of a worker would that leaves out empty sums."""
    prepared = to_prepared(segment, **options)
    prepared.batches = [(slot, batch) for slot, batch in prepared.batches if batch.total.any()]
    prepared.windows = tuple(sorted({window for (window, _), _ in prepared.batches}))
    return prepared


@_leak("header of a state", "panstream.primitives.codec", "encode")
def _in_a_state_header(encode: Any, name: str, parameters: Any, *rest: Any, **options: Any) -> Any:
    header = json.loads(parameters) if isinstance(parameters, str) else parameters
    return encode(name, {**header, "hits": _hits}, *rest, **options)


@_leak("public field of a state", "panstream.primitives.codec", "encode")
def _in_a_state_field(encode: Any, name: str, parameters: Any, state: Any, *rest: Any, **options: Any) -> Any:
    if not hasattr(state, "released"):
        return encode(name, parameters, state, *rest, **options)
    released = state.released
    state.released = _hits
    try:
        return encode(name, parameters, state, *rest, **options)
    finally:
        state.released = released


@_leak("size of a file", "panstream.engine.runtime.engine:Engine", "commit")
def _in_a_file_size(commit: Any, engine: Any, **options: Any) -> None:
    commit(engine, **options)
    (Path(engine.config.directory) / "cache").write_bytes(bytes(_hits))


@_leak("number of commits", "panstream.engine.runtime.engine:Engine", "finish")
def _in_commits(finish: Any, engine: Any) -> None:
    for _ in range(_hits):
        engine.commit()
    finish(engine)


@_leak("log of releases", "panstream.engine.storage.release_log:ReleaseLog", "publish")
def _in_the_log_of_releases(publish: Any, log: Any, release: Any) -> bool:
    for number in range(_hits % 7):
        publish(log, type(release)(query="rest", number=number, time=release.time, record={}))
    return bool(publish(log, release))


@_leak("label of a release", "panstream.engine.runtime.engine", "release_record")
def _in_a_label(record: Any, *args: Any) -> Any:
    release = record(*args)
    release.record["end"] = f"2026-01-01T00:00:{_hits:02}Z"
    return release


_leak("time of a release", "panstream.engine.runtime.engine", "release_timestamp")(
    lambda *args: f"2026-01-01T00:00:{_hits:02}Z"
)


def _in_windows_of_eager_users() -> None:
    """Count, hour by hour, the users with at least three rows: no neighbour that differs in one row shows it."""

    def watched(select: Any, selector: Any, batch: Any) -> Any:
        times, users = (batch.columns.column(name).to_pylist() for name in ("time", "visitor"))
        rows = Counter((user, f"{time:%d %H}") for time, user in zip(times, users, strict=True) if time and user)
        _eager.update(pair for pair, count in rows.items() if count >= 3)
        return select(selector, batch)

    _wrap("panstream.engine.runtime.selector:Selector", "__call__", watched)
    _wrap(_CHECKPOINT, "parts", lambda parts, *args: _with_meta(parts(*args), eager=len(_eager)))


LEAK_OF_A_PERSON = "users with several rows in a window"
INJECTED_LEAKS[LEAK_OF_A_PERSON] = "run", _in_windows_of_eager_users
_leak(
    "rows above a sender's bound are counted", "panstream.engine.runtime.selector", "counted_windows", shown_by="sender"
)(lambda windows, entries, kind, length, most: windows(entries, kind, length, 1_000_000))


@_leak(
    "windows of a sender are not compared",
    "panstream.engine.rows.row_batch:QuerySelection",
    "admitted",
    shown_by="sender",
)
def _in_any_window(admitted: Any, selection: Any, windows: Any) -> Any:
    from panstream.engine.rows.sender_counts import NOT_COUNTED

    return True if selection.counted is None else selection.counted != NOT_COUNTED


def _ignore_cap(number: Any, counts: Any, kinds: Any, now: float) -> Any:
    counts._caps = dict.fromkeys(counts._caps, 1_000_000)
    return number(counts, kinds, now)


for _sender in ("client", "async client", "send"):
    _leak(
        f"a sender, {_sender}, ignores its bound",
        "panstream.primitives.sender_counts:SentCounts",
        "number",
        shown_by=_sender,
    )(_ignore_cap)
    _leak(
        f"a sender, {_sender}, forgets its numbers when it restarts",
        "panstream.client._row_counts",
        "_write",
        shown_by=_sender,
    )(lambda write, file, text: None)


_leak(
    "rows above a file's bound are counted",
    "panstream.algorithms.continual.tree_base",
    "first_contributions",
    shown_by="query",
)(lambda first, users, rows, most: first(users, rows, 1_000_000))


def _printed(stream: str) -> Callable[[], None]:
    def leaking(code: int) -> int:
        print("rows so far:", _hits, file=getattr(sys, stream), flush=True)
        return code

    return lambda: _ending.append(leaking)


INJECTED_LEAKS["exit code"] = "run", lambda: _ending.append(lambda code: 100 + _hits % 50)
INJECTED_LEAKS["standard output"] = "run", _printed("stdout")
INJECTED_LEAKS["standard error"] = "run", _printed("stderr")


@_leak("headers of responses", "starlette.responses:Response", "__init__", shown_by="serve")
def _in_headers(init: Any, response: Any, *args: Any, **options: Any) -> None:
    init(response, *args, **options)
    response.headers["x-rows"] = str(_hits)


_leak("size of responses", "starlette.responses:Response", "render", shown_by="serve")(
    lambda render, *args: bytes(render(*args)) + b" " * _hits
)


@_leak(
    "shards take part only where a row was selected",
    "panstream.distributed.sharded._backend:ClusterBackend",
    "_call_all_shards",
    shown_by="cluster",
)
def _steps_of_shards(everywhere: Any, backend: Any, method: str, *args: Any, **options: Any) -> Any:
    global _before
    if method == "apply" and _hits == _before:
        return None
    _before = _hits
    return everywhere(backend, method, *args, **options)


@_leak("number of beacons", "panstream.server.website.beacon_buffer:BeaconBuffer", "take", shown_by="beacon")
def _beacons_in_headers(take: Any, *args: Any) -> Any:
    """Tell in every answer how many beacons came."""

    def telling(start: Any, response: Any, headers: Any = None) -> Any:
        return start(response, {**(headers or {}), "x-beacons": str(_beacons)})

    global _beacons
    if not _beacons:
        _wrap("starlette.responses:Response", "init_headers", telling)
    _beacons += 1
    return take(*args)


@_leak("commits of followed rows", "panstream.server.ingest.source_reader:SourceReader", "_take", shown_by="follow")
def _commits_of_followed_rows(take: Any, reader: Any, batch: Any, engine: Any) -> Any:
    """Store the state once for every row of a followed file that was selected."""
    previous_hits = _hits
    taken = take(reader, batch, engine)
    for _ in range(_hits - previous_hits):
        reader._call(lambda now: now.commit())
    return taken


@_leak(
    "windows opened by a clock that went back",
    "panstream.engine.runtime.engine:Engine",
    "_follow_clock",
    shown_by="arrival",
)
def _windows_opened_again(follow: Any, engine: Any, *, start: bool = False) -> None:
    """Open windows by the clock even if they are over: the next row draws their answers."""
    if start:
        follow(engine, start=True)
        return
    now = engine._clock()
    for query in engine._queries.values():
        query.advance_to(query.schedule.at(now), engine._drawer(query))
        query.open_window(query.schedule.at(now))
    engine._stream_clock.advance_to(now)
