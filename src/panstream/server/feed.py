"""Releases as they are published, to everyone who listens (server-sent events)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

from panstream.server.refusals import Refusal

__all__ = ["Feed", "event"]

_WAITING = 1_000  # events that a slow listener may be behind before it is dropped
_LISTENERS = 256
_BREATH = 15.0  # seconds between comments, so that a lost connection is noticed


Listener: TypeAlias = "asyncio.Queue[tuple[str | None, bytes] | None]"


def event(kind: str, data: dict[str, Any], identity: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = "" if identity is None else f"id: {identity}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(data, allow_nan=False, separators=(',', ':'))}\n\n".encode()


class Feed:
    """Hands every event to every listener. A listener that does not keep up is dropped, and may come again."""

    def __init__(self) -> None:
        self._listeners: dict[Listener, str] = {}
        self._closed = False

    def publish(self, data: bytes, query: str | None = None) -> None:
        """Hand out an event, about one query or about all; call it on the event loop."""
        for listener in list(self._listeners):
            if listener.qsize() >= _WAITING:
                self._listeners.pop(listener, None)
                listener.put_nowait(None)
            else:
                listener.put_nowait((query, data))

    def close(self) -> None:
        """End every listener's stream."""
        self._closed = True
        for listener in list(self._listeners):
            listener.put_nowait(None)
        self._listeners.clear()

    def listen(self, name: str, most: int) -> Listener:
        """Return the queue of a new listener, of whom the token ``name`` may have ``most``."""
        if self._closed or len(self._listeners) >= _LISTENERS:
            raise Refusal("unavailable", "there are too many listeners, or the server is stopping", retry_after=5)
        if sum(each == name for each in self._listeners.values()) >= most:
            raise Refusal("rate_limited", retry_after=5)
        listener: Listener = asyncio.Queue()
        self._listeners[listener] = name
        return listener

    def leave(self, listener: Listener) -> None:
        """Forget a listener."""
        self._listeners.pop(listener, None)

    async def stream(self, listener: Listener, past: list[bytes], query: str | None = None) -> AsyncIterator[bytes]:
        """Yield old events, then new ones about the query as they come."""
        try:
            yield b"retry: 2000\n\n" + b"".join(past)
            while True:
                try:
                    item = await asyncio.wait_for(listener.get(), _BREATH)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if item is None:
                    return
                about, data = item
                if about is None or query is None or about == query:
                    yield data
        finally:
            self.leave(listener)
