"""Sends events to a panstream server, and reads what it publishes.

Rows are collected into batches. Each batch is sent as Arrow on one of a few connections, and one that was not answered
is sent again under the same number, so that it counts once. A connection has one batch in flight at a time. All
connections together are one producer, whose batches the server applies in the order in which they were created.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from panstream.client._numbered import NumberedBatches, numbering
from panstream.client._row_counts import RowCounts, check_unnumbered
from panstream.client._sequence import BatchSequence, Lane
from panstream.client.delivery_report import DeliveryReport
from panstream.client.transport import (
    ARROW,
    LINES,
    HttpConnection,
    RetryPolicy,
    as_batches,
    check_options,
    encode,
    take_rows,
)
from panstream.errors import BatchStatusUnknown, InvalidParameter, PanstreamError, RequestRejected
from panstream.primitives.noise.entropy import random_id

_MAX_PACED = 8  # batches of rows that may be collected when they are sent by the clock


class Client:
    """Sends events to a server and reads its answers.

    Rows are counted in the order in which they are sent. A client with the name of an earlier one takes over from it:
    it continues counting where that one stopped, and whatever that one still has in flight is refused.

    ::

        with panstream.Client("https://counts.example:8080", stream="visits", token=token, producer="gate-7") as client:
            client.send({"user": ids, "region": regions})  # columns, rows as dicts, or an Arrow, pandas or polars table
            client.flush()                                 # now everything is durable on the server
            print(client.releases()[-1]["value"])

    Args:
        url: The server, such as https://host:port.
        stream: The name of the stream.
        token: What ``panstream token`` printed; needed unless the server listens on loopback
            only.
        producer: A name for this sender, never for a person: the server stores it, and how many
            batches it sent. Without one, a random name is used and given up when the client is
            closed.
        batch_rows: Rows per batch.
        connections: How many batches may be in flight at a time; more than the server's
            ``in_flight``, 32 by default, are of no use.
        pace: Send one batch every ``pace`` seconds, empty if there are no rows, so that the
            number of batches says nothing about rows. At most ``batch_rows`` rows go at a time;
            the others, and ``flush``, wait their turn.
        compression: None, "gzip" or "zstd".
        ca_file: Certificates to trust, PEM.
        retry: How often and for how long to try again.
        contributions: For a sender of one person, such as a meter or a phone: the most rows that
            queries with ``bounded_by = "sender"`` may count in a window, by its length, such as
            ``{"1 day": 8}``. Rows are numbered, in the column ``sender_counts``, in the window in
            which they leave; no number of a window is used twice, whatever the clock does.
        counts_file: Where the numbers in use are stored, before rows leave, to go on with after
            a restart. Without it, rows are numbered from the next window on.

    Raises:
        StoreLocked: If another client has ``counts_file`` open.
        StoreDamaged: If ``counts_file`` cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str,
        token: str | None = None,
        producer: str | None = None,
        batch_rows: int = 10_000,
        connections: int = 2,
        pace: float | None = None,
        compression: str | None = None,
        ca_file: str | None = None,
        retry: RetryPolicy | None = None,
        contributions: Mapping[str, int] | None = None,
        counts_file: Path | None = None,
    ) -> None:
        check_options(batch_rows, connections, pace, compression, stores=counts_file is not None, counts=contributions)
        self._rows = batch_rows
        self._compression = compression
        self._pace = pace
        self._control = HttpConnection(url, token, ca_file, retry or RetryPolicy())
        self._counts = None if contributions is None else RowCounts(contributions, counts_file)
        self._is_anonymous = producer is None  # whether the producer is closed with the client
        name = producer or f"client-{random_id(8).hex()}"
        self._sequence = BatchSequence(name, stream, self._control.clone())
        self._numbered = NumberedBatches(name, stream, self._control, compression)
        self._numbering: str | None = None  # who numbers batches: "client" or "caller"
        self._senders = [Lane(self._control.clone()) for _ in range(connections)]
        self._free: deque[Lane] = deque(self._senders)
        self._freed = threading.Condition()
        self._pool = ThreadPoolExecutor(connections, "panstream-sender")
        self._pending: list[Any] = []
        self._pending_rows = 0
        self._under_way: set[Future[None]] = set()
        self._failure: PanstreamError | None = None  # of a batch that is held to be sent again
        self._refusals: list[RequestRejected] = []  # of batches that were dropped: each is raised once
        self.sent = DeliveryReport()
        self._closed = threading.Event()
        if pace is not None:
            threading.Thread(target=self._throttle, args=[pace], name="panstream-pace", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    # Sending.

    def open(self) -> int:
        """Open the producer before anything is sent; return its last sequence number on the server.

        That is where an earlier client of the same name stopped: batches are numbered 1, 2, ...
        """
        return self._sequence.open()

    def send(self, rows: Any) -> None:
        """Add ``rows``, mappings or a table, and send full batches; wait while all connections are busy.

        Raises:
            RequestRejected: If an earlier batch was refused; it is dropped.
            ServerUnreachable: If an earlier batch was not answered; ``flush`` sends it again.
        """
        self._set_numbering("client")
        self._check()
        for batch in as_batches(rows):
            if self._counts is not None:
                check_unnumbered(batch)
            start = 0
            while start < batch.num_rows:
                capacity = self._capacity()
                with self._freed:
                    take = min(batch.num_rows - start, capacity)
                    self._pending.append(batch.slice(start, take))
                    self._pending_rows += take
                start += take
                if self._pace is None and self._pending_rows >= self._rows:
                    self._dispatch()

    def send_body(self, body: Any, content_type: str, encoding: str | None = None) -> None:
        """Send ``body`` as one batch, unchanged, in the format and compression of ``content_type`` and ``encoding``."""
        if self._pace is not None:
            raise InvalidParameter("bodies are sent as they are and cannot be paced: leave pace out, or send rows")
        self._set_numbering("client")
        self._check()
        if self._counts is not None:
            body = self._counts.numbered_body(body, content_type, encoding)
        headers = {"Content-Type": content_type}
        if encoding is not None:
            headers["Content-Encoding"] = encoding
        self._start(self._wait_for_connection(), body, headers)

    def send_numbered(self, rows: Any, sequence: int) -> bool:
        """Send ``rows`` as one batch under the number ``sequence``; return False if the server had this number before.

        For programs that repeat work after a crash. Numbers of a producer are 1, 2, ..., also of batches without rows,
        and the same number must always have the same rows. After any error, send the batch again under its number.
        """
        self._set_numbering("caller")
        answer = self._numbered.send(rows, sequence)
        self.sent.add(answer)
        return bool(answer["new"])

    def flush(self) -> DeliveryReport:
        """Send all rows, and batches that were not answered; everything is durable on the server when this returns.

        Raises:
            RequestRejected: If a batch was refused. One refusal is raised per call: call it again for the others.
            ServerUnreachable: If a batch was not answered.
        """
        with self._freed:
            self._failure = None
        if self._pace is not None:
            self._wait_for(lambda: not self._pending_rows)
        elif self._pending:
            self._dispatch()
        wait(list(self._under_way))
        self._send_again()
        self._check()
        return self.sent

    def close(self) -> None:
        """Close connections, and the producer unless it was named. What was not flushed is lost."""
        self._closed.set()
        self._sequence.stop()
        self._pool.shutdown(cancel_futures=True)
        for sender in self._senders:
            sender.connection.close()
        self._sequence.close(forget=self._is_anonymous)
        self._control.close()
        self._pending.clear()
        if self._counts is not None:
            self._counts.close()

    def _set_numbering(self, wanted: str) -> None:
        bare = self._pace is None and self._counts is None
        self._numbering = numbering(self._numbering, wanted, named=not self._is_anonymous, bare=bare)

    def _capacity(self) -> int:
        """Return how many more rows may be collected; with ``pace``, wait until it is at least one."""
        if self._pace is None:
            return self._rows - self._pending_rows
        max_rows = _MAX_PACED * self._rows
        self._wait_for(lambda: self._pending_rows < max_rows)
        return max_rows - self._pending_rows

    def _wait_for(self, done: Callable[[], bool]) -> None:
        """Wait until ``done()``, or raise what failed meanwhile."""
        with self._freed:
            self._freed.wait_for(lambda: done() or self._failure is not None or self._refusals)
        self._check()

    def _dispatch(self) -> None:
        """Send the next batch of collected rows, an empty one if there are none."""
        sender = self._wait_for_connection()
        try:
            body = self._next_body()
        except BaseException:
            self._return_connection(sender)
            raise
        headers = {"Content-Type": LINES if body is None else ARROW}
        if self._compression is not None and body is not None:
            headers["Content-Encoding"] = self._compression
        self._start(sender, b"" if body is None else body, headers)

    def _next_body(self) -> Any:
        with self._freed:
            taken = take_rows(self._pending, self._rows)
            rows = sum(part.num_rows for part in taken)
            self._pending_rows -= rows
        if taken and self._counts is not None:
            try:
                taken = self._counts.numbered(taken)
            except BaseException:  # not stored, so not sent: they are tried again
                with self._freed:
                    self._pending[:0] = taken
                    self._pending_rows += rows
                raise
        return encode(taken, self._compression) if taken else None

    def _throttle(self, pace: float) -> None:
        due = time.monotonic() + pace
        while not self._closed.wait(max(0.0, due - time.monotonic())):
            due += pace
            self._tick()

    def _tick(self) -> None:
        """Send one batch, empty if there are no rows; an error is raised by the next call of the user."""
        failure: PanstreamError | None = None
        try:
            self._dispatch()
        except PanstreamError as error:
            failure = error
        except RuntimeError:  # closed meanwhile
            return
        with self._freed:
            self._failure = failure or self._failure
            self._freed.notify_all()

    def _wait_for_connection(self) -> Lane:
        """Return an idle connection; wait while all of them are busy, raise if a batch of one is stuck."""
        with self._freed:
            self._freed.wait_for(lambda: self._free or self._failure is not None)
            if not self._free:
                failure = self._failure
                self._failure = None
                assert failure is not None
                raise failure
            return self._free.popleft()

    def _return_connection(self, sender: Lane) -> None:
        with self._freed:
            sender.batch = None
            self._free.append(sender)
            self._freed.notify_all()

    def _start(self, sender: Lane, body: Any, headers: dict[str, str]) -> None:
        sender.batch = self._sequence.add(body, headers)
        self._submit(sender)

    def _submit(self, sender: Lane) -> None:
        future = self._pool.submit(self._send, sender)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)

    def _send_again(self) -> None:
        """Send all batches that were not answered, and wait; concurrently, since each waits for earlier ones."""
        stuck = [(sender, sender.batch) for sender in self._senders if sender.batch is not None and sender.batch.stuck]
        for _, batch in stuck:
            batch.stuck = False
        for sender, _ in stuck:
            self._submit(sender)
        wait(list(self._under_way))

    def _send(self, sender: Lane) -> None:
        failure: PanstreamError | None = None
        assert sender.batch is not None
        try:
            answer = self._sequence.deliver(sender.batch, sender.connection)
        except PanstreamError as error:
            failure = error
        with self._freed:
            if failure is None:
                self.sent.add(answer)
            elif isinstance(failure, RequestRejected):
                self._refusals.append(failure)
                self.sent.uncertain += isinstance(failure, BatchStatusUnknown)
            else:
                self._failure = failure
            self._freed.notify_all()
        if failure is None or isinstance(failure, RequestRejected):
            self._return_connection(sender)

    def _check(self) -> None:
        with self._freed:
            if self._refusals:
                raise self._refusals.pop(0)
            failure = self._failure
            self._failure = None
        if failure is not None:
            raise failure

    # Reading.

    def queries(self) -> dict[str, Any]:
        """Return the stream and its queries, with their claims."""
        return dict(self._control.request("GET", "/v1/queries"))

    def releases(
        self, query: str | None = None, *, since: str | None = None, limit: int = 1_000
    ) -> list[dict[str, Any]]:
        """Return published releases, oldest first; of one ``query``, ``since`` a time (UTC), the latest ``limit``."""
        path = f"/v1/releases?limit={limit}"
        path += "" if query is None else f"&query={quote(query, safe='')}"
        path += "" if since is None else f"&since={quote(since, safe='')}"
        return list(self._control.request("GET", path)["releases"])

    def listen(self, query: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield past releases (of ``query``), then each new one once published, until the server closes the stream."""
        path = "/v1/releases" if query is None else f"/v1/releases?query={quote(query, safe='')}"
        seen: set[tuple[str, int]] = set()
        for kind, data in self._control.clone().events(path):
            if kind == "release" and (data["series"], data["number"]) not in seen:
                seen.add((data["series"], data["number"]))
                yield data

    def ledger(self) -> dict[str, Any]:
        """Return the privacy loss so far, in total and by charge."""
        return dict(self._control.request("GET", "/v1/ledger"))

    def release(self, query: str) -> list[dict[str, Any]]:
        """Release a ``query`` without schedule (scope admin). Not retried: if the answer is lost, see ``releases``."""
        return list(self._once(f"/v1/queries/{quote(query, safe='')}/release", b"")["releases"])

    def intrusions(self) -> dict[str, Any]:
        """Return the intrusions announced so far, and what announcing another one costs."""
        return dict(self._control.request("GET", "/v1/intrusions"))

    def announce_intrusion(self, *, copied_at: str | None = None, just_now: bool = False) -> dict[str, Any]:
        """Announce that the server's state may have been copied (scope admin). Not retried.

        Args:
            copied_at: When the state was copied, with a time zone: "2026-03-08T03:00:00Z"; None if it is not known.
            just_now: Whether it was copied just now and no row has been applied since, instead of ``copied_at``.
        """
        body = {"confirm": True, "copied_at": copied_at, "just_now": just_now}
        return self._once("/v1/intrusions", json.dumps(body).encode())

    def _once(self, path: str, body: bytes) -> dict[str, Any]:
        connection = self._control.clone(once=True)
        try:
            return dict(connection.request("POST", path, body, {"Content-Type": "application/json"}))
        finally:
            connection.close()
