"""How commands end: messages on standard error, and exit codes.

::

    0    done
    1    stopped: input, store or a row was at fault; what was committed is kept
    2    wrong usage or configuration
    3    the declared privacy budget does not allow it
    130  interrupted; what was committed is kept
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from panstream.errors import BudgetExhausted, ConfigError, InvalidParameter, MissingExtra, PanstreamError, SqlRefused

__all__ = ["EXIT_CODES", "AcceptTime", "fail", "operator_key", "outcome"]

AcceptTime = Annotated[
    bool,
    typer.Option(
        "--accept-time",
        help="Believe the system's clock, however far it is ahead of where an earlier process left off.",
    ),
]
EXIT_CODES = {
    0: "done",
    1: "stopped: the input, the store or a row was at fault; what was committed is kept",
    2: "wrong usage or configuration; nothing was read",
    3: "the declared privacy budget does not allow it",
    130: "interrupted; what was committed is kept",
}


@contextmanager
def outcome() -> Iterator[None]:
    """Turn panstream's errors into a line on standard error and an exit code."""
    try:
        yield
    except PanstreamError as error:
        code, message = _code(error), str(error)
    except KeyboardInterrupt:
        code, message = 130, "interrupted; what was committed is kept"
    else:
        return
    fail(message, code)


def fail(message: str, code: int) -> None:
    """Print an error and end."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)


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
