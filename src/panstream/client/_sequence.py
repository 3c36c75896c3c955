"""Below the client: the sequence of a producer's batches, each delivered until it is answered, in order."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from panstream.client._transport import LINES, HttpConnection
from panstream.errors import BatchStatusUnknown, PanstreamError, RequestRejected, ServerUnreachable

_OPENINGS = 3  # of the producer for one batch
_POINTLESS = (401, 403, 404)  # statuses that an empty batch would get, too


@dataclass(slots=True, eq=False)
class Batch:
    """The body of a request and its number among its producer's batches."""

    body: Any = field(repr=False)
    headers: dict[str, str]
    number: int | None = None  # None until the producer is open
    unanswered: bool = False  # whether a try may have been counted although no answer said so
    stuck: bool = False  # whether all tries failed, and it waits to be sent again
    uncertain: bool = False  # whether the producer was opened anew while the batch was unanswered
    behind: bool = False  # whether the server refused it for want of an earlier one
    openings: int = 0  # of the producer for this batch
    refusal: RequestRejected | None = None  # why an empty batch is sent in its place


class BatchSequence:
    """The batches of one producer, numbered in the order in which they were cut, over all connections.

    The server applies them in this order. For any thread: a thread per connection delivers one batch at a time.

    A number is never used for other rows unless the producer was opened again, which fences off what is under way
    under its earlier id. A batch that the server refuses for its content leaves no gap: an empty one takes its number.
    """

    def __init__(self, producer: str, stream: str, wire: HttpConnection) -> None:
        self._events = f"/v1/streams/{quote(stream, safe='')}/events"
        self._producer = f"/v1/producers/{quote(producer, safe='')}"
        self._wire = wire
        self._changed = threading.Condition()
        self._id: str | None = None
        self._last = 0  # the highest number in use
        self._window = 1
        self._batches: list[Batch] = []  # not yet acknowledged, in order
        self._sending = 0
        self._stopped = False

    def open(self) -> int:
        """Open the producer, or take it over; return the number of the last batch that the server has of it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._sending)
            return self._open()

    def add(self, body: Any, headers: dict[str, str]) -> Batch:
        """Append a batch, to be delivered; call it in the order of the rows."""
        batch = Batch(body, headers)
        with self._changed:
            self._batches.append(batch)
            if self._id is not None:
                self._last += 1
                batch.number = self._last
        return batch

    def deliver(self, batch: Batch, wire: HttpConnection) -> dict[str, Any]:
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
                answer = self._try(batch, producer_id, wire)
            except BaseException as error:
                failure = error
            # The outcome is recorded together with the end of the try: the producer is opened anew, and batches are
            # numbered anew, only between tries.
            with self._changed:
                self._sending -= 1
                self._changed.notify_all()
                if self._settle(batch, producer_id, answer, failure):
                    assert answer is not None
                    return answer

    def stop(self) -> None:
        """Have nobody wait for an earlier batch any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def close(self, *, forget: bool) -> None:
        """Close the connection; and the producer, if it is to be forgotten and the server can be reached."""
        self._wire.close()
        if forget and self._id is not None:
            wire = self._wire.clone(once=True)
            with contextlib.suppress(PanstreamError):
                wire.request("DELETE", self._producer)
            wire.close()

    def _open(self) -> int:
        answer = self._wire.request("POST", self._producer, b"")
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
        """Return whether the server has a place for a batch while those before it are under way."""
        first = self._batches[0]
        if batch.behind:
            return batch is first
        assert batch.number is not None
        assert first.number is not None
        return batch.number < first.number + self._window

    def _try(self, batch: Batch, producer_id: str, wire: HttpConnection) -> dict[str, Any]:
        origin = {"Panstream-Producer": producer_id, "Panstream-Sequence": str(batch.number)}
        try:
            return dict(wire.request("POST", self._events, batch.body, {**batch.headers, **origin}))
        finally:
            batch.unanswered |= wire.unanswered

    def _settle(
        self, batch: Batch, producer_id: str, answer: dict[str, Any] | None, failure: BaseException | None
    ) -> bool:
        """Record how a try ended; False if the batch is to be sent again."""
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
            if batch.refusal is None and failure.status not in _POINTLESS:
                batch.refusal = failure
                batch.body = b""
                batch.headers = {"Content-Type": LINES}
                return False
            self._lose(producer_id)  # or those behind it would wait for its number
            self._drop(batch)
            raise batch.refusal or failure
        self._lose(producer_id)
        batch.openings += 1
        if batch.refusal is not None or batch.openings >= _OPENINGS:
            self._drop(batch)
            raise batch.refusal or failure
        if batch.unanswered and failure.code == "unknown_producer":
            self._drop(batch)
            raise _uncertain()
        batch.unanswered = False  # the server lacks earlier ones, so it does not have this one
        return False

    def _lose(self, producer_id: str) -> None:
        """Have the producer opened anew, unless it was since."""
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
