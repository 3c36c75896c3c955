"""``panstream run``: apply events to the queries of a configuration and print their private answers."""

from __future__ import annotations

import contextlib
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.common import (
    AcceptTime,
    Cluster,
    ConfigFile,
    Format,
    KeyFile,
    NoHardening,
    Workers,
    exit_codes,
    operator_key,
    progress_bar,
)
from panstream.cli.hardening import reexec_hardened
from panstream.errors import ConfigError, import_optional
from panstream.primitives.interrupts import INTERRUPTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from panstream.engine.config.config import Config
    from panstream.engine.runtime.engine import Engine
    from panstream.engine.runtime.ingest import IngestResult

_SHOWN = 10  # most row numbers in a report
_HIDDEN_DETAILS_NOTE = "note: rows that cannot be used are left out; run this in a terminal to see which"


def run(
    config: ConfigFile,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...",
            help="Files, globs, directories, s3://bucket/path (also gs, abfs, hdfs), redis://host/db#stream, "
            "mqtt://host/topic, kafka://host/topic; - or nothing: standard input.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per query.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write all answers to this .csv or .parquet file.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw queries that answer repeatedly, to this .png or .svg.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for rows that are appended to the files.")] = False,
    format: Format = None,
    leave_open: Annotated[
        bool, typer.Option("--leave-open", help="At the end of the input, leave windows open and answer nothing yet.")
    ] = False,
    cluster: Cluster = None,
    workers: Workers = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Serve progress and lag for Prometheus on this port of 127.0.0.1 during the run."
        ),
    ] = None,
    key_file: KeyFile = None,
    accept_time: AcceptTime = False,
    no_hardening: NoHardening = False,
) -> None:
    """Run the queries of CONFIG over the INPUT and print their answers.

    Exit codes: 0 done, 1 stopped, 2 wrong usage or configuration, 3 privacy budget exhausted, 128 + n
    stopped by signal n.
    """
    if not no_hardening:
        reexec_hardened()
    with exit_codes(compiles=True), INTERRUPTS.handling() as guard:
        from panstream.distributed.two_party.session import open_stream
        from panstream.engine.planner.person_division import load_divided_config
        from panstream.engine.planner.public_facts import ingestion_paths
        from panstream.engine.reporting.person_table import dropped_lines
        from panstream.engine.runtime.ingest import check_files, ingest_all, open_configured_source
        from panstream.engine.runtime.selector import Selector
        from panstream.engine.sinks.sink import open_sink

        if plot is not None:
            import_optional("matplotlib", "drawing plots", "plots")
        loaded = load_divided_config(config)
        sources = inputs or ["-"]
        # What can be wrong with questions and input shows here, before the engine charges for them.
        source = open_configured_source(loaded, sources, follow=follow, format=format)
        tell = partial(typer.echo, err=True)
        doubts = [] if follow else check_files(loaded, sources, format=format)
        for text in dropped_lines(loaded):
            tell(f"note: {text}")
        for doubt in doubts if _is_interactive() else []:  # what a log contains must not depend on rows
            tell(f"warning: {doubt}")
        options: dict[str, Any] = {"operator_key": operator_key(key_file), "accept_time": accept_time}
        with contextlib.ExitStack() as stack:
            guard.check()
            if cluster is None and workers is None:
                loaded = _with_share(loaded, sources, follow=follow)
                select = stack.enter_context(Selector(loaded))
                engine = stack.enter_context(open_stream(loaded, **options))
                engine.declare(*ingestion_paths(sources, follow=follow))
                work = partial(ingest_all, engine, source, select)
                describe = partial(str, loaded.stream.name)
            else:
                from panstream.distributed.sharded import session

                if loaded.two_party is not None:
                    raise ConfigError("[stream] machines cannot be combined with a cluster")
                source.close()
                options |= {"address": cluster, "workers": workers, "on_wait": tell, "positions": True}
                engine = stack.enter_context(stack.enter_context(session.open_engines(loaded, **options))())
                work = partial(session.ingest, engine, sources, follow=follow, format=format)
                describe = partial(session.describe_progress, engine)
            stack.enter_context(open_sink(engine, tell))
            if metrics_port is not None:
                from panstream.server.service import serve_metrics

                stack.callback(serve_metrics(engine, metrics_port))
            start_positions = engine.positions()
            start_releases = _release_counts(engine)
            result = _with_progress(work, describe)
            report(result)
            if loaded.directory is None:
                typer.echo("note: without [store] directory, what was spent is forgotten when this ends", err=True)
            if result.interrupted:
                with guard.step():
                    engine.commit()
                raise KeyboardInterrupt
            if not leave_open:
                with guard.step():
                    engine.finish()
            if engine.by_clock or result.rows or engine.positions() != start_positions:
                _print_finished(engine, start_releases)
            _show(engine, as_json, out, plot)


def _with_share(config: Config, inputs: list[str], *, follow: bool) -> Config:
    """Return the configuration with the share of unusable rows, which is published for files only."""
    from panstream.engine.reporting.unusable_share import epsilon_for_files, with_share
    from panstream.engine.sources.object_stores import is_live

    live = follow or any(map(is_live, inputs))
    epsilon = 0.0 if live else epsilon_for_files(config)
    return with_share(config, epsilon) if epsilon else config


def _is_interactive() -> bool:
    """Return whether standard error is a terminal, whose user is taken to be the owner of the rows."""
    return sys.stderr.isatty()


def _with_progress(work: Callable[..., IngestResult], describe: Callable[[], str]) -> IngestResult:
    """Run with a progress bar on a terminal, next to what ``describe`` says."""
    if not _is_interactive():
        return work()
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows, {task.fields[speed]:,.0f} rows/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with progress_bar(*columns) as progress:
        bar = progress.add_task(describe(), total=None, rows=0, speed=0.0)

        def tick(rows: int, share: float | None) -> None:
            elapsed = max(progress.tasks[0].elapsed or 0.0, 1e-3)
            total, done = (None, 0.0) if share is None else (1.0, share)
            speed = rows / elapsed
            progress.update(bar, description=describe(), total=total, completed=done, rows=rows, speed=speed)

        return work(on_batch=tick)


def report(result: IngestResult) -> None:
    """Print the numbers of skipped and late rows on a terminal; a log gets a line that does not depend on rows."""
    if not _is_interactive():
        typer.echo(_HIDDEN_DETAILS_NOTE, err=True)
        return
    for what, numbers, count in (
        ("skipped as bad", result.skipped, result.skipped_count),
        ("late and left out of their window", result.late, result.late_count),
    ):
        if count:
            shown = ", ".join(str(number) for number in numbers[:_SHOWN])
            more = "" if count <= _SHOWN else ", ..."
            typer.echo(f"{count:,} row{'' if count == 1 else 's'} {what}: {shown}{more}", err=True)


def _release_counts(engine: Engine) -> dict[str, int]:
    return {plan.config.name: engine.release_count(plan.config.name) for plan in engine.plans}


def _print_finished(engine: Engine, previous_releases: dict[str, int]) -> None:
    """Print which queries only show earlier answers, though rows were applied."""
    finished = [
        name
        for name, releases in _release_counts(engine).items()
        if engine.running_query(name).finished
        and releases == previous_releases[name]
        and not engine.config.query(name).of_unusable
    ]
    if finished:
        typer.echo(
            f"note: rows were counted, but {', '.join(finished)}: no answers are left, and those shown were published "
            "before. For more, ask under a new name with releases =, or every = and horizon = (more answers for the "
            "same epsilon, each less exact), or with window = (epsilon for every window); a new query counts only the "
            "rows that arrive after it was added.",
            err=True,
        )


def _show(engine: Engine, as_json: bool, out: Path | None, plot: Path | None) -> None:
    from panstream.engine.reporting import export
    from panstream.engine.reporting.unusable_share import published_share

    answers = list(export.answers(engine))
    unusable = published_share(engine)
    if as_json:
        shares = [] if unusable is None else [unusable.to_json()]
        for answer in [*answers, *shares]:
            typer.echo(json.dumps(answer, allow_nan=False))
    else:
        typer.echo(_answer_table(engine, answers), nl=False)
        if unusable is not None:
            typer.echo(str(unusable))
    if out is not None:
        export.write_releases(engine, out)
    if plot is not None:
        export.plot(engine, plot)


def _answer_table(engine: Engine, answers: list[dict[str, Any]]) -> str:
    """Return a table with estimate, 95% interval, epsilon, what is protected, and the intrusions covered."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from panstream.core.estimate import format_interval
    from panstream.engine.reporting import export
    from panstream.primitives.escaping import printable

    table = Table(title=f"stream {engine.config.stream.name}", title_justify="left")
    for column in ("query", "estimate", "95% interval", "epsilon", "protects", "intrusions covered", "period"):
        table.add_column(column, justify="right" if column in ("estimate", "95% interval", "epsilon") else "left")
    for answer in answers:
        claim = answer["claim"]
        low, high = answer["interval"]
        table.add_row(
            escape(printable(answer["name"])),
            _estimate(answer),
            format_interval(low, high),
            f"{answer['epsilon']:.3g}" if isinstance(answer["epsilon"], float | int) else "no privacy",
            f"one {claim['unit']}",
            _covered(claim["intrusions"]),
            period(answer),
        )
    console = Console(width=None if Console().is_terminal else 160)
    with console.capture() as captured:
        console.print(table)
        for answer in answers:
            if "at_most_beyond" in answer:
                console.print(escape(printable(f"{answer['name']}: {answer['description']}")))
            if "help" in answer:
                console.print(
                    escape(printable(f"{answer['name']}: too uncertain to use; what would help: {answer['help']}"))
                )
        for name, note in export.notes(engine):
            console.print(escape(printable(f"{name}: {note}")))
    return captured.get()


def _estimate(answer: dict[str, Any]) -> str:
    """Return the value as text; for an interval without a value, or a bound, the start of its description."""
    from panstream.core.estimate import format_number

    if answer.get("too_uncertain"):
        return "too uncertain"
    if "description" not in answer:
        return format_number(answer["value"])
    first: str = answer["description"].partition(";")[0].removesuffix(" (95%)")
    return "between" if answer["value"] is None else first


def _covered(intrusions: dict[str, Any]) -> str:
    """Return how many intrusions the claim covers, as a short text."""
    many = intrusions["announced"]
    if "machines" in intrusions:
        return "any, one machine at a time"
    return f"{intrusions['unannounced']} unannounced" + (f", {many} announced" if many else "")


def period(answer: dict[str, Any]) -> str:
    """Return the period that an answer is about, as text."""
    since = f"since {_short(answer['since'])}" if "since" in answer else ""
    gaps = [f"without {_short(begin)} to {_short(end)}" for begin, end in answer.get("gaps", ())]
    if "window" in answer:
        start, end = map(_short, answer["window"])
        parts = [f"{start} to {end}", since]
    elif "end" in answer:
        parts = [since, f"up to {_short(answer['end'])}"]
    else:
        parts = [since or "all data"]
    return ", ".join(part for part in (*parts, *gaps) if part)


def _short(stamp: str) -> str:
    return stamp.removesuffix("Z").removesuffix("T00:00:00").replace("T", " ")
