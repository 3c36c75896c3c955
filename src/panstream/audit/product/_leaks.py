"""Leaks put in on purpose, one for every place that is compared, and the mistakes of earlier versions: all must be
caught.

Most make one visible thing depend on how many rows the WHERE of the first query has let through.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

_Change = TypeVar("_Change", bound=Callable[..., Any])

PLANTS: dict[str, tuple[str, Callable[[], None]]] = {}
"""By name: the road on which the leak shows (run, serve, cluster, beacon, follow, arrival), and what puts it in."""

_KEPT = "panstream.engine.runtime.checkpoint:Kept"
_hits = _rows = _beacons = 0
_before = -1  # the first step of shards starts their states
_ending: list[Callable[[int], int]] = []


def plant(names: Sequence[str]) -> Callable[[int], int]:
    """Put leaks into this process; return what they make of its exit code."""
    for name in names:
        _wrap("panstream.engine.runtime.engine:Engine", "apply", _counting)
        PLANTS[name][1]()

    def exit_code(code: int) -> int:
        for change in _ending:
            code = change(code)
        return code

    return exit_code


def _wrap(owner: str, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by ``change(the function, arguments)``."""
    place = resolve_name(owner)
    real = getattr(place, name)
    setattr(place, name, lambda *given, **options: change(real, *given, **options))


def _leak(title: str, owner: str, name: str, *, road: str = "run") -> Callable[[_Change], _Change]:
    """Decorate what takes the place of a function."""

    def listed(change: _Change) -> _Change:
        PLANTS[title] = road, lambda: _wrap(owner, name, change)
        return change

    return listed


def _counting(apply: Any, engine: Any, rows: Any, **options: Any) -> Any:
    """Count selected rows, as no shipped code does."""
    global _hits, _rows
    chosen = next(iter(rows.queries.values())).rows
    _hits += rows.count if chosen is None else int(chosen.sum())
    _rows += rows.count
    return apply(engine, rows, **options)


def _noted(parts: dict[str, bytes], **figures: int) -> dict[str, bytes]:
    return {**parts, "meta": json.dumps({**json.loads(parts["meta"]), **figures}).encode()}


_leak("store metadata", _KEPT, "parts")(lambda parts, *given: _noted(parts(*given), hits=_hits))
_leak("number of rows in the store", _KEPT, "parts")(lambda parts, *given: _noted(parts(*given), rows=_rows))


@_leak("times of bad rows are lost", "panstream.engine.runtime.engine:Engine", "_times")
def _times_of_bad_rows_lost(times: Any, engine: Any, rows: Any) -> Any:
    import numpy as np

    known, found = times(engine, rows)
    return known, found if found is None or rows.bad is None else np.where(rows.bad, np.nan, found)


_leak("a further part of the store", _KEPT, "parts")(lambda parts, *given: {**parts(*given), "rest": bytes(_hits)})


@_leak("header of a state", "panstream.primitives.codec", "encode")
def _in_a_state_header(encode: Any, name: str, parameters: Any, *rest: Any, **options: Any) -> Any:
    given = json.loads(parameters) if isinstance(parameters, str) else parameters
    return encode(name, {**given, "hits": _hits}, *rest, **options)


@_leak("public field of a state", "panstream.primitives.codec", "encode")
def _in_a_state_field(encode: Any, name: str, parameters: Any, state: Any, *rest: Any, **options: Any) -> Any:
    if not hasattr(state, "released"):
        return encode(name, parameters, state, *rest, **options)
    released, state.released = state.released, _hits
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


@_leak("label of a release", "panstream.engine.runtime.engine", "record")
def _in_a_label(record: Any, *given: Any) -> Any:
    release = record(*given)
    release.record["until"] = f"2026-01-01T00:00:{_hits:02}Z"
    return release


_leak("time of a release", "panstream.engine.runtime.engine", "stamp_of")(
    lambda *given: f"2026-01-01T00:00:{_hits:02}Z"
)


def _printed(stream: str) -> Callable[[], None]:
    def leaking(code: int) -> int:
        print("rows so far:", _hits, file=getattr(sys, stream), flush=True)
        return code

    return lambda: _ending.append(leaking)


PLANTS["exit code"] = "run", lambda: _ending.append(lambda code: 100 + _hits % 50)
PLANTS["standard output"] = "run", _printed("stdout")
PLANTS["standard error"] = "run", _printed("stderr")


@_leak("headers of responses", "starlette.responses:Response", "__init__", road="serve")
def _in_headers(init: Any, response: Any, *given: Any, **options: Any) -> None:
    init(response, *given, **options)
    response.headers["x-rows"] = str(_hits)


_leak("size of responses", "starlette.responses:Response", "render", road="serve")(
    lambda render, *given: bytes(render(*given)) + b" " * _hits
)


@_leak(
    "shards take part only where a row was selected",
    "panstream.distributed.sharded._backend:ClusterBackend",
    "_everywhere",
    road="cluster",
)
def _steps_of_shards(everywhere: Any, backend: Any, method: str, *given: Any, **options: Any) -> Any:
    global _before
    if method == "apply" and _hits == _before:
        return None
    _before = _hits
    return everywhere(backend, method, *given, **options)


@_leak("number of beacons", "panstream.server.website.beacon_buffer:Beacons", "take", road="beacon")
def _beacons_in_headers(take: Any, *given: Any) -> Any:
    """Tell in every answer how many beacons came."""

    def telling(start: Any, response: Any, headers: Any = None) -> Any:
        return start(response, {**(headers or {}), "x-beacons": str(_beacons)})

    global _beacons
    if not _beacons:
        _wrap("starlette.responses:Response", "init_headers", telling)
    _beacons += 1
    return take(*given)


@_leak("commits of followed rows", "panstream.server.ingest.file_follower:Follower", "_take", road="follow")
def _commits_of_followed_rows(take: Any, follower: Any, batch: Any, engine: Any) -> Any:
    """Store the state once for every row of a followed file that was selected."""
    before = _hits
    taken = take(follower, batch, engine)
    for _ in range(_hits - before):
        follower._call(lambda now: now.commit())
    return taken


@_leak(
    "windows opened by a clock that went back",
    "panstream.engine.runtime.engine:Engine",
    "_follow_clock",
    road="arrival",
)
def _windows_opened_again(follow: Any, engine: Any, *, start: bool = False) -> None:
    """Open windows by the clock even if they are over: the next row draws their answers."""
    if start:
        follow(engine, start=True)
        return
    now = engine._clock()
    for query in engine._queries.values():
        query.reach(query.schedule.at(now), engine._drawer(query))
        query.open_at(query.schedule.at(now))
    engine._stream_clock.advance_to(now)
