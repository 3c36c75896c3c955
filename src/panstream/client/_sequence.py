"""The batches of a producer, numbered in order, each delivered until it is answered."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from panstream.client.transport import LINES, HttpConnection
from panstream.errors import BatchStatusUnknown, PanstreamError, RequestRejected, ServerUnreachable

_MAX_OPENINGS = 3  # of the producer for one batch
_NOT_ABOUT_CONTENT = (401, 403, 404)  # statuses that an empty batch would get as well


@dataclass(slots=True, eq=False)
class Batch:
    """The body of a request and its number among its producer's batches."""

    body: Any = field(repr=False)
    headers: dict[str, str]
    number: int | None = None  # None until the producer is open
    unanswered: bool = False  # whether an attempt may have been counted although no answer said so
    stuck: bool = False  # whether all attempts failed, and it waits to be sent again
    uncertain: bool = False  # whether the producer was reopened while the batch was unanswered
    behind: bool = False  # whether the server refused it because an earlier one is missing
    openings: int = 0  # of the producer for this batch
    refusal: RequestRejected | None = None  # why an empty batch is sent under its number


@dataclass(slots=True, eq=False)
class Lane:
    """A connection, and the batch that it delivers."""

    connection: HttpConnection
    batch: Batch | None = None


class BatchSequence:
    """The batches of one producer, numbered in the order in which they were added, over all connections.

    The server applies them in this order. Thread-safe: a thread per connection delivers one batch at a time.

    A number is never used for other rows unless the producer was reopened, which fences off requests under its earlier
    id. A batch that the server refuses for its content leaves no gap: an empty one is sent under its number.
    """

    def __init__(self, producer: str, stream: str, connection: HttpConnection) -> None:
        self._events = f"/v1/streams/{quote(stream, safe='')}/events"
        self._producer = f"/v1/producers/{quote(producer, safe='')}"
        self._connection = connection
        self._changed = threading.Condition()
        self._id: str | None = None
        self._last = 0  # the highest number in use
        self._window = 1
        self._batches: list[Batch] = []  # not yet acknowledged, in order
        self._sending = 0
        self._stopped = False

    def open(self) -> int:
        """Open the producer, or take it over; return its last sequence number on the server."""
        with self._changed:
            self._changed.wait_for(lambda: not self._sending)
            return self._open()

    def add(self, body: Any, headers: dict[str, str]) -> Batch:
        """Append a batch; call it in the order of the rows, then `deliver` the batch."""
        batch = Batch(body, headers)
        with self._changed:
            self._batches.append(batch)
            if self._id is not None:
                self._last += 1
                batch.number = self._last
        return batch

    def deliver(self, batch: Batch, connection: HttpConnection) -> dict[str, Any]:
        """Return the server's answer to a batch.

        Raises:
            RequestRejected: The batch was refused, and is dropped.
            BatchStatusUnknown: It may or may not have been counted, and is dropped.
            ServerUnreachable: It, or one before it, was not answered. It is ``stuck``: clear that, and deliver it
                again, together with all others that are.
        """
        while True:
            producer_id = self._begin(batch)
            answer: dict[str, Any] | None = None
            failure: BaseException | None = None
            try:
                answer = self._try(batch, producer_id, connection)
            except BaseException as error:
                failure = error
            # Under one lock with the end of the attempt: the producer is reopened, and batches are renumbered, only
            # while no attempt is in progress.
            with self._changed:
                self._sending -= 1
                self._changed.notify_all()
                if self._record_outcome(batch, producer_id, answer, failure):
                    assert answer is not None
                    return answer

    def stop(self) -> None:
        """Fail all deliveries that wait for an earlier batch."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def close(self, *, forget: bool) -> None:
        """Close the connection; with ``forget`` also the producer on the server, if that can be reached."""
        self._connection.close()
        if forget and self._id is not None:
            connection = self._connection.clone(once=True)
            with contextlib.suppress(PanstreamError):
                connection.request("DELETE", self._producer)
            connection.close()

    def _open(self) -> int:
        answer = self._connection.request("POST", self._producer, b"")
        self._id = str(answer["id"])
        self._window = int(answer["in_flight"])
        self._last = int(answer["last"])
        last = self._last
        for batch in self._batches:
            batch.uncertain = batch.unanswered
        self._batches = [batch for batch in self._batches if not batch.uncertain]
        for batch in self._batches:
            self._last += 1
            batch.number = self._last
            batch.behind = False
        self._changed.notify_all()
        return last

    def _begin(self, batch: Batch) -> str:
        """Wait until a batch may be sent, and return the producer's id."""
        with self._changed:
            while True:
                if batch.uncertain:
                    raise _uncertain()
                if self._id is None and not self._sending:
                    self._open_for(batch)
                    continue
                if self._id is not None and self._may_send(batch):
                    self._sending += 1
                    return self._id
                earlier = self._batches[: self._batches.index(batch)]
                if self._stopped or any(batch.stuck for batch in earlier):
                    batch.stuck = True
                    self._changed.notify_all()
                    raise ServerUnreachable("an earlier batch was not answered, and this one has to wait for it")
                self._changed.wait()

    def _open_for(self, batch: Batch) -> None:
        try:
            self._open()
        except RequestRejected:
            self._drop(batch)
            raise
        except PanstreamError:
            batch.stuck = True
            self._changed.notify_all()
            raise

    def _may_send(self, batch: Batch) -> bool:
        """Return whether the server would hold a batch while earlier ones are in flight."""
        first = self._batches[0]
        if batch.behind:
            return batch is first
        assert batch.number is not None
        assert first.number is not None
        return batch.number < first.number + self._window

    def _try(self, batch: Batch, producer_id: str, connection: HttpConnection) -> dict[str, Any]:
        origin = {"Panstream-Producer": producer_id, "Panstream-Sequence": str(batch.number)}
        try:
            return dict(connection.request("POST", self._events, batch.body, {**batch.headers, **origin}))
        finally:
            batch.unanswered |= connection.unanswered

    def _record_outcome(
        self, batch: Batch, producer_id: str, answer: dict[str, Any] | None, failure: BaseException | None
    ) -> bool:
        """Record how an attempt ended; False if the batch has to be sent again.

        Raises:
            RequestRejected, BatchStatusUnknown: The batch is dropped.
            ServerUnreachable: The batch is stuck.
        """
        if answer is not None:
            self._drop(batch)
            if batch.refusal is not None:
                raise batch.refusal
            if not answer["new"] and not batch.unanswered:
                raise BatchStatusUnknown(
                    "the server has another batch under this number, so this one was not counted: does another "
                    "sender use the same producer?",
                    code="unknown_producer",
                    status=200,
                )
            return True
        assert failure is not None
        if not isinstance(failure, RequestRejected):
            batch.stuck = True
            raise failure
        if failure.code == "sequence_gap" and batch is not self._batches[0]:
            batch.behind = True
            return False
        if failure.code not in ("unknown_producer", "sequence_gap"):
            if batch.refusal is None and failure.status not in _NOT_ABOUT_CONTENT:
                batch.refusal = failure
                batch.body = b""
                batch.headers = {"Content-Type": LINES}
                return False
            self._mark_closed(producer_id)  # or later batches would wait for its number
            self._drop(batch)
            raise batch.refusal or failure
        self._mark_closed(producer_id)
        batch.openings += 1
        if batch.refusal is not None or batch.openings >= _MAX_OPENINGS:
            self._drop(batch)
            raise batch.refusal or failure
        if batch.unanswered and failure.code == "unknown_producer":
            self._drop(batch)
            raise _uncertain()
        batch.unanswered = False  # the server lacks earlier ones, so it does not have this one
        return False

    def _mark_closed(self, producer_id: str) -> None:
        """Reopen the producer before the next attempt, unless another thread has done so."""
        if self._id == producer_id:
            self._id = None

    def _drop(self, batch: Batch) -> None:
        self._batches.remove(batch)
        self._changed.notify_all()


def _uncertain() -> BatchStatusUnknown:
    return BatchStatusUnknown(
        "a batch was sent without an answer, and the server no longer knows its producer: it may or may not have been "
        "counted, and was not sent again",
        code="unknown_producer",
        status=409,
    )
