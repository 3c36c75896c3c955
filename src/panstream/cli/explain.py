"""``panstream explain`` and ``panstream check``: what a configuration promises, before a row is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.outcome import outcome

__all__ = ["check", "explain"]

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration, panstream.toml.")]


def explain(
    config: ConfigFile, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False
) -> None:
    """Print for every query the algorithm and why, memory, expected error, exact claim, and totals per unit."""
    with outcome():
        from panstream.engine.config import load_config
        from panstream.engine.explain import explain as explained
        from panstream.engine.select import Selector

        loaded = load_config(config)
        with Selector(loaded):  # every condition is checked
            found = explained(loaded)
        typer.echo(json.dumps(found.to_json(), indent=2) if as_json else found.text())


def check(config: ConfigFile) -> None:
    """Say whether a configuration is sound: every key, every query, and the budget."""
    with outcome():
        from panstream.engine.config import load_config
        from panstream.engine.plan import plan_all
        from panstream.engine.select import Selector

        loaded = load_config(config)
        plans = plan_all(loaded)
        with Selector(loaded):  # every condition is checked
            pass
        names = ", ".join(plan.config.name for plan in plans)
        typer.echo(f"{config.name} is sound: stream {loaded.stream.name}, {len(plans)} queries ({names})")
