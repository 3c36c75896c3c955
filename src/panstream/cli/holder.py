"""``panstream holder``: keep a table at home and answer an analyst within a budget."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.outcome import outcome
from panstream.errors import InvalidParameter

__all__ = ["holder"]


def holder(config: Annotated[Path, typer.Argument(help="Configuration of the holder (TOML).")]) -> None:
    """Serve one holder's table over HTTPS: every question is checked, charged and answered once.

    Stops on SIGTERM or Ctrl-C. What was answered stays in the ledger, so a restart neither forgets a charge nor draws again.
    """
    with outcome():
        from panstream.federated.config import read_holder
        from panstream.federated.holder import Holder
        from panstream.federated.https import HolderServer
        from panstream.networks.domain import Domain
        from panstream.networks.records import Records

        given = read_holder(config)
        if given.identity is None:
            raise InvalidParameter("[holder] must have certificate, key and authority")
        records = Records.load(given.data, Domain.load(given.domain))
        with Holder(given.name, records, epsilon=given.epsilon, delta=given.delta, ledger=given.ledger) as kept:
            server = HolderServer(kept, given.identity, given.analysts, host=given.host, port=given.port)
            stopped = threading.Event()
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, lambda *_: stopped.set())
            server.start()
            typer.echo(f"{given.name} answers at {server.address}")
            stopped.wait()
            server.stop()
            typer.echo(f"{given.name} stopped; spent epsilon {kept.ledger.epsilon:.4g} of {given.epsilon:g}")
