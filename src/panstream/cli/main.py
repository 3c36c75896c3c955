"""Entry point of ``panstream``."""

from __future__ import annotations

import contextlib
import sys
from typing import NoReturn

from panstream.cli.hardening import reexec_hardened
from panstream.errors import MissingExtra
from panstream.primitives.fast_import import import_without_gc
from panstream.primitives.interrupts import INTERRUPTS

_ABORTED = (1, 130)  # typer's exit codes after Ctrl-C, whichever signal it was
_HARDENED = ("party", "query", "run", "serve", "web", "worker")
_LOADED = {  # large modules that a command will import; loading them at once, without garbage collection, is faster
    **dict.fromkeys((*_HARDENED, "check", "explain", "statement"), "panstream.engine.runtime.ingest"),
    **dict.fromkeys(("federate", "holder"), "panstream.models.federated.https"),
}


def main() -> NoReturn:
    """Run the command line; without the [cli] extra, print how to install it."""
    with contextlib.suppress(KeyboardInterrupt), INTERRUPTS.handling():
        _run()
    raise SystemExit(INTERRUPTS.exit_code)


def _run() -> NoReturn:
    name = sys.argv[1] if sys.argv[1:] else ""
    command = "" if "--help" in sys.argv else name
    if command in _HARDENED and "--no-hardening" not in sys.argv:
        reexec_hardened()  # the command does so, too; before modules are loaded it takes a third less time
    if command in _LOADED:
        import_without_gc("panstream.cli.command_loader", _LOADED[command])
    try:
        import typer  # noqa: F401
    except ImportError:
        print(MissingExtra("the command line", "cli"), file=sys.stderr)
        raise SystemExit(2) from None
    from panstream.cli.command_loader import NAMES, app_with

    app = app_with(*([name] if name in NAMES else NAMES))
    try:
        app()
    except SystemExit as end:
        if end.code in _ABORTED:
            INTERRUPTS.check()
        raise
    raise SystemExit(0)
