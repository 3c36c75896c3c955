"""``panstream``: the command and its groups."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import NoReturn

from panstream.cli.hardening import harden
from panstream.errors import MissingExtra
from panstream.interrupts import INTERRUPTS
from panstream.start import load

_ABORTED = 1
_HARDENED = ("query", "run", "serve", "share", "web", "worker")


def main() -> NoReturn:
    """Run the command line; without the [cli] extra, say how to get it."""
    with contextlib.suppress(KeyboardInterrupt), INTERRUPTS.caught(signal.SIGINT):
        _run()
    raise SystemExit(130)


def _run() -> NoReturn:
    if sys.argv[1:2] and sys.argv[1] in _HARDENED and "--help" not in sys.argv:
        if "--no-hardening" not in sys.argv:
            harden()  # as the command itself does; before anything is loaded, the second start is a third cheaper
        load("panstream.cli.app", "panstream.engine.config", "panstream.engine.run")
    try:
        import typer  # noqa: F401
    except ImportError:
        print(MissingExtra("the command line", "cli"), file=sys.stderr)
        raise SystemExit(2) from None
    from panstream.cli.app import app

    try:
        app()
    except SystemExit as end:
        if end.code == _ABORTED:
            INTERRUPTS.check()  # typer ends like this after Ctrl-C, too
        raise
    raise SystemExit(0)
