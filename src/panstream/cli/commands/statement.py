"""``panstream statement``: the privacy statement of a configuration, for readers who are not engineers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from panstream.cli.common import ConfigFile, exit_codes
from panstream.errors import InvalidParameter

Purpose = Literal["nist", "registry", "cnil", "dpia"]


def statement(
    config: ConfigFile,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Where to write the page; - for standard output.")
    ] = None,
    purpose: Annotated[
        Purpose | None,
        typer.Option(
            "--for",
            help="Fill in a checklist instead: NIST SP 800-226, the registry of deployments, the CNIL's conditions for "
            "audience measurement, or a data protection impact assessment.",
        ),
    ] = None,
    yaml: Annotated[
        Path | None,
        typer.Option("--yaml", metavar="FILE", help="With --for registry: write the record as YAML; - for output."),
    ] = None,
) -> None:
    """Write a page in plain words: what is collected, stored and published, what a break-in would reveal, and what is
    not protected. Print it from a browser for a PDF.

    With --for, write a checklist instead, which says of every field where its answer is from, and lists those that only
    the operator can fill in.
    """
    with exit_codes():
        from datetime import UTC, datetime

        from panstream.engine.reporting.privacy_statement import statement as privacy_statement
        from panstream.engine.runtime.selector import load_and_check

        if html is None and yaml is None:
            raise InvalidParameter("--html FILE is needed, or --yaml FILE with --for registry")
        if yaml is not None and purpose != "registry":
            raise InvalidParameter("--yaml goes with --for registry: other checklists have no such form")
        loaded = load_and_check(config)
        digest = loaded.digest
        now = datetime.now(UTC)
        if purpose is None:
            assert html is not None
            _write(html, privacy_statement(loaded, source=config.name, digest=digest, now=now), config)
            return
        from panstream.engine.reporting.checklists.purposes import checklist

        filled = checklist(purpose, loaded, digest=digest, now=now)
        if html is not None:
            _write(html, filled.to_html(loaded, source=config.name, digest=digest, now=now), config)
        if yaml is not None:
            _write(yaml, filled.to_yaml(), config)
        if filled.open_fields:
            count = len(filled.open_fields)
            fields = "1 field has" if count == 1 else f"{count} fields have"
            typer.echo(f"{fields} no answer yet: only the operator can fill them in.", err=True)


def _write(file: Path, text: str, config: Path) -> None:
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    if file.exists() and file.samefile(config):
        raise InvalidParameter("the output must be another file than the configuration")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidParameter(f"{file.name} cannot be written: {error.strerror}") from None
    hint = " Open it in a browser; print it there for a PDF." if file.suffix != ".yaml" else ""
    typer.echo(f"Wrote {file.name}.{hint}")
