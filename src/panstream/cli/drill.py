"""``panstream audit memory``: the memory drill, on a server of this release started for it."""

from __future__ import annotations

import json

import typer

from panstream.errors import InvalidParameter

__all__ = ["memory_drill"]


def memory_drill(rest: list[str], *, full: bool, as_json: bool) -> None:
    """Run the drill and print its table; end with 1 if an id was found, or the scan proves nothing."""
    from panstream.drill.memory import drill

    if rest not in ([], ["unhardened"]):
        raise InvalidParameter("usage: panstream audit memory [unhardened]")
    report = drill(ids=100_000 if full else 20_000, hardened=not rest)
    if as_json:
        table = [{"what": what, "sent": sent, "found": found} for what, sent, found in report.rows()]
        typer.echo(json.dumps({"ok": report.ok, "valid": report.valid, "rows": table}))
    else:
        typer.echo(str(report))
    if not report.ok:
        raise typer.Exit(1)
