"""The client for asyncio programs: the calls of `Client`, made in other threads and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from panstream.client.client import Client
from panstream.client.delivery_report import DeliveryReport
from panstream.client.transport import RetryPolicy

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient:
    """As `Client`, with every call awaited. One task at a time may send.

    ::

        async with panstream.AsyncClient(url, stream="visits", producer="gate-7") as client:
            await client.send([{"user": "u1", "region": "north"}])
            await client.flush()

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
        contributions: For a sender of one person: the most rows to number in a window, by its
            length; see `Client`.
        counts_file: Where the numbers in use are stored.
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
        self._client = Client(
            url,
            stream=stream,
            token=token,
            producer=producer,
            batch_rows=batch_rows,
            connections=connections,
            pace=pace,
            compression=compression,
            ca_file=ca_file,
            retry=retry,
            contributions=contributions,
            counts_file=counts_file,
        )
        self._lock = asyncio.Lock()

    @property
    def sent(self) -> DeliveryReport:
        """What the server has acknowledged as durable."""
        return self._client.sent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await asyncio.to_thread(self._client.close)

    async def open(self) -> int:
        """Open the producer; return its last sequence number on the server."""
        return await self._ask(self._client.open)

    async def send(self, rows: Any) -> None:
        """Add rows, and send full batches.

        Args:
            rows: Rows as mappings from column to value, or a table.
        """
        await self._ask(self._client.send, rows)

    async def send_numbered(self, rows: Any, sequence: int) -> bool:
        """Send rows as one batch of the caller's own number; return False if the server had this number already.

        Args:
            rows: The rows of the batch.
            sequence: Its number, which must be above all earlier ones.
        """
        return await self._ask(self._client.send_numbered, rows, sequence)

    async def flush(self) -> DeliveryReport:
        """Send all rows; everything is durable on the server when this returns."""
        return await self._ask(self._client.flush)

    async def queries(self) -> dict[str, Any]:
        """Return the stream and its queries, with their claims."""
        return await self._ask(self._client.queries)

    async def releases(
        self, query: str | None = None, *, since: str | None = None, limit: int = 1_000
    ) -> list[dict[str, Any]]:
        """Return published releases, oldest first; of one query, since a time (UTC), the latest ``limit``.

        Args:
            query: Name of the query; all of them by default.
            since: Earliest time, UTC.
            limit: How many of the latest to return.
        """
        return await self._ask(self._client.releases, query, since=since, limit=limit)

    async def listen(self, query: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield past releases, then each new one as it is published.

        Args:
            query: Name of the query; all of them by default.
        """
        stream = self._client.listen(query)
        end: dict[str, Any] = {}
        while (item := await asyncio.to_thread(next, stream, end)) is not end:
            yield item

    async def ledger(self) -> dict[str, Any]:
        """Return the privacy loss so far, in total and by charge."""
        return await self._ask(self._client.ledger)

    async def release(self, query: str) -> list[dict[str, Any]]:
        """Release a query without a schedule (scope admin).

        Args:
            query: Name of the query.
        """
        return await asyncio.to_thread(self._client.release, query)

    async def intrusions(self) -> dict[str, Any]:
        """Return the intrusions announced so far, and the price of another announcement."""
        return await self._ask(self._client.intrusions)

    async def announce_intrusion(self, *, copied_at: str | None = None, just_now: bool = False) -> dict[str, Any]:
        """Announce that the server's state may have been copied (scope admin).

        Args:
            copied_at: When the copy was made, if that is known.
            just_now: Whether no row has been applied since.
        """
        return await self._ask(self._client.announce_intrusion, copied_at=copied_at, just_now=just_now)

    async def _ask(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Make a call in another thread, one at a time: all calls share one connection."""
        async with self._lock:
            return await asyncio.to_thread(call, *args, **options)
