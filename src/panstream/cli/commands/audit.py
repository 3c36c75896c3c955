"""``panstream audit``: test every claim, and that every positive control is caught.

``audit state`` computes what a state file reveals about one id, ``audit memory`` scans the memory of a server that it
starts, and ``audit system`` runs the product on neighbouring inputs and compares everything that is observable. With
``--evidence`` all three run for one configuration, and the results are signed; ``audit key`` makes the key, and
``audit verify`` reads such a document.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.commands._audit_evidence import collect_evidence, create_key, verify_evidence
from panstream.cli.commands._audit_progress import format_numbers, run_claims, run_parts
from panstream.cli.common import AsJson, exit_codes
from panstream.errors import InvalidParameter, import_optional

if TYPE_CHECKING:
    from panstream.audit.claims.case import Finding
    from panstream.audit.product.parallel import AuditPart

_CONTROLS = "positive controls: make audit-controls in a source checkout"
_FILE_WIDTH = 180  # characters, if the table is not printed to a terminal


def audit(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Cases to audit (all by default), or: state FILE --member ID, or: memory [machines], or: system "
            "[CONFIG]..., or: key FILE, or: verify EVIDENCE --key PUBLIC, or CONFIG with --evidence.",
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
    paths: Annotated[
        list[str] | None,
        typer.Option("--path", help='With system: only this ingest path, such as "run csv"; may be repeated.'),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Number of processes; 0 for one per core.")] = 0,
    evidence: Annotated[
        Path | None,
        typer.Option("--evidence", metavar="DIR", help="Audit CONFIG in every way, and write the signed results here."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="With --evidence: the key that signs. With verify: the public key."),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", metavar="FILE", help="With verify: check that the code of this wheel was audited."),
    ] = None,
) -> None:
    """Audit claims: exact loss and lower bound of every algorithm and every known mistake, against what is claimed.

    Exits with 1 if a claim fails or a known mistake is not caught.
    """
    with exit_codes(interrupted="error: interrupted"):
        if evidence is not None:
            cores = jobs or os.cpu_count() or 1
            collect_evidence(names or [], evidence, key, full=full, jobs=cores, quiet=as_json)
            return
        if names and names[0] == "key":
            create_key(names[1:])
            return
        if names and names[0] == "verify":
            verify_evidence(names[1:], key, wheel, as_json=as_json)
            return
        if names and names[0] == "state":
            _state(names[1:], member, text, prior, yes)
            return
        if names and names[0] == "memory":
            _memory(names[1:], full=full, as_json=as_json)
            return
        if names and names[0] == "system":
            cores = jobs or os.cpu_count() or 1
            _system(names[1:], rows=rows, paths=paths or [], full=full, as_json=as_json, jobs=cores)
            return
        if member is not None:
            raise InvalidParameter("--member belongs to: panstream audit state FILE --member ID")
        import_optional("scipy", "the audit of claims", "audit")
        findings = run_claims(names or [], full, jobs or os.cpu_count() or 1, quiet=as_json)
        _show(findings, as_json, html)
        if not all(one.is_expected for one in findings):
            raise typer.Exit(1)


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


def _system(arguments: list[str], *, rows: Path | None, paths: list[str], full: bool, as_json: bool, jobs: int) -> None:
    """Audit configurations, the bundled ones by default; exit with 1 if anything undeclared differs."""
    import_optional("distributed", "the audit of a system", "dask")
    from panstream.audit.product.audit import INGEST_PATHS, QUICK_INGEST_PATHS, AuditInputs, bundled
    from panstream.audit.product.parallel import parts_of

    files = [_configuration(argument) for argument in arguments] or (bundled() if full else bundled()[:1])
    if rows is not None and len(files) != 1:
        raise InvalidParameter("--rows goes with exactly one configuration: panstream audit system CONFIG --rows FILE")
    known = {str(ingest_path): ingest_path for ingest_path in INGEST_PATHS}
    for path in paths:
        if path not in known:
            raise InvalidParameter(f"--path {path!r} is no ingest path; there are: {', '.join(known)}")
    everything = INGEST_PATHS if full or arguments else QUICK_INGEST_PATHS
    parts = parts_of(
        [AuditInputs.read(file, rows=rows) for file in files], [known[path] for path in paths] or everything
    )
    if not parts:
        raise InvalidParameter(f"--path: {', '.join(paths)} does not fit the columns of {files[0].name}")
    try:
        run_parts(parts, jobs, quiet=as_json)
    finally:  # also after an interruption
        typer.echo(json.dumps(_system_json(parts)) if as_json else _system_table(parts))
    if not all(part.ok for part in parts):
        raise typer.Exit(1)


def _configuration(argument: str) -> Path:
    from panstream.audit.product.audit import bundled

    names = {path.stem: path for path in bundled()}
    path = Path(argument)
    if not path.is_file() and argument not in names:
        raise InvalidParameter(f"there is no configuration file {path.name!r}; bundled ones are {', '.join(names)}")
    return path if path.is_file() else names[argument]


def _system_table(parts: Sequence[AuditPart]) -> str:
    """Return the sums of each ingest path, what failed, and what was not compared to its end."""
    from panstream.audit.product.audit import SystemReport

    totals: dict[str, SystemReport] = {}
    seconds: Counter[str] = Counter()
    for part in sorted(parts, key=lambda part: str(part.ingest_path)):
        totals.setdefault(str(part.ingest_path), SystemReport()).add(part.report)
        seconds[str(part.ingest_path)] += round(part.seconds)
    everything = SystemReport()
    for report in totals.values():
        everything.add(report)
    lines = [f"{name}: {format_numbers(report)}, {seconds[name]} s" for name, report in totals.items()]
    lines += [f"all: {format_numbers(everything)}"] if len(totals) > 1 else []
    lines += [f"not compared: {part}: {part.error}" for part in parts if part.error]
    unfinished = sum(not part.is_done for part in parts)
    lines += [f"not finished: {unfinished} of {len(parts)} parts"] if unfinished else []
    return "\n".join([*lines, _CONTROLS])


def _system_json(parts: Sequence[AuditPart]) -> dict[str, Any]:
    return {
        "parts": [
            {
                "configuration": part.inputs.name,
                "ingest_path": str(part.ingest_path),
                "finished": part.is_done,
                "error": part.error,
                "neighbours": part.report.neighbours,
                "runs": part.report.runs,
                "names": len(part.report.names),
                "fields": part.report.fields,
                "seconds": round(part.seconds, 1),
                "declared": sorted(
                    {difference.fact for difference in part.report.differences if difference.fact is not None}
                ),
                "undeclared": [
                    {key: getattr(difference, key) for key in ("neighbour", "field", "before", "after")}
                    for difference in part.report.undeclared
                ],
            }
            for part in parts
        ],
    }
