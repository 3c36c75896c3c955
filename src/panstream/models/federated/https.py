"""Holders in other processes, over HTTPS with certificates on both sides."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from panstream.errors import InvalidParameter
from panstream.models.federated._messages import LARGEST_MESSAGE
from panstream.models.federated.holder import Holder
from panstream.primitives.mutual_tls import Identity, MutualTlsClient, MutualTlsServer


class HolderServer(MutualTlsServer):
    """Serves one holder to the ``analysts``, given by the common names of their certificates."""

    def __init__(self, holder: Holder, identity: Identity, analysts: Collection[str], **options: Any) -> None:
        if not analysts:
            raise InvalidParameter("analysts must name at least one certificate that may ask")
        super().__init__(lambda data, name: bytearray(holder.answer(bytes(data))), identity, analysts, **options)


class HttpsChannel(MutualTlsClient):
    """A channel to a holder in another process. ``holder`` is the name that its certificate must have."""

    remote = True

    def __init__(self, holder: str, url: str, identity: Identity, *, timeout: float = 120.0) -> None:
        super().__init__(holder, url, identity, timeout=timeout, max_bytes=LARGEST_MESSAGE)

    def answer(self, data: bytes) -> bytes:
        """Post a question over a new connection and return the answer's bytes; raise PeerUnreachable."""
        with self.session() as session:
            return bytes(session.ask(data))
