"""``panstream audit --evidence``, ``audit key`` and ``audit verify``: signed results of all audits."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from panstream.cli.commands._audit_progress import run_claims, run_parts
from panstream.errors import ConfigError, InvalidParameter, import_optional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from panstream.audit.product.parallel import AuditPart
    from panstream.engine.reporting.evidence import Evidence

_KEY_COMMAND = "panstream audit key"
_IDS = 20_000  # random ids that the memory audit sends
_IDS_FULL = 100_000


def create_key(arguments: list[str]) -> None:
    """Write a signing key, and its public half beside it."""
    from panstream.primitives.signing import public_key_pem, write_signing_key

    if len(arguments) != 1:
        raise InvalidParameter("usage: panstream audit key FILE")
    path = Path(arguments[0])
    public = path.with_name(path.name + ".pub")
    for file in (path, public):
        if file.exists():
            raise ConfigError(f"{file.name} already exists; keys are never overwritten")
    try:
        public.write_bytes(public_key_pem(write_signing_key(path)))
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be written: {error.strerror}") from None
    typer.echo(f"Wrote {path.name} (keep it secret) and {public.name} (give it to whoever verifies evidence).")


def collect_evidence(
    arguments: list[str], directory: Path, key_file: Path | None, *, full: bool, jobs: int, quiet: bool
) -> None:
    """Run all audits for a configuration, write the signed document; exit with 1 if one of them failed."""
    import_optional("scipy", "the audit of claims", "audit")
    import_optional("distributed", "the audit of a system", "dask")
    from panstream.audit.evidence import (
        claims_result,
        memory_result,
        no_controls,
        run_controls,
        source_checkout,
        write_evidence,
    )
    from panstream.audit.memory.drill import drill
    from panstream.audit.product.audit import INGEST_PATHS, QUICK_INGEST_PATHS, AuditInputs
    from panstream.audit.product.parallel import parts_of
    from panstream.primitives.signing import read_signing_key

    if len(arguments) != 1 or key_file is None:
        raise InvalidParameter("usage: panstream audit CONFIG --evidence DIR --key FILE")
    config = Path(arguments[0])
    key = read_signing_key(key_file, made_by=_KEY_COMMAND)
    inputs = AuditInputs.read(config)
    digest = hashlib.sha256(config.read_bytes()).hexdigest()
    parts = parts_of([inputs], INGEST_PATHS if full else QUICK_INGEST_PATHS)
    started = datetime.now(UTC)
    _say(quiet, "1 of 4: claims")
    findings = run_claims([], full, jobs, quiet=quiet)
    _say(quiet, f"2 of 4: the system, with {config.name}")
    run_parts(parts, jobs, quiet=quiet)
    _say(quiet, "3 of 4: memory and files of a server")
    memory = memory_result(drill(ids=_IDS_FULL if full else _IDS))
    checkout = source_checkout()
    _say(quiet, "4 of 4: injected leaks" if checkout else "4 of 4: no leaks are injected, since this is no checkout")
    controls = no_controls() if checkout is None else run_controls(checkout)
    audits = {"claims": claims_result(findings), "system": system_result(parts), "memory": memory}
    document = write_evidence(
        directory,
        key,
        configuration=config,
        configuration_digest=digest,
        started=started,
        audits=audits,
        controls=controls,
    )
    failed = [name for name, result in audits.items() if not result["passed"]]
    if controls["ran"] and not controls["passed"]:
        failed.append("positive controls")
    if quiet:
        typer.echo(json.dumps({"document": str(document), "failed": failed}))
    else:
        typer.echo(
            f"{'Failed: ' + ', '.join(failed) if failed else 'All audits passed'}. Wrote {document} and its .sig."
        )
    if failed:
        raise typer.Exit(1)


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        typer.echo(text)


def system_result(parts: Sequence[AuditPart]) -> dict[str, Any]:
    """Return the results of the audit of the system, one entry per ingest path."""
    return {
        "passed": bool(parts) and all(part.ok for part in parts),
        "parts": [
            {
                "ingest_path": str(part.ingest_path),
                "passed": part.ok,
                "error": part.error,
                "neighbours": part.report.neighbours,
                "runs": part.report.runs,
                "fields": part.report.fields,
                "declared": sorted({one.fact for one in part.report.differences if one.fact is not None}),
                "undeclared": [f"{one.neighbour}: {one.field}" for one in part.report.undeclared],
            }
            for part in parts
        ],
    }


def verify_evidence(arguments: list[str], key_file: Path | None, wheel: Path | None, *, as_json: bool) -> None:
    """Verify a document with the public key and print what it says; exit with 1 if an audit in it failed."""
    from panstream.engine.reporting.evidence import read_evidence
    from panstream.primitives.signing import read_public_key

    if len(arguments) != 1 or key_file is None:
        raise InvalidParameter("usage: panstream audit verify EVIDENCE.json --key PUBLIC")
    evidence = read_evidence(Path(arguments[0]), read_public_key(key_file))
    if wheel is not None:
        from panstream.audit.evidence import wheel_digest

        if wheel_digest(wheel) != evidence.document["panstream"]["code_sha256"]:
            raise ConfigError(f"{evidence.name} is about other code than that of {wheel.name}")
    if as_json:
        typer.echo(json.dumps(evidence.document, ensure_ascii=False))
    else:
        typer.echo("\n".join(_report(evidence, wheel)))
    if not evidence.passed:
        raise typer.Exit(1)


def _report(evidence: Evidence, wheel: Path | None) -> list[str]:
    document = evidence.document
    claims = document["audits"]["claims"]
    memory = document["audits"]["memory"]
    parts = document["audits"]["system"]["parts"]
    host = document["host"]
    controls = document["positive_controls"]
    code = f"code SHA-256 {document['panstream']['code_sha256']}"
    undeclared = sum(len(part["undeclared"]) for part in parts)
    hits = sum(row["found"] for row in memory["rows"] if row["kind"] not in memory["expected_hits"])
    lines = [
        f"{evidence.name}: the signature is valid.",
        f"panstream       {evidence.version}, {document['panstream']['installed_as']}, {code}",
        f"configuration   {document['configuration']['file']}, SHA-256 {document['configuration']['sha256']}",
        f"machine         {host['name']}: {host['system']} {host['kernel']}, "
        f"{host['processor'] or host['architecture']}, Python {host['python']}",
        f"run             {document['started']} to {document['finished']}",
        f"claims          {_verdict('claims', document)}: {claims['holds']} hold, {claims['fails']} fail; of known "
        f"mistakes {claims['caught']} are detected, {claims['missed']} missed",
        f"system          {_verdict('system', document)}: {sum(part['fields'] for part in parts):,} comparisons on "
        f"{len(parts)} ingest paths, {undeclared} undeclared differences",
        f"memory          {_verdict('memory', document)}: {sum(row['sent'] for row in memory['rows']):,} values "
        f"searched for, {hits} found",
    ]
    if controls["ran"]:
        lines.append(f"injected leaks  {'passed' if controls['passed'] else 'FAILED'}: {controls['caught']} caught")
    else:
        lines.append(f"injected leaks  not run: {controls['reason']}")
    return [*lines, f"code            the same as in {wheel.name}"] if wheel is not None else lines


def _verdict(name: str, document: Any) -> str:
    return "passed" if document["audits"][name]["passed"] else "FAILED"
