"""Audit several configurations and ingest paths at the same time, with one fork server per job, and report progress.

A run waits for the clock of its server as often as it computes, and no run can disturb another: each fork server has a
clock of its own, each run a directory and a port.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from panstream.audit.product._driver import IngestPath
from panstream.audit.product.audit import AuditInputs, SystemReport, audit_ingest_path
from panstream.audit.product.fork_server_client import ForkServer
from panstream.errors import PanstreamError

_POLL = 0.5  # seconds between two looks at the progress


class _StoppedError(Exception):
    """Raised in a job between two runs after the audit was interrupted."""


@dataclass(slots=True, kw_only=True)
class AuditPart:
    """One configuration through one ingest path."""

    inputs: AuditInputs
    ingest_path: IngestPath
    report: SystemReport = field(default_factory=SystemReport)
    seconds: float = 0.0
    is_done: bool = False
    error: str = ""

    @property
    def ok(self) -> bool:
        """Return whether the part was compared to its end and nothing undeclared differs."""
        return self.is_done and not self.error and self.report.ok

    def __str__(self) -> str:
        return f"{self.inputs.name}, {self.ingest_path}"


def parts_of(inputs: Sequence[AuditInputs], ingest_paths: Sequence[IngestPath]) -> list[AuditPart]:
    """Return all parts of an audit; those that last longest first, so that all jobs end together."""
    parts = [
        AuditPart(inputs=one, ingest_path=ingest_path) for one in inputs for ingest_path in one.fitting(ingest_paths)
    ]
    commands = ("query", "serve", "follow", "run")
    return sorted(parts, key=lambda part: (-part.ingest_path.workers, commands.index(part.ingest_path.command)))


def audit_parts(parts: Sequence[AuditPart], *, jobs: int) -> Iterator[AuditPart | None]:
    """Run the parts; yield each when it is done, and None twice a second, so that progress can be shown.

    What an interrupted audit has found so far is in the reports of the parts.
    """
    waiting: queue.SimpleQueue[AuditPart] = queue.SimpleQueue()
    finished: queue.SimpleQueue[AuditPart | BaseException] = queue.SimpleQueue()
    for part in parts:
        waiting.put(part)
    stop = threading.Event()
    threads = [
        threading.Thread(target=_work, args=(waiting, finished, stop)) for _ in range(max(1, min(jobs, len(parts))))
    ]
    try:
        for thread in threads:
            thread.start()
        remaining = len(parts)
        while remaining:
            try:
                part_or_error = finished.get(timeout=_POLL)
            except queue.Empty:
                yield None
                continue
            if isinstance(part_or_error, BaseException):
                raise part_or_error
            remaining -= 1
            yield part_or_error
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _work(
    waiting: queue.SimpleQueue[AuditPart],
    finished: queue.SimpleQueue[AuditPart | BaseException],
    stop: threading.Event,
) -> None:
    try:
        with ForkServer.started() as fork_server:
            while not stop.is_set():
                try:
                    part = waiting.get_nowait()
                except queue.Empty:
                    return
                _audit_part(part, fork_server, before_run=lambda: _check(stop))
                finished.put(part)
    except _StoppedError:
        return
    except BaseException as error:
        finished.put(error)


def _audit_part(part: AuditPart, fork_server: ForkServer, before_run: Callable[[], None]) -> None:
    begin = time.perf_counter()
    try:
        audit_ingest_path(part.inputs, part.ingest_path, fork_server, part.report, before_run=before_run)
        part.is_done = True
    except PanstreamError as error:
        part.error = str(error)
        part.is_done = True
    finally:
        part.seconds = time.perf_counter() - begin


def _check(stop: threading.Event) -> None:
    if stop.is_set():
        raise _StoppedError
