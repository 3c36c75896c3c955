"""A lane: one connection, one producer of the server's table, and the batch that is under way."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from panstream.client_wire import Address, Patience, Wire
from panstream.errors import BatchUncertain, PanstreamError, RequestRefused

__all__ = ["Batch", "Lane"]

_OPENINGS = 3  # of a lane for one batch


@dataclass(slots=True, eq=False)
class Batch:
    """The body of a request, the number it was first sent under, and whether some try of it was not answered."""

    body: Any = field(repr=False)
    headers: dict[str, str]
    number: int | None = None
    unanswered: bool = False


class Lane:
    """Sends one batch at a time, each until it is answered. For one thread at a time."""

    def __init__(self, producer: str, stream: str, address: Address, patience: Patience) -> None:
        self.waiting: Batch | None = None
        self.stuck = False  # whether it waits to be sent again
        self._events = f"/v1/streams/{quote(stream, safe='')}/events"
        self._producer = f"/v1/producers/{quote(producer, safe='')}"
        self._address, self._patience = address, patience
        self._wire = Wire(address, patience)
        self._id: str | None = None
        self._last = 0

    def open(self) -> int:
        """Open the producer, or take it over; return the number of the last batch that the server has of it."""
        found = self._wire.ask("POST", self._producer, b"")
        self._id, self._last = str(found["id"]), int(found["last"])
        return self._last

    def deliver(self) -> dict[str, Any]:
        """Return the server's answer to what waits. Sends it under another number only if it surely was not counted."""
        batch = self.waiting
        assert batch is not None
        for _ in range(_OPENINGS):
            if self._id is None:
                self.open()
            if batch.number is None:
                self._last += 1
                batch.number = self._last
            try:
                answer = self._try(batch)
            except RequestRefused as refusal:
                refused = refusal
            else:
                if not answer["new"] and not batch.unanswered:
                    raise BatchUncertain(
                        "the server has another batch under this number, so this one was not counted: does another sender "
                        "use the same producer?",
                        code="unknown_producer",
                        status=200,
                    )
                return answer
            if refused.code not in ("unknown_producer", "sequence_gap"):
                raise refused
            self._id = None
            if batch.unanswered and refused.code == "unknown_producer":
                raise BatchUncertain(
                    "a batch was sent without an answer, and the server no longer knows its producer: it may or may not have "
                    "been counted, and was not sent again",
                    code=refused.code,
                    status=refused.status,
                )
            batch.number = None
        raise refused

    def _try(self, batch: Batch) -> dict[str, Any]:
        origin = {"Panstream-Producer": str(self._id), "Panstream-Sequence": str(batch.number)}
        try:
            return dict(self._wire.ask("POST", self._events, batch.body, {**batch.headers, **origin}))
        finally:
            batch.unanswered |= self._wire.unanswered

    def close(self, *, forget: bool) -> None:
        """Close the connection; and the producer, if it is to be forgotten and the server can be reached."""
        self._wire.close()
        if forget and self._id is not None:
            wire = Wire(self._address, Patience(tries=1, timeout=self._patience.timeout))
            with contextlib.suppress(PanstreamError):
                wire.ask("DELETE", self._producer)
            wire.close()
