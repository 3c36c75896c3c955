"""What commands share: options, and how they end: messages on standard error, and exit codes.

::

    0    done
    1    stopped: the input, the store or a row was at fault; what was committed is kept
    2    wrong usage or configuration; nothing was read
    3    the declared privacy budget does not allow it
    130  interrupted; what was committed is kept
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from panstream.errors import BudgetExhausted, ConfigError, InvalidParameter, MissingExtra, PanstreamError, SqlRefused

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

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
def outcome(
    *, refused: int | None = None, interrupted: str = "error: interrupted; what was committed is kept"
) -> Iterator[None]:
    """Turn panstream's errors into a line on standard error and an exit code: ``refused``, or that of the error's
    kind.
    """
    try:
        yield
    except PanstreamError as error:
        code, message = refused or _code(error), f"error: {error}"
    except KeyboardInterrupt:
        code, message = 130, interrupted
    else:
        return
    typer.echo(message, err=True)
    raise typer.Exit(code)


@contextmanager
def progress_bar(*columns: ProgressColumn | str, hidden: bool = False) -> Iterator[Progress]:
    """Show a bar on standard error where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal) as bar:
        yield bar


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
    return 2 if isinstance(error, InvalidParameter | ConfigError | SqlRefused | MissingExtra) else 1
