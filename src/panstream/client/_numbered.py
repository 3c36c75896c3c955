"""Batches under the numbers of a caller that repeats its work after a crash, such as a job of a data engine."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from panstream.client.transport import ARROW, LINES, HttpConnection, as_batches, encode
from panstream.errors import InvalidParameter, RequestRejected
from panstream.primitives import validation as checks

_MAX_SEQUENCE = 2**62
_MAX_ATTEMPTS = 8  # with another id of the producer each, which others open meanwhile


class NumberedBatches:
    """Sends batches whose numbers the caller decides. Not thread-safe.

    The producer is opened only if the server does not know it: attempts that run at the same time share its id, and the
    server applies the first batch of a number. That is safe because all attempts of a number have the same rows.
    """

    def __init__(self, producer: str, stream: str, connection: HttpConnection, compression: str | None) -> None:
        self._name = producer
        self._events = f"/v1/streams/{quote(stream, safe='')}/events"
        self._producer = f"/v1/producers/{quote(producer, safe='')}"
        self._connection = connection
        self._compression = compression

    def send(self, rows: Any, sequence: int) -> dict[str, Any]:
        """Return the server's answer to a batch; its ``new`` is false if the server had applied this number before."""
        checks.require_integer_in_range(1, _MAX_SEQUENCE, sequence=sequence)
        batches = [batch for batch in as_batches(rows) if batch.num_rows]
        count = sum(batch.num_rows for batch in batches)
        body: Any = None
        refusal: RequestRejected | None = None
        for _ in range(_MAX_ATTEMPTS):
            producer_id, last = self._find()
            if last >= sequence:
                return {"new": False, "rows": count, "skipped": {"count": 0}, "late": {"count": 0}}
            if last + 1 < sequence:
                raise InvalidParameter(
                    f"sequence must be {last + 1}, the first number that the server lacks of producer "
                    f"{self._name!r}, got {sequence}: was it closed, retired after weeks without a batch, or used "
                    "under another token?"
                )
            if body is None:
                body = encode(batches, self._compression) if batches else b""
            headers = {"Content-Type": ARROW if batches else LINES}
            if batches and self._compression is not None:
                headers["Content-Encoding"] = self._compression
            headers |= {"Panstream-Producer": producer_id, "Panstream-Sequence": str(sequence)}
            try:
                return dict(self._connection.request("POST", self._events, body, headers))
            except RequestRejected as error:
                if error.code not in ("unknown_producer", "sequence_gap"):
                    raise
                refusal = error
        assert refusal is not None
        raise refusal

    def _find(self) -> tuple[str, int]:
        """Return id and last number of the producer, which is opened if the server does not know it."""
        try:
            known = self._connection.request("GET", self._producer)
        except RequestRejected as error:
            if error.code != "not_found":
                raise
            known = self._connection.request("POST", self._producer, b"")
        return str(known["id"]), int(known["last"])


def numbering(current: str | None, wanted: str, *, named: bool, bare: bool) -> str:
    """Return who numbers a client's batches from now on: "client" or "caller".

    Raises:
        InvalidParameter: The other one has numbered batches of this client, or the options do not allow it.
    """
    if current is not None and current != wanted:
        raise InvalidParameter("a client sends either numbered batches or others: use two clients, with two producers")
    if wanted == "caller" and not named:
        raise InvalidParameter("send_numbered needs producer, the name by which the server knows a batch again")
    if wanted == "caller" and not bare:
        raise InvalidParameter("send_numbered sends a batch as it is: leave pace and contributions out")
    return wanted
