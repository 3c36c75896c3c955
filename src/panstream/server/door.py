"""The door: connections are counted when they come, before any byte of them is read, and the idle make room for new ones.

Of addresses nothing is kept but how many connections are open from each: a number in a table, at a place that a keyed hash
of the address tells, for as long as they are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from panstream.randomness.entropy import system_entropy
from panstream.server.desk import refusal_bytes
from panstream.server.limits import Limits
from panstream.server.refusals import Refusal

__all__ = ["Door", "Guest"]

Key: TypeAlias = str | int  # a token's name, or the place of an address

_BACKLOG = 2048
_PLACES = 1 << 16  # of the table of addresses
_PAUSE = 0.1  # seconds before the next try when the system has no room for a connection
_FULL = refusal_bytes(Refusal("unavailable", "all connections are busy; try again", retry_after=1), last=True)
_CLOSING = 5.0  # seconds for the end of a TLS connection


@dataclass(slots=True, eq=False)
class Guest:
    """A connection, from when it came until it is closed."""

    door: Door
    socket: socket.socket
    place: int  # of its address
    token: str | None = None  # who sent on it, once somebody was let in

    def begin(self, token: str | None = None) -> None:
        """Note that a request is under way: it is not sent away now."""
        self.door.wake(self, token)

    def end(self) -> None:
        """Note that nothing is under way."""
        self.door.rest(self)

    def leave(self) -> None:
        """Note that it is closed."""
        self.door.left(self)


class Door:
    """Lets connections in, up to the limits of all together and of one address.

    If they are full, whoever has the most connections loses the one that is idle longest: a token, or an address from
    which nobody was let in on them. Only if all are busy is a new one turned away.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._key = np.empty(16, np.uint8)
        system_entropy(self._key)
        self._open = np.zeros(_PLACES, np.uint16)  # connections by place
        self._held: dict[Key, int] = {}  # connections by token or place
        self._idle: dict[Key, dict[Guest, None]] = {}  # the idle ones among them, those that are idle longest first
        self._guests: set[Guest] = set()
        self._welcoming: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def open(
        self, listening: socket.socket, make: Callable[[Guest], asyncio.BaseProtocol], tls: ssl.SSLContext | None
    ) -> None:
        """Begin to accept; ``make`` returns the protocol of a connection. Call it from the event loop."""
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening, make, tls))

    def close(self) -> None:
        """Accept nothing more, and end handshakes."""
        if self._accepting is not None:
            self._accepting.cancel()
        for task in self._welcoming:
            task.cancel()

    def admit(self, connection: socket.socket, address: Any) -> Guest | None:
        """Let a connection in, if need be in the place of an idle one; None if there is no room."""
        place = self._place_of(address)
        crowded = self._open[place] >= self._limits.address_connections
        full = crowded or len(self._guests) >= self._limits.connections
        if full and not self._make_room(place if crowded else None):
            return None
        guest = Guest(self, connection, place)
        self._guests.add(guest)
        self._open[place] += 1
        self._count(guest, 1)
        self.rest(guest)
        return guest

    def wake(self, guest: Guest, token: str | None = None) -> None:
        """Take a connection from the idle ones; from now on it is the token's, if one is given."""
        key = _key_of(guest)
        idle = self._idle.get(key)
        if idle is not None and guest in idle:
            del idle[guest]
            if not idle:
                del self._idle[key]
        if token is not None and token != guest.token and guest in self._guests:
            self._count(guest, -1)
            guest.token = token
            self._count(guest, 1)

    def rest(self, guest: Guest) -> None:
        """Put a connection behind the idle ones of its kind."""
        if guest in self._guests:
            self.wake(guest)
            self._idle.setdefault(_key_of(guest), {})[guest] = None

    def left(self, guest: Guest) -> None:
        """Forget a connection; nothing the second time."""
        if guest in self._guests:
            self.wake(guest)
            self._count(guest, -1)
            self._guests.discard(guest)
            self._open[guest.place] -= 1
            guest.place = 0

    def _make_room(self, place: int | None) -> bool:
        """End an idle connection, of an address if one is given."""
        if place is None:
            crowd = max(self._idle, key=self._held.__getitem__, default=None)
            found = None if crowd is None else next(iter(self._idle[crowd]))
        else:
            crowds = sorted(self._idle, key=self._held.__getitem__, reverse=True)
            found = next((guest for key in crowds for guest in self._idle[key] if guest.place == place), None)
        if found is None:
            return False
        with contextlib.suppress(OSError):
            found.socket.shutdown(socket.SHUT_RDWR)  # whoever reads from it sees its end, in a handshake too
        self.left(found)
        return True

    def _count(self, guest: Guest, change: int) -> None:
        key = _key_of(guest)
        self._held[key] = self._held.get(key, 0) + change
        if not self._held[key]:
            del self._held[key]

    def _place_of(self, address: Any) -> int:
        """Return where an address is counted: an IPv6 network of 64 bits is one, since its owner has them all."""
        try:
            parsed = ipaddress.ip_address(str(address[0]).partition("%")[0])
        except (ValueError, IndexError):
            return 0
        mapped = getattr(parsed, "ipv4_mapped", None)
        packed = (mapped or parsed).packed
        digest = hashlib.blake2b(packed[: 8 if len(packed) == 16 else 4], digest_size=2, key=self._key.tobytes())
        return int.from_bytes(digest.digest())

    async def _accept(
        self, listening: socket.socket, make: Callable[[Guest], asyncio.BaseProtocol], tls: ssl.SSLContext | None
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError:  # gone again, or the system has no room for it
                self._make_room(None)
                await asyncio.sleep(_PAUSE)
                continue
            guest = self.admit(connection, address)
            del address
            if guest is None:
                if tls is None:
                    with contextlib.suppress(OSError):
                        connection.send(_FULL)
                connection.close()
            else:
                task = loop.create_task(self._welcome(guest, make, tls))
                self._welcoming.add(task)
                task.add_done_callback(self._welcoming.discard)
            await asyncio.sleep(0)  # others have their turn, however many come

    async def _welcome(
        self, guest: Guest, make: Callable[[Guest], asyncio.BaseProtocol], tls: ssl.SSLContext | None
    ) -> None:
        patience = {} if tls is None else {"ssl_handshake_timeout": self._limits.handshake_time}
        patience |= {} if tls is None else {"ssl_shutdown_timeout": _CLOSING}
        try:
            with contextlib.suppress(OSError):
                guest.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: make(guest), guest.socket, ssl=tls, **patience
            )
        except (OSError, asyncio.CancelledError):
            self.left(guest)
            guest.socket.close()


def _key_of(guest: Guest) -> Key:
    return guest.place if guest.token is None else guest.token
