"""``panstream intrusion announce``: someone may have copied the state; make it safe again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.inspect import KeyFile
from panstream.cli.outcome import operator_key, outcome
from panstream.errors import InvalidParameter

__all__ = ["app"]

app = typer.Typer(help="Intrusions that became known.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Intrusions that became known."""


@app.command()
def announce(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, panstream.toml.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    key_file: KeyFile = None,
) -> None:
    """Record that the state was, or may have been, copied, and refresh every state that supports it."""
    with outcome():
        from panstream.engine.config import load_config
        from panstream.engine.engine import Engine
        from panstream.engine.fate import fate

        loaded = load_config(config)
        if loaded.directory is None:
            raise InvalidParameter("[store] directory is needed: without it there is no stored state to make safe")
        with Engine(loaded, operator_key=operator_key(key_file)) as engine:
            for plan in engine.plans:
                typer.echo(f"  {plan.config.name}: {fate(plan, len(engine.intrusions))[1]}", err=True)
            if engine.intrusions:
                typer.echo(f"  announced before: {', '.join(engine.intrusions)}", err=True)
            if not yes:
                typer.confirm("Announce an intrusion now?", abort=True, err=True)
            for state in engine.announce_intrusion():
                typer.echo(str(state))
