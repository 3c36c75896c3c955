"""Send rows as one person's program does: with a client that numbers them, closed and started again half-way."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

Sender = Literal["client", "async client", "send"]
SENDERS: tuple[Sender, ...] = get_args(Sender)
MOST = 3  # rows that the clients may number in a window; the server's bound is higher, so that more would show
_COUNTS = "counts"


def halves(body: bytes) -> tuple[bytes, bytes]:
    """Return the rows of a CSV body as two bodies, for two runs of the client."""
    header, *lines = body.splitlines(keepends=True)
    middle = len(lines) // 2
    return header + b"".join(lines[:middle]), header + b"".join(lines[middle:])


def options(windows: Sequence[float]) -> dict[str, Any]:
    """Return the options of a client for its bound."""
    return {"contributions": {f"{window:g} seconds": MOST for window in windows}, "counts_file": Path(_COUNTS)}


def command(url: str, stream: str, file: str, windows: Sequence[float]) -> list[str]:
    """Return the arguments of ``panstream send`` for the same."""
    most = ",".join(f"{window:g} seconds={MOST}" for window in windows)
    return ["send", url, stream, file, "--contributions", most, "--counts-file", _COUNTS, "--token-file", "token"]


def send(sender: Sender, url: str, stream: str, file: str, windows: Sequence[float]) -> None:
    """Send the rows of a CSV file through a Python client, in the working directory."""
    from panstream.client.async_client import AsyncClient
    from panstream.client.client import Client

    rows = list(csv.DictReader(io.StringIO(Path(file).read_text())))
    columns: dict[str, list[Any]] = {
        "event": [row["event"] for row in rows],
        "value": [float(row["value"]) for row in rows],
    }
    settings: dict[str, Any] = {"stream": stream, "token": Path("token").read_text().strip(), **options(windows)}

    async def send_in_loop() -> None:
        async with AsyncClient(url, **settings) as client:
            await client.send(columns)

    if sender == "async client":
        asyncio.run(send_in_loop())
        return
    with Client(url, **settings) as client:
        client.send(columns)
