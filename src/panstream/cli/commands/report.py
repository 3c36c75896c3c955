"""``panstream report``: what was published about a day, a week or a month, as Markdown or as an e-mail."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.common import exit_codes
from panstream.errors import InvalidParameter

if TYPE_CHECKING:
    from panstream.engine.sql.result_view import ResultView

_MOST = 10_000  # releases of one query that a server gives at once


def report(
    source: Annotated[
        str, typer.Argument(metavar="CONFIG|URL", help="A configuration, whose store is read, or a server's address.")
    ],
    period: Annotated[str, typer.Option(help="day, week or month: the last 1, 7 or 30 whole days.")] = "week",
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="The last day, such as 2026-03-01; the newest by default.")
    ] = None,
    mail: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Print an e-mail to this address, for sendmail -t.")
    ] = None,
    sender: Annotated[str | None, typer.Option("--from", metavar="ADDRESS", help="Sender of the e-mail.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write it there instead of to standard output.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with a token to read; or set PANSTREAM_TOKEN.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust, PEM.")] = None,
) -> None:
    """Report what was published about the last days and as many days before: for cron, by mail or as a file.

    Page views and other counts are added up, with the interval of their noise together. It reads published answers
    only, and costs no privacy.
    """
    with exit_codes(refused=2):
        from panstream.engine.reporting.period_report import DAYS, make_report

        if period not in DAYS:
            raise InvalidParameter(f"period must be one of {', '.join(DAYS)}, got {period!r}")
        for name, address in (("mail", mail), ("from", sender)):
            if address is not None and ("@" not in address or any(sign in address for sign in "\r\n")):
                raise InvalidParameter(f"{name} must be an e-mail address, got {address!r}")
        try:
            last = None if until is None else date.fromisoformat(until)
        except ValueError:
            raise InvalidParameter(f"until must be a date such as 2026-03-01, got {until!r}") from None
        if source.startswith(("http://", "https://")):
            title, queries, releases, zone = _from_server(source, token_file, ca_file)
        else:
            title, queries, releases, zone = _from_store(Path(source))
        made = make_report(title, queries, releases, period=period, until=last, time_zone=zone)
        content = made.to_markdown().encode() if mail is None else made.to_mail(mail, sender)
        if out is not None:
            out.write_bytes(content)
        else:
            typer.echo(content, nl=False)


def _from_server(url: str, token_file: Path | None, ca_file: Path | None) -> tuple[str, Any, Any, str]:
    from panstream.cli.commands.send import read_token
    from panstream.client.client import Client
    from panstream.engine.reporting.period_report import ReportedQuery

    trusted = None if ca_file is None else str(ca_file)
    with Client(url, stream="report", token=read_token(token_file), ca_file=trusted) as client:
        described = client.queries()
        queries = [
            ReportedQuery(name=query["name"], series=tuple(query["series"]), additive=query["outputs"][0]["additive"])
            for query in described["queries"]
        ]
        releases = [release for query in queries for release in client.releases(query.name, limit=_MOST)]
    web = described["web"]
    stream = described["stream"]
    return (web or {}).get("site", stream["name"]), queries, releases, stream["time_zone"]


def _items(record: dict[str, Any], view: ResultView) -> dict[str, Any]:
    """Return the names of a list that its statement shows."""
    from panstream.engine.planner.open_domain import shown_items

    return {"items": shown_items(record, view)} if "items" in record else {}


def _from_store(path: Path) -> tuple[str, Any, Any, str]:
    from panstream.engine.planner.person_division import load_divided_config
    from panstream.engine.planner.query_plan import plan_all
    from panstream.engine.reporting.period_report import ReportedQuery
    from panstream.engine.reporting.point_queries import open_release_log
    from panstream.engine.sql.result_view import ResultView

    config = load_divided_config(path)
    if config.directory is None:
        raise InvalidParameter(f"{path.name} has no [store] directory, so its answers are not stored")
    queries = [
        ReportedQuery(name=plan.config.name, series=tuple(plan.series), additive=plan.outputs[0].additive)
        for plan in plan_all(config)
    ]
    views = {name: statement.view for statement in config.statements for name in statement.queries}
    with open_release_log(config.directory) as log:
        releases = [
            {
                **release.record,
                **_items(release.record, views.get(release.query, ResultView())),
                "series": release.query,
            }
            for release in log.history()
        ]
    return config.web.site if config.web else config.stream.name, queries, releases, config.stream.time_zone
