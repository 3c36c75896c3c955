"""The audit: run every neighbour through every ingest path, and compare every field with the original's."""

from __future__ import annotations

import re
import signal
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from panstream.audit.product._driver import Fields, IngestPath, ProductDriver
from panstream.audit.product._neighbouring_inputs import (
    Neighbour,
    generate_rows,
    is_logged,
    neighbours,
    read_rows,
    windows_with_rows,
)
from panstream.audit.product._person_neighbours import (
    beyond_a_files_bound,
    beyond_bounds,
    beyond_clients_bounds,
    person_neighbours,
)
from panstream.audit.product._sending_client import SENDERS
from panstream.audit.product.fork_server_client import ForkServer
from panstream.engine.config.config import Config, load_config
from panstream.errors import PanstreamError
from panstream.primitives.sender_counts import COLUMN

INGEST_PATHS = (
    IngestPath(command="run", format="csv"),
    IngestPath(command="run", format="json"),
    IngestPath(command="run", format="parquet"),
    IngestPath(command="serve", format="csv"),
    IngestPath(command="serve", format="json"),
    IngestPath(command="serve", format="arrow"),
    IngestPath(command="run", format="csv", workers=2),
    IngestPath(command="serve", format="csv", workers=2),
    IngestPath(command="query", format="csv"),
    IngestPath(command="query", format="json"),
    IngestPath(command="run", format="log"),
    IngestPath(command="serve", format="beacon"),
    IngestPath(command="follow", format="csv"),
    IngestPath(command="follow", format="log"),
    *(IngestPath(command="serve", format=sender) for sender in SENDERS),
)

QUICK_INGEST_PATHS = (INGEST_PATHS[0], INGEST_PATHS[2], INGEST_PATHS[8])

_STEP = 5  # rows per step, where files are split into steps

# Fields that may differ, and the public fact that explains it.
_POSITION = re.compile(r"^store/.*meta: (seen|positions)\b.*rows\.")
_READ_SO_FAR = "how far a file was read"
_GUESSED = "the input's format and columns, as guessed from its first rows"
_ANSWERED = re.compile(r"^(query \d+: )?stdout: ")
_WINDOWS = "which windows have a row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field whose value differs between the original and a neighbour."""

    ingest_path: str
    neighbour: str
    field: str
    before: str
    after: str
    fact: str | None = None  # the declared public fact that explains it


@dataclass(slots=True, kw_only=True)
class SystemReport:
    """The numbers of neighbours, runs and compared fields, and the differences."""

    neighbours: int = 0
    runs: int = 0
    fields: int = 0
    names: set[str] = field(default_factory=set)
    differences: list[Difference] = field(default_factory=list)

    @property
    def undeclared(self) -> list[Difference]:
        """Return the differences that no declared fact explains."""
        return [difference for difference in self.differences if difference.fact is None]

    @property
    def ok(self) -> bool:
        """Return whether fields were compared and every difference is explained by a declared fact."""
        return not self.undeclared and self.fields > 0

    def add(self, other: SystemReport) -> None:
        """Add the numbers and differences of another report; ``neighbours`` counts comparisons then."""
        self.neighbours += other.neighbours
        self.runs += other.runs
        self.fields += other.fields
        self.names |= other.names
        self.differences += other.differences


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditInputs:
    """A configuration, the rows to run it on, and their neighbours."""

    name: str
    config: Config
    text: dict[str, Any]
    now: float
    original: Neighbour
    neighbours: tuple[Neighbour, ...]
    bounds: Mapping[str, tuple[Neighbour, Neighbour] | None]  # by who holds them: within, and beyond what may count

    @classmethod
    def read(cls, path: Path, *, rows: Path | None = None) -> Self:
        """Read a configuration and make its inputs from its declarations, or from the first rows of a file."""
        now = float(int(time.time()))
        config = load_config(path)
        text = tomllib.loads(path.read_text())
        for lookup in text.get("lookup", {}).values():
            lookup["file"] = str((path.parent / lookup["file"]).resolve())
        original_rows = generate_rows(config, now) if rows is None else read_rows(config, str(rows))
        return cls(
            name=path.name,
            config=config,
            text=text,
            now=now,
            original=Neighbour(name="the original", rows=original_rows),
            neighbours=(*neighbours(config, original_rows, now), *person_neighbours(config, original_rows, now)),
            bounds={
                "sender": beyond_bounds(config, original_rows, now),
                "client": beyond_clients_bounds(config, original_rows),
                "file": beyond_a_files_bound(config, original_rows, now),
            },
        )

    def fitting(self, ingest_paths: Sequence[IngestPath]) -> list[IngestPath]:
        """Return the ingest paths that this configuration can be fed through."""
        web = self.config.web
        fitting = {"log": is_logged(self.config), "beacon": web is not None and web.source == "beacon"}
        numbered = any(
            query.bounded_by == "sender" for query in self.config.queries
        )  # panstream query has no such option
        return [
            ingest_path
            for ingest_path in ingest_paths
            if fitting.get(ingest_path.format, self.bounds["client"] is not None or not ingest_path.has_client)
            and not (numbered and ingest_path.command == "query")
        ]

    @property
    def pause(self) -> float:
        """Return the seconds after which the next window begins, if the time of arrival counts; 0 otherwise."""
        lengths = [query.every or query.window for query in self.config.queries if query.every or query.window]
        return 0.0 if self.config.stream.time is not None else min(filter(None, lengths), default=0.0)


def bundled() -> list[Path]:
    """Return the bundled configurations, which together have every kind of query."""
    return sorted(Path(__file__).with_name("configurations").glob("*.toml"), key=lambda path: path.stem, reverse=True)


def audit_system(
    path: Path,
    fork_server: ForkServer,
    *,
    ingest_paths: Sequence[IngestPath] = INGEST_PATHS,
    injected_leaks: Sequence[str] = (),
    choose: Callable[[Neighbour], bool] = lambda neighbour: True,
    workers: Callable[[Neighbour], bool] = lambda neighbour: neighbour.is_informative,
) -> SystemReport:
    """Run a configuration on neighbouring inputs and compare all observable fields.

    ``injected_leaks`` are leaks that the fork server's instrument injects; ``choose`` selects neighbours, ``workers``
    those for a cluster, which takes seconds to start. Raises PanstreamError if a command fails on the original rows.
    """
    inputs = AuditInputs.read(path)
    inputs = replace(inputs, neighbours=tuple(filter(choose, inputs.neighbours)))
    report = SystemReport()
    for ingest_path in inputs.fitting(ingest_paths):
        audit_ingest_path(inputs, ingest_path, fork_server, report, injected_leaks=injected_leaks, workers=workers)
    report.neighbours = len(inputs.neighbours)
    return report


def audit_ingest_path(
    inputs: AuditInputs,
    ingest_path: IngestPath,
    fork_server: ForkServer,
    report: SystemReport,
    *,
    injected_leaks: Sequence[str] = (),
    workers: Callable[[Neighbour], bool] = lambda neighbour: neighbour.is_informative,
    before_run: Callable[[], None] = lambda: None,
) -> None:
    """Add to a report what the neighbours show through one ingest path.

    ``before_run`` is called before each run and may raise, to stop. Raises PanstreamError if a command fails on the
    original rows.
    """
    columns = inputs.config.stream.columns
    with tempfile.TemporaryDirectory(prefix="panstream-audit-") as folder:
        product = ProductDriver(
            Path(folder), inputs.text, inputs.config.stream.name, inputs.now, fork_server, tuple(injected_leaks)
        )
        if ingest_path.has_client:
            columns = {name: kind for name, kind in columns.items() if name != COLUMN}  # clients add it
        product.warm({ingest_path.encoding: inputs.original.encode(columns, ingest_path.encoding)})

        def observe(product: ProductDriver, variant: Neighbour, cuts: Sequence[int], step: int | None) -> Fields:
            before_run()
            report.runs += 1
            has_time = inputs.config.stream.time is not None or ingest_path.has_client
            arrived = None if has_time else _last_post(columns, variant, ingest_path)
            bodies = _bodies(columns, variant, ingest_path, cuts)
            pause = inputs.pause if cuts else 0.0
            return product.observe(ingest_path, bodies, after=arrived, batch_rows=step, pause=pause)

        originals: dict[tuple[int | None, bool], Fields] = {}
        for neighbour in () if ingest_path.has_client else inputs.neighbours:
            if not neighbour.fits(ingest_path.format) or (ingest_path.workers and not workers(neighbour)):
                continue
            # An additional row shifts rows between steps, and the number of rows in a file is public.
            step = None if neighbour.length else _STEP
            cuts = neighbour.cuts if inputs.pause and ingest_path.command == "serve" else ()
            before = originals.get((step, bool(cuts)))
            if before is None:
                before = observe(product, inputs.original, [cut for cut, _ in cuts], step)
                ended = str(128 + signal.SIGTERM) if ingest_path.is_live else "0"
                if before["exit code"] != ended and not injected_leaks:
                    raise PanstreamError(f"{ingest_path} does not work on the rows to audit with: {_last(before)}")
                originals[step, bool(cuts)] = before
            after = observe(product, neighbour, [cut for _, cut in cuts], step)
            report.neighbours += 1
            _compare(report, ingest_path, neighbour, before, after, other_windows=_opened(inputs, neighbour))
        holder = "client" if ingest_path.has_client else "file" if ingest_path.command == "query" else "sender"
        pair = inputs.bounds[holder]
        if pair is not None:
            counted = [query for query in inputs.text["query"] if query.get("contributions")]
            exact = replace(product, config={**inputs.text, "query": counted}, exact=True)
            within, beyond = pair
            ends = [[cut for _, cut in one.cuts] if ingest_path.has_client else [] for one in pair]
            before = observe(exact, within, ends[0], None)
            after = observe(exact, beyond, ends[1], None)
            report.neighbours += 1
            _compare(report, ingest_path, beyond, before, after, other_windows=False)


def _opened(inputs: AuditInputs, neighbour: Neighbour) -> bool:
    """Return whether a neighbour has rows in other windows than the original."""
    return windows_with_rows(inputs.config, neighbour.rows) != windows_with_rows(inputs.config, inputs.original.rows)


def _last(fields: Fields) -> str:
    return next(
        (text for name, text in reversed(fields.items()) if name.startswith(("stderr: line ", "log: line "))), ""
    )


def _bodies(
    columns: Mapping[str, str], neighbour: Neighbour, ingest_path: IngestPath, cuts: Sequence[int] = ()
) -> list[bytes]:
    """Return the rows as one file or, for a server, as several posts or two parts of a growing file.

    The last part has only the last row, so that this row has a separate step; before it, posts end at ``cuts``.
    """
    if not ingest_path.is_live:
        return [neighbour.encode(columns, ingest_path.format)]
    last = [] if ingest_path.has_client else [len(neighbour.rows) - 1]
    edges = [0, *cuts, *last, len(neighbour.rows)]
    line, kind = neighbour.line or (-1, "")
    parts = []
    for begin, end in pairwise(edges):
        corrupted = (line - begin, kind) if begin <= line < end else None
        part = replace(neighbour, rows=neighbour.rows[begin:end], line=corrupted)
        parts.append(part.encode(columns, ingest_path.encoding))
    if ingest_path.command == "follow" and ingest_path.format == "csv":  # the first part has the header
        parts[1:] = [part.partition(b"\n")[2] for part in parts[1:]]
    return parts


def _last_post(columns: Mapping[str, str], neighbour: Neighbour, ingest_path: IngestPath) -> bytes:
    """Return the last row, or no row if the neighbour has one fewer: whether one arrived must not be observable."""
    if neighbour.length >= 0:
        return _bodies(columns, replace(neighbour, line=None), ingest_path)[-1]
    if ingest_path.format == "csv" and ingest_path.command == "serve":
        return ",".join(columns).encode() + b"\n"
    return Neighbour(name="no row", rows=()).encode(columns, "arrow") if ingest_path.format == "arrow" else b""


def _compare(
    report: SystemReport,
    ingest_path: IngestPath,
    neighbour: Neighbour,
    before: Fields,
    after: Fields,
    *,
    other_windows: bool,
) -> None:
    report.names |= {*before, *after}
    # The first line says how the file was read: its types and dialect. These are inferred from public first rows, and
    # if they differ, so may everything else.
    schema_lines = [name for name in before if name.endswith("stderr: line 1")]
    is_other_schema = ingest_path.command == "query" and any(before[name] != after.get(name) for name in schema_lines)
    from_files = ingest_path.command in ("run", "follow")
    # A queried file has no late rows: every window with a row is answered, and which these are is public.
    windows = ingest_path.command == "query" and other_windows
    for name in {**before, **after}:
        report.fields += 1
        one = before.get(name, "nothing")
        other = after.get(name, "nothing")
        if one != other:
            report.differences.append(
                Difference(
                    ingest_path=str(ingest_path),
                    neighbour=neighbour.name,
                    field=name,
                    before=one,
                    after=other,
                    fact=(_GUESSED if is_other_schema else None)
                    or (_READ_SO_FAR if from_files and _POSITION.search(name) else None)
                    or (_WINDOWS if windows and _ANSWERED.search(name) else None),
                )
            )
