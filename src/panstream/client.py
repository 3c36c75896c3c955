"""Sending events to a panstream server, and reading what it publishes.

Rows are collected into batches, each batch is sent as Arrow by one of a few connections ("lanes"), and a batch that was
not answered is sent again under the same number, so that it counts once. A lane has one batch under way at a time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

import numpy as np

from panstream.client_bodies import COMPRESSIONS, as_batches, encode
from panstream.client_wire import Address, Patience, Wire
from panstream.errors import InvalidParameter, PanstreamError, RequestRefused
from panstream.randomness.entropy import system_entropy

__all__ = ["Client", "Sent"]

_ARROW = "application/vnd.apache.arrow.stream"


@dataclass(slots=True)
class Sent:
    """What the server has acknowledged: it is durable there."""

    batches: int = 0
    rows: int = 0
    skipped: int = 0  # rows that no query could use
    late: int = 0  # rows whose window was over

    def note(self, answer: dict[str, Any]) -> None:
        """Add one batch."""
        self.batches += 1
        self.rows += answer["rows"]
        self.skipped += answer["skipped"]["count"]
        self.late += answer["late"]["count"]


@dataclass(slots=True, eq=False)
class _Lane:
    """One connection and the batch that is under way on it."""

    producer: str
    wire: Wire
    sequence: int
    waiting: tuple[Any, dict[str, str]] | None = field(default=None, repr=False)


class Client:
    """Sends events and reads answers.

    ``producer`` names this sender, never a person: the server stores it to tell what it has seen. Two senders must not
    share a name. Without one, a random name is used. ``lanes`` is how many batches may be under way at a time.

    ::

        with panstream.Client("https://counts.example:8080", stream="visits", token=token, producer="gate-7") as client:
            client.send({"user": ids, "region": regions})      # columns, rows as dicts, or an Arrow, pandas or polars table
            client.flush()                                     # now everything is durable on the server
            print(client.releases()[-1]["value"])
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str,
        token: str | None = None,
        producer: str | None = None,
        batch_rows: int = 10_000,
        lanes: int = 2,
        compression: str | None = None,
        ca_file: str | None = None,
        patience: Patience | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        if batch_rows < 1 or lanes < 1:
            raise InvalidParameter(f"batch_rows and lanes must be positive, got {batch_rows} and {lanes}")
        if compression not in COMPRESSIONS:
            raise InvalidParameter(f"compression must be one of {', '.join(map(str, COMPRESSIONS))}")
        self._stream, self._rows, self._compression = stream, batch_rows, compression
        self._address = Address(url=url, token=token, ca_file=ca_file)
        self._patience = patience or Patience()
        name, first = producer or f"client-{_random_name()}", clock()
        self._lanes = [_Lane(f"{name}/{n}", Wire(self._address, self._patience), first) for n in range(lanes)]
        self._free: deque[_Lane] = deque(self._lanes)
        self._freed = threading.Condition()
        self._pool = ThreadPoolExecutor(lanes, "panstream-lane")
        self._control = Wire(self._address, self._patience)
        self._pending: list[Any] = []
        self._pending_rows = 0
        self._under_way: set[Future[None]] = set()
        self._failure: PanstreamError | None = None  # of a batch that is kept, to be sent again
        self._refusal: RequestRefused | None = None  # of a batch that is gone: raised, whatever comes after
        self.sent = Sent()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    # Sending.

    def send(self, rows: Any) -> None:
        """Take rows; full batches go on their way. Waits while every lane is busy; raises if an earlier batch failed.

        A batch that was refused is dropped; one that was not answered is kept, and ``flush`` sends it again.
        """
        self._check()
        for batch in as_batches(rows):
            start = 0
            while start < batch.num_rows:
                take = min(batch.num_rows - start, self._rows - self._pending_rows)
                self._pending.append(batch.slice(start, take))
                self._pending_rows += take
                start += take
                if self._pending_rows >= self._rows:
                    self._dispatch()

    def send_body(self, body: Any, content_type: str, encoding: str | None = None) -> None:
        """Send bytes as they are, as one batch: CSV with its header line, JSON lines or an Arrow stream."""
        self._check()
        headers = {"Content-Type": content_type}
        if encoding is not None:
            headers["Content-Encoding"] = encoding
        self._start(body, headers)

    def flush(self) -> Sent:
        """Send what waits, and return when everything is durable on the server. What was not answered is sent again.

        Raises if a batch was refused since the last call that raised.
        """
        self._failure = None
        if self._pending:
            self._dispatch()
        wait(list(self._under_way))
        for lane in [lane for lane in self._lanes if lane.waiting is not None]:
            self._send(lane)
        self._check()
        return self.sent

    def close(self) -> None:
        """Close connections. What was not flushed is lost."""
        self._pool.shutdown(cancel_futures=True)
        for lane in self._lanes:
            lane.wire.close()
        self._control.close()
        self._pending.clear()

    def _dispatch(self) -> None:
        batches, self._pending, self._pending_rows = self._pending, [], 0
        headers = {"Content-Type": _ARROW}
        if self._compression is not None:
            headers["Content-Encoding"] = self._compression
        self._start(encode(batches, self._compression), headers)

    def _start(self, body: Any, headers: dict[str, str]) -> None:
        with self._freed:
            while not self._free and self._failure is None:
                self._freed.wait()
            if not self._free:
                failure, self._failure = self._failure, None
                assert failure is not None
                raise failure
            lane = self._free.popleft()
        lane.sequence += 1
        lane.waiting = (body, headers)
        future = self._pool.submit(self._send, lane)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)

    def _send(self, lane: _Lane) -> None:
        assert lane.waiting is not None
        body, headers = lane.waiting
        origin = {"Panstream-Producer": lane.producer, "Panstream-Sequence": str(lane.sequence)}
        failure: PanstreamError | None = None
        try:
            answer = lane.wire.ask(
                "POST", f"/v1/streams/{quote(self._stream, safe='')}/events", body, {**headers, **origin}
            )
        except PanstreamError as error:
            failure = error
        with self._freed:
            if failure is None:
                self.sent.note(answer)
            elif isinstance(failure, RequestRefused):
                self._refusal = self._refusal or failure
            else:
                self._failure = failure
            if failure is None or isinstance(failure, RequestRefused):  # which would be refused again
                lane.waiting = None
                self._free.append(lane)
            self._freed.notify_all()

    def _check(self) -> None:
        with self._freed:
            refusal, self._refusal = self._refusal, None
            if refusal is not None:
                raise refusal
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # Reading.

    def queries(self) -> dict[str, Any]:
        """Return the stream and its questions, with what each of them promises."""
        return dict(self._control.ask("GET", "/v1/queries"))

    def releases(
        self, query: str | None = None, *, since: str | None = None, limit: int = 1_000
    ) -> list[dict[str, Any]]:
        """Return what was published, oldest first."""
        path = f"/v1/releases?limit={limit}"
        path += "" if query is None else f"&query={quote(query, safe='')}"
        path += "" if since is None else f"&since={quote(since, safe='')}"
        return list(self._control.ask("GET", path)["releases"])

    def listen(self, query: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield releases, old ones first, then each as it is published, until the server ends the stream."""
        path = "/v1/releases" if query is None else f"/v1/releases?query={quote(query, safe='')}"
        seen: set[tuple[str, int]] = set()
        wire = Wire(self._address, self._patience)
        for kind, data in wire.events(path):
            if kind == "release" and (data["series"], data["number"]) not in seen:
                seen.add((data["series"], data["number"]))
                yield data

    def ledger(self) -> dict[str, Any]:
        """Return what was spent."""
        return dict(self._control.ask("GET", "/v1/ledger"))

    def release(self, query: str) -> list[dict[str, Any]]:
        """Answer a query without schedule now (admin). Not repeated if the answer is lost: look at ``releases`` then."""
        return list(self._once(f"/v1/queries/{quote(query, safe='')}/release", b"")["releases"])

    def intrusions(self) -> dict[str, Any]:
        """Return the intrusions announced so far, and what announcing another one costs."""
        return dict(self._control.ask("GET", "/v1/intrusions"))

    def announce_intrusion(self) -> dict[str, Any]:
        """Tell the server that its state may have been copied (admin). Not repeated if the answer is lost."""
        return self._once("/v1/intrusions", b'{"confirm": true}')

    def _once(self, path: str, body: bytes) -> dict[str, Any]:
        wire = Wire(self._address, Patience(tries=1, timeout=self._patience.timeout))
        try:
            return dict(wire.ask("POST", path, body, {"Content-Type": "application/json"}))
        finally:
            wire.close()


def _random_name() -> str:
    raw = np.empty(8, np.uint8)
    system_entropy(raw)
    return raw.tobytes().hex()
