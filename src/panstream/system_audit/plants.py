"""Leaks put in on purpose, one for every place that is compared, and the mistakes of earlier versions: all must be
caught.

Most make one visible thing depend on how many rows the WHERE of the first query has let through.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_hits = _rows = 0
_ending: list[Callable[[int], int]] = []


def plant(names: Sequence[str]) -> Callable[[int], int]:
    """Put leaks into this process; return what they make of its exit code."""
    for name in names:
        _count_hits()
        {**PLANTS, **SERVER_PLANTS, **CLUSTER_PLANTS, **BEACON_PLANTS, **FOLLOW_PLANTS}[name]()

    def exit_code(code: int) -> int:
        for change in _ending:
            code = change(code)
        return code

    return exit_code


def _wrap(owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by ``change(the function, arguments)``."""
    real = getattr(owner, name)
    setattr(owner, name, lambda *given, **options: change(real, *given, **options))


def _count_hits() -> None:
    """Count selected rows, as no shipped code does."""
    from panstream.engine.engine import Engine

    def counting(apply: Any, engine: Any, rows: Any, **options: Any) -> Any:
        global _hits, _rows
        chosen = next(iter(rows.queries.values())).rows
        _hits += rows.count if chosen is None else int(chosen.sum())
        _rows += rows.count
        return apply(engine, rows, **options)

    _wrap(Engine, "apply", counting)


def _in_metadata(name: str, figure: Callable[[], int]) -> Callable[[], None]:
    def put() -> None:
        from panstream.engine.kept import Kept

        def leaking(parts: Any, *given: Any) -> dict[str, bytes]:
            found = parts(*given)
            return {**found, "meta": json.dumps({**json.loads(found["meta"]), name: figure()}).encode()}

        _wrap(Kept, "parts", leaking)

    return put


def _times_of_bad_rows_lost() -> None:
    import numpy as np

    from panstream.engine.engine import Engine

    def leaking(times: Any, engine: Any, rows: Any) -> Any:
        known, found = times(engine, rows)
        return known, found if found is None or rows.bad is None else np.where(rows.bad, np.nan, found)

    _wrap(Engine, "_times", leaking)


def _steps_of_shards() -> None:
    from panstream.cluster.backend import ClusterBackend

    before = -1  # the first step starts the states

    def leaking(everywhere: Any, backend: Any, method: str, *given: Any, **options: Any) -> Any:
        nonlocal before
        if method == "apply" and _hits == before:
            return None
        before = _hits
        return everywhere(backend, method, *given, **options)

    _wrap(ClusterBackend, "_everywhere", leaking)


def _in_a_part() -> None:
    from panstream.engine.kept import Kept

    _wrap(Kept, "parts", lambda parts, *given: {**parts(*given), "rest": bytes(_hits)})


def _in_a_state_header() -> None:
    from panstream import codec

    def leaking(encode: Any, name: str, parameters: Any, *rest: Any, **options: Any) -> Any:
        return encode(name, {**parameters, "hits": _hits}, *rest, **options)

    _wrap(codec, "encode", leaking)


def _in_a_state_field() -> None:
    from panstream import codec

    def leaking(encode: Any, name: str, parameters: Any, state: Any, layout: Any, *rest: Any, **options: Any) -> Any:
        if not hasattr(state, "released"):
            return encode(name, parameters, state, layout, *rest, **options)
        released, state.released = state.released, _hits
        try:
            return encode(name, parameters, state, layout, *rest, **options)
        finally:
            state.released = released

    _wrap(codec, "encode", leaking)


def _in_a_file_size() -> None:
    from panstream.engine.engine import Engine

    def leaking(commit: Any, engine: Any, **options: Any) -> None:
        commit(engine, **options)
        (Path(engine.config.directory) / "cache").write_bytes(bytes(_hits))

    _wrap(Engine, "commit", leaking)


def _in_commits() -> None:
    from panstream.engine.engine import Engine

    def leaking(finish: Any, engine: Any) -> None:
        for _ in range(_hits):
            engine.commit()
        finish(engine)

    _wrap(Engine, "finish", leaking)


def _in_the_log_of_releases() -> None:
    from panstream.store.releases import Release, ReleaseLog

    def leaking(publish: Any, log: Any, release: Release) -> bool:
        for number in range(_hits % 7):
            publish(log, Release(query="rest", number=number, time=release.time, record={}))
        return bool(publish(log, release))

    _wrap(ReleaseLog, "publish", leaking)


def _in_a_label() -> None:
    from panstream.engine import engine

    def leaking(record: Any, *given: Any) -> Any:
        release = record(*given)
        release.record["until"] = f"2026-01-01T00:00:{_hits:02}Z"
        return release

    _wrap(engine, "record", leaking)


def _in_a_time() -> None:
    from panstream.engine import engine

    _wrap(engine, "stamp_of", lambda stamp, seconds: f"2026-01-01T00:00:{_hits:02}Z")


def _in_the_exit_code() -> None:
    _ending.append(lambda code: 100 + _hits % 50)


def _printed(stream: str) -> Callable[[], None]:
    def leaking(code: int) -> int:
        print("rows so far:", _hits, file=getattr(sys, stream), flush=True)
        return code

    return lambda: _ending.append(leaking)


def _in_headers() -> None:
    from starlette.responses import Response

    def leaking(init: Any, response: Any, *given: Any, **options: Any) -> None:
        init(response, *given, **options)
        response.headers["x-rows"] = str(_hits)

    _wrap(Response, "__init__", leaking)


def _in_pages() -> None:
    from starlette.responses import Response

    def leaking(render: Any, response: Any, content: Any) -> bytes:
        return bytes(render(response, content)) + b" " * _hits

    _wrap(Response, "render", leaking)


PLANTS: dict[str, Callable[[], None]] = {
    "store metadata": _in_metadata("hits", lambda: _hits),
    "number of rows in the store": _in_metadata("rows", lambda: _rows),
    "times of bad rows are lost": _times_of_bad_rows_lost,
    "a further part of the store": _in_a_part,
    "header of a state": _in_a_state_header,
    "public field of a state": _in_a_state_field,
    "size of a file": _in_a_file_size,
    "number of commits": _in_commits,
    "log of releases": _in_the_log_of_releases,
    "label of a release": _in_a_label,
    "time of a release": _in_a_time,
    "exit code": _in_the_exit_code,
    "standard output": _printed("stdout"),
    "standard error": _printed("stderr"),
}
SERVER_PLANTS: dict[str, Callable[[], None]] = {
    "headers of responses": _in_headers,
    "size of responses": _in_pages,
}


def _beacons_in_headers() -> None:
    """Tell in every answer how many beacons came."""
    from starlette.responses import Response

    from panstream.server.site.beacons import Beacons

    came = 0

    def counting(take: Any, *given: Any) -> Any:
        nonlocal came
        came += 1
        return take(*given)

    def telling(start: Any, response: Any, headers: Any = None) -> Any:
        return start(response, {**(headers or {}), "x-beacons": str(came)})

    _wrap(Beacons, "take", counting)
    _wrap(Response, "init_headers", telling)


def _commits_of_followed_rows() -> None:
    """Store the state once for every row of a followed file that was selected."""
    from panstream.server.following import Follower

    def leaking(take: Any, follower: Any, batch: Any, engine: Any) -> Any:
        before = _hits
        taken = take(follower, batch, engine)
        for _ in range(_hits - before):
            follower._call(lambda now: now.commit())
        return taken

    _wrap(Follower, "_take", leaking)


CLUSTER_PLANTS: dict[str, Callable[[], None]] = {
    "shards take part only where a row was selected": _steps_of_shards,
}
BEACON_PLANTS: dict[str, Callable[[], None]] = {
    "number of beacons": _beacons_in_headers,
}
FOLLOW_PLANTS: dict[str, Callable[[], None]] = {
    "commits of followed rows": _commits_of_followed_rows,
}
