"""Participants over HTTPS with certificates on both sides: new connections for every step, closed at its end.

TLS sessions are not resumed, so keys that are copied during one step decrypt no other step's messages.
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
    """Serves one participant to the dealer and to the other participant, one message at a time."""

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
        self.message_count = 0  # messages so far
        super().__init__(self._answer, identity, names, max_bytes=MAX_MESSAGE_BYTES, **options)

    def _answer(self, data: bytearray, name: str) -> bytearray:
        self.message_count += 1
        with self._lock, self._step():
            return self._machine.answer(data)

    def rerandomize_idle(self) -> None:
        """Re-randomize the shares, together with the other machine."""
        with self._lock, self._step():
            self._machine.idle()

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        """Close the connection to the other machine after the block, unless a step is still in progress."""
        try:
            yield
        finally:
            if self._peer is not None and not self._machine.under_way:
                self._peer.close()


class HttpsTwoPartyTransport:
    """The dealer's connections to both machines.

    Args:
        urls: Addresses of the first and the second machine.
        names: The names that their certificates must carry.
        identity: The dealer's own certificate.
    """

    def __init__(self, urls: tuple[str, str], names: tuple[str, str], identity: Identity) -> None:
        if names[0] == names[1] or urls[0] == urls[1]:
            raise InvalidParameter("machines must be two: they have the same name, or the same address")
        self._channels = {
            first: MutualTlsClient(name, url, identity, timeout=_TIMEOUT, max_bytes=MAX_MESSAGE_BYTES)
            for first, name, url in zip((True, False), names, urls, strict=True)
        }

    @contextlib.contextmanager
    def line(self) -> Iterator[Line]:
        """Yield a function that sends a message to a machine, over connections that the block's end closes."""
        with contextlib.ExitStack() as stack:
            sessions = {first: stack.enter_context(channel.session()) for first, channel in self._channels.items()}
            yield lambda first, message: _ask("a" if first else "b", sessions[first], message)


class HttpsPeer:
    """The first machine's connection to the second: one per step, from the exchange to its commit."""

    def __init__(self, name: str, url: str, identity: Identity) -> None:
        self._channel = MutualTlsClient(name, url, identity, timeout=_TIMEOUT, max_bytes=MAX_MESSAGE_BYTES)
        self._session: Session | None = None

    def __call__(self, message: bytearray) -> bytearray:
        """Return the second machine's answer to a message; `close` ends the step's connection."""
        if self._session is None:
            self._session = self._channel.session()
        try:
            return _ask("b", self._session, message)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection of a step; the next message opens another one."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _ask(which: str, session: Session, message: bytearray) -> bytearray:
    return translate_errors(
        lambda: session.ask(message), PeerUnreachable, lambda error: TwoPartyError(f"machine {which}: {error}")
    )
