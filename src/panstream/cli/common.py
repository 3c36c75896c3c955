"""Options, messages on standard error, and exit codes that several commands share.

::

    0    done
    1    stopped: the input, the store or a row was at fault; what was committed stays
    2    wrong usage or configuration; nothing was read
    3    the declared privacy budget does not allow it
    128 + n  stopped by signal n: 130 by Ctrl-C (SIGINT), 143 by SIGTERM; what was committed stays
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from panstream.cli.compile_notice import compile_notice
from panstream.errors import (
    BudgetExhausted,
    ConfigError,
    InvalidParameter,
    MissingExtra,
    PanstreamError,
    UnsupportedQuery,
)
from panstream.primitives.escaping import printable_lines
from panstream.primitives.interrupts import INTERRUPTS

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from panstream.engine.sources import Dialect

# Options that several commands have.
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, panstream.toml.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="The operator's key, if the store was sealed with one.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Format = Annotated[
    str | None, typer.Option(help="csv, tsv, json, log, caddy, parquet or arrow, if the name does not say.")
]
Decimal = Annotated[str, typer.Option(help="Decimal mark of numbers in text: . or ,")]
DateFormat = Annotated[
    list[str] | None,
    typer.Option(help="Format of dates in text, such as %d.%m.%Y; may be repeated. Without it: 2024-12-31 23:59:59."),
]
Encoding = Annotated[
    str | None, typer.Option(help="Encoding of text: utf-8, windows-1252, latin-1, utf-16, utf-16-le or utf-16-be.")
]
Cluster = Annotated[
    str | None, typer.Option(help="Hold the states on a Dask cluster: tls://host:8786 (docs/howto/cluster.md).")
]
Workers = Annotated[
    int | None, typer.Option(help="Number of processes on this machine; with --cluster, of workers to wait for.")
]
AcceptTime = Annotated[
    bool,
    typer.Option(
        "--accept-time", help="Trust the system clock, however far it is ahead of where an earlier process left off."
    ),
]
NoHardening = Annotated[
    bool,
    typer.Option(
        "--no-hardening",
        help="Do not restart with a wiping allocator (Linux): ids of past rows may then linger in freed memory.",
    ),
]


@contextmanager
def exit_codes(
    *,
    refused: int | None = None,
    interrupted: str = "error: interrupted; everything committed is stored",
    words: Callable[[str], str] = str,
    compiles: bool = False,
) -> Iterator[None]:
    """Turn panstream's errors and interrupts into a line on standard error and an exit code.

    Args:
        refused: Exit code of all errors; by default it depends on the class of the error.
        interrupted: Line to print after Ctrl-C or SIGTERM.
        words: Puts an error's message into the words of the command.
        compiles: Whether the command runs kernels: on a terminal it says when they are compiled.
    """
    try:
        with compile_notice(partial(typer.echo, err=True)) if compiles and sys.stderr.isatty() else nullcontext():
            yield
    except PanstreamError as error:
        code = refused or _code(error)
        message = f"error: {printable_lines(words(str(error)))}"
    except KeyboardInterrupt:
        code = INTERRUPTS.exit_code
        message = interrupted
    else:
        return
    typer.echo(message, err=True)
    raise typer.Exit(code)


class StopSignal:
    """Wait for SIGTERM or Ctrl-C, the normal end of a command that serves."""

    def __init__(self) -> None:
        self._received = threading.Event()
        self._number = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        self._received.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a signal, for at most ``seconds``, and return whether one came."""
        return self._received.wait(seconds)

    def exit(self) -> NoReturn:
        """End the command with the exit code of the received signal."""
        raise typer.Exit(128 + self._number)


@contextmanager
def progress_bar(*columns: ProgressColumn | str, hidden: bool = False) -> Iterator[Progress]:
    """Show a progress bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal) as bar:
        yield bar


def dialect_from(decimal: str, date_format: list[str] | None, encoding: str | None) -> Dialect:
    """Return the dialect of text that the options declare."""
    from panstream.engine.sources import Dialect

    return Dialect(decimal=decimal, date_format=date_format, encoding=encoding)  # type: ignore[arg-type]


def operator_key(path: Path | None) -> bytes | None:
    """Return the operator's key from a file of 32 bytes, or of 64 hexadecimal digits."""
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidParameter(f"the key file cannot be read: {error.strerror}") from None
    if len(data) == 32:
        return data
    try:
        key = bytes.fromhex(data.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        raise InvalidParameter("the key file must hold 32 bytes, or 64 hexadecimal digits")
    return key


def _code(error: PanstreamError) -> int:
    if isinstance(error, BudgetExhausted):
        return 3
    return 2 if isinstance(error, InvalidParameter | ConfigError | UnsupportedQuery | MissingExtra) else 1
