"""``panstream send``: pipe events to a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.outcome import outcome
from panstream.errors import InvalidParameter, translated

if TYPE_CHECKING:
    from panstream.client import Client

__all__ = ["send"]

_BLOCK = 1 << 20
_TYPES = {"csv": "text/csv", "json": "application/x-ndjson", "arrow": "application/vnd.apache.arrow.stream"}


def send(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server: https://host:port.")],
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")],
    input: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Standard input by default.")] = None,
    format: Annotated[str, typer.Option(help="csv (with a header line), json (lines) or arrow (IPC stream).")] = "json",
    token_file: Annotated[Path | None, typer.Option(help="File with the token; or set PANSTREAM_TOKEN.")] = None,
    producer: Annotated[
        str | None,
        typer.Option(
            help="Name of this sender, never of a person; random by default. Another of this name is taken over."
        ),
    ] = None,
    lanes: Annotated[int, typer.Option(min=1, max=64, help="Batches under way at a time.")] = 16,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust, PEM.")] = None,
) -> None:
    """Send events to a server and wait until they are durable there."""
    with outcome():
        from panstream.client import Client

        if format not in _TYPES:
            raise InvalidParameter(f"format must be one of {', '.join(_TYPES)}, got {format!r}")
        certificates = None if ca_file is None else str(ca_file)
        settings: dict[str, Any] = {"producer": producer, "lanes": lanes, "ca_file": certificates}
        with Client(url, stream=stream, token=_token(token_file), **settings) as client:
            source = sys.stdin.buffer if input is None or str(input) == "-" else _opened(input)
            with source:
                _pump(client, source, format)
            sent = client.flush()
        if not sys.stderr.isatty():
            typer.echo("everything sent is durable on the server", err=True)
            return
        typer.echo(f"{sent.rows:,} rows in {sent.batches:,} batches are durable on the server", err=True)
        if sent.repeated:
            typer.echo(f"{sent.repeated:,} of the batches had arrived before, and were counted once", err=True)
        if sent.skipped or sent.late:
            typer.echo(f"{sent.skipped:,} of them were skipped as bad, {sent.late:,} were late", err=True)


def _pump(client: Client, source: IO[bytes], format: str) -> None:
    if format == "arrow":
        import pyarrow as pa

        def sent() -> None:
            with pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    client.send(batch)

        damaged = "the input is not an Arrow IPC stream, or is cut short"
        translated(sent, pa.ArrowException, lambda _: InvalidParameter(damaged))
        return
    blocks = _csv_blocks(source) if format == "csv" else _line_blocks(source)
    for block in blocks:
        client.send_body(block, _TYPES[format])


def _line_blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Yield whole lines, about a block at a time; what has arrived does not wait for more."""
    rest = b""
    while data := _some(source):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
    if rest:
        yield rest


def _csv_blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Yield whole records, each time under the header."""
    from panstream.engine.feeds.csv import Dialect, end_of_records

    record, data, head = Dialect().record, bytearray(), b""
    while piece := _some(source):
        data += piece
        if not head:
            found = record.match(data)
            if found is None:
                continue
            head = found.group()
            del found, data[: len(head)]
        end = end_of_records(data)
        if end:
            yield head + bytes(data[:end])
            del data[:end]
    if data and head:
        yield head + bytes(data)


def _some(source: IO[bytes]) -> bytes:
    read = getattr(source, "read1", source.read)
    data: bytes = read(_BLOCK)
    return data


def _opened(path: Path) -> IO[bytes]:
    return translated(
        lambda: path.open("rb"),
        OSError,
        lambda error: InvalidParameter(f"{path.name} cannot be read: {error.strerror}"),
    )


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("PANSTREAM_TOKEN")
    return translated(
        lambda: path.read_text().strip(),
        OSError,
        lambda error: InvalidParameter(f"the token file cannot be read: {error.strerror}"),
    )
