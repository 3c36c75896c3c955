"""Machines over HTTPS with certificates on both sides: fresh connections for every step, closed at its end.

Keys of one step's connections open no other step's: no session is resumed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from panstream.distributed.two_party.backend import Line
from panstream.distributed.two_party.participant import Participant
from panstream.errors import InvalidParameter, PeerUnreachable, TwoPartyError, translate_errors
from panstream.primitives.mutual_tls import Identity, MutualTlsClient, MutualTlsServer, Session

MAX_MESSAGE_BYTES = 1 << 30
_TIMEOUT = 30.0


class ParticipantServer(MutualTlsServer):
    """Serves one machine to its front end and to the other machine, one message at a time."""

    def __init__(
        self,
        machine: Participant,
        identity: Identity,
        names: tuple[str, ...],
        *,
        peer: HttpsPeer | None = None,
        **options: Any,
    ) -> None:
        self._machine = machine
        self._peer = peer
        self._lock = threading.Lock()
        self.asked = 0  # messages so far
        super().__init__(self._answer, identity, names, max_bytes=MAX_MESSAGE_BYTES, **options)

    def _answer(self, data: bytearray, name: str) -> bytearray:
        self.asked += 1
        with self._lock, self._step():
            return self._machine.answer(data)

    def rerandomize_idle(self) -> None:
        """Blind the shares anew, with the other machine."""
        with self._lock, self._step():
            self._machine.idle()

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        """Close the connection between the machines when no step is under way any more."""
        try:
            yield
        finally:
            if self._peer is not None and not self._machine.under_way:
                self._peer.hang_up()


class HttpsTwoPartyTransport:
    """The front end's way to both machines: names are those that their certificates must carry."""

    def __init__(self, urls: tuple[str, str], names: tuple[str, str], identity: Identity) -> None:
        if names[0] == names[1] or urls[0] == urls[1]:
            raise InvalidParameter("machines must be two: they have the same name, or the same address")
        self._channels = {
            first: MutualTlsClient(name, url, identity, timeout=_TIMEOUT, max_bytes=MAX_MESSAGE_BYTES)
            for first, name, url in zip((True, False), names, urls, strict=True)
        }

    @contextlib.contextmanager
    def line(self) -> Iterator[Line]:
        """Yield a way to both machines over connections of its own."""
        with contextlib.ExitStack() as stack:
            ways = {first: stack.enter_context(channel.session()) for first, channel in self._channels.items()}
            yield lambda first, message: _reached("a" if first else "b", ways[first], message)


class HttpsPeer:
    """The first machine's way to the second: one connection a step, from the exchange to its settling."""

    def __init__(self, name: str, url: str, identity: Identity) -> None:
        self._channel = MutualTlsClient(name, url, identity, timeout=_TIMEOUT, max_bytes=MAX_MESSAGE_BYTES)
        self._session: Session | None = None

    def __call__(self, message: bytearray) -> bytearray:
        """Ask the second machine; `hang_up` ends the step's connection."""
        if self._session is None:
            self._session = self._channel.session()
        try:
            return _reached("b", self._session, message)
        except BaseException:
            self.hang_up()
            raise

    def hang_up(self) -> None:
        """Close the connection of a step that is over."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _reached(which: str, session: Session, message: bytearray) -> bytearray:
    return translate_errors(
        lambda: session.ask(message), PeerUnreachable, lambda error: TwoPartyError(f"machine {which}: {error}")
    )
