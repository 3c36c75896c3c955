"""``panstream audit``: test every claim, and that every positive control is caught.

``audit state`` computes what a state file reveals about one id, ``audit memory`` scans the memory of a server that it
starts, and ``audit system`` runs the product on neighbouring inputs and compares everything that is observable.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.common import AsJson, exit_codes, progress_bar
from panstream.errors import InvalidParameter, import_optional

if TYPE_CHECKING:
    from panstream.audit.claims.case import Case, Finding
    from panstream.audit.product.audit import SystemReport
    from panstream.audit.product.fork_server_client import ForkServer

_CONTROLS = "positive controls: make audit-controls in a source checkout"
_SHOWN = 20  # most differences printed per configuration
_FILE_WIDTH = 180  # characters, if the table is not printed to a terminal


def audit(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Cases to audit (all by default), or: state FILE --member ID, or: memory [machines], or: system "
            "[CONFIG]...",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Run every trial, many times over; quick runs a few.")
    ] = False,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with plots to this file.")] = None,
    member: Annotated[str | None, typer.Option("--member", help="With state: the id to ask about.")] = None,
    text: Annotated[
        bool, typer.Option("--text", help="With state: the id is text even if it looks like a number.")
    ] = False,
    prior: Annotated[float, typer.Option("--prior", help="With state: the probability before reading it.")] = 0.5,
    yes: Annotated[bool, typer.Option("--yes", help="With state: do not ask for confirmation.")] = False,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="With system: a CSV file to take rows from, instead of made-up ones.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Number of processes; 0 for one per core.")] = 0,
) -> None:
    """Audit claims: exact loss and lower bound of every algorithm and every known mistake, against what is claimed.

    Exits with 1 if a claim fails or a known mistake is not caught.
    """
    with exit_codes():
        if names and names[0] == "state":
            _state(names[1:], member, text, prior, yes)
            return
        if names and names[0] == "memory":
            _memory(names[1:], full=full, as_json=as_json)
            return
        if names and names[0] == "system":
            _system(names[1:], rows=rows, full=full, as_json=as_json)
            return
        if member is not None:
            raise InvalidParameter("--member belongs to: panstream audit state FILE --member ID")
        import_optional("scipy", "the audit of claims", "audit")
        findings = _run(names or [], full, jobs or os.cpu_count() or 1, quiet=as_json)
        _show(findings, as_json, html)
        if not all(one.is_expected for one in findings):
            raise typer.Exit(1)


def _run(names: list[str], full: bool, jobs: int, quiet: bool) -> list[Finding]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from panstream.audit.claims.runner import audit as run
    from panstream.audit.claims.runner import select

    chosen: list[Case] = select(names)
    columns = (
        TextColumn("auditing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with progress_bar(*columns, hidden=quiet) as progress:
        task = progress.add_task("", total=len(chosen))

        def done(finding: Finding) -> None:
            progress.update(task, advance=1, description=finding.name)

        return run(chosen, full=full, jobs=min(jobs, max(1, len(chosen) // 4)), on_case_done=done)


def _show(findings: list[Finding], as_json: bool, page: Path | None) -> None:
    from panstream.audit.claims.report import to_html, to_json

    if page is not None:
        page.write_text(to_html(findings), encoding="utf-8")
    if as_json:
        typer.echo(to_json(findings))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from panstream.audit.claims.report import format_loss

    table = Table(box=None, pad_edge=False)
    table.add_column("case", no_wrap=True)
    for name, width in (("claimed", 7), ("exact", 6), ("bound", 6)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("verdict", no_wrap=True, min_width=7)
    table.add_column("witness", overflow="ellipsis", no_wrap=True)
    for one in findings:
        colour = "" if one.is_expected else "bold red"
        numbers = (format_loss(one.claimed), format_loss(one.exact), format_loss(one.lower_bound))
        table.add_row(one.name, *numbers, one.verdict, Text(one.witness), style=colour)
    console = Console()
    (console if console.is_terminal else Console(width=_FILE_WIDTH)).print(table)
    wrong = [one for one in findings if not one.is_expected]
    held = sum(one.verdict == "holds" for one in findings)
    caught = sum(one.verdict == "caught" for one in findings)
    typer.echo(
        f"{held} claims hold; {caught} known mistakes are detected; "
        + (f"{len(wrong)} unexpected, in red" if wrong else "nothing unexpected")
    )


def _state(rest: list[str], member: str | None, text: bool, prior: float, yes: bool) -> None:
    from panstream.audit.claims.membership_odds import member_odds

    if len(rest) != 1 or member is None:
        raise InvalidParameter("usage: panstream audit state FILE --member ID")
    path = Path(rest[0])
    if not path.is_file():
        raise InvalidParameter(f"there is no file {path.name!r}")
    if not yes:
        typer.echo("Reading a state is an intrusion. The claim covers one, and this is it.", err=True)
        typer.confirm("Read it?", abort=True, err=True)
    who = member if text or not member.lstrip("-").isdecimal() else int(member)
    odds = member_odds(path.read_bytes(), who, prior=prior)
    typer.echo(f"odds multiplied by {odds.factor:.4g} (at most {odds.limit:.4g} by the claim): {odds.reason}")
    typer.echo(
        f"probability that the id was in the stream: {prior:.4g} before reading the state, {odds.posterior:.4g} after"
    )


def _memory(rest: list[str], *, full: bool, as_json: bool) -> None:
    """Run a memory audit and print its table; exit with 1 if an id was found or the scan missed its controls."""
    from panstream.audit.memory.beacons import drill_beacons
    from panstream.audit.memory.drill import drill
    from panstream.audit.memory.two_party import drill_machines

    hardened = "unhardened" not in rest
    rest = [argument for argument in rest if argument != "unhardened"]
    if rest not in ([], ["machines"], ["beacons"]):
        raise InvalidParameter("usage: panstream audit memory [machines | beacons] [unhardened]")
    if rest == ["beacons"]:
        reports = [drill_beacons(visitors=50_000 if full else 10_000, hardened=hardened)]
    elif rest:
        reports = [drill_machines(ids=20_000 if full else 2_000, hardened=hardened)]
    else:
        ids = 100_000 if full else 20_000
        reports = [drill(ids=ids, hardened=hardened, secret=secret) for secret in ((False, True) if full else (False,))]
    for report in reports:
        if as_json:
            table = [{"what": what, "sent": sent, "found": hits} for what, sent, hits in report.rows]
            typer.echo(json.dumps({"ok": report.ok, "valid": report.valid, "rows": table}))
        else:
            typer.echo(str(report))
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _system(arguments: list[str], *, rows: Path | None, full: bool, as_json: bool) -> None:
    """Audit configurations, the bundled ones by default; exit with 1 if anything undeclared differs."""
    import_optional("distributed", "the audit of a system", "dask")
    from panstream.audit.product.audit import INGEST_PATHS, QUICK_INGEST_PATHS, bundled
    from panstream.audit.product.fork_server_client import ForkServer

    paths = [Path(argument) for argument in arguments] or (bundled() if full else bundled()[:1])
    for path in paths:
        if not path.is_file():
            raise InvalidParameter(f"there is no configuration file {path.name!r}")
    if rows is not None and len(paths) != 1:
        raise InvalidParameter("--rows goes with exactly one configuration: panstream audit system CONFIG --rows FILE")
    ingest_paths = INGEST_PATHS if full or arguments else QUICK_INGEST_PATHS
    with ForkServer.started() as fork_server:
        reports: dict[str, SystemReport] = {}
        for path in paths:
            reports[path.name] = _audit_system(path, fork_server, rows, ingest_paths, as_json)
            if not as_json:
                _show_report(path.name, reports[path.name])
    typer.echo(json.dumps(_system_json(reports)) if as_json else _CONTROLS)
    if not all(report.ok for report in reports.values()):
        raise typer.Exit(1)


def _audit_system(
    path: Path, fork_server: ForkServer, rows: Path | None, ingest_paths: Any, quiet: bool
) -> SystemReport:
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    from panstream.audit.product.audit import audit_system

    columns = (SpinnerColumn(), TextColumn(path.name), TimeElapsedColumn(), TextColumn("{task.description}"))
    with progress_bar(*columns, hidden=quiet) as progress:
        task = progress.add_task("")
        return audit_system(
            path,
            fork_server,
            rows=rows,
            ingest_paths=ingest_paths,
            done=lambda ingest_path, neighbour: progress.update(task, description=f"{ingest_path}: {neighbour.name}"),
        )


def _show_report(name: str, report: SystemReport) -> None:
    declared = sorted({difference.fact for difference in report.differences if difference.fact is not None})
    typer.echo(
        f"{name}: {report.neighbours} neighbours, {report.runs} runs, {len(report.names):,} fields compared "
        f"{report.fields:,} times, {len(report.undeclared)} undeclared differences"
        + (f" (declared: {'; '.join(declared)})" if declared else "")
    )
    for difference in report.undeclared[:_SHOWN]:
        typer.echo(
            f"  {difference.ingest_path}, {difference.neighbour}: {difference.field}: {difference.before[:60]!r} / "
            f"{difference.after[:60]!r}"
        )
    if len(report.undeclared) > _SHOWN:
        typer.echo(f"  and {len(report.undeclared) - _SHOWN} more")


def _system_json(reports: dict[str, SystemReport]) -> dict[str, Any]:
    return {
        "configurations": {
            name: {
                "neighbours": report.neighbours,
                "runs": report.runs,
                "fields": report.fields,
                "undeclared": [
                    {name: getattr(difference, name) for name in ("ingest_path", "neighbour", "field")}
                    for difference in report.undeclared
                ],
            }
            for name, report in reports.items()
        },
    }
