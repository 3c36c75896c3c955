"""``panstream``: the command and its groups."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without the [cli] extra, say how to get it."""
    try:
        import typer  # noqa: F401
    except ImportError:
        print("the command line needs an optional dependency: pip install 'panstream[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    from panstream.cli.app import app

    app()
