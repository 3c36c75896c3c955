"""``panstream statement``: the privacy statement of a configuration, for readers who are not engineers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.common import ConfigFile, exit_codes
from panstream.errors import InvalidParameter


def statement(
    config: ConfigFile,
    html: Annotated[
        Path, typer.Option("--html", metavar="FILE", help="Where to write the page; - for standard output.")
    ],
) -> None:
    """Write a page in plain words: what is collected, stored and published, what a break-in would reveal, and what is
    not protected. Print it from a browser for a PDF.
    """
    with exit_codes():
        from datetime import UTC, datetime
        from hashlib import sha256

        from panstream.engine.reporting.privacy_statement import statement as privacy_statement
        from panstream.engine.runtime.selector import load_and_check

        loaded = load_and_check(config)
        digest = sha256(config.read_bytes()).hexdigest()
        page = privacy_statement(loaded, source=config.name, digest=digest, today=datetime.now(UTC).date())
        if str(html) == "-":
            typer.echo(page, nl=False)
            return
        if html.exists() and html.samefile(config):
            raise InvalidParameter("--html must name another file than the configuration")
        try:
            html.write_text(page, encoding="utf-8")
        except OSError as error:
            raise InvalidParameter(f"{html.name} cannot be written: {error.strerror}") from None
        typer.echo(f"Wrote {html.name}. Open it in a browser; print it there for a PDF.")
