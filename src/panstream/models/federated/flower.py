"""Holders as Flower clients: the same questions as custom query messages (``pip install 'panstream[flower]'``).

``client_app()`` answers ``query`` messages for the holder whose file the node's configuration names
(``holder="/path/north.toml"``); ``server_app()`` runs the method of the file that the run's configuration names
(``federation``, ``out``). Flower may start a new process for every message; answers, charges and the one-time keys of
secure sums are in the ledger, so nothing is lost. A round takes seconds there, so methods ask few questions with many
tables each (three for `FederatedTree`). Secure sums use this package's protocol, not Flower's SecAgg+
(docs/howto/flower.md gives the reason): the SuperLink relays keys that are signed by keys the holders have pinned.

Use TLS and node keys (docs/howto/flower.md). Flower's telemetry is switched off by importing this module; set
FLWR_TELEMETRY_ENABLED=0 for its own commands too.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from panstream.errors import FederationAborted, InvalidParameter, MissingExtra, PeerUnreachable
from panstream.models.federated.analyst import Federation
from panstream.models.federated.config import HolderConfig, RunConfig
from panstream.models.networks.domain import Domain
from panstream.models.networks.serialization import save

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
_RECORD = "panstream"
_FIELD = "message"
_POLL = 0.25


def _flower() -> Any:
    try:
        import flwr.app
        import flwr.clientapp
        import flwr.serverapp
    except ImportError:
        raise MissingExtra("federated learning over Flower", "flower") from None
    return flwr


def _content(data: bytes) -> Any:
    app = _flower().app
    return app.RecordDict({_RECORD: app.ConfigRecord({_FIELD: data})})


def _data(content: Any) -> bytes:
    data = content[_RECORD][_FIELD]
    if not isinstance(data, bytes):
        raise InvalidParameter("the message of a query must be bytes")
    return data


def client_app() -> Any:
    """Return a ClientApp that answers for one holder; its ledger makes every answer durable before it is sent."""
    flwr = _flower()
    app = flwr.clientapp.ClientApp()

    def answer(message: Any, context: Any) -> Any:
        config = HolderConfig.read(Path(str(context.node_config["holder"])))
        with config.open() as holder:
            return flwr.app.Message(_content(holder.answer(_data(message.content))), reply_to=message)

    app.query()(answer)
    return app


def server_app() -> Any:
    """Return a ServerApp that runs a federation over the connected nodes and writes the network to ``out``."""
    app = _flower().serverapp.ServerApp()

    def main(grid: Any, context: Any) -> None:
        config = RunConfig.read(Path(str(context.run_config["federation"])))
        nodes = _nodes(grid, len(config.members), config.timeout)
        lock = threading.Lock()
        channels = [_GridChannel(grid, node, lock, timeout=config.timeout) for node in nodes]
        federation = Federation(
            Domain.load(config.domain),
            channels,
            run=config.run,
            minimum=config.minimum,
            report=lambda line: print(line, flush=True),
        )
        result = config.method.run(federation)
        about = {
            "claim": result.claim.to_json(),
            "method": result.method,
            "run": result.run,
            "spent": {introduction.holder: introduction.spent for introduction in federation.introductions()},
        }
        save(result.network, Path(str(context.run_config["out"])), about)

    app.main()(main)
    return app


class _GridChannel:
    """A channel to one Flower node. A Flower Grid is not thread-safe, so ``lock`` guards each call."""

    remote = True

    def __init__(self, grid: Any, node: int, lock: threading.Lock, *, timeout: float = 120.0) -> None:
        self.name = f"node {node}"
        self._grid = grid
        self._node = node
        self._lock = lock
        self._timeout = timeout

    def answer(self, data: bytes) -> bytes:
        """Push a query and wait for the reply; raise PeerUnreachable after ``timeout`` seconds or on an error.

        The lock is released between polls, so that all holders are asked in the same round.
        """
        flwr = _flower()
        message = flwr.app.Message(_content(data), dst_node_id=self._node, message_type=flwr.app.MessageType.QUERY)
        with self._lock:
            names = list(self._grid.push_messages([message]))
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            with self._lock:
                replies = list(self._grid.pull_messages(names))
            if replies:
                reply = replies[0]
                if reply.has_error():
                    raise PeerUnreachable("its Flower node reported an error")
                try:
                    return _data(reply.content)
                except (KeyError, InvalidParameter):
                    raise PeerUnreachable("its Flower node sent no message") from None
            time.sleep(_POLL)
        raise PeerUnreachable(f"it did not answer within {self._timeout:g} s")


def _nodes(grid: Any, wanted: int, timeout: float) -> list[int]:
    """Wait until the nodes are connected."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        node_ids = sorted(grid.get_node_ids())
        if len(node_ids) >= wanted:
            return node_ids[:wanted]
        time.sleep(_POLL)
    raise FederationAborted(f"only {len(node_ids)} of {wanted} nodes are connected after {timeout:g} s")
