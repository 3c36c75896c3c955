"""Limits on open connections, in total and per client address, applied before any byte is read.

Of an address only the number of its open connections is stored: a counter in a table, at the index of a keyed hash of
the address, while they are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import math
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from panstream.primitives.noise.entropy import system_entropy
from panstream.server.auth import Limits
from panstream.server.errors import HttpError
from panstream.server.http.file_descriptors import readable

Key: TypeAlias = str | int  # a token's name, or the place of an address
Crowds: TypeAlias = "dict[Key, dict[ClientConnection, None]]"
Make: TypeAlias = "Callable[[ClientConnection], asyncio.BaseProtocol]"

_BACKLOG = 2048
_OUTSIDE = 2048  # connections that wait for a place; no byte of theirs is read, and none is written
_REPLACED = 32  # connections of a full address that may take another one's place in a second
_AT_ONCE = 64  # connections accepted before others have their turn
_PLACES = 1 << 16  # of the table of addresses
_MAPPED = bytes(10) + b"\xff\xff"  # what stands before an IPv4 address in IPv6
_MIN_IDLE_BEFORE_EVICTION = 0.5  # seconds that a handshake is worth
_RETRY = 0.05  # seconds between looks at the connections that wait
_SPEAKING = 32.0  # connections of a full address that sent something and may take another one's place, a second
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 0.1  # seconds before the next try when the system has no room for a connection, or cannot tell of one
_FULL = HttpError("unavailable", "all connections are busy; try again", retry_after=1).to_http_response(last=True)
_CLOSING = 5.0  # seconds for the end of a TLS connection


@dataclass(slots=True, eq=False)
class ClientConnection:
    """An open connection, from its arrival until it is closed."""

    limiter: ConnectionLimiter
    socket: socket.socket
    bucket: int  # of its address
    token: str | None = None  # of its sender, once authenticated
    has_sent: bool = False
    since: float = 0.0  # when it came, or was last answered
    deadline: asyncio.TimerHandle | None = None  # for its first word, in TLS

    def request_started(self, token: str | None = None) -> None:
        """Mark it busy, so that it is not evicted."""
        self.limiter.mark_busy(self, token)

    def request_finished(self) -> None:
        """Mark it idle."""
        self.limiter.mark_idle(self)

    def close(self) -> None:
        """Remove it from the counts."""
        self.limiter.on_closed(self)


class ConnectionLimiter:
    """Limit open connections in total and per client address.

    At the limit, evict the longest-idle connection of the client (a token, or an address without one) that holds the
    most; connections that never sent a byte go first, and no TLS handshake is started for one that is evicted at once.
    If every candidate is busy, idle for less than _MIN_IDLE_BEFORE_EVICTION, or belongs to a client with fewer
    connections, the new one waits. Of those that wait, one that has sent something replaces an idle one as soon as
    possible, newest first, so that silent connections do not keep it waiting.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic, files: int | None = None) -> None:
        """Limit connections; ``files`` is how many descriptors there are for them, if the system limits that."""
        self._limits = limits
        self._clock = clock
        files = sys.maxsize if files is None else files
        self._at_once = max(1, min(_AT_ONCE, files // 8))
        files -= 3 * self._at_once  # a connection that makes room is closed two turns of the event loop later
        self.most = max(1, min(limits.connections, 3 * files // 4))
        self._most_waiting = max(1, min(_OUTSIDE, files - self.most))
        self._told_no_room = False
        key = np.empty(16, np.uint8)
        system_entropy(key)
        self._key = key.tobytes()
        self._open = np.zeros(_PLACES, np.uint16)  # connections by place
        self._held: dict[Key, int] = {}  # connections by token or place
        self._silent: Crowds = {}  # the idle ones among them, those that are idle longest first
        self._idle: Crowds = {}
        self._connections: set[ClientConnection] = set()
        self._waiting: dict[int, dict[socket.socket, asyncio.TimerHandle]] = {}  # outside, by place
        self._replaced: dict[int, list[float]] = {}  # by place: in which second, and how often since
        self._allowances: dict[int, tuple[float, float]] = {}  # by place: of those that sent something, and when
        self._retry: asyncio.TimerHandle | None = None  # of those that wait
        self._welcoming: set[asyncio.Task[None]] = set()
        self._make: Make
        self._tls: ssl.SSLContext | None = None
        self._listening: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None  # when listening goes on after a pause

    def open(self, listening: socket.socket, make: Make, tls: ssl.SSLContext | None) -> None:
        """Begin to accept; ``make`` returns the protocol of a connection. Call it from the event loop."""
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._make = make
        self._tls = tls
        self._listening = listening
        self._listen()

    def close(self) -> None:
        """Accept nothing more, and end handshakes."""
        self._stop_listening()
        if self._retry is not None:
            self._retry.cancel()
        for task in self._welcoming:
            task.cancel()
        for client_key, outside in list(self._waiting.items()):
            for connection in list(outside):
                self._reject(connection, client_key)
        for client in [client for client in self._connections if client.deadline is not None]:
            self._evict(client)

    def admit(self, connection: socket.socket, address: Any) -> ClientConnection | None:
        """Let a connection in, if need be in the place of an idle one; None if there is no room."""
        client_key = self._client_bucket(address)
        crowded = self._open[client_key] >= self._limits.address_connections
        full = crowded or len(self._connections) >= self.most
        if crowded and not self._may_replace(client_key):
            return None
        if full and not self._make_room(client_key, within=crowded):
            return None
        return self._enter(connection, client_key)

    def _enter(self, connection: socket.socket, client_key: int, *, spoke: bool = False) -> ClientConnection:
        client = ClientConnection(self, connection, client_key, has_sent=spoke)
        self._connections.add(client)
        self._open[client_key] += 1
        self._count(client, 1)
        self.mark_idle(client)
        return client

    def mark_busy(self, client: ClientConnection, token: str | None = None) -> None:
        """Take a connection from the idle ones; from now on it is the token's, if one is given."""
        key = _key_of(client)
        crowds = self._idle if client.has_sent else self._silent
        crowd = crowds.get(key)
        if crowd is not None and client in crowd:
            del crowd[client]
            if not crowd:
                del crowds[key]
        client.has_sent = True
        if token is not None and token != client.token and client in self._connections:
            self._count(client, -1)
            client.token = token
            self._count(client, 1)

    def mark_idle(self, client: ClientConnection) -> None:
        """Put a connection behind the idle ones of its kind."""
        if client in self._connections:
            client.since = self._clock()
            crowds = self._idle if client.has_sent else self._silent
            crowds.setdefault(_key_of(client), {})[client] = None

    def on_closed(self, client: ClientConnection) -> None:
        """Forget a connection, and let another one in; nothing the second time."""
        if self._forget(client):
            self._admit_next_waiting()

    def _forget(self, client: ClientConnection) -> bool:
        if is_open := client in self._connections:
            self.mark_busy(client)
            self._count(client, -1)
            self._connections.discard(client)
            self._open[client.bucket] -= 1
            client_key = client.bucket
            client.bucket = 0
            if not self._open[client_key]:
                self._replaced.pop(client_key, None)
                self._allowances.pop(client_key, None)
        return is_open

    def _make_room(self, client_key: int, *, within: bool) -> bool:
        """End an idle connection for one from an address; ``within`` the address, or of somebody who has no fewer."""
        min_held = self._held.get(client_key, 0)
        for crowds, latest in ((self._silent, math.inf), (self._idle, self._clock() - _MIN_IDLE_BEFORE_EVICTION)):
            for key in sorted(crowds, key=self._held.__getitem__, reverse=True):
                if not within and self._held[key] < min_held:
                    break
                for client in crowds[key]:
                    if client.since <= latest and (client.bucket == client_key or not within):
                        self._evict(client)
                        return True
        return False

    def _evict(self, client: ClientConnection) -> None:
        waiting = client.deadline is not None
        self._stop_waiting(client)
        self._forget(client)
        with contextlib.suppress(OSError):
            if waiting:
                client.socket.close()
            else:
                client.socket.shutdown(socket.SHUT_RDWR)  # whoever reads from it sees its end, in a handshake too

    def _count(self, client: ClientConnection, change: int) -> None:
        key = _key_of(client)
        self._held[key] = self._held.get(key, 0) + change
        if not self._held[key]:
            del self._held[key]

    def _client_bucket(self, address: Any) -> int:
        """Return where an address is counted: an IPv6 network of 64 bits is one, since its owner has them all."""
        text = str(address[0]).partition("%")[0]
        try:
            packed = socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
        except OSError:
            return 0
        prefix = packed[12:] if packed.startswith(_MAPPED) else packed[:8]
        return int.from_bytes(hashlib.blake2b(prefix, digest_size=2, key=self._key).digest())

    def _accept(self) -> None:
        """Let in who has come. It is called again at once if there are more: others have their turn between."""
        assert self._listening is not None
        try:
            for _ in range(self._at_once):  # whoever floods may have hundreds in the queue before an honest one
                self._receive(*self._listening.accept())
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._tell_no_room()
                self._make_room(-1, within=False)
                self._stop_listening()
                self._again = asyncio.get_running_loop().call_later(_PAUSE, self._listen)

    def _listen(self) -> None:
        assert self._listening is not None
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._listening.fileno(), self._accept)
        except NotImplementedError:  # on Windows
            self._accept()
            self._again = loop.call_later(_PAUSE, self._listen)

    def _stop_listening(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._listening is not None:
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().remove_reader(self._listening.fileno())

    def _receive(self, connection: socket.socket, address: Any) -> None:
        connection.setblocking(False)
        client = self.admit(connection, address)
        if client is not None:
            self._start_handshake(client)
            return
        client_key = self._client_bucket(address)
        loop = asyncio.get_running_loop()
        patience = loop.call_later(self._limits.handshake_time, self._reject, connection, client_key)
        self._waiting.setdefault(client_key, {})[connection] = patience
        if sum(map(len, self._waiting.values())) > self._most_waiting:
            crowd = max(self._waiting, key=lambda client: len(self._waiting[client]))
            self._reject(next(iter(self._waiting[crowd])), crowd)
        if self._retry is None and self._waiting:
            self._retry = loop.call_later(_RETRY, self._let_in_speaking)

    def _let_in_speaking(self) -> None:
        """Let in those that wait and have sent something, as far as idle ones can make room."""
        self._retry = None
        for client_key in sorted(self._waiting, key=self._open.__getitem__):
            for connection in readable(reversed(self._waiting[client_key])):
                if not self._replace_idle(client_key):
                    break
                self._enqueue(connection, client_key)
                self._start_handshake(self._enter(connection, client_key, spoke=True))
        if self._waiting:
            self._retry = asyncio.get_running_loop().call_later(_RETRY, self._let_in_speaking)

    def _replace_idle(self, client_key: int) -> bool:
        """Make room for a connection of an address that has sent something; False if that has to wait."""
        crowded = bool(self._open[client_key] >= self._limits.address_connections)
        if not crowded and len(self._connections) < self.most:
            return True
        now = self._clock()
        allowance, since = self._allowances.get(client_key, (_SPEAKING, now))
        allowance = min(_SPEAKING, allowance + _SPEAKING * (now - since))
        self._allowances[client_key] = allowance, now
        if allowance < 1.0 or not self._make_room(client_key, within=crowded):
            return False
        self._allowances[client_key] = allowance - 1.0, now
        return True

    def _tell_no_room(self) -> None:
        if not self._told_no_room:
            self._told_no_room = True
            print("panstream: the system has no room for further connections (open files, memory)", file=sys.stderr)

    def _reject(self, connection: socket.socket, client_key: int) -> None:
        self._enqueue(connection, client_key)
        if self._tls is None:
            with contextlib.suppress(OSError):
                connection.send(_FULL)
        connection.close()

    def _enqueue(self, connection: socket.socket, client_key: int) -> None:
        self._waiting[client_key].pop(connection).cancel()
        if not self._waiting[client_key]:
            del self._waiting[client_key]

    def _admit_next_waiting(self) -> None:
        """Let in one of those that wait: from the address that has the fewest connections, who waits longest."""
        client_key = min(self._waiting, key=self._open.__getitem__, default=-1)
        if (
            client_key >= 0
            and self._open[client_key] < self._limits.address_connections
            and len(self._connections) < self.most
        ):
            connection = next(iter(self._waiting[client_key]))
            self._enqueue(connection, client_key)
            self._start_handshake(self._enter(connection, client_key))

    def _may_replace(self, client_key: int) -> bool:
        """Return whether an address may have another of its connections replaced in this second."""
        now = self._clock()
        since = self._replaced.setdefault(client_key, [now, 0])
        if now >= since[0] + 1.0:
            since[:] = [now, 0]
        since[1] += 1
        return since[1] <= _REPLACED

    def _start_handshake(self, client: ClientConnection) -> None:
        """Begin at once, or with TLS when the other side does: many never will."""
        if self._tls is None:
            self._complete_admission(client)
            return
        loop = asyncio.get_running_loop()

        def came() -> None:
            self._stop_waiting(client)
            self.mark_busy(client)
            self.mark_idle(client)
            self._complete_admission(client)

        try:
            loop.add_reader(client.socket.fileno(), came)
        except NotImplementedError:  # on Windows
            self._complete_admission(client)
        else:
            client.deadline = loop.call_later(self._limits.handshake_time, self._give_up, client)

    def _give_up(self, client: ClientConnection) -> None:
        self._evict(client)
        self._admit_next_waiting()

    @staticmethod
    def _stop_waiting(client: ClientConnection) -> None:
        if client.deadline is not None:
            client.deadline.cancel()
            client.deadline = None
            asyncio.get_running_loop().remove_reader(client.socket.fileno())

    def _complete_admission(self, client: ClientConnection) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(client))
        self._welcoming.add(task)
        task.add_done_callback(functools.partial(self._on_handshake_done, client))

    def _on_handshake_done(self, client: ClientConnection, task: asyncio.Task[None]) -> None:
        self._welcoming.discard(task)
        if task.cancelled():  # perhaps before it began, when nothing in it could
            self.on_closed(client)
            client.socket.close()

    async def _connect(self, client: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        timeouts = {}
        if self._tls is not None:
            timeouts = {"ssl_handshake_timeout": self._limits.handshake_time, "ssl_shutdown_timeout": _CLOSING}
        try:
            with contextlib.suppress(OSError):
                client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(lambda: self._make(client), client.socket, ssl=self._tls, **timeouts)
        except OSError:
            self.on_closed(client)
            client.socket.close()


def _key_of(client: ClientConnection) -> Key:
    return client.bucket if client.token is None else client.token
