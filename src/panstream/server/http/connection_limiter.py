"""Limits on open connections, in total and per client address, applied before any byte is read.

Of an address only the number of its open connections is stored: a counter in a table, at the index of a keyed hash of
the address, while they are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import math
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from panstream.server.auth import Limits
from panstream.server.errors import HttpError
from panstream.server.http.address_hash import BUCKETS, AddressHash
from panstream.server.http.file_descriptors import readable

ClientKey: TypeAlias = str | int  # a token's name, or the bucket of an address
ConnectionGroups: TypeAlias = "dict[ClientKey, dict[ClientConnection, None]]"  # ordered sets
MakeProtocol: TypeAlias = "Callable[[ClientConnection], asyncio.BaseProtocol]"

_BACKLOG = 2048
_MAX_WAITING = 2048  # accepted connections that wait for admission; nothing is read from them or written to them
_MAX_REPLACEMENTS = 32  # a second: evictions within an address that is at its limit
_MAX_ACCEPTS = 64  # connections accepted before other events of the loop are handled
_MIN_IDLE_BEFORE_EVICTION = 0.5  # seconds: an earlier eviction would waste a handshake
_POLL_INTERVAL = 0.05  # seconds between checks for bytes on the waiting connections
_READABLE_RATE = 32.0  # a second: evictions for waiting connections of one address that have sent something
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_ACCEPT_PAUSE = 0.1  # seconds before the next accept after such an error, or where the loop has no readers
_FULL = HttpError("unavailable", "all connections are busy; try again", retry_after=1).to_http_response(last=True)
_TLS_SHUTDOWN_TIME = 5.0  # seconds


@dataclass(slots=True, eq=False)
class ClientConnection:
    """An admitted connection, until it is closed."""

    limiter: ConnectionLimiter
    socket: socket.socket
    bucket: int  # of its address
    token: str | None = None  # of its sender, once authenticated
    has_sent: bool = False
    since: float = 0.0  # when it was admitted, or last answered
    deadline: asyncio.TimerHandle | None = None  # for the first byte, in TLS

    def request_started(self, token: str | None = None) -> None:
        """Mark the connection busy, so that it is not evicted."""
        self.limiter.mark_busy(self, token)

    def request_finished(self) -> None:
        """Mark the connection idle: it may be evicted."""
        self.limiter.mark_idle(self)

    def close(self) -> None:
        """Remove the connection from the counts, and admit one that waits."""
        self.limiter.on_closed(self)


class ConnectionLimiter:
    """Limit open connections in total and per client address.

    At the limit, evict the longest-idle connection of the client (a token, or an address without one) that holds the
    most; connections that never sent a byte go first, and no TLS handshake is started for one that is evicted at once.
    If every candidate is busy, idle for less than _MIN_IDLE_BEFORE_EVICTION, or belongs to a client with fewer
    connections, the new one waits, unread. A waiting one that has sent something replaces an idle one as soon as
    possible, newest first, so that silent connections do not delay it.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic, files: int | None = None) -> None:
        """Limit connections; ``files`` is the number of descriptors for them, None if the system sets no limit."""
        self._limits = limits
        self._clock = clock
        files = sys.maxsize if files is None else files
        self._max_accepts = max(1, min(_MAX_ACCEPTS, files // 8))
        # An evicted connection holds its descriptor for two more turns of the event loop: three batches of accepts
        # can be open at a time beyond those that are counted.
        files -= 3 * self._max_accepts
        self.max_connections = max(1, min(limits.connections, 3 * files // 4))
        self._max_waiting = max(1, min(_MAX_WAITING, files - self.max_connections))
        self._has_warned = False
        self._addresses = AddressHash()
        self._open = np.zeros(BUCKETS, np.uint16)  # connections by bucket
        self._counts: dict[ClientKey, int] = {}  # connections by client
        self._silent: ConnectionGroups = {}  # idle ones that never sent a byte, longest idle first
        self._idle: ConnectionGroups = {}  # the other idle ones, likewise
        self._connections: set[ClientConnection] = set()
        self._waiting: dict[int, dict[socket.socket, asyncio.TimerHandle]] = {}  # not admitted, by bucket
        self._replacements: dict[int, list[float]] = {}  # by bucket: start of a second, and evictions since
        self._allowances: dict[int, tuple[float, float]] = {}  # by bucket: a token bucket's level, and its time
        self._poll_timer: asyncio.TimerHandle | None = None  # for waiting connections
        self._handshakes: set[asyncio.Task[None]] = set()
        self._make_protocol: MakeProtocol
        self._tls: ssl.SSLContext | None = None
        self._listening: socket.socket | None = None
        self._accept_timer: asyncio.TimerHandle | None = None  # ends a pause in accepting

    def open(self, listening: socket.socket, make_protocol: MakeProtocol, tls: ssl.SSLContext | None) -> None:
        """Start to accept connections, each with a protocol of its own. Call it from the event loop."""
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._make_protocol = make_protocol
        self._tls = tls
        self._listening = listening
        self._listen()

    def close(self) -> None:
        """Stop accepting, reject the waiting connections, and end handshakes."""
        self._stop_listening()
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        for task in self._handshakes:
            task.cancel()
        for bucket, connections in list(self._waiting.items()):
            for connection in list(connections):
                self._reject(connection, bucket)
        for client in [client for client in self._connections if client.deadline is not None]:
            self._evict(client)

    def admit(self, connection: socket.socket, address: Any) -> ClientConnection | None:
        """Admit a connection, if need be by evicting an idle one; None if that is not possible."""
        client_key = self._addresses.bucket(address)
        address_full, full = self._is_full(client_key)
        if address_full and not self._may_replace(client_key):
            return None
        if full and not self._evict_idle(client_key, same_address=address_full):
            return None
        return self._add(connection, client_key)

    def _is_full(self, client_key: int) -> tuple[bool, bool]:
        """Return whether a bucket is at its limit, and whether a connection from it can only replace another one."""
        address_full = bool(self._open[client_key] >= self._limits.address_connections)
        return address_full, address_full or len(self._connections) >= self.max_connections

    def _add(self, connection: socket.socket, client_key: int, *, has_sent: bool = False) -> ClientConnection:
        client = ClientConnection(self, connection, client_key, has_sent=has_sent)
        self._connections.add(client)
        self._open[client_key] += 1
        self._count(client, 1)
        self.mark_idle(client)
        return client

    def mark_busy(self, client: ClientConnection, token: str | None = None) -> None:
        """Remove a connection from the idle ones; count it for the token from now on, if one is given."""
        key = _key_of(client)
        groups = self._idle if client.has_sent else self._silent
        group = groups.get(key)
        if group is not None and client in group:
            del group[client]
            if not group:
                del groups[key]
        client.has_sent = True
        if token is not None and token != client.token and client in self._connections:
            self._count(client, -1)
            client.token = token
            self._count(client, 1)

    def mark_idle(self, client: ClientConnection) -> None:
        """Append a connection to the idle ones of its client."""
        if client in self._connections:
            client.since = self._clock()
            groups = self._idle if client.has_sent else self._silent
            groups.setdefault(_key_of(client), {})[client] = None

    def on_closed(self, client: ClientConnection) -> None:
        """Forget a connection, and admit one that waits; a second call does nothing."""
        if self._forget(client):
            self._admit_next_waiting()

    def _forget(self, client: ClientConnection) -> bool:
        if is_open := client in self._connections:
            self.mark_busy(client)
            self._count(client, -1)
            self._connections.discard(client)
            self._open[client.bucket] -= 1
            if not self._open[client.bucket]:
                self._replacements.pop(client.bucket, None)
                self._allowances.pop(client.bucket, None)
            client.bucket = 0
        return is_open

    def _evict_idle(self, client_key: int, *, same_address: bool) -> bool:
        """Evict an idle connection in favour of one from ``client_key``; return whether there was one.

        It is from the same address, or from the client with the most connections, but never from a client with fewer
        than the one that is favoured: a client cannot displace others by connecting more often.
        """
        min_count = self._counts.get(client_key, 0)
        for groups, latest in ((self._silent, math.inf), (self._idle, self._clock() - _MIN_IDLE_BEFORE_EVICTION)):
            for key in sorted(groups, key=self._counts.__getitem__, reverse=True):
                if not same_address and self._counts[key] < min_count:
                    break
                for client in groups[key]:
                    if client.since <= latest and (client.bucket == client_key or not same_address):
                        self._evict(client)
                        return True
        return False

    def _evict(self, client: ClientConnection) -> None:
        has_protocol = client.deadline is None
        self._stop_waiting(client)
        self._forget(client)
        with contextlib.suppress(OSError):
            if has_protocol:
                client.socket.shutdown(
                    socket.SHUT_RDWR
                )  # its protocol, or the handshake, then reads the end and closes
            else:
                client.socket.close()

    def _count(self, client: ClientConnection, change: int) -> None:
        key = _key_of(client)
        self._counts[key] = self._counts.get(key, 0) + change
        if not self._counts[key]:
            del self._counts[key]

    def _accept(self) -> None:
        """Accept connections, at most a batch: the loop calls this again, after other events, if there are more."""
        assert self._listening is not None
        try:
            for _ in range(self._max_accepts):
                self._receive(*self._listening.accept())
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in _OUT_OF_RESOURCES:
                if not self._has_warned:
                    print(
                        "panstream: the system has no room for further connections (open files, memory)",
                        file=sys.stderr,
                    )
                self._has_warned = True
                self._evict_idle(-1, same_address=False)
                self._stop_listening()
                self._accept_timer = asyncio.get_running_loop().call_later(_ACCEPT_PAUSE, self._listen)

    def _listen(self) -> None:
        assert self._listening is not None
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._listening.fileno(), self._accept)
        except NotImplementedError:  # on Windows
            self._accept()
            self._accept_timer = loop.call_later(_ACCEPT_PAUSE, self._listen)

    def _stop_listening(self) -> None:
        if self._accept_timer is not None:
            self._accept_timer.cancel()
        if self._listening is not None:
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().remove_reader(self._listening.fileno())

    def _receive(self, connection: socket.socket, address: Any) -> None:
        connection.setblocking(False)
        client = self.admit(connection, address)
        if client is not None:
            self._start_handshake(client)
            return
        client_key = self._addresses.bucket(address)
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(self._limits.handshake_time, self._reject, connection, client_key)
        self._waiting.setdefault(client_key, {})[connection] = deadline
        if sum(map(len, self._waiting.values())) > self._max_waiting:
            largest = max(self._waiting, key=lambda bucket: len(self._waiting[bucket]))
            self._reject(next(iter(self._waiting[largest])), largest)
        if self._poll_timer is None and self._waiting:
            self._poll_timer = loop.call_later(_POLL_INTERVAL, self._admit_readable)

    def _admit_readable(self) -> None:
        """Admit waiting connections that have sent something, newest first, as far as idle ones can be evicted."""
        self._poll_timer = None
        for client_key in sorted(self._waiting, key=self._open.__getitem__):
            for connection in readable(reversed(self._waiting[client_key])):
                if not self._evict_for_readable(client_key):
                    break
                self._dequeue(connection, client_key)
                self._start_handshake(self._add(connection, client_key, has_sent=True))
        if self._waiting:
            self._poll_timer = asyncio.get_running_loop().call_later(_POLL_INTERVAL, self._admit_readable)

    def _evict_for_readable(self, client_key: int) -> bool:
        """Evict an idle connection, where necessary, for one that has sent something; False if it has to wait."""
        address_full, full = self._is_full(client_key)
        if not full:
            return True
        now = self._clock()
        allowance, since = self._allowances.get(client_key, (_READABLE_RATE, now))
        allowance = min(_READABLE_RATE, allowance + _READABLE_RATE * (now - since))
        self._allowances[client_key] = allowance, now
        if allowance < 1.0 or not self._evict_idle(client_key, same_address=address_full):
            return False
        self._allowances[client_key] = allowance - 1.0, now
        return True

    def _reject(self, connection: socket.socket, client_key: int) -> None:
        self._dequeue(connection, client_key)
        if self._tls is None:
            with contextlib.suppress(OSError):
                connection.send(_FULL)
        connection.close()

    def _dequeue(self, connection: socket.socket, client_key: int) -> None:
        self._waiting[client_key].pop(connection).cancel()
        if not self._waiting[client_key]:
            del self._waiting[client_key]

    def _admit_next_waiting(self) -> None:
        """Admit the longest waiting connection of the address that has the fewest open ones."""
        client_key = min(self._waiting, key=self._open.__getitem__, default=-1)
        if client_key >= 0 and not self._is_full(client_key)[1]:
            connection = next(iter(self._waiting[client_key]))
            self._dequeue(connection, client_key)
            self._start_handshake(self._add(connection, client_key))

    def _may_replace(self, client_key: int) -> bool:
        """Return whether another connection of an address may be evicted for one of the same in this second."""
        now = self._clock()
        since = self._replacements.setdefault(client_key, [now, 0])
        if now >= since[0] + 1.0:
            since[:] = [now, 0]
        since[1] += 1
        return since[1] <= _MAX_REPLACEMENTS

    def _start_handshake(self, client: ClientConnection) -> None:
        """Start the protocol; with TLS only when the first byte is there, since a handshake costs more than a wait."""
        if self._tls is None:
            self._start_protocol(client)
            return
        loop = asyncio.get_running_loop()

        def on_readable() -> None:
            self._stop_waiting(client)
            self.mark_busy(client)
            self.mark_idle(client)
            self._start_protocol(client)

        try:
            loop.add_reader(client.socket.fileno(), on_readable)
        except NotImplementedError:  # on Windows
            self._start_protocol(client)
        else:
            client.deadline = loop.call_later(self._limits.handshake_time, self._on_handshake_timeout, client)

    def _on_handshake_timeout(self, client: ClientConnection) -> None:
        self._evict(client)
        self._admit_next_waiting()

    @staticmethod
    def _stop_waiting(client: ClientConnection) -> None:
        if client.deadline is not None:
            client.deadline.cancel()
            client.deadline = None
            asyncio.get_running_loop().remove_reader(client.socket.fileno())

    def _start_protocol(self, client: ClientConnection) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(client))
        self._handshakes.add(task)
        task.add_done_callback(functools.partial(self._on_handshake_done, client))

    def _on_handshake_done(self, client: ClientConnection, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        if task.cancelled():  # perhaps before it started, when nothing in it could close the socket
            self.on_closed(client)
            client.socket.close()

    async def _connect(self, client: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        timeouts = {}
        if self._tls is not None:
            timeouts = {
                "ssl_handshake_timeout": self._limits.handshake_time,
                "ssl_shutdown_timeout": _TLS_SHUTDOWN_TIME,
            }
        try:
            with contextlib.suppress(OSError):
                client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                lambda: self._make_protocol(client), client.socket, ssl=self._tls, **timeouts
            )
        except OSError:
            self.on_closed(client)
            client.socket.close()


def _key_of(client: ClientConnection) -> ClientKey:
    return client.bucket if client.token is None else client.token
