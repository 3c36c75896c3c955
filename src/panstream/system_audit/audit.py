"""The audit: every neighbour down every road, and every field compared with the run on the original rows."""

from __future__ import annotations

import re
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from panstream.engine.config import load_config
from panstream.errors import PanstreamError
from panstream.system_audit.drive import Product, Road
from panstream.system_audit.formats import encode, fits
from panstream.system_audit.neighbours import Neighbour, neighbours
from panstream.system_audit.observe import Fields
from panstream.system_audit.table import Table, generated, read_rows

__all__ = ["FACTS", "QUICK", "ROADS", "Difference", "SystemReport", "audit_system", "bundled"]

ROADS = (
    Road(command="run", format="csv"),
    Road(command="run", format="json"),
    Road(command="run", format="parquet"),
    Road(command="serve", format="csv"),
    Road(command="serve", format="json"),
    Road(command="serve", format="arrow"),
    Road(command="run", format="csv", workers=2),
    Road(command="serve", format="csv", workers=2),
)

QUICK = (ROADS[0], ROADS[2])

_STEP = 5  # rows of a step, where files are cut into steps

# What may differ, and why: a pattern of fields, when it applies, and the public fact that covers it.
FACTS: tuple[tuple[str, str, str], ...] = (
    (r"^store/.*meta: (seen|positions)\b.*rows\.", "run", "how far a file was read"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field that is not the same for two neighbours."""

    road: str
    neighbour: str
    field: str
    before: str
    after: str
    fact: str | None = None  # the declared public fact that covers it


@dataclass(slots=True, kw_only=True)
class SystemReport:
    """What was tried, and what differed."""

    neighbours: int = 0
    runs: int = 0
    fields: int = 0
    names: set[str] = field(default_factory=set)
    differences: list[Difference] = field(default_factory=list)

    @property
    def undeclared(self) -> list[Difference]:
        """Return the differences that no declared fact covers."""
        return [each for each in self.differences if each.fact is None]

    @property
    def ok(self) -> bool:
        """Return whether nothing differed that was not declared, and something was compared."""
        return not self.undeclared and self.fields > 0


def bundled() -> list[Path]:
    """Return the configurations that come with the package: between them every kind of query."""
    return sorted(Path(__file__).with_name("configurations").glob("*.toml"), key=lambda path: path.stem, reverse=True)


def audit_system(
    path: Path,
    *,
    rows: Path | None = None,
    roads: Sequence[Road] = ROADS,
    plants: Sequence[str] = (),
    choose: Callable[[Neighbour], bool] = lambda neighbour: True,
    workers: Callable[[Neighbour], bool] = lambda neighbour: neighbour.telling,
    done: Callable[[Road, Neighbour], None] = lambda road, neighbour: None,
) -> SystemReport:
    """Run a configuration on neighbouring inputs and compare all that can be seen.

    ``plants`` are leaks put in; ``workers`` chooses the neighbours for a cluster, which takes seconds to start.
    """
    now = float(int(time.time()))
    config = load_config(path)
    text = tomllib.loads(path.read_text())
    table = generated(config, now) if rows is None else read_rows(config, str(rows))
    original = Neighbour(name="the original", rows=table.rows)
    tried = [each for each in neighbours(config, table, now) if choose(each)]
    report = SystemReport(neighbours=len(tried))
    with (
        tempfile.TemporaryDirectory(prefix="panstream-audit-") as folder,
        Product.started(Path(folder), config, text, now, plants) as product,
    ):
        product.warm({road.format: encode(table, original, road.format) for road in roads})
        for road in roads:
            originals: dict[int | None, Fields] = {}
            for neighbour in tried:
                if fits(neighbour, road.format) and (not road.workers or workers(neighbour)):
                    # Where a file has a row more, rows fall into other steps: the number of its rows is public.
                    step = None if neighbour.length else _STEP
                    for each in [neighbour] if step in originals else [original, neighbour]:
                        after = product.observe(road, _bodies(table, each, road), batch_rows=step)
                        before = originals.setdefault(step, after)
                        if before["exit code"] != "0":
                            raise PanstreamError(f"{road} does not work on the rows to audit with: {_last(before)}")
                        report.runs += 1
                    _compare(report, road, neighbour, before, after)
                    done(road, neighbour)
    return report


def _last(fields: Fields) -> str:
    return next(
        (text for name, text in reversed(fields.items()) if name.startswith(("stderr: line ", "log: line "))), ""
    )


def _bodies(table: Table, neighbour: Neighbour, road: Road) -> list[bytes]:
    """Return the rows as a file; or as two posts, of which the second has the last row alone, so that it has a step of its own."""
    if road.command == "run":
        return [encode(table, neighbour, road.format)]
    parts = (replace(neighbour, rows=neighbour.rows[:-1]), Neighbour(name=neighbour.name, rows=neighbour.rows[-1:]))
    return [encode(table, part, road.format) for part in parts]


def _compare(report: SystemReport, road: Road, neighbour: Neighbour, before: Fields, after: Fields) -> None:
    report.names |= {*before, *after}
    for name in {**before, **after}:
        report.fields += 1
        one, other = before.get(name, "nothing"), after.get(name, "nothing")
        if one != other:
            report.differences.append(
                Difference(
                    road=str(road),
                    neighbour=neighbour.name,
                    field=name,
                    before=one,
                    after=other,
                    fact=_fact(road, name),
                )
            )


def _fact(road: Road, name: str) -> str | None:
    for pattern, command, fact in FACTS:
        if road.command == command and re.search(pattern, name):
            return fact
    return None
