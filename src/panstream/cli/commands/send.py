"""``panstream send``: send the events of a file or a pipe to a server."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.common import exit_codes
from panstream.errors import InvalidParameter, RequestRejected, SourceError, translate_errors
from panstream.primitives.sender_counts import parse_caps

if TYPE_CHECKING:
    from panstream.client.client import Client
    from panstream.client.delivery_report import DeliveryReport

_BLOCK = 1 << 20
_TYPES = {"csv": "text/csv", "json": "application/x-ndjson"}
_SENT = (*_TYPES, "arrow", "parquet")
_FATAL_STATUSES = (401, 403, 404)  # every further batch would get them, too


def send(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server: https://host:port.")],
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")],
    input: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Standard input by default.")] = None,
    format: Annotated[
        str | None,
        typer.Option(help="csv (with a header line), json (lines), arrow or parquet; by default, from the file name."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token; or set PANSTREAM_TOKEN.")] = None,
    producer: Annotated[
        str | None,
        typer.Option(
            help="Name of this sender, never of a person; random by default. Replaces an open producer of that name."
        ),
    ] = None,
    lanes: Annotated[
        int, typer.Option(min=1, max=64, help="Batches in flight at a time; the server may allow fewer.")
    ] = 16,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust, PEM.")] = None,
    contributions: Annotated[
        str | None,
        typer.Option(
            metavar="WINDOW=K,...",
            help="For rows of one person: number at most K of them in a window, as in '1 day=8,7 days=12', for queries "
            'with bounded_by = "sender". Needs --counts-file.',
        ),
    ] = None,
    counts_file: Annotated[
        Path | None, typer.Option(help="File in which the numbers in use are stored, before rows are sent.")
    ] = None,
) -> None:
    """Send events to a server and wait until they are saved there, in their order.

    Exit code 1 if a batch was refused, if rows came too late for their window, or if no row could be used.
    """
    with exit_codes():
        from panstream.client.client import Client

        path = None if input is None or str(input) == "-" else input
        kind = _format(path, format)
        certificates = None if ca_file is None else str(ca_file)
        settings: dict[str, Any] = {"producer": producer, "connections": lanes, "ca_file": certificates}
        if (contributions is None) != (counts_file is None):
            raise InvalidParameter("--contributions and --counts-file go together")
        if contributions is not None:
            settings |= {"contributions": parse_caps(contributions), "counts_file": counts_file}
        with Client(url, stream=stream, token=read_token(token_file), **settings) as client:
            refused: Counter[str] = Counter()

            def without_rejections(call: Callable[[], Any]) -> Any:
                """Repeat a call until it is no longer interrupted by rejections of earlier batches; count those."""
                while True:
                    try:
                        return call()
                    except RequestRejected as rejection:
                        if rejection.status in _FATAL_STATUSES:
                            raise
                        refused[str(rejection)] += 1

            with sys.stdin.buffer if path is None else _open_input(path) as source:
                for send_part in _send_calls(client, source, kind):
                    without_rejections(send_part)
            sent = without_rejections(client.flush)
        _report(sent, refused)


def _report(sent: DeliveryReport, refused: Counter[str]) -> None:
    watched = sys.stderr.isatty()
    batches = f"{sent.batches:,} batch{'' if sent.batches == 1 else 'es'}"
    typer.echo(f"Sent {sent.rows:,} rows ({batches})" if watched else "Sent", err=True, nl=False)
    typer.echo("; saved to disk on the server." if sent.batches or not watched else ".", err=True)
    if watched and sent.repeated:
        typer.echo(f"{sent.repeated:,} of the batches had arrived before, and were counted once.", err=True)
    if watched and sent.skipped:
        typer.echo(f"{sent.skipped:,} rows were skipped as bad.", err=True)
    if sent.late:
        rows = "1 row was" if sent.late == 1 else f"{sent.late:,} rows were"
        typer.echo(
            f"error: {rows} late and left out of their window: send rows in the order of their time, or declare "
            "[stream] lateness",
            err=True,
        )
    for reason, times in refused.items():
        typer.echo(f"error: {times:,} batch{'' if times == 1 else 'es'} refused: {reason}", err=True)
    useless = sent.rows > 0 and sent.skipped >= sent.rows
    if useless:
        typer.echo(
            "error: no row could be used; do column names and types match the declaration? "
            "panstream check CONFIG --rows FILE says what is wrong with each",
            err=True,
        )
    if refused or useless or sent.late:
        raise typer.Exit(1)


def _format(path: Path | None, format: str | None) -> str:
    """Return the given format, or that of the file name or the first byte."""
    from panstream.engine.sources.input_files import format_from_name

    format_name = format or (None if path is None else format_from_name(path))
    if path is None and format_name is None:
        begin = sys.stdin.buffer.peek(1)[:1] if hasattr(sys.stdin.buffer, "peek") else b"{"
        format_name = "json" if begin in (b"{", b"") else "arrow" if begin == b"\xff" else "csv"
    if format_name not in _SENT or (format_name == "parquet" and path is None):
        reason = f"got {format_name!r}" if format_name is not None else "which the file name does not say"
        raise InvalidParameter(f"format must be one of {', '.join(_SENT)} (parquet from a file), {reason}")
    return format_name


def _send_calls(client: Client, source: IO[bytes], format: str) -> Iterator[Callable[[], None]]:
    """Yield functions that each send a part of the input."""
    if format in _TYPES:
        for block in _csv_blocks(source) if format == "csv" else _line_blocks(source):
            yield partial(client.send_body, block, _TYPES[format])
        return
    for batch in _batches(source, format):
        yield partial(client.send, batch)


def _batches(source: IO[bytes], format: str) -> Iterator[Any]:
    import pyarrow as pa

    from panstream.primitives.inputs.parquet_footer import CorruptParquet, read_footer

    what = "a Parquet file" if format == "parquet" else "an Arrow IPC stream"
    damaged = InvalidParameter(f"the input is not {what}, or is cut short")

    def opened() -> Iterator[Any]:
        if format == "parquet":
            from pyarrow import parquet

            read_footer(Path(source.name))  # pyarrow would end the process over some damaged footers
            return iter(parquet.ParquetFile(source).iter_batches())
        return iter(pa.ipc.open_stream(source))

    causes = (pa.ArrowException, OSError, UnicodeDecodeError, CorruptParquet)
    reader = translate_errors(opened, causes, lambda _: damaged)
    while (batch := translate_errors(lambda: next(reader, None), causes, lambda _: damaged)) is not None:
        yield batch


def _line_blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Yield complete lines, about a block at a time, without waiting for a block to fill up."""
    rest = b""
    while data := _read_available(source):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
    if rest:
        yield rest


def _csv_blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks of complete records, each with the header line in front."""
    from panstream.engine.sources.formats.csv import Dialect, end_of_records

    record = Dialect().record
    data = bytearray()
    head = b""
    while piece := _read_available(source):
        data += piece
        if not head:
            match = record.match(data)
            if match is None:
                continue
            head = match.group()
            del match, data[: len(head)]
        end = end_of_records(data)
        if end:
            yield head + bytes(data[:end])
            del data[:end]
    if data and head:
        yield head + bytes(data)


def _read_available(source: IO[bytes]) -> bytes:
    read = getattr(source, "read1", source.read)
    data: bytes = read(_BLOCK)
    return data


def _open_input(path: Path) -> Any:
    """Open a file, decompressing it if necessary."""
    from panstream.engine.sources.byte_streams import open_decompressed, open_file

    raw, codec = translate_errors(lambda: open_file(path), SourceError, lambda error: InvalidParameter(str(error)))
    if codec is not None:
        return open_decompressed(raw, codec)
    raw.close()
    return path.open("rb")


def read_token(path: Path | None) -> str | None:
    """Return the token of a file, or of PANSTREAM_TOKEN."""
    if path is None:
        return os.environ.get("PANSTREAM_TOKEN")
    return translate_errors(
        lambda: path.read_text().strip(),
        OSError,
        lambda error: InvalidParameter(f"the token file cannot be read: {error.strerror}"),
    )
