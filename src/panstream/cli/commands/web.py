"""``panstream web``: private analytics of a website: write a configuration for its size, explain it, and serve it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from panstream.cli.commands.run import run
from panstream.cli.commands.serve import serve
from panstream.cli.common import NoHardening, exit_codes
from panstream.cli.hardening import reexec_hardened
from panstream.errors import InvalidParameter

_LOG = "log"


def web(
    site: Annotated[str | None, typer.Option(help="The site's host name, such as example.org.")] = None,
    visitors_per_day: Annotated[
        int, typer.Option(min=1, help="About how many visitors a day has; it sizes the answers.")
    ] = 1000,
    person: Annotated[
        float | None,
        typer.Option(
            help="The most that one visitor loses in any 30 days: 4 to the questions about visitors, or with --counter "
            "2 to all."
        ),
    ] = None,
    time_zone: Annotated[
        str, typer.Option(help="The site's time zone, such as Europe/Berlin: days, weeks and months are those there.")
    ] = "UTC",
    counter: Annotated[
        bool,
        typer.Option(
            "--counter",
            help="Browsers number what they send, in a count that they store: all questions are "
            "then bounded for a visitor.",
        ),
    ] = False,
    retention: Annotated[
        bool,
        typer.Option(
            "--retention",
            help="Ask who came back 1 to 4 weeks later. It costs a visitor more than all else: the new number for her "
            "30 days is printed, and a --person that it alone uses up is refused.",
        ),
    ] = False,
    page_view: Annotated[
        float, typer.Option(help="The most that one page view loses to the other questions together.")
    ] = 3.0,
    pages: Annotated[
        Path | None,
        typer.Option(help="A public list of pages, instead of names found in the data: sitemap.xml, or a text file."),
    ] = None,
    section: Annotated[
        list[str] | None, typer.Option(help="A section to count, such as /blog; otherwise found by name. Repeatable.")
    ] = None,
    campaign: Annotated[
        list[str] | None, typer.Option(help="A campaign to count; otherwise found by name. Repeatable.")
    ] = None,
    utm: Annotated[
        list[str] | None,
        typer.Option(help="Also list visits by utm_source, medium, term or content: give that word. Repeatable."),
    ] = None,
    country: Annotated[
        list[str] | None,
        typer.Option(help="A country to count, such as DE; panstream has a list of its own. Repeatable."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="An origin whose pages may send beacons; the site's own by default. Repeatable."),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="A proxy's address or network, whose X-Forwarded-For is believed. Repeatable."),
    ] = None,
    logs: Annotated[
        Path | None,
        typer.Option(
            help="Count from this access log (nginx, Apache, Caddy; - for standard input) instead of beacons."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --logs: serve, and read lines as they are appended.")
    ] = False,
    two_machines: Annotated[
        Path | None,
        typer.Option(help="A configuration whose two machines ([stream] machines, [two_party]) hold the cells."),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="Address and port to listen on; other than loopback needs --tokens.")
    ] = "127.0.0.1:8080",
    tokens: Annotated[Path | None, typer.Option(help="Token file, written by: panstream token.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the configuration there and end; - for standard output.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE",
            help="Check a page instead: its tag, its origin, and a test beacon that is not counted.",
        ),
    ] = None,
    from_goatcounter: Annotated[
        Path | None,
        typer.Option(help="Print this CSV export of GoatCounter as an access log, and end; for --logs -."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    no_hardening: NoHardening = False,
) -> None:
    """Count the visitors of a site: choose questions for its size, print their errors and promises, and start.

    The configuration is written to SITE.toml, where later starts find it; with --out it is only written.
    """
    if check is not None:
        _check(check, site)
        return
    if from_goatcounter is not None:
        with exit_codes():
            from panstream.engine.sources.goatcounter import goatcounter_log

            for line in goatcounter_log(from_goatcounter):
                typer.echo(line)
        return
    if out is None and not no_hardening:
        reexec_hardened()
    with exit_codes():
        from panstream.engine.presets.page_list import read_pages
        from panstream.engine.presets.website import propose_queries
        from panstream.engine.presets.website_spec import WebsiteSpec
        from panstream.engine.presets.website_text import to_text, to_toml

        if site is None:
            raise InvalidParameter("--site must be given: the site's host name, such as example.org")
        declared = WebsiteSpec(
            site=site,
            visitors=visitors_per_day,
            person=person,
            counter=counter,
            retention=retention,
            time_zone=time_zone,
            page_view=page_view,
            source="beacon" if logs is None else "log",
            sections=tuple(section or ()),
            campaigns=tuple(campaign or ()),
            countries=tuple(country or ()),
            utm=tuple(dict.fromkeys(utm or ())),
            pages=() if pages is None else read_pages(pages, site),
            origins=tuple(origin or ()),
            trusted_proxies=tuple(trusted_proxy or ()),
            machines=None if two_machines is None else _machines(two_machines),
        )
        if follow and logs is None:
            raise InvalidParameter("--follow waits for lines of an access log: give --logs too")
        host, port = _address(listen)
        file = out or Path(f"{declared.site}.toml")
        exists = str(file) != "-" and file.exists() and file.stat().st_size > 0
        if out is not None and exists and not force:
            raise InvalidParameter(f"{file.name} already exists; use --force to overwrite it")
        if exists and not force:
            from panstream.engine.config.config import load_config

            website = load_config(file).web
            if website is None or website.site != declared.site or website.source != declared.source:
                raise InvalidParameter(
                    f"{file.name} is not a configuration for {declared.site} from {declared.source}s"
                )
            if retention and not any(query.retention_window for query in load_config(file).queries):
                raise InvalidParameter(f"{file.name} already exists, and does not ask who came back: use --force")
            typer.echo(f"using {file}, which already exists; panstream explain {file} prints what it promises")
        else:
            proposal = propose_queries(declared)
            typer.echo(to_text(proposal), err=str(file) == "-")
            if str(file) == "-":
                typer.echo(to_toml(proposal), nl=False)
                return
            file.write_text(to_toml(proposal))
            typer.echo(f"\nwrote {file}")
        if out is not None:
            typer.echo(f"Start it with: {_command(file, logs, follow)}")
            return
    if logs is not None and not follow:
        run(file, [str(logs)], format=_LOG, no_hardening=no_hardening)
        return
    followed = None if logs is None else [str(logs)]
    serve(file, host=host, port=port, tokens=tokens, follow=followed, format=_LOG, no_hardening=no_hardening)


def _check(page: str, site: str | None) -> None:
    """Print what a check of a page finds; exit with 1 if something is wrong."""
    with exit_codes():
        from panstream.engine.config.website import normalize_hostname
        from panstream.primitives.escaping import printable
        from panstream.server.website.page_check import check_html, check_page

        if page.startswith(("http://", "https://")):
            findings = check_page(page)
        else:
            path = Path(page)
            if not path.is_file():
                raise InvalidParameter(
                    f"--check needs an address that begins with https://, or a file: {path.name!r} is neither"
                )
            if site is None:
                raise InvalidParameter("--check of a file needs --site, the host name that the page will have")
            findings = check_html(path.read_text("utf-8", "replace"), f"https://{normalize_hostname(site)}/")
        for finding in findings:
            typer.echo(f"{finding.state:5}  {printable(finding.text)}")
    if any(finding.state == "fault" for finding in findings):
        raise typer.Exit(1)


def _command(file: Path, logs: Path | None, follow: bool) -> str:
    """Return the command that starts the written configuration."""
    from panstream.engine.sources.input_files import format_from_name

    if logs is None:
        return f"panstream serve {file}"
    source = f"{logs}" if format_from_name(logs) == _LOG else f"{logs} --format {_LOG}"
    return f"panstream serve {file} --follow {source}" if follow else f"panstream run {file} {source}"


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise InvalidParameter(f"listen must be an address and a port such as 127.0.0.1:8080, got {listen!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _machines(path: Path) -> dict[str, Any]:
    """Return the two machines of a configuration, with file paths relative to the current directory."""
    from panstream.primitives.toml_config import load_config_file

    document = load_config_file(path)
    addresses = document.get("stream", {}).get("machines")
    section = document.get("two_party")
    if not isinstance(addresses, list) or not isinstance(section, dict):
        raise InvalidParameter(f"{path.name} has no [stream] machines, or no [two_party]")
    files = ("certificate", "key", "authority")
    return {
        **section,
        **{key: str(path.parent / section[key]) for key in files if key in section},
        "machines": addresses,
    }
