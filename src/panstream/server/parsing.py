"""Threads that parse bodies, so that the engine's thread never does, whatever somebody sends."""

from __future__ import annotations

import threading
from collections.abc import Callable

from panstream.engine.rows import RowSchema
from panstream.server.bodies import parse
from panstream.server.jobs import Job
from panstream.server.refusals import Refusal
from panstream.server.turns import Turns

__all__ = ["Parsers", "failure"]

_SMALL = 1 << 18  # bytes of a body that does not keep others waiting


class Parsers:
    """One thread for small bodies, which wait for no large one, and one for large and compressed ones; tokens take turns.

    ``parsed`` is called with every job by the thread that parsed it, or refused it; ``died`` if such a thread ends.
    """

    def __init__(self, schema: RowSchema, parsed: Callable[[Job], None], died: Callable[[], None]) -> None:
        self._schema, self._parsed, self._died = schema, parsed, died
        self._small, self._large = Turns(), Turns()
        self._threads = [
            threading.Thread(target=self._run, args=[jobs], name="parse", daemon=True)
            for jobs in (self._small, self._large)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Parse what waits, and end."""
        for jobs in (self._small, self._large):
            jobs.end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def submit(self, job: Job) -> None:
        """Have the body of a job parsed."""
        assert job.body is not None
        plain = job.body.encoding == "identity" and job.body.size <= _SMALL
        (self._small if plain else self._large).put(job)

    def _run(self, jobs: Turns) -> None:
        try:
            while (job := jobs.get()) is not None:
                self._parse(job)
                self._parsed(job)
        except BaseException:
            self._died()

    def _parse(self, job: Job) -> None:
        assert job.body is not None
        try:
            job.work = parse(job.body, self._schema)
        except Refusal as refusal:
            job.refusal = Refusal(refusal.code, refusal.message, row=refusal.row, retry_after=refusal.retry_after)
        except Exception as error:
            job.refusal = failure(error, "a body could not be read")


def failure(error: Exception, what: str) -> Refusal:
    """Return what a sender is told whose body the server could not deal with; the error itself may quote a row."""
    if isinstance(error, MemoryError):
        return Refusal("too_large", "the body takes more memory than there is; send it in smaller parts")
    return Refusal("internal", f"{what} ({type(error).__name__})")
