"""``panstream explain`` and ``panstream check``: claims and errors of a configuration, before a row is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from panstream.cli.common import AsJson, ConfigFile, Format, exit_codes
from panstream.cli.hardening import reexec_hardened

if TYPE_CHECKING:
    from panstream.engine.config.config import Config

_SHOWN = 100  # most rows in a report
_SHARE = """\
If `run` reads files, it also publishes the share of rows that could not be used, once: epsilon {:g} on top of the
totals above ([stream] unusable_epsilon)."""
_PUBLIC = """\
on the network, the times of steps and about how many rows each has; on the shards, the numbers and producers of the
last batches; the names and sizes of files that workers read, and with windows or ticks the newest time of each task
and the windows in it; nothing else depends on rows, and nothing on which were selected"""

Source = Annotated[
    list[str] | None,
    typer.Option(help="Also ask the broker of this Kafka topic (kafka://host:port/topic) about gzip. May be repeated."),
]


def explain(
    config: ConfigFile,
    as_json: AsJson = False,
    shards: Annotated[
        int | None, typer.Option(help="Also say where a cluster of this many shards keeps the states, and why.", min=1)
    ] = None,
    through: Annotated[
        str | None, typer.Option(help="Also say what an engine that sends the rows holds in clear: spark.")
    ] = None,
    source: Source = None,
) -> None:
    """Print for every query the algorithm and why, memory, expected error, exact claim, and totals per unit."""
    with exit_codes():
        from panstream.engine.reporting.explain import explain as explained
        from panstream.engine.reporting.unusable_share import epsilon_for_files
        from panstream.engine.runtime.selector import load_and_check
        from panstream.primitives.memory import secret_memory

        loaded = load_and_check(config)
        explanation = explained(loaded)
        share = epsilon_for_files(loaded)
        memory = str(secret_memory.expected_kind())
        warnings = _source_warnings(source)
        document = {**explanation.to_json(), "memory": memory, "unusable_epsilon": share}
        document["warnings"] += warnings
        if shards is not None:
            from panstream.distributed.sharded.explain import rows_in_flight, shard_locations

            document["cluster"] = shard_locations(explanation.plans, shards)
            document["in_flight"] = rows_in_flight(loaded, explanation.plans, shards)
        exposed: list[tuple[str, str]] = []
        if through is not None:
            from panstream.distributed.engine_exposure import exposure_lines

            exposed = exposure_lines(through)
            document["through"] = {"engine": through, **dict(exposed)}
        typer.echo(json.dumps(document, indent=2) if as_json else explanation.text())
        if share and not as_json:
            typer.echo(f"\n{_SHARE.format(share)}")
        if not as_json:
            for text in warnings:
                typer.echo(f"\nwarning: {text}")
            typer.echo(f"\nOn this machine states are kept in {memory}.")
        if shards is not None and not as_json:
            typer.echo(f"\non a cluster of {shards} shards")
            locations = [(entry["name"], entry["why"]) for entry in document["cluster"]]
            _print_lines([*locations, ("in flight", document["in_flight"]), ("public", _PUBLIC)])
        if exposed and not as_json:
            typer.echo(f"\nrows that come through {through}: what is in clear there")
            _print_lines(exposed)


def _print_lines(named: list[tuple[str, str]]) -> None:
    for name, text in named:
        for number, line in enumerate(text.splitlines()):
            typer.echo(f"  {'' if number else name:<11} {line}")


def check(
    config: ConfigFile,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            help="Also say which rows of this file would be left out, and why; no state is created. May be repeated."
        ),
    ] = None,
    format: Format = None,
    source: Source = None,
) -> None:
    """Check a configuration: every key, every query, and the budget.

    With --rows, exit code 1 means that some rows would be left out. Rows are reported by number, never by content.
    """
    if rows:
        reexec_hardened()
    with exit_codes():
        from panstream.engine.reporting.explain import explain as explained
        from panstream.engine.reporting.person_table import person_table
        from panstream.engine.runtime.selector import load_and_check

        loaded = load_and_check(config)
        explanation = explained(loaded)
        warnings = [*explanation.uncertain(), *explanation.strict_windows(), *_source_warnings(source)]
        names = ", ".join(plan.config.name for plan in explanation.plans)
        count = "1 query" if len(explanation.plans) == 1 else f"{len(explanation.plans)} queries"
        typer.echo(f"{config.name} is valid: stream {loaded.stream.name}, {count} ({names})")
        typer.echo("\n".join(person_table(loaded, explanation.plans)))
        for text in warnings:
            typer.echo(f"warning: {text}", err=True)
        if rows and _report(loaded, rows, format):
            raise typer.Exit(1)


def _source_warnings(addresses: list[str] | None) -> list[str]:
    """Return warnings about gzip in Kafka topics; raise an error for a topic that ``run`` would reject."""
    if not addresses:
        return []
    from panstream.engine.sources.kafka import gzip_warning

    return [warning for address in addresses if (warning := gzip_warning(address)) is not None]


def _report(config: Config, inputs: list[str], format: str | None) -> bool:
    from panstream.engine.runtime.ingest import check_files, find_invalid_rows

    has_problem = False
    for path in inputs:
        for warning in check_files(config, [path], format=format):
            typer.echo(f"warning: {warning}", err=True)
        count = 0
        for count, bad in enumerate(find_invalid_rows(config, [path], format=format), start=1):
            if count <= _SHOWN:
                typer.echo(f"{path}, row {bad.row}: {bad.reason}")
        if count > _SHOWN:
            typer.echo(f"{path}: and {count - _SHOWN:,} more")
        typer.echo(
            f"{path}: " + (f"{count:,} problem{'' if count == 1 else 's'}" if count else "every row can be used")
        )
        has_problem = has_problem or count > 0
    return has_problem
