"""Run the audits of claims and of the system with progress bars, for ``panstream audit`` and for evidence."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from panstream.cli.common import progress_bar

if TYPE_CHECKING:
    from panstream.audit.claims.case import Case, Finding
    from panstream.audit.product.audit import Difference, SystemReport
    from panstream.audit.product.parallel import AuditPart

_SHOWN = 20  # most differences printed per configuration and ingest path


def run_claims(names: list[str], full: bool, jobs: int, quiet: bool) -> list[Finding]:
    """Audit the claims of the cases whose names begin with one of ``names``; all by default."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from panstream.audit.claims.runner import audit as run
    from panstream.audit.claims.runner import select

    chosen: list[Case] = select(names)
    columns = (
        TextColumn("auditing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with progress_bar(*columns, hidden=quiet) as progress:
        task = progress.add_task("", total=len(chosen))

        def done(finding: Finding) -> None:
            progress.update(task, advance=1, description=finding.name)

        return run(chosen, full=full, jobs=min(jobs, max(1, len(chosen) // 4)), on_case_done=done)


def run_parts(parts: Sequence[AuditPart], jobs: int, *, quiet: bool) -> None:
    """Run the parts; print each that ends, and every undeclared difference as soon as it is known."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    from panstream.audit.product.parallel import audit_parts

    begin = time.monotonic()
    printed: Counter[str] = Counter()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with progress_bar(*columns, hidden=quiet) as progress:
        task = progress.add_task("")
        for finished in audit_parts(parts, jobs=jobs):
            done = sum(part.is_done for part in parts)
            runs = sum(part.report.runs for part in parts)
            wrong = sum(len(part.report.undeclared) for part in parts)
            progress.update(
                task, description=f"{done} of {len(parts)} parts, {runs:,} runs, {wrong} undeclared differences"
            )
            if quiet:
                continue
            for part in parts:
                for difference in part.report.undeclared[printed[str(part)] : _SHOWN]:
                    printed[str(part)] += 1
                    progress.console.print(_difference(part, difference), soft_wrap=True, markup=False, highlight=False)
            if finished is not None:
                minutes, seconds = divmod(int(time.monotonic() - begin), 60)
                line = f"[{minutes}:{seconds:02}, {done} of {len(parts)}] {_part_line(finished)}"
                progress.console.print(line, soft_wrap=True, markup=False, highlight=False)


def _difference(part: AuditPart, difference: Difference) -> str:
    return (
        f"  {part}, {difference.neighbour}: {difference.field}: {difference.before[:60]!r} / {difference.after[:60]!r}"
    )


def _part_line(part: AuditPart) -> str:
    if part.error:
        return f"{part}: not compared: {part.error}"
    return f"{part}: {format_numbers(part.report)}, {part.seconds:.0f} s"


def format_numbers(report: SystemReport) -> str:
    """Return what was compared and how many differences are declared or not, as one line."""
    declared = sorted({difference.fact for difference in report.differences if difference.fact is not None})
    return (
        f"{report.neighbours:,} neighbours, {report.runs:,} runs, {len(report.names):,} fields compared "
        f"{report.fields:,} times, {len(report.undeclared)} undeclared differences"
        + (f" (declared: {'; '.join(declared)})" if declared else "")
    )
