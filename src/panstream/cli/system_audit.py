"""``panstream audit system``: run the product on neighbouring inputs and compare everything that can be seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from panstream.errors import InvalidParameter

if TYPE_CHECKING:
    from panstream.system_audit.audit import SystemReport
    from panstream.system_audit.controls import Caught

__all__ = ["system_audit"]

_SHOWN = 20  # differences printed per configuration


def system_audit(given: list[str], *, rows: Path | None, full: bool, as_json: bool) -> None:
    """Audit configurations, the bundled ones by default; end with 1 if anything undeclared differs."""
    from panstream.system_audit.audit import QUICK, ROADS, bundled
    from panstream.system_audit.controls import try_controls

    paths = [Path(each) for each in given] or (bundled() if full else bundled()[:1])
    for path in paths:
        if not path.is_file():
            raise InvalidParameter(f"there is no configuration file {path.name!r}")
    if rows is not None and len(paths) != 1:
        raise InvalidParameter("--rows goes with exactly one configuration: panstream audit system CONFIG --rows FILE")
    reports = {path.name: _watched(path, rows, ROADS if full or given else QUICK, as_json) for path in paths}
    caught = [] if given else try_controls(full=full)
    if as_json:
        typer.echo(json.dumps(_json(reports, caught)))
    else:
        _show(reports, caught)
    if not (all(report.ok for report in reports.values()) and all(one.caught for one in caught)):
        raise typer.Exit(1)


def _watched(path: Path, rows: Path | None, roads: Any, quiet: bool) -> SystemReport:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from panstream.system_audit.audit import audit_system

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn(path.name), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("")
        return audit_system(
            path,
            rows=rows,
            roads=roads,
            done=lambda road, neighbour: progress.update(task, description=f"{road}: {neighbour.name}"),
        )


def _show(reports: dict[str, SystemReport], caught: list[Caught]) -> None:
    for name, report in reports.items():
        declared = sorted({each.fact for each in report.differences if each.fact is not None})
        typer.echo(
            f"{name}: {report.neighbours} neighbours, {report.runs} runs, {len(report.names):,} fields compared "
            f"{report.fields:,} times, {len(report.undeclared)} undeclared differences"
            + (f" (declared: {'; '.join(declared)})" if declared else "")
        )
        for each in report.undeclared[:_SHOWN]:
            typer.echo(f"  {each.road}, {each.neighbour}: {each.field}: {each.before[:60]!r} / {each.after[:60]!r}")
        if len(report.undeclared) > _SHOWN:
            typer.echo(f"  and {len(report.undeclared) - _SHOWN} more")
    for one in caught:
        typer.echo(f"planted leak, {one.name}: {'caught: ' + one.field if one.caught else 'NOT CAUGHT'}")
    if caught:
        typer.echo(f"{sum(one.caught for one in caught)} of {len(caught)} planted leaks caught")


def _json(reports: dict[str, SystemReport], caught: list[Caught]) -> dict[str, Any]:
    return {
        "configurations": {
            name: {
                "neighbours": report.neighbours,
                "runs": report.runs,
                "fields": report.fields,
                "undeclared": [
                    {"road": each.road, "neighbour": each.neighbour, "field": each.field} for each in report.undeclared
                ],
            }
            for name, report in reports.items()
        },
        "planted": {one.name: one.caught for one in caught},
    }
